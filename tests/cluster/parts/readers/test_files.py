"""Files of a store, and compressed ones, give the same examples as those of this machine."""

from __future__ import annotations

import functools
import glob
import gzip
import os
import sys
import uuid

import numpy as np
import pytest

import ps_train
from ps_train.graph import extensions
from ps_train.parts.readers import file_texts, files
from ps_train.parts.readers.file_ranges import plan_ranges, ranges_of_numbers
from tests.errors import raises
from tests.tensorflow_mode import tf

fsspec = pytest.importorskip("fsspec", reason="the extra `stores` is not installed")
zstd = pytest.importorskip("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd",
                           reason="the extra `zstd` is not installed")
LINES = [b"%d" % number for number in range(0, 3000, 3)]
_HOLE_BYTES = 200 << 20  # of a file that takes no space there


_COMPRESSED = [("", bytes), (".gz", gzip.compress), (".gz", bytes), (".zst", zstd.compress), (".zst", bytes)]


@pytest.fixture(params=["memory", "local"])
def folder(request, tmp_path):
    """A new folder whose name has a space: in a store, or on this machine."""
    return f"memory://{uuid.uuid4().hex}/my data" if request.param == "memory" else f"{tmp_path}/my data"


def write(name, content):
    files_of, path = fsspec.url_to_fs(name)
    files_of.makedirs(path.rpartition("/")[0], exist_ok=True)
    files_of.pipe_file(path, content)


def values(make_reader, pattern, shard=(0, 1), **options):
    """Returns all numbers, in order; raises what stops the reading, as a worker does."""
    with tf.Graph().as_default() as graph, tf.Session(graph=graph) as session:
        dataset = ps_train.range_batches(
            ps_train.file_ranges(pattern, shard, "eval", **options), make_reader().read, 100)
        iterator = tf.data.make_initializable_iterator(dataset)
        batch = iterator.get_next()
        session.run(iterator.initializer)
        found = []
        while True:
            try:
                found += session.run(batch).tolist()
            except tf.errors.OutOfRangeError:
                return found
            except tf.errors.InvalidArgumentError as error:
                extensions.explain_error(graph, error, "worker:0")
                raise


def line_reader():
    def find_faults(lines):
        is_sound = tf.strings.regex_full_match(lines, "[0-9]+")
        return tf.where(is_sound, tf.zeros_like(lines), tf.fill(tf.shape(lines), "expected a number"))

    return ps_train.LineReader(lambda lines: tf.strings.to_number(lines, tf.int64), find_faults, "stop")


def record_reader():
    return ps_train.RecordReader(lambda records: tf.strings.to_number(records, tf.int64), "a number", "stop")


def write_records(tmp_path, name, compress=bytes, records=LINES):
    with tf.io.TFRecordWriter(str(tmp_path / "records")) as writer:
        for line in records:
            writer.write(line)
    write(name, compress((tmp_path / "records").read_bytes()))


@pytest.mark.parametrize("header", [b"", b"number\n"])
@pytest.mark.parametrize(("suffix", "compress"), _COMPRESSED)
def test_lines_are_the_same_from_everywhere(folder, monkeypatch, suffix, compress, header):
    """In ranges, or as a stream in pieces; with and without a header, and a line break at the end."""
    monkeypatch.setattr(file_texts, "_TEXT_BYTES", 100)
    for number, end in enumerate((b"\n", b"")):
        half = LINES[number * 500:(number + 1) * 500]
        write(f"{folder}/part{number}{suffix}", compress(header + b"\n".join(half) + end))
    write(f"{folder}/other", b"7\n")
    options = {"has_header": bool(header), "range_bytes": 300}
    assert values(line_reader, f"{folder}/part*", **options) == [*map(int, LINES)]
    plan = plan_ranges(f"{folder}/part*", **options)
    assert len(plan) == 2 if suffix else len(plan) > 5
    assert {one.file for one in plan} == {f"{folder}/part{number}{suffix}" for number in (0, 1)}


def bytes_read():
    """Returns how many bytes this process has read from files."""
    with open("/proc/self/io", encoding="ascii") as file:
        return int(file.readline().partition("rchar: ")[2])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts the bytes with /proc")
