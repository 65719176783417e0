"""How a task finds its cluster: flags and TF_CONFIG, right and wrong."""

from __future__ import annotations

import pytest
from hypothesis import given

from ps_train.cluster.resolve import find_cluster
from ps_train.cluster.spec import Cluster, Task
from ps_train.config.launch import LaunchConfig
from tests.cluster_strategies import clusters, tf_config
from tests.errors import codes_of, error_of

PS, WORKERS = "a:1,b:2", "c:3,d:4,e:5"


def _by_flags(ps_hosts, worker_hosts, job, index, **others):
    return find_cluster(ps_hosts=ps_hosts, worker_hosts=worker_hosts, job_name=job, task_index=index, **others)


def _by_tf_config(text, **others):
    return find_cluster(ps_hosts="localhost:2222", worker_hosts="localhost:2223", tf_config=text, **others)


# --- flags

@pytest.mark.parametrize(("job", "index", "is_chief"), [
    ("ps", 0, False), ("ps", 1, False), ("worker", 0, True), ("worker", 1, False), ("worker", 2, False)])
def test_flags_place_a_task(job, index, is_chief):
    """The classic four flags give the cluster and the task; worker 0 is the chief."""
    cluster = _by_flags(PS, WORKERS, job, index)
    address = {"ps": PS, "worker": WORKERS}[job].split(",")[index]
    assert cluster.task == Task(job, index, address)
    assert cluster.is_chief is is_chief
    assert cluster.chief == Task("worker", 0, "c:3")
    assert [str(task) for task in cluster.ps] == ["ps:0 a:1", "ps:1 b:2"]
    assert [str(task) for task in cluster.workers] == ["worker:0 c:3", "worker:1 d:4", "worker:2 e:5"]


@pytest.mark.parametrize(("ps_hosts", "worker_hosts", "job", "index", "code", "values"), [
    (PS, WORKERS, None, None, "flag_missing", ["--job_name"]),
    (PS, WORKERS, "ps", None, "flag_missing", ["--task_index", "--ps_hosts", "0 to 1"]),
    (PS, WORKERS, "worker", None, "flag_missing", ["--task_index", "--worker_hosts", "0 to 2"]),
    (PS, WORKERS, "chief", 0, "flag_out_of_range", ["--job_name", "'chief'"]),
    (PS, WORKERS, "evaluator", 1, "flag_out_of_range", ["--task_index", "1", "0 to 0", "evaluator"]),
    (PS, WORKERS, "ps", 2, "flag_out_of_range", ["--task_index", "2", "0 to 1", "2 tasks"]),
    ("a:1", WORKERS, "ps", 1, "flag_out_of_range", ["--task_index", "1", "0 to 0", "1 task"]),
    (PS, WORKERS, "worker", -1, "flag_out_of_range", ["--task_index", "-1", "0 to 2", "--worker_hosts", "3 tasks"]),
    ("a:1,a:1", WORKERS, "ps", 0, "address_given_twice", ["a:1", "ps:0 and ps:1"]),
    ("a:1", "b:1,a:1", "ps", 0, "address_given_twice", ["a:1", "ps:0 and worker:1"]),
    ("a", WORKERS, "ps", 0, "address_malformed", ["--ps_hosts entry 0"]),
    (PS, "c", "ps", 0, "address_malformed", ["--worker_hosts entry 0"]),
])
def test_refuses_flags_that_place_no_task(ps_hosts, worker_hosts, job, index, code, values):
    """Missing, out of range, duplicate: each is one line."""
    error = error_of(_by_flags, ps_hosts, worker_hosts, job, index)
    assert codes_of(error) == [code] and "\n" not in str(error)
    assert all(value in str(error) for value in values)


@pytest.mark.parametrize(("job", "elastic"), [
    ("ps", False), ("worker", False), ("evaluator", False), ("ps", True), ("evaluator", True)])
def test_the_only_task_of_a_job_needs_no_index(job, elastic):
    """It is 0, as one task is meant."""
    cluster = _by_flags("a:1", "b:1", job, None, elastic=elastic)
    assert cluster.task.name == f"{job}:0"
    assert [str(task) for task in cluster.ps] == ["ps:0 a:1"]


