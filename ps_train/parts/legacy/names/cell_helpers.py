"""Private functions of `tf.contrib.rnn` and `tf.contrib.seq2seq` that scripts with cells of their own import.

    from tensorflow.contrib.rnn.python.ops.core_rnn_cell_impl import _linear, _checked_scope        1.1
    from tensorflow.contrib.seq2seq.python.ops.attention_wrapper import _prepare_memory, _maybe_mask_score
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.parts.legacy.names.decoding import _by_step as _unstack_ta

__all__ = ["_checked_scope", "_create_zero_outputs", "_get_concat_variable", "_get_sharded_variable",
           "_maybe_mask_score", "_prepare_memory", "_unstack_ta"]


@contextlib.contextmanager
def _checked_scope(cell: Any, scope: Any, reuse: bool | None = None, **kwargs: Any) -> Iterator[tf.VariableScope]:
    """Enters the variable scope of a cell, which has to be the same in each of its calls.

    Raises:
      ValueError: it was called in another scope before.
    """
    with tf.variable_scope(scope, reuse=reuse, **kwargs) as entered:
        before = vars(cell).setdefault("_scope_of_its_calls", entered.name)
        if before != entered.name:
            raise ValueError(f"{type(cell).__name__} was called in the scope {before!r} before, and is now in "
                             f"{entered.name!r}: make another cell, or give the same scope")
        yield entered


def _get_sharded_variable(name: str, shape: list[int], dtype: Any, num_shards: int) -> list[Any]:
    """Returns the rows of a variable as several, of which the first ones have one more if they are not equal."""
    if num_shards > shape[0]:
        raise ValueError(f"Too many shards: shape={shape}, num_shards={num_shards}")
    parts = np.array_split(np.arange(shape[0]), num_shards)
    return [tf.get_variable(f"{name}_{place}", [len(part), *shape[1:]], dtype=dtype)
            for place, part in enumerate(parts)]


def _get_concat_variable(name: str, shape: list[int], dtype: Any, num_shards: int) -> Any:
    """Returns the same as one tensor."""
    shards = _get_sharded_variable(name, shape, dtype, num_shards)
    return shards[0] if len(shards) == 1 else tf.concat(shards, 0, name=f"{name}/concat")


def _prepare_memory(memory: Any, memory_sequence_length: Any = None, memory_mask: Any = None,
                    check_inner_dims_defined: bool = True) -> Any:
    """Returns an attention's memory, [batch, time, ...], with zeros behind the end; until 1.12 without the mask."""
    if isinstance(memory_mask, bool):
        memory_mask, check_inner_dims_defined = None, memory_mask
    memory = tf.nest.map_structure(lambda part: tf.convert_to_tensor(part, name="memory"), memory)
    first = tf.nest.flatten(memory)[0]
    if memory_sequence_length is not None:
        memory_mask = tf.sequence_mask(memory_sequence_length, tf.shape(first)[1])

    def prepared(part: tf.Tensor) -> tf.Tensor:
        if check_inner_dims_defined and not part.shape[2:].is_fully_defined():
            raise ValueError(f"Expected memory {part.name} to have fully defined inner dims, but saw {part.shape}")
        if memory_mask is None:
            return part
        mask = tf.cast(memory_mask, part.dtype)
        return part * tf.reshape(mask, tf.concat([tf.shape(mask), tf.ones([tf.rank(part) - 2], tf.int32)], 0))
    return tf.nest.map_structure(prepared, memory)


def _maybe_mask_score(score: tf.Tensor, memory_sequence_length: Any = None, memory_mask: Any = None,
                      score_mask_value: Any = None) -> tf.Tensor:
    """Returns the scores [batch, time], with a value where the memory has ended; until 1.12 the third argument."""
    if memory_mask is not None and score_mask_value is None:
        memory_mask, score_mask_value = None, memory_mask
    if memory_sequence_length is not None:
        memory_mask = tf.sequence_mask(memory_sequence_length, tf.shape(score)[1])
    if memory_mask is None:
        return score
    return tf.where(memory_mask, score, score_mask_value * tf.ones_like(score))


def _create_zero_outputs(size: Any, dtype: Any, batch_size: Any) -> Any:
    """Returns zeros [batch_size, ...] of the sizes and types of a decoder's outputs."""
    return tf.nest.map_structure(
        lambda shape, kind: tf.zeros([batch_size, *tf.TensorShape(shape).as_list()], kind), size, dtype)
