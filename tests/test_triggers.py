"""Triggers: their grids, what crosses them, and what they refuse."""

import copy
import math
import pickle
import re
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_steps import AtSteps, EverySecs, EverySteps, GeometricSteps, StepCallback, Trigger
from keras_steps.triggers import as_trigger

GRIDS = [
    (EverySteps(1), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
    (EverySteps(5), [5, 10, 15, 20]),
    (EverySteps(5, start=0), [5, 10, 15, 20]),
    (EverySteps(5, start=1), [1, 6, 11, 16]),
    (EverySteps(5, start=5), [5, 10, 15, 20]),
    (EverySteps(5, start=12), [12, 17, 22]),
    (EverySteps(100, start=1), [1, 101, 201]),
    (EverySteps(n=7, start=3), [3, 10, 17]),
    (EverySteps(np.int64(5), start=np.int32(2)), [2, 7, 12]),
    (EverySteps(np.uint8(200)), [200, 400, 600]),
    (AtSteps(3), [3]),
    (AtSteps(100, 1, 10), [1, 10, 100]),
    (AtSteps(2, 2, 5, 2), [2, 5]),
    (AtSteps(np.int64(4), np.uint16(6)), [4, 6]),
    (GeometricSteps(), [1, 2, 4, 8, 16, 32]),
    (GeometricSteps(3), [3, 6, 12, 24]),
    (GeometricSteps(np.int32(3), np.float32(2)), [3, 6, 12, 24]),
    (GeometricSteps(1, 10), [1, 10, 100, 1000, 10_000, 100_000, 1_000_000]),
    (GeometricSteps(factor=1.5), [1, 2, 3, 4, 6, 8, 12, 18, 26]),
    (GeometricSteps(10, 1.1), [10, 11, 13, 14, 15, 17, 18, 20, 22, 24]),
    (GeometricSteps(50, 1.1), [50, 55, 61, 67, 74, 81]),  # 50 * 1.1 is 55.00000000000001
    (GeometricSteps(10_000, 1.1), [10_000, 11_000, 12_100, 13_310, 14_641, 16_106]),
    (GeometricSteps(factor=1.1), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
    (GeometricSteps(5, 1.001), [5, 6, 7, 8, 9, 10]),
    (EverySteps(10) | AtSteps(1, 3), [1, 3, 10, 20, 30]),
    (AtSteps(1, 3) | EverySteps(10), [1, 3, 10, 20, 30]),
    (EverySteps(4) | EverySteps(6), [4, 6, 8, 12, 16, 18]),
    (AtSteps(2) | AtSteps(5), [2, 5]),
    (EverySteps(50) | AtSteps(7) | GeometricSteps(), [1, 2, 4, 7, 8, 16, 32, 50, 64]),
    (EverySteps(5) | EverySecs(60), [5, 10, 15]),
]
FINITE = {"AtSteps(3)": 3, "AtSteps(1, 10, 100)": 100, "AtSteps(2) | AtSteps(5)": 5}


def ids(table):
    return [repr(trigger) for trigger, _ in table]


@pytest.mark.parametrize(("trigger", "grid"), GRIDS, ids=ids(GRIDS))
def test_the_grid_is_what_next_step_walks(trigger, grid):
    step, found = 0, []
    for _ in grid:
        step = trigger.next_step(step)
        found.append(step)
    assert found == grid
    assert all(type(point) is int for point in found)


@pytest.mark.parametrize(("trigger", "grid"), GRIDS, ids=ids(GRIDS))
def test_latest_step_is_the_largest_grid_point_so_far(trigger, grid):
    for step in range(grid[-1] + 1 if grid[-1] < 2000 else 2000):
        assert trigger.latest_step(step) == max((p for p in grid if p <= step), default=None)


@pytest.mark.parametrize(
    ("trigger", "step", "expected"),
    [
        (EverySteps(100), 0, 100),
        (EverySteps(100), 99, 100),
        (EverySteps(100), 100, 200),
        (EverySteps(100), 101, 200),
        (EverySteps(100), 10**12, 10**12 + 100),
        (EverySteps(100, start=1), 0, 1),
        (EverySteps(100, start=1), 1, 101),
        (EverySteps(100, start=1), 100, 101),
        (EverySteps(7, start=30), 12, 30),
        (AtSteps(1, 10), 10, None),
        (AtSteps(1, 10), 11, None),
        (GeometricSteps(), 1023, 1024),
        (GeometricSteps(), 1024, 2048),
        (GeometricSteps(), 2**62 - 1, 2**62),
        (GeometricSteps(), 2**62, None),  # no counter goes that far
        (GeometricSteps(), 10**400, None),
        (GeometricSteps(10, 1e308), 10, None),
        (GeometricSteps(1, 10), 10**12 - 1, 10**12),
        (GeometricSteps(10**400), 0, None),
        (EverySecs(1), 7, None),
        (EverySecs(1) | AtSteps(3), 3, None),
        (EverySecs(1) | EverySecs(2), 3, None),
    ],
)
def test_next_step(trigger, step, expected):
    assert trigger.next_step(step) == expected


@pytest.mark.parametrize(
    ("trigger", "step", "expected"),
    [
        (EverySteps(100), 0, None),
        (EverySteps(100), 99, None),
        (EverySteps(100), 100, 100),
        (EverySteps(100), 250, 200),
        (EverySteps(100, start=1), 0, None),
        (EverySteps(100, start=1), 100, 1),
        (EverySteps(7, start=30), 29, None),
        (AtSteps(1, 10), 0, None),
        (AtSteps(1, 10), 10**9, 10),
        (GeometricSteps(3), 2, None),
        (GeometricSteps(3), 1000, 768),
        (GeometricSteps(), 10**400, 2**62),
        (EverySecs(1), 7, None),
        (EverySecs(1) | AtSteps(3), 5, 3),
        (EverySecs(1) | EverySecs(2), 5, None),
    ],
)
def test_latest_step(trigger, step, expected):
    assert trigger.latest_step(step) == expected


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        (EverySteps(100), None),
        (AtSteps(1), None),
        (GeometricSteps(), None),
        (EverySteps(3) | AtSteps(1), None),
        (EverySecs(600), 630.0),
        (EverySecs(0.25), 30.25),
        (EverySecs(np.float32(0.5)), 30.5),
        (EverySecs(np.int64(2)), 32.0),
        (EverySecs(600) | EverySteps(100), 630.0),
        (EverySteps(100) | EverySecs(600), 630.0),
        (EverySecs(600) | EverySecs(60) | AtSteps(1), 90.0),
    ],
    ids=repr,
)
def test_next_time_counts_from_the_last_firing(trigger, expected):
    assert trigger.next_time(30.0) == expected


