"""Arrays of NumPy, JAX, torch and TensorFlow: described for JSON, and made again."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any

import numpy as np

_FRAMEWORKS = ("jax", "torch", "tensorflow")
_NUMBERS = re.compile(r"bool|u?int|b?float|complex(?!32)")


def is_array(value: Any) -> bool:
    """Whether it is an array of NumPy, JAX, torch or TensorFlow; variables are none."""
    return _framework_of(value) is not None


def array_apart(value: Any, name: str, arrays: MutableMapping[str, Any]) -> dict[str, Any]:
    """What an array is, for JSON; it is added to `arrays`, not copied yet.

    Args:
        value: The array.
        name: Where it is, as messages and keys have it.
        arrays: By keys that no other array has, which read like paths, and have a slash.

    Raises:
        TypeError: If it doesn't hold numbers, is not whole, or is sparse, nested or masked.
    """
    framework = _framework_of(value)
    described: dict[str, Any] = {"of": framework}
    if isinstance(value, np.generic):
        described["is_scalar"] = True
    if framework == "jax":
        import jax

        if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            described["random"] = str(jax.random.key_impl(value))
            value = jax.random.key_data(value)
        elif value.weak_type and not value.shape:  # it gives way to the types of others
            described["is_weak"] = True
    if hasattr(value, "full_tensor"):
        raise TypeError(
            f"{name} must be a whole tensor; received {type(value).__name__}, which is divided "
            "among several processes. Pass a function that returns the full tensors."
        )
    if framework == "torch" and (str(value.layout) != "torch.strided" or value.is_nested):
        layout = "nested" if value.is_nested else value.layout
        raise TypeError(
            f"{name} must be a dense tensor; received one of the layout {layout}. Pass a "
            "function that returns its parts, or `tensor.to_dense()`."
        )
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f"{name} must be without a mask; received a {type(value).__name__}. Pass a function "
            "that returns its `data` and its `mask`."
        )
    kind = type_of_numbers(value, name)
    key = re.sub(r"[^\w./-]", "_", name if "/" in name else f"{name}/value")
    while key in arrays:
        key += "_"
    arrays[key] = value
    return {"array": key, "shape": list(value.shape), "dtype": kind, **described}


def type_of_numbers(value: Any, name: str) -> str:
    """The name of the type of an array, or of a variable of any backend.

    Raises:
        TypeError: If it doesn't hold numbers, naming the place.
    """
    kind = str(getattr(value.dtype, "name", value.dtype)).removeprefix("torch.")
    if not _NUMBERS.match(kind):
        raise TypeError(f"{name} must hold numbers; received an array of the type {kind}.")
    return kind


def array_again(structure: Mapping[str, Any], array: np.ndarray, like: Any) -> Any:
    """The array of its framework that `array_apart` described.

    Args:
        structure: The description.
        array: A copy of its values, which is handed over.
        like: An array that is there in its place, if there is one: it is put on its device.
    """
    framework = structure["of"]
    if framework == "jax":
        return _jax_array(structure, array, like)
    if framework == "torch":
        return _torch_tensor(structure["dtype"], array, like)
    if framework == "tensorflow":
        import tensorflow as tf

        return tf.constant(array)
    is_scalar = "is_scalar" in structure if like is None else isinstance(like, np.generic)
    return array[()] if is_scalar else array


def array_in_words(structure: Mapping[str, Any]) -> str:
    """An array in words."""
    random = f", of random keys {structure['random']}" if "random" in structure else ""
    return f"{structure['dtype']} of shape {tuple(structure['shape'])}{random}"


def _framework_of(value: Any) -> str | None:
    """Which framework's array a value is, if it is one."""
    if isinstance(value, (np.ndarray, np.generic)):
        return "numpy"
    jax, torch, tensorflow = (sys.modules.get(name) for name in _FRAMEWORKS)
    if jax is not None and isinstance(value, jax.Array):
        return "jax"
    if torch is not None and isinstance(value, torch.Tensor):
        return "torch"
    if tensorflow is not None and isinstance(value, tensorflow.Tensor):
        return "tensorflow"
    return None


def _jax_array(structure: Mapping[str, Any], array: np.ndarray, like: Any) -> Any:
    import jax

    is_weak = structure.get("is_weak", False)
    new = jax.numpy.asarray(array.item() if is_weak else array)
    if "random" in structure:
        new = jax.random.wrap_key_data(new, impl=structure["random"])
    if isinstance(like, jax.Array) and like.committed:
        return jax.device_put(new, like.sharding)
    return new


def _torch_tensor(kind: str, array: np.ndarray, like: Any) -> Any:
    """Through its bits, where torch knows no such array."""
    import torch

    wanted = getattr(torch, kind)
    is_named = kind == "bfloat16" or kind.startswith("float8")
    source = array.view(f"i{array.itemsize}") if is_named else array
    new = torch.from_numpy(source).view(wanted) if is_named else torch.from_numpy(source)
    if isinstance(like, torch.Tensor):
        return new.to(like.device).requires_grad_(like.requires_grad)
    return new
