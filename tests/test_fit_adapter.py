"""What a run survives, and what it leaves behind."""

import copy
import gc
import threading
import warnings
import weakref

import numpy as np
import pytest
from flavours import (
    BATCH,
    FLAVOUR,
    IS_TF_KERAS,
    ON_TENSORFLOW,
    arrays,
    clear_session,
    fit,
    keras,
    loss_scaled,
    make_model,
    mirrored_scope,
    no_scope,
    state_of,
)

import keras_steps as ks
from keras_steps import fit_adapter
from keras_steps.testing import FakeClock, Recorder


def is_wrapped(model):
    return isinstance(model.train_function, fit_adapter.FitAdapter)


# ---------------------------------------------------------------- what is left behind


def test_train_function_is_afterwards_what_it_was():
    model = make_model()
    fit(model, [], batches=2)
    before = model.train_function
    fit(model, [Recorder(1), ks.StopAtStep(num_steps=3)])
    assert model.train_function is before
    fit(model, [ks.StopAtStep(5)])  # already there
    assert model.train_function is before


class _Raises(keras.callbacks.Callback):
    def __init__(self, hook, error):
        super().__init__()
        setattr(self, hook, self._raise)
        self.error = error

    def _raise(self, *args, **kwargs):
        raise self.error


@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyboardInterrupt()])
@pytest.mark.parametrize("hook", ["on_train_begin", "on_epoch_begin", "on_epoch_end"])
def test_a_fit_broken_off_by_another_callback_leaves_nothing(hook, error):
    model = make_model()
    recorder = Recorder(5)
    with pytest.raises(type(error)):
        fit(model, [recorder, _Raises(hook, error)])
    at = ks.global_step(model)
    assert at == (10 if hook == "on_epoch_end" else 0)
    recorder.steps.clear()
    fit(model, [recorder])
    assert recorder.steps == [at + 5, at + 10]
    assert not is_wrapped(model)


@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyboardInterrupt()])
def test_a_fit_broken_off_within_a_step_gives_the_train_function_back_at_once(error):
    def interrupt(step, logs):
        raise error

    model = make_model()
    recorder = Recorder(2)
    with pytest.raises(type(error)):
        fit(model, [recorder, ks.OnStep(3, interrupt)])
    assert not is_wrapped(model)
    assert ks.global_step(model) == 3
    assert recorder.steps == [2]
    fit(model, [recorder])
    assert recorder.steps == [2, 4, 6, 8, 10, 12]
    assert all(np.isfinite(value).all() for value in state_of(model))


@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyboardInterrupt()])
def test_the_model_is_whole_after_an_error_before_an_update(error):
    def schedule(step):
        if step == 6:
            raise error
        return 0.01

    model = make_model()
    with pytest.raises(type(error)):
        fit(model, [ks.StepScheduledLR(schedule)])
    assert ks.global_step(model) == 6
    fit(model, [], batches=4)
    assert ks.global_step(model) == 10


class _Holds(Recorder):
    """Notes how its runs end."""

    def __init__(self):
        super().__init__(2)
        self.ends = []

    def end(self, run):
        self.ends.append("end")

    def break_off(self, run):
        self.ends.append("broken off")


def _interrupts(step, logs):
    raise KeyboardInterrupt


class _FailsToLetGo(Recorder):
    def break_off(self, run):
        raise OSError("no space left")


def test_callbacks_are_told_at_once_of_what_comes_through_a_step_or_one_of_them():
    holds, at_epoch_end = _Holds(), ks.OnStep(ks.AtSteps(10), _interrupts)
    for breaks in (ks.OnStep(ks.AtSteps(3), _interrupts), at_epoch_end):
        with pytest.raises(KeyboardInterrupt):
            fit(make_model(), [holds, breaks], validation_data=arrays(1))
    assert holds.ends == ["broken off"] * 2
    with pytest.raises(RuntimeError, match="cannot begin"):
        fit(make_model(), [holds, _CannotBegin(1)])
    assert holds.ends == ["broken off"] * 3
    fit(make_model(), [holds])
    assert holds.ends == ["broken off"] * 3 + ["end"]


class _CannotBegin(Recorder):
    def begin(self, run):
        raise RuntimeError("cannot begin")


def test_of_other_errors_they_are_told_before_the_next_fit_of_whatever_model():
    holds = _Holds()
    with pytest.raises(RuntimeError):
        fit(make_model(), [holds, _Raises("on_epoch_end", RuntimeError())])
    assert holds.ends == []
    fit(make_model(), [Recorder(2)])
    assert holds.ends == ["broken off"]


