"""The health server of a task, its flags and its metrics, without TensorFlow."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import sys
import types

import pytest

from ps_train.cluster.resolve import find_cluster
from ps_train.config import task
from ps_train.parts.health import metrics
from ps_train.parts.health.metrics import CATALOGUE, Exposition, TaskCounts
from ps_train.parts.health.server import Pages, _Server, position_on_machine, serving
from tests import processes
from tests.errors import codes_of, error_of, raises
from tests.processes import REPO


def request(port, path, method="GET", host="localhost"):
    """Returns (status, body, content type) of an answer of the server."""
    connection = http.client.HTTPConnection(host, port, timeout=processes.DEADLINE_SECS)
    connection.request(method, path)
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), answer.getheader("Content-Type")


def test_the_pages_show_health_readiness_and_metrics():
    """A task that waits is healthy and not ready; other paths and methods are refused."""
    waits_for = ["ready parameters"]
    pages = Pages(lambda: waits_for[0], lambda: b"x 1\n", "text/special")
    [port] = processes.free_ports(1)
    with serving("localhost", port, pages):
        assert request(port, "/healthz")[:2] == (200, "ok\n")
        assert request(port, "/readyz")[:2] == (503, "waits for ready parameters\n")
        waits_for[0] = ""
        assert request(port, "/readyz?verbose")[:2] == (200, "ready\n")
        assert request(port, "/metrics") == (200, "x 1\n", "text/special")
        assert request(port, "/etc/passwd")[0] == 404
        assert request(port, "/metrics", "POST")[0] == 501
        assert request(port, "/metrics", "HEAD") == (200, "", "text/special")
        with raises("health_address_unusable"), serving("localhost", port, pages):
            pass
    assert not processes.is_open(port)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_it_listens_at_each_address_of_its_host(monkeypatch):
    """In a pod `localhost` is ::1 first, and a sidecar asks 127.0.0.1; one may be twice, or of another machine."""
    [port] = processes.free_ports(1)
    found = [(socket.AF_INET6, ("::1", port, 0, 0)), (socket.AF_INET, ("127.0.0.1", port)),
             (socket.AF_INET, ("192.0.2.1", port)), (socket.AF_INET, ("127.0.0.1", port))]
    look_up = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *args, **options: [
        (family, socket.SOCK_STREAM, 6, "", address) for family, address in found
    ] if host == "me" else look_up(host, *args, **options))
    with serving("me", port, Pages(str, bytes, "")):
        for host in ("127.0.0.1", "::1"):
            assert request(port, "/healthz", host=host)[:2] == (200, "ok\n")
    with (socket.create_server(("127.0.0.1", port)), raises("health_address_unusable"),
          serving("me", port, Pages(str, bytes, ""))):
        pass
    with socket.create_server(("::1", port), family=socket.AF_INET6):  # what could listen does not any longer
        pass


def test_a_page_that_fails_is_in_the_log(caplog):
    """It was not: Prometheus got no answer, and nobody knew why. A client that has gone away is not."""
    def metrics():
        raise RuntimeError("dictionary changed size during iteration")

    [port] = processes.free_ports(1)
    with serving("localhost", port, Pages(str, metrics, "")):
        with pytest.raises(http.client.RemoteDisconnected):
            request(port, "/metrics")
        assert request(port, "/healthz")[0] == 200
    assert "RuntimeError: dictionary changed size during iteration" in caplog.text
    caplog.clear()
    server = _Server(("localhost", 0), None)
    with contextlib.closing(server.socket):
        try:
            raise BrokenPipeError
        except BrokenPipeError:
            server.handle_error(None, None)
    assert not caplog.records


@pytest.mark.parametrize("host", ["192.0.2.1", "a..b"])
def test_an_address_of_another_machine_is_refused(host):
    """192.0.2.1 is reserved for documentation; the other is no name, which Python says as a UnicodeError."""
    with raises("health_address_unusable"), serving(host, 9090, Pages(str, bytes, "")):
        pass


def test_a_port_that_no_machine_has_is_refused():
    """Of the second task on a machine, with the last port for the first one."""
    with raises("health_address_unusable") as caught, serving("localhost", 65536, Pages(str, bytes, "")):
        pass
    assert "65536" in str(caught.value) and "up to 65535" in str(caught.value)


def test_the_host_without_the_port_is_refused():
    """It would have no effect."""
    assert codes_of(error_of(task.parse_task, ["--job_name=ps", "--health_host=0.0.0.0"], {})) == [
        "flag_without_effect"]


@pytest.mark.parametrize(("workers", "positions"), [
    ("localhost:3,localhost:4", {"ps:0": 0, "ps:1": 1, "worker:0": 2, "worker:1": 3, "evaluator:0": 4}),
    ("a:3,b:3", {"ps:0": 0, "ps:1": 1, "worker:0": 0, "worker:1": 0, "evaluator:0": 4}),
])
def test_tasks_of_a_machine_take_ports_one_after_another(workers, positions):
    """A pod, which has a host name of its own, takes the port itself."""
    for name, position in positions.items():
        job, index = name.split(":")
        cluster = find_cluster(ps_hosts="localhost:1,localhost:2", worker_hosts=workers, job_name=job,
                               task_index=int(index))
        assert position_on_machine(cluster) == position


@pytest.mark.parametrize(("ps", "worker", "positions"), [
    ("localhost:1,localhost:2", "localhost:3", [2, 3, 5]),
    ("node1:1,node2:1", "node1:3", [1, 2, 4]),
    ("pod-ps-0:1,pod-ps-1:1", "pod-worker:3", [0, 0, 0]),  # a pod takes the port itself
])
def test_workers_that_know_no_other_worker_take_different_ports(ps, worker, positions):
    """Those of an elastic cluster by their number; TF_CONFIG may tell a worker of itself only, too."""
    for index, position in zip((0, 1, 3), positions):
        elastic = find_cluster(ps_hosts=ps, worker_hosts=worker, job_name="worker", task_index=index, elastic=True)
        tf_config = {"cluster": {"ps": ps.split(","), "worker": {str(index): worker}},
                     "task": {"type": "worker", "index": index}}
        sparse = find_cluster(tf_config=json.dumps(tf_config), elastic=False)
        assert position_on_machine(elastic) == position_on_machine(sparse) == position


@pytest.mark.parametrize(("ps", "workers", "elastic", "position"), [
    ("node1:1,node2:1", "node1:3,node1:4", False, 4),  # it may be on the machine of any task
    ("127.0.0.1:1", "127.0.0.1:2", False, 2),
    ("localhost:1", "", True, 1),
    ("pod-ps-0:1", "pod-worker-0:1,pod-worker-1:1", False, 0),
])
def test_an_evaluator_without_an_address_takes_no_port_of_a_ps(ps, workers, elastic, position):
    """In a pod it takes the port itself."""
    tasks = {"ps": ps.split(","), "worker": workers.split(",") if workers else {}}
    tf_config = {"cluster": tasks, "task": {"type": "evaluator", "index": 0}}
    assert position_on_machine(find_cluster(tf_config=json.dumps(tf_config), elastic=elastic)) == position


def counts(**values):
    """Returns the counts of a chief."""
    return TaskCounts(is_worker=True, is_chief=True, global_step=12, target_step=100, local_steps=7, batch_size=16,
                      loss=0.5, num_updates=7, sum_staleness=3, num_sessions=3, num_restarted=1, num_saves=2,
                      saved_secs=90.0, ps_bytes={"ps:0": 40, "ps:1": 8}, tables=lambda: [("ids", "ps:1", 5, 200)],
                      uploads=lambda: {"behind_steps": 30, "secs": 4.0},
                      freshness=lambda: {"watermark": 50.0, "trained_secs_p50": 0.5, "trained_secs_p99": 2.0},
                      **values)


def test_the_metrics_of_a_chief_are_its_counts(monkeypatch):
    """As Prometheus' own parser reads them, each with the task's labels and its help."""
    parser = pytest.importorskip("prometheus_client.parser", reason="needs prometheus_client, of the extra [health]")
    monkeypatch.setattr(metrics.clock, "now", lambda: 100.0)
    families = list(parser.text_string_to_metric_families(Exposition(counts(), "worker", 0).text().decode()))
    own = [family for family in families if family.name.startswith("ps_train")]
    assert {family.name: (family.type, family.documentation) for family in own} == CATALOGUE
    found = {}
    for sample in (sample for family in own for sample in family.samples):
        labels = {**sample.labels}
        assert (labels.pop("job_name"), labels.pop("task_index")) == ("worker", "0")
        found[(sample.name.removeprefix("ps_train_"), *sorted(labels.values()))] = sample.value
    assert found == {
        ("ready",): 1, ("global_step",): 12, ("target_step",): 100, ("local_steps_total",): 7,
        ("examples_total",): 112, ("loss",): 0.5, ("staleness_steps_count",): 7, ("staleness_steps_sum",): 3,
        ("sessions_lost_total",): 2, ("workers_restarted_total",): 1, ("saves_total",): 2,
        ("last_save_age_seconds",): 10,
        ("upload_behind_steps",): 30, ("last_upload_age_seconds",): 4,
        ("watermark_seconds",): 50, ("trained_p50_seconds",): 0.5, ("trained_p99_seconds",): 2,
        ("ps_variable_bytes", "ps:0"): 40, ("ps_variable_bytes", "ps:1"): 8,
        ("table_rows", "ids", "ps:1"): 5, ("table_bytes", "ids", "ps:1"): 200}
    process = [sample for family in families if family.name.startswith("process") for sample in family.samples]
    assert "process_resident_memory_bytes" in {sample.name for sample in process}
    assert all(sample.labels == {"job_name": "worker", "task_index": "0"} for sample in process)


def test_other_tasks_have_fewer_metrics():
    """A ps takes no steps, and a worker that is no chief saves nothing."""
    assert TaskCounts(waits_for="its server").samples() == {"ps_train_ready": [((), 0)]}
    of_worker = TaskCounts(is_worker=True).samples()
    assert "ps_train_local_steps" in of_worker and not {"ps_train_loss", "ps_train_saves"} & of_worker.keys()
    of_chief = TaskCounts(is_chief=True).samples()
    assert "ps_train_saves" in of_chief and "ps_train_upload_behind_steps" not in of_chief  # --train_dir is a folder


def test_without_prometheus_client_it_is_one_line(monkeypatch):
    """It has the command of pip."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    error = error_of(Exposition, types.SimpleNamespace(), "ps", 0)
    assert codes_of(error) == ["package_missing"] and "pip install 'ps_train[health]'" in str(error)


def test_the_page_and_the_dashboard_know_the_metrics():
    """docs/health.md has a row for each; each query of the dashboard in deploy/ uses metrics that exist."""
    page = (REPO / "docs/health.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(ps_train_\w+)` \| \w+ \| (.*?) \|$", page, re.MULTILINE))
    assert rows == {name + "_total" * (kind == "counter"): description
                    for name, (kind, description) in CATALOGUE.items()}
    dashboard = json.loads((REPO / "deploy/grafana/ps_train.json").read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    used = {name for query in queries for name in re.findall(r"\b(?:ps_train|process)_\w+", query)}
    process = {"process_start_time_seconds", "process_resident_memory_bytes", "process_cpu_seconds_total"}
    assert used - process == {*rows} - {"ps_train_staleness_steps"} | {
        "ps_train_staleness_steps_sum", "ps_train_staleness_steps_count"}
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
