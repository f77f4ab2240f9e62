"""LogEveryN: which lines come when, what they say, and where they go."""

import logging
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from flavours import BATCH, FLAVOUR, IS_TF_KERAS, Ticking, arrays, fit, keras, make_model

import keras_steps as ks
from keras_steps import LogEveryN
from keras_steps.extra import with_extra
from keras_steps.testing import FakeClock


def losses(values):
    """A model, and data whose losses, batch by batch, are these, whatever it has learned."""
    x = np.repeat(np.array(values, "float32"), BATCH)[:, None]
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
    model = keras.Sequential([keras.layers.Input((1,)), layer])
    model.compile(keras.optimizers.SGD(0.0), "mae", metrics=["mse"])
    return model, {"x": x, "y": np.zeros_like(x), "batch_size": BATCH, "shuffle": False}


def lines(capsys, callback, values=range(1, 13), **fit_args):
    """The lines that a fit on these losses prints."""
    model, data = losses(values)
    capsys.readouterr()
    fit(model, [callback] if isinstance(callback, LogEveryN) else callback, **(data | fit_args))
    return capsys.readouterr().out.splitlines()


# ---------------------------------------------------------------- when

SHORT = "{step}"


@pytest.mark.parametrize(
    ("callback", "batches", "expected"),
    [
        (LogEveryN(message=SHORT), 250, [1, 101, 201, 250]),
        (LogEveryN(100, message=SHORT), 201, [1, 101, 201]),
        (LogEveryN(5, message=SHORT), 12, [1, 6, 11, 12]),
        (LogEveryN(5, start=0, message=SHORT), 12, [5, 10, 12]),
        (LogEveryN(5, start=0, message=SHORT), 10, [5, 10]),
        (LogEveryN(5, start=3, message=SHORT), 12, [3, 8, 12]),
        (LogEveryN(1, message=SHORT), 4, [1, 2, 3, 4]),
        (LogEveryN(np.int64(4), start=np.int64(2), message=SHORT), 7, [2, 6, 7]),
        (LogEveryN(100, start=50, message=SHORT), 12, [12]),
        (LogEveryN(ks.AtSteps(2, 7), message=SHORT), 12, [2, 7, 12]),
        (LogEveryN(ks.EverySteps(5), message=SHORT), 12, [5, 10, 12]),
        (LogEveryN(ks.GeometricSteps() | ks.AtSteps(7), message=SHORT), 9, [1, 2, 4, 7, 8, 9]),
    ],
)
def test_lines_come_at_the_grid_and_at_the_end(callback, batches, expected, capsys):
    found = lines(capsys, callback, [1.0] * batches)
    assert [int(line) for line in found] == expected


def test_over_epochs_and_in_a_second_fit_the_grid_goes_on(capsys):
    model, data = losses([1.0] * 4)
    capsys.readouterr()
    callback = LogEveryN(3, message=SHORT)
    fit(model, [callback], epochs=2, **data)
    fit(model, [callback], **data)
    assert capsys.readouterr().out.split() == ["1", "4", "7", "8", "10", "12"]


def test_the_end_is_where_stop_at_step_ends_the_run(capsys):
    callbacks = [LogEveryN(5, message=SHORT), ks.StopAtStep(8)]
    assert lines(capsys, callbacks) == ["1", "6", "8"]


def test_a_run_without_a_step_prints_no_report(capsys):
    model, data = losses([1.0] * 4)
    fit(model, [], **data)
    capsys.readouterr()
    fit(model, [LogEveryN(1), ks.StopAtStep(4)], **data)
    assert capsys.readouterr().out == "already at step 4\n"


@pytest.mark.skipif(FLAVOUR == "torch", reason="torch refuses steps_per_execution > 1")
@pytest.mark.filterwarnings("ignore:LogEveryN. its interval of 5 steps is no multiple")
def test_with_several_steps_an_execution_a_line_says_where_it_is(capsys):
    model = make_model(steps_per_execution=4)
    fit(model, [LogEveryN(5, message=SHORT)], batches=20)
    assert capsys.readouterr().out.split() == ["4", "8", "12", "16", "20"]


