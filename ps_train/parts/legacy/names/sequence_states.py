"""Segments of long sequences with a state from segment to segment, of tf.contrib.training: truncated backpropagation.

A sequence becomes segments of `num_unroll` steps. A barrier holds each one until the state is there with which it
begins: the first one's is an initial state, and `save_state` gives the next one its own. A batch has one segment each
of several sequences.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.ops import data_flow_ops, sparse_ops  # the barrier and the map have no public names

_COLUMNS = ("length", "total_length", "next_key", "sequence", "sequence_count")
_OF_CONTEXT = "_context_in_seq_"
_store_sparse = sparse_ops._add_many_sparse_to_tensors_map  # noqa: SLF001
_restore_sparse = sparse_ops._take_many_sparse_from_tensors_map  # noqa: SLF001
_UNEQUAL = "the sequences of an example must be equally long"


class NextQueuedSequenceBatch:
    """A batch of segments, the tensors of which are attributes: `SequenceQueueingStateSaver.next_batch`."""

    def __init__(self, state_saver: SequenceQueueingStateSaver) -> None:
        """Adds to the graph what takes a batch."""
        self._saver = state_saver
        batch_size, allow_small_batch = state_saver.batch_size, state_saver.allow_small_batch
        #: [batch_size] int64: the position of the sequences in the order in which they came.
        #: [batch_size] string: "00000_of_00002:" and so on, before the key of the sequence.
        self.insertion_index, self.key, values = state_saver.barrier.take_many(
            batch_size, allow_small_batch, name="BarrierTakeMany")
        received = dict(zip(state_saver.columns, values))
        #: [batch_size] int32: the steps of each segment, and of its whole sequence, without padding.
        self.length, self.total_length = received["length",], received["total_length",]
        #: [batch_size] string: the keys of the segments behind these, "STOP:" and the key of the sequence at its end.
        self.next_key = received["next_key",]
        #: [batch_size] int32: the number of each segment in its sequence, and of all its segments.
        self.sequence, self.sequence_count = received["sequence",], received["sequence_count",]
        #: A scalar, int32.
        self.batch_size = tf.squeeze(tf.shape(self.length))
        #: Name -> [batch_size, num_unroll, ...] and -> [batch_size, ...].
        self.sequences, self.context, states = (
            {name: received[kind, name] for kind, name in (column for column in received if len(column) > 1)
             if kind == wanted} for wanted in ("sequence", "context", "state"))
        self._is_done = self.sequence + 1 >= self.sequence_count
        # Each sequence that is over makes room for another one.
        num_done = tf.reduce_sum(tf.cast(self._is_done, tf.int32))
        with tf.control_dependencies([state_saver.tokens.dequeue_many(num_done)]):
            self._states = {name: tf.identity(value) for name, value in states.items()}

    def state(self, state_name: str) -> tf.Tensor:
        """Returns the states [batch_size, ...] with which the segments begin."""
        return self._states[state_name]

    def save_state(self, state_name: str, value: tf.Tensor, name: str | None = None) -> tf.Operation:
        """Returns what gives the next segments their states [batch_size, ...]; run it with every batch."""
        if state_name not in self._states:
            raise KeyError(f"state was not declared: {state_name}")
        with tf.name_scope(name, "InputQueueingStateSaver_SaveState", [value]), \
                tf.colocate_with(self._saver.tokens.queue_ref):
            value, state = tf.identity(value), self._states[state_name]
            value.shape.assert_is_compatible_with(state.shape)
            goes_on = tf.reshape(tf.where(tf.logical_not(self._is_done)), [-1])
            with tf.control_dependencies([tf.debugging.assert_equal(
                    tf.shape(value), tf.shape(state), message=f"shape of the state {state_name}")]):
                kept = tf.gather(value, goes_on)
            return self._saver.insert(("state", state_name), tf.gather(self.next_key, goes_on), kept)


class SequenceQueueingStateSaver:
    """Cuts sequences into segments and keeps the states between them; see the module.

    It stands for its queue in a `tf.train.QueueRunner(saver, [saver.prefetch_op])`.

    Args:
      batch_size: an int, or a scalar int32.
      num_unroll: the steps of a segment.
      input_length: the number of steps without padding, a scalar int32.
      input_key: a scalar string, another one for each sequence.
      input_sequences: name -> [steps, ...], where the number of steps is a multiple of `num_unroll`.
      input_context: name -> what all segments have.
      initial_states: name -> the state with which a sequence begins.
      capacity: the number of sequences that are held; None for any.
      allow_small_batch: whether a batch may be smaller at the end of the input.
      name: of the scope.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: a name or a shape is not allowed, or the capacity is below the batch size.
    """

    def __init__(self, batch_size: Any, num_unroll: int, input_length: Any, input_key: Any,
                 input_sequences: Mapping[str, Any], input_context: Mapping[str, Any],
                 initial_states: Mapping[str, Any], capacity: int | None = None, allow_small_batch: bool = False,
                 name: str | None = None) -> None:
        if capacity is not None and isinstance(batch_size, tf.Tensor):
            with tf.control_dependencies([tf.debugging.assert_greater_equal(
                    capacity, batch_size, message="a batch has to fit in: capacity is less than batch_size")]):
                input_key = tf.identity(input_key)
        elif capacity is not None and capacity < batch_size:
            raise ValueError(f"a batch has to fit in: got capacity={capacity}, batch_size={batch_size}")
        if not input_sequences or not initial_states:
            raise ValueError("SequenceQueueingStateSaver needs at least one sequence and one initial state, got "
                             f"{list(input_sequences)} and {list(initial_states)}")
        self.batch_size, self.num_unroll, self.allow_small_batch = batch_size, num_unroll, allow_small_batch
        self.tokens = tf.FIFOQueue(-1 if capacity is None else capacity, [tf.int32], [[]])
        self._prefetch_op: tf.Operation | None = None
        self._next_batch: NextQueuedSequenceBatch | None = None
        with tf.colocate_with(self.tokens.queue_ref), tf.name_scope(name, "InputQueueingStateSaver") as self.name:
            self._states = _named("state", initial_states)
            self._context = _named("context", input_context)
            sequences = _named("sequence", input_sequences, first_axis=1)
            self._key, length = _scalar(input_key, tf.string), _scalar(input_length, tf.int32)
            self._padded, self._sequences = _of_whole_segments(sequences, num_unroll)
            with tf.control_dependencies([tf.debugging.assert_less_equal(
                    length, self._padded, message="input_length is greater than the length of the sequences")]):
                self._length = tf.identity(length)
            self._create_barrier()

    def _create_barrier(self) -> None:
        types, shapes = {(name,): tf.int32 for name in _COLUMNS}, {(name,): [] for name in _COLUMNS}
        types["next_key",] = tf.string
        for kind, values in (("sequence", self._sequences), ("context", self._context), ("state", self._states)):
            for name, value in values.items():
                shape = value.shape.as_list()
                types[kind, name], shapes[kind, name] = value.dtype, shape
                if kind == "sequence":
                    shapes[kind, name] = [self.num_unroll, *shape[1:]]
        self.columns = list(types)
        self.barrier = data_flow_ops.Barrier(list(types.values()), list(shapes.values()))

    def insert(self, column: tuple[str, ...], keys: tf.Tensor, values: tf.Tensor) -> tf.Operation:
        """Returns what puts values into a column of the segments with these keys."""
        return self.barrier.insert_many(self.columns.index(column), keys, values)

    @property
    def prefetch_op(self) -> tf.Operation:
        """What takes in one sequence."""
        if self._prefetch_op is None:
            with tf.name_scope(None), tf.name_scope(self.name), tf.colocate_with(self.tokens.queue_ref):
                self._prefetch_op = self._prefetch()
        return self._prefetch_op

    def _prefetch(self) -> tf.Operation:
        count, unroll = self._padded // self.num_unroll, self.num_unroll
        number, each = tf.range(count), tf.ones([count], tf.int32)
        keys = tf.strings.join([tf.strings.as_string(number, width=5, fill="0"), "_of_",
                                tf.strings.as_string(count, width=5, fill="0"), ":", self._key])
        values = {
            ("sequence",): number, ("sequence_count",): count * each, ("total_length",): self._length * each,
            ("length",): tf.clip_by_value(self._length - unroll * number, 0, unroll),
            ("next_key",): tf.concat([keys[1:], [tf.strings.join(["STOP:", self._key])]], 0)}
        for name, value in self._sequences.items():
            values["sequence", name] = tf.reshape(value, tf.stack([count, unroll, *value.shape.as_list()[1:]]))
        for name, value in self._context.items():
            values["context", name] = tf.tile(value[tf.newaxis], tf.stack([count, *([1] * value.shape.rank)]))
        inserted = {column: self.insert(column, keys, value) for column, value in values.items()}
        token = self.tokens.enqueue(0)
        with tf.control_dependencies([inserted["sequence",], token]):
            begun = [self.insert(("state", name), keys[:1], value[tf.newaxis])
                     for name, value in self._states.items()]
        return tf.group(token, *inserted.values(), *begun, name="StateSaverPrefetchGroup")

    @property
    def next_batch(self) -> NextQueuedSequenceBatch:
        """The batch; it is one and the same at each call."""
        self.prefetch_op  # noqa: B018 (it is added to the graph before)
        if self._next_batch is None:
            with tf.name_scope(None), tf.name_scope(self.name):
                self._next_batch = NextQueuedSequenceBatch(self)
        return self._next_batch

    def close(self, cancel_pending_enqueues: bool = False, name: str | None = None) -> tf.Operation:
        """Returns what says that no further sequences come; the segments of those that are there still do."""
        with tf.name_scope(name, "SQSSClose") as name:
            return tf.group(self.barrier.close(cancel_pending_enqueues), self.tokens.close(cancel_pending_enqueues),
                            name=name)


def _named(kind: str, values: Mapping[str, Any], first_axis: int = 0) -> dict[str, tf.Tensor]:
    """Returns name -> tensor, sorted; their shapes must be known from an axis on."""
    if not isinstance(values, dict):
        raise TypeError(f"the {kind}s must be a dict, got {values!r}")
    for name in values:
        if not isinstance(name, str):
            raise TypeError(f"the name of a {kind} must be text, got {name!r}")
        if ":" in name:
            raise ValueError(f"the name of a {kind} must have no colon, got {name!r}")
    tensors = {name: tf.convert_to_tensor(value, name=f"{kind}_{name}") for name, value in sorted(values.items())}
    for name, value in tensors.items():
        if not value.shape[first_axis:].is_fully_defined():
            raise ValueError(f"Shape for {kind} {name} is not fully defined{' behind the first dimension' * first_axis}"
                             f": {value.shape}")
    return tensors


def _scalar(value: Any, dtype: tf.DType) -> tf.Tensor:
    value = tf.convert_to_tensor(value)
    if value.dtype != dtype:
        raise TypeError(f"the length must be int32 and the key a string, got {value.dtype.name} for {dtype.name}")
    with tf.control_dependencies([tf.debugging.assert_rank(value, 0)]):
        return tf.ensure_shape(value, [])


def _of_whole_segments(sequences: Mapping[str, tf.Tensor], num_unroll: int) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Returns the number of steps, of which each tensor must have as many, and the tensors."""
    steps = tf.shape(next(iter(sequences.values())))[0]
    checked = {}
    for name, value in sequences.items():
        own = tf.shape(value)[0]
        with tf.control_dependencies([
                _assert_multiple(name, own, num_unroll),
                tf.debugging.assert_equal(own, steps, message=_UNEQUAL)]):
            checked[name] = tf.identity(value)
    return steps, checked


