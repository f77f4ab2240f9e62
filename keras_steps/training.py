"""What is trained, as far as a run has to know: by fit, or by a loop of one's own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from keras_steps import preflight
from keras_steps.distribution import metrics_are_shared
from keras_steps.keras_internals import (
    Variables,
    counter_of,
    has_keras_train_step,
    is_loss_scaled,
    mean_metrics,
    steps_per_execution,
    variables_of,
)
from keras_steps.reports import Sum

if TYPE_CHECKING:
    from keras_steps.step_callback import StepCallback


class Training(ABC):
    """What a run asks of the adapter that it is driven by.

    Attributes:
        model: The model that is trained; None where a loop has none.
        variables: The way to its variables.
        batches: Batches an execution.
    """

    model: Any
    variables: Variables
    batches: int = 1

    by_epochs: ClassVar[bool] = False
    """Whether each epoch begins the sums anew, and weighs them by examples, as Keras does."""

    @abstractmethod
    def optimizer_of(self, callback: StepCallback) -> Any:
        """The optimizer, or what stands for one, whose counter `callback` follows."""

    @abstractmethod
    def counts_each_batch(self, optimizer: Any) -> bool:
        """Whether each batch counts once, so that the count is known without a read."""

    @abstractmethod
    def sums(self) -> Mapping[str, Sum]:
        """The running sums that window means are made of, read now."""

    @abstractmethod
    def reset_sums(self) -> None:
        """Begin the sums anew: those so far are of what a rollback has undone."""

    @property
    @abstractmethod
    def names_a_loss(self) -> bool:
        """Whether "loss" is sure to be among the sums, and has every batch in it."""

    @property
    @abstractmethod
    def without_a_loss(self) -> str:
        """What to say to someone who looks for "loss" where there is none."""

    @property
    @abstractmethod
    def results_are_shared(self) -> bool:
        """Whether metrics and evaluations are of all workers together, and so alike on each."""

    @property
    def shares_arrays(self) -> bool:
        """Whether others than the model may hold the arrays of its variables."""
        return False

    @property
    def asked_for_workers(self) -> Any:
        """What says which workers take part: the model, or what stands for one."""
        return self.model

    @property
    @abstractmethod
    def is_stopping(self) -> bool:
        """Whether the run, or something other than it, ends it after this execution."""

    @abstractmethod
    def stop(self) -> None:
        """End the run after this execution."""

    @abstractmethod
    def get_state(self) -> dict[str, Any]:
        """What a run that goes on must know of the sums, where no variables hold them."""

    @abstractmethod
    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `get_state` gave."""


class FitTraining(Training):
    """A model that Keras's fit trains."""

    by_epochs = True

    def __init__(self, model: Any) -> None:
        self.model = model
        self.variables = variables_of(model)
        self.batches = steps_per_execution(model)
        self._means: dict[str, Any] = {}

    def optimizer_of(self, callback: StepCallback) -> Any:
        optimizer = callback.optimizer_of(self.model)
        preflight.refuse(self.model, optimizer)
        if not self.variables.holds(counter_of(optimizer)[0]):
            raise ValueError(
                f"{type(callback).__name__}(optimizer={callback.optimizer!r}): on JAX fit's "
                "training step gets the variables of model.optimizer, and the counter of this "
                f"{type(optimizer).__name__} is not among them. Give the model an optimizer that "
                "has the variables of both, as docs/gan.md shows."
            )
        return optimizer

    def counts_each_batch(self, optimizer: Any) -> bool:
        return has_keras_train_step(self.model) and not is_loss_scaled(optimizer)

    def sums(self) -> Mapping[str, Sum]:
        if not self._means:  # some are not there before the first batch
            self._means = mean_metrics(self.model)
        read = self.variables.read
        return {n: Sum(read(m.total), read(m.count)) for n, m in self._means.items()}

    def reset_sums(self) -> None:
        self.model.reset_metrics()

    @property
    def names_a_loss(self) -> bool:
        return has_keras_train_step(self.model)

    @property
    def without_a_loss(self) -> str:
        others = sorted(self.sums().keys() - {"loss"})  # Keras has one that no such step updates
        return (
            f"the train_step of {type(self.model).__name__} returns none of this name; its "
            f"metrics are: {', '.join(others) or 'none'}. Let it return the loss, or "
            "the sum of its losses, as 'loss', from a keras.metrics.Mean."
        )

    @property
    def results_are_shared(self) -> bool:
        return metrics_are_shared(self.model)

    @property
    def is_stopping(self) -> bool:
        return bool(self.model.stop_training)

    def stop(self) -> None:
        self.model.stop_training = True

    def get_state(self) -> dict[str, Any]:
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        pass
