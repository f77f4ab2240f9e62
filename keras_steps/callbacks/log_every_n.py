"""LogEveryN: a line of text every so many steps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from keras_steps.arguments import integral
from keras_steps.extra import checked_extra, refuse_extra, with_extra
from keras_steps.run import Run
from keras_steps.step_callback import StepCallback
from keras_steps.triggers import Trigger, as_trigger
from keras_steps.writers import format_line

if TYPE_CHECKING:
    from keras_steps.loop_training import LoopTraining

_NOT_SHOWN = ("steps_per_second", "examples_per_second", "epoch")


class LogEveryN(StepCallback):
    """Prints a line at steps 1, 101, 201, … and at the end of the run.

    What TF1's LoggingTensorHook and `log_every_n` were for. Values are means over the
    steps since the line before. The lines go where Keras's own messages go, and
    never through the middle of its progress bar:

        step 101/600: loss=0.4312 accuracy=0.8710 learning_rate=0.00098 412.3 steps/s eta 0:00:01

    Args:
        n: Steps between two lines, or a trigger.
        start: The step of the first line; with 0 the lines come at n, 2n, 3n, …
        message: A format string for the line, over `step` and the names in the logs:
            `"loss {loss:.3f} at step {step}"`. Default: the line above.
        metrics: Which names to show, in this order. Default: all. One that begins with
            the prefix of an evaluation, such as `val_`, is shown where there is one.
        logger: A `logging.Logger` that gets the lines at INFO instead.
        extra: A function from the model to a dict of further scalars, called when a line is
            due.
        optimizer: As in StepCallback.

    Raises:
        ValueError: If `n` is less than 1, `start` negative, or `message` no format string;
            at the first line, if `message` or `metrics` name something that is not there.
        TypeError: If an argument is of the wrong kind.

    Example:

    >>> callback = LogEveryN(100, message="step {step}: loss {loss:.4f}")
    """

    at_end = True

    def __init__(
        self,
        n: int | Trigger = 100,
        *,
        start: int = 1,
        message: str | None = None,
        metrics: Iterable[str] | None = None,
        logger: logging.Logger | None = None,
        extra: Callable[[Any], Mapping[str, float]] | None = None,
        optimizer: str | Callable[[Any], Any] | None = None,
    ) -> None:
        start = integral(start, "LogEveryN(start)", least=0)
        super().__init__(as_trigger(n, "LogEveryN(n)", start), optimizer=optimizer)
        if n is self.trigger and start != 1:
            raise ValueError(
                f"LogEveryN(start={start}) goes with a number of steps; a trigger has its own "
                f"start, as in EverySteps(100, start={start})."
            )
        self.message = _checked_message(message)
        self.metrics = _checked_names(metrics)
        if logger is not None and not isinstance(logger, (logging.Logger, logging.LoggerAdapter)):
            raise TypeError(f"LogEveryN(logger) must be a logging.Logger; received {logger!r}.")
        self.logger = logger
        self.extra = checked_extra(extra, "LogEveryN")
        self.uses_model = extra is not None
        self._run: Run | None = None

    def begin(self, run: Run) -> None:
        self._run = run

    def end(self, run: Run) -> None:
        self._run = None

    def break_off(self, run: Run) -> None:
        self.end(run)

    def refuse_loop(self, training: LoopTraining) -> None:
        refuse_extra(self.extra, training, "LogEveryN")

    def on_step(self, step: int, logs: dict[str, float]) -> None:
        if self.extra is not None:
            logs = with_extra(logs, self.extra, self.model)
        if self.message is not None:
            line = self._formatted(step, logs)
        else:
            line = self._default_line(step, logs)
        assert self._run is not None
        if self._run.is_chief:
            write = self._run.print_line if self.logger is None else self.logger.info
            write(line)

    def __getstate__(self) -> dict[str, Any]:
        """A copy belongs to no run."""
        return {**super().__getstate__(), "_run": None}

    def _default_line(self, step: int, logs: Mapping[str, float]) -> str:
        assert self._run is not None
        last_step = self._run.last_step(self._run.clock_of(self))
        # The first execution compiles the training step: its rate says nothing.
        rate = logs.get("steps_per_second") if self._run.executions > 1 else None
        shown = {name: logs[name] for name in self._names(logs)}
        return format_line(step, shown, last_step=last_step, steps_per_second=rate)

    def _names(self, logs: Mapping[str, float]) -> list[str]:
        if self.metrics is None:
            return [name for name in logs if name not in _NOT_SHOWN]
        assert self._run is not None
        of_evaluations = ("val_", *self._run.evaluations.prefixes)
        missing = [n for n in self.metrics if n not in logs and not n.startswith(of_evaluations)]
        if missing:
            raise ValueError(
                f"LogEveryN(metrics): there is no {missing[0]!r} in the logs. There is: "
                f"{', '.join(logs)}."
            )
        return [name for name in self.metrics if name in logs]

    def _formatted(self, step: int, logs: Mapping[str, float]) -> str:
        assert self.message is not None
        try:
            return self.message.format(**{**logs, "step": step})
        except KeyError as error:
            raise ValueError(
                f"LogEveryN(message={self.message!r}): there is no {error} in the logs. There is: "
                f"step, {', '.join(logs)}."
            ) from None


def _checked_message(message: str | None) -> str | None:
    if message is None:
        return None
    if not isinstance(message, str):
        raise TypeError(f"LogEveryN(message) must be a format string; received {message!r}.")
    try:
        message.format_map(_AnyName(step=1))
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            f"LogEveryN(message={message!r}) is no format string over names and numbers: {error}. "
            "Write it as in '{loss:.4f} at step {step}'."
        ) from None
    return message


class _AnyName(dict[str, float]):
    def __missing__(self, name: str) -> float:
        return 1.0


def _checked_names(metrics: Iterable[str] | None) -> tuple[str, ...] | None:
    if metrics is None:
        return None
    if isinstance(metrics, str):
        raise TypeError(
            f"LogEveryN(metrics) must be a list of names; received the string {metrics!r}. "
            f"Write metrics=[{metrics!r}]."
        )
    if not isinstance(metrics, Iterable):
        raise TypeError(f"LogEveryN(metrics) must be a list of names; received {metrics!r}.")
    names = tuple(metrics)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"LogEveryN(metrics) must be a list of names; received {list(names)!r}.")
    return names
