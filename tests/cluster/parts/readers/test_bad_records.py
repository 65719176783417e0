"""Malformed lines and records: training stops and names the first, or leaves them out and counts them."""

from __future__ import annotations

import logging
import textwrap

import numpy as np
import pytest

import ps_train
from ps_train import testing
from ps_train.errors import DataError
from ps_train.graph import extensions
from ps_train.parts.readers import bad_records
from tests.errors import raises
from tests.tensorflow_mode import tf

EXPECTED = "a serialised float32"


def parse(lines):
    return tf.strings.to_number(lines)


def find_faults(lines):
    is_sound = tf.strings.regex_full_match(lines, "[0-9]+")
    return tf.where(is_sound, tf.zeros_like(lines), tf.strings.join(["expected a number, got '", lines, "'"]))


def line_reader(on_bad_record):
    return ps_train.LineReader(parse, find_faults, on_bad_record)


def record_reader(on_bad_record):
    def parse_floats(records):
        return tf.io.decode_raw(records, tf.float32)[:, 0]

    return ps_train.RecordReader(lambda records: parse_floats(_of_four_bytes(records)), EXPECTED, on_bad_record)


def _of_four_bytes(records):
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(tf.equal(tf.strings.length(records), 4)), [""])]):
        return tf.identity(records)


def read_all(make_reader, files, on_bad_record, mode="eval", **options):
    """Returns all values, and how many records were left out."""
    with tf.Graph().as_default() as graph, tf.Session(graph=graph) as session:
        reader = make_reader(on_bad_record)
        dataset = ps_train.range_batches(ps_train.file_ranges(files, (0, 1), mode, **options), reader.read, 100)
        iterator = tf.data.make_initializable_iterator(dataset)
        batch = iterator.get_next()
        skipped = [variable for variable in tf.local_variables() if variable.op.name.endswith("num_bad_records")]
        session.run([iterator.initializer, tf.local_variables_initializer()])
        found = []
        while True:
            try:
                found.append(session.run(batch))
            except tf.errors.OutOfRangeError:
                return np.concatenate(found), sum(session.run(skipped))
            except tf.errors.InvalidArgumentError as error:
                extensions.explain_error(graph, error, "")
                raise


def write_lines(path, bad):
    """Writes the numbers 0 to 999 as lines; `bad` has other lines for some of them."""
    path.write_bytes(b"".join(bad.get(number, b"%d" % number) + b"\n" for number in range(1000)))
    return str(path)


def write_records(path, bad):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in range(5000):
            writer.write(bad.get(number, np.float32(number).tobytes()))
    return str(path)


@pytest.mark.parametrize("range_bytes", [500, 10**6])
def test_skip_leaves_out_malformed_lines_and_counts_them(tmp_path, range_bytes):
    """In some ranges there are none, in one several; all other lines are read, in order."""
    bad = {0: b"", 7: b"x", 8: b"-1", 999: b"\xff"}
    values, num_skipped = read_all(line_reader, write_lines(tmp_path / "lines", bad), "skip", range_bytes=range_bytes)
    assert num_skipped == 4
    np.testing.assert_array_equal(values, [number for number in range(1000) if number not in bad])


@pytest.mark.parametrize("line", [b"x", b"", b"a] [b 'c' \"d\"", "ünï".encode(), b"\\n"])
def test_stop_names_the_file_the_line_and_the_fault(tmp_path, line):
    """With any characters in the line and in the name of the file."""
    name = write_lines(tmp_path / "a [b] ü 'c'", {700: line, 800: b"later"})
    with pytest.raises(DataError) as caught:
        read_all(line_reader, str(tmp_path / "a*"), "stop", range_bytes=500)
    assert f"{name}, line 701 (byte 2690): expected a number, got '{line.decode()}'" in str(caught.value)


def test_bytes_that_are_no_text_are_named_too(tmp_path):
    """A session could not decode an error that has them."""
    name = write_lines(tmp_path / "lines", {3: b"\xff\x00"})
    with pytest.raises(DataError, match=f"{name}, line 4 .*got '\ufffd\ufffd'"):
        read_all(line_reader, name, "stop")


def test_a_file_of_malformed_lines_only_stops_with_skip_too(tmp_path):
    """Such a file is of another form. The error does not advise what was done."""
    name = write_lines(tmp_path / "lines", {number: b"x" for number in range(1000)})
    with pytest.raises(DataError, match=f"{name}, line 1 ") as caught:
        read_all(line_reader, name, "skip")
    assert "100 lines and more" in str(caught.value) and "or skip" not in str(caught.value)


@pytest.mark.parametrize("num_bad, stops", [(99, False), (100, True)])
@pytest.mark.parametrize("range_bytes", [1, 10**6])
def test_skip_ends_at_so_many_malformed_lines_in_a_row(tmp_path, range_bytes, num_bad, stops):
    """In ranges of a line each, or in one. What is malformed before a sound line does not count."""
    (tmp_path / "a").write_bytes(b"x\n" * num_bad)
    (tmp_path / "b").write_bytes(b"7\n" + b"x\n" * 99)
    (tmp_path / "c").write_bytes(b"8\n")
    files = str(tmp_path / "*")
    if stops:
        with pytest.raises(DataError, match=f"{tmp_path}/a, line {100 if range_bytes == 1 else 1} "):
            read_all(line_reader, files, "skip", range_bytes=range_bytes)
    else:
        values, num_skipped = read_all(line_reader, files, "skip", range_bytes=range_bytes)
        assert values.tolist() == [7, 8] and num_skipped == num_bad + 99


