"""StepHistory: what it keeps, and how little of it."""

import copy
from pathlib import Path

import numpy as np
import pytest
from curves import losses
from flavours import BATCH, arrays, fit, make_model

import keras_steps as ks
from keras_steps.history_points import HistoryPoints


def filled(max_points, steps, val_every=None):
    points = HistoryPoints(max_points)
    for step in steps:
        points.write(step, {"loss": float(step)})
        if val_every and step % val_every == 0:
            points.write(step, {"val_loss": float(step)})
    return points


def of(points, name):
    """The steps at which there is a value of that name."""
    pairs = zip(points.steps, points.scalars[name], strict=True)
    return [step for step, value in pairs if value is not None]


def test_steps_and_scalars_are_aligned():
    model, data = losses(range(1, 11))
    validation = (np.full((BATCH, 1), 9.0, "float32"), np.zeros((BATCH, 1), "float32"))
    history = ks.StepHistory(4)
    fit(model, [history], epochs=2, validation_data=validation, **data)
    assert history.steps == [4, 8, 10, 12, 16, 20]
    assert history.scalars["loss"] == [2.5, 6.5, None, 5.5, 4.5, 8.5]
    assert history.scalars["val_loss"] == [None, None, 9.0, None, None, 9.0]
    assert {len(values) for values in history.scalars.values()} == {6}


def test_a_second_fit_goes_on_and_a_fresh_model_begins_anew():
    model, history = make_model(), ks.StepHistory(5)
    for _ in range(2):
        fit(model, [history], batches=10)
    assert history.steps == [5, 10, 15, 20]
    ks.set_global_step(model, 10)
    fit(model, [history], batches=5, validation_data=arrays(1))
    assert history.steps == [5, 10, 15]
    fit(make_model(), [history], batches=5)
    assert history.steps == [5]
    assert "val_loss" not in history.scalars


def test_a_state_goes_to_another_history():
    history = ks.StepHistory(5)
    fit(make_model(), [history], batches=10)
    other = ks.StepHistory(5)
    other.set_state(copy.deepcopy(history.get_state()))
    model = make_model()
    ks.set_global_step(model, 10)
    fit(model, [other], batches=10)
    assert other.steps == [5, 10, 15, 20]
    assert history.steps == [5, 10]
    assert other.scalars["loss"][:2] == history.scalars["loss"]


@pytest.mark.parametrize(
    ("until", "expected"),
    [
        (10, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        (11, [1, 3, 5, 7, 9, 11]),
        (16, [1, 5, 9, 13, 16]),
        (21, [1, 5, 9, 13, 16, 17, 18, 19, 20, 21]),
        (22, [1, 9, 17, 22]),
    ],
)
def test_it_thins_out_evenly(until, expected):
    assert filled(10, range(1, until + 1)).steps == expected


def test_memory_is_bounded_over_a_million_steps():
    points = filled(1000, range(0, 1_000_001, 10), val_every=100)
    assert 250 <= len(points.steps) <= 1000
    assert points.steps[0] == 0
    assert points.steps[-1] == 1_000_000
    assert all(points.scalars["loss"][i] == step for i, step in enumerate(points.steps))
    gaps = np.diff(of(points, "loss"))
    assert gaps.max() <= 2**13
    validated = of(points, "val_loss")
    assert 0.05 <= len(validated) / len(points.steps) <= 0.2
    assert np.diff(validated).max() <= 2**15 + 100  # to the next one on its grid


def test_a_new_name_at_each_step_is_bounded_too():
    points = HistoryPoints(20)
    for step in range(1000):
        points.write(step, {f"name {step}": 1.0})
    assert len(points.steps) <= 20
    assert len(points.scalars) <= 20


def test_to_frame():
    history = ks.StepHistory(5)
    fit(make_model(), [history], batches=10, epochs=2, validation_data=arrays(1))
    frame = history.to_frame()
    assert list(frame.index) == history.steps == [5, 10, 15, 20]
    assert frame.index.name == "step"
    assert list(frame["val_loss"].notna()) == [False, True, False, True]
    assert list(frame["loss"]) == history.scalars["loss"]
    assert len(ks.StepHistory().to_frame()) == 0


def test_plot():
    history = ks.StepHistory(5)
    rate = ks.StepScheduledLR(lambda step: 0.1 / (1 + step))
    fit(make_model(), [history, rate], batches=10, epochs=2, validation_data=arrays(1))
    upper, lower = history.plot().axes
    drawn = {line.get_label(): list(line.get_xdata()) for line in upper.lines}
    assert drawn == {"loss": [5, 10, 15, 20], "val_loss": [10, 20]}
    (line,) = lower.lines
    assert list(line.get_xdata()) == [5, 10, 15, 20]
    np.testing.assert_allclose(line.get_ydata(), [0.02, 0.01, 0.1 / 15, 0.005], rtol=1e-6)
    assert (upper.get_ylabel(), lower.get_ylabel()) == ("loss", "learning rate")
    assert lower.get_xlabel() == "global step"
    assert [line.get_label() for line in history.plot("mae").axes[0].lines] == ["mae", "val_mae"]
    ks.StepHistory().plot()


def test_plot_of_a_name_that_is_not_there():
    history = ks.StepHistory(5)
    fit(make_model(), [history])
    with pytest.raises(ValueError, match="there is no 'los' in the reports. There is: loss, mae"):
        history.plot("los")


def test_plot_of_names_with_odd_characters(tmp_path):
    history = ks.StepHistory()
    curves = {"steps": [1], "scalars": {"$x^": [1.0], "val_$x^": [2.0]}}
    history.set_state(history.get_state() | curves)
    history.plot("$x^").savefig(tmp_path / "plot.png")  # "$x^" would be half a formula


def test_a_plot_is_a_picture_of_its_own():
    history = ks.StepHistory(5)
    fit(make_model(), [history])
    assert history.plot()._repr_png_().startswith(b"\x89PNG\r\n")


NOTEBOOK = """
import keras_steps as ks
history = ks.StepHistory()
curves = {"steps": [1, 2], "scalars": {"loss": [2.0, 1.0]}}
history.set_state(history.get_state() | curves)
history.plot()
"""


@pytest.mark.slow
def test_a_notebook_without_pyplot_shows_the_plot(tmp_path):
    """Matplotlib shows no plain Figure there before pyplot has made one."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient is missing")
    pytest.importorskip("ipykernel", reason="ipykernel is missing")
    nbformat = pytest.importorskip("nbformat.v4")
    from traitlets.config import Config

    notebook = nbformat.new_notebook(cells=[nbformat.new_code_cell(NOTEBOOK)])
    pipes = {"transport": "ipc", "ip": str(tmp_path / "kernel")}
    path = {"metadata": {"path": str(Path(ks.__file__).parents[1])}}
    client = nbclient.NotebookClient(
        notebook, config=Config(KernelManager=pipes), timeout=90, resources=path
    )
    client.execute()
    shown = [o for o in notebook.cells[0].outputs if o.output_type == "execute_result"]
    assert [sorted(output.data) for output in shown] == [["image/png", "text/plain"]]