def test_a_time_trigger(capsys):
    with FakeClock() as clock:
        callbacks = [LogEveryN(ks.EverySecs(2), message=SHORT), Ticking(clock, 0.5)]
        found = lines(capsys, callbacks, [1.0] * 10)
    assert found == ["4", "8", "10"]


# ---------------------------------------------------------------- what


def test_the_message_is_a_format_string_over_step_and_metrics(capsys):
    callback = LogEveryN(message="np.mean(loss_evl)= {loss:.6f} at step {step}")
    found = lines(capsys, callback, [1.39697])
    assert found == ["np.mean(loss_evl)= 1.396970 at step 1"]


def test_c13_values_are_means_over_the_window(capsys):
    callback = LogEveryN(5, start=0, message="{step} {loss} {mse}")
    assert lines(capsys, callback, range(1, 11)) == ["5 3.0 11.0", "10 8.0 66.0"]


def test_the_window_of_the_last_line_begins_at_the_line_before(capsys):
    found = lines(capsys, LogEveryN(5, message="{step} {loss}"))
    assert found == ["1 1.0", "6 4.0", "11 9.0", "12 12.0"]


@pytest.mark.parametrize("message", ["plain", "{{}} 100%", "{step:04d} {loss:>8.3f} {loss!r}"])
def test_any_format_string_will_do(message, capsys):
    found = lines(capsys, LogEveryN(message=message), [1.0])
    assert found == [message.format(step=1, loss=1.0)]


def sorted_on_jax(line):
    """On JAX Keras's own logs are in the order of the alphabet, so that is no test of ours."""
    return sorted(line.split()) if FLAVOUR == "jax" else line


def test_the_default_line_with_the_end_the_rate_and_the_time_that_is_left(capsys):
    """The first execution compiles: its rate says nothing, so it isn't shown."""
    with FakeClock() as clock:
        found = lines(capsys, [LogEveryN(5), Ticking(clock, 0.5)], epochs=2)
    expected = [
        "step 1/24: loss=1.0000 mse=1.0000 learning_rate=0",
        "step 6/24: loss=4.0000 mse=18.0000 learning_rate=0 2.0 steps/s eta 0:00:09",
        "step 11/24: loss=9.0000 mse=83.0000 learning_rate=0 2.0 steps/s eta 0:00:06",
        "step 16/24: loss=4.4000 mse=34.8000 learning_rate=0 2.0 steps/s eta 0:00:04",
        "step 21/24: loss=7.0000 mse=51.0000 learning_rate=0 2.0 steps/s eta 0:00:02",
        "step 24/24: loss=11.0000 mse=121.6667 learning_rate=0 2.0 steps/s",
    ]
    assert [sorted_on_jax(line) for line in found] == [sorted_on_jax(line) for line in expected]


NUMBER = r"\d+\.\d{4}"
DEFAULT = rf"(?=.* loss={NUMBER})(?=.* mae={NUMBER})( \w+=\S+){{2}} learning_rate=0\.01"
RATE = r" \d+\.\d steps/s"


def test_the_default_line_by_the_real_clock(capsys):
    fit(make_model(), [LogEveryN(), ks.StopAtStep(600)], batches=300, epochs=3)
    found = capsys.readouterr().out.splitlines()
    assert re.fullmatch(rf"step 1/600:{DEFAULT}", found[0])
    for step, line in zip((101, 201, 301, 401, 501), found[1:-1], strict=True):
        assert re.fullmatch(rf"step {step}/600:{DEFAULT}{RATE} eta \d:\d\d:\d\d", line)
    assert re.fullmatch(rf"step 600/600:{DEFAULT}{RATE}", found[-1])


def endless():
    x, y = arrays(1)
    while True:
        yield x, y


def test_on_endless_data_the_end_is_that_of_stop_at_step(capsys):
    callbacks = [LogEveryN(8, start=0, metrics=["loss"]), ks.StopAtStep(20)]
    fit(make_model(), callbacks, x=endless())
    found = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in found] == ["8/20:", "16/20:", "20/20:"]
    assert [" eta " in line for line in found] == [True, True, False]


@pytest.mark.filterwarnings("ignore:.*ran out of data")
def test_where_the_end_is_not_known_the_line_does_not_guess(capsys):
    x, y = arrays(1)
    fit(make_model(), [LogEveryN(5, start=0, metrics=["loss"])], x=((x, y) for _ in range(12)))
    found = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in found] == ["5:", "10:", "12:"]
    assert all(re.fullmatch(rf"step \d+: loss={NUMBER}{RATE}", line) for line in found)