@pytest.mark.parametrize(
    ("trigger", "before", "now", "expected"),
    [
        (EverySteps(10), 0, 9, False),
        (EverySteps(10), 0, 10, True),
        (EverySteps(10), 9, 10, True),
        (EverySteps(10), 10, 10, False),
        (EverySteps(10), 10, 19, False),
        (EverySteps(10), 9, 11, True),
        (EverySteps(10), 5, 45, True),
        (EverySteps(10, start=1), 0, 1, True),
        (EverySteps(10, start=1), 1, 10, False),
        (AtSteps(3, 4), 2, 9, True),
        (AtSteps(3, 4), 3, 9, True),
        (AtSteps(3, 4), 4, 9, False),
        (GeometricSteps(), 8, 15, False),
        (GeometricSteps(), 8, 16, True),
        (EverySteps(10) | AtSteps(3), 1, 5, True),
        (EverySteps(10) | AtSteps(3), 3, 9, False),
        (EverySecs(1), 0, 10**6, False),
    ],
)
def test_crosses_if_a_grid_point_lies_in_the_half_open_interval(trigger, before, now, expected):
    assert trigger.crosses(before, now) is expected


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        (EverySteps(100), "EverySteps(100)"),
        (EverySteps(100, start=1), "EverySteps(100, start=1)"),
        (AtSteps(10, 1), "AtSteps(1, 10)"),
        (GeometricSteps(), "GeometricSteps(1, 2)"),
        (GeometricSteps(5, 1.5), "GeometricSteps(5, 1.5)"),
        (EverySecs(600), "EverySecs(600)"),
        (EverySecs(0.5) | AtSteps(3), "EverySecs(0.5) | AtSteps(3)"),
    ],
    ids=str,
)
def test_repr_is_how_one_writes_it(trigger, expected):
    assert repr(trigger) == expected
    assert repr(eval(expected)) == expected