def test_one_that_fails_to_let_go_is_named_and_the_others_are_told():
    holds = _Holds()
    with (
        pytest.warns(UserWarning, match="_FailsToLetGo, broken off: OSError.*no space left"),
        pytest.raises(KeyboardInterrupt),
    ):
        fit(make_model(), [_FailsToLetGo(2), holds, ks.OnStep(ks.AtSteps(3), _interrupts)])
    assert holds.ends == ["broken off"]


def test_a_fit_in_another_thread_is_left_alone():
    holds, inner = _Holds(), _Holds()

    def in_a_thread(step, logs):
        thread = threading.Thread(target=fit, args=(make_model(), [inner]))
        thread.start()
        thread.join(120)

    fit(make_model(), [holds, ks.OnStep(ks.AtSteps(3), in_a_thread)])
    assert (holds.ends, inner.ends) == (["end"], ["end"])
    assert holds.steps == inner.steps == [2, 4, 6, 8, 10]


def test_a_fit_within_a_fit_takes_no_callback_of_that():
    recorder, another = Recorder(2), Recorder(2)

    def inner(step, logs):
        fit(make_model(seed=2), [another], batches=4)
        with pytest.raises(RuntimeError, match="Give the inner one a Recorder of its own"):
            fit(make_model(seed=2), [recorder])

    fit(make_model(), [recorder, ks.OnStep(ks.AtSteps(3), inner)])
    assert recorder.steps == [2, 4, 6, 8, 10]
    assert another.steps == [2, 4]


def _generator(batches, fails_at):
    x, y = arrays(batches)
    for n in range(batches):
        if n == fails_at:
            raise KeyboardInterrupt
        yield x[n * BATCH : (n + 1) * BATCH], y[n * BATCH : (n + 1) * BATCH]


@pytest.mark.skipif(ON_TENSORFLOW, reason="TensorFlow reads data within the training step")
def test_an_interrupt_in_the_data_leaves_no_callbacks_behind():
    model = make_model()
    stop, recorder = ks.StopAtStep(8), Recorder(1)
    with pytest.raises(KeyboardInterrupt):
        fit(model, [stop, recorder], x=_generator(20, fails_at=6), steps_per_epoch=20)
    seen = list(recorder.steps)
    assert ks.global_step(model) == len(seen)
    assert all(np.isfinite(value).all() for value in state_of(model))
    fit(model, [], batches=10)
    assert recorder.steps == seen
    assert not is_wrapped(model)


@pytest.mark.skipif(ON_TENSORFLOW, reason="TensorFlow reads data within the training step")
def test_train_on_batch_after_an_interrupt_is_nobodys_step():
    model = make_model()
    recorder = Recorder(1)
    with pytest.raises(KeyboardInterrupt):
        fit(model, [recorder], x=_generator(20, fails_at=6), steps_per_epoch=20)
    seen = list(recorder.steps)
    x, y = arrays(1)
    model.train_on_batch(x, y)
    assert recorder.steps == seen


def test_a_skipped_fit_that_is_broken_off_skips_no_other():
    model = make_model()
    fit(model, [ks.StopAtStep(12)], epochs=5)
    for hook in ("on_train_begin", "on_train_end"):
        with pytest.raises(RuntimeError):
            fit(model, [ks.StopAtStep(12), _Raises(hook, RuntimeError())], epochs=2)
        fit(model, [], epochs=3)
        assert ks.global_step(model) == 42
        ks.set_global_step(model, 12)


@pytest.mark.parametrize("hook", ["on_train_begin", "on_epoch_begin", "on_train_batch_begin"])
def test_a_fit_broken_off_before_its_first_execution_acts_in_no_other(hook):
    model = make_model()
    recorder = Recorder(3)
    with pytest.raises(RuntimeError):
        fit(model, [recorder, ks.StopAtStep(12), _Raises(hook, RuntimeError())], epochs=2)
    fit(model, [], epochs=3)
    model.train_on_batch(*arrays(1))
    assert (ks.global_step(model), recorder.steps) == (31, [])


@pytest.mark.filterwarnings("ignore:.*ran out of data")
def test_an_adapter_left_behind_takes_no_count_back():
    model = make_model()
    with pytest.raises(RuntimeError):
        fit(model, [ks.OnStep(10**6, print), _Raises("on_epoch_end", RuntimeError())])
    ks.set_global_step(model, 1000)
    fit(model, [], x=_generator(5, fails_at=None))
    assert ks.global_step(model) in (1005, 1006)  # TensorFlow alone counts one too many


