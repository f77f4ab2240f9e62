"""StepProfiler: real traces, read back: which there are, and which updates are in each."""

import copy
import re

import numpy as np
import pytest
from flavours import (
    BATCH,
    FLAVOUR,
    ON_TENSORFLOW,
    Subclassed,
    arrays,
    fit,
    keras,
    make_model,
    mirrored_scope,
    state_of,
)

import keras_steps as ks
from keras_steps.callbacks.step_profiler import StepProfiler
from keras_steps.profiling import Trace
from keras_steps.testing import Recorder

can_trace = pytest.mark.skipif(FLAVOUR == "torch", reason="refused on torch, see below")
UPDATE = {
    "tensorflow": r".*TanhGrad:TanhGrad",
    "tf_keras": r".*TanhGrad:TanhGrad",
    "jax": r"PjitFunction\(train_step\)",
}
"""What the profiler records for each batch of training, and for none of validation."""
FORWARD = {
    "tensorflow": r".*/Tanh:.*",
    "tf_keras": r".*/Tanh:.*",
    "jax": r"PjitFunction\((train|test)_step\)",
}
"""The same for each batch of training or validation."""
RECORDED = 2 if FLAVOUR == "jax" else 1
"""How many times: JAX's event lies within another of the same name."""
FORWARD = {
    "tensorflow": r".*/Tanh:.*",
    "tf_keras": r".*/Tanh:.*",
    "jax": r"PjitFunction\((train|test)_step\)",
}
"""The same for each batch of training or validation."""
RECORDED = 2 if FLAVOUR == "jax" else 1
"""How many times: JAX's event lies within another of the same name."""
MATMUL = {"tensorflow": r".*/MatMul:.*", "tf_keras": r".*/MatMul:.*", "jax": r"dot(\.\d+)?"}
"""A kernel of the device's: three a step, for the gradients of the model's two layers."""

VALIDATION = {"validation_data": arrays(3), "validation_batch_size": BATCH}


@pytest.fixture(autouse=True)
def no_trace_is_left():
    yield
    left = Trace.under_way
    if left is not None:
        left.discard()
    assert left is None


def events(file):
    """The name of each event in a trace."""
    if FLAVOUR == "jax":
        from jax.profiler import ProfileData

        planes = ProfileData.from_file(str(file)).planes
        return [event.name for plane in planes for line in plane.lines for event in line.events]
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace.FromString(file.read_bytes())
    return [
        plane.event_metadata[event.metadata_id].name
        for plane in space.planes
        for line in plane.lines
        for event in line.events
    ]


def count(file, patterns):
    found = sum(re.fullmatch(patterns[FLAVOUR], name) is not None for name in events(file))
    return found / RECORDED


def traces(log_dir, patterns=UPDATE):
    """The step at which each trace begins, and the updates (or what else is named) in it."""
    found = {}
    for run in sorted((log_dir / "plugins" / "profile").glob("step_*")):
        (file,) = run.glob("*.xplane.pb")
        found[int(run.name.removeprefix("step_"))] = count(file, patterns)
    return found


def model_at(step):
    model = make_model()
    ks.set_global_step(model, step)
    return model


@can_trace
@pytest.mark.parametrize(
    "every, duration, batches, expected",
    [
        (10, 5, 29, {10: 5, 20: 5}),
        (10, 1, 29, {10: 1, 20: 1}),
        (ks.EverySteps(10, start=1), 5, 29, {1: 5, 11: 5, 21: 5}),
        (ks.AtSteps(3, 12), 4, 20, {3: 4, 12: 4}),
        (ks.AtSteps(3, 5, 8, 9), 5, 20, {3: 5, 8: 5}),
        (ks.AtSteps(3, 7, 9), 5, 20, {3: 5, 9: 5}),
        (ks.GeometricSteps(first=2, factor=3), 3, 20, {2: 3, 6: 3, 18: 2}),
    ],
    ids=repr,
)
def test_a_trace_holds_its_steps(tmp_path, every, duration, batches, expected):
    """Also where one ends as another begins, and where one is due while another is under way."""
    fit(make_model(), [StepProfiler(tmp_path, every, duration=duration)], batches=batches)
    assert traces(tmp_path) == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plugins"]


