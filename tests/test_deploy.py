"""deploy/: the manifests fit the schema and the operator, and what pods and Slurm tasks would run, trains here.

No container engine and no Slurm is needed: the command lines of the pods run as local processes, with the TF_CONFIG
that the operator would write; `srun` and `scontrol` are stubs (tests/slurm_stub.py).
"""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import random
import re
import signal
import stat
import subprocess
import sys

import pytest

from ps_train import cluster, config, plugins
from tests import processes
from tests.processes import REPO

jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema, of the extra [test]")
yaml = pytest.importorskip("yaml", reason="needs PyYAML, of the extra [test]")

CRD = REPO.parent / "shared/data/kubeflow/kubeflow.org_tfjobs.yaml"  # of Kubeflow's training operator, not ours
MANIFESTS = sorted((REPO / "deploy/kubernetes").glob("tfjob-*.yaml"))
PORT = 2222
CLAIM = yaml.safe_load((REPO / "deploy/kubernetes/volume.yaml").read_text())


def documents(path):
    """Returns kind -> document of a manifest."""
    return {document["kind"]: document for document in yaml.safe_load_all(path.read_text())}


def replicas(path):
    """Returns job -> (number of pods, the container of each) of a TFJob, in the operator's spelling of a job."""
    specs = documents(path)["TFJob"]["spec"]["tfReplicaSpecs"]
    return {kind.lower(): (spec["replicas"], spec["template"]["spec"]["containers"][0]) for kind, spec in specs.items()}


def operator_tf_config(path, job, index, address_of):
    """Returns the TF_CONFIG that Kubeflow's training operator (v1.8.1) writes for a pod.

    Args:
      address_of: (job, index) -> host:port; the operator's own is `NAME-JOB-INDEX.NAMESPACE.svc:2222`.
    """
    addresses = {name: [address_of(name, number) for number in range(count)]
                 for name, (count, _) in replicas(path).items()}
    task = {"type": job, "index": index}
    if not documents(path)["TFJob"]["spec"].get("enableDynamicWorker"):
        return json.dumps({"cluster": addresses, "task": task, "environment": "cloud"})
    told = {"ps": [addresses[job][index]] if job == "ps" else addresses["ps"] if job == "worker" else [],
            "worker": {str(index): addresses[job][index]} if job == "worker" else {}}
    return json.dumps({"cluster": told, "task": task})


def service(path):
    """Returns the function (job, index) -> the address that the operator gives a pod."""
    name = documents(path)["TFJob"]["metadata"]["name"]
    return lambda job, index: f"{name}-{job}-{index}.default.svc:{PORT}"


# --- the manifests