def _assert_multiple(name: str, steps: tf.Tensor, num_unroll: int) -> tf.Operation:
    return tf.Assert(tf.equal(steps % num_unroll, 0) & tf.not_equal(steps, 0), [
        f"the steps of {name} must fill whole segments of num_unroll={num_unroll}; pad=True adds what is missing. They "
        "are", steps])


def batch_sequences_with_states(input_key: Any, input_sequences: Mapping[str, Any], input_context: Mapping[str, Any],
                                input_length: Any, initial_states: Mapping[str, Any], num_unroll: int, batch_size: Any,
                                num_threads: int = 3, capacity: int = 1000, allow_small_batch: bool = True,
                                pad: bool = True, make_keys_unique: bool = False,
                                make_keys_unique_seed: int | None = None,
                                name: str | None = None) -> NextQueuedSequenceBatch:
    """Returns the batches of a `SequenceQueueingStateSaver` that a queue runner fills.

    Args:
      input_key: see there, as all those that are not here.
      input_sequences: name -> [steps, ...], which may be sparse.
      input_context: name -> what all segments have. As in TensorFlow 1, sparse ones are taken out of this dict.
      input_length: None, with `pad`, for the number of steps.
      num_threads: of the queue runner.
      pad: whether zeros are added behind the last step; else their number must be a multiple of `num_unroll`.
      make_keys_unique: whether a random number is added to the key.
      make_keys_unique_seed: for this number.
    """
    with tf.name_scope(name, "batch_sequences_with_states"):
        if pad:
            length, sequences = _padded(input_sequences, num_unroll)
            input_length = length if input_length is None else input_length
        else:
            sequences = {key: _whole(key, value, num_unroll) for key, value in input_sequences.items()}
        _context_into_sequences(input_context, sequences, num_unroll)
        maps = {key: _store_sparse(value) for key, value in sorted(sequences.items()) if _is_sparse(value)}
        if make_keys_unique:
            number = tf.random_uniform([], maxval=100000000, dtype=tf.int32, seed=make_keys_unique_seed)
            input_key = tf.strings.join([input_key, tf.strings.as_string(number)])
        saver = SequenceQueueingStateSaver(batch_size, num_unroll, input_length, input_key, {**sequences, **maps},
                                           input_context, initial_states, capacity, allow_small_batch)
        _add_queue_runner(saver, num_threads)
        batch = saver.next_batch
        for key, handles in maps.items():
            batch.sequences[key] = _sparse_segments(handles.op, batch.sequences[key], batch_size, num_unroll)
        for key in [key for key in batch.sequences if key.startswith(_OF_CONTEXT)]:
            batch.context[key[len(_OF_CONTEXT):]] = _of_first_step(batch.sequences.pop(key))
        return batch


