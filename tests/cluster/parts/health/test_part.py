"""The health of a training while it runs: a ps and a worker in this process, asked over HTTP."""

from __future__ import annotations

import re
import sys
import threading
import types

import numpy as np
import pytest

from ps_train import testing
from ps_train.cluster.resolve import find_cluster
from ps_train.config import task
from ps_train.errors import StoppedError
from ps_train.parts import table
from ps_train.parts.health import part
from ps_train.parts.object_store import lock
from ps_train.runtime import threads
from ps_train.runtime.reports import NO_STEP_LIMIT
from ps_train.tasks import without_training
from tests import processes
from tests.children import wait_until
from tests.errors import raises
from tests.unit.parts.health.test_health import request

pytest.importorskip("prometheus_client", reason="needs prometheus_client, of the extra [health]")


def value(port, name):
    """Returns the value of a metric of a task; None if it has none."""
    found = re.search(rf"^ps_train_{name}{{.*}} (\S+)$", request(port, "/metrics")[1], re.MULTILINE)
    return found and float(found[1])


def test_a_training_shows_its_state_while_it_runs(tmp_path):
    """The chief counts steps, examples, the loss and saves up to the gate; both tasks are ready, then end."""
    first = processes.free_ports(1)[0]
    training = threads.Call(lambda: testing.run_in_threads(
        "tests.plugins.tiny", "tests.plugins.tiny", train_dir=tmp_path / "train", num_workers=1, train_steps=40,
        batch_size=16, save_model_steps=10, health_port=first,
        params=f"gate={tmp_path}/gate,gate_batch=30"), name="training")
    ps, worker = first, first + 1
    wait_until(lambda: processes.is_open(worker) and value(worker, "local_steps_total") == 30, "30 steps")
    assert request(ps, "/readyz")[0] == request(worker, "/readyz")[0] == 200
    assert (value(worker, "global_step"), value(worker, "examples_total")) == (30, 480)
    assert (value(worker, "target_step"), value(worker, "sessions_lost_total")) == (40, 0)
    assert value(worker, "staleness_steps_count") == 30 and value(worker, "loss") > 0
    assert value(worker, "ps_variable_bytes") > 0
    wait_until(lambda: value(worker, "saves_total") >= 1, "a checkpoint")
    assert value(worker, "last_save_age_seconds") >= 0
    assert value(ps, "ready") == 1 and value(ps, "saves_total") is None
    (tmp_path / "gate.0").touch()
    training.join(processes.DEADLINE_SECS)
    training.result()
    assert not processes.is_open(ps) and not processes.is_open(worker)


def make_health(job="worker", train_steps=40):
    """Returns the Config of a task with its health, which is not served, and its cluster."""
    cluster = types.SimpleNamespace(job=job, index=0, ps=[], workers=[], is_chief=True, task=types.SimpleNamespace(
        name=f"{job}:0", address="localhost:1"))
    config = types.SimpleNamespace(health_port=9000, health_host="localhost", batch_size=16,
                                   train_steps=train_steps)
    config.health = part.TaskHealth(config, cluster)
    return config, cluster


def make_part():
    """Returns the part of a worker, and what it has counted."""
    config, cluster = make_health()
    return part.HealthPart(config, cluster), config.health.counts


def test_steps_are_counted_from_what_a_session_run_returns():
    """Several steps in one run each count; a round that began after the end has taken none."""
    made, counts = make_part()
    rows = np.array([[5, 1, 1, 2, 0, 0], [7, 1, 4, 1, 0, 0], [7, 1, 0, 9, 0, 0]])
    run = made.around_step(None, None, lambda *arguments: [rows, np.float32(0.25)])
    assert run(4, 0.0, [], None)[0] is rows
    assert (counts.global_step, counts.local_steps, counts.num_updates, counts.sum_staleness, counts.loss) == (
        7, 5, 2, 3, 0.25)


def test_a_training_that_only_the_data_ends_has_no_target():
    """With --num_epochs or --follow; the dashboard divides by it."""
    for train_steps, expected in ((40, [((), 40)]), (NO_STEP_LIMIT, None)):
        config, _ = make_health(train_steps=train_steps)
        assert config.health.counts.samples().get("ps_train_target_step") == expected


def test_a_worker_is_ready_while_a_session_has_ready_parameters():
    """A session that is lost counts, and ends the readiness."""
    made, counts = make_part()
    assert counts.waits_for
    with pytest.raises(RuntimeError), made.running(None, True):
        assert not counts.waits_for
        raise RuntimeError
    assert counts.waits_for
    with made.running(None, True):
        assert counts.samples()["ps_train_sessions_lost"] == [((), 1)]


