"""What a run asks of some callbacks and not of others: told by their class, never by a name."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keras_steps.fit_position import FitPosition
    from keras_steps.keras_internals import Variables
    from keras_steps.loop_position import LoopPosition
    from keras_steps.resumption import Progress, Resumption
    from keras_steps.run import Run
    from keras_steps.step_callback import StepCallback

# A user's callback may well have an `apply` or a `restore`, as one that averages weights does:
# what it happens to have makes it none of these.


class SetsBeforeUpdates(ABC):
    """One that sets something which the next update uses.

    Attributes:
        schedule: The value as a function of the step.
        value: The one that was set last, if it still stands.
        due_step: The step before whose next update it is to be set; None: never again.
    """

    schedule: Any
    value: float | None
    due_step: int | None

    @property
    @abstractmethod
    def label(self) -> str | None:
        """The name under which reports show the value, if they do."""

    @abstractmethod
    def apply(self, step: int, variables: Variables) -> int | None:
        """Set the value for the update after `step`; returns the step of the next change."""


class NamesLastStep:
    """One that may be given the step at which the run ends.

    Attributes:
        last_step: That step; None if it was given none.
    """

    last_step: int | None


class BacksUp(ABC):
    """One that restores a run at its begin, and saves it from then on.

    Attributes:
        signals: At which signals it ends the run.
    """

    signals: tuple[signal.Signals, ...]

    @abstractmethod
    def restore(self, position: FitPosition | LoopPosition) -> Resumption | None:
        """Called at train begin, before anything reads the step."""

    @property
    @abstractmethod
    def data(self) -> Any:
        """The data of the fit or loop."""

    @property
    @abstractmethod
    def progress(self) -> Progress:
        """Where the fit is in them."""

    @abstractmethod
    def keep_moment(self) -> None:
        """The run has reached its end in mid-epoch: keep what that epoch's end will change."""

    @abstractmethod
    def suspend(self) -> None:
        """The run breaks off in mid-epoch, to go on another time."""

    @abstractmethod
    def finish(self, run: Run) -> None:
        """Behind the last firing: save the end."""


class HasCompanions:
    """One with actions that are due at other steps than its own.

    Attributes:
        companions: Callbacks for these, of which Keras knows nothing.
    """

    companions: Sequence[StepCallback]


def backup_among(callbacks: Iterable[StepCallback]) -> BacksUp | None:
    """The one that backs the run up, if one does."""
    return next((each for each in callbacks if isinstance(each, BacksUp)), None)


def signals_of(callback: StepCallback) -> tuple[signal.Signals, ...]:
    """At which signals a callback ends the run."""
    return callback.signals if isinstance(callback, BacksUp) else ()


def with_companions(callbacks: Iterable[StepCallback]) -> Iterator[StepCallback]:
    """Each callback, and behind it its companions."""
    for callback in callbacks:
        yield callback
        if isinstance(callback, HasCompanions):
            yield from callback.companions
