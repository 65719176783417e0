"""The benchmarks: their figures against numbers worked out by hand, and each peer for a moment. No speed is judged."""

from __future__ import annotations

import json
import os
import pathlib
import socket

import numpy as np
import pytest

from benchmarks import accuracy, reporting
from benchmarks.harness import (
    catalogue,
    evaluation,
    measures,
    plot,
    plug_in,
    proc,
    recording,
    report,
    running,
    tcp_bytes,
    timed_task,
    tool,
)
from benchmarks.harness.measures import Point, Spread
from benchmarks.harness.report import Ratio, Result
from benchmarks.harness.tool import Trial
from benchmarks.harness.trial import Setting
from tests.children import wait_until
from tests.processes import is_open
from tests.tensorflow_mode import tf


def test_a_rate_is_that_of_the_second_half():
    """10 a second at first, then 100: of 8 s the last 4 count, of which the first sample is at 5."""
    assert measures.rate([0, 2, 5, 8], [0, 20, 320, 620]) == pytest.approx(100)


def test_a_rate_of_two_samples_takes_more():
    """Two samples are no series; neither are those of one moment."""
    for times in ([0.0, 1.0], [3.0, 3.0, 3.0]):
        with pytest.raises(ValueError, match="samples say nothing about a rate"):
            measures.rate(times, [0] * len(times))


def test_the_last_gap_may_be_more_than_half():
    """Then the rate is that of this gap."""
    assert measures.rate([0, 1, 10], [0, 5, 95]) == pytest.approx(10)


def test_growth_per_batch_is_read_at_times_of_its_own():
    """From 6 to 9 s, with 10 batches a second: 3000 bytes for 30 batches; an unknown value and one after the end do
    not count."""
    series = [(0.0, 0.0), (6.0, 1000.0), (8.0, None), (9.0, 4000.0), (11.0, 9000.0)]
    assert measures.per_batch(series, [0, 10], [0, 100]) == pytest.approx(100)
    assert measures.per_second(series, 0, 10) == pytest.approx(1000)


@pytest.mark.parametrize("series", [[], [(6.0, 5.0)], [(6.0, None), (9.0, None)], [(1.0, 5.0), (9.0, 7.0)]])
def test_growth_that_is_not_known_is_none(series):
    """Fewer than two values in the second half say nothing."""
    assert measures.per_batch(series, [0, 10], [0, 100]) is None
    assert measures.per_second(series, 0, 10) is None


def test_growth_without_batches_is_none():
    """A training that stands still has no bytes per batch."""
    assert measures.per_batch([(6.0, 1.0), (9.0, 2.0)], [0, 10], [7, 7]) is None


def test_the_time_to_an_accuracy_is_that_of_its_first_sample():
    """What was not evaluated is passed over, and what comes after does not matter."""
    curve = [Point(0.0, 1, 0.5), Point(1.0, 2, None), Point(2.0, 3, 0.97), Point(3.0, 4, 0.96)]
    assert measures.secs_to(curve, 0.97) == 2.0
    assert measures.secs_to(curve, 0.98) is None


