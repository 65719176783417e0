"""How a task finds its cluster in the variables of a scheduler, with --cluster_from."""

from __future__ import annotations

import json

import pytest

from ps_train.__main__ import main
from ps_train.cluster.resolve import find_cluster
from ps_train.config import task
from ps_train.verbs import train
from tests.errors import codes_of, error_of

JOBSET = {"JOBSET_NAME": "run", "JOBSET_REPLICATED_JOB": "worker", "JOB_COMPLETION_INDEX": "1",
          "HOSTNAME": "run-worker-0-1"}
TRAINJOB = {"JOBSET_NAME": "run", "JOBSET_REPLICATED_JOB": "node", "JOB_COMPLETION_INDEX": "3",
            "HOSTNAME": "run-node-0-3"}
INDEXED = {"JOB_NAME": "run", "JOB_COMPLETION_INDEX": "0", "HOSTNAME": "run-0"}
VARIABLES = {"PS_TRAIN_JOB_NAME": "worker", "PS_TRAIN_TASK_INDEX": "1", "PS_TRAIN_PS_HOSTS": "a:1",
             "PS_TRAIN_WORKER_HOSTS": "b:1,c:1"}
SLURM = {"SLURM_STEP_NODELIST": "n1", "SLURM_STEP_TASKS_PER_NODE": "3", "SLURM_STEP_NUM_TASKS": "3",
         "SLURM_PROCID": "1", "SLURMD_NODENAME": "n1", "SLURM_JOB_ID": "1234567"}


def find(environ, source, tasks="", *flags):
    """Returns the cluster of a task, as `ps_train` does with these flags and variables."""
    config = task.parse_task([f"--cluster_from={source}", *([f"--cluster_tasks={tasks}"] if tasks else []), *flags],
                             environ)
    return find_cluster(tf_config=train.find_tf_config(config, environ), elastic=config.elastic)


def addresses(cluster):
    """Returns job -> the addresses of its tasks."""
    return {job: list(tasks.values()) for job, tasks in cluster.addresses.items()}


PODS = {"ps": ["run-ps-0-0.run:2222", "run-ps-0-1.run:2222"],
        "worker": ["run-worker-0-0.run:2222", "run-worker-0-1.run:2222"]}
NODES = {"ps": ["run-node-0-0.run:2222", "run-node-0-1.run:2222"],
         "worker": ["run-node-0-2.run:2222", "run-node-0-3.run:2222"]}


@pytest.mark.parametrize(("environ", "source", "tasks", "name", "expected"), [
    (JOBSET, "jobset", "ps:2,worker:2", "worker:1", PODS),
    ({**JOBSET, "JOBSET_REPLICATED_JOB": "ps", "HOSTNAME": "run-ps-0-1"}, "jobset", "ps:2,worker:2", "ps:1", PODS),
    (TRAINJOB, "jobset", "ps:2,worker:2", "worker:1", NODES),
    ({**TRAINJOB, "JOB_COMPLETION_INDEX": "1", "HOSTNAME": "run-node-0-1.run.default.svc.cluster.local"}, "jobset",
     "ps:2,worker:2", "ps:1", NODES),
    (INDEXED, "indexed_job", "ps:1,chief:1,worker:1", "ps:0",
     {"ps": ["run-0.run:2222"], "chief": ["run-1.run:2222"], "worker": ["run-2.run:2222"]}),
    (VARIABLES, "env", "", "worker:1", {"ps": ["a:1"], "worker": ["b:1", "c:1"]}),
    ({"PS_TRAIN_JOB_NAME": "evaluator", "PS_TRAIN_PS_HOSTS": "a:1", "PS_TRAIN_CHIEF_HOSTS": "b:1"}, "env", "",
     "evaluator:0", {"ps": ["a:1"], "chief": ["b:1"]}),
])
def test_a_task_finds_the_cluster_and_its_place_in_it(environ, source, tasks, name, expected):
    """The host names are those that the controllers give the pods, and the index is that of the pod."""
    cluster = find(environ, source, tasks)
    assert (cluster.task.name, addresses(cluster), cluster.is_elastic) == (name, expected, False)


