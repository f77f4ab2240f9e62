"""Fits that begin with a later epoch, or leave a validation out; these fail when Keras changes."""

import pytest
from flavours import arrays, fit, keras, make_model

from keras_steps import global_step
from keras_steps import keras_internals as internals


class Notes(keras.callbacks.Callback):
    """Calls `function(model, call)` at train begin, or at an epoch's begin, and notes events."""

    def __init__(self, function, at_epoch=None):
        super().__init__()
        self.function, self.at_epoch = function, at_epoch
        self.events = []

    def on_train_begin(self, logs=None):
        if self.at_epoch is None:
            self.function(self.model, next(internals.calls_around()))

    def on_epoch_begin(self, epoch, logs=None):
        self.events.append(epoch)
        if epoch == self.at_epoch:
            self.function(self.model, next(internals.calls_around()))

    def on_test_begin(self, logs=None):
        self.events.append("validation")


def starts_at(epoch):
    return lambda model, call: internals.start_at_epoch(model, call, epoch)


@pytest.mark.parametrize(
    ("epoch", "initial_epoch", "expected"),
    [
        (0, 0, [0, 1, 2, 3]),
        (1, 0, [1, 2, 3]),
        (3, 0, [3]),
        (4, 0, []),
        (9, 0, []),
        (2, 2, [2, 3]),
        (3, 2, [3]),
    ],
)
def test_start_at_epoch(epoch, initial_epoch, expected):
    model = make_model()
    notes = Notes(starts_at(epoch))
    history = fit(model, [notes], batches=2, epochs=4, initial_epoch=initial_epoch)
    assert notes.events == expected
    assert history.epoch == expected
    assert {type(number) for number in history.epoch} <= {int}
    assert global_step(model) == 2 * len(expected)
    assert fit(model, [], batches=2, epochs=2).epoch == [0, 1]


def test_a_fit_that_is_broken_off_before_leaves_no_start_to_the_next():
    def interrupt(model, call):
        raise KeyboardInterrupt

    model = make_model()
    with pytest.raises(KeyboardInterrupt):
        fit(model, [Notes(starts_at(3)), Notes(interrupt)], epochs=4)
    assert fit(model, [], epochs=2).epoch == [0, 1]


def test_skip_validation_leaves_one_out():
    notes = Notes(internals.skip_validation, at_epoch=1)
    history = fit(make_model(), [notes], epochs=3, validation_data=arrays(1)).history
    assert notes.events == [0, "validation", 1, 2, "validation"]
    assert len(history["loss"]) == 3
    assert len(history["val_loss"]) == 2


def test_a_validation_that_was_not_asked_for_is_not_left_out_of_the_next_fit():
    model = make_model()
    fit(model, [Notes(internals.skip_validation, at_epoch=0)])
    notes = Notes(None, at_epoch=9)
    fit(model, [notes], epochs=4, validation_data=arrays(1), validation_freq=2)
    assert notes.events == [0, 1, "validation", 2, 3, "validation"]
    assert "_should_eval" not in vars(model)
