"""Parquet files, written by pyarrow: their columns as tensors, against the numpy arrays that were written."""

from __future__ import annotations

import functools
import io
import sys
import uuid

import numpy as np
import pytest

import ps_train
from ps_train.graph import extensions
from ps_train.parts.readers import parquet_files
from ps_train.parts.readers.file_ranges import cuts_of_growth, plan_ranges
from tests.errors import raises
from tests.tensorflow_mode import tf

fsspec = pytest.importorskip("fsspec", reason="the extra `stores` is not installed")
pa = pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
pq = pytest.importorskip("pyarrow.parquet")

ROWS = 1000


@pytest.fixture(params=["local", "memory", "ram"])
def folder(request, tmp_path):
    """A new folder: on this machine, in a store, or in a file system of TensorFlow."""
    return str(tmp_path) if request.param == "local" else f"{request.param}://{uuid.uuid4().hex}"


def write(name, columns, **options):
    """Writes columns, a dict of arrays, to a file."""
    content = io.BytesIO()
    pq.write_table(pa.table(columns), content, **options)
    write_bytes(name, content.getvalue())


def write_bytes(name, content):
    if name.startswith("ram://"):
        with tf.io.gfile.GFile(name, "wb") as file:
            file.write(content)
        return
    files_of, path = fsspec.url_to_fs(name)
    files_of.makedirs(path.rpartition("/")[0], exist_ok=True)
    files_of.pipe_file(path, content)


def read(pattern, columns, shard=(0, 1), range_bytes=None, marks=None, **options):
    """Returns the batches; raises what stops the reading, as a worker does."""
    with tf.Graph().as_default() as graph, tf.Session(graph=graph) as session:
        ranges = ps_train.file_ranges(pattern, shard, "eval", is_text=False, range_bytes=range_bytes)
        reader = ps_train.ParquetReader(columns, lambda read_columns: read_columns, **options)
        iterator = tf.data.make_initializable_iterator(
            ps_train.range_batches(ranges, reader.read, 100, marks=marks))
        batch = iterator.get_next()
        session.run(iterator.initializer)
        found = []
        while True:
            try:
                found.append(session.run(batch))
            except tf.errors.OutOfRangeError:
                return found
            except tf.errors.InvalidArgumentError as error:
                extensions.explain_error(graph, error, "worker:0")
                raise


def joined(batches):
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def numbers(first, count=ROWS):
    return {"number": np.arange(first, first + count)}


def test_columns_become_tensors(folder):
    """Of each kind; the text is UTF-8, lists have a fixed length, and a column that is not asked for is not read."""
    rng = np.random.default_rng(1)
    texts = ["", "ü", "long " * 20, "a\0b"]
    written = {
        "float": rng.normal(size=ROWS), "int": rng.integers(-2**62, 2**62, ROWS), "bool": rng.random(ROWS) < 0.5,
        "byte": rng.integers(0, 255, ROWS).astype(np.uint8), "text": rng.choice(texts, ROWS),
        "list": rng.normal(size=[ROWS, 3]).astype(np.float32), "pairs": rng.integers(0, 9, [ROWS, 2])}
    columns = {name: pa.array(values.tolist(), pa.string() if name == "text" else pa.from_numpy_dtype(values.dtype))
               for name, values in written.items() if values.ndim == 1}
    columns["list"] = pa.array(written["list"].tolist(), pa.list_(pa.float32(), 3))
    columns["pairs"] = pa.array(written["pairs"].tolist(), pa.list_(pa.int64()))
    columns["category"] = columns["text"].dictionary_encode()
    columns["date"] = pa.array([None] * ROWS, pa.date32())
    write(f"{folder}/part.parquet", columns, row_group_size=300)
    [*found] = read(f"{folder}/part*", {
        "float": tf.float32, "int": tf.int64, "bool": tf.bool, "byte": tf.int32, "text": tf.string,
        "category": tf.string, "list": tf.TensorSpec([3], tf.float32), "pairs": tf.TensorSpec([2], tf.int64)})
    assert [len(batch["int"]) for batch in found] == [100] * 10
    values = joined(found)
    for name in ("int", "bool", "byte", "list", "pairs"):
        np.testing.assert_array_equal(values[name], written[name])
    np.testing.assert_array_equal(values["float"], written["float"].astype(np.float32))
    for name in ("text", "category"):
        assert values[name].tolist() == [text.encode() for text in written["text"]]
    assert {name: array.dtype for name, array in values.items() if name in ("float", "byte")} == {
        "float": np.float32, "byte": np.int32}


