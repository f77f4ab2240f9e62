"""One of several processes of JAX or torch whose fit is backed up, each with its own examples.

On torch the model's train_step averages the gradients over the processes, which Keras's does not.
LAST: the step at which the run ends. ON_CHANGE: what other numbers of processes come to.
"""

import json
import os

config = json.loads(os.environ["TF_CONFIG"])
addresses, index = config["cluster"]["worker"], config["task"]["index"]
count, is_torch = len(addresses), os.environ["KERAS_BACKEND"] == "torch"
import keras  # noqa: E402

if is_torch:
    import torch

    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://{addresses[0]}", rank=index, world_size=count
    )
elif count > 1:
    keras.distribution.initialize(addresses[0], count, index)
    keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))

from cluster import leave, report  # noqa: E402
from flavours import BATCH, arrays, state_of  # noqa: E402

import keras_steps as ks  # noqa: E402
from keras_steps.testing import Recorder  # noqa: E402

SHARE = BATCH // count


class Joined(keras.Model):
    """Of torch: gradients are those of all processes."""

    def train_step(self, data):
        x, y = data
        self.zero_grad()
        loss = self.compute_loss(x, y, self(x, training=True))
        loss.backward()
        gradients = [weight.value.grad for weight in self.trainable_weights]
        for gradient in gradients:
            torch.distributed.all_reduce(gradient)
            gradient /= count
        with torch.no_grad():
            self.optimizer.apply(gradients, self.trainable_weights)
        self._loss_tracker.update_state(loss)
        return self.compute_metrics(x, y, self(x), None)


keras.utils.set_random_seed(1)
inputs = keras.Input((4,))
outputs = keras.layers.Dense(1)(keras.layers.Dense(3, activation="tanh")(inputs))
model = (Joined if is_torch else keras.Model)(inputs, outputs)
model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
x, y = (
    array.reshape(12, BATCH, -1)[:, index * SHARE :][:, :SHARE].reshape(12 * SHARE, -1)
    for array in arrays(12)
)
recorder = Recorder(4)
history = model.fit(
    x,
    y,
    batch_size=SHARE,
    epochs=3,
    shuffle=False,
    verbose=0,
    callbacks=[
        recorder,
        ks.StepScheduledLR(ks.schedules.linear(0.01, 0.0, 40)),
        ks.StopAtStep(int(os.environ.get("LAST", "30"))),
        ks.StepBackupAndRestore(
            os.environ["FOLDER"], 5, on_change=os.environ.get("ON_CHANGE", "raise")
        ),
    ],
)
report(
    step=ks.global_step(model),
    fired=recorder.steps,
    rates=[logs["learning_rate"] for logs in recorder.logs],
    losses=[logs["loss"] for logs in recorder.logs],
    history=history.history,
    state=[value.tolist() for value in state_of(model)],
)
if is_torch:
    leave()