# ---------------------------------------------------------------- bad arguments

NOT_INTEGRAL = [True, False, np.True_, 1.0, 1.5, np.float32(2), math.nan, math.inf, None, "100"]
NOT_INTEGRAL += [[100], np.array([1, 2]), 2j]
NOT_NUMBERS = [True, np.False_, None, "2", [2.0], 2j]

MAKERS = {
    "EverySteps(n)": lambda value: EverySteps(value),
    "EverySteps(start)": lambda value: EverySteps(10, start=value),
    "AtSteps": lambda value: AtSteps(1, value),
    "GeometricSteps(first)": lambda value: GeometricSteps(value),
}


@pytest.mark.parametrize("value", NOT_INTEGRAL, ids=repr)
@pytest.mark.parametrize("name", MAKERS)
def test_what_is_no_integer_raises_type_error_with_what_was_received(name, value):
    message = re.escape(f"{name} must be an integer; received {value!r}.")
    with pytest.raises(TypeError, match=f"^{message}$"):
        MAKERS[name](value)


@pytest.mark.parametrize(
    ("name", "value", "least"),
    [
        ("EverySteps(n)", 0, 1),
        ("EverySteps(n)", -3, 1),
        ("EverySteps(n)", np.int64(0), 1),
        ("EverySteps(start)", -1, 0),
        ("EverySteps(start)", np.int8(-1), 0),
        ("AtSteps", 0, 1),
        ("AtSteps", -1, 1),
        ("GeometricSteps(first)", 0, 1),
        ("GeometricSteps(first)", -2, 1),
    ],
)
def test_what_is_too_small_raises_value_error_with_the_least(name, value, least):
    message = re.escape(f"{name} must be at least {least}; received {value!r}.")
    with pytest.raises(ValueError, match=f"^{message}$"):
        MAKERS[name](value)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: AtSteps(), ValueError, r"^AtSteps\(\) received no step; pass at least one"),
        (lambda: AtSteps([1, 2]), TypeError, r"received \[1, 2\]\. Unpack it: AtSteps\(\*steps\)"),
        (lambda: AtSteps([]), TypeError, r"as separate arguments; received \[\]"),
        (lambda: AtSteps(range(3)), TypeError, r"received range\(0, 3\)\. Unpack it"),
        (lambda: AtSteps(np.array([1, 2])), TypeError, r"received array\(\[1, 2\]\)\. Unpack it"),
        (lambda: AtSteps("100"), TypeError, r"^AtSteps must be an integer; received '100'"),
        (lambda: AtSteps("1", "2"), TypeError, r"^AtSteps must be an integer; received '1'"),
        (lambda: AtSteps(None), TypeError, r"^AtSteps must be an integer; received None"),
        (lambda: AtSteps(1.5), TypeError, r"^AtSteps must be an integer; received 1\.5"),
        (lambda: GeometricSteps(1, 1), ValueError, r"\(factor\) must be above 1; received 1\."),
        (lambda: GeometricSteps(1, 1.0), ValueError, r"must be above 1; received 1\.0"),
        (lambda: GeometricSteps(1, 0.5), ValueError, r"must be above 1; received 0\.5"),
        (lambda: GeometricSteps(1, -2), ValueError, r"must be above 1; received -2"),
        (lambda: GeometricSteps(1, math.nan), ValueError, r"\(factor\) must be finite; .* nan"),
        (lambda: GeometricSteps(1, math.inf), ValueError, r"\(factor\) must be finite; .* inf"),
        (lambda: EverySecs(0), ValueError, r"^EverySecs\(seconds\) must be above 0; received 0\.$"),
        (lambda: EverySecs(-0.5), ValueError, r"must be above 0; received -0\.5"),
        (lambda: EverySecs(math.nan), ValueError, r"\(seconds\) must be finite; received nan"),
        (lambda: EverySecs(math.inf), ValueError, r"\(seconds\) must be finite; received inf"),
    ],
)
def test_other_bad_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize("value", NOT_NUMBERS, ids=repr)
def test_a_factor_or_seconds_that_is_no_number_raises_type_error(value):
    received = re.escape(f"must be a number; received {value!r}.")
    with pytest.raises(TypeError, match=rf"^GeometricSteps\(factor\) {received}$"):
        GeometricSteps(1, value)
    with pytest.raises(TypeError, match=rf"^EverySecs\(seconds\) {received}$"):
        EverySecs(value)


