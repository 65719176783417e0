"""Files cut into ranges, their shares, and the batches that a reader makes of them."""

from __future__ import annotations

import bz2
import collections
import gzip
import lzma

import numpy as np
import pytest

import ps_train
from ps_train.graph.batches import set_source
from ps_train.parts.readers.file_ranges import plan_ranges, utf_16_of
from ps_train.parts.readers.files import growing
from ps_train.parts.readers.range_batches import range_batches
from ps_train.parts.sharding.local_ranges import QueueSource, RangeSettings
from tests.errors import raises
from tests.tensorflow_mode import tf


@pytest.fixture
def files(tmp_path):
    """Two files with the lines "0" to "1299", the last one without a line break at its end."""
    (tmp_path / "a.txt").write_text("".join(f"{number}\n" for number in range(1000)))
    (tmp_path / "b.txt").write_text("\n".join(map(str, range(1000, 1300))))
    return str(tmp_path / "*.txt")


def read_numbers(file_range):
    """Reads a range of lines that are integers, as one chunk."""
    whole = tf.data.FixedLengthRecordDataset(
        file_range.file, file_range.stop - file_range.start, file_range.start, file_range.file_bytes - file_range.stop)
    return whole.map(lambda text: tf.strings.to_number(tf.strings.split([tf.strings.strip(text)], "\n").values))


def elements(dataset, count=None):
    """Returns the first elements of a dataset, or all."""
    with tf.Graph().as_default() as graph, tf.Session(graph=graph) as session:
        element = tf.data.make_one_shot_iterator(dataset()).get_next()
        found = []
        while count is None or len(found) < count:
            try:
                found.append(session.run(element))
            except tf.errors.OutOfRangeError:
                break
        return found


