"""One of several workers, which are not always about to do the same."""

import json
import os

index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
addresses = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]
backend = os.environ["KERAS_BACKEND"]
if backend == "tensorflow":
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
elif backend == "jax":
    import keras

    keras.distribution.initialize(addresses[0], len(addresses), index)
    keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
else:
    import torch

    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://{addresses[0]}", rank=index, world_size=len(addresses)
    )

from contextlib import nullcontext  # noqa: E402

from cluster import report  # noqa: E402
from flavours import BATCH, IS_TF_KERAS, arrays, make_model  # noqa: E402

import keras_steps as ks  # noqa: E402
from keras_steps import roll_call  # noqa: E402
from keras_steps.keras_internals import key_values_of  # noqa: E402
from keras_steps.testing import Recorder  # noqa: E402


def fitted(callbacks, batches=8, *, comes=True):
    """The step at which a new model's fit has ended, or the error; None for who does not come."""
    with strategy.scope() if backend == "tensorflow" else nullcontext():
        model = make_model()
        if backend == "tensorflow" and not IS_TF_KERAS:
            ks.distribution.prepare(model)
    if not comes:  # TensorFlow's workers make their variables together
        return None
    x, y = arrays(batches)
    try:
        if backend == "tensorflow":
            options = tf.data.Options()
            data = tf.data.experimental.AutoShardPolicy.DATA
            options.experimental_distribute.auto_shard_policy = data
            batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
            model.fit(batches.with_options(options), verbose=0, callbacks=callbacks)
        else:
            model.fit(x, y, batch_size=BATCH, verbose=0, callbacks=callbacks)
    except (RuntimeError, OSError) as error:
        return str(error)
    return ks.global_step(model)


budget = ks.StopAfter(hours=1 + index)
store = key_values_of(backend)
store.put(f"said_by/{index}", f"worker {index}")
found = [store.get(f"said_by/{n}", 60) for n in range(len(addresses))]
rows = {
    "found": found,
    "nothing": store.get("said_by/none", 0.1),
    "one_has_more": fitted([budget, Recorder(5)][: 2 - index]),
    "other_arguments": fitted([budget, ks.StopAtStep(5 + index)]),
    "other_order": fitted([Recorder(ks.EverySecs(s)) for s in (90, 900)][:: 1 - 2 * index]),
    "other_data": fitted([budget], batches=8 - index),
    "alike": fitted([budget, ks.StopAtStep(5)]),
}
place = os.environ["REPORT"]
reports = [ks.StepCSVLogger(f"{place}.csv", 1), ks.StepTensorBoard(f"{place}_logs", 1)]
if backend == "tensorflow":
    rows["reports_at_other_steps"] = fitted([ks.StepHistory(2 + index)])
else:
    rows["reports_of_one"] = fitted([budget, ks.StopAtStep(5), *reports][: 4 - 2 * index])
    rows["nothing_but_reports"] = fitted([ks.StopAtStep(5), *reports][: 3 - 2 * index])
    nowhere = ks.StepCSVLogger(f"{__file__}/log.csv", 1)
    rows["reports_nowhere"] = fitted([budget, nowhere][: 2 - index])
if backend == "torch" or IS_TF_KERAS:  # elsewhere Keras itself waits before train begin
    roll_call.WAITED_FOR = roll_call._AT_ONCE = 0.5
    rows["one_is_missing"] = fitted([budget], comes=index == 0)
store.put(f"is_done/{index}", "")
assert all(store.get(f"is_done/{n}", 60) == "" for n in range(len(addresses)))
report(**rows)
if backend == "torch":
    torch.distributed.destroy_process_group()