@pytest.mark.parametrize("other", [3, None, "EverySteps(3)", [EverySteps(3)]], ids=repr)
def test_or_takes_triggers_only(other):
    with pytest.raises(TypeError, match="unsupported operand"):
        EverySteps(3) | other
    with pytest.raises(TypeError, match="unsupported operand"):
        other | EverySteps(3)


@pytest.mark.parametrize(
    ("every", "error", "message"),
    [
        (0, ValueError, r"^StepCallback\(every\) must be at least 1; received 0\.$"),
        (-1, ValueError, r"^StepCallback\(every\) must be at least 1; received -1\.$"),
        (1.0, TypeError, r"^StepCallback\(every\) must be an integer; received 1\.0\.$"),
        (1.5, TypeError, r"^StepCallback\(every\) must be an integer; received 1\.5\.$"),
        (math.nan, TypeError, r"^StepCallback\(every\) must be an integer; received nan\.$"),
        (True, TypeError, r"must be a number of steps or a trigger .*received True\.$"),
        ("100", TypeError, r"must be a number of steps or a trigger .*received '100'\.$"),
        ([100], TypeError, r"must be a number of steps or a trigger .*received \[100\]\.$"),
        (EverySteps, TypeError, r"must be a number of steps or a trigger .*EverySteps"),
    ],
    ids=repr,
)
def test_every_of_a_callback_is_an_interval_or_a_trigger(every, error, message):
    with pytest.raises(error, match=message):
        StepCallback(every)


def test_every_none_is_a_callback_without_trigger():
    assert StepCallback(None).trigger is None


@pytest.mark.parametrize("every", [5, np.int64(5), np.uint8(5)], ids=repr)
def test_every_as_a_number_is_an_interval(every):
    assert repr(StepCallback(every).trigger) == "EverySteps(5)"


def test_as_trigger_leaves_a_trigger_alone():
    trigger = AtSteps(3) | EverySecs(1)
    assert as_trigger(trigger, "f(x)") is trigger
    assert repr(as_trigger(5, "f(x)", 1)) == "EverySteps(5, start=1)"


def test_a_trigger_without_its_two_answers_cannot_be_made():
    class Half(Trigger):
        def next_step(self, step):
            return None

    with pytest.raises(TypeError, match="abstract.* latest_step"):
        Half()


def test_a_users_own_trigger_joins_the_others():
    class Odd(Trigger):
        def next_step(self, step):
            return step + 1 + step % 2

        def latest_step(self, step):
            return step - 1 + step % 2 if step else None

    trigger = Odd() | AtSteps(4)
    assert [s for s in range(1, 10) if trigger.crosses(s - 1, s)] == [1, 3, 4, 5, 7, 9]


# ---------------------------------------------------------------- properties
#
# Each strategy draws a trigger together with its grid, which is worked out from the
# definition in exact arithmetic and not from the trigger.

END = 300
FACTORS = ["1.001", "1.01", "1.1", "1.25", "1.5", "1.75", "2", "2.5", "3", "7.3", "10"]


@st.composite
def every_steps(draw):
    n = draw(st.integers(1, END))
    start = draw(st.sampled_from([0, 1, n]) | st.integers(0, END))
    return EverySteps(n, start), set(range(start or n, END + 1, n))


@st.composite
def at_steps(draw):
    steps = draw(st.lists(st.integers(1, END), min_size=1, max_size=6))
    return AtSteps(*steps), set(steps)


