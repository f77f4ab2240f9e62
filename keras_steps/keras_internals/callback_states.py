"""What Keras's own callbacks must know to go on after a restart: they have no way to tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_KEPT = {
    "EarlyStopping": ("wait", "best", "best_weights", "best_epoch", "stopped_epoch"),
    "ReduceLROnPlateau": ("wait", "best", "cooldown_counter"),
    "ModelCheckpoint": (
        "best",
        "epochs_since_last_save",
        "_batches_seen_since_last_saving",
        "_last_batch_seen",
    ),
    "History": ("epoch", "history"),
}
_WITHOUT_STATE = (
    "BaseLogger",
    "CSVLogger",
    "LearningRateScheduler",
    "ProgbarLogger",
    "RemoteMonitor",
    "TensorBoard",
    "TerminateOnNaN",
)


def callback_states(callbacks: Iterable[Any]) -> dict[str, Any]:
    """The state of each callback that has one, by its class and place among these.

    Of Keras's own, attributes that on_train_begin resets; seen in Keras 3.12 and 3.15 and in
    tf_keras 2.21. Of others, what their `get_state` gives.
    """
    return {name: _state_of(callback) for name, callback in _with_state(callbacks)}


def set_callback_states(callbacks: Iterable[Any], states: Mapping[str, Any]) -> None:
    """Put back what `callback_states` gave, after every callback's on_train_begin."""
    for name, callback in _with_state(callbacks):
        if name in states and _tells(callback):
            callback.set_state(states[name])
        elif name in states:
            for attribute, value in states[name].items():
                setattr(callback, attribute, value)


def without_known_state(callbacks: Iterable[Any]) -> list[str]:
    """The names of those whose state, if they have one, is not kept."""
    known = {*_KEPT, *_WITHOUT_STATE}
    return [
        type(callback).__name__
        for callback in callbacks
        if not (_tells(callback) or (_is_of_keras(callback) and _kind(callback) in known))
    ]


def sets_learning_rate(callbacks: Iterable[Any]) -> bool:
    """Whether one of Keras's that set a learning rate is among them."""
    setters = {"LearningRateScheduler", "ReduceLROnPlateau"}
    return any(_is_a(callback, setters) for callback in callbacks)


def keras_backups(callbacks: Iterable[Any]) -> list[str]:
    """The names of Keras's BackupAndRestore, or what derives from it, among them."""
    return [type(c).__name__ for c in callbacks if _is_a(c, {"BackupAndRestore"})]


def _is_a(callback: Any, names: set[str]) -> bool:
    """Whether it is of a class of Keras's with one of these names."""
    return any(
        base.__name__ in names and base.__module__.partition(".")[0] in ("keras", "tf_keras")
        for base in type(callback).__mro__
    )


def _with_state(callbacks: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    seen: dict[str, int] = {}
    for callback in callbacks:
        kind = _kind(callback)
        if _tells(callback) or (kind in _KEPT and _is_of_keras(callback)):
            seen[kind] = seen.get(kind, 0) + 1
            yield f"{kind} {seen[kind]}", callback


def _state_of(callback: Any) -> Any:
    if _tells(callback):
        return callback.get_state()
    kept = _KEPT[_kind(callback)]
    return {each: vars(callback)[each] for each in kept if each in vars(callback)}


def _tells(callback: Any) -> bool:
    """Whether it speaks for itself, as this library's callbacks do."""
    return all(callable(getattr(callback, name, None)) for name in ("get_state", "set_state"))


def _kind(callback: Any) -> str:
    """The name of the class of Keras's that it is, or derives from."""
    return next(
        (base.__name__ for base in type(callback).__mro__ if base.__name__ in _KEPT),
        type(callback).__name__,
    )


def _is_of_keras(callback: Any) -> bool:
    return any(
        base.__module__.partition(".")[0] in ("keras", "tf_keras") and base.__name__ != "Callback"
        for base in type(callback).__mro__
    )