def test_the_learning_rate_is_shown_by_its_significant_digits(capsys):
    """As are values that four decimals would show as nearly nothing."""
    model, data = losses([0.000123456])
    schedule = ks.StepScheduledLR(lambda step: 0.000976543)
    fit(model, [LogEveryN(metrics=["loss", "mse", "learning_rate"]), schedule], **data)
    assert capsys.readouterr().out == (
        "step 1/1: loss=0.000123 mse=1.52e-08 learning_rate=0.000977\n"
    )


def test_values_of_step_scheduled_are_shown(capsys):
    def strength(value):
        pass

    found = lines(
        capsys, [LogEveryN(metrics=["strength"]), ks.StepScheduled(strength, lambda step: 0.25)]
    )
    assert found[0] == "step 1/12: strength=0.2500"


# ---------------------------------------------------------------- metrics


def test_metrics_chooses_names_and_their_order(capsys):
    found = lines(capsys, LogEveryN(metrics=["mse", "loss"]), [2.0])
    assert found == ["step 1/1: mse=4.0000 loss=2.0000"]
    found = lines(capsys, LogEveryN(metrics=("learning_rate", "loss")), [2.0])
    assert found == ["step 1/1: learning_rate=0 loss=2.0000"]
    found = lines(capsys, LogEveryN(metrics=iter(["loss"])), [2.0])
    assert found == ["step 1/1: loss=2.0000"]


def test_an_unknown_metric_raises_at_the_first_line_and_lists_what_there_is():
    model, data = losses([1.0] * 3)
    with pytest.raises(ValueError) as raised:
        fit(model, [LogEveryN(2, start=0, metrics=["loss", "acuracy"])], **data)
    text = str(raised.value)
    assert text.startswith("LogEveryN(metrics): there is no 'acuracy' in the logs. There is: ")
    assert all(name in text for name in ("loss", "mse", "learning_rate", "steps_per_second"))


def test_an_unknown_name_in_the_message_raises_at_the_first_line_and_lists_what_there_is():
    model, data = losses([1.0] * 3)
    with pytest.raises(ValueError, match=r"\{acc\}'\): there is no 'acc' in the logs.*step,.*loss"):
        fit(model, [LogEveryN(message="{acc}")], **data)


