"""EvaluateEveryN: evaluations in mid-epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from keras_steps.arguments import flag, integral
from keras_steps.evaluation_data import EvaluationData, PreparedData
from keras_steps.evaluation_sources import EvaluationFunction, sources_by_prefix
from keras_steps.keras_internals import is_compiled, random_states_kept, training_kept
from keras_steps.reports import scalars
from keras_steps.run import Run
from keras_steps.step_callback import Order, StepCallback
from keras_steps.triggers import Trigger

if TYPE_CHECKING:
    from keras_steps.loop_training import LoopTraining


class EvaluateEveryN(StepCallback):
    """Evaluates the model every n steps, and leaves no trace in its training.

    The results go to every callback's `on_evaluation` and into reports, under the names that
    Keras gives them with a prefix before. Training goes on as if nothing had been: metrics,
    History, weights, random states. Its seconds don't count in `steps_per_second`.

    Data are prepared once a fit, and each evaluation starts from their beginning. Only a
    generator can't start again: with `steps` each evaluation takes the next ones of it.

    Args:
        data: What `model.evaluate` takes: a tuple of arrays (x, y) or (x, y, sample_weight),
            cut into batches of 32 as evaluate cuts them; or, for batches of another size, a
            tf.data.Dataset, PyDataset, torch DataLoader or generator. A dict from prefixes to
            such data evaluates on each of them: `{"val_": …, "test_": …}`. Or a function
            without arguments that makes an evaluation of its own and returns its results, a dict
            of scalars: for a loop whose model was not compiled, or without a model.
        every: Steps between two evaluations, or a trigger.
        steps: Batches to evaluate on each time. Default: all.
        prefix: Stands before the names of the results. Not used if `data` is a dict. Fit's own
            `validation_data` has `val_`: beside it choose another.
        at_start: Whether to evaluate the untrained model too, in a run that begins at step 0.
        at_end: Whether to evaluate at the last step too, if it was not due by itself.
        optimizer: As in StepCallback.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If `every` or `steps` is less than 1, or a prefix does not end as one does.
            At train begin, or at an evaluation if it can't be known before: if the data are
            empty, used up, fewer than `steps`, or without an end and without `steps`.

    Example:

    >>> import numpy as np
    >>> x, y = np.zeros((64, 4)), np.zeros((64, 1))
    >>> callbacks = [EvaluateEveryN((x, y), every=500, prefix="test_")]
    """

    order = Order.EVALUATE
    _run: Run | None = None

    def __init__(
        self,
        data: Any,
        every: int | Trigger = 1000,
        *,
        steps: int | None = None,
        prefix: str = "val_",
        at_start: bool = False,
        at_end: bool = True,
        optimizer: str | Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(every, optimizer=optimizer)
        if steps is not None:
            steps = integral(steps, "EvaluateEveryN(steps)", least=1)
        self.at_start = flag(at_start, "EvaluateEveryN(at_start)")
        self.at_end = flag(at_end, "EvaluateEveryN(at_end)")
        self.data = sources_by_prefix(data, "EvaluateEveryN", prefix=prefix, steps=steps)
        self._prepared: dict[str, PreparedData | EvaluationFunction] = {}

    def begin(self, run: Run) -> None:
        self._run = run
        run.evaluations.prefixes.extend(self.data)
        self._prepared = {}
        if not run.is_over:
            self._prepare(run.model)

    def on_step(self, step: int, logs: dict[str, float]) -> None:
        assert self._run is not None
        if not self._prepared:  # another callback has restored the model after train begin
            self._prepare(self.model)
        shares = self._run.training.shares_arrays
        with (
            random_states_kept()
            if self.model is None
            else training_kept(self.model, shares_arrays=shares)
        ):
            found = {p: scalars(data.evaluate()) for p, data in self._prepared.items()}
        named = [{p + name: value for name, value in found[p].items()} for p in found]
        self._run.evaluated(*named)  # apart, as an output's name may look like a prefix

    def end(self, run: Run) -> None:
        self._run, self._prepared = None, {}

    def break_off(self, run: Run) -> None:
        self.end(run)

    def refuse_loop(self, training: LoopTraining) -> None:
        for data in self.data.values():
            if isinstance(data, EvaluationData) and not is_compiled(training.model):
                whose = "the loop has no model" if training.model is None else "it is not compiled"
                raise ValueError(
                    f"{data.name} is what model.evaluate takes, and {whose}. Pass a function that "
                    "makes the evaluation and returns its results, a dict; or compile the model."
                )

    def __getstate__(self) -> dict[str, Any]:
        """A copy belongs to no run."""
        return {**super().__getstate__(), "_run": None, "_prepared": {}}

    def _prepare(self, model: Any) -> None:
        with random_states_kept():
            self._prepared = {p: data.prepare(model) for p, data in self.data.items()}
