"""Which ps has the row of an id, and which row of it that is in a fixed table.

    dynamic   a hash of the id says which ps
    fixed     each num_ps ids are a block, which has one row on each ps; its number is the row number on all of them.
              A hash of that number says on which ps a block begins:

                  ids     0 1 2   3 4 5   6 7 8   9 10 11
                  on ps   0 1 2   1 2 0   0 1 2   0  1  2

So ids with a pattern, such as those with a time in their upper bits, are on all ps alike.
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from ps_train.parts.tables.rows.scrambling import fold

# How a checkpoint's rows were dealt. Another way needs another name, or its rows would be looked for where none are.
MODULO, MIXED = "id % num_ps", "mixed"
# Other factors than that of the index's keys: ids of one ps must differ in all bits of their keys, or they would fill a
# part of its buckets only. These two are of splitmix64 (Steele et al. 2014).
_FACTORS = (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)
_HALF, _LOW_HALF = 32, 2**32 - 1


def owner_of(ids: tf.Tensor, num_ps: int, *, is_dynamic: bool) -> tf.Tensor:
    """Returns the number of the ps that has the row of each id int64 [n] of a table, int32 [n]."""
    if is_dynamic:
        return tf.cast(_share(ids, num_ps), tf.int32)
    block = fixed_row_of(ids, num_ps)
    place = ids - block * num_ps + _share(block, num_ps)
    return tf.cast(tf.where(place < num_ps, place, place - num_ps), tf.int32)


def fixed_row_of(ids: tf.Tensor, num_ps: int) -> tf.Tensor:
    """Returns the row numbers of ids int64 [n] of a fixed table on their ps, int64 [n]."""
    return ids // num_ps if num_ps > 1 else ids  # a division takes as long as a gather


def fixed_id_of(rows: tf.Tensor, ps: int, num_ps: int) -> tf.Tensor:
    """Returns the ids of row numbers int64 [n] of a fixed table on a ps, int64 [n]."""
    place = ps - _share(rows, num_ps)
    return rows * num_ps + tf.where(place < 0, place + num_ps, place)


def _share(numbers: tf.Tensor, count: int) -> tf.Tensor:
    """Returns for each number int64 [n] one from 0 to count - 1, int64 [n], each about equally often."""
    for factor in _FACTORS:
        numbers = fold(numbers) * tf.constant(factor, tf.int64)
    top = tf.bitwise.bitwise_and(tf.bitwise.right_shift(numbers, tf.constant(_HALF, tf.int64)),
                                 tf.constant(_LOW_HALF, tf.int64))
    # Instead of a remainder, whose division takes longer than all of the above (Lemire 2019).
    return tf.bitwise.right_shift(top * count, tf.constant(_HALF, tf.int64))
