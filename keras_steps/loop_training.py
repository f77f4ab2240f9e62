"""What a loop of one's own trains, as its run sees it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MethodType
from typing import TYPE_CHECKING, Any

from keras_steps.distribution import in_place_of_model
from keras_steps.global_step import named_in
from keras_steps.keras_internals import learning_rate_source, name_of, variables_of_loop
from keras_steps.logged import Logged
from keras_steps.reports import Sum
from keras_steps.step_sources import OwnSteps, StepFunction, step_source
from keras_steps.training import Training

if TYPE_CHECKING:
    from keras_steps.step_callback import StepCallback


class LoopTraining(Training):
    """A model, or none, and what counts its updates.

    Args:
        model: A Keras model, or None.
        optimizer: As in StepLoop.

    Attributes:
        counter: The optimizer that callbacks follow by default, or what stands for one.
        logged: The values that the loop logs.
        callbacks: Those that follow it while it is under way.
    """

    def __init__(self, model: Any, optimizer: Any) -> None:
        self.model = _checked_model(model)
        self._sources: dict[Any, tuple[Any, Any]] = {}
        self.counter = self._counter(optimizer)
        self.callbacks: list[StepCallback] = []
        self._asked = self.model
        if self._asked is None:
            self._asked = in_place_of_model(self.counter.iterations)
        self.begin()

    def begin(self) -> None:
        """A new run begins."""
        self.variables = variables_of_loop(self.model)
        self.logged = Logged()
        self._is_stopping = False
        if self.model is not None:
            self.model.stop_training = False
        for source in self.sources:
            if isinstance(source, StepFunction):
                source.begin()

    @property
    def sources(self) -> list[Any]:
        """All that counts: `counter` first, then what else callbacks have asked for."""
        others = [source for _, source in self._sources.values() if source is not self.counter]
        return [self.counter, *others]

    @property
    def counts_itself(self) -> bool:
        """Whether the loop's iterations are its steps."""
        return isinstance(self.counter, OwnSteps)

    @property
    def holds_its_state(self) -> bool:
        """Whether all that is trained lies in variables of the model and Keras optimizers.

        Where a function says the step, it may lie in arrays of the loop's own, and the model
        have copies of them; a torch optimizer keeps its own.
        """
        return self.model is not None and not self._foreign

    @property
    def asked_for_workers(self) -> Any:
        return self._asked

    @property
    def shares_arrays(self) -> bool:
        """Where a function says the step, it may have put the loop's arrays into the model."""
        return any(isinstance(source, StepFunction) for source in self.sources)

    @property
    def without_its_state(self) -> str:
        """What to say to someone who has to have all of that state."""
        if self.model is None:
            return "the loop has no model: StepLoop(callbacks, model=model)."
        return (
            f"{name_of(self._foreign[0])} counts the steps of this loop: part of its state may lie "
            "where nobody but the loop itself can put it back. Count by a Keras optimizer."
        )

    def optimizer_of(self, callback: StepCallback) -> Any:
        which = callback.optimizer
        if which is None:
            return self.counter
        if isinstance(which, str) and self.model is None:
            raise ValueError(
                f"{type(callback).__name__}(optimizer={which!r}) names an attribute of the model, "
                "and the loop has none: StepLoop(callbacks, model=model). Or pass a function that "
                "returns the optimizer."
            )
        return self._source(*named_in(self.model, which, type(callback).__name__))

    def counts_each_batch(self, optimizer: Any) -> bool:
        return isinstance(optimizer, OwnSteps)

    def sums(self) -> Mapping[str, Sum]:
        return self.logged.sums()

    def reset_sums(self) -> None:
        self.logged = Logged()

    @property
    def names_a_loss(self) -> bool:
        return False

    @property
    def without_a_loss(self) -> str:
        return (
            f"the loop has logged {', '.join(self.logged.names) or 'nothing'}. Log it in each "
            "iteration: loop.log(loss=loss)."
        )

    @property
    def results_are_shared(self) -> bool:
        """Never known: what a loop logs, or a function of one's own finds, may be of one worker."""
        return False

    @property
    def is_stopping(self) -> bool:
        return self._is_stopping or bool(getattr(self.model, "stop_training", False))

    def stop(self) -> None:
        self._is_stopping = True
        if self.model is not None:
            self.model.stop_training = True

    def forget_stop_of_others(self) -> None:
        """What `stop_training` is between firings, a fit within an iteration has left there."""
        if self.model is not None and not self._is_stopping:
            self.model.stop_training = False

    def keep_stop_of_callbacks(self) -> None:
        """What it is behind a firing, a callback has set, to end the loop."""
        if self.is_stopping:
            self.stop()

    def get_state(self) -> dict[str, Any]:
        return dict(self.logged.get_state())

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.logged.set_state(state)

    def _counter(self, optimizer: Any) -> Any:
        if isinstance(optimizer, str):
            if self.model is None:
                raise ValueError(
                    f"StepLoop(optimizer={optimizer!r}) names an attribute of the model, and the "
                    "loop has none: StepLoop(callbacks, model=model, optimizer=...). Or pass the "
                    "optimizer itself."
                )
            return self._source(*named_in(self.model, optimizer, "StepLoop(optimizer)"))
        if optimizer is not None:
            return self._source(optimizer, "StepLoop(optimizer)")
        if self.model is None:
            return OwnSteps()
        if getattr(self.model, "optimizer", None) is None:
            raise ValueError(
                f"StepLoop: the model {self.model.name!r} has no optimizer whose updates could be "
                "counted. Pass the one that the loop uses, StepLoop(callbacks, model=model, "
                "optimizer=optimizer), or a function that returns the step."
            )
        return self._source(*named_in(self.model, None, "StepLoop"))

    def _source(self, given: Any, name: str) -> Any:
        """The same for the same, so that it has one clock; a method is a new object each time."""
        key = given if isinstance(given, MethodType) else id(given)
        if key not in self._sources:
            self._sources[key] = given, step_source(given, name)  # kept, as its id is its key
        return self._sources[key][1]

    @property
    def _foreign(self) -> list[Any]:
        """What counts and is no Keras optimizer."""
        return [source for source in self.sources if learning_rate_source(source) is None]


def _checked_model(model: Any) -> Any:
    if type(model).__name__ == "DistributedDataParallel":
        model = model.module
    is_one = hasattr(model, "fit") and hasattr(model, "metrics") and not isinstance(model, type)
    if model is None or is_one:
        return model
    raise TypeError(
        f"StepLoop(model) must be a Keras model or None; received {model!r}. A loop without one "
        "counts by its optimizer: StepLoop(callbacks, optimizer=optimizer)."
    )
