"""One worker of a MultiWorkerMirroredStrategy: what only some of the workers would do alone.

DEVICES: how many of them the worker has. ROWS: which of the functions below to run.
"""

import os
import time

import tensorflow as tf

if os.environ.get("DEVICES") == "2":  # TensorFlow takes all GPUs of a worker, and one CPU
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.threading.set_inter_op_parallelism_threads(16)  # a collective holds one a device
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    from tensorflow.python.distribute.collective_all_reduce_strategy import (
        CollectiveAllReduceExtended as Extended,
    )

    Extended._initialize_local_devices = lambda self, resolver, worker: (
        (f"{worker}/device:CPU:0", f"{worker}/device:CPU:1"),
        "CPU",
    )
strategy = tf.distribute.MultiWorkerMirroredStrategy()

from cluster import report  # noqa: E402
from flavours import BATCH, arrays, keras, make_model, state_of  # noqa: E402

import keras_steps as ks  # noqa: E402
from keras_steps.testing import FakeClock, Recorder  # noqa: E402

index = strategy.cluster_resolver.task_id
folder = os.environ["FOLDER"]
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA


def data_of(batches, seed=0):
    return tf.data.Dataset.from_tensor_slices(arrays(batches, seed=seed)).batch(BATCH)


def fitted(callbacks, *, data=None, batches=12, epochs=1, validation=None, **settings):
    """What every row reports of a new model after a fit; its loss then on `validation`."""
    with strategy.scope():
        model = make_model(keras.optimizers.SGD(0.1))
    data = (data or data_of(batches)).with_options(options)
    fit = Fit()
    history = model.fit(data, epochs=epochs, verbose=0, callbacks=[*callbacks, fit], **settings)
    return {
        "step": ks.global_step(model),
        "reason": ks.stop_reason(model),
        "state": [value.tolist() for value in state_of(model)],
        "loss": None if validation is None else model.evaluate(validation, verbose=0)[0],
        "history": history.history,
        "collectives": fit.run.workers.collectives,
        "meetings": fit.run.agreement.meetings.held if fit.run.agreement.meetings else 0,
    }


class Fit(ks.StepCallback):
    """Keeps the run."""

    def begin(self, run):
        self.run = run


def ticking(time, seconds):
    """A callback of Keras's that lets so many seconds go by after each step."""
    return keras.callbacks.LambdaCallback(on_batch_end=lambda batch, logs: time.advance(seconds))


def callbacks_of_all_kinds():
    recorder = Recorder(5)
    validation = data_of(3, seed=1).with_options(options)
    given = [
        ks.EvaluateEveryN(validation, 5, prefix="test_", at_start=True),
        ks.StepCheckpoint(f"{folder}/checkpoints", 10, monitor="test_loss", max_to_keep=None),
        ks.StepTensorBoard(f"{folder}/logs", 5, histograms_every=10),
        ks.StepCSVLogger(f"{folder}/metrics.csv", 5),
        ks.StepProfiler(f"{folder}/profile", 10, duration=2),
        ks.LogEveryN(10, start=0),
        ks.StepScheduledLR(ks.schedules.linear(0.1, 0.0, 40)),
        recorder,
    ]
    result = fitted(given, epochs=3, validation_data=validation)
    return {**result, "fired": recorder.steps, "evaluations": recorder.evaluations}


def clocks_that_differ():
    """The other worker's clock goes three times as fast as the chief's."""
    with FakeClock() as clock:
        timed, both = Recorder(ks.EverySecs(10)), Recorder(ks.EverySecs(13) | ks.AtSteps(7))
        result = fitted([timed, both, ticking(clock, [1, 3][index])], batches=36)
    return {**result, "timed": timed.steps, "both": both.steps}


def budgets_that_differ():
    with FakeClock() as clock:
        result = fitted([ks.StopAfter(seconds=14), ticking(clock, [1, 3][index])], batches=30)
    return result


def one_that_is_slow():
    """Reading a batch takes one of the workers ten times as long."""

    def wait(*batch):
        tf.py_function(lambda: time.sleep([0.002, 0.02][index]), [], [])
        return batch

    slow = data_of(20).map(wait).repeat()
    timed = Recorder(ks.EverySecs(0.2))
    result = fitted([timed], data=slow, epochs=2, steps_per_epoch=20)
    return {**result, "timed": timed.steps}


def early_stopping():
    validation = data_of(3, seed=1).with_options(options)
    stopping = ks.StepEarlyStopping("test_loss", patience=2, restore_best_weights=True)
    evaluating = ks.EvaluateEveryN(validation, 3, prefix="test_")
    recorder = Recorder(100)
    result = fitted([evaluating, stopping, recorder], batches=30, validation=validation)
    return {**result, "losses": [logs["test_loss"] for _, logs in recorder.evaluations]}


def a_scheduled_rate():
    """Without one, and with one that is another rate for each update."""
    schedule, recorder = ks.StepScheduledLR(ks.schedules.linear(0.1, 0.0, 16)), Recorder(4)
    result = fitted([schedule, recorder])
    rates = [logs["learning_rate"] for logs in recorder.logs]
    return {**result, "rates": rates, "unscheduled": fitted([])["state"]}


def nothing_to_agree_on():
    return fitted([Recorder(5), ks.StopAtStep(20), ks.LogEveryN(10)], epochs=2)


def objects():
    """The chief writes the model that fit trains as an object; each worker restores another."""
    place = f"{folder}/objects"
    saver = ks.StepCheckpoint(place, 5, objects={"model": lambda: saver.model})
    result = fitted([saver])
    with strategy.scope():
        other = make_model(keras.optimizers.SGD(0.1), seed=7)
        other.optimizer.build(other.trainable_variables)
    ks.restore_checkpoint(ks.latest_checkpoint(place), {"model": other})
    restored = [weight.tolist() for weight in other.get_weights()]
    return {**result, "restored": restored, "restored_step": ks.global_step(other)}


def a_chief_that_fails():
    """Its directory is a file; the others don't look, and hear of it."""
    place = f"{folder}/a_file"
    if index == 0:
        with open(place, "w") as file:
            file.write("text")
    try:
        fitted([ks.StepCheckpoint(f"{place}/checkpoints", 5)])
    except (OSError, RuntimeError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"error": None}


def a_writer_that_fails():
    """On a full disk, which only the chief writes to."""

    def write(step, scalars):
        written.append(step)
        if step >= 5:
            with open("/dev/full", "w") as file:
                file.write(str(scalars))

    written, recorder = [], Recorder(1)
    callbacks = [ks.ReportEveryN(write, 1), recorder, ks.StopAfter(hours=1)]
    try:
        with FakeClock():
            fitted(callbacks)
    except (OSError, RuntimeError) as error:
        notes = getattr(error, "__notes__", [])
        told = f"{type(error).__name__}: {error}"
        return {"error": told, "notes": notes, "written": written, "last": recorder.steps[-1]}
    return {"error": None}


report(
    replicas=strategy.num_replicas_in_sync,
    **{name: globals()[name]() for name in os.environ["ROWS"].split()},
)