def test_numbers_as_text_are_their_digits(tmp_path):
    """So an integer category has the id that it has in CSV."""
    write(f"{tmp_path}/a.parquet", {"number": [7, -12, 0]})
    assert joined(read(f"{tmp_path}/a.parquet", {"number": tf.string}))["number"].tolist() == [b"7", b"-12", b"0"]


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
@pytest.mark.parametrize("is_list", [False, True], ids=["values", "lists"])
def test_whole_floats_as_text_are_their_digits(tmp_path, kind, is_list):
    """pandas writes integers as floats where one is missing: such a file has the same categories as the others.

    Issue: 2**40 was 1.099511627776e+12, so it had other ids in that file.
    """
    numbers = [2.0**40, None, -2.0**62, 0.0, -0.0, 7.0, 0.5, 2.0**70, float("nan")]
    column = pa.array([[number] for number in numbers], pa.list_(kind)) if is_list else pa.array(numbers, kind)
    write(f"{tmp_path}/a.parquet", {"number": column})
    wanted = tf.TensorSpec([1], tf.string) if is_list else tf.string
    found = joined(read(f"{tmp_path}/a.parquet", {"number": wanted}, fill={"number": ""}))["number"].ravel().tolist()
    assert found[:7] == [b"1099511627776", b"", b"-4611686018427387904", b"0", b"0", b"7", b"0.5"]
    assert float(found[7]) == pytest.approx(2.0**70) and found[8] == b"nan"


def test_a_type_that_pyarrow_does_not_know_is_no_damage(tmp_path):
    """The line names the column and the type; the file is sound."""
    write(f"{tmp_path}/a.parquet", {"number": [7.0]})
    with raises("column_misfit") as caught:
        read(f"{tmp_path}/a.parquet", {"number": tf.bfloat16})
    assert "'number': is double, and does not fit bfloat16" in str(caught.value)


def test_missing_values_are_filled(tmp_path):
    """In columns for which it is said how."""
    write(f"{tmp_path}/a.parquet", {"number": [1.5, None, 3.0], "text": [None, "b", None],
                                    "list": pa.array([[1, None], [2, 3], [4, 5]], pa.list_(pa.int64()))})
    columns = {"number": tf.float32, "text": tf.string, "list": tf.TensorSpec([2], tf.int64)}
    found = joined(read(f"{tmp_path}/a.parquet", columns, fill={"number": -1, "text": "?", "list": 0}))
    assert found["number"].tolist() == [1.5, -1, 3] and found["text"].tolist() == [b"?", b"b", b"?"]
    assert found["list"].tolist() == [[1, 0], [2, 3], [4, 5]]
    for name in columns:
        with raises("value_missing"):
            read(f"{tmp_path}/a.parquet", {name: columns[name]})
    with raises("parameter_out_of_range"):
        ps_train.ParquetReader({"number": tf.float32}, dict, fill={"nomber": 0})


@pytest.mark.parametrize(("column", "wanted"), [
    (["x", "y"], tf.float32), ([1, 2**40], tf.int32), ([0.5], tf.int64), ([[1, 2], [1]], tf.TensorSpec([2], tf.int64)),
    ([[1], None], tf.TensorSpec([1], tf.int64)), ([1], tf.TensorSpec([1], tf.int64)), ([[1]], tf.int64),
    ([{"a": 1}], tf.string)])
def test_a_column_that_does_not_fit_is_one_line(tmp_path, column, wanted):
    """With its name and type."""
    write(f"{tmp_path}/a.parquet", {"column": pa.array(column)})
    with raises("column_misfit") as caught:
        read(f"{tmp_path}/a.parquet", {"column": wanted})
    assert "a.parquet" in str(caught.value) and "'column'" in str(caught.value)
    with raises("column_missing"):
        read(f"{tmp_path}/a.parquet", {"other": wanted})