def test_validation_is_shown_at_the_lines_that_have_one(capsys):
    model, data = losses([1.0] * 4)
    ten = np.full((BATCH, 1), 10.0, "float32")
    callback = LogEveryN(2, start=0, metrics=["val_loss", "loss"])
    fit(model, [callback], epochs=2, validation_data=(ten, 0 * ten), **data)
    found = [line.partition(":")[2].split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert ["val_loss=10.0000" in words for words in found] == [False, True, False, True]
    assert all("loss=1.0000" in words for words in found)


# ---------------------------------------------------------------- logger


def test_a_logger_gets_the_lines_at_info_and_nothing_is_printed(capsys, caplog):
    logger = logging.getLogger("mine.train")
    with caplog.at_level(logging.INFO, logger="mine.train"):
        printed = lines(capsys, LogEveryN(5, message="100%s {step}", logger=logger))
    assert printed == []
    records = [r for r in caplog.records if r.name == "mine.train"]
    assert [r.getMessage() for r in records] == ["100%s 1", "100%s 6", "100%s 11", "100%s 12"]
    assert {r.levelno for r in records} == {logging.INFO}


def test_a_logger_adapter_will_do(capsys, caplog):
    adapter = logging.LoggerAdapter(logging.getLogger("mine.adapted"), {})
    with caplog.at_level(logging.INFO, logger="mine.adapted"):
        assert lines(capsys, LogEveryN(message=SHORT, logger=adapter), [1.0]) == []
    assert [r.getMessage() for r in caplog.records if r.name == "mine.adapted"] == ["1"]


# ---------------------------------------------------------------- extra


def test_extra_adds_to_the_report_and_is_called_when_a_line_is_due_with_the_models_values(capsys):
    seen = []

    def extra(model):
        seen.append((ks.global_step(model), float(model.get_weights()[0][0, 0])))
        return {"weight": seen[-1][1], "count": np.int64(len(seen)), "half": np.float32(0.5)}

    callback = LogEveryN(5, message="{step} {weight} {count} {half}", extra=extra)
    found = lines(capsys, callback)
    assert seen == [(1, 1.0), (6, 1.0), (11, 1.0), (12, 1.0)]
    assert found == ["1 1.0 1.0 0.5", "6 1.0 2.0 0.5", "11 1.0 3.0 0.5", "12 1.0 4.0 0.5"]


def test_extra_is_shown_in_the_default_line(capsys):
    callback = LogEveryN(metrics=["mine", "loss"], extra=lambda model: {"mine": 2})
    assert lines(capsys, callback, [1.0]) == ["step 1/1: mine=2.0000 loss=1.0000"]


@pytest.mark.parametrize(
    ("returned", "error", "message"),
    [
        (
            {"loss": 1.0},
            ValueError,
            "^extra.model. returned 'loss', which is in the report",
        ),
        ({"learning_rate": 1.0}, ValueError, "returned 'learning_rate', which is in the report"),
        ({"a": "text"}, TypeError, "must return scalars; 'a' is 'text'"),
        ({"b": 1.0, "a": np.zeros(2)}, TypeError, "must return scalars; 'a' is array"),
        ({"a": None}, TypeError, "must return scalars; 'a' is None"),
        (None, TypeError, "must return a dict of scalars; it returned None"),
        (3.0, TypeError, r"must return a dict of scalars; it returned 3\.0"),
        ([("a", 1.0)], TypeError, "must return a dict of scalars; it returned"),
    ],
    ids=str,
)
def test_what_extra_must_not_return(returned, error, message):
    report = {"loss": 1.0, "learning_rate": 0.5}
    with pytest.raises(error, match=message):
        with_extra(report, lambda model: returned, None)
    assert report == {"loss": 1.0, "learning_rate": 0.5}


def test_what_extra_must_not_return_ends_the_fit():
    model, data = losses([1.0] * 3)
    with pytest.raises(ValueError, match="returned 'mse', which is in the report already"):
        fit(model, [LogEveryN(2, start=0, extra=lambda model: {"mse": 1.0})], **data)


def test_an_error_of_extra_is_the_users_to_see():
    def extra(model):
        raise KeyError("mine")

    model, data = losses([1.0] * 3)
    with pytest.raises(KeyError, match="mine"):
        fit(model, [LogEveryN(extra=extra)], **data)


# ---------------------------------------------------------------- construction

NO_FORMAT = r"is no format string over names and numbers: .*Write it as in '\{loss:\.4f\} at step"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"message": "{"}, ValueError, rf"^LogEveryN\(message='\{{'\) {NO_FORMAT}"),
        ({"message": "}"}, ValueError, NO_FORMAT),
        ({"message": "{loss"}, ValueError, NO_FORMAT),
        ({"message": "{}"}, ValueError, NO_FORMAT),
        ({"message": "{0}"}, ValueError, NO_FORMAT),
        ({"message": "{loss:q}"}, ValueError, NO_FORMAT),
        ({"message": "{loss:d}"}, ValueError, NO_FORMAT),
        ({"message": "{loss!x}"}, ValueError, NO_FORMAT),
        ({"message": "{loss[0]}"}, ValueError, NO_FORMAT),
        ({"message": "{loss.name}"}, ValueError, NO_FORMAT),
        ({"message": 3}, TypeError, r"^LogEveryN\(message\) must be a format string; received 3"),
        ({"message": b"x"}, TypeError, "must be a format string; received b'x'"),
        ({"n": 0}, ValueError, r"^LogEveryN\(n\) must be at least 1; received 0"),
        ({"n": -5}, ValueError, "must be at least 1; received -5"),
        ({"n": 1.5}, TypeError, r"must be an integer; received 1\.5"),
        ({"n": True}, TypeError, "number of steps or a trigger .*received True"),
        ({"n": None}, TypeError, "number of steps or a trigger .*received None"),
        ({"n": "100"}, TypeError, "number of steps or a trigger .*received '100'"),
        ({"start": -1}, ValueError, r"^LogEveryN\(start\) must be at least 0; received -1"),
        ({"start": True}, TypeError, r"\(start\) must be an integer; received True"),
        ({"start": 1.0}, TypeError, r"\(start\) must be an integer; received 1\.0"),
        ({"start": None}, TypeError, r"\(start\) must be an integer; received None"),
        ({"metrics": "loss"}, TypeError, r"received the string 'loss'. Write metrics=\['loss'\]"),
        ({"metrics": [3]}, TypeError, r"\(metrics\) must be a list of names; received \[3\]"),
        ({"metrics": 3}, TypeError, r"^LogEveryN\(metrics\) must be a list of names; received 3"),
        ({"logger": print}, TypeError, r"\(logger\) must be a logging.Logger; received <built-in"),
        ({"logger": "root"}, TypeError, r"\(logger\) must be a logging.Logger; received 'root'"),
        ({"extra": {"a": 1}}, TypeError, r"\(extra\) must be a function .* received \{'a': 1\}"),
        ({"optimizer": 3}, TypeError, r"^LogEveryN\(optimizer\) must be the name .* received 3"),
    ],
    ids=str,
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        LogEveryN(**arguments)