@can_trace
@pytest.mark.parametrize(
    "every, duration, expected",
    [
        (12, 8, {12: 8, 24: 8, 36: 4}),
        (10, 5, {12: 4, 20: 8, 32: 4}),
        (12, 1, {12: 4, 24: 4, 36: 4}),
        (9, 1, {12: 4, 20: 4, 28: 4, 36: 4}),
    ],
)
def test_under_steps_per_execution_a_trace_holds_whole_executions(
    tmp_path, every, duration, expected, recwarn
):
    model = make_model(steps_per_execution=4)
    fit(model, [StepProfiler(tmp_path, every, duration=duration)], batches=40)
    assert traces(tmp_path) == expected
    assert sum(warned.category is UserWarning for warned in recwarn) == (every % 4 > 0)


@pytest.mark.skipif(FLAVOUR != "jax", reason="on TensorFlow, UPDATE is a kernel itself")
def test_what_the_device_does_is_in_a_trace(tmp_path):
    fit(make_model(), [StepProfiler(tmp_path, 10)], batches=16)
    (file,) = tmp_path.glob("plugins/profile/step_00000010/*.xplane.pb")
    products = [name for name in events(file) if re.fullmatch(r"dot(\.\d+)?", name)]
    assert len(products) == 15  # three a step: the last layer's two gradients, the first's one


@can_trace
def test_several_epochs(tmp_path):
    fit(make_model(), [StepProfiler(tmp_path, 8, duration=3)], batches=10, epochs=3)
    assert traces(tmp_path) == {8: 3, 16: 3, 24: 3}


@can_trace
def test_the_end_of_a_fit_ends_a_trace_early_and_starts_none(tmp_path):
    fit(make_model(), [StepProfiler(tmp_path / "early", 10)], batches=13)
    fit(make_model(), [StepProfiler(tmp_path / "none", 10)], batches=10)
    assert traces(tmp_path / "early") == {10: 3}
    assert list((tmp_path / "none").iterdir()) == []


@can_trace
def test_a_stop_ends_a_trace_early(tmp_path):
    fit(make_model(), [ks.StopAtStep(12), StepProfiler(tmp_path, 10)], batches=20)
    assert traces(tmp_path) == {10: 2}


@can_trace
@pytest.mark.parametrize(
    "every, duration, expected",
    [(6, 4, {6: 4, 12: 4, 18: 2}), (8, 5, {8: 5 + 3, 16: 4})],
    ids=["ending at a validation", "going on after one"],
)
def test_validation_is_in_a_trace_only_between_its_steps(tmp_path, every, duration, expected):
    profiler = StepProfiler(tmp_path, every, duration=duration)
    fit(make_model(), [profiler], batches=10, epochs=2, **VALIDATION)
    assert traces(tmp_path, FORWARD) == expected


@can_trace
@pytest.mark.parametrize("spe", [1, 4])
def test_weights_and_history_are_as_without(tmp_path, spe):
    def run(*callbacks):
        model = make_model(keras.optimizers.Adam(0.01), steps_per_execution=spe)
        history = fit(model, list(callbacks), batches=24, epochs=2, validation_data=arrays(2))
        return history.history, state_of(model)

    profiler = StepProfiler(tmp_path, 12, duration=4)
    (history, state), (bare_history, bare_state) = run(profiler), run()
    assert list(traces(tmp_path)) == [12, 24, 36]
    assert history == bare_history
    for array, bare in zip(state, bare_state, strict=True):
        np.testing.assert_array_equal(array, bare)


@can_trace
def test_other_callbacks_at_the_same_steps(tmp_path):
    seen = Recorder(5)
    seen.uses_model = True
    fit(make_model(), [StepProfiler(tmp_path, 10), seen], batches=20)
    assert seen.steps == [5, 10, 15, 20]
    assert traces(tmp_path) == {10: 5}


