"""One of two workers, of which one does not come to fit, or is told to end as it waits.

LEAVES: the number of the one that ends before its fit. SIGNAL: what the first gets instead, while
it waits for the second.
"""

import json
import os
import signal

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
from keras_steps import roll_call  # noqa: E402
from keras_steps.keras_internals import key_values_of  # noqa: E402

backend = "tensorflow" if IS_TF_KERAS else "torch"
with strategy.scope() if IS_TF_KERAS else nullcontext():
    model = make_model()  # TensorFlow's workers make their variables together
if str(index) == os.environ.get("LEAVES"):
    leave()
callbacks = [ks.StopAfter(hours=1)]
if "SIGNAL" in os.environ:
    store = key_values_of(backend)
    if index == 1:
        try:
            store.get("is_interrupted", 60)
            store.put("has_seen_it", "")
        except ConnectionError:  # the other's process is gone
            report(has_lost_it=True)
        leave()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    number = signal.Signals[os.environ["SIGNAL"]]
    callbacks.append(ks.StepBackupAndRestore(os.path.dirname(os.environ["REPORT"]), 5))
    get = roll_call.key_values_of(backend).get

    def struck_while_it_waits(self, key, seconds):
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        return get(key, 60)

    type(store).get = struck_while_it_waits
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), number))
x, y = arrays(8)
try:
    model.fit(x, y, batch_size=BATCH, verbose=0, callbacks=callbacks)
except RuntimeError as error:
    report(message=str(error))
except KeyboardInterrupt:
    report(message="interrupted")
    store.put("is_interrupted", "")
    get("has_seen_it", 60)
leave()