def test_what_stands_before_a_range_is_not_read(tmp_path):
    """TensorFlow's dataset would read all of a file that is before a range, and so each file many times."""
    text, small, large = b"\n".join(LINES), f"{tmp_path}/small", f"{tmp_path}/large"
    write(small, text)
    with open(large, "wb") as file:
        file.seek(_HOLE_BYTES)
        file.write(text)
    plan = [part._replace(file=large, start=part.start + _HOLE_BYTES, stop=part.stop + _HOLE_BYTES,
                          file_bytes=_HOLE_BYTES + len(text)) for part in plan_ranges(small, range_bytes=300)]
    before = bytes_read()

    with tf.Graph().as_default(), tf.Session() as session:
        ranges = ranges_of_numbers(tf.data.Dataset.range(len(plan)), plan)
        dataset = ps_train.range_batches(ranges, line_reader().read, 10_000)
        iterator = tf.data.make_initializable_iterator(dataset)
        batch = iterator.get_next()
        session.run(iterator.initializer)
        assert session.run(batch).tolist() == [*map(int, LINES)]
    assert bytes_read() - before < _HOLE_BYTES // 10


def test_a_range_is_read_where_python_cannot_seek_to_it(tmp_path, monkeypatch):
    """As in the process of a server of --existing_servers, which knows no function of this one."""
    def unknown(*part):
        raise ValueError("callback pyfunc_0 is not found")

    write(f"{tmp_path}/part", b"\n".join(LINES))
    monkeypatch.setattr(file_texts, "read_range", unknown)
    assert values(line_reader, f"{tmp_path}/part", range_bytes=300) == [*map(int, LINES)]


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
@pytest.mark.parametrize("header", [b"number\n", b"x" * 5000 + b"\n"], ids=["short", "long"])
def test_a_header_of_a_stream_is_left_out_however_long_the_text_is(folder, compress, header):
    """A stream cannot seek: not if all of it was read to find the header, and not if it was not compressed."""
    write(f"{folder}/part.gz", compress(header + b"1\n22\n333"))
    assert values(line_reader, f"{folder}/part.gz", has_header=True) == [1, 22, 333]


@pytest.mark.parametrize("is_text", [True, False], ids=["lines", "records"])
def test_a_stream_of_nothing_has_no_range(folder, tmp_path, is_text):
    """A worker whose share has nothing else would look for an example for ever."""
    if is_text:
        contents = {b"", gzip.compress(b""), gzip.compress(b"number\n"), b"number\n", gzip.compress(b"x" * 5000)}
    else:
        contents = {b"", gzip.compress(b"")}
    for number, content in enumerate(contents):
        write(f"{folder}/part{number}.gz", content)
    with raises("input_file_empty"):
        plan_ranges(f"{folder}/part*", is_text=is_text, has_header=is_text)
    (write if is_text else functools.partial(write_records, tmp_path))(
        f"{folder}/part.gz", gzip.compress(b"number\n1") if is_text else gzip.compress)
    [only] = plan_ranges(f"{folder}/part*", is_text=is_text, has_header=is_text)
    assert only.file == f"{folder}/part.gz"


def test_the_error_of_the_reader_that_failed_is_raised(tmp_path):
    """Of two in one graph, whichever was made first."""
    sound, damaged = f"{tmp_path}/sound.gz", f"{tmp_path}/damaged.gz"
    write(sound, gzip.compress(b"1\n"))
    write(damaged, gzip.compress(b"\n".join(LINES))[:-100])

    def reader_after_another():
        line_reader().read(plan_ranges(sound)[0])
        return line_reader()

    with raises("input_file_damaged") as caught:
        values(reader_after_another, damaged)
    assert damaged in str(caught.value)


@pytest.mark.parametrize(("suffix", "compress"), _COMPRESSED)
def test_records_are_the_same_from_everywhere(folder, tmp_path, suffix, compress):
    """Each file is one range."""
    write_records(tmp_path, f"{folder}/part{suffix}", compress)
    assert values(record_reader, f"{folder}/part*", is_text=False) == [*map(int, LINES)]
    assert [*file_texts.records_of(f"{folder}/part{suffix}")] == LINES


def test_a_url_that_tensorflow_knows_is_read_through_it(tmp_path):
    """`gs://` with some of its versions; its file system in memory stands in for that."""
    folder = f"ram://{uuid.uuid4().hex}"
    write_records(tmp_path, str(tmp_path / "copy"))
    for name, content in {"records": (tmp_path / "copy").read_bytes(), "lines": b"\n".join(LINES),
                          "lines.gz": gzip.compress(b"\n".join(LINES))}.items():
        with tf.io.gfile.GFile(f"{folder}/{name}", "wb") as file:
            file.write(content)
    assert values(record_reader, f"{folder}/records", is_text=False) == [*map(int, LINES)]
    assert [*file_texts.records_of(f"{folder}/records")] == LINES
    for name in ("lines", "lines.gz"):
        assert values(line_reader, f"{folder}/{name}", range_bytes=300) == [*map(int, LINES)]