class _Wraps(keras.callbacks.Callback):
    """Puts a function of its own around train_function, at one of Keras's hooks."""

    def __init__(self, hook):
        super().__init__()
        self.calls = None
        setattr(self, hook, self._wrap)

    def _wrap(self, *args, **kwargs):
        if self.calls is not None:
            return
        self.calls, inner = 0, self.model.train_function

        def outer(*args):
            self.calls += 1
            return inner(*args)

        self.model.train_function = outer


@pytest.mark.parametrize("hook", ["on_train_begin", "on_epoch_begin"])
@pytest.mark.parametrize("first", [True, False])
def test_a_neighbour_that_wraps_train_function_too(hook, first):
    model, recorder, wraps = make_model(), Recorder(2), _Wraps(hook)
    callbacks = [recorder, ks.StopAtStep(15)]
    fit(model, [wraps, *callbacks] if first else [*callbacks, wraps], epochs=3)
    assert ks.global_step(model) == wraps.calls == 15
    assert recorder.steps == [2, 4, 6, 8, 10, 12, 14]
    fit(model, [], epochs=1)
    assert ks.global_step(model) == 25


def test_a_subclass_that_forgets_to_call_super_disables_nobody():
    class Mine(Recorder):
        def on_train_begin(self, logs=None):
            pass

    mine, model = Mine(3), make_model()
    fit(model, [ks.StopAtStep(15), mine], epochs=3)
    assert (ks.global_step(model), mine.steps) == (15, [3, 6, 9, 12, 15])


def test_a_callback_list_without_parameters():
    model, recorder = make_model(), Recorder(3)
    callbacks = [recorder, ks.StopAtStep(5)]
    fit(model, keras.callbacks.CallbackList(callbacks, add_history=True, model=model))
    assert (ks.global_step(model), recorder.steps) == (5, [3])


def test_outside_of_fit_a_callback_says_so():
    callbacks = keras.callbacks.CallbackList([Recorder(3)], model=make_model())
    with pytest.raises(RuntimeError, match="Recorder follows Keras's fit"):
        callbacks.on_train_begin()


def test_a_fit_of_the_same_model_within_a_fit_raises():
    model = make_model()
    nested = ks.OnStep(6, lambda step, logs: fit(model, [ks.StopAtStep(num_steps=2)]))
    with pytest.raises(RuntimeError, match="within a fit of the same model"):
        fit(model, [nested, ks.StopAtStep(16)], epochs=2)


def test_the_step_cannot_be_set_in_mid_epoch():
    model = make_model()
    sets = ks.OnStep(4, lambda step, logs: ks.set_global_step(model, 100))
    with pytest.raises(ValueError, match="can't be set in the middle of fit"):
        fit(model, [sets])
    ks.set_global_step(model, 100)
    assert ks.global_step(model) == 100


def test_a_callback_is_copied_in_mid_fit_without_its_fit():
    copies = []
    recorder = Recorder(3)
    fit(make_model(), [recorder, ks.OnStep(4, lambda *_: copies.append(copy.deepcopy(recorder)))])
    assert copies[0].steps == [3]
    fit(make_model(), [copies[0]])
    assert copies[0].steps == [3, 3, 6, 9]


def test_a_model_whose_fit_was_broken_off_can_be_freed():
    model = make_model()
    with pytest.raises(RuntimeError):
        fit(model, [Recorder(3), _Raises("on_epoch_begin", RuntimeError())])
    gone = weakref.ref(model)
    clear_session()
    del model
    gc.collect()
    assert gone() is None


# ---------------------------------------------------------------- what notebooks do


def test_two_models_in_turn_with_the_same_callbacks():
    first, second = make_model(), make_model(seed=2)
    recorder, stop = Recorder(5), ks.StopAtStep(num_steps=10)
    fit(first, [recorder, stop], epochs=3)
    fit(second, [recorder, stop], epochs=3)
    fit(first, [recorder, stop], epochs=3)
    assert recorder.steps == [5, 10, 5, 10, 15, 20]
    assert (ks.global_step(first), ks.global_step(second)) == (20, 10)


def test_evaluate_and_predict_in_between():
    model = make_model()
    x, y = arrays(2)
    recorder = Recorder(5)
    fit(model, [recorder])
    model.evaluate(x, y, verbose=0, callbacks=[recorder])
    model.predict(x, verbose=0, callbacks=[recorder])
    fit(model, [recorder])
    assert recorder.steps == [5, 10, 15, 20]


