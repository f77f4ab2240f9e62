"""One of several processes of JAX, or of torch, that tell each other things."""

import json
import os

import numpy as np

config = json.loads(os.environ["TF_CONFIG"])
addresses, index = config["cluster"]["worker"], config["task"]["index"]
if os.environ["KERAS_BACKEND"] == "jax":
    import jax

    jax.distributed.initialize(addresses[0], len(addresses), index)
else:
    import torch

    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://{addresses[0]}", rank=index, world_size=len(addresses)
    )

from cluster import leave, report  # noqa: E402
from flavours import make_model  # noqa: E402

import keras_steps as ks  # noqa: E402
from keras_steps.agreement import Meetings  # noqa: E402
from keras_steps.workers import Workers  # noqa: E402


def fails_on(number):
    if index == number:
        raise OSError(f"no space left on worker {number}")
    return index


def error_of(action):
    try:
        return action()
    except (OSError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"


model = make_model()
workers = Workers(model, is_chief=ks.distribution.is_chief(model))
meetings = Meetings(workers)
if index == 1:
    meetings.signal = "SIGTERM"
report(
    seat=[workers.seat.index, workers.seat.count],
    is_chief=workers.is_chief,
    rows=workers.channel.gathered(np.array([index, -1, 2**40 + index])).tolist(),
    lengths=[len(each) for each in workers.channel.gathered_bytes(b"\0" * (5 * index))],
    things=[str(each) for each in workers.gathered({"array": np.full(2, index), "none": None})],
    by_chief=workers.by_chief(lambda: f"said by {index}"),
    by_all=workers.by_all(lambda: index),
    failed_on_chief=error_of(lambda: workers.by_chief(lambda: fails_on(0))),
    failed_on_other=error_of(lambda: workers.by_all(lambda: fails_on(1))),
    meeting=meetings.meet(1, 5.0, [-1.0 if index == 0 else 9.0, 3.0, None]),
    next_at=meetings.next_at,
    uses=workers.collectives,
)
if os.environ["KERAS_BACKEND"] == "torch":
    leave()
