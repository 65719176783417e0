"""Files that grow: their pieces as a text, against the bytes that a writer has written."""

from __future__ import annotations

import functools
import gzip
import os
import random

import numpy as np
import pytest

from ps_train.parts.readers.file_ranges import cuts_of_growth
from ps_train.parts.sharding import growth
from ps_train.parts.sharding.growth import Freshness, GrowingFiles
from tests.errors import raises
from tests.tensorflow_mode import tf


@pytest.fixture(params=["", "local://"], ids=["on a disk", "in a store"])
def growing(tmp_path, request):
    """The files in a folder; a store is one of fsspec, which has the same files."""
    return GrowingFiles([f"{request.param}{tmp_path}/*"], functools.partial(
        cuts_of_growth, is_text=True, has_header=False, range_bytes=40))


def read(plan):
    """Returns the lines of ranges, in their order."""
    lines = []
    for part in plan[1:]:
        with open(part.file.removeprefix("local://"), "rb") as file:
            file.seek(part.start)
            lines += file.read(part.stop - part.start).splitlines(keepends=True)
    return lines


def test_each_whole_line_is_in_one_range_and_numbers_stay(growing, tmp_path):
    """Files are added, and grow by pieces of lines; the chief is started again now and then, with some ranges done."""
    rng, contents, text, trained = random.Random(1), {}, "", []
    for round_number in range(60):
        for _ in range(3):
            name = f"{rng.randrange(8)}.txt"
            contents[name] = contents.get(name, b"") + b"".join(
                rng.choice([b"%d\n" % rng.randrange(1000), b"%d" % rng.randrange(10)]) for _ in range(rng.randrange(6)))
            (tmp_path / name).write_bytes(contents[name])
        before, extension = growing.plan(text), growing.extend(text)
        assert extension.plan[:len(before)] == before
        text = extension.text
        assert growing.plan(text) == extension.plan
        if round_number % 7 == 6:
            done = np.array([1, *(rng.randrange(2) for _ in extension.plan[1:])])
            trained += read([extension.plan[0], *(part for part in extension.plan[1:] if done[part.number])])
            text = growing.compacted(text, done)
    whole = [line for content in contents.values() for line in content.splitlines(keepends=True)
             if line.endswith(b"\n")]
    assert sorted(trained + read(growing.plan(text))) == sorted(whole)


@pytest.mark.parametrize("name", [".a", "_a", "a.tmp", "a.txt.tmp", "_temporary/a", "day1.tmp/a"])
def test_names_of_files_that_are_written_are_left_out(growing, tmp_path, name):
    """Such files, or their folders, get their name when they are whole."""
    growing.patterns = [f"{pattern}/*" if "/" in name else pattern for pattern in growing.patterns]
    folder, _, _ = name.rpartition("/")
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / name).write_text("1\n")
    assert growing.extend("").num_ranges == 0
    os.rename(tmp_path / (folder or name), tmp_path / "b.txt")
    assert growing.extend("").num_ranges == 1


def test_a_compressed_file_whose_header_is_longer_than_the_file_has_not_shrunk(tmp_path, caplog):
    """Its range begins behind the header, at a byte that the file itself does not have."""
    growing = GrowingFiles([f"{tmp_path}/*"], functools.partial(
        cuts_of_growth, is_text=True, has_header=True, range_bytes=40))
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"name" * 1000 + b"\n1\n"))
    text = growing.extend("").text
    assert growing.plan(text)[1].start == 4001
    assert growing.extend(text).num_ranges == 0
    assert "may only grow" not in caplog.text


def test_a_look_says_whether_it_could_list_all(tmp_path):
    """Otherwise nobody knows whether there is new data."""
    (tmp_path / "a.txt").write_text("1\n")
    growing = GrowingFiles([f"{tmp_path}/*", "nowhere://x/*"], functools.partial(
        cuts_of_growth, is_text=True, has_header=False, range_bytes=40))
    assert growing.extend("").num_ranges == 1
    assert not growing.has_seen_all
    growing.patterns = growing.patterns[:1]
    assert growing.extend("").num_ranges == 1
    assert growing.has_seen_all


