"""The profile of a training on in-process servers."""

from __future__ import annotations

import json
import re

import pytest

from ps_train import profile
from ps_train.local_steps import Period
from ps_train.phases import Run
from ps_train.profile_board import Reading
from ps_train.spans import Span
from tests import clusters


def profiled(cluster, index, train_dir, train_steps, steps, **graph_options):
    """Returns a Worker that trains as a task with --profile_steps does."""
    worker = clusters.Worker(cluster, index, train_dir, train_steps, **graph_options)
    recorded = profile.of_worker(
        steps, cluster.target("worker", index), cluster.view("worker", index), worker.beats, str(train_dir))

    def body(live, write_summary):
        outcome = worker.loop(recorded.of_session(live, worker.graph), write_summary).run()
        recorded.finish()
        return outcome

    worker.body = body
    worker.profile = recorded
    return worker


def bars_of(path):
    """Returns (task, row) -> its bars, of a trace."""
    events = json.loads(path.read_text())["traceEvents"]
    tasks = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    rows = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    found = {}
    for event in events:
        if event["ph"] == "X":
            found.setdefault((tasks[event["pid"]], rows[event["pid"], event["tid"]]), []).append(event)
    return found


def test_all_tasks_of_a_training_are_on_one_time_line(tmp_path, start_servers, caplog):
    """In sync both workers take the same steps; what the ps do for one lies within that worker's step."""
    cluster = start_servers(2, 2)
    with caplog.at_level("INFO"):
        workers = [profiled(cluster, index, tmp_path, 14, range(4, 9), gradients=2) for index in range(2)]
        for worker in workers:
            worker.start()
        for worker in reversed(workers):  # the chief last: it collects what the others have delivered
            worker.result()
            worker.profile.close()
    bars = bars_of(tmp_path / "profile" / "steps-4-9.json")
    assert {task for task, _ in bars} == {"ps:0", "ps:1", "worker:0", "worker:1"}
    for name in ("worker:0", "worker:1"):
        steps = bars[name, "steps"]
        assert [step["name"] for step in steps] == [f"step {number}" for number in range(4, 9)]
        assert sum(phase["dur"] for phase in bars[name, "phases"]) == pytest.approx(sum(step["dur"] for step in steps))
        assert {phase["name"] for phase in bars[name, "phases"]} >= {"pull", "compute", "push", "call"}
        for bar in bars["ps:0", f"operations for {name}"] + bars[name, "received"]:
            step = steps[bar["args"]["step"] - 4]
            assert step["ts"] <= bar["ts"] and bar["ts"] + bar["dur"] <= step["ts"] + step["dur"]
    assert any(phase["name"] == "wait" for name in ("worker:0", "worker:1") for phase in bars[name, "phases"])
    heading = re.compile(r"profile of worker:[01]: 5 steps, begun at global step 4 to 8; in ms:")
    assert len(list(filter(heading.fullmatch, caplog.messages))) == 2


def test_the_steps_of_a_worker_are_those_that_begin_in_the_range(tmp_path, start_servers, caplog):
    """Counted from where a training continues; the table comes at once, not at the end."""
    first = clusters.Worker(start_servers(1, 1), 0, tmp_path, 6)
    first.start()
    first.result()
    told_at = []
    worker = profiled(start_servers(1, 1), 0, tmp_path, 20, range(4, 9))
    with caplog.at_level("INFO"):
        finish = worker.profile.finish
        worker.profile.finish = lambda: (told_at.append(worker.beats.step), finish())
        worker.start()
        worker.result()
        worker.profile.close()
    bars = bars_of(tmp_path / "profile" / "steps-4-9.json")
    assert [step["name"] for step in bars["worker:0", "steps"]] == ["step 6", "step 7", "step 8"]
    assert told_at[0] == 9
    assert {step["args"]["batches"] for step in bars["worker:0", "steps"]} == {1}


