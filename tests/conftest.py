"""Set-up that has to come before the backend is imported."""

import gc
import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")


def pytest_configure(config):
    """Two virtual CPU devices, for MirroredStrategy; they must come before first use."""
    if os.environ["KERAS_BACKEND"] != "tensorflow":
        return
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    _leave_pipelines_untuned(tf)


def _leave_pipelines_untuned(tf):
    """Spares the tests up to a minute's wait wherever an iterator is freed.

    Its end waits for the thread that tunes its pipeline. That one is woken, sees that it has not
    been cancelled quite yet, and sleeps on until its next turn (seen with TensorFlow 2.21).
    """
    from tensorflow.python.data.ops import dataset_ops

    untuned = tf.data.Options()
    untuned.autotune.enabled = False
    dataset_ops.DatasetV2._apply_debug_options = lambda dataset: dataset.with_options(untuned)


def pytest_collection_finish(session):
    """Spares each later collection of garbage what the imports made: half of its time."""
    gc.collect()
    gc.freeze()
