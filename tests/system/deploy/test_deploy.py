"""deploy/kubernetes and the image: the manifests fit the schema and the operator, and what the pods run trains here.

No container engine is needed: the command lines of the pods run as local processes, with the TF_CONFIG that the
operator would write.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess

import pytest

from ps_train.cluster import resolve
from ps_train.cluster.spec import Task
from ps_train.config import task as config
from ps_train.parts.control import looking
from ps_train.plugins import loader
from tests import processes
from tests.children import wait_until
from tests.processes import REPO

jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema, of the extra [test]")
yaml = pytest.importorskip("yaml", reason="needs PyYAML, of the extra [test]")

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


def image_folder():
    """Returns the working directory of the image, where the plug-ins are."""
    return re.findall(r"^WORKDIR (\S+)$", (REPO / "deploy/Dockerfile").read_text(), re.MULTILINE)[-1]


def service(path):
    """Returns the function (job, index) -> the address that the operator gives a pod."""
    name = documents(path)["TFJob"]["metadata"]["name"]
    return lambda job, index: f"{name}-{job}-{index}.default.svc:{PORT}"


# --- the manifests

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
        has_gpu = "nvidia.com/gpu" in container["resources"]["limits"]
        assert container.get("env", []) == ([] if has_gpu else [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}])
        assert container["workingDir"] == image_folder()
        labels = replica["template"]["metadata"]["labels"]
        assert labels == {**documents(path)["TFJob"]["metadata"]["labels"], "app.kubernetes.io/component": kind.lower()}
        assert labels["app.kubernetes.io/instance"] == documents(path)["TFJob"]["metadata"]["name"]
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        claims = [volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"]
                  if volume["name"] == "train"]
        may_save = kind in ("Chief", "Evaluator") or (kind == "Worker" and "Chief" not in spec["tfReplicaSpecs"])
        assert (mounts.get("train"), claims) == (("/train", [CLAIM["metadata"]["name"]]) if may_save else (None, []))
    has_gpu = [kind for kind, replica in spec["tfReplicaSpecs"].items()
               if "nvidia.com/gpu" in replica["template"]["spec"]["containers"][0]["resources"]["limits"]]
    assert has_gpu == (["Worker"] if "gpu" in path.stem else [])


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_every_pod_has_a_node_selector_that_only_needs_its_comment_taken_away(path, tfjob_schema):
    """Uncommented it fits the schema and stands in every pod."""
    text = path.read_text().replace("# nodeSelector:", "nodeSelector:")
    job, = [document for document in yaml.safe_load_all(text) if document["kind"] == "TFJob"]
    jsonschema.validate(job, tfjob_schema)
    pods = [replica["template"]["spec"] for replica in job["spec"]["tfReplicaSpecs"].values()]
    assert all(pod["nodeSelector"] for pod in pods)
    assert not any("nodeSelector" in replica["template"]["spec"]
                   for replica in documents(path)["TFJob"]["spec"]["tfReplicaSpecs"].values())


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
            found = resolve.find_cluster(
                ps_hosts=told.ps_hosts, worker_hosts=told.worker_hosts, job_name=told.job_name,
                task_index=told.task_index, tf_config=told.tf_config, given=told.given, elastic=told.elastic)
            assert (found.task.name, found.is_elastic) == (f"{job}:{index}", "elastic" in path.stem)
            assert job == "evaluator" or found.task.address == service(path)(job, index)
            chiefs += [found.task.name] if found.is_chief else []
            loader.load_dataset(told.dataset)
            loader.load_model(told.model)
    assert chiefs == (["chief:0"] if "chief" in path.stem else ["worker:0"])
    assert len({tuple(container["args"]) for _, container in replicas(path).values()}) == 1


@pytest.fixture
def tutorial(tmp_path):
    """The page of the tutorial, and its manifest in a file."""
    page = (REPO / "docs/tutorial/kubernetes.md").read_text(encoding="utf-8")
    path = tmp_path / "job.yaml"
    path.write_text(re.search(r"^```yaml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)[1])
    return page, path


def test_the_manifest_of_the_tutorial_is_a_job_that_its_page_describes(tutorial, tfjob_schema, tmp_path):
    """It fits the schema; its pods have the names and the image of the page's commands, and its rehearsal's flags."""
    page, path = tutorial
    job, claim = (documents(path)[kind] for kind in ("TFJob", "PersistentVolumeClaim"))
    jsonschema.validate(job, tfjob_schema)
    pods = {f"{job['metadata']['name']}-{kind}-{index}" for kind, (count, _) in replicas(path).items()
            for index in range(count)}
    assert set(re.findall(r"^kubectl (?:exec|logs -f|cp) (\S+?)(?:[: ]|$)", page, re.MULTILINE)) <= pods
    [image] = {container["image"] for _, container in replicas(path).values()}
    assert f"docker build -t {image} ." in page and f"docker push {image}" in page
    volumes = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["volumes"]
    assert volumes[0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    [arguments] = {tuple(container["args"]) for _, container in replicas(path).values()}
    assert {"--model=mymodel", "--dataset=digits"} <= set(arguments)
    rehearsed = re.findall(r"^TF_CONFIG='(.*?)' ps_train (.*?)(?: &)?$", page, re.MULTILINE)
    for text, flags in rehearsed:
        told = json.loads(text)
        addresses = dict(zip(((kind, index) for kind, (count, _) in replicas(path).items() for index in range(count)),
                             (f"localhost:{port}" for port in (2222, 2223, 2224))))
        task = told["task"]
        assert {**told, "environment": "cloud"} == json.loads(operator_tf_config(
            path, task["type"], task["index"], lambda *pod: addresses[pod]))  # noqa: B023 (called at once)
        config.parse_task(flags.split(), {"TF_CONFIG": text})
        others = set(arguments) - set(flags.split())  # on this machine it is shorter, and in the folder
        assert sorted(flag.partition("=")[0] for flag in others) == [
            "--start_timeout_secs", "--train_dir", "--train_steps"]
    assert len(rehearsed) == len(pods)
    config.parse_task(list(arguments), {"TF_CONFIG": rehearsed[0][0]})


def test_every_pod_that_saves_may_write_to_its_volume(tutorial):
    """Most volumes belong to root; Kubernetes gives them to the group that fsGroup names, here that of the image."""
    [group] = re.findall(r"^USER \d+:(\d+)$", (REPO / "deploy/Dockerfile").read_text(), re.MULTILINE)
    for path in [*MANIFESTS, tutorial[1]]:
        pods = [replica["template"]["spec"] for replica in documents(path)["TFJob"]["spec"]["tfReplicaSpecs"].values()]
        savers = [pod for pod in pods if any("persistentVolumeClaim" in volume for volume in pod.get("volumes", ()))]
        assert savers and all(pod["securityContext"]["fsGroup"] == int(group) for pod in savers), path


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_an_older_openssl_makes_the_certificates(tmp_path):
    """That of Ubuntu 20.04 and of RHEL 8 knows fewer options."""
    old = tmp_path / "openssl"
    old.write_text(f"""#!/bin/sh
