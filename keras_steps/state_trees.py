"""Nested states, such as a pytree of JAX or a state_dict of torch, as JSON and arrays."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import numpy as np

from keras_steps.framework_arrays import array_again, array_apart, array_in_words, is_array

_PLAIN = (type(None), bool, int, float, str)


def taken_apart(
    value: Any, name: str, arrays: MutableMapping[str, Any], *, stands_alone: bool = False
) -> Any:
    """The structure of a state, for JSON; its arrays are added to `arrays`, not copied yet.

    Args:
        value: Dicts, lists and tuples, and what JAX knows as a pytree, of arrays of NumPy, JAX,
            torch and TensorFlow and plain numbers, strings, None and bools.
        name: Where it is, as messages and keys have it.
        arrays: By keys that no other array has, which read like paths.
        stands_alone: Whether it is made again with no state like it at hand, which would tell
            the types of dicts, lists and tuples that are of a class of their own.

    Raises:
        TypeError: If it holds something else, naming the place.
    """
    if type(value) in _PLAIN:
        return value
    if is_array(value):
        return array_apart(value, name, arrays)
    if stands_alone and type(value) not in (dict, list, tuple):
        raise _foreign(value, name)
    if isinstance(value, dict):
        for key in value:
            if type(key) not in _PLAIN:
                raise TypeError(f"{name}: a key must be a number or a string; received {key!r}.")
        return {
            "dict": [
                [k, taken_apart(v, f"{name}/{k}", arrays, stands_alone=stands_alone)]
                for k, v in value.items()
            ],
        }
    kind, parts = _parts_of(value)
    if kind is None:
        raise _foreign(value, name)
    return {
        kind: [
            taken_apart(part, f"{name}/{n}", arrays, stands_alone=stands_alone)
            for n, part in enumerate(parts)
        ]
    }


def array_names(structure: Any) -> Iterator[tuple[str, str]]:
    """The key and the type of each array of a structure."""
    if not isinstance(structure, dict):
        return
    if "array" in structure:
        yield structure["array"], structure["dtype"]
        return
    for part in _stored_parts(structure):
        yield from array_names(part)


def put_together(structure: Any, arrays: Mapping[str, np.ndarray], like: Any = None) -> Any:
    """The state that was taken apart.

    Args:
        structure: What `taken_apart` gave.
        arrays: Copies of its arrays.
        like: A state of the same structure. Where there is one, its types of dicts, tuples and
            nodes are taken, and its arrays' devices.
    """
    if not isinstance(structure, dict):
        return structure
    if "array" in structure:
        return array_again(structure, arrays[structure["array"]], like)
    (kind, stored), *_ = structure.items()
    if kind == "dict":
        old = like if isinstance(like, dict) else {}
        entries = {key: put_together(part, arrays, old.get(key)) for key, part in stored}
        new = copy.copy(old)
        new.clear()
        new.update(entries)
        return new
    parts_like = _parts_of(like)[1] if like is not None else []
    aligned = parts_like if len(parts_like) == len(stored) else [None] * len(stored)
    parts = [put_together(part, arrays, one) for part, one in zip(stored, aligned, strict=True)]
    if kind == "list":
        return parts
    if kind.split()[0] == "tuple":
        is_named = hasattr(like, "_fields") and len(like) == len(parts)
        return type(like)(*parts) if is_named else tuple(parts)
    import jax

    is_part = _is_below(like)
    return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(like, is_part), parts)


def differences(structure: Any, like: Any, name: str, *, may_grow: bool = False) -> Iterator[str]:
    """What is otherwise in a state that was taken apart than in the one that is there.

    Plain values may differ, and a number may have become a scalar array, or the reverse.
    With `may_grow` an empty list or dict takes what was saved of one that was filled.
    """
    if may_grow and _is_begun(structure, like):
        return
    is_there, is_here = isinstance(structure, dict) and "array" in structure, is_array(like)
    if is_there and is_here:
        kinds = [array_in_words(structure), array_in_words(array_apart(like, name, {}))]
        if kinds[0] != kinds[1]:
            yield f"{name} is {kinds[0]} in the file, and {kinds[1]} here"
    elif is_there or is_here or not isinstance(structure, dict):
        if not (_is_scalar(structure) and _is_scalar(like)):
            yield f"{name} is {_said(structure)} in the file, and {_said_of(like)} here"
    elif "dict" in structure and isinstance(like, dict):
        there, here = dict(structure["dict"]), like
        for key in [*there, *(key for key in here if key not in there)]:
            if key in there and key in here:
                yield from differences(there[key], here[key], f"{name}/{key}", may_grow=may_grow)
            else:
                yield f"{name}/{key} is only {'in the file' if key in there else 'here'}"
    else:
        (kind, stored), *_ = structure.items()
        kind_here, parts = _parts_of(like)
        if kind != kind_here or len(stored) != len(parts):
            yield f"{name} is {_said(structure)} in the file, and {_said_of(like)} here"
            return
        for number, (one, other) in enumerate(zip(stored, parts, strict=True)):
            yield from differences(one, other, f"{name}/{number}", may_grow=may_grow)


def _foreign(value: Any, name: str) -> TypeError:
    return TypeError(
        f"{name} must be an array, a number, a string, None, or a dict, list or tuple of these; "
        f"received {value!r} of the type {type(value).__name__}."
    )


def _is_begun(structure: Any, like: Any) -> bool:
    """Whether it is an empty list or dict, and what was saved one of plain types."""
    if type(like) not in (list, dict) or like or not isinstance(structure, dict):
        return False
    return type(like).__name__ in structure and _is_of_plain_types(structure)


def _is_of_plain_types(structure: Any) -> bool:
    """Whether no type has to be known, of a named tuple or a node of JAX, to make it again."""
    if not isinstance(structure, dict) or "array" in structure:
        return True
    (kind, _), *_ = structure.items()
    return kind in ("dict", "list", "tuple") and all(
        map(_is_of_plain_types, _stored_parts(structure))
    )


def _parts_of(value: Any) -> tuple[str | None, list[Any]]:
    """What a list, tuple or node of JAX's registry consists of, and which of these it is.

    Of a named tuple its fields are said as well: in another order they are another state.
    """
    if isinstance(value, list):
        return "list", value
    if isinstance(value, tuple):
        return f"tuple {','.join(getattr(value, '_fields', ()))}".rstrip(), list(value)
    jax = sys.modules.get("jax")
    if jax is None or value is None or isinstance(value, dict):
        return None, []
    parts = jax.tree_util.tree_leaves(value, is_leaf=_is_below(value))
    is_leaf = len(parts) == 1 and parts[0] is value
    return (None, []) if is_leaf else (f"pytree {type(value).__name__}", parts)


def _is_below(value: Any) -> Any:
    """Lets JAX flatten one level only."""
    return lambda part: part is not value


def _stored_parts(structure: Mapping[str, Any]) -> list[Any]:
    (kind, stored), *_ = structure.items()
    return [part for _, part in stored] if kind == "dict" else stored


def _is_scalar(thing: Any) -> bool:
    """Whether it is a plain value, or an array of one number; of a structure or of a state."""
    if type(thing) in _PLAIN:
        return True
    if isinstance(thing, dict):
        return thing.get("shape") == [] and "array" in thing
    return is_array(thing) and not thing.shape


def _said(structure: Any) -> str:
    if not isinstance(structure, dict):
        return repr(structure)
    (kind, stored), *_ = structure.items()
    return array_in_words(structure) if kind == "array" else f"a {kind} of {len(stored)}"


def _said_of(state: Any) -> str:
    try:
        return _said(taken_apart(state, "", {}))
    except TypeError:
        return repr(state)