def test_data_in_which_nothing_is_sound_ends_although_it_repeats(tmp_path):
    """Three malformed lines, read again and again: a training without an example would not end."""
    (tmp_path / "lines").write_bytes(b"x\n" * 3)
    with pytest.raises(DataError, match="lines, line 1 "):
        read_all(line_reader, str(tmp_path / "lines"), "skip", mode="train")


def test_chunks_with_a_single_malformed_record_are_left_out(tmp_path):
    """The last of 4097 records is a chunk of its own."""
    with tf.io.TFRecordWriter(str(tmp_path / "records")) as writer:
        for number in range(4096):
            writer.write(np.float32(number).tobytes())
        writer.write(b"12345")
    values, num_skipped = read_all(record_reader, str(tmp_path / "records"), "skip", is_text=False)
    assert num_skipped == 1
    np.testing.assert_array_equal(values, range(4096))


@pytest.mark.parametrize("content", ["1\r\n2\r\n3\r\n", "1\r\n2\r\n3", "1\n2\n3"])
def test_line_breaks_of_other_systems_are_no_part_of_a_line(tmp_path, content):
    """CR LF, and a last line without an end."""
    (tmp_path / "lines").write_text(content, newline="")
    values, _ = read_all(line_reader, str(tmp_path / "lines"), "stop")
    np.testing.assert_array_equal(values, [1, 2, 3])


def test_carriage_returns_go_from_lines_that_are_not_utf_8_too(tmp_path):
    """The first line says whether there are any; its text is in Latin-1. An empty first line is no error."""
    def reader(on_bad_record):
        return ps_train.LineReader(lambda lines: lines, tf.zeros_like, on_bad_record)

    for content, lines in ((b"caf\xe9\r\n1\xe9\r\n", [b"caf\xe9", b"1\xe9"]), (b"\n\xe9\n", [b"", b"\xe9"])):
        (tmp_path / "lines").write_bytes(content)
        assert read_all(reader, str(tmp_path / "lines"), "stop")[0].tolist() == lines


def test_malformed_records_are_left_out_or_named(tmp_path):
    """Records of the second chunk, with the file and the number of the first."""
    bad = {4500: b"12345", 4501: b""}
    name = write_records(tmp_path / "records", bad)
    values, num_skipped = read_all(record_reader, name, "skip", is_text=False)
    assert num_skipped == 2
    np.testing.assert_array_equal(values, [number for number in range(5000) if number not in bad])
    with pytest.raises(DataError, match=f"{name}, record 4500: not {EXPECTED}"):
        read_all(record_reader, name, "stop", is_text=False)


def test_an_unknown_policy_is_refused():
    """The flag allows no other; a program may give one."""
    with tf.Graph().as_default(), raises("flag_out_of_range"):
        line_reader("ignore")


PLUGIN = textwrap.dedent("""
    import tensorflow.compat.v1 as tf
    import ps_train
    DEFAULT_PARAMS = {"train_files": "", "eval_files": ""}

    def model_fn(features, labels, mode, params):
        weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())
        return ps_train.ModelSpec(loss=tf.reduce_mean((weight - features) ** 2), predictions=weight)

    def find_faults(lines):
        sound = tf.strings.regex_full_match(lines, "[0-9]+")
        return tf.where(sound, tf.zeros_like(lines), tf.fill(tf.shape(lines), "no number"))

    def input_fn(mode, params, shard):
        files = params["train_files" if mode == "train" else "eval_files"]
        reader = ps_train.LineReader(lambda lines: 2 * (tf.strings.to_number(lines) / 1000,), find_faults,
                                     params["on_bad_record"])
        ranges = ps_train.file_ranges(files, shard, mode, range_bytes=1000)
        return ps_train.range_batches(ranges, reader.read, params["batch_size"])
""")


@pytest.mark.parametrize("period", [1, 5])
def test_training_and_evaluation_stop_or_report_how_many_were_left_out(tmp_path, monkeypatch, caplog, period):
    """A whole training of four epochs, in single steps and in rounds: an error that names the line, or a count."""
    (tmp_path / "readplugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    name = write_lines(tmp_path / "train", {900: b"x"})
    held_out = write_lines(tmp_path / "eval", {5: b"x", 6: b""})
    params = f"train_files={name},eval_files={held_out}"

    def train(on_bad_record):
        return testing.run_in_threads(
            "readplugin", "readplugin", train_dir=str(tmp_path / on_bad_record), num_ps=1, num_workers=1,
            train_steps=40, params=params, on_bad_record=on_bad_record, communication_period=period)

    with pytest.raises(DataError, match=rf"{name}, line 901 \(byte 3490\): no number"):
        train("stop")
    with caplog.at_level(logging.WARNING):
        result = train("skip")
    assert result.evaluation.num_examples == 998
    counts = [record.args[:2] for record in caplog.records if record.name == bad_records.__name__]
    assert len(counts) == 2 and counts[0][0].startswith("worker:") and counts[1] == ("evaluation", 2)