def _add_queue_runner(saver: SequenceQueueingStateSaver, num_threads: int) -> None:
    tf.summary.scalar(f"queue/{saver.barrier.name}/ready_segment_batches_",
                      tf.cast(saver.barrier.ready_size(), tf.float32))
    tf.train.add_queue_runner(tf.train.QueueRunner(
        saver, [saver.prefetch_op] * num_threads,
        queue_closed_exception_types=(tf.errors.OutOfRangeError, tf.errors.CancelledError)))


def _is_sparse(value: Any) -> bool:
    return isinstance(value, (tf.SparseTensor, tf.SparseTensorValue))


def _whole(name: str, value: Any, num_unroll: int) -> Any:
    """Returns a sequence that must have whole segments."""
    if not _is_sparse(value):
        value = tf.convert_to_tensor(value)
        with tf.control_dependencies([_assert_multiple(name, tf.shape(value)[0], num_unroll)]):
            return tf.identity(value)
    with tf.control_dependencies([_assert_multiple(name, value.dense_shape[0], num_unroll)]):
        return tf.SparseTensor(*map(tf.identity, (value.indices, value.values, value.dense_shape)))


def _padded(sequences: Mapping[str, Any], num_unroll: int) -> tuple[Any, dict[str, Any]]:
    """Returns the number of steps of sequences, and them with as many zeros behind it that they have whole segments."""
    if not isinstance(num_unroll, numbers.Integral):
        raise ValueError(f"num_unroll must be a whole number, got {num_unroll!r}")
    if not isinstance(sequences, dict):
        raise TypeError(f"the sequences must be a dict, got {sequences!r}")
    tensors = {key: value if _is_sparse(value) else tf.convert_to_tensor(value)
               for key, value in sorted(sequences.items())}
    lengths = [tf.shape(value)[0] for value in tensors.values() if not _is_sparse(value)]
    if lengths:
        with tf.control_dependencies([tf.debugging.assert_equal(
                each, lengths[0], message=_UNEQUAL) for each in lengths[1:]]):
            length = tf.identity(lengths[0])
    else:
        length = tf.reduce_max([tf.cast(value.dense_shape[0], tf.int32) for value in tensors.values()] or [0])
    padded_length = length + -length % num_unroll
    padded = {}
    for key, value in tensors.items():
        if _is_sparse(value):
            shape = tf.concat([[tf.cast(padded_length, tf.int64)], value.dense_shape[1:]], 0)
            padded[key] = tf.SparseTensor(value.indices, value.values, shape)
        else:
            shape = tf.concat([[padded_length - tf.shape(value)[0]], tf.shape(value)[1:]], 0)
            zero = tf.constant("" if value.dtype == tf.string else 0, value.dtype)
            padded[key] = tf.concat([value, tf.fill(shape, zero)], 0)
    return length, padded


