"""Images with their labels, and the share of them that a worker gets."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from data.examples import Examples
from tests.errors import raises


def _numbered(num):
    """Examples whose image and label both say which one they are."""
    labels = np.arange(num, dtype=np.int32)
    return Examples(np.repeat(labels[:, None], 4, axis=1).astype(np.uint8), labels)


@given(st.integers(1, 200).flatmap(lambda num: st.tuples(st.just(num), st.integers(1, num))))
def test_shards_are_a_partition(num_and_count):
    """Every example is in exactly one worker's shard, with its own label, and shards are even."""
    num, count = num_and_count
    shards = [_numbered(num).shard(index, count) for index in range(count)]
    assert sorted(label for shard in shards for label in shard.labels) == list(range(num))
    assert all((shard.images == shard.labels[:, None]).all() for shard in shards)
    sizes = {len(shard.labels) for shard in shards}
    assert max(sizes) - min(sizes) <= 1


def test_shard_is_no_copy():
    """A worker's shard is a view: sharding costs no memory."""
    examples = _numbered(10)
    assert np.shares_memory(examples.shard(1, 3).images, examples.images)


def test_empty_shard_is_an_error():
    """A worker with nothing to learn from would wait forever; it gets an error instead."""
    with raises("too_few_examples"):
        _numbered(3).shard(3, 4)


def test_rows():
    """Rows have the pixels of an image in reading order."""
    images = np.arange(2 * 3 * 2).reshape(2, 3, 2)
    rows = Examples(images, np.zeros(2)).as_rows()
    assert rows.images.tolist() == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]