def test_evaluate_with_the_same_callbacks_within_fit():
    model = make_model()
    x, y = arrays(2)
    recorder = Recorder(5)
    evaluate = ks.OnStep(
        5, lambda step, logs: model.evaluate(x, y, verbose=0, callbacks=[recorder])
    )
    fit(model, [recorder, evaluate], epochs=2)
    assert recorder.steps == [5, 10, 15, 20]


def test_c35_a_callback_instead_of_a_list():
    model = make_model()
    recorder = Recorder(5)
    fit(model, recorder, epochs=2)
    assert recorder.steps == [5, 10, 15, 20]


def test_the_same_callback_twice_in_a_list_fires_once():
    recorder = Recorder(5)
    fit(make_model(), [recorder, recorder])
    assert recorder.steps == [5, 10]


def test_a_subclass_may_override_what_keras_calls():
    class Mine(Recorder):
        def on_train_begin(self, logs=None):
            super().on_train_begin(logs)
            self.begun = True

    mine = Mine(5)
    fit(make_model(), [mine])
    assert mine.begun
    assert mine.steps == [5, 10]


def test_a_model_compiled_anew_within_a_run_goes_on_counting():
    model = make_model()
    recorder = Recorder(5)

    class Again(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                model.make_train_function(force=True)

    fit(model, [Again(), recorder], epochs=2)
    assert recorder.steps == [5, 10, 15, 20]


def test_a_counter_restored_at_train_begin_by_a_later_callback_is_seen():
    class Restore(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            ks.set_global_step(model, 40)

    model = make_model()
    recorder = Recorder(5)
    fit(model, [recorder, ks.StopAtStep(num_steps=7), Restore()], epochs=2)
    assert recorder.steps == [45]
    assert ks.global_step(model) == 47


def test_a_target_reached_by_a_later_restore_makes_no_step():
    class Restore(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            ks.set_global_step(model, 40)

    model = make_model()
    before = [np.array(w) for w in model.get_weights()]
    fit(model, [ks.StopAtStep(40), Restore()], epochs=5)
    assert ks.global_step(model) == 40
    np.testing.assert_equal(model.get_weights(), before)


# ---------------------------------------------------------------- what TensorFlow miscounts


def _of_unknown_size(batches):
    import tensorflow as tf

    x, y = arrays(batches)
    pairs = [
        (x[n * BATCH : (n + 1) * BATCH], y[n * BATCH : (n + 1) * BATCH]) for n in range(batches)
    ]
    signature = (tf.TensorSpec((BATCH, 4)), tf.TensorSpec((BATCH, 1)))
    return tf.data.Dataset.from_generator(lambda: iter(pairs), output_signature=signature)


scopes = [no_scope, mirrored_scope] if ON_TENSORFLOW else [no_scope]


@pytest.mark.skipif(not ON_TENSORFLOW, reason="counts right by itself")
@pytest.mark.filterwarnings("ignore:.*ran out of data")
@pytest.mark.parametrize("scope", scopes, ids=["default", "mirrored"][: len(scopes)])
def test_c09_data_of_unknown_size_are_counted_right(scope):
    with scope():
        model = make_model()
    recorder = Recorder(4)
    fit(model, [recorder], x=_of_unknown_size(9), epochs=3)
    assert ks.global_step(model) == 27
    assert recorder.steps == [4, 8, 12, 16, 20, 24]


@pytest.mark.skipif(FLAVOUR != "tensorflow", reason="tf_keras refuses spe > 1 with such data")
@pytest.mark.filterwarnings("ignore:.*(ran out of data|no multiple)")
def test_data_of_unknown_size_with_steps_per_execution():
    model = make_model(steps_per_execution=4)
    recorder = Recorder(9)
    fit(model, [recorder], x=_of_unknown_size(9), epochs=3)
    assert ks.global_step(model) == 27
    assert recorder.steps == [9, 18, 27]


@pytest.mark.skipif(FLAVOUR != "tensorflow", reason="only TensorFlow miscounts; Keras 3 only")
@pytest.mark.filterwarnings("ignore:.*ran out of data")
def test_data_of_unknown_size_under_accumulation():
    model = make_model(keras.optimizers.SGD(0.01, gradient_accumulation_steps=2))
    fit(model, [Recorder(4)], x=_of_unknown_size(9), epochs=4)
    assert ks.global_step(model) == 18


@pytest.mark.skipif(not ON_TENSORFLOW, reason="counts right by itself")
@pytest.mark.filterwarnings("ignore:.*ran out of data")
def test_data_of_unknown_size_under_loss_scaling():
    model = make_model(loss_scaled(keras.optimizers.SGD(0.01)))
    fit(model, [Recorder(4)], x=_of_unknown_size(9), epochs=3)
    assert ks.global_step(model) == 27


# ---------------------------------------------------------------- time


def test_a_time_trigger_fires_at_the_end_of_the_execution_in_which_it_is_due():
    with FakeClock() as time:
        recorder = Recorder(ks.EverySecs(10))
        tick = ks.OnStep(1, lambda step, logs: time.advance(3))
        fit(make_model(), [recorder, tick], batches=20)
    assert recorder.steps == [5, 9, 13, 17]


def test_steps_or_seconds_whichever_comes_first():
    with FakeClock() as time:
        recorder = Recorder(ks.EverySteps(4) | ks.EverySecs(10))
        slow_at = {6: 11}
        tick = ks.OnStep(1, lambda step, logs: time.advance(slow_at.get(step, 0)))
        fit(make_model(), [recorder, tick], batches=12)
    assert recorder.steps == [4, 7, 8, 12]


# ---------------------------------------------------------------- models of one's own


class TwoOptimizers(keras.Model):
    """Trains its two halves with an optimizer each: the second five times a batch."""

    def __init__(self):
        super().__init__()
        self.one, self.two = keras.layers.Dense(1), keras.layers.Dense(1)

    def build(self, shape):
        self.one.build(shape)
        self.two.build(shape)
        self.built = True

    def call(self, x):
        return self.one(x) + self.two(x)

    def train_step(self, data):
        import tensorflow as tf

        x, y = data
        for layer, optimizer, times in ((self.one, self.first, 1), (self.two, self.second, 5)):
            for _ in range(times):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((self(x) - y) ** 2)
                variables = layer.trainable_variables
                optimizer.apply_gradients(
                    zip(tape.gradient(loss, variables), variables, strict=True)
                )
        return {"distance": loss}


def _two_optimizers():
    model = TwoOptimizers()
    model.compile()
    model.first, model.second = keras.optimizers.SGD(0.01), keras.optimizers.SGD(0.01)
    model.build((None, 4))
    return model


@pytest.mark.skipif(not ON_TENSORFLOW, reason="the model is written in TensorFlow")
def test_one_clock_an_optimizer():
    model = _two_optimizers()
    first, second = Recorder(4, optimizer="first"), Recorder(20, optimizer=lambda m: m.second)
    fit(model, [first, second, ks.StopAtStep(35, optimizer="second")])
    assert first.steps == [4]
    assert second.steps == [20]
    assert (ks.global_step(model.first), ks.global_step(model.second)) == (7, 35)
    assert list(first.logs[0])[:2] == ["distance", "learning_rate"]


@pytest.mark.skipif(not ON_TENSORFLOW, reason="the model is written in TensorFlow")
def test_c24_the_wrong_optimizer_is_noticed():
    model = _two_optimizers()
    with pytest.warns(UserWarning, match="has not moved in 10 executions.*optimizer='g_optimizer'"):
        fit(model, [Recorder(4)], batches=12)


def test_no_warning_for_a_counter_that_moves():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        fit(make_model(), [Recorder(100)], batches=12)


@pytest.mark.skipif(IS_TF_KERAS, reason="tf_keras keeps its own place for it")
@pytest.mark.parametrize("run_eagerly", [False, True])
def test_an_eager_model_fires_alike(run_eagerly):
    recorder = Recorder(5)
    fit(make_model(run_eagerly=run_eagerly), [recorder])
    assert recorder.steps == [5, 10]


@pytest.mark.parametrize("step", [3, 8], ids=["in mid-epoch", "at an epoch's last batch"])
@pytest.mark.parametrize("trains", ["train_on_batch", "fit"])
def test_an_action_that_trains_the_model_at_a_step_is_refused(trains, step):
    model, (x, y) = make_model(), arrays(8)

    def train(step, logs):
        more = {"verbose": 0} if trains == "fit" else {}
        getattr(model, trains)(x[:BATCH], y[:BATCH], **more)

    with pytest.raises(RuntimeError, match="an action at a step of the fit of .* trains the same"):
        fit(model, [ks.OnStep(ks.AtSteps(step), train)], batches=8, epochs=2)
    recorder = Recorder(4)
    fit(model, [recorder], batches=8)
    assert recorder.steps == [step // 4 * 4 + 4 * n for n in (1, 2)]
