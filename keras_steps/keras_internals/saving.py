"""Writing a whole model in a background thread, from a copy, while the training goes on."""

from __future__ import annotations

import datetime
import json
import zipfile
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_steps.keras_internals.copies import copied
from keras_steps.keras_internals.flavour import backend_of
from keras_steps.keras_internals.model_state import state_variables, whole_values
from keras_steps.keras_internals.variables import is_purged


class PreparedSave:
    """A save whose values are taken: what remains to be done can be done in any thread.

    `arrays` are the values by name. On Keras 3 they are the copy of the whole state under
    the keys of `state_variables`; on tf_keras what the file will hold, under its paths.

    `write` takes the path of the file: on this machine, ending in `.keras`, or in `.weights.h5`
    for weights only. What is there is written over.

    `may_be_infinite` are the names of arrays in which infinity is no sign of a run that diverges.
    """

    def __init__(
        self,
        arrays: Mapping[str, np.ndarray],
        write: Callable[[Path], None],
        may_be_infinite: Container[str] = (),
    ) -> None:
        self.arrays = arrays
        self.write = write
        self.may_be_infinite = may_be_infinite


def can_save(model: Any) -> Exception | None:
    """Why the whole model can't be saved, if it can't: most often a layer without get_config.

    Makes what goes into the file's config, and drops it. Call it at train begin, while the
    variables hold their values.
    """
    try:
        json.dumps(_home(model).saving.serialize_keras_object(model))
    except Exception as error:
        return error
    return None


def prepare_save(
    model: Any,
    *,
    weights_only: bool,
    arrays: Mapping[str, np.ndarray] | None = None,
) -> PreparedSave:
    """Take the values of a save, in the thread that trains.

    Keras 3 reads variables through a scope that each thread has of its own: the file is
    made in the other thread, and finds the copy there. tf_keras has no such scope: it walks
    through the model here, into memory, and only the file is made there.

    Args:
        model: A built model, whose JAX state is published.
        weights_only: Whether to save weights and optimizer without the model's structure.
        arrays: A copy of `state_variables(model)`, if there is one already (Keras 3).
    """
    if backend_of(model) == "tf_keras":
        return _from_tf_keras(model, weights_only)
    arrays = copied(state_variables(model)) if arrays is None else arrays
    values = whole_values(model, arrays)
    return PreparedSave(arrays, lambda path: _write(model, values, str(path), weights_only))


class _CopiedValues(keras.StatelessScope):
    """In the thread that enters it, variables have the values that were copied.

    They become tensors one at a time, as they are read. The scope's own `state_mapping`
    would make all of them tensors at once.
    """

    def __init__(self, values: list[tuple[Any, np.ndarray]]) -> None:
        super().__init__()
        self._copies = {id(variable): array for variable, array in values}
        self._variables = [variable for variable, _ in values]  # so that their ids stay theirs

    def get_current_value(self, variable: Any) -> Any:
        updated = super().get_current_value(variable)
        if updated is not None:
            return updated
        if id(variable) not in self._copies:
            purged = " and has no value during the fit" if is_purged(variable) else ""
            raise RuntimeError(
                f"Saving reads the variable {variable.path}, which was not copied{purged}. Make "
                "its layer, metric or optimizer an attribute of the model."
            )
        return keras.ops.convert_to_tensor(self._copies[id(variable)], dtype=variable.dtype)


def _write(model: Any, values: list[tuple[Any, np.ndarray]], path: str, weights_only: bool) -> None:
    from keras.src.backend.common.stateless_scope import get_stateless_scope

    _prepare_skipsets()
    scope = _CopiedValues(values)
    with keras.device("cpu"), scope:
        if weights_only:
            model.save_weights(path, overwrite=True)
        else:
            keras.saving.save_model(model, path)
        if get_stateless_scope() is not scope:  # clear_session forgets those of all threads
            raise RuntimeError(
                f"keras.utils.clear_session() was called while {path} was being written, which "
                "mixes in what the variables hold by now. Call it after the fit has ended."
            )


def _prepare_skipsets() -> None:
    """Make what saving compares each object's attributes with, once for this thread.

    Keras makes a plain optimizer for that, which the scope forbids. It looks for what it
    has made before under a name that it never uses: `skiplist` for `skipset`.
    """
    from keras.src.backend.common import global_state
    from keras.src.saving.saving_lib import get_attr_skipset

    for kind in ("Operation", "Layer", "Functional", "Sequential", "Metric", "Optimizer", "Loss"):
        name = f"saving_attr_skiplist_{kind}"
        if global_state.get_global_attribute(name) is None:
            global_state.set_global_attribute(name, get_attr_skipset(kind))


class _Memory:
    """Takes the place of the HDF5 file that tf_keras's saving writes to."""

    def __init__(self) -> None:
        self.groups: dict[str, _Group] = {}

    def make(self, path: str) -> _Group:
        return self.groups.setdefault(path, _Group())


class _Group(dict[str, np.ndarray]):
    """Arrays are kept as they come: tf_keras makes them for the file."""

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value if isinstance(value, np.ndarray) else np.array(value))


def _from_tf_keras(model: Any, weights_only: bool) -> PreparedSave:
    from tf_keras.src.saving import saving_lib

    memory = _Memory()
    files = {} if weights_only else _descriptions(model)
    # With an archive it makes its folder; it writes to the archive as it is closed.
    folder = saving_lib._ASSETS_DIRNAME
    assets = None if weights_only else saving_lib.DiskIOStore(folder, archive=True, mode="w")
    saving_lib._save_state(
        model, weights_store=memory, assets_store=assets, inner_path="", visited_trackables=set()
    )
    arrays = {
        f"{group}/vars/{name}".lstrip("/"): array
        for group, entries in memory.groups.items()
        for name, array in entries.items()
    }

    def write(path: Path) -> None:
        if assets is None:
            _fill(saving_lib.H5IOStore(str(path), mode="w"), memory)
            return
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in files.items():
                archive.writestr(name, text)
            name = saving_lib._VARS_FNAME + ".h5"
            _fill(saving_lib.H5IOStore(name, archive=archive, mode="w"), memory)
            assets.archive = archive
            assets.close()

    return PreparedSave(arrays, write)


def _descriptions(model: Any) -> dict[str, str]:
    """The text files of tf_keras's archive, as its save_model makes them."""
    import tf_keras
    from tf_keras.src.saving import saving_lib

    before = saving_lib.saving_v3_enabled()
    saving_lib._SAVING_V3_ENABLED.value = True
    try:
        with saving_lib.ObjectSharingScope():
            config = saving_lib.serialize_keras_object(model)
    finally:
        saving_lib._SAVING_V3_ENABLED.value = before
    now = datetime.datetime.now().strftime("%Y-%m-%d@%H:%M:%S")
    metadata = {"keras_version": tf_keras.__version__, "date_saved": now}
    return {
        saving_lib._METADATA_FILENAME: json.dumps(metadata),
        saving_lib._CONFIG_FILENAME: json.dumps(config),
    }


def _fill(store: Any, memory: _Memory) -> None:
    try:
        for path, entries in memory.groups.items():
            group = store.make(path)
            for name, array in entries.items():
                group[name] = array
    finally:
        store.close()


def _home(model: Any) -> Any:
    if backend_of(model) != "tf_keras":
        return keras
    import tf_keras

    return tf_keras