def strict(schema):
    """Returns a schema of Kubernetes as JSON schema that refuses fields which it does not know, as kubectl does."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: strict(part) for key, part in schema.items()}
    if isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema and not schema.get(
            "x-kubernetes-preserve-unknown-fields"):
        found["additionalProperties"] = False
    if schema.get("x-kubernetes-int-or-string"):
        found.pop("type", None)
    return found


@pytest.fixture(scope="module")
def tfjob_schema():
    """The schema of TFJob v1."""
    if not CRD.exists():
        pytest.skip(f"needs the definition of TFJob at {CRD}")
    version, = [version for version in yaml.safe_load(CRD.read_text())["spec"]["versions"] if version["name"] == "v1"]
    return strict(version["schema"]["openAPIV3Schema"])


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_a_tfjob_fits_the_schema(path, tfjob_schema):
    """Every field is known and of the right type; a misspelt one is found."""
    job = documents(path)["TFJob"]
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "TFJob")
    jsonschema.validate(job, tfjob_schema)
    job["spec"]["tfReplicaSpecs"]["PS"]["template"]["spec"]["container"] = []
    with pytest.raises(jsonschema.ValidationError, match="'container' was unexpected"):
        jsonschema.validate(job, tfjob_schema)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_every_pod_is_what_the_operator_and_the_exit_codes_need(path):
    """The container's and the port's names, the restart and the clean-pod policy, another user than root, a volume."""
    spec = documents(path)["TFJob"]["spec"]
    assert spec["runPolicy"] == {"cleanPodPolicy": "Running"}
    for kind, replica in spec["tfReplicaSpecs"].items():
        pod = replica["template"]["spec"]
        container, = pod["containers"]
        assert replica["restartPolicy"] == "ExitCode"
        assert container["name"] == "tensorflow"
        assert {"name": "tfjob-port", "containerPort": PORT} in container["ports"]
        assert pod["securityContext"]["runAsNonRoot"] and not pod["automountServiceAccountToken"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        claims = [volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"]
                  if volume["name"] == "train"]
        may_save = kind in ("Chief", "Evaluator") or (kind == "Worker" and "Chief" not in spec["tfReplicaSpecs"])
        assert (mounts.get("train"), claims) == (("/train", [CLAIM["metadata"]["name"]]) if may_save else (None, []))
    has_gpu = [kind for kind, replica in spec["tfReplicaSpecs"].items()
               if "nvidia.com/gpu" in replica["template"]["spec"]["containers"][0]["resources"]["limits"]]
    assert has_gpu == (["Worker"] if "gpu" in path.stem else [])


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_the_network_policy_lets_in_the_jobs_own_pods_only(path):
    """It selects by the label that the operator gives every pod of the job, for both ends, and the one port."""
    found = documents(path)
    own = {"matchLabels": {"training.kubeflow.org/job-name": found["TFJob"]["metadata"]["name"]}}
    assert found["NetworkPolicy"]["spec"] == {
        "podSelector": own, "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"podSelector": own}], "ports": [{"protocol": "TCP", "port": PORT}]}]}


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_every_pods_command_and_tf_config_are_understood(path, monkeypatch):
    """Flags, plug-ins and TF_CONFIG are checked as a task checks them; the same flags for all, one chief."""
    monkeypatch.chdir(REPO)
    chiefs = []
    for job, (count, container) in replicas(path).items():
        assert container["command"] == ["python", "-m", "ps_train"]
        for index in range(count):
            text = operator_tf_config(path, job, index, service(path))
            told = config.parse_task(container["args"], {"TF_CONFIG": text})
            found = cluster.resolve(told.ps_hosts, told.worker_hosts, told.job_name, told.task_index, told.tf_config,
                                    told.given, told.elastic)
            assert (found.task.name, found.is_elastic) == (f"{job}:{index}", "elastic" in path.stem)
            assert job == "evaluator" or found.task.address == service(path)(job, index)
            chiefs += [found.task.name] if found.is_chief else []
            plugins.load_dataset(told.dataset)
            plugins.load_model(told.model)
    assert chiefs == (["chief:0"] if "chief" in path.stem else ["worker:0"])
    assert len({tuple(container["args"]) for _, container in replicas(path).values()}) == 1


@pytest.mark.parametrize("name", ["tfjob-chief-evaluator", "tfjob-elastic"])
def test_what_the_pods_run_trains_to_the_end(name, tmp_path, start_process):
    """Each pod's command line as a process, with the operator's TF_CONFIG on this machine; all exit 0.

    Other than in the pods are the volume's path, the number of steps, and that TensorFlow sees the CPU only.
    """
    path = REPO / f"deploy/kubernetes/{name}.yaml"
    pods = [(job, index) for job, (count, _) in replicas(path).items() for index in range(count)]
    ports = dict(zip(pods, processes.free_ports(len(pods))))
    for job, index in pods:
        container = replicas(path)[job][1]
        arguments = [re.sub(r"^--train_steps=.*", "--train_steps=200", argument).replace("/train/", f"{tmp_path}/")
                     for argument in container["args"]]
        text = operator_tf_config(path, job, index, lambda *pod: f"localhost:{ports[pod]}")
        start_process.start(f"{job}-{index}", arguments, env={"TF_CONFIG": text, "CUDA_VISIBLE_DEVICES": "-1"})
    assert set(start_process.wait(120).values()) == {0}
    chief = "chief-0" if "chief" in name else "worker-0"
    assert re.search(r"^Steps of each worker, 20\d in all:$", start_process.log(chief), re.MULTILINE)
    assert "evaluator" not in replicas(path) or re.search(r"accuracy = 0\.", start_process.log("evaluator-0"))


# --- the image

def test_the_image_runs_unprivileged_and_without_a_shell():
    """What can be told from the text: a user by number, commands as lists, sources that are there and let through."""
    lines = re.sub(r"\\\n", "", (REPO / "deploy/Dockerfile").read_text()).splitlines()
    instructions = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    assert [rest for name, rest in instructions if name == "USER"] == ["10001:10001"]
    entry = json.loads(next(rest for name, rest in instructions if name == "ENTRYPOINT"))
    assert entry == replicas(MANIFESTS[0])["ps"][1]["command"]
    sent = [line[1:] for line in (REPO / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [word for name, rest in instructions if name == "COPY" and "--from" not in rest
              for word in rest.split()[:-1]]
    assert sorted(copied) == sorted(sent)
    assert all((REPO / source).exists() for source in copied)
    assert [rest for name, rest in instructions if name == "FROM"][-1].endswith("-slim")


# --- Slurm

@pytest.fixture(scope="module")
def slurm_task():
    """deploy/slurm/slurm_task.py as a module."""
    spec = importlib.util.spec_from_file_location("slurm_task", REPO / "deploy/slurm/slurm_task.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def in_step(monkeypatch, nodes, tasks_per_node, num_tasks, rank, node):
    """Sets what Slurm sets for a task of a step."""
    for name, value in {"SLURM_STEP_NODELIST": nodes, "SLURM_STEP_TASKS_PER_NODE": tasks_per_node,
                        "SLURM_STEP_NUM_TASKS": str(num_tasks), "SLURM_PROCID": str(rank), "SLURMD_NODENAME": node,
                        "SLURM_JOB_ID": "1234567"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(("nodes", "per_node", "num_ps", "rank", "node", "cluster_part", "task"), [
    ("n1", "3", 1, 0, "n1", {"ps": ["n1:26700"], "worker": ["n1:26701", "n1:26702"]}, ("ps", 0)),
    ("n1", "3", 1, 2, "n1", {"ps": ["n1:26700"], "worker": ["n1:26701", "n1:26702"]}, ("worker", 1)),
    ("n[9-11]", "2,1(x2)", 2, 3, "n11",
     {"ps": ["n9:26700", "n9:26701"], "worker": ["n10:26700", "n11:26700"]}, ("worker", 1)),
    ("gpu7,cpu[01-02]", "1(x3)", 1, 1, "cpu01",
     {"ps": ["gpu7:26700"], "worker": ["cpu01:26700", "cpu02:26700"]}, ("worker", 0)),
])
def test_a_slurm_task_is_told_the_cluster_in_the_order_of_the_steps_nodes(
        slurm_task, monkeypatch, nodes, per_node, num_ps, rank, node, cluster_part, task):
    """Also where the names of the nodes sort otherwise as text: n10 comes after n9."""
    num_tasks = sum(len(tasks) for tasks in cluster_part.values())
    in_step(monkeypatch, nodes, per_node, num_tasks, rank, node)
    found = json.loads(slurm_task.tf_config(num_ps))
    assert found == {"cluster": cluster_part, "task": {"type": task[0], "index": task[1]}}
    assert cluster.resolve("", "", None, None, json.dumps(found)).task.name == f"{task[0]}:{task[1]}"


@pytest.mark.parametrize(("shape", "num_ps", "message"), [
    (("n[1-2]", "2(x2)", 4, 1, "n2"), 1, "task 1 of the step runs on n2, and not on n1.*--distribution=block"),
    (("n1", "2", 2, 0, "n1"), 2, "--num_ps: got 2; allowed: 1 to 1"),
    (("n1", "2", 2, 0, "n1"), 0, "--num_ps: got 0; allowed: 1 to 1"),
    (("n[1-2]x", "1(x2)", 2, 0, "n1x"), 1, "Invalid hostlist"),
])
def test_a_step_of_another_shape_is_refused(slurm_task, monkeypatch, capsys, shape, num_ps, message):
    """Exit code 2 and one line, before anything runs."""
    in_step(monkeypatch, *shape)
    assert slurm_task.main([f"--num_ps={num_ps}", "--", "--train_steps=1"]) == 2
    assert re.search(f"^slurm_task: .*{message}", capsys.readouterr().err)


def test_outside_of_slurm_it_says_so(slurm_task, monkeypatch, capsys):
    """The first variable that is missing is named."""
    monkeypatch.delenv("SLURM_STEP_NUM_TASKS", raising=False)
    assert slurm_task.main([]) == 2
    assert "SLURM_STEP_NUM_TASKS is not set; start this with srun" in capsys.readouterr().err


@pytest.fixture
def run_batch(tmp_path):
    """A function that runs train.sbatch with stubs in place of Slurm's tools; returns (process, the stubs' log)."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("srun", "scontrol"):
        stub = tools / name
        stub.write_text(f"#!{sys.executable}\n{(REPO / 'tests/slurm_stub.py').read_text()}")
        stub.chmod(stub.stat().st_mode | stat.S_IXUSR)
    log, output = tmp_path / "slurm.log", tmp_path / "output"
    log.touch()

    def run(*flags, tasks=3, restart_count=0):
        environ = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
        environ.update(PATH=f"{tools}:{environ['PATH']}", PYTHON=sys.executable, SLURM_STUB_LOG=str(log),
                       SLURM_JOB_ID=free_job_id(), SLURM_NTASKS=str(tasks), SLURM_RESTART_COUNT=str(restart_count),
                       PYTHONPATH=str(REPO), PYTHONUNBUFFERED="1")
        with open(output, "wb") as sink:
            return subprocess.Popen([REPO / "deploy/slurm/train.sbatch", *flags], cwd=REPO, env=environ, stdout=sink,
                                    stderr=subprocess.STDOUT, start_new_session=True)

    started = []

    def start(*flags, **options):
        started.append(run(*flags, **options))
        return started[-1], log, output

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def free_job_id():
    """Returns a job id whose first ports are free on this machine."""
    while True:
        job_id = random.randrange(100)
        if not any(processes.is_open(20000 + 100 * job_id + offset) for offset in range(4)):
            return str(job_id)


