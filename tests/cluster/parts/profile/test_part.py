"""The profile of a training on in-process servers."""

from __future__ import annotations

import json
import re
import threading
import types

import pytest

from ps_train.parts.profile import part, phases
from ps_train.parts.profile.part import ProfilePart
from ps_train.training.loop import plain_step
from ps_train.updates.staleness import Bound
from ps_train.updates.update import Period
from tests import clusters
from tests.tensorflow_mode import tf


def make_part(steps, index, train_dir):
    """Returns the profile of a worker, as --profile_steps makes it."""
    return ProfilePart(
        types.SimpleNamespace(profile_steps=f"{steps.start}:{steps.stop}", train_dir=str(train_dir)),
        types.SimpleNamespace(task=types.SimpleNamespace(name=f"worker:{index}")))


def profiled(cluster, index, train_dir, train_steps, steps, **graph_options):
    """Returns a Worker that trains as a task with --profile_steps does."""
    worker = clusters.Worker(cluster, index, train_dir, train_steps, **graph_options)
    worker.profile = make_part(steps, index, train_dir)

    def body(live, write_summary):
        run_step = worker.profile.around_step(live, worker.graph.graph, plain_step(live))
        outcome = worker.loop(live, write_summary, run_step=run_step).run()
        worker.profile.ended_loop()
        return outcome

    worker.body = body
    return worker


def bars_of(path):
    """Returns process -> its bars, of a trace that TensorFlow's Timeline has written."""
    events = json.loads(path.read_text())["traceEvents"]
    names = {event["pid"]: event["args"]["name"].rpartition(" ")[0] for event in events if event["ph"] == "M"}
    bars = {}
    for event in events:
        if event["ph"] == "X":
            bars.setdefault(names[event["pid"]], []).append(event)
    return bars