@pytest.mark.parametrize(("column", "wanted"), [
    ([1.0, 1e300], tf.float32), ([-70000], tf.float16), ([[1e300, None]], tf.TensorSpec([2], tf.float32))])
def test_a_number_does_not_become_infinite_without_a_word(tmp_path, column, wanted):
    """One that is infinite in the file stays so, and so does its text."""
    write(f"{tmp_path}/a.parquet", {"column": pa.array(column)})
    with raises("column_misfit") as caught:
        read(f"{tmp_path}/a.parquet", {"column": wanted}, fill={"column": 0})
    assert "'column'" in str(caught.value) and "infinite as float" in str(caught.value)
    sound = {"a": [float("inf"), 1e300], "b": ["inf", "1"], "c": [None, float("-inf")]}
    write(f"{tmp_path}/b.parquet", sound)
    columns = {"a": tf.float64, "b": tf.float32, "c": tf.float32}
    found = joined(read(f"{tmp_path}/b.parquet", columns, fill={"c": np.inf}))
    assert {name: values.tolist() for name, values in found.items()} == {
        "a": [np.inf, 1e300], "b": [np.inf, 1], "c": [np.inf, -np.inf]}


@pytest.mark.parametrize("wanted", [
    tf.TensorSpec([None], tf.int64), tf.TensorSpec([2, 3], tf.int64), tf.TensorSpec(None, tf.int64), "integer", None,
    tf.RaggedTensorSpec([None, None], tf.int64), tf.io.VarLenFeature(tf.int64)])
def test_what_a_column_cannot_become_is_one_line(wanted):
    """Before the file is read; lists of several lengths had an error about their type."""
    with raises("parameter_out_of_range") as caught:
        ps_train.ParquetReader({"column": wanted}, dict)
    assert "'column'" in str(caught.value) and "tf.TensorSpec([k], dtype)" in str(caught.value)


def test_a_dtype_may_be_that_of_numpy_or_its_name(tmp_path):
    """As elsewhere in TensorFlow."""
    write(f"{tmp_path}/a.parquet", {"number": [1, 2]})
    for wanted in (np.float32, "float32", np.dtype(np.float32)):
        assert joined(read(f"{tmp_path}/a.parquet", {"number": wanted}))["number"].dtype == np.float32


@pytest.mark.parametrize("range_bytes", [1, 3000, 10**9])
def test_each_row_group_is_in_one_range(folder, range_bytes):
    """Of some files, with and without dictionaries and empty row groups; the ranges of two workers are all of them."""
    for number, options in enumerate(({}, {"use_dictionary": False, "compression": "none"}, {"data_page_size": 100})):
        write(f"{folder}/part{number}.parquet", numbers(number * ROWS), row_group_size=70, **options)
    write(f"{folder}/part3.parquet", numbers(0, 0))
    plan = plan_ranges(f"{folder}/part*", is_text=False, range_bytes=range_bytes)
    assert {1: len(plan) == 45, 3000: 3 < len(plan) < 45, 10**9: len(plan) == 3}[range_bytes]
    assert all(0 < one.start < one.stop <= one.file_bytes for one in plan)
    read_part = functools.partial(read, f"{folder}/part*", {"number": tf.int64}, range_bytes=range_bytes)
    np.testing.assert_array_equal(joined(read_part())["number"], np.arange(3 * ROWS))
    halves = [joined(read_part((index, 2)))["number"] for index in range(2)]
    np.testing.assert_array_equal(np.sort(np.concatenate(halves)), np.arange(3 * ROWS))
    marks = [mark for _, mark in read_part(marks=True)]
    assert [int(mark.number) for mark in marks if mark.is_last] == list(range(len(plan)))


def test_a_file_with_another_name_is_one_range(tmp_path):
    """It is read all the same."""
    write(f"{tmp_path}/part", numbers(0), row_group_size=100)
    assert len(plan_ranges(f"{tmp_path}/part", is_text=False, range_bytes=1)) == 1
    np.testing.assert_array_equal(joined(read(f"{tmp_path}/part", {"number": tf.int64}))["number"], np.arange(ROWS))


