"""Bringing the data of a fit to where a killed run was, without training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

from keras_steps.keras_internals.skipping import Skipping


class Position(NamedTuple):
    """A place between two batches.

    Attributes:
        epoch: The epoch that is under way, or comes next.
        batches: How many of its batches are done.
        passes: How many iterators over the data there were before the present one.
        lead_in: How many batches of the present one came before this epoch.
    """

    epoch: int
    batches: int = 0
    passes: int = 0
    lead_in: int = 0

    @property
    def batches_of_pass(self) -> int:
        """How many batches of the present iterator are done."""
        return self.lead_in + self.batches


class TrainingData(ABC):
    """The batches of a fit, which come in passes: a pass is one iterator over the data.

    Most data are begun anew in each epoch. A pass spans epochs with `steps_per_epoch`, and
    in tf_keras also where data are arrays or a generator.

    Args:
        source: Keras 3's EpochIterator, or tf_keras's DataHandler.
        initial_epoch: The one that fit was called with.
    """

    def __init__(self, source: Any, initial_epoch: int) -> None:
        self._source = source
        self._initial_epoch = initial_epoch

    @property
    @abstractmethod
    def begins_pass(self) -> bool:
        """Whether the next epoch will begin a pass.

        To be asked at an epoch's begin or end. Of the first epoch of a fit it is not asked.
        """

    @property
    def batch_spec(self) -> Any:
        """The shapes and types of a batch, as `tf.TensorSpec`; None where data do not tell."""
        return None

    @property
    def found_size(self) -> int | None:
        """How many batches an epoch turned out to have, where Keras goes by that from then on."""
        return None

    def resume(
        self,
        position: Position,
        *,
        at_pass: Callable[[], object],
        at_step: Callable[[Any], object],
        on_read: Callable[[int], object] = lambda done: None,
        found_size: int | None = None,
    ) -> None:
        """At train begin: let the fit's first epoch begin inside of it, at a batch.

        Keras then does not see the batches that are passed over: no hook of a batch is
        called for them, and the first one trained on has the number that it had. Where data
        can be indexed they are not read either.

        Args:
            position: Where to go on. Fit begins with its epoch; see `start_at_epoch`.
            at_pass: Called before the pass draws its first random number; it puts the random
                states of Python, NumPy and torch back to what they were when it began.
            at_step: Called with the last batch that was passed over, before the first one
                that is trained on is read; not called if none was passed over.
            on_read: Called for each batch that had to be read, with the number of those
                that have been passed over.
            found_size: What `found_size` was.

        Raises:
            ValueError: Within fit, if the data end before the batch is reached.
        """
        self._take_size(found_size)
        self._replay(position.epoch - self._initial_epoch, position.passes)
        self._install(position, Skipping(position.batches_of_pass, at_step, on_read), at_pass)

    @abstractmethod
    def found_end(self) -> None:
        """Told by the first execution of a resumed fit that it has no batch.

        An epoch can end like that where its size was not known to the killed run. The
        execution is to return empty logs then and not to raise: Keras on JAX and tf_keras
        can't end an epoch without logs. The next execution may raise.
        """

    def _take_size(self, found: int | None) -> None:  # noqa: B027
        """Know the size of an epoch as a fit knows it that has made one."""

    @abstractmethod
    def _replay(self, epochs: int, passes: int) -> None:
        """Do to the data's own order what so many epochs and passes did."""

    @abstractmethod
    def _install(
        self, position: Position, skipping: Skipping, at_pass: Callable[[], object]
    ) -> None:
        """Arrange for the first epoch."""