@can_trace
def test_a_resumed_run_traces_at_the_same_steps_and_replaces_what_lies_past_its_step(tmp_path):
    fit(model_at(0), [StepProfiler(tmp_path, 10, duration=3)], batches=35)
    assert traces(tmp_path) == {10: 3, 20: 3, 30: 3}
    fit(model_at(12), [StepProfiler(tmp_path, 10, duration=2)], batches=13)
    assert traces(tmp_path) == {10: 3, 20: 2}


@can_trace
def test_a_resume_at_a_due_step_traces_no_first_step(tmp_path):
    fit(model_at(10), [StepProfiler(tmp_path, ks.AtSteps(10, 11))], batches=8)
    assert traces(tmp_path) == {11: 5}


@can_trace
def test_a_fresh_run_leaves_earlier_traces_alone(tmp_path, capsys):
    for _ in range(2):
        fit(make_model(), [StepProfiler(tmp_path / "logs", 10)], batches=16)
    assert traces(tmp_path / "logs") == traces(tmp_path / "logs_2") == {10: 5}
    assert "logs holds an earlier run: this one writes to" in capsys.readouterr().out


@can_trace
def test_a_run_that_goes_on_does_so_in_the_newest(tmp_path):
    for begin in (0, 0, 12):
        fit(model_at(begin), [StepProfiler(tmp_path / "logs", 10)], batches=16)
    assert traces(tmp_path / "logs") == {10: 5}
    assert traces(tmp_path / "logs_2") == {10: 5, 20: 5}


@can_trace
def test_a_fresh_run_leaves_the_traces_of_one_that_went_on_alone(tmp_path):
    for begin in (20, 0):
        fit(model_at(begin), [StepProfiler(tmp_path / "logs", 10)], batches=16)
    assert (traces(tmp_path / "logs"), traces(tmp_path / "logs_2")) == ({30: 5}, {10: 5})


@can_trace
def test_traces_of_others_in_the_directory_stay(tmp_path):
    theirs = tmp_path / "plugins" / "profile" / "2026_01_31_12_00_00"
    theirs.mkdir(parents=True)
    fit(make_model(), [StepProfiler(tmp_path, 10)], batches=16)
    assert theirs.is_dir()
    assert traces(tmp_path) == {10: 5}


@can_trace
def test_a_second_fit_with_the_same_callback_and_with_a_copy(tmp_path):
    profiler = StepProfiler(tmp_path, 10, duration=3)
    model = make_model()
    for callback in (profiler, profiler, copy.deepcopy(profiler)):
        fit(model, [callback], batches=14)
    assert traces(tmp_path) == {10: 3, 20: 3, 30: 3, 40: 2}


class _Break(Exception):
    pass


def _break_off(step, error):
    def on_step(now, logs):
        if now == step:
            raise error

    return ks.OnStep(1, on_step)


class _BreakAtEpochEnd(keras.callbacks.Callback):
    """Breaks a fit off where no train_function sees it."""

    def on_epoch_end(self, epoch, logs=None):
        raise KeyboardInterrupt


@can_trace
@pytest.mark.parametrize(
    "breaks, error",
    [
        (_break_off(12, _Break()), _Break),
        (_break_off(12, KeyboardInterrupt()), KeyboardInterrupt),
        (_BreakAtEpochEnd(), KeyboardInterrupt),
    ],
    ids=["error", "interrupt", "between executions"],
)
@pytest.mark.parametrize("again", [True, False], ids=["same callback", "another"])
def test_what_a_broken_off_fit_left_is_thrown_away(tmp_path, breaks, error, again):
    """At once, or by the next fit where no callback of ours is told of the error."""
    profiler = StepProfiler(tmp_path, 10)
    with pytest.raises(error):
        fit(make_model(), [profiler, breaks], batches=13)
    assert traces(tmp_path) == {}
    assert (Trace.under_way is not None) == isinstance(breaks, _BreakAtEpochEnd)
    profiler = profiler if again else StepProfiler(tmp_path, 10)
    fit(make_model(), [profiler], batches=16)
    assert traces(tmp_path) == {10: 5}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plugins"]


