"""Passing over the first batches of an iterator, and noticing where they are not there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keras_steps.keras_internals.data_seeking import seek_within
from keras_steps.keras_internals.fitting import is_end_of_data


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