@pytest.mark.parametrize(("suffix", "compress"), _COMPRESSED)
def test_a_malformed_line_is_named(folder, suffix, compress):
    """By its number and byte in the text; that of a compressed file is the decompressed one."""
    write(f"{folder}/part{suffix}", compress(b"1\n22\nx\n"))
    with raises("bad_record") as caught:
        values(line_reader, f"{folder}/part*")
    assert f"{folder}/part{suffix}, line 3 (byte 5): expected a number" in str(caught.value)


@pytest.mark.parametrize("is_text", [True, False], ids=["lines", "records"])
def test_a_missing_object_is_one_line(tmp_path, is_text):
    """Before training, and when it is removed after the plan was made."""
    name = f"memory://{uuid.uuid4().hex}/part"
    with raises("input_file_missing"):
        plan_ranges(name)
    write_records(tmp_path, name)

    def read():  # called when the plan is made
        fsspec.url_to_fs(name)[0].rm_file(fsspec.url_to_fs(name)[1])
        return line_reader() if is_text else record_reader()

    with raises("input_file_missing") as caught:
        values(read, name, is_text=is_text)
    assert str(caught.value) == f"{name}: no such file"


@pytest.mark.parametrize("size", [0, 40, 4000], ids=["emptied", "shorter", "longer"])
@pytest.mark.parametrize(("suffix", "form"), [
    ("", {}), ("", {"range_bytes": 300}), (".gz", {}), ("", {"is_text": False}), (".gz", {"is_text": False})])
def test_a_file_that_changes_after_the_plan_was_made_ends_the_reading(folder, tmp_path, suffix, form, size):
    """Its name has quotes and brackets. What is there now is sound, but not what the ranges are of."""
    name = f"{folder}/a [1] 'b' \"ü\"{suffix}"
    is_text = form.get("is_text", True)
    compress = gzip.compress if suffix else bytes

    def write_numbers(count):
        if is_text:
            write(name, compress(b"1\n" * count))
        else:
            write_records(tmp_path, name, compress, [b"1"] * count)

    write_numbers(500)

    def reader():  # called when the plan is made
        write_numbers(size)
        return line_reader() if is_text else record_reader()

    with raises("input_file_changed") as caught:
        values(reader, f"{folder}/a*", **form)
    assert str(caught.value).startswith(f"{name}: got ")


@pytest.mark.parametrize("look", [files.find_files, files.sizes_now])
def test_a_name_with_wildcards_is_taken_as_it_stands_if_it_is_there(folder, look):
    """Otherwise it is a pattern; on this machine, folders before one are taken as they stand, too."""
    for name in ("part[1].csv", "part1.csv"):
        write(f"{folder}/{name}", b"1\n")
    assert [*look(f"{folder}/part[1].csv")] == [f"{folder}/part[1].csv"]
    assert [*look(f"{folder}/part[12].csv")] == [f"{folder}/part1.csv"]
    if "://" not in folder:
        for name in ("x[1]/a?[2]/part-0", "x[1]/a?[2]/part-1", "x1/ab2/part-2"):
            write(f"{folder}/{name}", b"1\n")
        assert sorted(look(f"{folder}/x[1]/a?[2]/part-*")) == [f"{folder}/x[1]/a?[2]/part-{end}" for end in (0, 1)]
        assert [*look(f"{folder}/x[1]/a?[2]/part-0")] == [f"{folder}/x[1]/a?[2]/part-0"]
        assert [*look(f"{folder}/x[1]*/a?[2]/part-*")] == [f"{folder}/x1/ab2/part-2"]


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(5, "Input/output error"),
                                   tf.errors.UnavailableError(None, None, "away")])
def test_a_growing_file_that_cannot_be_read_is_one_line(tmp_path, monkeypatch, suffix, error):
    """What the file system says is in it."""
    write(f"{tmp_path}/a{suffix}", b"1\n")

    def failing(name, size=None):
        raise error

    monkeypatch.setattr(files, "open_bytes", failing)
    with files.growing(), raises("input_file_unreadable") as caught:
        values(line_reader, f"{tmp_path}/a{suffix}")
    assert str(getattr(error, "strerror", None) or error.message) in str(caught.value)


def test_a_folder_in_place_of_its_files_is_told(folder):
    """With the pattern that was meant."""
    write(f"{folder}/part", b"1\n")
    for name in (folder, f"{folder}/"):
        with raises("input_file_missing") as caught:
            plan_ranges(name)
        assert str(caught.value) == f"{name} is a folder; give a pattern of the files in it, such as {folder}/*"
    with raises("input_file_missing") as caught:
        plan_ranges(f"{folder}/none*")
    assert str(caught.value) == f"{folder}/none*: no such file"


