"""What a StepCheckpoint saves: the model, its weights, or objects that it was given."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

from keras_steps.keras_internals import PreparedSave, can_save, copied, prepare_save
from keras_steps.object_files import ENDING, write_objects
from keras_steps.savable_objects import is_savable, state_of
from keras_steps.state_trees import array_names

_NAME = re.compile(r"\w[\w.-]*")


class Contents(Protocol):
    """What each of a run's checkpoints holds.

    Attributes:
        ending: That of its file.
        needs_model: Whether it is the model.
    """

    ending: str
    needs_model: bool

    def require(self, model: Any) -> None:
        """Raise at train begin if it is known that it can't be saved."""

    def prepare(self, model: Any) -> PreparedSave:
        """Copy it as it is now, in the thread that trains."""


def contents_of(objects: Any, *, weights_only: bool) -> Contents:
    """What a StepCheckpoint saves that was given these two arguments."""
    if objects is None:
        return ModelContents(weights_only=weights_only)
    if weights_only:
        raise ValueError(
            "StepCheckpoint(objects) must be without save_weights_only=True, which is about the "
            "model that it saves otherwise; received both."
        )
    return ObjectContents(objects)


class ModelContents:
    """The whole model, or its weights.

    Args:
        weights_only: Which of the two.
    """

    needs_model = True

    def __init__(self, *, weights_only: bool) -> None:
        self.ending = ".weights.h5" if weights_only else ".keras"
        self._weights_only = weights_only

    def require(self, model: Any) -> None:
        error = None if self._weights_only else can_save(model)
        if error is not None:
            raise ValueError(
                f"StepCheckpoint: the model {model.name!r} can't be saved: {error} Or pass "
                "save_weights_only=True."
            ) from error

    def prepare(self, model: Any) -> PreparedSave:
        return prepare_save(model, weights_only=self._weights_only)


class ObjectContents:
    """Objects by name. A copy is of the same ones, which are what is trained.

    Args:
        objects: As StepCheckpoint takes them.
    """

    needs_model = False
    ending = ENDING

    def __init__(self, objects: Any) -> None:
        self._objects = checked_objects(objects, "StepCheckpoint(objects)")

    def require(self, model: Any) -> None:
        for name, thing in self._objects.items():
            state = state_of(name, thing)
            if state.is_built:  # or will be, by the first step
                state.taken_apart({})

    def prepare(self, model: Any) -> PreparedSave:
        held: dict[str, Any] = {}
        objects, checked, may_be_infinite = {}, [], set()
        for name, thing in self._objects.items():
            state = state_of(name, thing)
            taken = state.taken_apart(held)
            objects[name] = {"kind": state.kind, "state": taken}
            parts = taken["dict"] if isinstance(taken, dict) and "dict" in taken else [["", taken]]
            for key, part in parts:
                names = [f"objects/{array}" for array, _ in array_names(part)]
                checked += names if state.is_checked(key) else []
                may_be_infinite.update(names if state.may_be_infinite(key) else [])
        arrays = copied(held)
        return PreparedSave(
            {name: arrays[name.removeprefix("objects/")] for name in checked},
            lambda path: write_objects(path, objects, arrays),
            may_be_infinite,
        )

    def __deepcopy__(self, memo: Any) -> ObjectContents:
        return self


def checked_objects(objects: Any, asked_by: str) -> dict[str, Any]:
    """A dict of savable objects, or the error that says what it takes.

    Raises:
        TypeError: If it is no dict, or a value in it can't be saved.
        ValueError: If it is empty, or a name can't be part of a path.
    """
    if not isinstance(objects, Mapping):
        raise TypeError(
            f"{asked_by} must be a dict from names to objects, such as "
            f"{{'generator': generator, 'optimizer': optimizer}}; received {objects!r}."
        )
    if not objects:
        raise ValueError(f"{asked_by} must have at least one object; received an empty dict.")
    for name, thing in objects.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(
                f"{asked_by}: a name must be of letters, digits, '_', '-' and '.', as part of a "
                f"path; received {name!r}."
            )
        if not is_savable(thing):
            raise TypeError(
                f"{asked_by}: {name!r} must be an object of Keras or TensorFlow that holds "
                "variables, an object with state_dict() and load_state_dict(), as torch's have, or "
                "a function without arguments that returns what is to be saved, such as "
                f"`lambda: params`; received {thing!r}."
            )
    return dict(objects)
