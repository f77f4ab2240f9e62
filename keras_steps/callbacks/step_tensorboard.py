"""StepTensorBoard: curves over the global step for TensorBoard."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_steps.reporting import Reporting
from keras_steps.roles import HasCompanions
from keras_steps.run import Run
from keras_steps.step_callback import StepCallback
from keras_steps.tensorboard_writer import TensorBoardWriter, is_taken, take
from keras_steps.timelines import Timeline, local_path, require_writable
from keras_steps.triggers import Trigger, as_trigger

if TYPE_CHECKING:
    from keras_steps.loop_training import LoopTraining


class StepTensorBoard(Reporting, HasCompanions):
    """Writes reports and evaluations for TensorBoard, all over the global step.

    What the SummarySaverHook of TF1 was for. Training's curves go to the run `train`,
    validation's to `validation` under the same tags (`loss`, `accuracy`, …), so that
    TensorBoard draws them over each other; results with another prefix, such as `test_`, go to
    a run of that name. Values are means over the steps since the report before, with the
    learning rate that the last update used, `steps_per_second` and `examples_per_second`.

    A run that goes on from a step above 0 appends to the newest of its log directories, and
    TensorBoard drops what a killed one wrote past that step. A fresh run leaves an earlier one's
    curves alone: it writes to `logs_2`, and says so in a line. Event files are written
    without TensorFlow, and each report at once: a crash loses none. Under a strategy only
    the chief writes.

    Args:
        log_dir: The log directory, for `tensorboard --logdir`. It is made if need be, and `~` is
            the home directory.
        every: Steps between two reports, or a trigger. The last step is reported as well.
        histograms_every: Steps between two histograms of each weight, or a trigger.
            Default: none. Costs a copy of all weights each time.
        extra: A function from the model to a dict of further scalars, called when a report
            is due.
        optimizer: As in StepCallback.

    Raises:
        ValueError: If an interval is less than 1, or `log_dir` not on this machine; at train
            begin, if another callback of the fit writes there too, or would in a later run.
        TypeError: If an argument is of the wrong kind.
        OSError: At train begin, if `log_dir` can't be written to; later, if the disk is full or
            the files have been taken away.

    Example:

    >>> callback = StepTensorBoard("logs", every=100, histograms_every=1000)
    """

    timeline = Timeline(is_taken, take)
    place: Path

    def __init__(
        self,
        log_dir: str | os.PathLike[str] = "logs",
        every: int | Trigger = 100,
        *,
        histograms_every: int | Trigger | None = None,
        extra: Callable[[Any], Mapping[str, float]] | None = None,
        optimizer: str | Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(every, extra=extra, optimizer=optimizer)
        self.place = local_path(log_dir, "StepTensorBoard(log_dir)")
        self.companions: list[StepCallback] = []
        if histograms_every is not None:
            trigger = as_trigger(histograms_every, "StepTensorBoard(histograms_every)")
            self.companions.append(_Histograms(self, trigger))

    def begin(self, run: Run) -> None:
        super().begin(run)
        if not run.is_over:
            run.agreement.let_chief(lambda: require_writable(self.place, "StepTensorBoard"))

    def open_writer(self, run: Run, step: int) -> TensorBoardWriter:
        place = self.place_of(run)
        return TensorBoardWriter(place, step, run.evaluations.prefixes)

    def write_histograms(self, step: int) -> None:
        """Write the distribution of each weight of the model."""
        weights = _weights_by_name(self.model)  # some are read on all workers or on none
        if self.is_writing:
            self.attempt(
                lambda writer: writer.write_histograms(step, weights), f"called at step {step}"
            )


class _Histograms(StepCallback):
    """Due at steps of its own, beside the reports."""

    at_end = True

    def __init__(self, owner: StepTensorBoard, every: Trigger) -> None:
        super().__init__(every, optimizer=owner.optimizer)
        self.owner = owner

    def on_step(self, step: int, logs: dict[str, float]) -> None:
        self.owner.write_histograms(step)

    def refuse_loop(self, training: LoopTraining) -> None:
        if training.model is None:
            raise ValueError(
                "StepTensorBoard(histograms_every) writes the weights of the model, and the loop "
                "has none: StepLoop(callbacks, model=model)."
            )


def _weights_by_name(model: Any) -> dict[str, Any]:
    """The model's weights as arrays; a name that comes again gets a number."""
    found: dict[str, Any] = {}
    for weight, array in zip(model.weights, model.get_weights(), strict=True):
        of_keras_3 = hasattr(type(weight), "path")  # asked itself, some would read their values
        name = weight.path if of_keras_3 else weight.name.partition(":")[0]
        label, number = name, 1
        while label in found:
            number += 1
            label = f"{name}__{number}"
        found[label] = array
    return found