def test_each_worker_writes_a_time_line_of_its_steps(tmp_path, start_servers, caplog):
    """In sync both workers take the same steps; a file has the steps, their phases and the operations on all tasks."""
    cluster = start_servers(2, 2)
    with caplog.at_level("INFO"):
        workers = [profiled(cluster, index, tmp_path, 14, range(4, 9), gradients=2) for index in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.result()
    for index in range(2):
        bars = bars_of(tmp_path / "profile" / f"worker-{index}-steps-4-9.json")
        assert bars.keys() >= {"/job:ps/replica:0/task:0/device:CPU:0", "/job:ps/replica:0/task:1/device:CPU:0",
                               f"/job:worker/replica:0/task:{index}/device:CPU:0"}
        steps, segments = bars[f"worker:{index} steps"], bars[f"worker:{index} phases"]
        assert [step["name"] for step in steps] == [f"step {number}" for number in range(4, 9)]
        assert {bar["tid"] for bar in [*steps, *segments]} == {0}, "each in one row"
        assert {segment["name"] for segment in segments} >= {"pull", "compute", "push", "wait", "call"}
        assert sum(segment["dur"] + 1 for segment in segments) == pytest.approx(
            sum(step["dur"] + 1 for step in steps), abs=len(segments))
        assert "RecvTensor" in {bar["name"] for bar in bars["/job:ps/replica:0/task:0/device:CPU:0"]}
    heading = re.compile(r"profile of worker:[01]: 5 steps, begun at global step 4 to 8; in ms:")
    assert len(list(filter(heading.fullmatch, caplog.messages))) == 2
    assert len([line for line in caplog.messages if f"the timeline is in {tmp_path}/profile/worker-" in line]) == 2


def test_the_steps_of_a_worker_are_those_that_begin_in_the_range(tmp_path, start_servers):
    """Counted from where a training continues; the table comes at once, not at the end."""
    first = clusters.Worker(start_servers(1, 1), 0, tmp_path, 6)
    first.start()
    first.result()
    finished_at = []
    worker = profiled(start_servers(1, 1), 0, tmp_path, 20, range(4, 9))
    finish = worker.profile.ended_loop
    worker.profile.ended_loop = lambda: (finished_at.append(worker.progress.step), finish())
    worker.start()
    worker.result()
    bars = bars_of(tmp_path / "profile" / "worker-0-steps-4-9.json")
    assert [step["name"] for step in bars["worker:0 steps"]] == ["step 6", "step 7", "step 8"]
    assert finished_at[0] == 9


def test_several_steps_in_one_session_run_are_one_step_here(tmp_path, start_servers, caplog):
    """The heading says how many each of them has. A push begins before the answers.

    A worker with local steps sends more after its change is applied: to ps 1 it has sent the change before that.
    """
    worker = profiled(start_servers(2, 1), 0, tmp_path, 40, range(10, 30), period=Period(steps=5, train_steps=40))
    traced_runs, write = [], worker.profile._write
    worker.profile._write = lambda runs, shifts: (traced_runs.extend(runs), write(runs, shifts))
    with caplog.at_level("INFO"):
        worker.start()
        worker.result()
    bars = bars_of(tmp_path / "profile" / "worker-0-steps-10-30.json")
    assert [step["name"] for step in bars["worker:0 steps"]] == [f"step {number}" for number in range(10, 30, 5)]
    assert "4 steps of 5 mini-batches each, begun at global step 10 to 25; in ms:" in caplog.text
    changes = [(run, span) for run in traced_runs for span in run.spans
               if span.task == "ps:1" and span.sender == "worker:0" and span.num_bytes == 16]  # of the four weights
    assert changes  # a ps may miss to log one
    for run, arrived in changes:
        segments = phases.segments(run, "worker:0")
        assert max(segment.end_us for segment in segments if segment.phase == "pull") <= arrived.end_us
        assert max(segment.end_us for segment in segments if segment.phase == "push") > arrived.end_us


def test_a_worker_that_the_bound_delays_waits(tmp_path, start_servers, caplog):
    """For the slowest one, whose step count is on ps 0: the time is in its step."""
    cluster = start_servers(1, 2)
    bound = Bound(steps=2, round_steps=1, heartbeat_timeout_secs=60.0, names={0: "worker:0", 1: "worker:1"})
    workers = [profiled(cluster, 0, tmp_path, 60, range(20, 40), bound=bound),
               clusters.Worker(cluster, 1, tmp_path, 60, bound=bound)]
    loop, train, other_has_joined = workers[1].loop, workers[0].body, threading.Event()

    def after_the_other(live, write_summary):
        assert other_has_joined.wait(60)  # until it has, nothing delays this worker
        return train(live, write_summary)

    def slow(live, write_summary):
        other_has_joined.set()

        def run_step(step, held_secs, fetches, options):
            # Not before the other one waits for it, which it notices late.
            while workers[0].is_alive() and workers[0].progress.local_steps - workers[1].progress.local_steps < 2:
                workers[1].stop.wait(0.005)
            workers[1].stop.wait(0.02)
            return live.run(fetches, options=options)

        return loop(live, write_summary, run_step=run_step).run()

    workers[0].body, workers[1].body = after_the_other, slow
    with caplog.at_level("INFO"):
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.result()
    header, mean = (next(line for line in caplog.messages if key in line).split() for key in (" pull ", " mean "))
    assert dict(zip(header, map(float, mean[1:])))["wait"] > 0
    bars = bars_of(tmp_path / "profile" / "worker-0-steps-20-40.json")
    assert "wait" in {bar["name"] for bar in bars["worker:0 phases"]}


def test_a_training_that_ends_before_the_steps_warns(tmp_path, start_servers, caplog):
    """It ends before: nothing is written."""
    worker = profiled(start_servers(1, 1), 0, tmp_path, 5, range(10, 12))
    worker.start()
    worker.result()
    assert [line for line in caplog.messages if "no step of worker:0 began at a global step from 10 to 11" in line]
    assert not (tmp_path / "profile").exists()


def test_a_file_that_cannot_be_written_is_a_warning(tmp_path, start_servers, caplog):
    """A file is where the folder should be: training goes on."""
    (tmp_path / "profile").write_text("not a folder")
    worker = profiled(start_servers(1, 1), 0, tmp_path, 6, range(1, 4))
    worker.start()
    assert worker.result().global_step == 6
    assert [line for line in caplog.messages if f"cannot write {tmp_path}/profile/worker-0-steps-1-4.json: " in line]


def test_a_clock_that_differs_is_put_right_in_the_time_line_too(tmp_path, caplog):
    """A ps that is ten seconds ahead: its operation is drawn within the step, and the table says what was done."""
    def run(fetches, options, run_metadata):
        now_us = int(part.time.time() * 1e6)
        device = run_metadata.step_stats.dev_stats.add(device="/job:ps/replica:0/task:0/device:CPU:0")
        device.node_stats.add(node_name="n", timeline_label="n = ApplyAdam(a)", all_start_micros=now_us + 10_000_000,
                              all_end_rel_micros=1)

    profile = make_part(range(5), 0, tmp_path)
    run_step = profile.around_step(types.SimpleNamespace(run=run), tf.Graph(), None)
    with caplog.at_level("INFO"):
        run_step(0, 0.0, "fetches", tf.RunOptions())
        profile.ended_loop()
    bars = bars_of(tmp_path / "profile" / "worker-0-steps-0-5.json")
    step, = bars["worker:0 steps"]
    work, = bars["/job:ps/replica:0/task:0/device:CPU:0"]
    assert step["ts"] - 2 <= work["ts"] <= step["ts"] + step["dur"] + 2
    assert re.search(r"the clock of ps:0 differs: -\d+\.\d\d ms were added to its times", caplog.text)


def test_without_the_flag_the_part_is_off():
    """A worker then makes no profile."""
    assert not ProfilePart.is_on(types.SimpleNamespace(profile_steps=""), None)


def test_nodes_after_a_change_on_a_ps_are_no_gradients():
    """The pull and the gradients are before it; what is read or noted after it, in any order, is behind."""
    with tf.Graph().as_default() as graph:
        with tf.device("/job:ps/task:1/cpu:0"):
            weights = tf.get_variable("weights", [], use_resource=True)
            pulled = weights.read_value()
        with tf.device("/job:worker/task:0/cpu:0"):
            local = tf.get_variable("local", [], use_resource=True)
            gradient = tf.multiply(pulled, local.assign_add(1.0).read_value(), name="gradient")
        with tf.device("/job:ps/task:1/cpu:0"):
            changed = weights.assign_sub(gradient, read_value=False)
        with tf.device("/job:worker/task:0/cpu:0"), tf.control_dependencies([changed]):
            noted = tf.constant(1.0, name="noted")
        tf.add(gradient, pulled, name="before")
        tf.add(gradient, noted, name="behind")
    after_updates = part.nodes_after_updates(graph)
    assert after_updates >= {"noted", "behind", changed.name}
    assert after_updates.isdisjoint({"gradient", "before", pulled.op.name})
