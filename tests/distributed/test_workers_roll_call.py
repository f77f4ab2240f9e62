"""Workers that are not about to do the same: each of them says so, and none waits for ever."""

import pytest
from distributed.cluster import run_cluster
from flavours import FLAVOUR

pytestmark = [pytest.mark.distributed, pytest.mark.timeout(200)]


@pytest.fixture(scope="module")
def workers():
    settings = {"JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo"}
    results = run_cluster(
        "roll_call.py", {"worker": 2}, limit=180, report_from=["worker"], **settings
    )
    return results["worker", 0], results["worker", 1]


def differ_in(workers, row):
    """What the workers say they differ in: first of the first of them, then of the other."""
    first, second = (result[row] for result in workers)
    pieces = [
        message.split("and differ in ")[1].split(". They would")[0] for message in (first, second)
    ]
    what, of_first = pieces[0].split(": worker 0 has ")
    of_first, of_second = of_first.split(", worker 1 ")
    assert pieces[1] == f"{what}: worker 1 has {of_second}, worker 0 {of_first}"
    return what, of_first, of_second


def test_each_sees_what_the_others_have_said(workers):
    for result in workers:
        assert result["found"] == ["worker 0", "worker 1"]
        assert result["nothing"] is None


def test_other_callbacks(workers):
    more = ("StopAfter()", "StopAfter()")
    if FLAVOUR in ("tensorflow", "tf_keras"):  # to read a report takes both
        more = ("Recorder(EverySteps(5)), StopAfter()", "StopAfter()")
        assert differ_in(workers, "one_has_more") == ("callbacks", *more)
    else:
        assert [result["one_has_more"] for result in workers] == [8, 8]
    assert differ_in(workers, "other_arguments") == (
        "callbacks",
        "StopAfter(), StopAtStep(last_step=5)",
        "StopAfter(), StopAtStep(last_step=6)",
    )
    assert differ_in(workers, "other_order") == (
        "callbacks",
        "Recorder(EverySecs(90)), Recorder(EverySecs(900))",
        "Recorder(EverySecs(900)), Recorder(EverySecs(90))",
    )


def test_other_numbers_of_batches(workers):
    assert differ_in(workers, "other_data") == ("batches an epoch", "8", "7")


def test_the_same_callbacks(workers):
    assert [result["alike"] for result in workers] == [5, 5]


@pytest.mark.skipif(FLAVOUR in ("tensorflow", "tf_keras"), reason="reading takes both")
def test_reports_on_the_chief_alone(workers):
    for row in ("reports_of_one", "nothing_but_reports"):
        assert [result[row] for result in workers] == [5, 5]
    first, second = (result["reports_nowhere"] for result in workers)
    assert "roll_call.py" in first
    assert first in second
    assert second.startswith("the run ends on all of its workers, as one has failed: worker 0: ")


@pytest.mark.skipif(FLAVOUR in ("jax", "torch"), reason="each process reads for itself")
def test_reports_at_other_steps(workers):
    assert differ_in(workers, "reports_at_other_steps") == (
        "callbacks",
        "StepHistory(EverySteps(2))",
        "StepHistory(EverySteps(3))",
    )


@pytest.mark.skipif(FLAVOUR in ("tensorflow", "jax"), reason="Keras waits before train begin")
def test_one_that_does_not_come(workers):
    message = workers[0]["one_is_missing"]
    assert message.startswith("worker 1 has not begun this run, for which worker 0 has waited 1 ")


@pytest.mark.skipif(FLAVOUR in ("tensorflow", "jax"), reason="Keras waits, and JAX ends all")
@pytest.mark.parametrize("leaves", [0, 1] if FLAVOUR == "tf_keras" else [0])
def test_one_that_has_ended(leaves):
    """TensorFlow can ask for any; of torch only the one that holds the store is missed."""
    results = run_cluster(
        "roll_call_ends.py", {"worker": 2}, limit=60, report_from=["worker"], LEAVES=str(leaves)
    )
    message = results["worker", 1 - leaves]["message"]
    told = f"worker {leaves} has ended, or can't be reached any more, while worker {1 - leaves} "
    assert message.startswith(told)
    ends = ("onnect", "closed", "Broken pipe")  # as it comes upon it, in putting or in waiting
    assert any(each in message.split("Start all workers again. (")[1] for each in ends)


@pytest.mark.skipif(FLAVOUR in ("tensorflow", "jax"), reason="Keras waits before train begin")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_to_one_that_waits(name):
    """Nothing is trained by then, and nothing saved: Ctrl-C interrupts, and SIGTERM ends it."""
    ended = {("worker", 0): -15 if name == "SIGTERM" else 0, ("worker", 1): 0}
    first, second = run_cluster(
        "roll_call_ends.py",
        {"worker": 2},
        limit=60,
        report_from=["worker"],
        ends_with=ended,
        SIGNAL=name,
    ).values()
    assert first.get("message") == ("interrupted" if name == "SIGINT" else None)
    assert second.get("has_lost_it", False) is (name == "SIGTERM")
