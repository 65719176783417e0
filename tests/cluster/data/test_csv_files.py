"""The dataset plug-in for plain CSV, and its schema."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pytest

from data import csv_files
from data.tabular.columns import CATEGORY, IGNORED, LABEL, NUMBER, Column, LineForm
from data.tabular.features import category_ids
from ps_train.errors import DataError
from ps_train.parts.readers.files import growing
from ps_train.plugins.contracts import Model
from ps_train.plugins.loader import load_dataset
from ps_train.storage import folder_record
from tests.cluster.data.reading import read_batches, read_examples
from tests.errors import raises
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
    """Quotes, missing values, and a header in each file; a byte order mark, as Excel writes it, is not in its name."""
    params = write(header="\ufeff" + HEADER)
    csv_files.prepare(params)
    features, labels = read_examples(csv_files, "eval", params)
    np.testing.assert_array_equal(labels, [1, 0, 1, 0])
    np.testing.assert_allclose(features["numbers"], [[2.5, 30], [-100, 0], [0, 41], [3, 0.5]])
    np.testing.assert_array_equal(features["ids"], hashed(SITES, DEVICES))
    features, _ = read_examples(csv_files, "train", params, count=2)
    assert sorted(map(bytes, features["ids"])) == sorted(map(bytes, np.tile(hashed(SITES, DEVICES), (4, 1))))


@pytest.mark.parametrize(("name", "value", "is_other"), [
    ("numbers", [*SCHEMA["numbers"]][::-1], True), ("log_numbers", True, True), ("columns", ["any"], False)])
@pytest.mark.parametrize("dataset", ["data.csv_files", "data.parquet_files"])
def test_a_training_is_not_continued_with_a_schema_of_other_features(write, tmp_path, dataset, name, value, is_other):
    """The record of a training has them; how the files are read may change. A changed file went unnoticed."""
    model, plugin = Model("m", lambda: None, {}), load_dataset(dataset)

    def record(schema):
        return folder_record.make_record(model, {"hidden_units": 1}, plugin, write(schema=schema))

    folder_record.write_record(str(tmp_path), record(SCHEMA))
    folder_record.check_record(str(tmp_path), record(SCHEMA))
    changed = record({**SCHEMA, name: value})
    folder_record.check_record(str(tmp_path), changed, ["schema_content"])
    with raises("other_training_in_folder") if is_other else contextlib.nullcontext():
        folder_record.check_record(str(tmp_path), changed)


@pytest.mark.parametrize(("encoding", "code", "part"), [
    ("utf-16", "input_file_not_utf8", "convert it to UTF-8"),
    ("utf-16-le", "input_file_not_utf8", "iconv -f UTF-16LE"),
    ("latin-1", "schema_malformed", "not UTF-8: convert it")])
def test_a_file_that_is_not_utf8_is_refused_where_its_columns_are_not_found(write, tmp_path, encoding, code, part):
    """The schema was blamed."""
    params = write(schema={"label": "click", "numbers": ["größe"]})
    (tmp_path / "train1.csv").write_text("click,größe\n1,2\n", encoding=encoding)
    with raises(code) as caught:
        csv_files.prepare(params)
    assert part in str(caught.value)


def test_the_columns_may_be_those_of_a_later_file(write, tmp_path):
    """Issue: an empty file that came first left no columns, and the schema was blamed."""
    params = write()
    (tmp_path / "train0.csv").touch()
    csv_files.prepare(params)
    _, labels = read_examples(csv_files, "train", params, count=2)
    assert sorted(labels) == sorted([1, 0, 1, 0] * 4)


def test_a_last_line_that_is_being_written_is_not_checked(write, tmp_path):
    """With --follow; without it the line is named."""
    params = write()
    with open(tmp_path / "train2.csv", "a") as file:
        file.write("17,x5")
    with growing():
        csv_files.prepare(params)
    with raises("bad_record"):
        csv_files.prepare(params)


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
    ('30,x,"tv,1,2,3', "column device: expected text without quotes or line breaks, got '\"tv'"),
    ('30,x,t"v,1,2,a', "column device: expected text without quotes or line breaks, got 't\"v'"),
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


def test_skip_begins_although_a_first_line_is_malformed(write, tmp_path):
    """And leaves the line out; but a file of ten malformed lines and no other is of another form."""
    params = {**write(["30,x,tv,yes,1,a", *ROWS]), "on_bad_record": "skip"}
    csv_files.prepare(params)
    batches, num_skipped = read_batches(csv_files, "eval", params)
    assert num_skipped == 1 and len(batches[0][1]) == len(ROWS)
    (tmp_path / "train2.csv").write_text("\n".join([HEADER, *["1,2"] * 9]) + "\n")
    csv_files.prepare(params)
    (tmp_path / "train2.csv").write_text("\n".join([HEADER, *["1,2"] * 10]) + "\n")
    with pytest.raises(DataError, match="train2.csv, line 2: 2 fields; expected 6"):
        csv_files.prepare(params)


@pytest.mark.parametrize("header, place", [
    ("id,age,device,click,price,site", "column 1 is 'id'; expected 'age'"),
    ("age,id,device,click,price", "column 6 is ''; expected 'site'"),
    (HEADER + ",hour", "column 7 is 'hour'; expected ''"),
])
def test_files_with_other_columns_are_refused(write, tmp_path, header, place):
    """A number would be read as another one; the quotes around a name and an empty file make no difference."""
    params = write()
    (tmp_path / "train2.csv").write_text('"age","id",device,click,price,site\n' + "\n".join(ROWS))
    (tmp_path / "train3.csv").write_text("")
    csv_files.prepare(params)
    (tmp_path / "eval1.csv").write_text("\n".join([header, *ROWS]) + "\n")
    with raises("header_differs") as caught:
        csv_files.prepare(params)
    assert str(caught.value).startswith(f"{tmp_path}/eval1.csv, line 1: {place}, as in {tmp_path}/train1.csv: ")
    csv_files.prepare(write(schema={**SCHEMA, "columns": HEADER.split(",")}, header="a,b,c,d,e,f"))


LINES = [
    b"1,2,a,b", b'1,2,5" pipe,"b', b"0,3,caf\xe9,\xf0b\xff", "1,2,\ufeff\u00fc,\x00".encode(),
    b'1,,"a,b",""', b'1,"2","a""\xe9",b', b'0,2,""a,b', b'0,2,"a"b,c', b'0,2,"a,b',
    b"0,2,a,b,c", b"0,2,a", b"", b"\xe9,2,a,b", b"2,1,a,b", b"1,nan,a,b", b"1,1e99,a,b", b"0,\x0b2 ,,", b"0, ,,",
    b"1,\r2,\ra,\r", b"1,\r,\r,b", b"1,2\r,a,b", b"1,2,a\r,b", b"1,2,a,b\r", b'1,"2\r","a\rb","\r\r"', b'0,"\r",a,b']


@pytest.mark.parametrize("has_quotes", [False, True])
@pytest.mark.parametrize("kinds", [(CATEGORY, CATEGORY), (IGNORED, CATEGORY), (CATEGORY, IGNORED)])
def test_a_line_has_a_fault_exactly_if_it_cannot_be_parsed(has_quotes, kinds):
    """Otherwise sound lines are left out, or blamed, because of a malformed one elsewhere in their chunk."""
    form = LineForm(tuple(Column(kind, kind) for kind in (LABEL, NUMBER, *kinds)), ",", has_quotes)
    with tf.Graph().as_default(), tf.Session() as session:
        line = tf.placeholder(tf.string, [None])
        labels, faults = form.parse(line).labels, form.find_faults(line)

        def can_be_parsed(one):
            try:
                session.run(labels, {line: [one]})
            except (tf.errors.InvalidArgumentError, UnicodeDecodeError):  # of a message with the line
                return False
            return True

        expected = {one: can_be_parsed(one) for one in LINES}
        assert dict(zip(LINES, session.run(tf.equal(faults, ""), {line: LINES}))) == expected
    assert 5 < sum(expected.values()) < len(LINES) - 5


def test_sound_lines_beside_a_malformed_one_are_kept(write, tmp_path):
    """Without quotes, a double quote and bytes that are not UTF-8 are text; `prepare` takes them, too."""
    params = write([], {"label": "click", "numbers": ["price"], "categories": ["site"], "quotes": False},
                   header="click,price,site")
    sound = b'click,price,site\n1,2,5" pipe\n0,3,caf\xe9\n1,1,a\n'
    for name in ("train1", "train2", "eval1"):
        (tmp_path / f"{name}.csv").write_bytes(sound)
    csv_files.prepare(params)
    ids = hashed([b'5" pipe', b"caf\xe9", b"a"])
    np.testing.assert_array_equal(read_examples(csv_files, "eval", params)[0]["ids"], ids)
    (tmp_path / "eval1.csv").write_bytes(sound + b"1,x,b\n")
    batches, num_skipped = read_batches(csv_files, "eval", {**params, "on_bad_record": "skip"})
    assert num_skipped == 1
    np.testing.assert_array_equal(batches[0][0]["ids"], ids)
    with pytest.raises(DataError, match=r"eval1.csv, line 5 \(byte .*column price: expected a number or nothing"):
        read_batches(csv_files, "eval", params)


@pytest.mark.parametrize("schema, fault", [
    ([], "got list; expected an object"),
    ({"labels": "click"}, "unknown name 'labels'; allowed: label, numbers"),
    ({"label": "click", "numbers": "price"}, "'numbers' is 'price'; expected a value like []"),
    ({"label": "click"}, 'expected "label", and "numbers" or "categories"'),
    ({"label": "click", "numbers": ["cost"]}, "column 'cost' is there 0 times; expected once among the columns age"),
    ({"label": "click", "numbers": ["age"], "categories": ["age"]}, "a column is named twice"),
    ({**SCHEMA, "delimiter": "::"}, "expected one character"),
    ({**SCHEMA, "numbers": [["price"], "age"]}, "'numbers' has [\"price\"]; expected names of columns, in quotes"),
    ({**SCHEMA, "columns": ["age", 2]}, "'columns' has 2; expected names of columns, in quotes"),
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
    with raises("schema_malformed"):
        csv_files.prepare({**params, "schema": "other.json"})
    (tmp_path / "schema.json").write_text("{")
    with raises("schema_malformed"):
        csv_files.prepare(params)
