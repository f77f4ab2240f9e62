"""What the workers of a run tell each other, on JAX and on torch."""

import pytest
from distributed.cluster import run_cluster
from flavours import FLAVOUR

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.timeout(200),
    pytest.mark.skipif(
        FLAVOUR not in ("jax", "torch"), reason="test_workers_agree.py has TensorFlow's"
    ),
]


def test_two_processes_hear_of_each_other():
    results = run_cluster("channel.py", {"worker": 2}, limit=150, report_from=["worker"])
    first, second = results["worker", 0], results["worker", 1]
    assert (first["seat"], second["seat"]) == ([0, 2], [1, 2])
    assert (first["is_chief"], second["is_chief"]) == (True, False)
    for result in (first, second):
        assert result["rows"] == [[0, -1, 2**40], [1, -1, 2**40 + 1]]
        assert result["lengths"] == [0, 5]
        assert result["things"] == [
            "{'array': array([0, 0]), 'none': None}",
            "{'array': array([1, 1]), 'none': None}",
        ]
        assert result["by_chief"] == "said by 0"
        assert result["meeting"] == [True, [True, False, False]]  # a signal; the chief's clock
        assert result["next_at"] == 2
        assert result["uses"] == 14
    assert (first["by_all"], second["by_all"]) == (0, 1)
    told = "the run ends on all of its workers, as one has failed: worker {0}: OSError: {1}"
    no_space = ["no space left on worker 0", "no space left on worker 1"]
    assert first["failed_on_chief"] == f"OSError: {no_space[0]}"
    assert second["failed_on_chief"] == "RuntimeError: " + told.format(0, no_space[0])
    assert first["failed_on_other"] == "RuntimeError: " + told.format(1, no_space[1])
    assert second["failed_on_other"] == f"OSError: {no_space[1]}"