def test_the_port_and_the_service_are_chosen_by_flags():
    """All pods listen on one port; spec.network.subdomain of a JobSet may differ from its name."""
    cluster = find(JOBSET, "jobset", "ps:1,worker:2", "--cluster_port=80", "--cluster_service=net")
    assert addresses(cluster)["ps"] == ["run-ps-0-0.net:80"]


@pytest.mark.parametrize(("environ", "name", "address"), [
    ({"JOB_NAME": "run", "JOB_COMPLETION_INDEX": "5"}, "worker:4", "run-5.run:2222"),
    ({"JOB_NAME": "run", "JOB_COMPLETION_INDEX": "1"}, "worker:0", "run-1.run:2222"),
])
def test_pods_that_are_added_to_an_elastic_job_are_workers(environ, name, address):
    """--cluster_tasks has the number at the start."""
    cluster = find(environ, "indexed_job", "ps:1,worker:2", "--elastic")
    assert (cluster.task.name, cluster.task.address, cluster.is_elastic) == (name, address, True)


def test_a_worker_that_is_added_to_an_elastic_jobset_finds_the_ps():
    """Its ReplicatedJob has been given more completions."""
    cluster = find({**JOBSET, "JOB_COMPLETION_INDEX": "7", "HOSTNAME": ""}, "jobset", "ps:1,worker:2", "--elastic")
    assert (cluster.task.name, addresses(cluster)) == (
        "worker:7", {"ps": ["run-ps-0-0.run:2222"], "worker": ["run-worker-0-7.run:2222"]})


@pytest.mark.parametrize(("nodes", "per_node", "tasks", "rank", "node", "expected", "name"), [
    ("n1", "3", "ps:1", 0, "n1", {"ps": ["n1:26700"], "worker": ["n1:26701", "n1:26702"]}, "ps:0"),
    ("n1", "3", "ps:1,worker:2", 2, "n1", {"ps": ["n1:26700"], "worker": ["n1:26701", "n1:26702"]}, "worker:1"),
    ("n[9-11]", "2,1(x2)", "ps:2", 3, "n11",
     {"ps": ["n9:26700", "n9:26701"], "worker": ["n10:26700", "n11:26700"]}, "worker:1"),
    ("gpu7,cpu[01-02]", "1(x3)", "ps:1,chief:1", 1, "cpu01",
     {"ps": ["gpu7:26700"], "chief": ["cpu01:26700"], "worker": ["cpu02:26700"]}, "chief:0"),
    ("r[1-2]n[08,10]x", "1(x4)", "ps:1", 3, "r2n10x",
     {"ps": ["r1n08x:26700"], "worker": ["r1n10x:26700", "r2n08x:26700", "r2n10x:26700"]}, "worker:2"),
    ("n1", "128", "ps:1", 127, "n1", {"ps": ["n1:26700"], "worker": [f"n1:{26700 + rank}" for rank in range(1, 128)]},
     "worker:126"),
])
def test_the_tasks_of_a_slurm_step_are_in_the_order_of_its_nodes(
        nodes, per_node, tasks, rank, node, expected, name):
    """Also where the names of the nodes sort otherwise as text: n10 comes after n9."""
    num_tasks = sum(len(hosts) for hosts in expected.values())
    cluster = find({**SLURM, "SLURM_STEP_NODELIST": nodes, "SLURM_STEP_TASKS_PER_NODE": per_node, "SLURMD_NODENAME":
                    node, "SLURM_STEP_NUM_TASKS": str(num_tasks), "SLURM_PROCID": str(rank)}, "slurm", tasks)
    assert (addresses(cluster), cluster.task.name) == (expected, name)


def without(environ, name):
    """Returns the variables without one of them."""
    return {key: value for key, value in environ.items() if key != name}


