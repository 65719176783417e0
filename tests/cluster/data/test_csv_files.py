"""The dataset plug-in for plain CSV, and its schema."""

from __future__ import annotations

import json

import numpy as np
import pytest

from data import csv_files
from data.tabular.features import category_ids
from ps_train.errors import DataError
from tests.cluster.data.reading import read_batches, read_examples
from tests.tensorflow_mode import tf

SCHEMA = {"label": "click", "numbers": ["price", "age"], "categories": ["site", "device"]}
HEADER = "age,id,device,click,price,site"
ROWS = ['30,x1,"phone, small",1,2.5,a.com', ',x2,"a ""new"" one",0,-1e2,', '"41","x3",tv,1,,"b.com"', ".5,,,0,3.,ü"]
DEVICES, SITES = ["phone, small", 'a "new" one', "tv", ""], ["a.com", "", "b.com", "ü"]


@pytest.fixture
def write(tmp_path):
    """Writes schema and files, and returns the parameters."""
    def write(rows=ROWS, schema=SCHEMA, header=HEADER):
        (tmp_path / "schema.json").write_text(json.dumps(schema))
        for name in ("train1", "train2", "eval1"):
            (tmp_path / f"{name}.csv").write_text("\n".join([*([header] if header else []), *rows]) + "\n")
        return {**csv_files.DEFAULT_PARAMS, "data_dir": str(tmp_path), "batch_size": 8, "seed": 1,
                "on_bad_record": "stop"}

    return write


def hashed(*fields):
    with tf.Graph().as_default(), tf.Session() as session:
        return session.run(category_ids([tf.constant(field) for field in fields], 0))


def test_columns_are_found_by_name_and_come_in_the_order_of_the_schema(write):
    """Quotes, missing values, and a header in each file."""
    params = write()
    csv_files.prepare(params)
    features, labels = read_examples(csv_files, "eval", params)
    np.testing.assert_array_equal(labels, [1, 0, 1, 0])
    np.testing.assert_allclose(features["numbers"], [[2.5, 30], [-100, 0], [0, 41], [3, 0.5]])
    np.testing.assert_array_equal(features["ids"], hashed(SITES, DEVICES))
    features, _ = read_examples(csv_files, "train", params, count=2)
    assert sorted(map(bytes, features["ids"])) == sorted(map(bytes, np.tile(hashed(SITES, DEVICES), (4, 1))))


def test_columns_may_be_in_the_schema(write):
    """With another delimiter, without quotes, header and categories, and with logarithms."""
    schema = {"columns": ["click", "price"], "header": False, "delimiter": ";", "quotes": False, "label": "click",
              "numbers": ["price"], "log_numbers": True}
    params = write(["1;7", "0;", "1;-3"], schema, header="")
    csv_files.prepare(params)
    features, labels = read_examples(csv_files, "eval", params)
    assert list(features) == ["numbers"] and list(labels) == [1, 0, 1]
    np.testing.assert_allclose(features["numbers"], [[np.log(8)], [0], [0]], rtol=1e-6)


@pytest.mark.parametrize("row, fault", [
    ("1,2,3", "3 fields; expected 6: number, ignored, category, label, number, category, separated by commas"),
    ("30,x,tv,yes,1,a", "column click: expected 0 or 1, got 'yes'"),
    ("30,x,tv,1,cheap,a", "column price: expected a number or nothing, got 'cheap'"),
    ('30,x,"tv,1,2,3', "column device: expected UTF-8 text without quotes or line breaks, got '\"tv'"),
    ('30,x,t"v,1,2,a', "column device: expected UTF-8 text without quotes or line breaks, got 't\"v'"),
])
def test_a_malformed_line_is_named_with_its_column(write, row, fault):
    """By `prepare`, and while reading; or it is left out."""
    params = write([*ROWS, row, *ROWS])
    name = f"{params['data_dir']}/eval1.csv, line 6"
    with pytest.raises(DataError) as caught:
        csv_files.prepare({**params, "train_files": "eval*.csv"})
    assert str(caught.value).startswith(f"{name}: {fault}")
    with pytest.raises(DataError) as caught:
        read_batches(csv_files, "eval", params)
    assert str(caught.value).startswith(f"{name} (byte ") and f": {fault}" in str(caught.value)
    batches, num_skipped = read_batches(csv_files, "eval", {**params, "on_bad_record": "skip"})
    assert num_skipped == 1
    np.testing.assert_array_equal(batches[0][0]["ids"], np.tile(hashed(SITES, DEVICES), (2, 1)))


@pytest.mark.parametrize("schema, fault", [
    ([], "got list; expected an object"),
    ({"labels": "click"}, "unknown name 'labels'; allowed: label, numbers"),
    ({"label": "click", "numbers": "price"}, "'numbers' is 'price'; expected a value like []"),
    ({"label": "click"}, 'expected "label", and "numbers" or "categories"'),
    ({"label": "click", "numbers": ["cost"]}, "column 'cost' is there 0 times; expected once among the columns age"),
    ({"label": "click", "numbers": ["age"], "categories": ["age"]}, "a column is named twice"),
    ({**SCHEMA, "delimiter": "::"}, "expected one character"),
    ({**SCHEMA, "header": False}, 'without a header, give "columns"'),
])
def test_a_wrong_schema_is_one_line(write, schema, fault):
    """With the file and what is allowed."""
    params = write(schema=schema)
    with pytest.raises(DataError) as caught:
        csv_files.prepare(params)
    assert str(caught.value).startswith(f"{params['data_dir']}/schema.json: ") and fault in str(caught.value)


def test_a_missing_schema_or_one_that_is_no_json_is_named(write, tmp_path):
    """With the place of the description."""
    params = write()
    with pytest.raises(DataError, match="other.json.*; expected a schema in JSON, as data/tabular/schema.py describes"):
        csv_files.prepare({**params, "schema": "other.json"})
    (tmp_path / "schema.json").write_text("{")
    with pytest.raises(DataError, match="schema.json: Expecting property name"):
        csv_files.prepare(params)
