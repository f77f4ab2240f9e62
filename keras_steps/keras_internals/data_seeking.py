"""Passing over batches without reading them, where data can be indexed.

Each way draws the random numbers that reading would have drawn, and leaves the slicing, the
user's `__getitem__` or Keras's conversion out. Where Keras or a backend has changed it returns
0, and the batches are read.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import keras

_ARRAYS_ON_TENSORFLOW = (
    "_PrefetchDataset",
    "_OptionsDataset",
    "_OptionsDataset",
    "_ParallelMapDataset",
    "_ZipDataset",
)


def seek_next_pass(source: Any, batches: int, on_read: Callable[[int], object]) -> int:
    """Let the pass that a Keras 3 EpochIterator makes next begin so many batches later.

    Args:
        source: The EpochIterator.
        batches: How many.
        on_read: Told of each batch that a generator had to give, with their number so far.

    Returns:
        How many batches it will begin later: `batches`, or 0 for data of other kinds.
    """
    adapter = source.data_adapter
    if not batches:
        return 0
    if hasattr(adapter, "py_dataset"):
        return _seek_py_dataset(adapter, batches)
    if hasattr(adapter, "_first_batches") and callable(getattr(adapter, "generator", None)):
        return _seek_generator(adapter, batches, on_read)
    if not hasattr(adapter, "_inputs"):
        return 0
    if hasattr(source, "_distributed_dataset"):
        dataset = _without_first(source._distributed_dataset, batches, source._distribute_strategy)
        if dataset is None:
            return 0

        def get_once() -> Any:
            del source._get_iterator
            return dataset

        source._get_iterator = get_once
        return batches
    return _seek_arrays(adapter, batches) if keras.backend.backend() == "jax" else 0


def seek_in_handler(handler: Any, batches: int) -> int:
    """Let the data of a tf_keras DataHandler begin so many batches later, if they are arrays.

    Arrays are one iterator over all epochs, so that without this a late epoch would take
    as long to reach as all those before it took to read.
    """
    adapter = handler._adapter
    if not batches or adapter.should_recreate_iterator():
        return 0
    dataset = handler._dataset
    if getattr(dataset, "_original_dataset", dataset) is not getattr(adapter, "_dataset", None):
        return 0  # class weights are another layer
    import tensorflow as tf

    dataset = _without_first(dataset, batches, tf.distribute.get_strategy())
    if dataset is None:
        return 0
    handler._dataset = dataset
    return batches


def seek_within(iterator: Any, batches: int) -> int:
    """Move the iterator of a torch DataLoader with indices and without workers onward.

    Its sampler and its batches are what it goes through, in the process that trains.
    """
    if type(iterator).__name__ != "_SingleProcessDataLoaderIter" or iterator._dataset_kind != 0:
        return 0
    done = sum(1 for _ in itertools.islice(iterator._sampler_iter, batches))
    iterator._num_yielded += done
    return done


def replay_pass(data: Any, batches: int | None) -> None:
    """Do to the order of data what an iterator over them did that a loop has made.

    A tf.data.Dataset counts its iterators, a torch DataLoader has generators of its own.

    Args:
        data: The data of an epoch that is done.
        batches: How many a loop had read when it left them; None: all.
    """
    if hasattr(data, "element_spec"):
        iter(data)
    elif hasattr(data, "_index_sampler"):
        replay_sampler(data, 1, twice=False, asked=batches)


def replay_sampler(loader: Any, passes: int, *, twice: bool, asked: int | None) -> None:
    """Let a torch DataLoader's own generator or sampler go through so many passes.

    Those of torch take a seed from the global random state for each pass, unless they have
    a generator.

    Args:
        loader: A DataLoader. That of an IterableDataset has no sampler; what the stream itself
            remembers of earlier passes is its own affair.
        passes: How many passes there were.
        twice: Whether an iterator more was made after each, of which nothing was read.
        asked: How many batches each was asked for; None: for one more than it has. Torch's
            RandomSampler draws another order then.
    """
    import torch

    has_indices = not isinstance(loader.dataset, torch.utils.data.IterableDataset)
    samplers = [loader.sampler, loader.batch_sampler] if has_indices else []
    are_known = all(s is None or type(s).__module__ == "torch.utils.data.sampler" for s in samplers)
    if are_known and all(getattr(s, "generator", None) is None for s in (*samplers, loader)):
        return
    ahead = loader.num_workers * (loader.prefetch_factor or 0)
    taken = [None if asked is None else asked + ahead, *([ahead] if twice else [])]
    for count in taken * passes:
        torch.empty((), dtype=torch.int64).random_(generator=loader.generator)  # for workers
        for _ in itertools.islice(loader._index_sampler, count) if has_indices else ():
            pass


class _Hollow:
    """Takes the place of a PyDataset, and has nothing in its batches."""

    def __init__(self, num_batches: int | None) -> None:
        self.num_batches = num_batches

    def __getitem__(self, index: int) -> tuple[int]:
        return (0,)


def _seek_py_dataset(adapter: Any, batches: int) -> int:
    """Keras 3.12 and 3.15: `_finite_generator` shuffles indices, and reads `self.py_dataset`."""
    if adapter.enqueuer is not None:
        return 0
    size = adapter.py_dataset.num_batches
    name = "_infinite_generator" if size is None else "_finite_generator"
    theirs = getattr(adapter, name)

    def sought() -> Iterator[Any]:
        delattr(adapter, name)
        generator = theirs()
        dataset, adapter.py_dataset = adapter.py_dataset, _Hollow(size)
        try:
            for _ in range(batches):
                next(generator)
        finally:
            adapter.py_dataset = dataset
        yield from generator

    setattr(adapter, name, sought)
    return batches


def _seek_generator(adapter: Any, batches: int, on_read: Callable[[int], object]) -> int:
    """Keras 3.12 and 3.15: each pass calls `generator`, and converts what it gives."""
    theirs = adapter.generator

    def sought() -> Iterator[Any]:
        adapter.generator = theirs
        iterator = iter(theirs())
        for done, _ in enumerate(itertools.islice(iterator, batches), start=1):
            on_read(done)
        return iterator

    adapter.generator = sought
    return batches


def _seek_arrays(adapter: Any, batches: int) -> int:
    """Keras 3.12 to 3.16 on JAX: `_get_iterator` draws indices, and calls what slices."""
    theirs = adapter._get_iterator

    def sought(slice_and_convert: Any, inputs: Any) -> Iterator[Any]:
        del adapter._get_iterator
        is_there = False

        def slice_or_not(sliceable: Any, indices: Any) -> Any:
            return slice_and_convert(sliceable, indices=indices) if is_there else 0

        generator = theirs(slice_or_not, inputs)
        for _ in range(batches):
            next(generator)
        is_there = True
        yield from generator

    adapter._get_iterator = sought
    return batches


def _without_first(dataset: Any, batches: int, strategy: Any) -> Any:
    """The tf.data pipeline of arrays, with its first batches left out before they are sliced.

    Keras 3.12 and 3.15 and tf_keras 2.21 zip a dataset of indices with the arrays, and
    gather from these in a map. The indices keep the functions that were traced for them, and
    with these the seeds of their random operations. None: it is made in another way.
    """
    import tensorflow as tf

    layer = getattr(dataset, "_original_dataset", dataset)
    layers = [layer]
    while hasattr(layer, "_input_dataset"):
        layer = layer._input_dataset
        layers.append(layer)
    if tuple(type(each).__name__ for each in layers) != _ARRAYS_ON_TENSORFLOW:
        return None
    indices, inputs = layer._datasets
    gathers = layers[-2]._map_func._func
    rest = tf.data.Dataset.zip((indices.skip(batches), inputs))
    rest = rest.map(gathers, num_parallel_calls=tf.data.AUTOTUNE)
    rest = rest.with_options(layers[0].options()).prefetch(tf.data.AUTOTUNE)
    if layers[0] is dataset:
        return rest
    return strategy.experimental_distribute_dataset(rest)
