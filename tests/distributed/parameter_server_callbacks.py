"""The coordinator of parameter servers, with one callback after the other."""

import math
import os

import tensorflow as tf
from serving import resolver_on_the_chief

resolver = resolver_on_the_chief()

from cluster import report  # noqa: E402
from flavours import BATCH, arrays, keras, make_model  # noqa: E402

import keras_steps as ks  # noqa: E402
from keras_steps.testing import Recorder  # noqa: E402

strategy = tf.distribute.ParameterServerStrategy(resolver)
folder = os.environ["FOLDER"]
reported = []
schedule = ks.schedules.linear(0.1, 0.0, 40)


def batches(context=None):
    return tf.data.Dataset.from_tensor_slices(arrays(8)).repeat().batch(BATCH)


def finite():
    return tf.data.Dataset.from_tensor_slices(arrays(3)).batch(BATCH)


def spoil(step, logs):
    if step == 16 and spoil.is_to_come:
        spoil.is_to_come = False
        kernel = spoil.model.layers[0].kernel
        kernel.assign(kernel * math.nan)


def scaled(model):
    model.scale = tf.Variable(1.0, name="scale", trainable=False)
    return model.scale


ROWS = {
    "StopAtStep": lambda model: [ks.StopAtStep(num_steps=31)],
    "StopAfter": lambda model: [ks.StopAfter(hours=1), Recorder(ks.EverySecs(0.001))],
    "OnStep": lambda model: [ks.OnStep(8, lambda step, logs: None)],
    "LogEveryN": lambda model: [ks.LogEveryN(8, extra=lambda model: {"norm": norm(model)})],
    "ReportEveryN": lambda model: [ks.ReportEveryN(lambda step, logs: reported.append(step), 8)],
    "StepHistory": lambda model: [ks.StepHistory(8)],
    "StepProgressBar": lambda model: [ks.StepProgressBar()],
    "StepCSVLogger": lambda model: [ks.StepCSVLogger(f"{folder}/metrics.csv", 8)],
    "StepTensorBoard": lambda model: [ks.StepTensorBoard(f"{folder}/logs", 8, histograms_every=8)],
    "StepScheduledLR": lambda model: [ks.StepScheduledLR(schedule, every=8)],
    "StepScheduled": lambda model: [ks.StepScheduled(scaled(model), schedule, every=8)],
    "StepCheckpoint": lambda model: [ks.StepCheckpoint(f"{folder}/checkpoints", 8)],
    "StepProfiler": lambda model: [ks.StepProfiler(f"{folder}/profile", 10, duration=2)],
    "EvaluateEveryN": lambda model: [
        ks.EvaluateEveryN(batches(), 8, steps=3),
        ks.StepEarlyStopping(patience=100, restore_best_weights=True),
    ],
    "EvaluateEveryN, to the end": lambda model: [ks.EvaluateEveryN(finite(), 8)],
    "StepEarlyStopping": lambda model: [ks.StepEarlyStopping(patience=1, min_delta=100)],
    "StepBackupAndRestore": lambda model: [ks.StepBackupAndRestore(f"{folder}/backup", 8)],
    "StopOnNaN, rollback": lambda model: [
        ks.StopOnNaN(8, action="rollback"),
        ks.OnStep(8, spoil),
        ks.StepHistory(8),
    ],
    "StopOnNaN": lambda model: [ks.StopOnNaN(8), ks.OnStep(8, spoil)],
}


def norm(model):
    return float(sum((array**2).sum() for array in model.get_weights()))


def row(make):
    with strategy.scope():
        model = make_model(keras.optimizers.Adam(0.01))
        callbacks = make(model)
    spoil.model, spoil.is_to_come = model, True
    validation = keras.utils.experimental.DatasetCreator(batches)
    given = {"callbacks": [*callbacks, ks.StopAtStep(31)]}
    if isinstance(callbacks[0], ks.StepEarlyStopping):
        given = {"callbacks": callbacks, "validation_data": validation, "validation_steps": 3}
    try:
        model.fit(
            keras.utils.experimental.DatasetCreator(batches),
            epochs=2,
            steps_per_epoch=20,
            verbose=0,
            **given,
        )
    except ValueError as error:
        return [type(error).__name__, str(error), ks.global_step(model)]
    return [ks.stop_reason(model), ks.global_step(model), math.isfinite(norm(model))]


results = {name: row(make) for name, make in ROWS.items()}
report(**results, reported=reported)
os._exit(0)  # a coordinator that ends by itself waits for its workers