def test_the_same_name_in_another_folder_is_another_file(tmp_path, monkeypatch):
    """As when each day has its own folder; what is left of the day before is still trained on."""
    for day, lines in (("day1", "1\n2\n"), ("day2", "3\n4\n5\n")):
        (tmp_path / day).mkdir()
        (tmp_path / day / "train-0").write_text(lines)
    cut = functools.partial(cuts_of_growth, is_text=True, has_header=False, range_bytes=2)
    patterns = [f"{tmp_path}/{day}/train*" for day in ("day1", "day2")]
    first, second = (GrowingFiles([pattern], cut) for pattern in patterns)
    text = first.compacted(first.extend("").text, np.array([1, 1, 0]))
    extension = second.extend(text)
    assert read(extension.plan) == [b"2\n", b"3\n", b"4\n", b"5\n"]
    assert GrowingFiles(patterns[::-1], cut).extend(extension.text).num_ranges == 0
    done = second.compacted(extension.text, np.ones(5))
    assert GrowingFiles(patterns, cut).extend(done).num_ranges == 0
    monkeypatch.chdir(tmp_path / "day1")
    assert GrowingFiles(["train*", "../day2/train*"], cut).extend(done).num_ranges == 0


@pytest.mark.parametrize("error", [OSError(116, "Stale"), tf.errors.PermissionDeniedError(None, None, "no")])
def test_a_folder_that_cannot_be_listed_now_is_looked_at_again(growing, tmp_path, monkeypatch, caplog, error):
    """One warning tells; files of other patterns are found."""
    (tmp_path / "a.txt").write_text("1\n")
    glob = tf.io.gfile.glob

    def failing(pattern):
        if "other" in pattern:
            raise error
        return glob(pattern)

    growing.patterns = [f"{tmp_path}/other/*", *growing.patterns]
    with monkeypatch.context() as patch:
        patch.setattr(tf.io.gfile, "glob", failing)
        assert growing.extend(growing.extend("").text).num_ranges == 0
    assert caplog.text.count("other/*") == 1
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "b").write_text("1\n")
    assert growing.extend("").num_ranges == 2


def test_a_file_that_shrank_or_is_gone_is_named(growing, tmp_path, caplog):
    """What was not trained on is given up when the chief starts again; what was trained on may go."""
    (tmp_path / "a.txt").write_text("1\n2\n3\n")
    (tmp_path / "b.txt").write_text("4\n")
    text = growing.extend("").text
    (tmp_path / "a.txt").write_text("1\n")
    assert growing.extend(text).text == text
    assert "a.txt has 2 bytes, and had 6" in caplog.text
    os.remove(tmp_path / "b.txt")
    done = np.array([1, *("b.txt" in part.file for part in growing.plan(text)[1:])], np.int32)
    compacted = growing.compacted(text, done)
    assert len(growing.plan(compacted)) == 1
    assert "bytes 0 to 6 of" in caplog.text
    assert "b.txt" not in compacted


@pytest.mark.parametrize("is_resumed", [True, False])
def test_a_file_that_was_written_anew_is_not_read_from_the_middle_of_a_line(growing, tmp_path, caplog, is_resumed):
    """Issue: of the 77777 in it, 77 was trained on. A warning names the file; others go on."""
    (tmp_path / "a.txt").write_text("1\n2\n3\n")
    (tmp_path / "b.txt").write_text("4\n")
    text = growing.extend("").text
    if is_resumed:
        text = growing.compacted(text, np.ones(len(growing.plan(text))))
    num_ranges = len(growing.plan(text))
    (tmp_path / "a.txt").write_text("55\n77777\n9\n")
    (tmp_path / "b.txt").write_text("4\n6\n")
    extension = growing.extend(text)
    assert sorted(read([None, *extension.plan[num_ranges:]])) == [b"6\n", b"9\n"]
    assert "a.txt has no line that begins at byte 6" in caplog.text and "b.txt has no" not in caplog.text
    (tmp_path / "a.txt").write_text("55\n77777\n9\n8\n")
    assert read([None, growing.extend(extension.text).plan[-1]]) == [b"8\n"]