def test_an_evaluator_is_placed_by_flags():
    """It has no address, no server and is no worker; it knows the ps, which it asks how training stands."""
    cluster = _by_flags(PS, WORKERS, "evaluator", 0)
    assert (cluster.task, cluster.is_chief) == (Task("evaluator", 0, ""), False)
    assert [str(task) for task in cluster.ps] == ["ps:0 a:1", "ps:1 b:2"]
    assert "evaluator" not in cluster.server_spec


def test_an_elastic_worker_needs_its_index():
    """A lone address does not say which index it has."""
    error = error_of(_by_flags, PS, "c:3", "worker", None, elastic=True)
    assert codes_of(error) == ["flag_missing"] and "0 to 1022" in str(error)


# --- TF_CONFIG

@pytest.mark.parametrize(("cluster_part", "job", "index", "chief", "number"), [
    ({"ps": ["a:1"], "worker": ["b:1", "c:1"]}, "worker", 0, "worker:0", 0),
    ({"ps": ["a:1"], "worker": ["b:1", "c:1"]}, "worker", 1, "worker:0", 1),
    ({"ps": ["a:1"], "worker": ["b:1", "c:1"]}, "worker", "1", "worker:0", 1),
    ({"ps": ["a:1"], "chief": ["d:1"], "worker": ["b:1", "c:1"]}, "chief", 0, "chief:0", 0),
    ({"ps": ["a:1"], "chief": ["d:1"], "worker": ["b:1", "c:1"]}, "worker", 0, "chief:0", 1),
    ({"ps": ["a:1"], "worker": ["b:1"], "master": ["d:1"]}, "master", 0, "master:0", 0),
    ({"ps": ["a:1"], "master": ["d:1"]}, "master", 0, "master:0", 0),
    ({"ps": {"0": "a:1"}, "worker": {"0": "b:1", "3": "c:1"}}, "worker", 3, "worker:0", 3),
    ({"ps": ["a:1"], "worker": {"10": "d:1", "2": "c:1", "0": "b:1"}}, "worker", 10, "worker:0", 10),
    ({"ps": ["a:1"], "worker": {"1": "c:1"}, "chief": ["b:1"]}, "worker", 1, "chief:0", 2),
])
def test_tf_config_places_a_worker(cluster_part, job, index, chief, number):
    """Dense and sparse clusters, with and without a chief task: its task, chief and number, which goes by the index."""
    cluster = _by_tf_config(tf_config(cluster_part, job, index))
    assert cluster.task.name == f"{job}:{index}"
    assert cluster.chief.name == chief == cluster.workers[0].name
    assert cluster.is_chief is (cluster.task.name == chief)
    assert cluster.worker_number == number
    assert cluster.task in cluster.workers


@pytest.mark.parametrize(("cluster_part", "job", "num_workers"), [
    ({"ps": ["a:1"], "worker": ["b:1", "c:1"]}, "worker", 2),
    ({"ps": ["a:1"], "worker": ["b:1", "c:1"], "chief": ["d:1"]}, "chief", 3),
    ({"ps": ["a:1"], "master": ["d:1"]}, "master", 1),
    ({"ps": ["a:1"], "worker": {"0": "b:1", "4": "c:1"}}, "worker", 5),
])
def test_the_number_of_workers_leaves_room_for_those_not_named(cluster_part, job, num_workers):
    """Every worker's number is below it, so a shard `(number, count)` is always valid."""
    cluster = _by_tf_config(tf_config(cluster_part, job, 0))
    assert cluster.num_workers == num_workers
    assert [cluster.number_of(task) < num_workers for task in cluster.workers] == [True] * len(cluster.workers)


def test_a_worker_that_knows_only_itself_is_not_the_chief():
    """In the sparse form a worker may know itself and the ps only: worker 1 must not take itself for the chief."""
    cluster = _by_tf_config(tf_config({"ps": ["a:1"], "worker": {"1": "c:1"}}, "worker", 1))
    assert not cluster.is_chief
    assert str(cluster.chief) == "worker:0"
    assert cluster.worker_number == 1


@pytest.mark.parametrize("evaluators", [{}, {"evaluator": ["e:1"]}])
def test_an_evaluator_need_not_be_in_the_cluster(evaluators):
    """Estimator's TF_CONFIG leaves the evaluator's address out; named or not, it is neither worker nor chief."""
    cluster = _by_tf_config(tf_config({"ps": ["a:1"], "worker": ["b:1"], **evaluators}, "evaluator", 0))
    assert cluster.task.name == "evaluator:0"
    assert not cluster.is_chief and cluster.task not in cluster.workers
    assert cluster.server_spec == {"ps": {0: "a:1"}, "worker": {0: "b:1"}}