@pytest.mark.parametrize("range_bytes", [1, 3, 7, 100, 10**6])
def test_each_line_is_in_the_range_in_which_it_begins(tmp_path, range_bytes):
    """Ranges follow each other without a gap, begin where a line begins, and none is empty."""
    contents = {"a": b"one\ntwo\n\nthree\n", "b": b"", "c": b"a long line, and no line break at its end",
                "d": b"\n\n\n", "e": b"x"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    found = collections.defaultdict(list)
    plan = plan_ranges(str(tmp_path / "*"), range_bytes=range_bytes)
    for one in plan:
        found[one.file[-1]].append((one.start, one.stop, one.file_bytes))
    assert [one.number for one in plan] == list(range(len(plan)))
    assert set(found) == set("acde")
    for name, ranges in found.items():
        content = contents[name]
        assert [0, *(stop for _, stop, _ in ranges)] == [*(start for start, _, _ in ranges), len(content)]
        assert all(start < stop and size == len(content) for start, stop, size in ranges)
        assert all(content[start - 1:start] == b"\n" for start, _, _ in ranges[1:])
        # no range is much larger than it has to be for its last line to be whole
        assert all(b"\n" not in content[start + range_bytes:stop - 1] for start, stop, _ in ranges)


def test_a_range_ends_behind_a_line_that_is_longer_than_the_bytes_read_at_a_time(tmp_path):
    """A line of 10 kB is read on until its end."""
    (tmp_path / "a").write_bytes(b"short\n" + b"x" * 10000 + b"\nshort\n")
    plan = plan_ranges(str(tmp_path / "a"), range_bytes=5000)
    assert [(one.start, one.stop) for one in plan] == [(0, 10007), (10007, 10013)]


@pytest.mark.parametrize("mode", ["eval", "infer"])
def test_what_is_evaluated_of_files_that_grow_are_their_whole_lines(tmp_path, mode):
    """Those that there were when the graph was built; files that are being written are left out."""
    (tmp_path / "a.txt").write_text("1\n2\n3")
    (tmp_path / "b.txt").write_text("5")
    (tmp_path / "_c.txt").write_text("6\n")

    def evaluated():
        with growing():
            ranges = ps_train.file_ranges(str(tmp_path / "*.txt"), (0, 1), mode)
        with open(tmp_path / "a.txt", "a") as file:
            file.write("4\n")
        reader = ps_train.LineReader(tf.strings.to_number, tf.zeros_like, "stop")
        return ps_train.range_batches(ranges, reader.read, 10)

    assert [batch.tolist() for batch in elements(evaluated)] == [[1, 2]]


def test_small_files_are_cut_so_that_several_workers_have_a_share(tmp_path):
    """300 kB are 32 ranges and more; files that have no lines are one range each."""
    (tmp_path / "a").write_bytes(b"0123456789\n" * 30000)
    (tmp_path / "b").write_bytes(b"0" * 5000)
    assert len(plan_ranges(str(tmp_path / "a"))) == 33
    whole = plan_ranges(str(tmp_path / "*"), is_text=False)
    assert [(one.start, one.stop) for one in whole] == [(0, 330000), (0, 5000)]


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("is_handed_out", [False, True])
def test_a_reader_of_records_refuses_ranges_of_lines(files, mode, is_handed_out):
    """It would read the whole file for each of them; also if they are shuffled, or come from ps 0."""
    with tf.Graph().as_default():
        if is_handed_out:
            set_source(QueueSource(RangeSettings(num_epochs=1, seed=1)))
        ranges = ps_train.file_ranges(files, (0, 1), mode, range_bytes=500).shuffle(3)
        for reader in (ps_train.RecordReader(tf.identity, "anything", "stop"),
                       ps_train.ParquetReader({"number": tf.int64}, lambda columns: columns["number"])):
            with raises("ranges_of_lines"):
                ps_train.range_batches(ranges, reader.read, 10)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_the_shares_of_all_workers_are_all_ranges(files, mode):
    """Each range is in one share, in each epoch of training, too."""
    plan = plan_ranges(files, range_bytes=500)
    seen = []
    for index in range(3):
        size = len(plan[index::3])
        shares = elements(lambda index=index: ps_train.file_ranges(files, (index, 3), mode, range_bytes=500), 2 * size)
        numbers = [int(one.number) for one in shares]
        assert len(numbers) == (2 * size if mode == "train" else size)
        assert sorted(numbers[:size]) == list(range(index, len(plan), 3))
        if mode == "train":
            assert sorted(numbers[size:]) == sorted(numbers[:size])
        seen += numbers[:size]
        assert all(tuple(one)[2:] == plan[one.number][2:] and one.file.decode() == plan[one.number].file
                   for one in shares)
    assert sorted(seen) == list(range(len(plan)))


def test_the_order_follows_from_the_seed_and_changes_each_epoch(files):
    """The same seed gives the same order, another seed another one."""
    size = len(plan_ranges(files, range_bytes=100))

    def order(seed, **options):
        found = elements(lambda: ps_train.file_ranges(files, (0, 1), "train", range_bytes=100, seed=seed, **options),
                         2 * size)
        return [int(one.number) for one in found]

    first = order(1)
    assert first == order(1) and first[:size] != first[size:] and sorted(first[:size]) == list(range(size))
    assert first != order(2)
    assert order(1, shuffle=False) == [*range(size)] * 2


@pytest.mark.parametrize("range_bytes", [2, 100])
def test_a_byte_order_mark_is_in_no_range(tmp_path, range_bytes):
    """The first line is a number as the others are; with a header, the mark is a part of that."""
    for name, header in (("plain", ""), ("headed", "number\n")):
        (tmp_path / name).write_text(f"{header}7\n8\n9\n", encoding="utf-8-sig")
        plan = plan_ranges(str(tmp_path / name), range_bytes=range_bytes, has_header=bool(header))
        text = (tmp_path / name).read_bytes()
        assert b"".join(text[one.start:one.stop] for one in plan) == b"7\n8\n9\n"
    (tmp_path / "mark").write_bytes(b"\xef\xbb\xbf")
    with raises("input_file_empty"):
        plan_ranges(str(tmp_path / "mark"))


_COMPRESSIONS = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress,
                 "zstd": lambda text: b"\x28\xb5\x2f\xfd" + text, "zip": lambda text: b"PK\x03\x04" + text}


@pytest.mark.parametrize("mark, encoding, name", [
    ("\ufeff", "utf-16-le", "UTF-16"), ("\ufeff", "utf-16-be", "UTF-16"), ("", "utf-16-le", "UTF-16LE"),
    ("", "utf-16-be", "UTF-16BE")])
@pytest.mark.parametrize("options", [{}, {"has_header": True}, {"range_bytes": 8}], ids=["small", "header", "ranges"])
def test_a_text_file_of_utf_16_is_refused(tmp_path, mark, encoding, name, options):
    """As Excel writes it, and without a mark. The schema was blamed for its columns, or a line for its numbers."""
    (tmp_path / "a").write_bytes(f"{mark}number,\u043c\n1,2\n".encode(encoding))
    with raises("input_file_not_utf8") as caught:
        plan_ranges(str(tmp_path / "a"), **options)
    assert f"iconv -f {name} -t" in str(caught.value)


@pytest.mark.parametrize("encoding, name", [("utf-16-le", "UTF-16LE"), ("utf-16-be", "UTF-16BE")])
@pytest.mark.parametrize("text", [
    "name,price\n\u0100dams,1.5\nNew\u3000York,2\n",
    "1,0.5,\u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440 \u043a\u0430\u043a \u0434\u0435\u043b\u0430\n",
    "3,\u8fd9\u4e2a\u7535\u5f71\u5f88\u597d\u770b\u6211\u5f88\u559c\u6b22\n1,\u4e0a\u6d77\u7684\u5929\u6c14\u4e0d\u592a\u597d\u4e86\n"],
    ids=["ends in NUL", "Cyrillic", "Chinese"])
