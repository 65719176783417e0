"""`tf.contrib.training.bucket` and `bucket_by_sequence_length`: batches of examples that belong together.

Each bucket has a queue of its own, into which `num_threads` threads put one example after the other. Whenever one has
a batch, that goes into a last queue, from which the step takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Union

import tensorflow.compat.v1 as tf

_Tensors = Union[list, dict]


def bucket(tensors: _Tensors, which_bucket: Any, batch_size: Any, num_buckets: int, num_threads: int = 1,
           capacity: int = 32, bucket_capacities: Sequence[int] | None = None, shapes: Sequence | None = None,
           dynamic_pad: bool = False, allow_smaller_final_batch: bool = False, keep_input: Any = True,
           shared_name: str | None = None, name: str | None = None) -> tuple[tf.Tensor, Any]:
    """Returns the bucket, int [], and the batched tensors, as a list or dict like `tensors`.

    Args:
      tensors: those of one example.
      which_bucket: int32 [], the example's bucket.
      batch_size: of each bucket; or one number for all.
      num_buckets: how many there are.
      num_threads: that put examples into the buckets.
      capacity: of the buckets and of the last queue.
      bucket_capacities: of each bucket.
      shapes: of the tensors, if they are not known.
      dynamic_pad: whether tensors of several lengths are padded to the longest of a batch.
      allow_smaller_final_batch: whether the last batch of each bucket may be smaller.
      keep_input: bool [], whether the example is taken.
      shared_name: of the last queue.
      name: of the operations.
    """
    sizes = [int(batch_size)] * num_buckets if isinstance(batch_size, int) else [int(size) for size in batch_size]
    if len(sizes) != num_buckets:
        raise ValueError(f"batch_size has {len(sizes)} entries, for {num_buckets} buckets")
    with tf.name_scope(name, "bucket"):
        flat = [tf.convert_to_tensor(tensor) for tensor in tf.nest.flatten(tensors)]
        known = [tensor.shape for tensor in flat] if shapes is None else [tf.TensorShape(shape) for shape in shapes]
        make = tf.PaddingFIFOQueue if dynamic_pad else tf.FIFOQueue
        queues = [make(max(room, size), [tensor.dtype for tensor in flat], known, name=f"bucket_queue_{index}")
                  for index, (room, size) in enumerate(zip(bucket_capacities or [capacity] * num_buckets, sizes))]
        _run_queues(queues, flat, which_bucket, keep_input, num_threads)
        which, *batch = _batches(queues, sizes, known, capacity, allow_smaller_final_batch, shared_name)
        return which, tf.nest.pack_sequence_as(tensors, batch)


def _batches(queues: Sequence, sizes: Sequence[int], shapes: Sequence[tf.TensorShape], capacity: int, is_partial: bool,
             shared_name: str | None) -> list[tf.Tensor]:
    """Returns the bucket and the tensors of the next batch."""
    size = None if is_partial or len(set(sizes)) > 1 else sizes[0]
    top = tf.PaddingFIFOQueue(
        capacity, [tf.int32, *queues[0].dtypes], [[], *(_batched(shape, size) for shape in shapes)],
        shared_name=shared_name, name="top_queue")
    moves = [top.enqueue([index, *_list((queue.dequeue_up_to if is_partial else queue.dequeue_many)(count))])
             for index, (queue, count) in enumerate(zip(queues, sizes))]
    tf.train.add_queue_runner(tf.train.QueueRunner(
        top, moves, close_op=top.close(), queue_closed_exception_types=(
            tf.errors.OutOfRangeError, tf.errors.CancelledError)))
    tf.summary.scalar("fraction_of_full", tf.cast(top.size(), tf.float32) / capacity)
    return top.dequeue()


def _run_queues(queues: Sequence, flat: list, which_bucket: Any, keep_input: Any, num_threads: int) -> None:
    """Starts the threads that put examples into the buckets, when a session starts its queue runners."""
    def put() -> tf.Tensor:
        choices = [(tf.equal(which_bucket, index), _enqueue(queue, flat)) for index, queue in enumerate(queues)]
        return tf.case(choices, exclusive=True)
    step = tf.cond(tf.convert_to_tensor(keep_input), put, lambda: tf.constant(False))
    tf.train.add_queue_runner(tf.train.QueueRunner(
        queues[0], [step] * num_threads, close_op=tf.group(*(queue.close() for queue in queues)),
        cancel_op=tf.group(*(queue.close(cancel_pending_enqueues=True) for queue in queues)),
        queue_closed_exception_types=(tf.errors.OutOfRangeError, tf.errors.CancelledError)))


def _enqueue(queue: Any, flat: list) -> Callable[[], tf.Tensor]:
    def enqueue() -> tf.Tensor:
        with tf.control_dependencies([queue.enqueue(flat)]):
            return tf.constant(True)
    return enqueue


def _batched(shape: tf.TensorShape, size: int | None) -> tf.TensorShape:
    return tf.TensorShape([size]).concatenate(shape)


def _list(tensors: Any) -> list:
    return list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]


def bucket_by_sequence_length(input_length: tf.Tensor, tensors: _Tensors, batch_size: Any,
                              bucket_boundaries: Sequence[int], num_threads: int = 1, capacity: int = 32,
                              bucket_capacities: Sequence[int] | None = None, shapes: Sequence | None = None,
                              dynamic_pad: bool = False, allow_smaller_final_batch: bool = False,
                              keep_input: Any = True, shared_name: str | None = None,
                              name: str | None = None) -> tuple[tf.Tensor, Any]:
    """`bucket`, by the length of the example: returns the lengths, int [batch], and the batched tensors.

    Args:
      input_length: int32 [], the example's length.
      tensors: see `bucket`; and so are the arguments that are not here.
      batch_size: see `bucket`.
      bucket_boundaries: ascending; a bucket more than there are boundaries.
    """
    boundaries = list(bucket_boundaries)
    if not boundaries or boundaries != sorted(set(boundaries)):
        raise ValueError(f"bucket_boundaries must be ascending, and at least one; got {boundaries}")
    length = tf.cast(input_length, tf.int32)
    which = tf.reduce_sum(tf.cast(tf.greater_equal(length, tf.constant(boundaries, tf.int32)), tf.int32))
    _, (lengths, batch) = bucket(
        [length, tensors], which, batch_size, len(boundaries) + 1, num_threads, capacity, bucket_capacities,
        None if shapes is None else [tf.TensorShape([]), *shapes], dynamic_pad, allow_smaller_final_batch, keep_input,
        shared_name, name or "bucket_by_sequence_length")
    return lengths, batch
