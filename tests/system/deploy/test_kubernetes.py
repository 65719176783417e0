"""deploy/kubernetes without TFJob: JobSet, an Indexed Job and TrainJob fit their schemas, and their pods train.

No Kubernetes is needed: the pods are processes in network namespaces with the host names and variables that the
controllers give them (controllers.py).
"""

from __future__ import annotations

import shutil
import signal
import string
import subprocess

import pytest

from ps_train.cluster.resolve import find_cluster
from ps_train.config import task
from ps_train.plugins import loader
from ps_train.verbs import train
from tests import namespaces
from tests.processes import REPO
from tests.system.deploy import controllers, schemas

jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema, of the extra [test]")
yaml = pytest.importorskip("yaml", reason="needs PyYAML, of the extra [test]")

FOLDER = REPO / "deploy/kubernetes"
MANIFESTS = ("jobset", "indexed-job", "trainjob")
PORT = 2222


def read_values(storage):
    """Returns the values of a values file, as a shell reads it."""
    printed = subprocess.run(["env", "-i", "/bin/sh", "-c", 'set -a; . "$1"; env', "sh",
                              FOLDER / f"values-{storage}.env"], capture_output=True, text=True, check=True).stdout
    return {name: value for name, _, value in (line.partition("=") for line in printed.splitlines())
            if name not in ("PWD", "SHLVL", "OLDPWD", "_")}


def read_manifest(name, storage="volume", **changes):
    """Returns kind -> document of a manifest with the values of a file, some of them changed."""
    text = string.Template((FOLDER / f"{name}.yaml").read_text()).substitute({**read_values(storage), **changes})
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_fits_the_published_schemas(name, tfjob_schema):
    """Every field is known and of the right type, those of pods included; a misspelt one is found."""
    replica = tfjob_schema["properties"]["spec"]["properties"]["tfReplicaSpecs"]["additionalProperties"]
    known = schemas.documents(replica["properties"]["template"])
    found = read_manifest(name)
    for kind in found.keys() - {"NetworkPolicy"}:
        jsonschema.validate(found[kind], known[kind])
    assert len(found) == {"jobset": 2, "indexed-job": 3, "trainjob": 3}[name]
    [spec] = {id(pod.spec): pod.spec for pod in controllers.pods_of(found)[-1:]}.values()
    spec["container"] = []
    kind = {"jobset": "JobSet", "indexed-job": "Job", "trainjob": "TrainingRuntime"}[name]
    if name == "trainjob":  # its pods are made from a copy
        found[kind]["spec"]["template"]["spec"]["replicatedJob"] = []
    with pytest.raises(jsonschema.ValidationError, match="was unexpected"):
        jsonschema.validate(found[kind], known[kind])


@pytest.mark.parametrize("storage", ["volume", "none"])
@pytest.mark.parametrize("name", MANIFESTS)
def test_every_pod_finds_the_same_cluster_and_its_place(name, storage, monkeypatch):
    """From its flags and variables alone; each address is the host name of a pod, and worker 0 is the chief."""
    monkeypatch.chdir(REPO)
    pods = controllers.pods_of(read_manifest(name, storage, NUM_PS="2", NUM_TASKS="4"))
    clusters = []
    for pod in pods:
        config = task.parse_task(pod.arguments, pod.environ)
        cluster = find_cluster(tf_config=train.find_tf_config(config, pod.environ))
        assert cluster.task.address == f"{pod.host}:{PORT}"
        clusters.append(cluster)
        loader.load_dataset(config.dataset)
        loader.load_model(config.model)
    assert [cluster.task.name for cluster in clusters] == ["ps:0", "ps:1", "worker:0", "worker:1"]
    assert [cluster.is_chief for cluster in clusters] == [False, False, True, False]
    assert all(cluster.addresses == clusters[0].addresses for cluster in clusters)
    assert len({tuple(pod.arguments) for pod in pods}) == 1