def _start(log_dir):
    if FLAVOUR == "jax":
        import jax

        jax.profiler.start_trace(str(log_dir))
    else:
        import tensorflow as tf

        tf.profiler.experimental.start(str(log_dir))


def _stop():
    if FLAVOUR == "jax":
        import jax

        jax.profiler.stop_trace()
    else:
        import tensorflow as tf

        tf.profiler.experimental.stop()


@can_trace
def test_another_profiler_is_left_alone(tmp_path):
    _start(tmp_path / "theirs")
    try:
        with pytest.warns(
            UserWarning, match="trace at step 10 is left out.*another prof"
        ) as caught:
            fit(make_model(), [StepProfiler(tmp_path / "ours", 10)], batches=25)
    finally:
        _stop()
    assert sum(warned.category is UserWarning for warned in caught) == 1
    (file,) = tmp_path.glob("theirs/plugins/profile/*/*.xplane.pb")
    assert count(file, UPDATE) >= 25
    assert list((tmp_path / "ours").iterdir()) == []


@can_trace
def test_another_profiler_that_ends_makes_room(tmp_path):
    _start(tmp_path / "theirs")
    stop = ks.OnStep(ks.AtSteps(12), lambda step, logs: _stop())
    with pytest.warns(UserWarning, match="trace at step 10 is left out"):
        fit(make_model(), [StepProfiler(tmp_path / "ours", 10), stop], batches=26)
    assert traces(tmp_path / "ours") == {20: 5}


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.skipif(not ON_TENSORFLOW, reason="Keras's TensorBoard writes through TensorFlow")
def test_beside_the_profiler_of_keras_tensorboard(tmp_path):
    theirs = keras.callbacks.TensorBoard(str(tmp_path / "theirs"), profile_batch=(8, 12))
    with pytest.warns(UserWarning, match="trace at step 10 is left out"):
        fit(make_model(), [theirs, StepProfiler(tmp_path / "ours", 10)], batches=26)
    assert traces(tmp_path / "ours") == {20: 5}
    assert len(list(tmp_path.glob("theirs/**/*.xplane.pb"))) == 1


@can_trace
def test_a_fit_within_a_fit_leaves_the_outer_trace_under_way(tmp_path):
    def inner(step, logs):
        fit(make_model(), [StepProfiler(tmp_path / "inner", 3, duration=1)], batches=5)

    outer = StepProfiler(tmp_path / "outer", 10)
    with pytest.warns(UserWarning, match="trace at step 3 is left out"):
        fit(make_model(), [outer, ks.OnStep(ks.AtSteps(12), inner)], batches=20)
    assert list(traces(tmp_path / "outer")) == [10]
    assert list((tmp_path / "inner").iterdir()) == []


@pytest.mark.skipif(not ON_TENSORFLOW, reason="a train_step of one's own: TensorFlow's way")
def test_an_execution_past_the_end_of_a_trace_is_said(tmp_path):
    class ThreeUpdates(Subclassed):
        def train_step(self, data):
            for _ in range(2):
                super().train_step(data)
            return super().train_step(data)

    model = ThreeUpdates()
    model.compile("sgd", "mse")
    with pytest.warns(UserWarning, match="past the end of a trace of duration=1: it is left out"):
        fit(model, [StepProfiler(tmp_path, 10, duration=1)], batches=12)
    assert list(traces(tmp_path)) == [30]


@can_trace
def test_the_chief_alone_traces(tmp_path, monkeypatch):
    monkeypatch.setattr("keras_steps.agreement.is_chief", lambda model: False)
    fit(make_model(), [StepProfiler(tmp_path / "logs", 10)], batches=16)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not ON_TENSORFLOW, reason="strategies are TensorFlow's")
