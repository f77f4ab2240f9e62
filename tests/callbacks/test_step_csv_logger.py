"""StepCSVLogger: its rows, as pandas reads them."""

import math
import subprocess
import sys

import numpy as np
import pandas
import pytest
from curves import contents, losses, warnings_of_nan
from flavours import BATCH, arrays, fit, make_model

import keras_steps as ks
from keras_steps.table_writer import TableWriter

SUFFIXES = ["csv", "jsonl"]


def read(path):
    return pandas.read_csv(path) if path.suffix == ".csv" else pandas.read_json(path, lines=True)


def model_at(step):
    model = make_model()
    ks.set_global_step(model, step)
    return model


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_one_row_a_step_shared_by_report_and_evaluation(tmp_path, suffix):
    path = tmp_path / f"new/metrics.{suffix}"
    model, data = losses(range(1, 11))
    validation = (np.full((BATCH, 1), 9.0, "float32"), np.zeros((BATCH, 1), "float32"))
    fit(model, [ks.StepCSVLogger(path, 4)], epochs=2, validation_data=validation, **data)
    table = read(path)
    assert table.columns[0] == "step"
    assert list(table["step"]) == [4, 8, 10, 12, 16, 20]
    nan = math.nan
    np.testing.assert_equal(list(table["loss"]), [2.5, 6.5, nan, (9 + 10 + 1 + 2) / 4, 4.5, 8.5])
    np.testing.assert_equal(list(table["val_loss"]), [nan, nan, 9.0, nan, nan, 9.0])


