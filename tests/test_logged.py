"""What a loop logs: sums of values that nobody has waited for, and what is refused."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest
from flavours import FLAVOUR

from keras_steps.device_scalars import MOST_KEPT, accumulator_for
from keras_steps.logged import Logged
from keras_steps.reports import Sum


def on_device(number, dtype="float32"):
    """A scalar of the backend."""
    if FLAVOUR == "jax":
        import jax.numpy as jnp

        return jnp.asarray(number, dtype)
    if FLAVOUR == "torch":
        import torch

        return torch.tensor(number, dtype=getattr(torch, dtype), requires_grad="float" in dtype)
    import tensorflow as tf

    return tf.constant(number, dtype)


KINDS = {"float": float, "numpy": np.float32, "array": np.array, "device": on_device}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [1, MOST_KEPT - 1, MOST_KEPT, 3 * MOST_KEPT + 5])
def test_adds_up_exactly_whatever_the_number(kind, number):
    accumulator = accumulator_for(KINDS[kind](0))
    for value in range(number):
        accumulator.take(KINDS[kind](value))
        if value % MOST_KEPT == MOST_KEPT - 1:
            accumulator.shrink()
    accumulator.fetch()
    assert accumulator.total == sum(range(number))
    assert (accumulator.count, accumulator.broken) == (number, 0)


def test_keeps_a_bounded_number_of_values():
    logged, value, number = Logged(), on_device(0.5), MOST_KEPT**2 + 3
    most = 0
    for iteration in range(1, number + 1):
        logged.add({"loss": value}, iteration)
        accumulator = vars(logged._series["loss"]._accumulator)
        most = max(most, *(len(accumulator.get(name, ())) for name in ("_kept", "_sums", "_here")))
    assert most < MOST_KEPT
    assert logged.sums() == {"loss": Sum(number / 2, number, 0)}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32"])
def test_of_other_types_the_sum_is_as_exact(dtype):
    accumulator = accumulator_for(on_device(0, dtype))
    for value in range(MOST_KEPT):
        accumulator.take(on_device(value, dtype))
    accumulator.take(on_device(256, dtype))
    accumulator.fetch()
    assert accumulator.total == sum(range(MOST_KEPT)) + 256


@pytest.mark.skipif(FLAVOUR != "jax", reason="the others sum in 64 bits always")
def test_jax_sums_in_64_bits_where_it_has_them():
    import jax

    with jax.enable_x64(True):
        accumulator = accumulator_for(on_device(1e40, "float64"))
        for _ in range(3):
            accumulator.take(on_device(1e40, "float64"))
        accumulator.fetch()
    assert (accumulator.total, accumulator.broken) == (3e40, 0)


@pytest.mark.skipif(FLAVOUR != "jax", reason="the others' sums are made on one device")
def test_jax_scalars_of_several_devices_are_summed():
    program = """
import jax, jax.numpy as jnp
from keras_steps.device_scalars import accumulator_for
values = [jax.device_put(jnp.float32(n), device) for n, device in enumerate(jax.devices(), 1)]
accumulator = accumulator_for(values[0])
for value in values:
    accumulator.take(value)