@pytest.mark.parametrize(
    "trigger", [ks.EverySteps(5), ks.AtSteps(3), ks.EverySecs(1), ks.EverySteps(5) | ks.AtSteps(3)]
)
@pytest.mark.parametrize("start", [0, 3])
def test_start_goes_with_a_number_of_steps_not_with_a_trigger(trigger, start):
    message = rf"^LogEveryN\(start={start}\) goes with a number of steps; a trigger has its own"
    with pytest.raises(ValueError, match=message):
        LogEveryN(trigger, start=start)


# ---------------------------------------------------------------- beside the progress bar


def on_screen(stream):
    """What a terminal, wide enough, shows after it was sent `stream`: a list of its rows."""
    rows, column = [""], 0
    for part in re.findall(r"\x1b\[[\d;]*[A-Za-z]|[\s\S]", stream):
        row = rows[-1]
        if part == "\n":
            rows.append("")
            column = 0
        elif part == "\r":
            column = 0
        elif part == "\b":
            column = max(0, column - 1)
        elif part == "\x1b[K":
            rows[-1] = row[:column]
        elif part.startswith("\x1b["):
            assert part.endswith("m"), part  # colours
        else:
            rows[-1] = row[:column] + part + row[column + 1 :]
            column += 1
    return [row.rstrip() for row in rows]


def test_on_screen():
    """The measuring instrument measures."""
    assert on_screen("abc\b\bX\n\rdef\r\x1b[KZ\n") == ["aXc", "Z", ""]
    assert on_screen("\x1b[1mab\x1b[0m\rc\b\b\bd") == ["db"]


MESSAGE = "line {step} of ours"
BAR = r"\s*\d+/10 [━=>.\[\]]+ .* - loss: \d+\.\d+ .*"
LAST_BAR = r"10/10 [━=\[\]]+ .*s/(step|epoch) - loss: \d+\.\d+ - mae: \d+\.\d+(?P<more>.*)"


def as_kinds(rows):
    """Rows with the bars, whose text is not ours to say, as the word "bar"."""
    return ["bar" if re.fullmatch(BAR, row) else row.removesuffix(" of ours") for row in rows]


@pytest.fixture
def redrawn(monkeypatch):
    """The bar is drawn with each batch, not each 50 ms."""
    init = keras.utils.Progbar.__init__

    def at_once(self, *args, **kwargs):
        init(self, *args, **kwargs)
        self.interval = 0

    monkeypatch.setattr(keras.utils.Progbar, "__init__", at_once)


