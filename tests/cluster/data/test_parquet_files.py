"""The dataset plug-in for Parquet files: the same examples as those of the same rows in CSV."""

from __future__ import annotations

import json

import numpy as np
import pytest

from data import csv_files, parquet_files
from ps_train.parts.readers.files import growing
from tests.cluster.data.reading import read_examples
from tests.errors import raises

pa = pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
pq = pytest.importorskip("pyarrow.parquet")

SCHEMA = {"label": "click", "numbers": ["price", "age"], "categories": ["site", "zip"], "log_numbers": True}
COLUMNS = {"age": [30, None, 41, 7], "id": ["a", "b", "c", "d"], "site": ["a.com", None, "b.com", "ü"],
           "zip": [123, 4, None, 5], "click": [1, 0, 1, 0], "price": [2.5, 100, None, 3.25]}


@pytest.fixture
def write(tmp_path):
    """Writes schema and files, and returns the parameters."""
    def write(columns=COLUMNS, schema=SCHEMA):
        (tmp_path / "schema.json").write_text(json.dumps(schema))
        for name in ("train1", "train2", "eval1"):
            pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet", row_group_size=3)
        return {**parquet_files.DEFAULT_PARAMS, "data_dir": str(tmp_path), "batch_size": 8, "seed": 1,
                "on_bad_record": "stop"}

    return write


def test_the_examples_are_those_of_the_same_rows_in_csv(write, tmp_path):
    """Missing values, logarithms, and integers as categories."""
    params = write()
    lines = [",".join(COLUMNS), *(",".join("" if cell is None else str(cell) for cell in row)
                                  for row in zip(*COLUMNS.values()))]
    (tmp_path / "eval1.csv").write_text("\n".join(lines))
    (tmp_path / "train1.csv").write_text("\n".join(lines))
    parquet_files.prepare(params)
    features, labels = read_examples(parquet_files, "eval", params)
    of_csv, labels_of_csv = read_examples(csv_files, "eval", {
        **params, "train_files": "train*.csv", "eval_files": "eval*.csv"})
    np.testing.assert_array_equal(labels, labels_of_csv)
    assert features.keys() == of_csv.keys() == {"numbers", "ids"}
    for name, values in features.items():
        np.testing.assert_array_equal(values, of_csv[name])
    features, _ = read_examples(parquet_files, "train", params, count=2)
    assert len(features["ids"]) == 16


@pytest.mark.parametrize(("column", "values", "code"), [
    ("click", [1, 0, 2, 0], "bad_record"), ("click", [1, 0, None, 0], "value_missing"),
    ("price", [1.0, float("nan"), 1.0, 1.0], "bad_record"), ("age", ["x", "y", "1", "2"], "column_misfit")])
def test_a_wrong_value_is_one_line(write, tmp_path, column, values, code):
    """With the file, the rows and the column."""
    params = write({**COLUMNS, column: values})
    parquet_files.prepare(params)
    with raises(code) as caught:
        read_examples(parquet_files, "eval", params)
    assert f"{tmp_path}/eval1.parquet, rows 0 to " in str(caught.value) and repr(column) in str(caught.value)


def test_a_file_that_is_being_written_in_place_is_left_out_with_follow(write, tmp_path):
    """By the check at the start, and by an evaluation; without --follow the file is named."""
    params = write()
    for name in ("train3", "eval3"):
        (tmp_path / f"{name}.parquet").write_bytes((tmp_path / "eval1.parquet").read_bytes()[:-100])
    with growing():
        parquet_files.prepare(params)
        _, labels = read_examples(parquet_files, "eval", params)
    assert len(labels) == 4
    with raises("bad_parquet_file"):
        parquet_files.prepare(params)


def test_what_is_wrong_before_training_is_one_line(write):
    """A column that the schema names and a file lacks, and a flag that has no effect."""
    params = write()
    with raises("flag_without_effect"):
        parquet_files.prepare({**params, "on_bad_record": "skip"})
    with raises("column_missing"):
        parquet_files.prepare(write(schema={**SCHEMA, "numbers": ["height"]}))