def test_under_mirrored_strategy(tmp_path):
    with mirrored_scope():
        model = make_model()
    fit(model, [StepProfiler(tmp_path, 10)], batches=16)
    assert traces(tmp_path) == {10: 10}  # 5 on each of 2 replicas


@can_trace
def test_a_time_at_which_nothing_is_left_to_do(tmp_path):
    fit(model_at(20), [ks.StopAtStep(20), StepProfiler(tmp_path / "logs", 10)], batches=5)
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------ errors


@pytest.mark.skipif(FLAVOUR != "torch", reason="others can trace")
def test_torch_is_refused_at_train_begin(tmp_path):
    model = make_model()
    with pytest.raises(ValueError, match="backend is torch. Use torch's own.*torch.profiler.prof"):
        fit(model, [StepProfiler(tmp_path / "logs", 10)])
    assert ks.global_step(model) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "args, error, text",
    [
        (("logs", 0), ValueError, r"StepProfiler\(every\) must be at least 1; received 0"),
        (("logs", 2.5), TypeError, r"StepProfiler\(every\) must be an integer; received 2.5"),
        (("logs", "10"), TypeError, "number of steps or a trigger"),
        (("logs", None), TypeError, "number of steps or a trigger"),
        (("logs", ks.EverySecs(60)), ValueError, r"must be steps.*received EverySecs\(60"),
        (("logs", ks.EverySecs(60) | ks.AtSteps(5)), ValueError, "must be steps"),
        (("logs", 5), ValueError, "every=5.* more than duration=5.*every=6 or more"),
        (("logs", ks.EverySteps(3, start=1)), ValueError, "every=3.* more than duration=5"),
        (("gs://logs", 10), ValueError, r"StepProfiler\(log_dir\).*on this machine"),
        ((5, 10), TypeError, r"StepProfiler\(log_dir\) must be a path; received 5"),
    ],
)
def test_bad_arguments(args, error, text):
    with pytest.raises(error, match=text):
        StepProfiler(*args)


@pytest.mark.parametrize(
    "duration, error, text",
    [(0, ValueError, "at least 1; received 0"), (2.5, TypeError, "an integer; received 2.5")],
)
def test_a_bad_duration(duration, error, text):
    with pytest.raises(error, match=rf"StepProfiler\(duration\) must be {text}"):
        StepProfiler("logs", 10, duration=duration)


@can_trace
def test_two_in_one_fit(tmp_path):
    two = [StepProfiler(tmp_path / name, 10) for name in "ab"]
    with pytest.raises(ValueError, match="two StepProfilers in one fit.*Join their triggers"):
        fit(make_model(), two)


@can_trace
def test_an_execution_as_long_as_the_interval(tmp_path):
    model = make_model(steps_per_execution=4)
    with pytest.raises(ValueError, match="every=4.* more than steps_per_execution=4"):
        fit(model, [StepProfiler(tmp_path, 4, duration=2)])
    assert ks.global_step(model) == 0


@can_trace
def test_a_directory_that_can_not_be_written_to(tmp_path):
    (tmp_path / "file").touch()
    model = make_model()
    with pytest.raises(OSError, match=f"StepProfiler: cannot write.*{tmp_path / 'file'}"):
        fit(model, [StepProfiler(tmp_path / "file" / "logs", 10)])
    assert ks.global_step(model) == 0


@can_trace
def test_a_trace_that_can_not_be_written_names_its_place(tmp_path):
    run = tmp_path / "plugins" / "profile" / "step_00000020"
    in_the_way = ks.OnStep(ks.AtSteps(22), lambda step, logs: run.touch())
    with pytest.raises(OSError) as caught:
        fit(make_model(), [StepProfiler(tmp_path, 10), in_the_way], batches=30)
    assert str(run) in caught.value.__notes__[0]
    assert [path.name for path in tmp_path.iterdir()] == ["plugins"]
