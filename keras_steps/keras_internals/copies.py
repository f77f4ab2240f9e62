"""Copies of variables on the host: making them, putting them back, and whether they are sound."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import numpy as np

from keras_steps.keras_internals.flavour import held_by


def copied(variables: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Copies on the host that nothing else holds: the training goes on, they stay.

    Raises:
        RuntimeError: If a variable has handed its value to the JAX fit that is under way.
    """
    held = {key: _held(key, variable) for key, variable in variables.items()}
    for value in held.values():
        if hasattr(value, "copy_to_host_async"):  # from an accelerator: all at once
            value.copy_to_host_async()
    return {key: _copy(value) for key, value in held.items()}


def assigned(variables: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Put copies back, in place: what was compiled sees them. All are compared first.

    Raises:
        ValueError: If a key is in one of the two only, or a shape or type differs.
        RuntimeError: If a variable has handed its value to the JAX fit that is under way.
    """
    for key in [*variables, *arrays]:
        if key not in arrays or key not in variables:
            only = "the state that was saved" if key in arrays else "the model and its optimizers"
            raise ValueError(
                f"{key} is only in {only} ({len(arrays)} arrays for {len(variables)} variables). "
                "Build the same model, with the same optimizer, before its state is put back."
            )
        there, here = _kind(arrays[key]), _kind(variables[key])
        if there != here:
            raise ValueError(
                f"{key} has the shape and type {here} here, and {there} in the state that was "
                "saved. Build the same model before its state is put back."
            )
    for key, variable in variables.items():
        _assign(variable, _held(key, variable), np.array(arrays[key]))


def first_non_finite(
    arrays: Mapping[str, np.ndarray], may_be_infinite: Container[str] = ()
) -> str | None:
    """The key of the first array with NaN or infinity in it, if there is one.

    Args:
        arrays: By their keys.
        may_be_infinite: The keys of those in which only NaN counts.
    """
    for key, array in arrays.items():
        if not _is_finite(array) and (key not in may_be_infinite or np.isnan(array).any()):
            return key
    return None


def _is_finite(array: np.ndarray) -> bool:
    name = array.dtype.name
    if name in ("bfloat16", "float16"):  # the exponent's bits: arithmetic on these is slow
        highest = 0x7F80 if name == "bfloat16" else 0x7C00
        return not array.size or int((array.view(np.uint16) & 0x7FFF).max()) < highest
    if name.startswith("float8"):
        return bool(np.isfinite(array.astype(np.float32)).all())
    if array.dtype.kind not in "fc":
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.add.reduce(array, axis=None)  # one pass, without an array of answers
    return bool(np.isfinite(total)) or bool(np.isfinite(array).all())


def _held(key: str, variable: Any) -> Any:
    """The backend's own variable or array, of one replica where all have the same."""
    held = held_by(variable)
    if held is None:
        raise RuntimeError(
            f"{key} has handed its value to the fit that is under way. Publish the state of "
            "that fit first."
        )
    if not getattr(held, "is_fully_addressable", True) and not _is_whole_here(held):
        raise RuntimeError(
            f"{key} is divided among several processes, and none of them can copy or save the "
            "whole of it. Let the mesh's batch axis run over the processes and its model axis "
            "within each: then every process holds all of the model."
        )
    replicas = getattr(held, "values", None)
    return replicas[0] if isinstance(replicas, tuple) and replicas else held


def _is_whole_here(array: Any) -> bool:
    """Whether the shards of a JAX array that are on this process's devices make it up."""
    everywhere = array.sharding.devices_indices_map(array.shape).values()
    here = array.sharding.addressable_devices_indices_map(array.shape).values()
    return {str(part) for part in everywhere} == {str(part) for part in here}


def _copy(held: Any) -> np.ndarray:
    if hasattr(held, "detach"):
        return _copy_of_tensor(held.detach())
    if not hasattr(held, "read_value"):
        return np.array(held)
    array = np.asarray(held.read_value().numpy())  # a copy already, in the versions seen
    return array if array.flags.owndata else array.copy()


def _copy_of_tensor(tensor: Any) -> np.ndarray:
    """NumPy has no view of a torch tensor in bfloat16 or float8, but one of its bits.

    Nor has it one of a tensor whose conjugation or sign torch has put off.
    """
    here = tensor.cpu().resolve_conj().resolve_neg()
    name = str(tensor.dtype).removeprefix("torch.")
    if name == "bfloat16" or name.startswith("float8"):
        import ml_dtypes
        import torch

        bits = here.view(torch.int16 if name == "bfloat16" else torch.uint8).numpy()
        return bits.view(getattr(ml_dtypes, name)).copy()
    return here.numpy().copy() if here is tensor else here.numpy()


def _assign(variable: Any, held: Any, array: np.ndarray) -> None:
    """`array` is handed over: TensorFlow and JAX may use its memory, and write to it."""
    if not hasattr(held, "detach"):
        variable.assign(array)
        return
    import torch

    bits = {2: np.int16, 1: np.uint8}
    is_named = array.dtype.name == "bfloat16" or array.dtype.name.startswith("float8")
    source = array.view(bits[array.itemsize]) if is_named else array
    with torch.no_grad():
        held.copy_(
            torch.from_numpy(source).view(held.dtype) if is_named else torch.from_numpy(source)
        )


def _kind(thing: Any) -> tuple[tuple[int, ...], str]:
    name = str(getattr(thing.dtype, "name", thing.dtype))
    return tuple(thing.shape), "string" if name == "object" else name