def _context_into_sequences(context: dict[str, Any], sequences: dict[str, Any], num_unroll: int) -> None:
    """Makes sequences of sparse context: it stands in the first step of each segment."""
    keys = sorted(key for key, value in context.items() if _is_sparse(value))
    if not keys:
        return
    first = next(iter(sequences.values()), None)
    steps = tf.constant(1, tf.int64) if first is None else tf.cast(
        first.dense_shape[0] if _is_sparse(first) else tf.shape(first)[0], tf.int64)
    for key in keys:
        value = tf.SparseTensor(*context.pop(key)) if isinstance(
            context[key], tf.SparseTensorValue) else context.pop(key)
        starts = tf.range(0, steps, num_unroll)
        count, entries = tf.size(starts), tf.shape(value.indices)[0]
        indices = tf.concat([tf.repeat(starts, entries)[:, tf.newaxis], tf.tile(value.indices, [count, 1])], 1)
        sequences[_OF_CONTEXT + key] = tf.SparseTensor(
            indices, tf.tile(value.values, [count]), tf.concat([[steps], value.dense_shape], 0))


def _sparse_segments(store: tf.Operation, handles: tf.Tensor, batch_size: Any, num_unroll: int) -> tf.SparseTensor:
    """Returns the sparse tensor [batch_size, num_unroll, ...] of handles [batch_size, num_unroll]."""
    flat = _restore_sparse(store, tf.reshape(handles, [-1]))
    place = flat.indices[:, 0]
    indices = tf.concat([tf.stack([place // num_unroll, place % num_unroll], 1), flat.indices[:, 1:]], 1)
    sizes = tf.stack([tf.cast(batch_size, tf.int64), tf.constant(num_unroll, tf.int64)])
    return tf.SparseTensor(indices, flat.values, tf.concat([sizes, flat.dense_shape[1:]], 0))


def _of_first_step(value: tf.SparseTensor) -> tf.SparseTensor:
    """Returns [batch_size, ...] of a sparse tensor [batch_size, num_unroll, ...] that has entries in step 0 only."""
    shape = tf.concat([value.dense_shape[:1], value.dense_shape[2:]], 0)
    return tf.SparseTensor(tf.concat([value.indices[:, :1], value.indices[:, 2:]], 1), value.values, shape)
