"""The step of one optimizer: a bound between reads, exact when it is read."""

from __future__ import annotations

import time
from typing import Any

from keras_steps.keras_internals import Variables, counter_of

NEVER = 2**62
"""An execution that is never reached."""


def now() -> float:
    """Seconds on a clock that never goes back; `testing.FakeClock` stands in for it."""
    return time.monotonic()


def wait(seconds: float) -> None:
    """Let so many seconds go by; `testing.FakeClock` lets its own go by at once."""
    time.sleep(seconds)


class Clock:
    """Follows one optimizer's counter with as few reads of it as possible.

    Between two reads the count can have grown by at most executions × batches an
    execution × counts a batch. As long as that bound lies below what anyone waits for,
    no read is needed.

    Args:
        optimizer: The optimizer whose updates count.
        variables: The way to the counter.
        batches: Batches an execution, `steps_per_execution`.
        predictable: Whether each batch counts once, so that the count is known without a read.
    """

    def __init__(
        self, optimizer: Any, variables: Variables, batches: int, predictable: bool
    ) -> None:
        self.optimizer = optimizer
        self.variable, self.counts_per_step = counter_of(optimizer)
        self.batches = batches
        self.counts_per_batch = 1
        self.reads = 0
        self.count = self._started_at = 0
        self._variables = variables
        self._read_at = 0
        self._has_moved = False
        self.predictable = predictable

    def start(self) -> None:
        """Read the count from which a run goes on."""
        self._read_at = 0
        self._started_at = self.count = self._read()
        self._has_moved = False

    @property
    def check_at(self) -> int:
        """The execution after which a counter that has not moved is no longer plausible."""
        return NEVER if self._has_moved else 10 * self.counts_per_step

    def rests_after(self, executions: int) -> bool:
        """Whether the counter should have moved by now, and has not."""
        if executions != self.check_at:
            return False
        self.look(executions)
        return not self._has_moved

    @property
    def step(self) -> int:
        """The step as of the last read."""
        return self.count // self.counts_per_step

    def read(self, executions: int) -> int:
        """The step now, exactly, read after so many executions."""
        count = self._read()
        batches = (executions - self._read_at) * self.batches
        if batches > 0:
            self.counts_per_batch = max(self.counts_per_batch, -(-(count - self.count) // batches))
        self.count = count
        self._has_moved |= count != self._started_at  # a rollback may take it to its start again
        self._read_at = executions
        return self.step

    def predict(self, executions: int) -> int:
        """The step after so many full executions: exact if predictable, else a bound."""
        return self._predict_count(executions) // self.counts_per_step

    def look(self, executions: int) -> int:
        """The step now, exactly; not read again if it was after as many executions."""
        return self.step if executions == self._read_at else self.read(executions)

    def exact(self, executions: int) -> int:
        """The step after so many full executions; read only if it can't be predicted."""
        return self.predict(executions) if self.predictable else self.look(executions)

    def reached_with(self, step: int | None) -> int:
        """The execution with which `step` may be reached, at the earliest the next."""
        return NEVER if step is None else self._read_at + max(1, self._executions_until(step))

    def begun_from(self, step: int | None) -> int:
        """The execution that may be the first to begin at `step` or later."""
        return NEVER if step is None else self._read_at + self._executions_until(step) + 1

    def batches_until(self, step: int, executions: int) -> int:
        """Batches until `step` after so many executions, if each of them counts."""
        missing = step * self.counts_per_step - self._predict_count(executions)
        return -(-missing // self.counts_per_batch)

    def take_back(self, executions: int) -> None:
        """Undo what was counted without data since so many executions.

        TensorFlow's increment does not wait for the data: a batch that finds the end of
        data of unknown size is counted too.
        """
        expected = self._predict_count(executions)
        if self._read() > expected:
            self._variables.assign(self.variable, expected)

    @property
    def _counts_per_execution(self) -> int:
        return self.batches * self.counts_per_batch

    def _read(self) -> int:
        self.reads += 1
        return int(self._variables.read(self.variable))

    def _executions_until(self, step: int) -> int:
        missing = step * self.counts_per_step - self.count
        return max(0, -(-missing // self._counts_per_execution))

    def _predict_count(self, executions: int) -> int:
        return self.count + (executions - self._read_at) * self._counts_per_execution