@pytest.mark.parametrize(("environ", "source", "tasks", "code", "values"), [
    *((without(environ, name), source, tasks, "scheduler_variable_missing", [f"{name}: not set", advice])
      for environ, source, tasks, names in (
          (JOBSET, "jobset", "ps:1,worker:2", {
              "JOBSET_NAME": "metadata.labels['jobset.sigs.k8s.io/jobset-name']",
              "JOBSET_REPLICATED_JOB": "metadata.labels['jobset.sigs.k8s.io/replicatedjob-name']",
              "JOB_COMPLETION_INDEX": "completionMode: Indexed"}),
          (INDEXED, "indexed_job", "ps:1,worker:2", {"JOB_NAME": "batch.kubernetes.io/job-name"}),
          (SLURM, "slurm", "ps:1", dict.fromkeys(without(SLURM, "SLURMD_NODENAME"), "srun")),
          (VARIABLES, "env", "", dict.fromkeys(VARIABLES, "set it"))) for name, advice in names.items()),
    ({**JOBSET, "JOBSET_NAME": "$(NAME)"}, "jobset", "ps:1,worker:2", "scheduler_variable_malformed", ["'$(NAME)'"]),
    ({**JOBSET, "JOB_COMPLETION_INDEX": "x"}, "jobset", "ps:1,worker:2", "scheduler_variable_malformed", ["'x'"]),
    ({**JOBSET, "JOB_COMPLETION_INDEX": "2"}, "jobset", "ps:1,worker:2", "task_not_in_cluster",
     ["got 2", "0 to 1", "worker:2"]),
    ({**TRAINJOB, "HOSTNAME": ""}, "jobset", "ps:1,worker:2", "task_not_in_cluster", ["got 3", "0 to 2"]),
    ({**JOBSET, "HOSTNAME": "run-worker-1-0"}, "jobset", "ps:1,worker:2", "task_misplaced",
     ["run-worker-1-0", "run-worker-0-1", "replicas: 1"]),
    ({**INDEXED, "TF_CONFIG": "{}"}, "indexed_job", "ps:1,worker:2", "cluster_given_twice", ["TF_CONFIG"]),
    ({**VARIABLES, "PS_TRAIN_JOB_NAME": "Worker"}, "env", "", "scheduler_variable_malformed",
     ["'Worker'", "evaluator"]),
    ({**VARIABLES, "PS_TRAIN_TASK_INDEX": "2"}, "env", "", "scheduler_variable_malformed", ["'2'", "0 to 1"]),
    ({**VARIABLES, "PS_TRAIN_PS_HOSTS": "a"}, "env", "", "address_malformed", ["PS_TRAIN_PS_HOSTS entry 0", "'a'"]),
    ({**SLURM, "SLURMD_NODENAME": "n2"}, "slurm", "ps:1", "task_misplaced", ["n2", "n1", "--distribution=block"]),
    (SLURM, "slurm", "ps:3", "task_not_in_cluster", ["3 tasks", "--ntasks=3 or more, or"]),
    (SLURM, "slurm", "ps:1,worker:1", "task_not_in_cluster", ["2 tasks", "--ntasks=2, or"]),
    ({**SLURM, "SLURM_STEP_NODELIST": "n[1"}, "slurm", "ps:1", "scheduler_variable_malformed", ["0 nodes"]),
    ({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "2"}, "slurm", "ps:1", "scheduler_variable_malformed", ["2 tasks"]),
])
def test_a_cluster_that_cannot_be_found_is_one_line(environ, source, tasks, code, values):
    """It names the variable, and says what to set."""
    error = error_of(find, environ, source, tasks)
    assert (codes_of(error), error.exit_code) == ([code], 2) and "\n" not in str(error)
    assert all(value in str(error) for value in values), str(error)


