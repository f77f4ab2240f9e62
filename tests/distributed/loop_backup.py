"""One of several workers of a loop of one's own that is backed up, and that a signal may end.

SIGNAL and AT: what this worker sends itself, at which step, if it is number WHO. LAST: the step
at which the loop ends. ON_CHANGE: what other numbers of workers come to.
"""

import json
import os
import signal

config = json.loads(os.environ["TF_CONFIG"])
addresses, index = config["cluster"]["worker"], config["task"]["index"]
backend = os.environ["KERAS_BACKEND"]
if backend == "tensorflow":
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
else:
    import torch

    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://{addresses[0]}", rank=index, world_size=len(addresses)
    )

from cluster import leave, report  # noqa: E402
from flavours import BATCH, arrays, keras, make_model, state_of  # noqa: E402

import keras_steps as ks  # noqa: E402
from keras_steps.testing import Recorder  # noqa: E402

SHARE = BATCH // len(addresses)
x, y = (array.reshape(12, BATCH, -1)[:, index * SHARE :][:, :SHARE] for array in arrays(12))


def on_tensorflow():
    with strategy.scope():
        model = make_model(keras.optimizers.Adam(0.01))
        model.optimizer.build(model.trainable_variables)

    def of_replica(x, y):
        with tf.GradientTape() as tape:
            errors = (model(x, training=True) - y)[:, 0] ** 2
            loss = tf.nn.compute_average_loss(errors, global_batch_size=BATCH)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def step(batch):
        losses = strategy.run(of_replica, args=batch)
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    def data_of_worker(context):
        data = tf.data.Dataset.from_tensor_slices((x.reshape(-1, 4), y.reshape(-1, 1)))
        return data.shuffle(100, seed=3).batch(SHARE)

    return model, model, strategy.distribute_datasets_from_function(data_of_worker), step


def on_torch():
    model = make_model(keras.optimizers.Adam(0.01))
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    weights = list(model.trainable_weights)

    def step(batch):
        model.zero_grad()
        loss = ((ddp(batch[0]) - batch[1]) ** 2).mean()
        loss.backward()
        with torch.no_grad():
            model.optimizer.apply([weight.value.grad for weight in weights], weights)
        loss = loss.detach()
        torch.distributed.all_reduce(loss)
        return loss / len(addresses)

    batches = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    order = torch.Generator().manual_seed(3)
    loader = torch.utils.data.DataLoader(batches, None, shuffle=True, generator=order)
    return model, ddp, loader, step


def strike(step, logs):
    if os.environ.get("WHO") == str(index) and step == int(os.environ["AT"]):
        os.kill(os.getpid(), getattr(signal, os.environ["SIGNAL"]))


model, given, data, step = on_tensorflow() if backend == "tensorflow" else on_torch()
folder = os.environ["FOLDER"]
recorder, history = Recorder(4), ks.StepHistory(4)
callbacks = [
    ks.OnStep(1, strike),
    recorder,
    history,
    ks.StopAtStep(int(os.environ.get("LAST", "30"))),
    ks.StepScheduledLR(ks.schedules.linear(0.01, 0.0, 40)),
    ks.StepCSVLogger(f"{folder}/metrics.csv", 4),
    ks.StepBackupAndRestore(f"{folder}/backup", 5, on_change=os.environ.get("ON_CHANGE", "raise")),
]
with ks.StepLoop(callbacks, model=given, optimizer=model.optimizer) as loop:
    for _ in range(3):
        for batch in loop.over(data):
            loop.log(loss=step(batch))
report(
    step=ks.global_step(model),
    reason=ks.stop_reason(model),
    fired=recorder.steps,
    rates=[logs["learning_rate"] for logs in recorder.logs],
    history=[history.steps, history.scalars["loss"]],
    state=[value.tolist() for value in state_of(model)],
)
if backend == "torch":
    leave()