# --- flags together with TF_CONFIG

BESIDE = tf_config({"ps": ["a:1", "b:1"], "worker": {"2": "d:1", "0": "c:1"}}, "worker", 2)


@pytest.mark.parametrize("flags", [
    {}, {"job_name": "worker"}, {"task_index": 2}, {"ps_hosts": "a:1,b:1"}, {"worker_hosts": "c:1,d:1"},
    {"job_name": "worker", "task_index": 2, "ps_hosts": "a:1,b:1", "worker_hosts": "c:1,d:1"},
])
def test_flags_that_agree_with_tf_config_are_accepted(flags):
    """Classic scripts give both; hosts are compared in the order of their indices."""
    assert _resolve_beside(flags).task == Task("worker", 2, "d:1")


@pytest.mark.parametrize(("flags", "values"), [
    ({"job_name": "ps"}, ["--job_name=ps", "'worker'"]),
    ({"task_index": 0}, ["--task_index=0", "2"]),
    ({"ps_hosts": "b:1,a:1"}, ["--ps_hosts=b:1,a:1", "'a:1,b:1'"]),
    ({"worker_hosts": "c:1"}, ["--worker_hosts=c:1", "'c:1,d:1'"]),
])
def test_flags_that_contradict_tf_config_are_shown_with_it(flags, values):
    """The message shows both values."""
    error = error_of(_resolve_beside, flags)
    assert codes_of(error) == ["flag_contradicts_tf_config"] and all(value in str(error) for value in values)


def test_all_contradictions_are_reported_together():
    """One line for each flag that differs."""
    assert len(error_of(_resolve_beside, {"job_name": "ps", "task_index": 1}).problems) == 2


def _resolve_beside(flags):
    values = {"ps_hosts": "localhost:2222", "worker_hosts": "localhost:2223", "job_name": None, "task_index": None}
    return find_cluster(**{**values, **flags}, tf_config=BESIDE, given=frozenset(flags))


@given(clusters())
def test_flags_made_of_a_tf_config_agree_with_it(described):
    """The hosts, job and index of any cluster are accepted together with it."""
    addresses, job, index = described
    text = tf_config({name: {str(key): value for key, value in tasks.items()} for name, tasks in addresses.items()},
                     job, index)
    cluster = _by_tf_config(text)
    if cluster.is_elastic:  # a lone worker in the sparse form looks like one of the dynamic form
        assert len(addresses["worker"]) == 1 and job == "worker"
    assert cluster == Cluster(job, index, addresses, cluster.is_elastic, frozenset(addresses))
    assert set(cluster.server_spec) == set(addresses) - {"evaluator"}
    names = frozenset({"ps_hosts", "worker_hosts", "job_name", "task_index"})
    assert _by_flags(cluster.hosts("ps"), cluster.hosts("worker"), job, index, tf_config=text, given=names) == cluster


@pytest.mark.parametrize("text", ["", " ", "\n"])
def test_an_empty_tf_config_is_none(text):
    """An empty variable, as some schedulers leave it, means the flags."""
    assert _by_flags(PS, WORKERS, "ps", 1, tf_config=text).task == Task("ps", 1, "b:2")


# --- elastic clusters

@pytest.mark.parametrize(("cluster_part", "job", "index", "known"), [
    ({"ps": ["a:1"], "worker": {}}, "ps", 0, {"ps": {0: "a:1"}, "worker": {}}),
    ({"ps": ["b:1"], "worker": {}}, "ps", 1, {"ps": {1: "b:1"}, "worker": {}}),
    ({"ps": ["a:1", "b:1"], "worker": {}}, "ps", 1, {"ps": {0: "a:1", 1: "b:1"}, "worker": {}}),
    ({"ps": ["a:1", "b:1"], "worker": {"3": "c:1"}}, "worker", 3, {"ps": {0: "a:1", 1: "b:1"}, "worker": {3: "c:1"}}),
    ({"ps": ["a:1"], "worker": {"0": "c:1"}}, "worker", "0", {"ps": {0: "a:1"}, "worker": {0: "c:1"}}),
    ({"ps": ["a:1"], "worker": {}}, "evaluator", 0, {"ps": {0: "a:1"}, "worker": {}}),
])
def test_the_tf_config_of_a_dynamic_job_makes_an_elastic_cluster(cluster_part, job, index, known):
    """As Kubeflow's operator writes it: a ps gets itself under its real index, a worker all ps and itself."""
    cluster = _by_tf_config(tf_config(cluster_part, job, index))
    knows_only_itself = job == "ps" and len(cluster_part["ps"]) == 1
    assert cluster == Cluster(job, int(index), known, is_elastic=True,
                            partial=frozenset({"worker", "ps"} if knows_only_itself else {"worker"}))
    assert cluster.boot == ({"boot": {0: cluster.task.address}}, "boot", 0)