@pytest.mark.parametrize(("flags", "codes"), [
    (["--cluster_from=nomad"], ["flag_out_of_range"]),
    (["--cluster_from=jobset"], ["flag_missing"]),
    (["--cluster_from=jobset", "--cluster_tasks=worker:2"], ["flag_missing"]),
    (["--cluster_from=indexed_job", "--cluster_tasks=ps:2"], ["flag_missing"]),
    (["--cluster_from=slurm", "--cluster_tasks=worker:2"], ["flag_missing"]),
    (["--cluster_from=jobset", "--cluster_tasks=ps:0,worker:1"], ["flag_out_of_range"]),
    *((["--cluster_from=jobset", f"--cluster_tasks={text}"], ["flag_malformed"]) for text in (
        "ps", "ps:1,worker:0", "ps:1,ps:2", "ps:1,worker:x", "ps:1,node:2", "ps:1,chief:2", "ps:1,,worker:1")),
    (["--cluster_from=jobset", "--cluster_tasks=ps:1,worker:1", "--cluster_service=a.b"], ["flag_malformed"]),
    (["--cluster_from=jobset", "--cluster_tasks=ps:1,worker:1", "--job_name=ps", "--ps_hosts=a:1"],
     ["flags_conflict"] * 2),
    (["--cluster_tasks=ps:1", "--cluster_port=1", "--job_name=ps"], ["flag_without_effect"] * 2),
    (["--cluster_from=env", "--cluster_tasks=ps:1"], ["flag_without_effect"]),
    (["--cluster_from=slurm", "--cluster_tasks=ps:1", "--cluster_service=a"], ["flag_without_effect"]),
])
def test_flags_that_do_not_fit_are_refused(flags, codes):
    """Before anything is looked up."""
    assert codes_of(error_of(task.parse_task, flags, {})) == codes


def test_without_the_flag_tf_config_counts_as_before():
    """No variable of a scheduler is read."""
    config = task.parse_task(["--job_name=ps"], {"TF_CONFIG": "text", **JOBSET})
    assert train.find_tf_config(config, JOBSET) == "text"


def test_the_verb_prints_what_other_verbs_read(monkeypatch, capsys):
    """The cluster of this task as TF_CONFIG has it; nothing else on stdout."""
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    assert main(["tf_config", "--cluster_from=slurm", "--cluster_tasks=ps:1", "--cluster_port=7000"]) == 0
    found = find_cluster(tf_config=capsys.readouterr().out)
    assert addresses(found) == {"ps": ["n1:7000"], "worker": ["n1:7001", "n1:7002"]}
    assert found.task.name == "worker:0"


@pytest.mark.parametrize(("flags", "code"), [
    ([], "flag_missing"), (["--cluster_from=slurm"], "flag_missing"), (["--cluster_tasks=ps:1"], "flag_without_effect"),
    (["--cluster_from=slurm", "--cluster_tasks=ps:3"], "task_not_in_cluster")])
def test_the_verb_prints_nothing_where_it_finds_no_cluster(monkeypatch, capsys, flags, code):
    """An empty TF_CONFIG would start a training of one task."""
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    assert main(["tf_config", *flags]) == 2
    printed = capsys.readouterr()
    assert not printed.out and f"[{code}]" in printed.err


@pytest.mark.parametrize(("environ", "flags", "expected"), [
    (SLURM, ["--cluster_from=slurm", "--cluster_tasks=ps:0", "--cluster_port=7000"],
     {"cluster": {"worker": ["n1:7000", "n1:7001", "n1:7002"]}, "task": {"type": "worker", "index": 1}}),
    (JOBSET, ["--cluster_from=jobset", "--cluster_tasks=ps:0,worker:2"],
     {"cluster": {"worker": PODS["worker"]}, "task": {"type": "worker", "index": 1}}),
    (INDEXED, ["--cluster_from=indexed_job", "--cluster_tasks=ps:0,chief:1,worker:1"],
     {"cluster": {"chief": ["run-0.run:2222"], "worker": ["run-1.run:2222"]}, "task": {"type": "chief", "index": 0}}),
])
def test_the_verb_finds_clusters_without_a_ps(monkeypatch, capsys, environ, flags, expected):
    """For a strategy of Keras or a script that has none; it is said with ps:0, and not by leaving ps out."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert main(["tf_config", *flags]) == 0
    assert json.loads(capsys.readouterr().out) == expected
