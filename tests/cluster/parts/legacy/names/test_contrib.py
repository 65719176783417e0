"""Tables of tf.contrib.lookup."""

from __future__ import annotations

import pytest

from ps_train.parts.legacy.names import contrib
from tests.tensorflow_mode import tf


def test_a_hash_table_has_its_initializer_by_its_old_name():
    """`table.init.run()`; the third argument is the name under which graphs share it."""
    with tf.Graph().as_default(), tf.Session() as session:
        content = tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2])
        table = contrib.HashTable(content, -1, "letters", "of_letters")
        table.init.run()
        assert session.run(table.lookup(tf.constant(["b", "z"]))).tolist() == [2, -1]
        assert table.resource_handle.op.get_attr("shared_name") == b"letters" and table.name == "of_letters"
        assert contrib.HashTable(content, -1).resource_handle.op.get_attr("shared_name") not in (b"", b"letters")


@pytest.mark.parametrize(("kind", "keys"), [
    (contrib.MutableHashTable, {}), (contrib.MutableDenseHashTable, {"empty_key": 0, "deleted_key": -1})])
def test_a_mutable_table_takes_a_shared_name(kind, keys):
    """By name, as in 1.3 to 1.14."""
    with tf.Graph().as_default(), tf.Session() as session:
        tables = [kind(tf.int64, tf.float32, 0.5, shared_name=name, checkpoint=False, **keys) for name in ("t", None)]
        session.run(tables[0].insert(tf.constant([3], tf.int64), tf.constant([7.0])))
        assert session.run(tables[0].lookup(tf.constant([3, 4], tf.int64))).tolist() == [7.0, 0.5]
        assert [table.resource_handle.op.get_attr("shared_name") for table in tables] == [b"t", b""]