def test_a_spread_has_the_median_and_both_ends():
    """A run without a value leaves no honest median."""
    assert measures.spread([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0, 3)
    assert measures.spread([1.0, 2.0]) == Spread(1.5, 1.0, 2.0, 2)
    assert measures.spread([1.0, None]) is None
    assert measures.spread([]) is None


@pytest.fixture
def clock(monkeypatch):
    """A list whose one element is the time."""
    now = [1000.0]
    monkeypatch.setattr(recording.time, "time", lambda: now[0])
    return now


def test_a_recording_reads_back(tmp_path, clock):
    """The parameters of each sample, as float32 in their shapes."""
    recorder = recording.Recorder(str(tmp_path), recording.Limits(2, 0.0, 100.0))
    weights = np.arange(6.0).reshape(2, 3)
    assert not recorder.note(1, lambda: {"w": weights, "b": np.float32(7)})
    clock[0] += 1.0
    assert not recorder.note(2, lambda: {"w": weights.T.reshape(2, 3), "b": np.float32(8)})
    clock[0] += 1.0
    assert recorder.note(3, lambda: {"w": weights, "b": np.float32(9)})
    read = recording.Recording(str(tmp_path))
    assert read.batches == [1, 2, 3]
    first, second, _ = read.snapshots()
    np.testing.assert_array_equal(first["w"], weights)
    np.testing.assert_array_equal(second["w"], weights.T.reshape(2, 3))
    assert (first["b"], second["b"]) == (7, 8)


def test_a_recording_is_over_after_batches_and_time(tmp_path, clock):
    """Both minima must be reached, and there must be three samples, or the maximum."""
    limits = recording.Limits(batches=10, min_secs=5.0, max_secs=20.0)
    enough = recording.Recorder(str(tmp_path / "a"), limits)
    late = recording.Recorder(str(tmp_path / "b"), limits)
    assert not enough.note(12, dict)
    assert not late.note(1, dict)
    clock[0] += 4
    assert not enough.note(50, dict)
    clock[0] += 2
    assert enough.note(60, dict)
    slow = recording.Recorder(str(tmp_path / "c"), limits)
    assert not slow.note(12, dict)
    clock[0] += 6
    assert not slow.note(50, dict)
    clock[0] += 1
    assert slow.note(60, dict)
    clock[0] -= 7
    assert not late.note(2, dict)
    clock[0] += 14
    assert late.note(3, dict)
    assert list(recording.Recording(str(tmp_path / "b")).snapshots()) == []


def test_samples_are_taken_at_growing_distances(tmp_path, clock):
    """20 ms at first, then 4 % of the time so far: 0.4 s after 10."""
    recorder = recording.Recorder(str(tmp_path), recording.Limits(100, 0.0, 100.0))
    for secs in (0.0, 0.01, 0.02, 10.0, 10.3, 10.5):
        clock[0] = 1000.0 + secs
        recorder.note(1, dict)
    assert recorder.pause_secs() == pytest.approx(0.42)
    recorder.note(100, dict)
    assert recording.Recording(str(tmp_path)).times == pytest.approx([1000.0, 1000.02, 1010.0, 1010.5, 1010.5])


def _result(name, **medians):
    return Result(name, {key: Spread(value, value, value, 1) for key, value in medians.items()})


def test_the_table_has_medians_with_their_ends_and_leaves_out_what_nobody_has():
    """A figure that one has not is a dash."""
    results = [Result("one", {"batches_per_sec": Spread(10.4, 9.0, 12.0, 3), "secs_to_97": None}),
               Result("two", {"batches_per_sec": Spread(5.0, 5.0, 5.0, 1), "secs_to_97": Spread(1.5, 1.5, 1.5, 1)})]
    assert report.results_table(results).splitlines() == [
        "| | batches/s | s to 97 % |", "|---|---|---|", "| one | 10 (9 to 12) | - |", "| two | 5 | 1.50 |"]


def test_ratios_are_of_medians_and_stand_beside_their_targets():
    """Those that hold, that do not, and that cannot be said."""
    results = [_result("fast", batches_per_sec=60.0, secs_to_97=1.0), _result("slow", batches_per_sec=10.0,
                                                                              secs_to_97=3.0)]
    ratios = [Ratio("fast", "slow", "batches_per_sec", ">=", 5), Ratio("fast", "slow", "secs_to_97", "<=", 0.25),
              Ratio("fast", "absent", "secs_to_97", "<=", 0.5)]
    assert report.ratios_table(ratios, results).splitlines()[2:] == [
        "| fast / slow, batches/s | 6 | >= 5 | yes |",
        "| fast / slow, s to 97 % | 0.333 | <= 0.25 | **no** |",
        "| fast / absent, s to 97 % | - | <= 0.5 | not measured |"]


def test_accuracy_is_compared_with_the_classic_loop_of_the_same_model():
    """0.3 points below is allowed, more is not."""
    rows = accuracy.compare({
        "mlp: classic loop": [0.97, 0.98], "mlp: a": [0.972, 0.973], "mlp: b": [0.97, 0.97], "cnn: a": [0.99],
        "cnn: b": []})
    assert [row["name"] for row in rows] == ["mlp: classic loop", "mlp: a", "mlp: b", "cnn: a"]
    assert [row["difference"] for row in rows] == [0, pytest.approx(-0.0025), pytest.approx(-0.005), None]
    assert [line.rsplit("|", 2)[1].strip() for line in accuracy.table(rows).splitlines()[2:]] == [
        "yes", "yes", "**no**", "-"]


def test_what_reporting_costs_is_told_by_parts():
    """Of 10 s: three summaries of half a second, the first one not looked at; 1.1 s of lines; 2 s of no session run."""
    found = timed_task.shares(10, plain_secs=[1, 1, 1], summary_secs=[0.9, 1.5, 1.5], report_secs=[0.5, 0.6])
    assert found == {"summaries": pytest.approx(0.15), "reports": pytest.approx(0.11), "loop": pytest.approx(0.2)}
    low = {"summaries": 0.001, "reports": 0.002, "loop": 0.003}
    rows = reporting.table({"a": [low, low, found], "b": [found], "c": []}).splitlines()[2:]
    assert rows == ["| a | 0.10 | 0.20 | 0.30 | 0.60 | yes |", "| b | 15.00 | 11.00 | 20.00 | 46.00 | **no** |"]


def test_the_chief_of_a_training_leaves_what_reporting_cost(tmp_path, forked_tasks):
    """A whole training with the clock in it; each part is a share of the time."""
    setting = Setting(train_batches=400)
    running.run(reporting.timed("ps_train K=20"), setting, str(tmp_path / "run"))
    found = json.loads((tmp_path / "run" / "shares.json").read_text())
    assert found.keys() == {"summaries", "reports", "loop"}
    assert all(-1 < share < 1 for share in found.values()), found  # a median may be the less of two by chance
    assert found["reports"] > 0 and found["loop"] > 0


def test_names_are_chosen_by_their_beginning():
    """An exact name is that one only; an unknown one ends the tool and lists the known ones."""
    trials = [Trial(name, catalogue.PEERS["classic loop"], Setting()) for name in ("a", "a b", "c")]

    def chosen(only):
        return [trial.name for trial in tool.wanted(trials, only)]

    assert chosen("") == ["a", "a b", "c"]
    assert chosen("a") == ["a"]
    assert chosen("a ;c") == ["a", "c"]
    assert chosen("a b") == ["a b"]
    with pytest.raises(SystemExit, match="nobody is called 'x'; known: a; a b; c"):
        tool.wanted(trials, "a;x")


def test_runs_are_taken_in_turn_and_what_is_there_is_not_run_again(tmp_path, monkeypatch):
    """Who cannot run or fails is asked once; a folder without run.json is of a run that was ended."""
    asked = []

    def run(peer, setting, folder):
        asked.append((pathlib.Path(folder).name, setting.seed))
        if "skipped" in folder:
            raise running.SkippedError("no such flag")
        if "failed" in folder:
            raise running.RunError("exit code 1")
        os.makedirs(folder)
        pathlib.Path(folder, "run.json").write_text("{}")

    monkeypatch.setattr(running, "run", run)
    trials = [Trial(name, catalogue.PEERS["classic loop"], Setting()) for name in ("a: 1", "skipped", "failed", "b")]
    (tmp_path / "b.0").mkdir()
    (tmp_path / "a-1.0").mkdir()
    (tmp_path / "a-1.0" / "run.json").write_text("{}")
    arguments = tool.parser("", "").parse_args(["--repeats=2", f"--work_dir={tmp_path}"])
    assert tool.run_missing(trials, arguments) == ({"skipped": "no such flag"}, {"failed": "exit code 1"})
    assert asked == [("skipped.0", 0), ("failed.0", 0), ("b.0", 0), ("b.1", 1), ("a-1.1", 1)]
    assert [folder.name for folder in tool.finished(tmp_path, trials[0])] == ["a-1.0", "a-1.1"]
    asked.clear()
    arguments = tool.parser("", "").parse_args(["--repeats=3", "--budget_secs=-1", f"--work_dir={tmp_path}"])
    assert tool.run_missing(trials, arguments) == ({}, {})
    assert asked == []


def test_bytes_between_processes_are_what_was_sent():
    """In both directions; a connection with one end elsewhere would not count."""
    with socket.create_server(("localhost", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        with accepted:
            before = tcp_bytes.between([os.getpid()])
            if before is None:
                pytest.skip("this kernel does not tell the bytes of a socket of another process")
            client.sendall(b"x" * 1000)
            accepted.sendall(b"y" * 500)
            assert len(accepted.recv(1000, socket.MSG_WAITALL)) == 1000
            assert len(client.recv(500, socket.MSG_WAITALL)) == 500
            wait_until(lambda: tcp_bytes.between([os.getpid()]) - before == 1500, "the last bytes to be acknowledged")
            assert tcp_bytes.between([]) == 0


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="there is no /proc here")
def test_memory_and_the_time_of_others_are_read_from_proc():
    """This process has TensorFlow in memory; one that does not exist has nothing."""
    assert proc.peak_memory_mb(os.getpid()) > 50
    assert proc.peak_memory_mb(2**22 + 1) == 0
    before, found, after = (proc.others_cpu_secs(pids) for pids in ([], [2**22 + 1], []))
    assert before is not None
    assert before - 1 <= found <= after + 1  # the ticks of this process and of all are not read at the same moment


@pytest.mark.parametrize("module, count, size", [("small_variables", 200, 64), ("large_dense", 1, 8 << 20)])
def test_the_models_of_transfers_have_the_variables_that_they_are_about(module, count, size):
    """200 of 64 floats, and one of 32 MiB; every one has a gradient."""
    with tf.Graph().as_default():
        model = plug_in.load(f"benchmarks.{module}", "")
        spec = model.build(tf.zeros([3, 784]), tf.zeros([3], tf.int32), "train")
        variables = tf.trainable_variables()
        assert [variable.shape.num_elements() for variable in variables] == [size] * count
        assert None not in tf.gradients(spec.loss, variables)


@pytest.mark.parametrize("name", [
    catalogue.CLASSIC, catalogue.ASYNC, "ParameterServerStrategy, 25 a closure",
    "MultiWorkerMirroredStrategy, 25 a call", catalogue.DDP, catalogue.LIMIT])
def test_a_peer_runs_for_a_moment(name, tmp_path, forked_tasks):
    """Its tasks start, train, are recorded, evaluated and ended; every figure of the report is there."""
    trial = Trial(name, catalogue.PEERS[name], Setting(batches=60, min_secs=0.6, seed=0))
    folder = tmp_path / "run"
    try:
        running.run(trial.peer, trial.setting, str(folder))
    except running.SkippedError as error:
        pytest.skip(str(error))
    evaluation.complete([folder])
    result = report.summarise(name, [folder])
    (row,) = json.loads(report.as_json([result], (), {}, {}))["results"]
    assert set(row) == {"name", *(column.key for column in report.COLUMNS)}
    assert row["batches_per_sec"]["median"] > 0
    assert 0.3 < row["accuracy"]["median"] < 1
    assert not (folder / "parameters.f32").exists()
    plot.accuracy_over_time([result], str(tmp_path / "curve.svg"), 0.97)


def test_a_peer_that_does_not_know_a_flag_is_skipped_with_its_own_word(tmp_path, forked_tasks):
    """ps_train ends with 2 and says which flag; the other tasks are ended, and nobody listens any more."""
    ports = []

    def cast(setting, folder):
        made = catalogue.PEERS[catalogue.ASYNC].cast(setting, folder)
        ports.extend(int(address.rpartition(":")[2]) for address in [*made.wires.ps, *made.wires.workers])
        *others, last = made.tasks
        return made._replace(tasks=[*others, last._replace(command=[*last.command, "--no_such_flag=1"])])

    with pytest.raises(running.SkippedError, match="ps_train: unknown flag --no_such_flag"):
        running.run(catalogue.Peer("unknown", cast), Setting(), str(tmp_path / "run"))
    assert not any(map(is_open, ports))


def test_a_peer_that_fails_is_told_with_its_log(tmp_path):
    """The last lines of the task that ended."""
    def cast(setting, folder):
        made = catalogue.PEERS[catalogue.LIMIT].cast(setting, folder)
        return made._replace(tasks=[task._replace(command=["-c", "raise OSError('no luck')"]) for task in made.tasks])

    with pytest.raises(running.RunError, match=r"(?s)worker-. ended with exit code 1.*no luck"):
        running.run(catalogue.Peer("unlucky", cast), Setting(), str(tmp_path / "run"))