def test_the_text_of_a_csv(tmp_path):
    writer = TableWriter(tmp_path / "m.csv", 0)
    writer.write(5, {"loss": 0.1, "a, b": 2.0})
    writer.write(10, {"loss": math.nan})
    writer.write(10, {"val_loss": 1.5})
    writer.write(10, {"a, b": 1e-20})
    writer.write(15, {"loss": math.inf})
    assert (tmp_path / "m.csv").read_text() == (
        'step,loss,"a, b",val_loss\n5,0.1,2.0,\n10,nan,1e-20,1.5\n15,inf,,\n'
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.csv"]


def test_the_text_of_json_lines(tmp_path):
    writer = TableWriter(tmp_path / "m.jsonl", 0)
    writer.write(5, {"loss": 0.1})
    writer.write(10, {"λ": 2.0})
    writer.write(10, {"loss": 1.0})
    assert (tmp_path / "m.jsonl").read_text(encoding="utf-8") == (
        '{"step": 5, "loss": 0.1}\n{"step": 10, "λ": 2.0, "loss": 1.0}\n'
    )


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_nan_is_not_lost(tmp_path, suffix):
    path = tmp_path / f"m.{suffix}"
    model, data = losses([1, math.nan, 3])
    with warnings_of_nan():
        fit(model, [ks.StepCSVLogger(path, 1)], **data)
    np.testing.assert_equal(list(read(path)["loss"])[:2], [1.0, math.nan])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_c01_a_run_that_goes_on_appends_and_drops_what_lies_past_its_step(tmp_path, suffix):
    path = tmp_path / f"m.{suffix}"
    fit(make_model(), [ks.StepCSVLogger(path, 10)], batches=63)
    first = read(path)
    validation = arrays(1)
    fit(model_at(40), [ks.StepCSVLogger(path, 10)], batches=30, validation_data=validation)
    table = read(path)
    assert list(table["step"]) == [10, 20, 30, 40, 50, 60, 70]
    pandas.testing.assert_frame_equal(table[first.columns][:4], first[:4])
    assert list(table["val_loss"].notna()) == [False] * 6 + [True]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_row_that_a_kill_has_cut_short_is_dropped(tmp_path, suffix):
    """Wherever it was cut: in CSV, half a number looks like a number."""
    path = tmp_path / f"m.{suffix}"
    writer = TableWriter(path, 0)
    writer.write(10, {"λ": 0.125, "mae": 0.25})
    first = len(path.read_bytes())
    writer.write(20, {"λ": 0.125, "mae": 0.25})
    whole = path.read_bytes()
    for size in range(first, len(whole) + 1):
        path.write_bytes(whole[:size])
        TableWriter(path, 20).write(30, {"λ": 0.125, "mae": 0.25})
        table = read(path)
        assert list(table["step"]) == ([10, 30] if size < len(whole) else [10, 20, 30])
        assert (table["mae"] == 0.25).all()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_table_killed_at_any_moment_goes_on(tmp_path, suffix):
    path = tmp_path / f"m.{suffix}"
    command = [sys.executable, "-c", WRITES, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writes:
        try:
            last = [int(writes.stdout.readline()) for _ in range(40)][-1]
        finally:
            writes.kill()
    TableWriter(path, last).write(last + 1, {"loss": 0.5})
    table = read(path)
    assert list(table["step"]) == list(range(1, last + 2))
    assert (table["loss"] == 0.5).all()


WRITES = """
import sys
from pathlib import Path
from keras_steps.table_writer import TableWriter
writer, step = TableWriter(Path(sys.argv[1]), 0), 0
while True:
    step += 1
    writer.write(step, {"loss": 0.5, f"name {step // 9}": 1.0})
    print(step, flush=True)
"""


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_names_with_odd_characters(tmp_path, suffix):
    names = [
        "a b",
        "λ/ß",
        'say "hi", all',
        "new\nline",
        "carriage\rreturn",
        "tab\t",
        "#",
        "'",
        "🙂",
    ]
    path = tmp_path / f"m.{suffix}"
    TableWriter(path, 0).write(5, dict.fromkeys(names, 1.0))
    TableWriter(path, 5).write(10, dict.fromkeys(names, 2.0))
    table = read(path)
    assert list(table.columns) == ["step", *names]
    assert list(table["carriage\rreturn"]) == [1.0, 2.0]


def test_a_disk_that_is_full_leaves_no_half_file(tmp_path, monkeypatch):
    def full(source, target):
        raise OSError(28, "No space left on device")

    writer = TableWriter(tmp_path / "m.csv", 0)
    writer.write(5, {"loss": 1.0})
    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space left"):
        writer.write(10, {"loss": 2.0, "val_loss": 3.0})
    assert [place.name for place in tmp_path.iterdir()] == ["m.csv"]
    assert list(read(tmp_path / "m.csv")["step"]) == [5]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_c37_a_fresh_run_leaves_the_earlier_rows_alone(tmp_path, suffix, capsys):
    path, before = tmp_path / f"m.{suffix}", {}
    for name in (f"m.{suffix}", f"m_2.{suffix}", f"m_3.{suffix}"):
        capsys.readouterr()
        fit(make_model(), [ks.StepCSVLogger(path, 5)], batches=10)
        line = f"{path} holds an earlier run: this one writes to {tmp_path / name}\n"
        assert capsys.readouterr().out == ("" if name == path.name else line)
        after = contents(tmp_path)
        assert {old: after[old] for old in before} == before
        assert list(read(tmp_path / name)["step"]) == [5, 10]
        before = after
    fit(model_at(10), [ks.StepCSVLogger(path, 5)], batches=5)
    assert list(read(tmp_path / f"m_3.{suffix}")["step"]) == [5, 10, 15]
    assert list(read(path)["step"]) == [5, 10]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_second_fit_of_one_callback_goes_on(tmp_path, suffix):
    path = tmp_path / f"m.{suffix}"
    model, logger = make_model(), ks.StepCSVLogger(path, 5)
    for _ in range(2):
        fit(model, [logger], batches=10)
    assert list(read(path)["step"]) == [5, 10, 15, 20]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("m.csv", "date,price\n1,2\n"),
        ("m.csv", "without a line's end"),
        ("m.csv", "step,größe\n1,2\n"),
        ("m.csv", "step,comment\n1,hello\n"),
        ("m.csv", "step,loss\n1,2\n1.5,2\n"),
        ("m.csv", "step,loss\n1,2\n3\n"),
        ("m.csv", "step,loss\n1,2\n\n"),
        ("m.csv", "step,loss\n2,2\n1,2\n"),
        ("m.csv", "step,loss,loss\n1,2,3\n"),
        ("m.jsonl", '{"a": 1}\n'),
        ("m.jsonl", "x\n"),
        ("m.jsonl", "x"),
        ("m.jsonl", '{"step": 1}\n[]\n'),
        ("m.jsonl", '{"step": 1}\n\n'),
        ("m.jsonl", '{"step": 1, "comment": "hello"}\n'),
        ("m.jsonl", '{"step": 1}\n{"step": 1}\n'),
    ],
)
def test_someone_elses_file_is_left_alone(tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match="is not what StepCSVLogger writes"):
        fit(model_at(10), [ks.StepCSVLogger(tmp_path / name, 5)])
    assert (tmp_path / name).read_text(encoding="latin-1") == text
    assert [place.name for place in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["m.json", "m.csv.gz", "m.XLSX", "m.tsv"])
def test_a_name_that_promises_another_format(name):
    with pytest.raises(ValueError, match=rf"received '{name}'.* End it in \.csv or \.jsonl\."):
        ks.StepCSVLogger(name)


@pytest.mark.parametrize("other", ["m.csv", "sub/../m.csv", "m_2.csv"])
def test_two_to_one_file_are_refused(tmp_path, other):
    (tmp_path / "sub").mkdir()
    loggers = [ks.StepCSVLogger(tmp_path / name, 5) for name in ("m.csv", other)]
    with pytest.raises(ValueError, match="two callbacks of one fit write to the same pl"):
        fit(make_model(), loggers)


def test_a_path_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="StepCSVLogger: cannot write to the directory .*file"):
        fit(make_model(), [ks.StepCSVLogger(tmp_path / "file/m.csv")])
    with pytest.raises(IsADirectoryError, match="is a directory"):
        fit(make_model(), [ks.StepCSVLogger(tmp_path)])


def test_a_scalar_of_the_name_of_the_first_column(tmp_path):
    with pytest.raises(ValueError, match="'step' is the first column"):
        TableWriter(tmp_path / "m.csv", 0).write(1, {"step": 1.0})