def asked(log: pathlib.Path, tool):
    """Returns the arguments of each call of a stub."""
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    return [call[1:] for call in calls if call[0] == tool]


def test_the_batch_script_trains_and_is_not_queued_again(run_batch, tmp_path):
    """1 ps and 2 workers as the tasks of one step; every task ends with 0."""
    process, log, output = run_batch("--model=models.softmax", "--dataset=data.digits", "--train_steps=60",
                                     f"--train_dir={tmp_path}/train")
    assert process.wait(processes.DEADLINE_SECS) == 0, output.read_text()
    assert "Steps of each worker, 6" in output.read_text()
    assert asked(log, "scontrol") == []
    assert "--kill-on-bad-exit=0" in asked(log, "srun")[0]


def test_a_job_at_its_time_limit_saves_and_is_queued_again(run_batch, tmp_path):
    """Slurm sends SIGTERM to the step: all end with 143, and the script asks for the job to be queued again."""
    process, log, output = run_batch("--model=models.softmax", "--dataset=data.digits", "--train_steps=1000000",
                                     f"--train_dir={tmp_path}/train")
    end = processes.time.monotonic() + processes.DEADLINE_SECS
    while "examples/s" not in output.read_text() and processes.time.monotonic() < end:
        assert process.poll() is None, output.read_text()
        processes.time.sleep(0.1)
    srun_pid = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True).stdout
    os.kill(int(srun_pid), signal.SIGTERM)
    assert process.wait(processes.DEADLINE_SECS) == 143, output.read_text()
    assert len(asked(log, "scontrol")) == 1 and asked(log, "scontrol")[0][0] == "requeue"
    assert "saved" in output.read_text()


@pytest.mark.parametrize(("flags", "restart_count", "code"), [
    (["--train_steps=0"], 0, 2), (["--train_steps=0"], 3, 2)])
def test_what_running_again_does_not_mend_is_not_queued_again(run_batch, flags, restart_count, code):
    """A wrong flag ends all tasks with 2, and the job."""
    process, log, output = run_batch(*flags, restart_count=restart_count)
    assert process.wait(processes.DEADLINE_SECS) == code, output.read_text()
    assert asked(log, "scontrol") == []