@pytest.mark.parametrize("validation", [False, True], ids=["", "with validation"])
def test_c26_beside_a_bar_every_line_is_whole_and_no_blank_line_is_added(
    redrawn, validation, capsys
):
    model = make_model()
    capsys.readouterr()
    callback = LogEveryN(3, message=MESSAGE)
    validation_data = arrays(2) if validation else None
    fit(model, [callback], epochs=2, verbose=1, validation_data=validation_data)
    out = capsys.readouterr().out
    rows = on_screen(out)
    first = ["line 1", "bar", "line 4", "bar", "line 7", "bar", "line 10", "bar"]
    second = ["bar", "line 13", "bar", "line 16", "bar", "line 19", "bar", "line 20", ""]
    assert as_kinds(rows) == ["Epoch 1/2", *first, "Epoch 2/2", *second]
    for row in (rows[8], rows[-3]):
        assert ("val_loss" in re.fullmatch(LAST_BAR, row)["more"]) is validation
    whole = [row for row in out.split("\n") if "ours" in row]
    assert whole == [row for row in rows if "ours" in row]


def test_c26_a_line_at_each_step(redrawn, capsys):
    fit(make_model(), [LogEveryN(1, message=MESSAGE)], batches=100, verbose=1)
    rows = capsys.readouterr().out.split("\n")
    assert [row for row in rows if "ours" in row] == [f"line {n + 1} of ours" for n in range(100)]


def test_c26_the_bars_of_epochs_without_a_line_are_left_alone(capsys):
    """And nothing is in the way of the next line."""
    model = make_model()
    callback = LogEveryN(100, message=MESSAGE)
    capsys.readouterr()
    fit(model, [callback], epochs=2, verbose=1)
    rows = on_screen(capsys.readouterr().out)
    assert as_kinds(rows) == ["Epoch 1/2", "line 1", "bar", "Epoch 2/2", "bar", "line 20", ""]
    assert all(re.fullmatch(LAST_BAR, rows[n]) for n in (2, 4))


def test_c26_with_verbose_2_there_are_no_other_bytes_than_keras_and_the_lines(capsys):
    model = make_model()
    capsys.readouterr()
    fit(model, [LogEveryN(3, message=MESSAGE)], epochs=2, verbose=2)
    rows = capsys.readouterr().out.split("\n")
    epoch_ends = [n for n, row in enumerate(rows) if re.fullmatch(r"10/10 - .*", row)]
    assert len(epoch_ends) == 2
    first = [f"line {step} of ours" for step in (1, 4, 7, 10)]
    second = [f"line {step} of ours" for step in (13, 16, 19, 20)]
    others = [row for n, row in enumerate(rows) if n not in epoch_ends]
    assert others == ["Epoch 1/2", *first, "Epoch 2/2", *second, ""]


SCRIPT = """
import sys
from flavours import fit, keras, make_model
from keras_steps import LogEveryN

init = keras.utils.Progbar.__init__

def at_once(self, *args, **kwargs):
    init(self, *args, **kwargs)
    self.interval = 0

keras.utils.Progbar.__init__ = at_once
assert sys.stdout.isatty()
print("begin")
fit(make_model(), [LogEveryN(3, message="line {step} of ours")], epochs=2, verbose=1)
"""


def read_terminal(command, seconds, **popen_args):
    """What `command` sends to a terminal of its own until it ends."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, **popen_args
    )
    os.close(theirs)
    received, deadline = b"", time.monotonic() + seconds
    try:
        while select.select([ours], [], [], max(0.0, deadline - time.monotonic()))[0]:
            try:
                part = os.read(ours, 65536)
            except OSError:  # Linux's way to say that the other side has closed
                break
            if not part:
                break
            received += part
        return process.wait(timeout=max(0.0, deadline - time.monotonic())), received.decode()
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_c26_on_a_terminal_a_line_takes_the_bars_place():
    tests = Path(__file__).parents[1]
    path = os.pathsep.join([str(tests), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "KERAS_STEPS_TEST_FLAVOUR": ""}
    if IS_TF_KERAS:
        environment["KERAS_STEPS_TEST_FLAVOUR"] = "tf_keras"
    code, stream = read_terminal(
        [sys.executable, "-c", SCRIPT], seconds=90, env=environment, cwd=tests.parent
    )
    assert code == 0
    rows = on_screen(stream.partition("begin\r\n")[2].replace("\r\n", "\n"))
    first = ["line 1", "line 4", "line 7", "line 10", "bar"]
    second = ["line 13", "line 16", "line 19", "bar", "line 20", ""]
    assert as_kinds(rows) == ["Epoch 1/2", *first, "Epoch 2/2", *second]
    assert all(re.fullmatch(LAST_BAR, rows[n]) for n in (5, 10))