def test_a_file_that_is_damaged_or_has_changed_is_one_line(folder):
    """It ends in the middle, has other bytes, is text, is gone, or is another one than when it was cut."""
    content = io.BytesIO()
    pq.write_table(pa.table(numbers(0)), content, use_dictionary=False, compression="zstd")
    sound = content.getvalue()
    for number, damaged in enumerate((sound[:-10], sound[:40] + b"\xff" * 400 + sound[440:], b"1\n2\n")):
        write_bytes(f"{folder}/{number}.parquet", damaged)
        with raises("bad_parquet_file"):
            read(f"{folder}/{number}.parquet", {"number": tf.int64})
    columns = [parquet_files.ArrowColumn("number", tf.int64, None, None)]
    write(f"{folder}/before.parquet", numbers(0), row_group_size=100)
    position = plan_ranges(f"{folder}/before.parquet", is_text=False, range_bytes=1)[3].start
    write(f"{folder}/after.parquet", {"more": np.arange(ROWS), **numbers(0)}, row_group_size=100)
    with raises("input_file_changed"):
        list(parquet_files.chunks(f"{folder}/after.parquet", position, 10**9, columns, 100, check=lambda chunk: None))
    whole = plan_ranges(f"{folder}/before.parquet", is_text=False)[0]
    with raises("input_file_changed"):
        list(parquet_files.chunks(f"{folder}/after.parquet", whole.start, whole.stop, columns, 100,
                                  check=lambda chunk: None, file_bytes=whole.file_bytes))
    with raises("input_file_missing"):
        list(parquet_files.chunks(f"{folder}/other.parquet", 0, 10**9, columns, 100, check=lambda chunk: None))


def test_what_a_check_raises_names_the_rows(tmp_path):
    """And has its code."""
    def check(columns):
        if columns["number"].max() > 400:
            raise ps_train.DataError("bad_record", "expected at most 400")

    write(f"{tmp_path}/a.parquet", numbers(0), row_group_size=250)
    with raises("bad_record") as caught:
        read(f"{tmp_path}/a.parquet", {"number": tf.int64}, check=check)
    assert "a.parquet, rows 0 to 749 from byte" in str(caught.value)


def test_a_file_that_is_being_written_has_no_pieces_until_it_is_whole(tmp_path):
    """The end of a Parquet file says where everything is."""
    write(f"{tmp_path}/a.parquet", numbers(0), row_group_size=100)
    content = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(content[:-1])
    cuts = functools.partial(
        cuts_of_growth, str(tmp_path / "a.parquet"), is_text=False, has_header=False, range_bytes=1)
    with raises("bad_parquet_file"):
        cuts(0, len(content) - 1)
    (tmp_path / "a.parquet").write_bytes(content)
    assert len(cuts(0, len(content))) == 11
    assert cuts(len(content), len(content)) == []
    with raises("input_file_changed"):
        cuts(len(content), len(content) + 10)


def test_without_pyarrow_a_parquet_file_is_one_line(tmp_path, monkeypatch):
    """Before training; the line has the command that installs it."""
    write(f"{tmp_path}/a.parquet", numbers(0))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with raises("package_missing"):
        plan_ranges(f"{tmp_path}/a.parquet", is_text=False)


def test_a_pyarrow_that_is_too_new_for_this_numpy_gives_its_reason(tmp_path, monkeypatch):
    """As pyarrow 26 does with the NumPy of TensorFlow 2.15; the line has the command that helps."""
    write(f"{tmp_path}/a.parquet", numbers(0))
    (tmp_path / "pyarrow.py").write_text("raise ImportError('pyarrow requires NumPy 2.0 or newer, found 1.26.4')")
    monkeypatch.delitem(sys.modules, "pyarrow")
    monkeypatch.syspath_prepend(tmp_path)
    with raises("package_missing") as caught:
        plan_ranges(f"{tmp_path}/a.parquet", is_text=False)
    assert "pyarrow requires NumPy 2.0 or newer, found 1.26.4" in str(caught.value)
    assert "pip install 'pyarrow<26'" in str(caught.value)
