"""Which of several siblings a run writes to."""

import pytest

from keras_steps.table_writer import is_taken
from keras_steps.timelines import place_for


@pytest.mark.parametrize(
    ("there", "fresh", "going_on"),
    [
        ([], "m.csv", "m.csv"),
        (["m.csv"], "m_2.csv", "m.csv"),
        (["m.csv", "m_2.csv"], "m_3.csv", "m_2.csv"),
        (["m.csv", "m_2.csv", "m_10.csv"], "m_11.csv", "m_10.csv"),
        (["m_2.csv"], "m_3.csv", "m_2.csv"),
        (["m.csv", "m_02.csv", "m_1.csv", "m_x.csv", "m_3.txt", "mm_4.csv"], "m_2.csv", "m.csv"),
    ],
)
def test_siblings(tmp_path, there, fresh, going_on):
    for name in there:
        (tmp_path / name).write_text("something")
    for name, goes_on in ((fresh, False), (going_on, True)):
        place = place_for(tmp_path / "m.csv", goes_on=goes_on, is_taken=is_taken)
        assert place == tmp_path / name


def test_an_empty_file_is_free(tmp_path):
    (tmp_path / "m.csv").touch()
    place = place_for(tmp_path / "m.csv", goes_on=False, is_taken=is_taken)
    assert place == tmp_path / "m.csv"