def test_a_url_may_have_more_before_its_path_than_the_store_keeps(monkeypatch):
    """As abfs://container@account/folder, of which adlfs makes container/folder."""
    class Accounts(type(fsspec.filesystem("memory"))):
        protocol, store, pseudo_dirs = "accounts", {}, [""]

        @classmethod
        def _strip_protocol(cls, path):
            container, _, rest = path.removeprefix("accounts://").lstrip("/").partition("/")
            return f"/{container.partition('@')[0]}/{rest}".rstrip("/")

    monkeypatch.setitem(sys.modules["fsspec.registry"]._registry, "accounts", Accounts)
    folder = "accounts://clicks@mine.net/day[1]"
    for name in ("part-0", "part-1", "deep/part-2"):
        write(f"{folder}/{name}", b"1\n22\n")
    found = {"part*": ["part-0", "part-1"], "part-1": ["part-1"], "**": ["deep/part-2", "part-0", "part-1"]}
    for pattern, names in found.items():
        assert files.find_files(f"{folder.replace('[1]', '?1?')}/{pattern}") == [f"{folder}/{name}" for name in names]
    assert values(line_reader, f"{folder}/part-1", range_bytes=2) == [1, 22]


def test_a_store_that_fails_for_a_while_is_asked_again(monkeypatch, caplog):
    """A step waits for its batch; the log says why. What stays is one line, without credentials."""
    name = f"memory://{uuid.uuid4().hex}/part"
    write(name, b"\n".join(LINES))
    monkeypatch.setenv("STORE_SECRET_KEY", "AbCdEf0123456789")
    faults = [OSError("503 Slow Down AbCdEf0123456789")] * 2
    memory = type(fsspec.filesystem("memory"))
    real = memory.cat_file

    def fail(self, path, *arguments, **options):
        if faults:
            raise faults.pop()
        return real(self, path, *arguments, **options)

    monkeypatch.setattr(memory, "cat_file", fail)
    monkeypatch.setattr("ps_train.parts.object_store.patience._PAUSE_SECS", 0.01)
    assert values(line_reader, name) == [*map(int, LINES)]
    assert "503 Slow Down ***" in caplog.text and "AbCdEf" not in caplog.text
    faults[:] = [PermissionError("Forbidden AbCdEf0123456789")]
    with raises("store_denied") as caught:
        values(line_reader, name)
    assert "AbCdEf" not in str(caught.value)