def test_several_steps_in_one_session_run_are_one_step_here(tmp_path, start_servers, caplog):
    """Its push begins when the change of all of them is computed, although a worker sends more after that."""
    worker = profiled(start_servers(2, 1), 0, tmp_path, 80, range(20, 60), period=Period(5, 0, 80))
    with caplog.at_level("INFO"):
        worker.start()
        worker.result()
        worker.profile.close()
    bars = bars_of(tmp_path / "profile" / "steps-20-60.json")
    assert [step["name"] for step in bars["worker:0", "steps"]] == [f"step {number}" for number in range(20, 60, 5)]
    assert {step["args"]["batches"] for step in bars["worker:0", "steps"]} == {5}
    assert "8 steps of 5 mini-batches each, begun at global step 20 to 55; in ms:" in caplog.text
    changes = {bar["args"]["step"]: bar["ts"] + bar["dur"]  # of the four weights, which are on ps 1
               for bar in bars["ps:1", "received for worker:0"] if bar["args"]["bytes"] == 16}
    assert changes  # a ps may miss to log one
    for step in bars["worker:0", "steps"]:
        phases = [bar for bar in bars["worker:0", "phases"] if step["ts"] <= bar["ts"] < step["ts"] + step["dur"]]
        arrived = changes.get(int(step["name"].split()[1]))
        if arrived:
            assert max(bar["ts"] + bar["dur"] for bar in phases if bar["name"] == "pull") <= arrived
            assert max(bar["ts"] + bar["dur"] for bar in phases if bar["name"] == "push") > arrived


def test_a_training_that_never_comes_there_says_so(tmp_path, start_servers, caplog):
    """It ends before: nothing is written."""
    worker = profiled(start_servers(1, 1), 0, tmp_path, 5, range(10, 12))
    worker.start()
    worker.result()
    worker.profile.close()
    assert [line for line in caplog.messages if "no step of worker:0 began at a global step from 10 to 11" in line]
    assert not (tmp_path / "profile").exists()


def test_a_ps_that_does_not_answer_costs_the_trace_and_not_the_training(tmp_path, start_servers, caplog, monkeypatch):
    """The clocks, and the part of a worker that is not the chief."""
    def fail(*arguments):
        raise profile.BlackboardError("the blackboard on ps:0 does not answer")

    for name in ("clocks", "deliver"):
        monkeypatch.setattr(profile.ProfileBoard, name, fail)
    cluster = start_servers(1, 2)
    workers = [clusters.Worker(cluster, 0, tmp_path, 6, gradients=2),
               profiled(cluster, 1, tmp_path, 6, range(1, 4), gradients=2)]
    for worker in workers:
        worker.start()
    assert [worker.result().global_step for worker in workers] == [6, 6]
    workers[1].profile.close()
    assert [line for line in caplog.messages if "the clocks of all tasks are taken to be the same" in line]
    assert [line for line in caplog.messages if "the trace will be without worker:1" in line]


def test_all_times_are_by_the_clock_of_ps_0():
    """This process's own clock is 3 s behind that of ps 0, and 1 s ahead of that of ps 1; one not asked is as ours."""
    clocks = {"ps:0": Reading(3.0, 0.1), "ps:1": Reading(-1.0, 0.1), "worker:0": Reading(0.0, 0.1)}
    at_once = [Span(task, "MatMul", "n", "", 0, time_us, time_us + 1) for task, time_us in (
        ("ps:0", 13e6), ("ps:1", 9e6), ("worker:0", 10e6), ("ps:2", 10e6))]
    run = profile._aligned(Run(4, 9.5e6, 10e6, 11e6, at_once, []), clocks, "ps:0")
    assert (run.start_us, run.call_us, run.end_us) == (12.5e6, 13e6, 14e6)
    assert [(span.start_us, span.end_us) for span in run.spans] == [(13e6, 13e6 + 1)] * 4


def test_without_steps_the_session_is_left_as_it_is():
    """The loop then runs what it would run anyway."""
    session = object()
    nothing = profile.of_worker(range(0), "", None, None, "")
    assert nothing.of_session(session, None) is session
    nothing.finish()
    nothing.close()