@pytest.mark.parametrize(("name", "is_text"), [("a.gz", True), ("a.gz", False), ("records", False)])
def test_a_file_without_lines_that_grows_is_named(tmp_path, caplog, name, is_text):
    """Issue: nobody was told that what was appended is not read, as a log shipper appends to a .gz file."""
    growing = GrowingFiles([f"{tmp_path}/*"], functools.partial(
        cuts_of_growth, is_text=is_text, has_header=False, range_bytes=40))
    (tmp_path / name).write_bytes(gzip.compress(b"1\n" * 40))
    text = growing.extend("").text
    assert growing.extend(text).text == text and not caplog.text
    with open(tmp_path / name, "ab") as file:
        file.write(gzip.compress(b"2\n"))
    (tmp_path / "b").write_bytes(b"3\n")
    assert growing.extend(text).num_ranges == 1
    assert f"{tmp_path}/{name} is not read" in caplog.text and "only files of lines may grow" in caplog.text


@pytest.mark.parametrize("is_empty", [True, False], ids=["mount point", "no folder"])
@pytest.mark.parametrize("protocol", ["", "local://"], ids=["on a disk", "in a store"])
def test_files_that_are_away_for_a_moment_are_not_trained_on_again(tmp_path, caplog, protocol, is_empty):
    """While the chief starts, their mount is not there; what was not trained on is, once they are back."""
    data, mount = tmp_path / "data", tmp_path / "elsewhere"
    data.mkdir()
    for name, secs, lines in (("a.txt", 1000, "1\n2\n"), ("b.txt", 2000, "3\n4\n5\n")):
        (data / name).write_text(lines)
        os.utime(data / name, (secs, secs))
    growing = GrowingFiles([f"{protocol}{data}/*"], functools.partial(
        cuts_of_growth, is_text=True, has_header=False, range_bytes=2))
    text = growing.extend("").text
    assert read(growing.plan(text)) == [b"%d\n" % number for number in range(1, 6)]
    os.rename(data, mount)
    if is_empty:
        data.mkdir()
    text = growing.compacted(text, np.array([1, 1, 1, 1, 0, 0]))
    assert "2 files that were trained on are not there" in caplog.text
    assert len(growing.plan(text)) == 1
    if is_empty:
        data.rmdir()
    os.rename(mount, data)
    assert read(growing.extend(text).plan) == [b"4\n", b"5\n"]


def test_the_watermark_is_the_time_of_the_oldest_piece_that_waits(growing, tmp_path):
    """Once all is trained, that of the newest piece."""
    for name, secs in (("a", 1000), ("b", 3000), ("c", 2000)):
        (tmp_path / name).write_text("1\n")
        os.utime(tmp_path / name, (secs, secs))
    text = growing.extend("").text
    assert [os.path.basename(part.file) for part in growing.plan(text)] == ["", "a", "c", "b"]
    assert growth.watermark(text, np.array([1, 0, 1, 0])) == 1000
    assert growth.watermark(text, np.array([1, 1, 0, 1])) == 2000
    assert growth.watermark(text, np.array([1, 1, 1, 1])) == 3000
    compacted = growing.compacted(text, np.array([1, 1, 1, 0]))
    assert growth.watermark(compacted, np.array([1, 0])) == 3000
    assert growth.watermark(growing.compacted(text, np.ones(4)), np.array([1])) == 3000


def test_freshness_counts_ranges_that_were_done_since_the_last_look(growing, tmp_path, monkeypatch):
    """Those that were done when the chief came are not counted."""
    for name, secs in (("a", 1000), ("b", 2000), ("c", 3000)):
        (tmp_path / name).write_text("1\n")
        os.utime(tmp_path / name, (secs, secs))
    text, freshness = growing.extend("").text, Freshness()
    freshness.note(text, np.array([1, 1, 0, 0]))
    assert freshness.status["trained_secs_p50"] is None
    monkeypatch.setattr(growth.time, "time", lambda: 3010.0)
    freshness.note(text, np.array([1, 1, 1, 1]))
    assert freshness.status == {"watermark": 3000.0, "ranges_waiting": 0, "trained_secs_p50": np.mean([1010, 10]),
                                "trained_secs_p99": pytest.approx(1000.0)}


def test_a_position_of_other_data_is_refused(growing):
    """That of a training without the flag."""
    with raises("input_files_differ"):
        growing.plan("3 ranges of 1 file, abc\n[]")
