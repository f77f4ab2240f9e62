"""One of two workers, of which one ends before it comes to fit. LEAVES: its number."""

import json
import os

index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
addresses = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]
if os.environ["KERAS_BACKEND"] == "tensorflow":
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
else:
    import torch

    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://{addresses[0]}", rank=index, world_size=len(addresses)
    )

from contextlib import nullcontext  # noqa: E402

from cluster import leave, report  # noqa: E402
from flavours import BATCH, IS_TF_KERAS, arrays, make_model  # noqa: E402

import keras_steps as ks  # noqa: E402

with strategy.scope() if IS_TF_KERAS else nullcontext():
    model = make_model()  # TensorFlow's workers make their variables together
if index == int(os.environ["LEAVES"]):
    leave()
x, y = arrays(8)
try:
    model.fit(x, y, batch_size=BATCH, verbose=0, callbacks=[ks.StopAfter(hours=1)])
except RuntimeError as error:
    report(message=str(error))
leave()