for word; do
  if [ "$word" = -noenc ]; then echo "req: Unrecognized flag noenc" >&2; exit 1; fi
done
exec {shutil.which("openssl")} "$@"
""")
    old.chmod(0o755)
    folder = tmp_path / "certificates"
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run([REPO / "deploy/network/make_certificates.sh", folder], check=True, capture_output=True, env=environ)
    verified = subprocess.run([old, "verify", "-CAfile", folder / "ca.pem", folder / "task.pem"], check=True,
                              capture_output=True, text=True)
    assert verified.stdout.strip().endswith("task.pem: OK")
    assert "ENCRYPTED" not in (folder / "task.key").read_text()


def has_come(worker, ps):
    """Tells whether ps 0 of an elastic cluster has heard of a worker."""
    snapshot = looking.look(looking.TrainingPlace([Task("ps", 0, ps)], "", True, {})).snapshot
    return snapshot is not None and bool(snapshot.claims[worker])


@pytest.mark.parametrize("name", ["tfjob-chief-evaluator", "tfjob-elastic"])
def test_what_the_pods_run_trains_to_the_end(name, tmp_path, start_process):
    """Each pod's command line as a process, with the operator's TF_CONFIG on this machine; all exit 0.

    Other than in the pods are the volume's path, the number of steps, and that TensorFlow sees the CPU only.
    """
    path = REPO / f"deploy/kubernetes/{name}.yaml"
    pods = [(job, index) for job, (count, _) in replicas(path).items() for index in range(count)]
    ports = dict(zip(pods, processes.free_ports(len(pods))))
    chief = ("chief", 0) if "chief" in name else ("worker", 0)
    for job, index in sorted(pods, key=lambda pod: pod == chief):  # the chief last
        if (job, index) == chief and "elastic" in name:  # which waits at the end for nobody who has not come yet
            wait_until(lambda: has_come(1, f"localhost:{ports['ps', 0]}"), "worker 1")
        container = replicas(path)[job][1]
        arguments = [re.sub(r"^--train_steps=.*", "--train_steps=60", argument).replace("/train/", f"{tmp_path}/")
                     for argument in container["args"]]
        text = operator_tf_config(path, job, index, lambda *pod: f"localhost:{ports[pod]}")
        start_process.start(f"{job}-{index}", arguments, env={"TF_CONFIG": text, "CUDA_VISIBLE_DEVICES": "-1"})
    assert set(start_process.wait(120).values()) == {0}
    log = start_process.log(f"{chief[0]}-0")
    assert re.search(r"^Steps of each worker, 6\d in all:$", log, re.MULTILINE)
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
