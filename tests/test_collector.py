"""What the chief makes of the parts of a profile."""

from __future__ import annotations

import json
import threading

import pytest

from ps_train import timeline
from ps_train.blackboard import BlackboardError
from ps_train.cluster import Cluster
from ps_train.collector import Collector
from ps_train.phases import Run
from ps_train.spans import Span
from ps_train.timeline import Part

DEADLINE_SECS = 30.0


class FakeBoard:
    """A board that has the parts put into `parts`, of which `failures` calls find nobody."""

    def __init__(self, failures=0, present=()):
        self.parts = {}
        self.there = present
        self.failures = failures
        self.asked = threading.Semaphore(0)

    def present(self):
        return self.there

    def collect(self):
        self.asked.release()
        if self.failures:
            self.failures -= 1
            raise BlackboardError("ps:0 does not answer")
        found, self.parts = self.parts, {}
        return found


@pytest.fixture
def make(tmp_path, monkeypatch):
    """A function (board, workers) -> the Collector of worker 0, which writes to `trace.json` below tmp_path."""
    monkeypatch.setattr("ps_train.collector._PERIOD_SECS", 0.05)

    def build(board, num_workers=3):
        workers = {index: f"h:{index}" for index in range(num_workers)}
        return Collector(Cluster("worker", 0, {"ps": {0: "a:1"}, "worker": workers}), board,
                         str(tmp_path / "profile" / "trace.json"))

    return build


def part(worker, num_runs=1):
    """Returns a part of so many steps."""
    spans = [Span(worker, "MatMul", "xw", "", 0, 1, 4)]
    return Part(worker, [Run(step, 0, 0, 5, spans, []) for step in range(num_runs)], 1.0)


def tasks_in(path):
    """Returns the names of the tasks in a trace."""
    return [event["args"]["name"] for event in json.loads(path.read_text())["traceEvents"]
            if event["name"] == "process_name"]


def test_the_trace_is_written_when_the_last_part_has_come(make, tmp_path):
    """During training, although the first questions find nobody; nothing unfinished is left beside it."""
    board = FakeBoard(failures=2)
    collector = make(board)
    collector.start(part("worker:0"))
    for _ in range(4):
        assert board.asked.acquire(timeout=DEADLINE_SECS)
    assert not (tmp_path / "profile").exists()
    board.parts = {number: timeline.pack(part(f"worker:{number}")) for number in (1, 2)}
    collector._thread.join(DEADLINE_SECS)
    assert tasks_in(tmp_path / "profile" / "trace.json") == ["worker:0", "worker:1", "worker:2"]
    assert [path.name for path in (tmp_path / "profile").iterdir()] == ["trace.json"]
    collector.close()


def test_the_end_of_training_ends_the_wait(make, tmp_path, caplog):
    """What has come until then is written, and who is missing is told."""
    board = FakeBoard()
    collector = make(board)
    collector.start(part("worker:0"))
    board.parts = {2: timeline.pack(part("worker:2"))}
    collector.close()
    assert tasks_in(tmp_path / "profile" / "trace.json") == ["worker:0", "worker:2"]
    assert [line for line in caplog.messages if "nothing came from worker:1;" in line]


def test_a_worker_that_the_cluster_does_not_name_is_waited_for_while_it_is_there(make, tmp_path, caplog):
    """As in an elastic cluster, whose workers come and go."""
    board = FakeBoard(present=[0, 5])
    collector = make(board, num_workers=1)
    collector.start(part("worker:0"))
    for _ in range(3):
        assert board.asked.acquire(timeout=DEADLINE_SECS)
    assert not (tmp_path / "profile").exists()
    board.there = [0]
    collector._thread.join(DEADLINE_SECS)
    assert tasks_in(tmp_path / "profile" / "trace.json") == ["worker:0"]
    assert "nothing came" not in caplog.text


def test_a_chief_that_never_began_to_collect_has_nothing_to_end(make, tmp_path):
    """Its training was lost before."""
    make(FakeBoard()).close()
    assert list(tmp_path.iterdir()) == []


def test_steps_that_nobody_took_leave_an_earlier_trace_as_it_is(make, tmp_path):
    """As when a training continues behind them."""
    (tmp_path / "profile").mkdir()
    (tmp_path / "profile" / "trace.json").write_text("earlier")
    collector = make(FakeBoard(), num_workers=1)
    collector.start(part("worker:0", num_runs=0))
    collector.close()
    assert (tmp_path / "profile" / "trace.json").read_text() == "earlier"


def test_a_folder_that_takes_no_file_is_a_warning(make, tmp_path, caplog):
    """It names the file."""
    (tmp_path / "profile").write_text("not a folder")
    collector = make(FakeBoard(), num_workers=1)
    collector.start(part("worker:0"))
    collector.close()
    assert [line for line in caplog.messages if f"cannot write {tmp_path}/profile/trace.json: " in line]