@pytest.mark.parametrize("name", MANIFESTS)
def test_pods_are_what_the_exit_codes_and_the_cluster_need(name):
    """Permanent codes fail the job, others replace the pod; another user than root; only the job's pods get in."""
    documents = read_manifest(name)
    for pod in controllers.pods_of(documents):
        [container] = pod.spec["containers"]
        assert pod.spec["restartPolicy"] == "Never"  # which podFailurePolicy needs
        assert pod.spec["securityContext"]["runAsNonRoot"] and not pod.spec["automountServiceAccountToken"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
        assert container["workingDir"] == "/app"
        assert container["ports"] == [{"name": "ps-train", "containerPort": PORT}]
        for selector in [documents["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
                         *([documents["Service"]["spec"]["selector"]] if "Service" in documents else [])]:
            assert selector.items() <= pod.labels.items()
    policy = documents["NetworkPolicy"]["spec"]
    assert policy["ingress"] == [{"from": [{"podSelector": policy["podSelector"]}],
                                  "ports": [{"protocol": "TCP", "port": PORT}]}]
    text = (FOLDER / f"{name}.yaml").read_text()
    assert text.count("onExitCodes: {operator: In, values: [1, 2, 126, 127]}") == text.count("completionMode: Indexed")


def test_the_volume_is_mounted_where_the_chief_may_be():
    """The values choose between the claim of volume.yaml and a folder of the pod."""
    claim = yaml.safe_load((FOLDER / "volume.yaml").read_text())["metadata"]["name"]
    for storage, source in (("volume", {"persistentVolumeClaim": {"claimName": claim}}), ("none", {"emptyDir": {}})):
        for name in MANIFESTS:
            for pod in controllers.pods_of(read_manifest(name, storage)):
                volumes = {volume.pop("name"): volume for volume in map(dict, pod.spec["volumes"])}
                mounts = {mount["name"] for mount in pod.spec["containers"][0]["volumeMounts"]}
                is_ps_only = name == "jobset" and "-ps-" in pod.host
                assert volumes == {"tmp": {"emptyDir": {}}, **({} if is_ps_only else {"train": source})}
                assert mounts == volumes.keys()
    assert read_values("volume").keys() == read_values("none").keys()


@pytest.mark.parametrize(("name", "lost"), [("jobset", "worker:1"), ("indexed-job", "ps:0"), ("trainjob", None)])
def test_what_the_pods_run_trains_although_one_is_lost_and_replaced(name, lost, tmp_path, start_process):
    """Each pod's command with its variables, at its host name and port 2222; one of the same index replaces it."""
    namespaces.require()
    shutil.copy(REPO / "tests/plugins/tiny.py", tmp_path)
    pods = controllers.pods_of(read_manifest(name, MODEL="tiny", DATASET="tiny", TRAIN_STEPS="100",
                                             TRAIN_DIR=f"{tmp_path}/train"))
    machines = {pod.host: number for number, pod in enumerate(pods, 1)}
    flags = ["--batch_size=16", "--log_steps=10", "--beat_timeout_secs=2",
             f"--params=gate={tmp_path}/gate,gate_batch=30"]
    names = dict(zip(("ps:0", "worker:0", "worker:1"), pods))
    with namespaces.network(*machines.values(), hosts=machines) as network:
        def start(process, pod):
            start_process.start(process, [*pod.arguments, *flags], cwd=tmp_path,
                                env={**pod.environ, "CUDA_VISIBLE_DEVICES": "-1"},
                                before=network.on(machines[pod.host]))

        for process, pod in names.items():
            start(process, pod)
        for worker in ("worker:0", "worker:1"):
            start_process.wait_for_line(worker, "examples/s", number=3)
        if lost is not None:
            start_process.signal(lost, signal.SIGKILL)
            assert start_process.exit_code(lost) == -signal.SIGKILL
            start("replacement", names[lost])
            # The other worker could take all steps that are left before the replacement is there.
            start_process.wait_for_line("replacement", "serves at" if lost == "ps:0" else "examples/s")
        for index in (0, 1):
            (tmp_path / f"gate.{index}").touch()
        codes = start_process.wait()
    assert {process: code for process, code in codes.items() if process != lost} == dict.fromkeys(
        {*names, *(["replacement"] if lost else [])} - {lost}, 0)
