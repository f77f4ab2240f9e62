"""A fit on eight virtual devices under keras.distribution.DataParallel."""

import keras

keras.distribution.set_distribution(keras.distribution.DataParallel())

import os  # noqa: E402

import jax  # noqa: E402
import numpy  # noqa: E402
from cluster import report  # noqa: E402
from flavours import fit, make_model  # noqa: E402
from jax.sharding import NamedSharding, PartitionSpec  # noqa: E402

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

place = os.path.join(os.path.dirname(os.environ["REPORT"]), "objects")
mesh = jax.make_mesh((8,), ("rows",))
rows = NamedSharding(mesh, PartitionSpec("rows"))
table = jax.device_put(numpy.arange(32.0).reshape(16, 2), rows)
objects = {"model": model, "table": lambda: table}
for _ in ks.StepLoop([ks.StepCheckpoint(place, objects=objects)]).over(range(1)):
    table = table + 1
expected = model.get_weights()
model.set_weights([weight * 0 for weight in expected])
found = ks.restore_checkpoint(ks.latest_checkpoint(place), objects)["table"]
weights = zip(model.get_weights(), expected, strict=True)
assert all((weight == one).all() for weight, one in weights)
assert found.sharding == table.sharding and found.tolist() == table.tolist()

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
