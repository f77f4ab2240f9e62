"""A GAN has two global steps: everything follows the one that it names, in fit and in a loop."""

import numpy as np
import pytest
from curves import curve, steps
from flavours import FLAVOUR, IS_TF_KERAS, fit, keras, keras_to_numpy, make_model
from gans import compiled, counters, make_gan, state, train

import keras_steps as ks
from keras_steps.testing import Recorder

FORMS = ["in fit", "in a loop"]
G, D = {"optimizer": "g_optimizer"}, {"optimizer": "d_optimizer"}


class Killed(Exception):
    pass


def both_counters(gan):
    return dict(zip(("g_step", "d_step"), map(float, counters(gan)), strict=True))


def callbacks_of(directory):
    """Two of each, by name, one for each counter."""
    return {
        "g": Recorder(3, **G),
        "d": Recorder(10, **D),
        "odd": Recorder(ks.AtSteps(5, 12, 14, 33), **D),
        "all": Recorder(1, **G),
        "default": Recorder(4),
        "g_curves": ks.StepTensorBoard(directory / "g", 2, extra=both_counters, **G),
        "d_curves": ks.StepTensorBoard(directory / "d", 10, extra=both_counters, **D),
        "g_rate": ks.StepScheduledLR(lambda step: 0.001 * (1 + step), **G),
        "d_rate": ks.StepScheduledLR(lambda step: 0.0001 * (1 + step), **D),
        "stop": ks.StopAtStep(8, **G),
    }


def values(recorder, name):
    return [logs[name] for logs in recorder.logs]


def test_c24_both_counters_have_their_own_firings_rates_and_curves(tmp_path):
    """Five updates of the critic to one of the generator; the loop fires as fit does."""
    reports = {}
    for form in FORMS:
        gan, found = make_gan(), callbacks_of(tmp_path / form)
        train(form, gan, found.values())
        assert (counters(gan), ks.stop_reason(gan)) == ((8, 40), "reached")
        assert found["all"].steps == [1, 2, 3, 4, 5, 6, 7, 8]
        assert found["g"].steps == [3, 6]
        assert found["default"].steps == [4, 8]
        assert found["d"].steps == [10, 20, 30, 40]
        assert found["odd"].steps == [5, 15, 35]
        assert values(found["g"], "learning_rate") == pytest.approx([0.003, 0.006])
        # A round begins with the critic at 5, 15, 25 and 35.
        assert values(found["d"], "learning_rate") == pytest.approx(
            [0.0006, 0.0016, 0.0026, 0.0036]
        )
        for name in ("g_loss", "d_loss"):
            single = values(found["all"], name)
            means = [np.mean(single[:3]), np.mean(single[3:6])]
            assert values(found["g"], name) == pytest.approx(means, abs=1e-4)
            means = [np.mean(single[i : i + 2]) for i in (0, 2, 4, 6)]
            assert values(found["d"], name) == pytest.approx(means, abs=1e-4)
        g_run, d_run = tmp_path / form / "g/train", tmp_path / form / "d/train"
        assert steps(g_run, "g_loss") == steps(g_run, "d_loss") == [2, 4, 6, 8]
        assert steps(d_run, "g_loss") == steps(d_run, "d_loss") == [10, 20, 30, 40]
        assert curve(g_run, "d_step") == [(2, 10), (4, 20), (6, 30), (8, 40)]
        assert curve(d_run, "g_step") == [(10, 2), (20, 4), (30, 6), (40, 8)]
        reports[form] = [values(found["all"], name) for name in ("g_loss", "d_loss")]
    np.testing.assert_allclose(reports["in fit"], reports["in a loop"], rtol=1e-3, atol=1e-4)


@pytest.mark.skipif(FLAVOUR != "jax", reason="elsewhere the counter lives in the optimizer")
@pytest.mark.parametrize("callback", [ks.StopAtStep, ks.StepHistory, ks.StepBackupAndRestore])
def test_an_optimizer_whose_variables_fit_does_not_get_is_refused(callback, tmp_path):
    model = make_model()
    model.d_optimizer = keras.optimizers.SGD()
    where = tmp_path if callback is ks.StepBackupAndRestore else 3
    with pytest.raises(
        ValueError,
        match=r"(optimizer='d_optimizer'\): on JAX .* the counter of this SGD is not among them\.)",
    ):
        fit(model, [callback(where, **D)])
    assert ks.global_step(model) == 0


