"""One of several processes of a torch DistributedDataParallel loop, over gloo."""

import json
import os

import numpy as np
import torch
from cluster import leave, report
from flavours import BATCH, arrays, keras, make_model
from torch.nn.parallel import DistributedDataParallel

import keras_steps as ks
from keras_steps.testing import Recorder

config = json.loads(os.environ["TF_CONFIG"])
addresses, rank = config["cluster"]["worker"], config["task"]["index"]
torch.distributed.init_process_group(
    "gloo", init_method=f"tcp://{addresses[0]}", rank=rank, world_size=len(addresses)
)
model = make_model()
ddp = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
x, y = (torch.from_numpy(each) for each in arrays(8))
share = BATCH // len(addresses)


def step(number):
    begin = number % 8 * BATCH + rank * share
    optimizer.zero_grad()
    loss = ((ddp(x[begin : begin + share]) - y[begin : begin + share]) ** 2).mean()
    loss.backward()
    optimizer.step()
    return loss


recorder = Recorder(4)
places = os.path.dirname(os.environ["REPORT"])
objects = {"model": model, "optimizer": optimizer}
callbacks = [
    recorder,
    ks.StepCheckpoint(os.path.join(os.environ["FOLDER"], "objects"), 10, objects=objects),
    ks.StopAtStep(15),
    ks.LogEveryN(5, start=0),
    ks.StepCSVLogger(os.path.join(places, f"metrics-{rank}.csv"), 5),
    ks.StepCheckpoint(os.path.join(places, f"checkpoints-{rank}"), 10),
    ks.StopAfter(hours=1),
]
with ks.StepLoop(callbacks, model=ddp, optimizer=optimizer) as loop:
    for number in loop.over(range(100)):
        loss = step(number).detach()
        torch.distributed.all_reduce(loss)
        loop.log(loss=loss / len(addresses))
weights = [np.asarray(weight).tolist() for weight in model.get_weights()]
other = make_model(seed=7)
its_optimizer = torch.optim.SGD(other.parameters(), 0.1)
ks.restore_checkpoint(
    ks.latest_checkpoint(os.path.join(os.environ["FOLDER"], "objects")),
    {"model": other, "optimizer": its_optimizer},
)
report(
    restored=[np.asarray(weight).tolist() for weight in other.get_weights()],
    restored_step=int(ks.StepLoop([], optimizer=its_optimizer).global_step.value),
    fired=recorder.steps,
    losses=[logs["loss"] for logs in recorder.logs],
    step=int(loop.global_step.value),
    reason=ks.stop_reason(model),
    weights=weights,
    files=sorted(name for name in os.listdir(places) if name.endswith(f"-{rank}.csv")),
    checkpoints=len(ks.list_checkpoints(os.path.join(places, f"checkpoints-{rank}"))),
)
assert keras.backend.backend() == "torch"
leave()