def test_lines_with_few_letters_of_ascii_may_be_utf_16(text, encoding, name):
    """Issue: a single letter whose low byte is NUL, or text of another script, had it read with its NULs."""
    assert utf_16_of(text.encode(encoding)) == name


@pytest.mark.parametrize("text", [b"", b"1", b"1\n", b"\0\n", bytes(64), b"1\x000\x001\n" * 20, b"a\0bc\0d\n" * 20,
                                  b"ab\0cd\n" * 20, b"ab\0c" * 20, b"abcd\0\n" * 20, b"\x20" + bytes(11) + b"a\nb\n"])
def test_other_files_with_nul_bytes_are_not_taken_for_utf_16(text):
    """Such as a file with a hole, or with NUL between its fields."""
    assert utf_16_of(text) is None


@pytest.mark.parametrize("kind", _COMPRESSIONS)
def test_a_compressed_text_file_is_refused_by_name(tmp_path, kind):
    """Of each usual kind, under a name that does not end in .gz; text that begins with the letters of one is text."""
    (tmp_path / "lines").write_bytes(_COMPRESSIONS[kind](b"1\n2\n"))
    with raises("input_file_compressed"):
        plan_ranges(str(tmp_path / "lines"))
    (tmp_path / "lines").write_bytes(b"BZh9 is a word\nPK too\n")
    assert len(plan_ranges(str(tmp_path / "lines"))) == 1


