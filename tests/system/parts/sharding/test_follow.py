"""Files that grow while real processes train on them, and die: each line is trained on once, by two ledgers."""

from __future__ import annotations

import gzip
import os
import re

import numpy as np
import pytest

from tests.sharded import NUM_LINES, Sharded

_AGAIN = re.compile(r"reassigning .*?(\d+) bytes: number ([\d, ]+)")
_FIRST = 50  # lines that are there at the start


class Writer:
    """Writes the other lines: appends bits of them to a file, and adds files."""

    def __init__(self, folder):
        self._folder, self._next = folder, _FIRST
        self._rest = b""

    def write(self, num_lines):
        """Writes so many lines, half of them to new files."""
        for first in range(self._next, self._next + num_lines, 10):
            lines = "".join(f"{number}\n" for number in range(first, first + 10)).encode()
            if first // 10 % 2:
                part = self._folder / f"part-{first}.txt.tmp"
                part.write_bytes(lines)
                os.rename(part, part.with_suffix(""))
            else:
                content, self._rest = self._rest + lines[:-3], lines[-3:]
                with open(self._folder / "a.txt", "ab") as file:
                    file.write(content)
        self._next += num_lines

    def end(self):
        """Ends the last line."""
        with open(self._folder / "a.txt", "ab") as file:
            file.write(self._rest)


class ParquetWriter(Writer):
    """Writes all lines as rows of Parquet files, each of which is one range."""

    def __init__(self, folder):
        super().__init__(folder)
        self._next = 0
        self.write(_FIRST)

    def write(self, num_lines):
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        for first in range(self._next, self._next + num_lines, 10):
            part = self._folder / f".part-{first}.parquet"
            parquet.write_table(pyarrow.table({"number": np.arange(first, first + 10)}), part)
            os.rename(part, self._folder / part.name[1:])
        self._next += num_lines

    def end(self):
        """Does nothing: a row is whole."""


class S3Writer(Writer):
    """Replaces one object by longer ones, and adds others, half of them compressed."""

    def __init__(self, folder, put):
        super().__init__(folder)
        self._put, self._content = put, b"".join(b"%d\n" % number for number in range(_FIRST))
        self.write(0)

    def write(self, num_lines):
        for first in range(self._next, self._next + num_lines, 10):
            lines = b"".join(b"%d\n" % number for number in range(first, first + 10))
            if first // 10 % 2:
                self._content, self._rest = self._content + self._rest + lines[:-3], lines[-3:]
            elif first // 10 % 4:
                self._put(f"part-{first}.txt", lines)
            else:
                self._put(f"part-{first}.txt.gz", gzip.compress(lines))
        self._put("a.txt", self._content)
        self._next += num_lines

    def end(self):
        """Replaces it once more, by one whose last line has an end."""
        self._put("a.txt", self._content + self._rest)


@pytest.mark.parametrize("files, mode", [("", []), ("", ["--sync_replicas"]), ("local://{}/*.txt", []),
                                         ("{}/*.parquet", [])], ids=["async", "sync", "in a store", "parquet"])
def test_each_line_counts_once_while_files_grow_and_tasks_die(tmp_path, start_process, files, mode):
    """A worker and the chief are killed in between, then all tasks: training goes on from the last checkpoint."""
    is_parquet = files.endswith(".parquet")
    writer = (ParquetWriter if is_parquet else Writer)(tmp_path)
    training = Sharded(tmp_path, start_process, [*mode, "--save_model_steps=5"], batch_secs=0.02, files=[
        ("a", 0, _FIRST)], data_flags=("--follow", "--follow_idle_secs=8"), files_at=files.format(tmp_path))
    kill_each_worker(training, writer)
    training.wait_until_seen(400)
    for task in ("worker-0", "worker-1", "ps-0"):
        training.kill(task)
    writer.write(250)
    for task in ("ps-0", "worker-0", "worker-1"):
        training.start(task)
    training.wait_until_seen(600)
    writer.write(NUM_LINES - _FIRST - 750)
    writer.end()
    check_counts(training, start_process, is_parquet)


def test_each_line_of_objects_counts_once_while_they_are_replaced_and_the_server_is_away(
    tmp_path, start_process, monkeypatch
):
    """Objects are added, some compressed, and one is replaced by longer ones; a worker and the chief are killed."""
    s3_server = pytest.importorskip("tests.s3_server")
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    with s3_server.serving_s3(monkeypatch, tmp_path, held="none") as s3:
        writer = S3Writer(tmp_path, lambda name, content: s3.client.put_object(
            Bucket=s3_server.BUCKET, Key=f"clicks/{name}", Body=content))
        training = Sharded(tmp_path, start_process, ["--save_model_steps=5"], batch_secs=0.02, files=[], data_flags=(
            "--follow", "--follow_idle_secs=8"), files_at=f"s3://{s3_server.BUCKET}/clicks/*.txt*")
        kill_each_worker(training, writer)
        training.wait_until_seen(500)
        s3.stop()
        start_process.wait_for_line(training.life("worker-0"), "*.txt*: Could not connect")
        s3.start()
        writer.write(NUM_LINES - _FIRST - 500)
        writer.end()
        check_counts(training, start_process, is_parquet=False)


def kill_each_worker(training, writer):
    """Writes 500 lines, and kills a worker and the chief in between, which are started again."""
    for task in ("worker-1", "worker-0"):
        writer.write(200)
        training.wait_until_seen(100)
        training.kill(task)
        writer.write(50)
        training.start(task)


def check_counts(training, start_process, is_parquet):
    """Checks that each line counts once, and besides at most as often as its range was reassigned."""
    codes = {task: start_process.exit_code(training.life(task)) for task in training.lives}
    assert set(codes.values()) == {0}, f"{codes}\n{start_process.logs()}"
    counts = training.saved_counts()
    logs = "".join(start_process.log(name) for name in start_process.names)
    assert "too few workers" not in logs, logs  # in 8 s without data, the workers only pause
    again = sum(10 * len(numbers.split(",")) if is_parquet else int(num_bytes)
                for num_bytes, numbers in _AGAIN.findall(logs))
    missing = [line for line in range(NUM_LINES) if counts[line] < 1]
    assert not missing, start_process.logs()
    size_of = (lambda _: 1) if is_parquet else (lambda line: len(f"{line}\n"))
    assert sum((count - 1) * size_of(line) for line, count in counts.items()) <= again, start_process.logs()
