"""The server of a script."""

from __future__ import annotations

import json

import pytest

import ps_train
from ps_train.parts.legacy import source
from ps_train.parts.legacy.classic import script_cluster
from ps_train.parts.legacy.classic.script_cluster import ScriptCluster
from tests import processes
from tests.errors import raises
from tests.tensorflow_mode import tf


@pytest.mark.parametrize("protocol", ["grpc++", "star_server", "grpc+verbs", "grpc+mpi", "grpc+gdr", None])
def test_a_protocol_that_is_not_in_this_tensorflow_becomes_grpc(protocol):
    """TensorFlow's own server would refuse it."""
    server = ps_train.Server({"worker": [f"localhost:{processes.free_ports(1)[0]}"]}, protocol=protocol)
    assert server.target.startswith("grpc://localhost:")


@pytest.mark.parametrize(("job", "index", "number"), [
    ("chief", 0, 0), ("worker", 0, 0), ("worker", 1, 1), ("ps", 0, 0)])
def test_a_chief_that_is_listed_again_as_worker_0_is_one_task_of_a_script(job, index, number):
    """Both names stay, as the devices of the script's graph may have either."""
    addresses = {"ps": {0: "a:1"}, "chief": {0: "b:1"}, "worker": {0: "b:1", 1: "c:1"}}
    cluster = ScriptCluster(job, index, addresses)
    cluster.refuse_duplicates()
    assert cluster.task.name == f"{job}:{index}" and cluster.addresses == addresses
    assert [worker.name for worker in cluster.workers] == ["chief:0", "worker:1"]
    assert (cluster.number_of(cluster.task), cluster.number_of(cluster.chief)) == (number, 0)
    assert cluster.is_chief == (job != "ps" and number == 0)


@pytest.mark.parametrize("workers", [["b:1", "b:1"], ["c:1", "b:1"]])
def test_another_worker_with_the_address_of_the_chief_is_refused(workers):
    """Only worker 0 can be the chief."""
    with raises("address_given_twice"):
        ps_train.Server({"ps": ["a:1"], "chief": ["b:1"], "worker": workers}, "worker", 1)


def test_blanks_in_addresses_are_left_out():
    """Scripts split "a:1, b:2" at its comma."""
    assert script_cluster.addresses_of({"ps": ["a: 1"], "worker": [" b:2", "c:3 "]}) == {
        "ps": {0: "a:1"}, "worker": {0: "b:2", 1: "c:3"}}
    assert script_cluster.real_target("grpc://b: 2") == "grpc://b:2" and script_cluster.real_target("") == ""
    assert ps_train.Server({"worker": [f" localhost: {processes.free_ports(1)[0]}"]}).target.startswith("grpc://")


@pytest.mark.parametrize(("workers", "index", "expected"), [
    ({0: "b:1"}, 0, {"worker"}), ({1: "b:1"}, 1, {"worker"}), (["b:1"], 0, set()), ({0: "b:1", 1: "c:1"}, 0, set())])
def test_a_job_that_is_given_by_index_may_be_incomplete(monkeypatch, workers, index, expected):
    """As a script keeps its workers from each other; a ClusterSpec makes a list of {0: address}, and copies keep it."""
    monkeypatch.setattr(tf.train.ClusterSpec, "__init__", tf.train.ClusterSpec.__init__)  # restored afterwards
    script_cluster.note_mapped_jobs()
    cluster = {"ps": ["a:1"], "worker": workers}
    spec = tf.train.ClusterSpec(tf.train.ClusterSpec(cluster))
    assert script_cluster.sparse_jobs(spec) == script_cluster.sparse_jobs(cluster) == expected
    found = script_cluster.launched_cluster(
        script_cluster.addresses_of(spec), "worker", index, script_cluster.sparse_jobs(spec))
    assert found.partial == expected and found.worker_number == index


@pytest.mark.parametrize(("index", "workers", "expected"), [
    (1, {1: "c:1"}, {1: "launched:3"}), (0, {0: "b:1"}, {0: "launched:2"})])
def test_a_launcher_gives_its_addresses_to_a_worker_that_knows_itself_and_the_ps(
        monkeypatch, index, workers, expected):
    """Its own one; the launcher has started more workers than the script names."""
    monkeypatch.setenv(source.CLUSTER_VARIABLE, json.dumps(
        {"ps": ["launched:1"], "worker": ["launched:2", "launched:3"]}))
    cluster = {"ps": ["a:1"], "worker": workers}
    found = script_cluster.launched_cluster(
        script_cluster.addresses_of(cluster), "worker", index, script_cluster.sparse_jobs(cluster))
    assert found.addresses == {"ps": {0: "launched:1"}, "worker": expected}


def test_port_0_is_a_free_port():
    """As for TensorFlow's own server; the address of another task needs its port."""
    server = ps_train.Server({"local": ["localhost:0"]})
    assert int(server.target.rpartition(":")[2]) > 0
    with raises("address_malformed"):
        ps_train.Server({"ps": ["localhost:0"], "worker": ["localhost:0"]}, "worker", 0)


def test_the_job_of_a_local_server_is_local():
    """As in TensorFlow 1, where its device is in the first tutorials; today's server is of the job "localhost"."""
    server = ps_train.Server.create_local_server()
    with tf.Graph().as_default(), tf.device("/job:local/task:0"), tf.Session(server.target) as session:
        assert session.run(tf.constant(3)) == 3
