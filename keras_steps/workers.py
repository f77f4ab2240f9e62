"""The workers of a run, as one of them sees them: what each gives, and who has failed."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from keras_steps.channels import Channel, channel_of
from keras_steps.distribution import Seat, seat_of

T = TypeVar("T")


class Workers:
    """The workers that train one model together, as one of them sees them.

    Alone, it asks nobody. Among several, each of its methods is for all of them to call, in
    the same order.

    Args:
        model: The model that is trained.
        is_chief: Whether this worker is the one that writes.
    """

    def __init__(self, model: Any, *, is_chief: bool) -> None:
        self.is_chief = is_chief
        self.seat: Seat = seat_of(model)
        self._model = model
        self._channel: Channel | None = None

    @property
    def are_several(self) -> bool:
        return self.seat.count > 1

    @property
    def collectives(self) -> int:
        """How many there have been."""
        return 0 if self._channel is None else self._channel.uses

    @property
    def channel(self) -> Channel:
        """The way to the others."""
        if self._channel is None:
            self._channel = channel_of(self._model, self.seat)
        return self._channel

    def gathered(self, thing: Any) -> list[Any]:
        """What each worker gives, in their order: plain values and arrays."""
        if not self.are_several:
            return [thing]
        return [pickle.loads(held) for held in self.channel.gathered_bytes(pickle.dumps(thing))]

    def by_chief(self, action: Callable[[], T]) -> T | None:
        """Let the chief alone do something, and all have its result, of plain values.

        Raises:
            RuntimeError: On the others, if it failed on the chief.
            Exception: What it has raised, on the chief.
        """
        if not self.are_several:
            return action() if self.is_chief else None
        said, error = _tried(action) if self.is_chief else (None, None)
        said_by_all = self.gathered((self.is_chief, said, _told(error)))
        self._raise([message for _, _, message in said_by_all], error)
        word: T | None = next(word for is_chief, word, _ in said_by_all if is_chief)
        return word

    def by_all(self, action: Callable[[], T]) -> T:
        """Do something on each worker; if one of them fails, all do.

        Raises:
            RuntimeError: On the others, if it failed on some.
            Exception: What it has raised, where it did.
        """
        if not self.are_several:
            return action()
        result, error = _tried(action)
        self._raise(self.gathered(_told(error)), error)
        return result  # type: ignore[return-value]

    def raise_together(self, error: Exception | None) -> None:
        """All raise what has failed on some of them.

        Args:
            error: What has failed on this one.
        """
        self._raise(self.gathered(_told(error)), error)

    def _raise(self, messages: Sequence[str | None], error: Exception | None) -> None:
        """All raise if one has failed: its own error there, and elsewhere one that tells of it."""
        failed = [(number, message) for number, message in enumerate(messages) if message]
        if error is not None:
            error.add_note(f"That was on worker {self.seat.index} of {self.seat.count}.")
            raise error
        if failed:
            told = "; ".join(f"worker {number}: {message}" for number, message in failed)
            raise RuntimeError(f"the run ends on all of its workers, as one has failed: {told}")


def _tried(action: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return action(), None
    except Exception as error:
        return None, error


def _told(error: Exception | None) -> str | None:
    return None if error is None else f"{type(error).__name__}: {error}"