def test_saves_and_restarts_are_those_of_the_journal():
    """Other events count nothing."""
    made, counts = make_part()
    for event, values in (("checkpoint", {}), ("worker", {"what": "joined again"}), ("worker", {"what": "silent"}),
                          ("session", {})):
        made._noted(event, values)
    assert (counts.num_saves, counts.num_restarted, counts.saved_secs is not None) == (1, 1, True)


def test_the_rows_of_tables_come_from_the_part_that_has_them():
    """Without that part, or before it has counted, there are none."""
    made, counts = make_part()
    status = {}
    parts = types.SimpleNamespace(status=lambda: status)
    with made.training(types.SimpleNamespace(graph=types.SimpleNamespace(parts=parts))):
        assert counts.tables() == []
        status["tables"] = [{"name": "ids", "rows": 3, "ps": [{"name": "ps:0", "rows": 3, "bytes": 60}]}]
        assert counts.tables() == [("ids", "ps:0", 3, 60)]


def test_a_ps_is_ready_when_its_server_accepts_connections():
    """Its address is that of the cluster; the metric says the same as the page."""
    config, cluster = make_health("ps")
    counts, [port] = config.health.counts, processes.free_ports(1)
    cluster.task.address = f"localhost:{port}"
    assert counts.missing() == "its server" and counts.samples()["ps_train_ready"] == [((), 0)]
    with processes.hold_port(port) as server:
        server.listen()
        assert counts.missing() == "" and counts.samples()["ps_train_ready"] == [((), 1)]


def test_a_chief_is_healthy_while_it_waits_for_its_store(monkeypatch):
    """And not ready: the lock of a killed training, and a large checkpoint, take longer than a probe waits."""
    pytest.importorskip("fsspec", reason="the extra `stores` is not installed")

    def wait_for_holder(held):
        held._stop.wait()
        raise StoppedError("stopped", "stopped while waiting")

    monkeypatch.setattr(lock.StoreLock, "acquire", wait_for_holder)
    stop, [port] = threading.Event(), processes.free_ports(1)
    config = task.Config(train_dir="memory://bucket/run", health_port=port, stop_timeout_secs=1.0)
    cluster = find_cluster(ps_hosts="other:1", worker_hosts="localhost:2", job_name="worker", task_index=0)

    def run():
        with table.located(config, cluster, stop):
            pass

    located = threads.Call(run, name="located")
    wait_until(lambda: processes.is_open(port), "the pages")
    assert request(port, "/healthz")[0] == 200
    assert request(port, "/readyz")[:2] == (503, "waits for its train_dir\n")
    stop.set()
    located.join(processes.DEADLINE_SECS)
    with raises("stopped", kind=StoppedError):
        located.result()
    assert not processes.is_open(port)


def test_a_ps_of_existing_servers_shows_its_health():
    """`ps_train serve`, until it is stopped."""
    stop, [port, ps, worker] = threading.Event(), processes.free_ports(3)
    cluster = find_cluster(ps_hosts=f"localhost:{ps}", worker_hosts=f"localhost:{worker}", job_name="ps", task_index=0)
    server = threads.Call(lambda: without_training.serve(task.Config(health_port=port), cluster, stop), name="server")
    try:
        wait_until(lambda: processes.is_open(port) and request(port, "/readyz")[0] == 200, "the server")
        assert request(port, "/healthz")[0] == 200 and value(port, "ready") == 1
    finally:
        stop.set()
        server.join(processes.DEADLINE_SECS)
    with raises("stopped", kind=StoppedError):
        server.result()
    assert not processes.is_open(port)


def test_a_task_that_only_checks_its_flags_serves_nothing(monkeypatch):
    """With --download_only: prometheus_client must be there."""
    config = task.Config(health_port=processes.free_ports(1)[0])
    with table.located(config, None, threading.Event()) as located:
        assert located.health is None and not processes.is_open(config.health_port)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with raises("package_missing"), table.located(config, None, threading.Event()):
        pass


def test_an_evaluator_is_ready_when_it_has_its_train_dir():
    """It has no session that it could wait for; a worker then waits for its parameters."""
    for job, waits_for in (("evaluator", ""), ("worker", "ready parameters")):
        config, cluster = make_health(job)
        assert config.health.counts.missing() == "its train_dir"
        part.HealthPart(config, cluster)
        assert config.health.counts.missing() == waits_for
