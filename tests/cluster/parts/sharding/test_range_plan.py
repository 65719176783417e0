"""The ranges of files as a text, and its extension by files that are new since."""

from __future__ import annotations

import functools

import pytest

from ps_train.parts.readers import file_ranges
from ps_train.parts.sharding import growth, local_ranges, range_plan
from tests.errors import raises
from tests.tensorflow_mode import tf


def write(folder, name, first, stop):
    """Writes numbered lines."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{number}\n" for number in range(first, stop)))


def described(pattern):
    """Returns the ranges of the files now, and their text."""
    plan = file_ranges.plan_ranges(str(pattern))
    return plan, range_plan.describe_ranges(plan, [str(pattern)])


def extended(text, pattern):
    """Returns a text extended by the present files."""
    return range_plan.extend(text, described(pattern)[0], [str(pattern)], is_text=True)


def test_known_ranges_keep_their_numbers_and_cuts(tmp_path):
    """A small file is cut elsewhere if others come; a file whose name comes first is counted last."""
    write(tmp_path, "b.txt", 0, 60_000)
    before, text = described(tmp_path / "*.txt")
    write(tmp_path, "a.txt", 0, 60_000)
    now = [one for one in described(tmp_path / "*.txt")[0] if one.file.endswith("b.txt")]
    assert [one.start for one in now] != [one.start for one in before]
    found = extended(text, tmp_path / "*.txt")
    assert found.plan[:len(before)] == before
    assert {one.file for one in found.plan[len(before):]} == {f"{tmp_path}/a.txt"}
    assert [one.number for one in found.plan] == list(range(len(found.plan)))
    assert (found.num_files, found.num_ranges) == (1, len(found.plan) - len(before))
    assert extended(found.text, tmp_path / "*.txt") == found._replace(num_files=0, num_ranges=0)


def test_files_of_one_name_in_a_folder_for_each_day(tmp_path):
    """The folder behind a wildcard is part of the name; those above may be others."""
    write(tmp_path, "here/day1/part-0", 0, 100)
    _, text = described(tmp_path / "here/*/part-*")
    (tmp_path / "here").rename(tmp_path / "there")
    write(tmp_path, "there/day2/part-0", 0, 100)
    found = extended(text, tmp_path / "there/*/part-*")
    assert found.num_files == 1
    assert [one.file for one in found.plan] == [f"{tmp_path}/there/day{day}/part-0" for day in (1, 2)]


def test_a_text_without_names_fits_the_same_files_only(tmp_path):
    """Older checkpoints have only the numbers and a fingerprint."""
    write(tmp_path, "a.txt", 0, 100)
    plan, text = described(tmp_path / "*.txt")
    assert extended(range_plan.summary(text), tmp_path / "*.txt").plan == plan
    write(tmp_path, "b.txt", 0, 100)
    with pytest.raises(range_plan.MisfitError, match="position in 1 ranges of 1 file, .* 2 ranges of 2 files"):
        extended(range_plan.summary(text), tmp_path / "*.txt")


def test_a_text_of_files_that_grow_is_refused(tmp_path):
    """A position with --follow counts pieces of files in the order in which they came."""
    write(tmp_path, "a.txt", 0, 100)
    cut = functools.partial(file_ranges.cuts_of_growth, is_text=True, has_header=False, range_bytes=None)
    text = growth.GrowingFiles([f"{tmp_path}/*.txt"], cut).extend("").text
    with raises("input_files_differ") as caught:
        extended(text, tmp_path / "*.txt")
    assert "a training with --follow" in str(caught.value)


def test_a_first_line_that_is_a_header_by_now_is_in_no_range(tmp_path):
    """The ranges of before have it; the other way round it is left out as before."""
    write(tmp_path, "a.txt", 0, 60_000)
    pattern = f"{tmp_path}/*.txt"
    with_header = file_ranges.plan_ranges(pattern, has_header=True)
    plan, text = described(pattern)
    with raises("input_files_differ") as caught:
        range_plan.extend(text, with_header, [pattern], is_text=True)
    assert "began at byte 0, and begins at byte 2 now" in str(caught.value)
    text = range_plan.describe_ranges(with_header, [pattern])
    assert range_plan.extend(text, plan, [pattern], is_text=True).plan == with_header


def test_a_worker_takes_the_ranges_of_the_chief(tmp_path):
    """New files are ignored, as by a worker that is started again; a file that it lacks is an error."""
    write(tmp_path, "a.txt", 0, 100)
    plan, text = described(tmp_path / "*.txt")
    write(tmp_path, "0.txt", 0, 100)
    with tf.Graph().as_default():
        worker = local_ranges.LocalRanges(described(tmp_path / "*.txt")[0], [f"{tmp_path}/*.txt"],
                                          local_ranges.RangeSettings(None, 1), is_text=True)
    worker.adopt(text)
    assert (worker.plan, worker.plan_text) == (plan, text)
    write(tmp_path, "c.txt", 0, 100)
    with raises("input_files_differ") as caught:
        worker.adopt(described(tmp_path / "*.txt")[1])
    assert "c.txt is missing" in str(caught.value)


def test_an_input_calls_file_ranges_once_and_yields_marks(tmp_path):
    """The queue has one plan, and a step must know the range of its batch."""
    write(tmp_path, "a.txt", 0, 100)
    source = local_ranges.QueueSource(local_ranges.RangeSettings(None, 1))
    with tf.Graph().as_default():
        plan, patterns = described(tmp_path / "*.txt")[0], [f"{tmp_path}/*.txt"]
        with raises("file_ranges_not_called"):
            source.check_used("words")
        source.ranges(lambda: plan, patterns, is_text=True, cut=lambda *_: [])
        with raises("file_ranges_called_twice"):
            source.ranges(lambda: plan, patterns, is_text=True, cut=lambda *_: [])
        with raises("range_mark_missing"):
            source.taken((tf.zeros([2]), tf.zeros([2])), "words")


@pytest.mark.parametrize("repeated", [
    lambda ranges: ranges,
    lambda ranges: ranges.repeat(),
    lambda ranges: ranges.repeat(3),
    lambda ranges: ranges.shuffle(9).repeat(),
    lambda ranges: ranges.batch(2).repeat().unbatch().prefetch(1),
], ids=["once", "repeated", "thrice", "shuffled", "batches"])
def test_an_input_that_repeats_its_ranges_ends_with_them(repeated):
    """It would wait for more without an end, or turn in a circle; so it does after it was started again."""
    with tf.Graph().as_default(), tf.Session() as session:
        local = local_ranges.LocalRanges([], [], local_ranges.RangeSettings(1, 1), is_text=True)
        iterator = tf.data.make_initializable_iterator(repeated(local.ranges()))
        next_number, bounded = iterator.get_next().number, tf.RunOptions(timeout_in_ms=20_000)
        for numbers in ([0, 1, 2], [3], []):
            session.run(iterator.initializer)
            session.run(local.reset_op)
            for number in numbers:
                session.run(local.add_op, dict(zip(local.added, (number, "a", 0, 9, 9))))
            session.run(local.end_op)
            assert sorted(int(session.run(next_number, options=bounded)) for _ in numbers) == numbers
            with pytest.raises(tf.errors.OutOfRangeError):
                session.run(next_number, options=bounded)
