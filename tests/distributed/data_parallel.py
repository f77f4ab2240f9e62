"""A fit on eight virtual devices under keras.distribution.DataParallel."""

import keras

keras.distribution.set_distribution(keras.distribution.DataParallel())

import jax  # noqa: E402
from cluster import report  # noqa: E402
from flavours import fit, make_model  # noqa: E402

import keras_steps as ks  # noqa: E402
from keras_steps.distribution import strategy_name  # noqa: E402
from keras_steps.testing import Recorder  # noqa: E402

model = make_model(keras.optimizers.SGD(0.1))
recorder = Recorder(4)
callbacks = [
    recorder,
    ks.StopAtStep(15),
    ks.LogEveryN(10, start=0),
    ks.StepScheduledLR(ks.schedules.linear(0.1, 0.0, 40)),
    ks.OnStep(5, lambda step, logs: model.get_weights()),
]
history = fit(model, callbacks, epochs=3)
report(
    devices=jax.device_count(),
    strategy=strategy_name(model),
    step=ks.global_step(model),
    fired=recorder.steps,
    losses=[logs["loss"] for logs in recorder.logs],
    rates=[logs["learning_rate"] for logs in recorder.logs],
    history=history.history["loss"],
    spread=len(model.trainable_variables[0].value.sharding.device_set),
)
