"""What resuming inside an epoch is: batches passed over, and random states put back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from keras_steps.keras_internals.data_seeking import seek_within
from keras_steps.keras_internals.fitting import is_end_of_data


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
        *,
        epoch: int,
        batches: int,
        passes: int,
        lead_in: int,
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
            epoch: The epoch that fit begins with; see `start_at_epoch`.
            batches: How many batches of this epoch to pass over.
            passes: How many passes there were before the one that this epoch is in.
            lead_in: How many batches of that pass came in earlier epochs.
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
        self._replay(epoch - self._initial_epoch, passes)
        self._install(
            batches, passes, lead_in, Skipping(lead_in + batches, at_step, on_read), at_pass
        )

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
        self,
        batches: int,
        passes: int,
        lead_in: int,
        skipping: Skipping,
        at_pass: Callable[[], object],
    ) -> None:
        """Arrange for the first epoch."""


class Skipping:
    """Passing over the first batches of an iterator."""

    def __init__(
        self, batches: int, at_step: Callable[[Any], object], on_read: Callable[[int], object]
    ) -> None:
        self.batches, self.at_step, self._on_read = batches, at_step, on_read
        self._read = 0
        self.seekable = max(batches - 1, 0)
        """How many may be left unread. The last is read, so that all that draws random
        numbers, or reads ahead, has begun to before the state of the step is put back."""

    def on_read(self, done: int) -> None:
        """Note how many batches have been passed over, as one of them had to be read."""
        self._read = done
        self._on_read(done)

    def over(self, iterator: Any, sought: int) -> None:
        """Read away what is left after `sought` batches."""
        if not self.batches:
            return
        done = sought + seek_within(iterator, self.seekable - sought)
        batch = None
        while done < self.batches:
            try:
                batch = next(iterator)
            except Exception as error:
                if is_end_of_data(error):
                    self.complain(self._read or done)
                raise
            done += 1
            self.on_read(done)
        self.at_step(batch)

    def complain(self, available: int) -> None:
        raise ValueError(
            f"The data have only {available} batches where the backup was made after "
            f"{self.batches}: they have changed. Give fit the data of then, or begin anew in "
            "another directory."
        ) from None