@pytest.mark.skipif(FLAVOUR != "jax", reason="elsewhere model.optimizer is one of the two")
def test_a_rate_for_what_only_stands_for_both_optimizers_is_refused():
    gan = make_gan()
    with pytest.raises(ValueError, match="Both has no learning rate to set.*name the one that has"):
        train("in fit", gan, [ks.StepScheduledLR(lambda step: 0.1)])
    assert counters(gan) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_gan_that_was_killed_goes_on_with_both_counters(form, tmp_path, capsys):
    def script(directory, *more):
        gan, found = make_gan(), callbacks_of(directory / "logs")
        backup = ks.StepBackupAndRestore(directory / "backup", every=3, **G)
        train(form, gan, [*found.values(), backup, *more])
        return gan, found

    def kill(step, logs):
        raise Killed

    whole, of_whole = script(tmp_path / "whole")
    with pytest.raises(Killed):
        script(tmp_path / "killed", ks.OnStep(ks.AtSteps(25), kill, **D))
    gan, found = script(tmp_path / "killed")
    assert "going on from step 3" in capsys.readouterr().out
    assert counters(gan) == (8, 40)
    np.testing.assert_equal(state(gan), state(whole))
    assert found["g"].steps == [6]
    assert found["d"].steps == [20, 30, 40]
    assert found["odd"].steps == [35]
    for run, tag in [("g", "d_step"), ("g", "g_loss"), ("d", "g_step"), ("d", "learning_rate")]:
        of_run = [
            curve(tmp_path / name / "logs" / run / "train", tag) for name in ("killed", "whole")
        ]
        assert of_run[0] == of_run[1]
    again, found = script(tmp_path / "killed")
    assert (counters(again), found["all"].steps) == ((8, 40), [])


def test_a_step_that_returns_no_loss_is_told_what_it_has():
    """Keras's own tracker of that name, which nothing updates, is not among it."""
    with pytest.raises(ValueError, match=r"its metrics are: d_loss, g_loss\. Let it return"):
        train("in fit", make_gan(), [ks.StopOnNaN(2, **G)])


@pytest.mark.slow
def test_a_rollback_puts_both_counters_back():
    """Round 3 leaves the critic without finite weights; the loss shows it in the next ones."""
    gan, rounds, rng = make_gan(), Recorder(5, **D), np.random.default_rng(0)
    update_all = compiled(gan)
    callbacks = [ks.StopOnNaN(2, action="rollback", **G), ks.StopAtStep(6, **G), rounds]
    with ks.StepLoop(callbacks, model=gan, optimizer="g_optimizer") as the_loop:
        for number in the_loop.over(range(20)):
            losses = update_all(rng.uniform(size=(5, 64, 64)).astype("float32"))
            the_loop.log(**losses, loss=losses["d_loss"] + losses["g_loss"])
            if number == 2:
                weights = gan.critic.trainable_variables[0]
                weights.assign(np.nan * keras_to_numpy(weights))
    assert rounds.steps == [5, 10, 15, 15, 20, 25, 30]
    assert counters(gan) == (6, 30)
    assert all(np.isfinite(array).all() for array in state(gan))


@pytest.mark.skipif(IS_TF_KERAS, reason="the demo is written for Keras 3")
@pytest.mark.slow
@pytest.mark.timeout(900)  # on torch half a minute of an idle core
def test_the_demos_digits_are_digits(tmp_path):
    """The bar that docs/gan.md states, after half of the demo's rounds."""
    pytest.importorskip("sklearn", reason="scikit-learn is missing")
    from gan import make_callbacks, train
    from gan import make_gan as make_demo
    from gan_quality import judge, real_digits

    seen, held_out = real_digits()
    random = np.random.default_rng(0)
    drawn_apart = np.stack([random.permutation(pixel) for pixel in held_out.reshape(-1, 64).T], 1)
    gan = make_demo()
    for images in (random.uniform(size=(1000, 64)), drawn_apart, gan.generate(1000)):
        assert judge(images).distance > 4
        assert judge(images).rarest < 0.02
    assert judge(seen).distance < 0.2
    train(gan, make_callbacks(1500, tmp_path), in_loop=False)
    quality = judge(gan.generate(1000))
    assert quality.distance < 0.6, quality
    assert quality.confident > 0.5, quality
    assert quality.rarest > 0.02, quality