@st.composite
def geometric_steps(draw):
    first, factor = draw(st.integers(1, END)), draw(st.sampled_from(FACTORS))
    grid, exact, point = set(), Fraction(first), first
    while point <= END:
        grid.add(point)
        exact *= Fraction(factor)
        point = max(math.ceil(exact), point + 1)
    return GeometricSteps(first, float(factor)), grid


@st.composite
def every_secs(draw):
    return EverySecs(draw(st.floats(0.1, 1e6))), set()


def either(pairs):
    return st.tuples(pairs, pairs).map(lambda two: (two[0][0] | two[1][0], two[0][1] | two[1][1]))


TRIGGERS = st.recursive(
    every_steps() | at_steps() | geometric_steps() | every_secs(), either, max_leaves=4
)
LOOKS = st.lists(st.integers(1, 40), min_size=1, max_size=20).map(
    lambda jumps: [step for step in np.cumsum(jumps).tolist() if step <= END] or [1]
)


def fired(trigger, looks, start=0):
    """The looks at which a callback with this trigger fires, in a run begun at `start`."""
    return [now for before, now in pairwise([start, *looks]) if trigger.crosses(before, now)]


@settings(deadline=None)
@given(TRIGGERS, LOOKS)
def test_each_grid_point_belongs_to_exactly_one_firing_and_each_firing_has_one(pair, looks):
    trigger, grid = pair
    firings = fired(trigger, looks)
    assert firings == sorted(set(firings))
    covering = [
        [now for before, now in pairwise([0, *looks]) if before < point <= now]
        for point in sorted(grid)
        if point <= looks[-1]
    ]
    assert all(len(looks_over_it) == 1 for looks_over_it in covering)
    assert firings == sorted({looks_over_it[0] for looks_over_it in covering})


@settings(deadline=None)
@given(TRIGGERS, LOOKS, st.data())
def test_after_a_resume_the_firings_are_those_of_the_run_that_was_not_interrupted(
    pair, looks, data
):
    trigger, _ = pair
    killed = data.draw(st.integers(0, len(looks)), label="looks before the kill")
    before, after = looks[:killed], looks[killed:]
    resumed_at = before[-1] if before else 0
    restarted = pickle.loads(pickle.dumps(trigger))
    whole = fired(copy.deepcopy(trigger), looks)
    assert fired(trigger, before) + fired(restarted, after, resumed_at) == whole


@settings(deadline=None)
@given(TRIGGERS, st.integers(0, END))
def test_next_and_latest_step_are_the_neighbours_on_the_grid(pair, step):
    trigger, grid = pair
    following, latest = trigger.next_step(step), trigger.latest_step(step)
    above = min((point for point in grid if point > step), default=None)
    assert latest == max((point for point in grid if point <= step), default=None)
    if above is not None:
        assert following == above
    elif following is not None:
        assert following > END
    if following is not None:
        assert following > step
        assert trigger.latest_step(following) == following
        assert trigger.latest_step(following - 1) == latest


@settings(deadline=None, max_examples=50)
@given(TRIGGERS, st.integers(0, 10**9))
def test_far_out_too_the_next_step_is_a_grid_point(pair, step):
    trigger, _ = pair
    following = trigger.next_step(step)
    if following is not None:
        assert following > step
        assert trigger.latest_step(following) == following
        assert trigger.crosses(following - 1, following)
        assert not trigger.crosses(step, following - 1)


@settings(deadline=None)
@given(TRIGGERS, st.floats(0, 1e9))
def test_time_is_due_later_than_now_or_never(pair, seconds):
    trigger, _ = pair
    later = trigger.next_time(seconds)
    assert (later is not None) == ("EverySecs" in repr(trigger))
    assert later is None or later > seconds


@settings(deadline=None)
@given(TRIGGERS, st.lists(st.integers(0, END), max_size=5))
def test_copies_behave_as_the_original(pair, steps):
    trigger, _ = pair
    for twin in (copy.deepcopy(trigger), copy.copy(trigger), pickle.loads(pickle.dumps(trigger))):
        assert repr(twin) == repr(trigger)
        assert twin.next_time(1.5) == trigger.next_time(1.5)
        for step in steps:
            assert twin.next_step(step) == trigger.next_step(step)
            assert twin.latest_step(step) == trigger.latest_step(step)
