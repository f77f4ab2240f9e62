"""StepProgressBar: one bar over the whole run."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from keras_steps.arguments import integral
from keras_steps.run import Run
from keras_steps.step_callback import StepCallback
from keras_steps.triggers import EverySecs
from keras_steps.writers import format_value


class StepProgressBar(StepCallback):
    """Shows a tqdm bar over the steps of the whole run, not of an epoch.

    It begins at the current step, so that a run that goes on shows how far it is, and it is
    drawn again every half second, not every batch: a notebook stays small. A notebook gets
    tqdm's widget. Beside the steps and the time left it shows the mean loss since it was
    drawn last. Without a known end it shows the rate alone. Lines of LogEveryN come out
    above it.

    Use it with `verbose=0`: Keras's own bar and this one would draw over each other.

    Args:
        last_step: Where the run ends. Default: the step of a StopAtStep on the same
            counter, else the end of the epochs, where that is known.
        optimizer: As in StepCallback.

    Raises:
        ImportError: If tqdm is not installed; `pip install keras-steps[progress]` does that.
        ValueError: If `last_step` is less than 1.
        TypeError: If an argument is of the wrong kind.

    Example:

    >>> callback = StepProgressBar()  # beside StopAtStep(10_000)
    """

    at_end = True
    uses_model = False

    def __init__(
        self,
        last_step: int | None = None,
        *,
        optimizer: str | Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(EverySecs(0.5), optimizer=optimizer)
        if last_step is not None:
            last_step = integral(last_step, "StepProgressBar(last_step)", least=1)
        if importlib.util.find_spec("tqdm") is None:
            raise ImportError(
                "StepProgressBar needs tqdm, which is not installed: "
                "pip install keras-steps[progress]"
            )
        self.shown_last_step = last_step
        self._run: Run | None = None
        self._bar: Any = None

    def begin(self, run: Run) -> None:
        from tqdm.auto import tqdm

        self._run = run
        if not run.is_chief:
            return
        step = run.clock_of(self).step
        self._bar = tqdm(initial=step, total=self._total(), unit="step", miniters=1)
        run.print_line = _beside(self._bar, run.print_line)

    def on_step(self, step: int, logs: dict[str, float]) -> None:
        self._draw(step, logs)

    def rewound(self, run: Run) -> None:
        self._draw(run.clock_of(self).step, {})

    def end(self, run: Run) -> None:
        if self._bar is not None and self._bar.n != run.clock_of(self).step:
            self._draw(run.clock_of(self).step, {})
        self._close()
        self._run = None

    def break_off(self, run: Run) -> None:
        self._close()
        self._run = None

    def __getstate__(self) -> dict[str, Any]:
        """A copy draws a bar of its own."""
        return {**super().__getstate__(), "_run": None, "_bar": None}

    def _total(self) -> int | None:
        assert self._run is not None
        if self.shown_last_step is not None:
            return self.shown_last_step
        return self._run.last_step(self._run.clock_of(self))

    def _draw(self, step: int, logs: dict[str, float]) -> None:
        bar, run = self._bar, self._run
        if bar is None or run is None:
            return
        total = self._total()
        if total != bar.total:  # the end of the epochs was not known at train begin
            began, bar.initial = bar.start_t, 0
            bar.reset(total)  # which draws it at 0
            bar.start_t = began
        bar.initial = run.begun_at[run.clock_of(self)]  # another callback may have restored it
        bar.n = step
        if "loss" in logs:
            bar.set_postfix_str(f"loss={format_value('loss', logs['loss'])}", refresh=False)
        bar.refresh()

    def _close(self) -> None:
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.close()


def _beside(bar: Any, print_line: Callable[[str], None]) -> Callable[[str], None]:
    """The same function, with the bar taken away while a line is printed."""

    def print_above(line: str) -> None:
        with _away(bar):
            print_line(line)

    return print_above


@contextmanager
def _away(bar: Any) -> Iterator[None]:
    if bar.disable:
        yield
        return
    bar.clear()
    yield
    bar.refresh()