PATTERNS = ["*", "day1/*", "day*/part-?", "*/part-[!1]", "**", "**/part-1", "day1/**", "day1/deep/../*", "none/*",
            "day1/part-1", "day1", "day[12]/**/*", "[x]*"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_finds_what_fsspec_finds(folder, pattern):
    """Files only; a folder that matches is none."""
    folder = folder if folder.startswith("memory") else f"local://{folder}"
    for name in ("part-0", "day1/part-1", "day1/part-2", "day2/part-1", "day1/deep/part-1", "day1/deep/er/part-3"):
        write(f"{folder}/{name}", b"1")
    files_of, path = fsspec.url_to_fs(f"{folder}/{pattern}")
    expected = {name for name, entry in files_of.glob(path, detail=True).items() if entry["type"] == "file"}
    found = files.sizes_now(f"{folder}/{pattern}")
    assert {name.partition("://")[2].lstrip("/") for name in found} == {name.lstrip("/") for name in expected}


@pytest.mark.parametrize("pattern", ["**", "**/part-1", "day1/**", "day[12]/**/*", "**/deep/**/part-?",
                                     "x[[]1]/**/part*", "none/**/*"])
@pytest.mark.parametrize("is_relative", [True, False])
def test_two_stars_are_any_number_of_folders_on_this_machine_too(tmp_path, monkeypatch, pattern, is_relative):
    """Issue: TensorFlow takes them for one star, so files in other depths were left out without a word."""
    for name in ("part-0", "day1/part-1", "day2/part-1", "day1/deep/part-1", "day1/deep/er/part-3", "x[1]/y/part-2"):
        write(f"{tmp_path}/{name}", b"1")
    monkeypatch.chdir(tmp_path)
    pattern = pattern if is_relative else f"{tmp_path}/{pattern}"
    expected = sorted(name for name in glob.glob(pattern, recursive=True) if os.path.isfile(name))
    assert sorted(files.sizes_now(pattern)) == expected
    if expected:
        assert files.find_files(pattern) == expected
        with files.growing():
            assert files.find_files(pattern) == expected


def test_a_folder_that_cannot_be_listed_for_a_moment_is_not_taken_for_empty(monkeypatch, caplog):
    """Its data would be left out without a word; one that is gone is empty."""
    root = f"memory://{uuid.uuid4().hex}"
    for day in ("day1", "day2"):
        write(f"{root}/{day}/part", b"1")
    memory, faults = type(fsspec.filesystem("memory")), [OSError("503 Slow Down")] * 2
    real = memory.ls

    def fail(self, path, **options):
        if faults and path.endswith("day2"):
            raise faults.pop(0)
        return real(self, path, **options)

    monkeypatch.setattr(memory, "ls", fail)
    monkeypatch.setattr("ps_train.parts.object_store.patience._PAUSE_SECS", 0.01)
    assert files.find_files(f"{root}/*/part") == [f"{root}/{day}/part" for day in ("day1", "day2")]
    assert "503 Slow Down" in caplog.text
    faults.append(FileNotFoundError())
    assert files.find_files(f"{root}/*/part") == [f"{root}/day1/part"]


def test_a_parquet_file_that_is_being_written_is_left_out_while_files_grow(folder):
    """It may be written in place: its end comes last. If there is no other, the error says so."""
    for name, content in (("a.parquet", b"PAR1.."), ("b.parquet", b""), ("c.parquet", b"PAR1")):
        write(f"{folder}/{name}", content)
    pattern = f"{folder}/*"
    with files.growing(), raises("input_file_missing") as caught:
        files.find_files(pattern)
    assert str(caught.value) == f"{pattern}: no such file that is whole"
    assert len(files.find_files(pattern)) == 3
    write(f"{folder}/b.parquet", b"PAR1....PAR1")
    write(f"{folder}/d.txt", b"1")
    with files.growing():
        assert files.find_files(pattern) == [f"{folder}/b.parquet", f"{folder}/d.txt"]


@pytest.mark.parametrize("content", [b"no records at all", None])
def test_a_damaged_file_of_records_is_one_line(tmp_path, content):
    """One that never was such a file, and one that ends in the middle of a record."""
    name = f"memory://{uuid.uuid4().hex}/part"
    write_records(tmp_path, name)
    write(name, content or (tmp_path / "records").read_bytes()[:-1])
    with raises("bad_record_file") as caught:
        values(record_reader, name, is_text=False)
    assert name in str(caught.value)


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".zst", zstd.compress)])
def test_a_damaged_compressed_file_is_one_line(folder, suffix, compress):
    """It ends in the middle."""
    write(f"{folder}/part{suffix}", compress(b"\n".join(LINES))[:-100])
    with raises("input_file_damaged"):
        values(line_reader, f"{folder}/part{suffix}")


def test_a_topic_of_kafka_is_refused():
    """The line says what to do in its place."""
    with raises("kafka_not_read"):
        plan_ranges("kafka://broker:9092/clicks")


def test_without_its_package_a_zstd_file_is_one_line(folder, monkeypatch):
    """Before training; the line has the command that installs it."""
    for name in ("compression.zstd", "backports.zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    write(f"{folder}/part.zst", zstd.compress(b"1\n"))
    with raises("package_missing"):
        plan_ranges(f"{folder}/part.zst")


def test_the_checksum_is_that_of_tensorflow(tmp_path):
    """Of lengths of one and of several bytes."""
    for length in (0, 1, 300, 70_000):
        path = str(tmp_path / "records")
        with tf.io.TFRecordWriter(path) as writer:
            writer.write(b"x" * length)
        assert [*map(len, file_texts.records_of(path))] == [length]


def test_a_stream_goes_on_after_a_failure(monkeypatch):
    """From the byte at which it stood."""
    name, content = f"memory://{uuid.uuid4().hex}/part", np.random.default_rng(1).bytes(1000)
    write(name, content)
    memory = type(fsspec.filesystem("memory"))
    real, opened = memory.open, []

    class Failing:
        def __init__(self, file):
            self._file = file

        def __getattr__(self, attribute):
            return getattr(self._file, attribute)

        def read(self, size):
            opened.append(size)
            if len(opened) == 2:
                raise OSError("connection reset")
            return self._file.read(size)

    monkeypatch.setattr(memory, "open", lambda self, *given, **options: Failing(real(self, *given, **options)))
    monkeypatch.setattr(files, "_BLOCK_BYTES", 300)
    monkeypatch.setattr("ps_train.parts.object_store.patience._PAUSE_SECS", 0.01)
    with files.open_stream(name) as file:
        assert b"".join(iter(lambda: file.read(300), b"")) == content
    assert len(opened) == 5  # of which one has failed