@pytest.mark.parametrize(("cluster_part", "job", "index"), [
    ({"ps": ["a:1"], "worker": ["c:1"]}, "worker", 0),
    ({"ps": ["a:1"], "worker": {"0": "c:1", "3": "d:1"}}, "worker", 3),
    ({"ps": ["a:1"], "worker": {"0": "c:1"}}, "ps", 0),
    ({"ps": ["a:1"], "worker": {"1": "c:1"}, "chief": ["d:1"]}, "worker", 1),
])
def test_another_tf_config_makes_an_elastic_cluster_only_with_the_flag(cluster_part, job, index):
    """Then a task forgets the other workers; `--noelastic` keeps one that knows itself only in a fixed cluster."""
    text = tf_config(cluster_part, job, index)
    assert not _by_tf_config(text).is_elastic
    cluster = _by_tf_config(text, elastic=True)
    assert cluster.is_elastic and set(cluster.workers) <= {cluster.task, cluster.chief}
    text = tf_config({"ps": ["a:1"], "worker": {"3": "c:1"}}, "worker", 3)
    assert not _by_tf_config(text, elastic=False).is_elastic


@pytest.mark.parametrize(("worker_hosts", "job", "index", "workers"), [
    ("c:3", "worker", 0, {0: "c:3"}), ("c:3", "worker", 7, {7: "c:3"}), ("c:3", "worker", 1022, {1022: "c:3"}),
    ("c:3,d:4", "worker", 1, {1: "d:4"}), ("c:3,d:4", "ps", 1, {}), ("a:1,b:2", "ps", 0, {}),
])
def test_the_flags_of_an_elastic_worker_name_itself_or_all(worker_hosts, job, index, workers):
    """A lone address is that of this worker, with any index; a ps needs none, so the default may be anything."""
    cluster = _by_flags(PS, worker_hosts, job, index, elastic=True)
    assert cluster == Cluster(job, index, {"ps": {0: "a:1", 1: "b:2"}, "worker": workers}, is_elastic=True,
                            partial=frozenset({"worker"}))
    assert cluster.shard == (0, 1)


def test_what_an_elastic_cluster_cannot_be_is_refused():
    """An index that is not in the list or too large, and a fixed cluster without workers."""
    assert "0 to 1" in str(error_of(_by_flags, PS, "c:3,d:4", "worker", 2, elastic=True))
    assert "0 to 1022" in str(error_of(_by_flags, PS, "c:3", "worker", 1023, elastic=True))
    text = tf_config({"ps": ["a:1"], "worker": {}}, "ps", 0)
    assert codes_of(error_of(_by_tf_config, text, elastic=False)) == ["tf_config_without_workers"]


@pytest.mark.parametrize(("flag", "hosts"), [
    ("ps_hosts", {"ps_hosts": 1024, "worker_hosts": 1}), ("worker_hosts", {"ps_hosts": 1, "worker_hosts": 1024})])
def test_more_tasks_than_the_blackboard_has_room_for_are_refused(flag, hosts):
    """As in TF_CONFIG, and by `launch`; the chief crashed at the end."""
    lists = {name: ",".join(f"{name[0]}{index}:1" for index in range(count)) for name, count in hosts.items()}
    error = error_of(find_cluster, job_name="ps", task_index=0, **lists)
    assert f"--{flag}: got 1024 addresses; allowed: at most 1023" in str(error)
    lists[flag] = lists[flag].rpartition(",")[0]
    assert find_cluster(job_name="ps", task_index=0, **lists).job == "ps"
    for name in ("num_ps", "num_workers"):
        assert codes_of(error_of(LaunchConfig, **{name: 1024})) == ["flag_out_of_range"]
        assert getattr(LaunchConfig(**{name: 1023}), name) == 1023
