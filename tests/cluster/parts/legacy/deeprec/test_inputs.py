"""DeepRec's `ParquetDataset`: the columns of files as they were written, or an error."""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.parts.legacy.deeprec.inputs import ParquetDataset
from tests.errors import raises
from tests.tensorflow_mode import tf

pa = pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
pq = pytest.importorskip("pyarrow.parquet")

LARGE = 2**62 + 1  # which no float64 is


def written(folder, *tables):
    """Writes tables, dicts of columns, to a file each; returns their names."""
    names = [f"{folder}/{number}.parquet" for number, _ in enumerate(tables)]
    for name, columns in zip(names, tables):
        pq.write_table(pa.table(columns), name)
    return names


def read(*arguments, **options):
    """Returns the batches."""
    with tf.Graph().as_default(), tf.Session() as session:
        batch = tf.data.make_one_shot_iterator(ParquetDataset(*arguments, **options)).get_next()
        found = []
        while True:
            try:
                found.append(session.run(batch))
            except tf.errors.OutOfRangeError:
                return found


def test_columns_are_as_they_were_written(tmp_path):
    """Of the types in the first file, in batches that end with their file; a missing float is NaN."""
    first = {"id": [LARGE, 2, 3], "price": [1.5, None, 3.0], "site": ["a", "", "\u00fc"], "is_new": [True, False, True]}
    second = {"is_new": [True], "id": pa.array([4], pa.int32()), "price": pa.array([5], pa.int64()), "site": ["b"],
              "other": [0]}
    names = written(tmp_path, first, second)
    found = read(names, batch_size=2)
    assert [batch["id"].tolist() for batch in found] == [[LARGE, 2], [3], [4]]
    assert {name: values.dtype for name, values in found[0].items()} == {
        "id": np.int64, "price": np.float64, "site": object, "is_new": bool}
    np.testing.assert_array_equal(np.concatenate([batch["price"] for batch in found]), [1.5, np.nan, 3, 5])
    assert [text for batch in found for text in batch["site"]] == [b"a", b"", "\u00fc".encode(), b"b"]
    assert [batch["id"].tolist() for batch in read(names, 2, drop_remainder=True)] == [[LARGE, 2]]
    assert [batch["id"].tolist() for batch in read(names, 2, ["id"], 2, 1)] == [[3]]


@pytest.mark.parametrize(("column", "later", "problem"), [
    ([LARGE, None], [], "missing (null)"), ([True, None], [], "missing (null)"), (["a", None], [], "missing (null)"),
    ([1], [1.5], "does not fit int64"), (pa.array([1], pa.int32()), [2**40], "does not fit int32"),
    ([1], ["x"], "does not fit int64")])
def test_no_number_is_changed_without_a_word(tmp_path, column, later, problem):
    """Issue: a missing integer was -2^63, and took digits of the others; a type of a later file cut its numbers."""
    names = written(tmp_path, {"id": column}, *[{"id": later}] * bool(later))
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        read(names, batch_size=2)
    assert names[-1] in caught.value.message and "column 'id'" in caught.value.message
    assert problem in caught.value.message


def test_a_file_that_is_not_there_is_one_line(tmp_path):
    """When the graph is made."""
    with raises("input_file_missing"):
        ParquetDataset(f"{tmp_path}/none.parquet")