accumulator.fetch()
print(accumulator.total, accumulator.count)
"""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | flags,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "3.0 2\n"


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_marks_its_part_of_the_sum_only(bad):
    logged = Logged()
    totals = []
    for iteration, value in enumerate([1.0, bad, 2.0], start=1):
        logged.add({"loss": on_device(value)}, iteration)
        totals.append(logged.sums()["loss"])
    assert totals == [Sum(1.0, 1, 0), Sum(1.0, 2, 1), Sum(3.0, 3, 1)]
    assert math.isnan((totals[1] - totals[0]).mean)
    assert (totals[2] - totals[1]).mean == 2.0


@pytest.mark.skipif(FLAVOUR != "torch", reason="others' tensors never change")
def test_a_tensor_that_is_written_to_later_counts_as_it_was():
    import torch

    logged, buffer = Logged(), torch.zeros(())
    for iteration in (1, 2, 3):
        buffer.fill_(iteration)
        logged.add({"loss": buffer}, iteration)
    assert logged.sums()["loss"] == Sum(6.0, 3, 0)


@pytest.mark.skipif(FLAVOUR != "torch", reason="modes of torch's")
def test_a_tensor_logged_in_inference_mode_is_one_of_the_sum():
    import torch

    logged = Logged()
    for iteration in (1, 2, 3):
        with torch.inference_mode(iteration == 1):
            logged.add({"loss": torch.ones(()) * iteration}, iteration)
    assert logged.sums()["loss"] == Sum(6.0, 3, 0)


@pytest.mark.skipif(FLAVOUR != "jax", reason="arrays that are given away are JAX's")
def test_an_array_that_was_given_away_is_named():
    logged, array = Logged(), on_device(1.0)
    logged.add({"loss": array}, 1)
    array.delete()
    with pytest.raises(RuntimeError, match="deleted") as raised:
        logged.sums()
    assert raised.value.__notes__ == ["Raised where the values logged as 'loss' were read."]


def test_goes_on_from_what_it_had():
    logged = Logged()
    logged.add({"loss": 2.0}, 1)
    other = Logged()
    other.set_state(logged.get_state())
    other.add({"loss": on_device(3.0)}, 1)
    assert other.sums() == {"loss": Sum(5.0, 2, 0)}


def test_values_may_change_their_kind():
    logged = Logged()
    for iteration, value in enumerate([1.0, on_device(2), 3.0, np.float32(4)], start=1):
        logged.add({"loss": value}, iteration)
    assert logged.sums() == {"loss": Sum(10.0, 4, 0)}


class DistributedValues:
    """As TensorFlow's public class of this name, which PerReplica is one of."""


class PerReplica(DistributedValues):
    pass


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (on_device(1).reshape(1) if FLAVOUR in ("jax", "torch") else np.ones(1), ValueError, "1,"),
        (np.ones((2, 3)), ValueError, r"log\(loss=...\) takes a scalar; received a value of shape"),
        ("1.0", TypeError, r"log\(loss=...\) takes a number; received '1.0'"),
        (None, TypeError, "received None"),
        (True, TypeError, "received True"),
        (np.array("1.5"), TypeError, "takes a number; received array"),
        (np.array(1j), TypeError, "takes a number; received array"),
        (on_device(1j, "complex64"), TypeError, "takes a number; received"),
        ([1.0], TypeError, r"received \[1.0\]"),
        (PerReplica(), TypeError, "a value for each replica. Reduce it first: strategy.reduce"),
    ],
)
def test_what_is_no_scalar_is_refused(value, error, text):
    with pytest.raises(error, match=text):
        Logged().add({"loss": value}, 1)


@pytest.mark.skipif(FLAVOUR == "torch", reason="torch computes as it is called")
def test_a_tensor_within_a_compiled_function_is_refused():
    def step(value):
        Logged().add({"loss": value}, 1)
        return value

    if FLAVOUR == "jax":
        import jax

        compiled = jax.jit(step)
    else:
        import tensorflow as tf

        compiled = tf.function(step, autograph=False)
    with pytest.raises(TypeError, match="a tensor within a compiled function. Return it"):
        compiled(on_device(1))


@pytest.mark.parametrize(
    ("iterations", "text"),
    [
        ([{"epoch": 1}], "each report has 'epoch' by itself"),
        ([{"loss": 1.0, "steps_per_second": 1}], "each report has 'steps_per_second'"),
        ([{"loss": 1.0}, {"lost": 1.0}], r"log\(lost=...\) is new in iteration 2.*logged loss"),
        ([{"loss": 1.0, "acc": 1.0}, {"loss": 1.0}, {"acc": 1.0}], "iteration 2 .* no 'acc'"),
        (
            [{"loss": 1.0, "acc": 1.0}, {"loss": 1.0}],
            "iteration 2 .* names, and no .acc.",
        ),
    ],
)
def test_names_that_change_are_refused(iterations, text):
    logged = Logged()
    with pytest.raises(ValueError, match=text):
        for iteration, values in enumerate(iterations, start=1):
            logged.add(values, iteration)
        logged.sums()


def test_an_iteration_may_log_in_parts_or_not_at_all():
    logged = Logged()
    for iteration in (3, 5, 6):
        logged.add({"loss": 1.0}, iteration)
        logged.add({"acc": 2.0}, iteration)
    assert logged.sums() == {"loss": Sum(3.0, 3, 0), "acc": Sum(6.0, 3, 0)}
