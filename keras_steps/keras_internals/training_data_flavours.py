"""What is particular to a flavour of Keras there, and which kind of data a fit has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras

from keras_steps.keras_internals.data_seeking import (
    replay_sampler,
    seek_in_handler,
    seek_next_pass,
)
from keras_steps.keras_internals.fit_call import FitCall
from keras_steps.keras_internals.flavour import backend_of
from keras_steps.keras_internals.skipping import Skipping
from keras_steps.keras_internals.training_data import Position, TrainingData


def training_data_of(model: Any, call: FitCall) -> TrainingData:
    """The data of a fit that is at its train begin.

    Args:
        model: The model that is trained.
        call: The call of its fit.

    Raises:
        ValueError: If it is a fit of the model's own, that goes through the data in its own way,
            or one on parameter servers.
    """
    source = call.data_source
    if "ClusterCoordinator" in type(source).__name__:
        raise ValueError(
            "StepBackupAndRestore can't resume on parameter servers: nobody knows which batches "
            "were trained on. Use StepCheckpoint, or tf_keras.callbacks.BackupAndRestore, which "
            "begins the epoch again."
        )
    if source is None:
        raise ValueError(
            f"Resuming inside an epoch needs Keras's own fit, and that of the model "
            f"{model.name!r} has neither Keras 3's epoch_iterator nor tf_keras's data_handler. "
            "Call super().fit() in it, and override train_step instead."
        )
    kind = _DataHandlerData if backend_of(model) == "tf_keras" else _EpochIteratorData
    return kind(source, call.initial_epoch)


def _spec_of(dataset: Any) -> Any:
    """The element_spec of a tf.data.Dataset, if it is plain: not one for each replica."""
    spec = getattr(dataset, "element_spec", None)
    if spec is None:
        return None
    import tensorflow as tf

    leaves = tf.nest.flatten(spec)
    is_plain = all(isinstance(leaf, tf.TensorSpec) and leaf.shape.rank for leaf in leaves)
    return spec if is_plain else None


class _EpochIteratorData(TrainingData):
    """Keras 3. Seen in 3.12 and 3.15: `_enumerate_iterator` makes iterators and counts steps."""

    @property
    def batch_spec(self) -> Any:
        return _spec_of(getattr(self._source, "_distributed_dataset", None))

    @property
    def begins_pass(self) -> bool:
        source = self._source
        if source.steps_per_epoch is None or source._current_iterator is None:
            return True
        seen, size = source._steps_seen, source._num_batches
        return seen == 0 or (size is not None and seen >= size)

    def _replay(self, epochs: int, passes: int) -> None:
        source, adapter = self._source, self._source.data_adapter
        hooks = getattr(adapter, "py_dataset", adapter)
        for _ in range(epochs):
            hooks.on_epoch_begin()
            hooks.on_epoch_end()
        if hooks is not adapter and hasattr(adapter, "_epoch"):
            adapter._epoch += epochs  # 3.16: what its order is drawn from
        if hasattr(adapter, "_dataset"):  # a tf.data.Dataset, whose iterators count
            dataset = getattr(source, "_distributed_dataset", None)
            # On TensorFlow, an epoch of known size makes one more at its end, for nothing.
            twice = dataset is not None and source.steps_per_epoch is None and source._num_batches
            for _ in range(passes * (2 if twice else 1)):
                iter(adapter._dataset if dataset is None else dataset)
        elif hasattr(adapter, "_dataloader"):
            loader = adapter._dataloader
            asked = len(loader) if loader._dataset_kind == 0 else None  # 0: it has indices
            replay_sampler(loader, passes, twice=not source.steps_per_epoch, asked=asked)
        elif hasattr(adapter, "generator") and passes:
            for _ in adapter.generator():
                pass

    def _install(
        self, position: Position, skipping: Skipping, at_pass: Callable[[], object]
    ) -> None:
        source = self._source
        size = source._num_batches
        spans = source.steps_per_epoch is not None
        # Where it is known when a pass has ended, the next one is made right then.
        was_made_ahead = spans and size is not None and position.passes > 0

        def open_pass() -> Any:
            if size is not None and skipping.batches > size:
                skipping.complain(size)
            sought = seek_next_pass(source, skipping.seekable, skipping.on_read)
            iterator = iter(source._get_iterator())
            if was_made_ahead:
                at_pass()
            with self._epoch_of_pass(position):
                skipping.over(iterator, sought)
            return iterator

        def open_pass_once() -> Any:
            del source._get_iterator
            return open_pass()

        def enumerate_once() -> Iterator[Any]:
            del source._enumerate_iterator
            if not was_made_ahead:
                at_pass()
            if position.lead_in or was_made_ahead:
                source._current_iterator = open_pass()
                source._steps_seen = position.lead_in
            else:
                source._get_iterator = open_pass_once
            executions = source._enumerate_iterator()
            for _ in range(self._executions_in(position.batches)):
                next(executions)
            is_over = True
            for execution in executions:
                is_over = False
                yield execution
            if is_over and keras.backend.backend() == "jax":
                yield position.batches, position.batches, iter(())  # JAX: see `found_end`

        source._enumerate_iterator = enumerate_once

    @contextmanager
    def _epoch_of_pass(self, position: Position) -> Iterator[None]:
        """Keras 3.16 shuffles by the number of the epoch in which a pass reads its first batch."""
        adapter, steps = self._source.data_adapter, self._source.steps_per_epoch
        if not steps or not hasattr(adapter, "_epoch"):
            yield
            return
        now = adapter._epoch
        adapter._epoch = now + -position.lead_in // steps
        try:
            yield
        finally:
            adapter._epoch = now

    def found_end(self) -> None:
        """Keras 3 counts no batches of its own."""

    def _executions_in(self, batches: int) -> int:
        """How many executions to leave out, so that the others do for the rest of the epoch."""
        source = self._source
        each = source.steps_per_execution
        steps = source.steps_per_epoch or source._num_batches
        if not steps:
            return int(batches // each)
        total = -(-steps // each)
        length = steps if source.steps_per_epoch is None else total * each
        return int(total - -(-(length - batches) // each))


class _DataHandlerData(TrainingData):
    """tf_keras. Seen in 2.21: `enumerate_epochs` makes iterators, `steps` counts batches."""

    @property
    def batch_spec(self) -> Any:
        return _spec_of(self._source._dataset)

    @property
    def begins_pass(self) -> bool:
        return bool(self._source._adapter.should_recreate_iterator())

    @property
    def found_size(self) -> int | None:
        size = self._source._inferred_steps
        return None if size is None else int(size)

    def _take_size(self, found: int | None) -> None:
        if self._source._inferred_steps is None:
            self._source._inferred_steps = found

    def _replay(self, epochs: int, passes: int) -> None:
        handler = self._source
        sequence = getattr(handler._adapter, "_keras_sequence", None)
        self._last_hooks = [sequence.on_epoch_end] if epochs and sequence is not None else []
        for hook in self._last_hooks * (epochs - 1):
            hook()
        if sequence is None and self.begins_pass:
            for _ in range(passes):
                iter(handler._dataset)

    def _install(
        self, position: Position, skipping: Skipping, at_pass: Callable[[], object]
    ) -> None:
        handler = self._source
        self._had_nothing = False
        sought = seek_in_handler(handler, skipping.seekable)
        iterators: list[Any] = []

        def enumerate_once() -> Iterator[Any]:
            del handler.enumerate_epochs
            if not skipping.batches:  # the state of an epoch's end comes before its hook
                at_pass()
            for hook in self._last_hooks:
                hook()
            for epoch, iterator in handler.enumerate_epochs():
                iterators[:] = [iterator]
                yield epoch, iterator

        def steps_once() -> Iterator[int]:
            del handler.steps
            if skipping.batches:
                at_pass()
            skipping.over(iterators[0], sought)
            handler._initial_step = position.batches
            for step in handler.steps():
                yield step
                if self._had_nothing:
                    handler._current_step -= 1  # from it the size of the epoch is inferred
                    self._had_nothing = False

        handler.enumerate_epochs, handler.steps = enumerate_once, steps_once

    def found_end(self) -> None:
        self._had_nothing = True