@pytest.mark.parametrize("marks", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("on_bad_record", ["stop", "skip"])
def test_examples_may_have_ids_of_varying_number(tmp_path, on_bad_record, shuffle, marks):
    """As sparse and as ragged tensors: record N has N % 3 times the word N, of which a chunk may have none."""
    with tf.io.TFRecordWriter(str(tmp_path / "records")) as writer:
        for number in range(5000):
            writer.write(",".join([str(number)] * (number % 3 if number < 4096 else 2)).encode())

    def parse(records):
        words = tf.strings.split(records, ",", result_type="RaggedTensor")
        words = tf.ragged.boolean_mask(words, tf.not_equal(words, ""))
        return {"ragged": words, "sparse": words.to_sparse()}, words.row_lengths()

    with tf.Graph().as_default() as graph, tf.Session(graph=graph) as session:
        reader = ps_train.RecordReader(parse, "words", on_bad_record)
        ranges = ps_train.file_ranges(str(tmp_path / "records"), (0, 1), "eval", is_text=False)
        iterator = tf.data.make_initializable_iterator(ps_train.range_batches(
            ranges, reader.read, 700, shuffle=shuffle, marks=marks))
        element = iterator.get_next()
        features, lengths = element[0] if marks else element
        dense = [features["ragged"].to_tensor(), tf.sparse.to_dense(features["sparse"], "")]
        session.run([iterator.initializer, tf.local_variables_initializer()])
        seen = []
        for _ in range(8):
            ragged, sparse, counts = session.run([*dense, lengths])
            np.testing.assert_array_equal(ragged, sparse)
            np.testing.assert_array_equal((ragged != b"").sum(1), counts)
            seen += ragged[:, 0].tolist()
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(dense)
    expected = [b"%d" % number if number % 3 or number >= 4096 else b"" for number in range(5000)]
    assert sorted(seen) == sorted(expected) and (seen != expected) == shuffle


def test_wrong_files_are_one_line(tmp_path, files):
    """No file, only empty ones, and more workers than ranges."""
    with raises("input_file_missing"):
        plan_ranges([files, str(tmp_path / "nothing*")])
    with raises("input_file_missing"):
        ps_train.file_ranges([], (0, 1), "train")  # as of a glob that has found nothing
    with raises("parameter_out_of_range"):
        ps_train.file_ranges(files, (0, 1), "train", range_bytes=0)
    (tmp_path / "empty").touch()
    with raises("input_file_empty"):
        plan_ranges(str(tmp_path / "empty"))
    (tmp_path / "c.bz2").write_bytes(bz2.compress(b"1\n2\n"))
    with raises("input_file_compressed"):
        plan_ranges([files, str(tmp_path / "c.*")])
    assert [one.start for one in plan_ranges(str(tmp_path / "c.*"), is_text=False)] == [0]
    with raises("too_few_ranges"):
        ps_train.file_ranges(files, (0, 3), "train", is_text=False)


def test_files_may_be_paths(tmp_path, files):
    """One, or several, also with patterns."""
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    assert plan_ranges(tmp_path / "*.txt") == plan_ranges(paths) == plan_ranges(files)
    [first] = elements(lambda: ps_train.file_ranges(paths[0], (0, 1), "eval", range_bytes=10**6))
    assert first.file.decode() == str(paths[0])


def test_a_share_of_an_evaluation_may_be_empty(files):
    """Workers that evaluate together may be more than the ranges of the held-out data."""
    def share(index):
        return elements(lambda: ps_train.file_ranges(files, (index, 3), "eval", is_text=False))

    assert [len(share(index)) for index in range(3)] == [1, 1, 0]


def test_every_example_comes_once_in_order_in_full_batches(files):
    """Batches go over the ends of ranges and files; the last one is smaller."""
    found = elements(lambda: range_batches(
        ps_train.file_ranges(files, (0, 1), "eval", range_bytes=300), read_numbers, 100))
    assert [len(batch) for batch in found] == [100] * 13
    np.testing.assert_array_equal(np.concatenate(found), np.arange(1300))
    found = elements(lambda: range_batches(
        ps_train.file_ranges(files, (1, 2), "eval", range_bytes=2000), read_numbers, 400))
    assert [len(batch) for batch in found] == [400, 86]


@pytest.mark.parametrize("marks", [False, True])
def test_shuffled_examples_are_a_permutation_of_each_chunk(files, marks):
    """Every example comes once, in an order that the seed gives."""
    def batches():
        return range_batches(ps_train.file_ranges(files, (0, 1), "eval"), read_numbers, 1300, shuffle=True, seed=1,
                             marks=marks)

    found, again = ([one[0] if marks else one for one in elements(batches)] for _ in range(2))
    joined = np.concatenate(found)
    assert not np.array_equal(joined, np.arange(1300))
    np.testing.assert_array_equal(np.sort(joined), np.arange(1300))
    np.testing.assert_array_equal(joined, np.concatenate(again))


def test_marked_batches_end_with_their_range_and_say_which_is_the_last(files):
    """A range counts as done with its one batch that is marked as the last."""
    plan = plan_ranges(files, range_bytes=1000)
    found = elements(lambda: range_batches(
        ps_train.file_ranges(files, (0, 1), "eval", range_bytes=1000), read_numbers, 100, marks=True))
    np.testing.assert_array_equal(np.concatenate([batch for batch, _ in found]), np.arange(1300))
    lengths = collections.defaultdict(list)
    for batch, mark in found:
        lengths[int(mark.number)].append(len(batch))
    for number, in_range in lengths.items():
        assert set(in_range[:-1]) <= {100} and 0 < in_range[-1] <= 100
        assert [bool(mark.is_last) for _, mark in found if mark.number == number] == [
            *[False] * (len(in_range) - 1), True]
    assert len(lengths) == len(plan)


def test_the_last_of_several_chunks_of_a_range_has_the_mark(files):
    """As in a TFRecord file, whose records come in chunks: 1000 records in chunks of 150, in batches of 100."""
    def read(file_range):
        records = tf.data.TextLineDataset(file_range.file).batch(150)
        return records.map(lambda lines: {"number": tf.strings.to_number(lines), "text": lines})

    found = elements(lambda: range_batches(
        ps_train.file_ranges(files, (0, 1), "eval", is_text=False), read, 100, marks=True))
    sizes = [(int(mark.number), len(batch["text"]), bool(mark.is_last)) for batch, mark in found]
    assert sizes == [*[(0, 100, False), (0, 50, False)] * 6, (0, 100, True), *[(1, 100, False), (1, 50, False)],
                     (1, 100, False), (1, 50, True)]
    np.testing.assert_array_equal(np.concatenate([batch["number"] for batch, _ in found]), np.arange(1300))


@pytest.mark.parametrize("shape", [[None, None], None])
@pytest.mark.parametrize("marks", [False, True])
def test_features_may_have_dimensions_that_only_reading_tells(files, shape, marks):
    """As of `numpy_function` or `to_tensor`, also in number; chunks of other widths come one after another."""
    def read(file_range):
        def table(lines):
            return np.repeat(lines.astype(np.float32)[:, np.newaxis], 2 if len(lines) == 150 else 3, axis=1)

        records = tf.data.TextLineDataset(file_range.file).batch(150)
        return records.map(lambda lines: {
            "table": tf.ensure_shape(tf.numpy_function(table, [lines], tf.float32), shape), "text": lines})

    found = elements(lambda: range_batches(
        ps_train.file_ranges(files, (0, 1), "eval", is_text=False), read, 50, marks=marks))
    batches = [batch for batch, _ in found] if marks else found
    np.testing.assert_array_equal(np.concatenate([batch["table"][:, 1] for batch in batches]), np.arange(1300))
    assert [batch["table"].shape for batch in batches] == [*[(50, 2)] * 18, *[(50, 3)] * 2, *[(50, 2)] * 6]
    if marks:
        assert [index for index, (_, mark) in enumerate(found) if mark.is_last] == [19, 25]
