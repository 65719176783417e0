"""What the controllers of Kubernetes, JobSet and Kubeflow Trainer make of a manifest: its pods and their variables.

Read in jobset_controller.go (constructJob, labelAndAnnotateObject) of JobSet v0.12.0, in plainml.go, builder.go and
jobset.go (syncParallelCount) of Kubeflow Trainer v2.3.0, and in the reference of `completionMode` in batch/v1.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_LABEL = re.compile(r"metadata\.labels\['(.+)'\]")


class Pod(NamedTuple):
    """A pod of one container.

    Attributes:
      host: its name in the network, HOSTNAME.SUBDOMAIN.
      labels: of the pod.
      spec: the PodSpec.
      environ: the variables of its container, as far as the manifest and the controllers set them.
      arguments: of `python -m ps_train`.
    """

    host: str
    labels: Mapping[str, str]
    spec: Mapping[str, Any]
    environ: Mapping[str, str]
    arguments: list[str]


def pods_of(documents: Mapping[str, Any]) -> list[Pod]:
    """Returns the pods of a manifest, of which `documents` has kind -> document."""
    if "TrainJob" in documents:
        return _of_trainjob(documents["TrainJob"], documents["TrainingRuntime"])
    if "JobSet" in documents:
        return _of_jobset(documents["JobSet"]["metadata"]["name"], documents["JobSet"]["spec"])
    return _of_job(documents["Job"]["metadata"]["name"], documents["Job"]["spec"], {}, "")


def _of_trainjob(trainjob, runtime):
    spec = copy.deepcopy(runtime["spec"]["template"]["spec"])
    assert trainjob["spec"]["runtimeRef"] == {"kind": runtime["kind"], "name": runtime["metadata"]["name"]}
    trainer, [node] = trainjob["spec"]["trainer"], [
        job for job in spec["replicatedJobs"] if job["template"].get("metadata", {}).get("labels", {}).get(
            "trainer.kubeflow.org/trainjob-ancestor-step") == "trainer"]
    assert node["replicas"] == 1  # the webhook of a runtime refuses others
    node["template"]["spec"].update(completions=trainer["numNodes"], parallelism=trainer["numNodes"])
    [container] = [each for each in node["template"]["spec"]["template"]["spec"]["containers"]
                   if each["name"] == "node"]
    container.update({key: trainer[key] for key in ("image", "command", "args") if key in trainer})
    return _of_jobset(trainjob["metadata"]["name"], spec)


def _of_jobset(name, spec):
    pods = []
    for job in spec["replicatedJobs"]:
        for number in range(job["replicas"]):
            labels = {"jobset.sigs.k8s.io/jobset-name": name, "jobset.sigs.k8s.io/replicatedjob-name": job["name"],
                      "jobset.sigs.k8s.io/job-index": str(number)}
            pods += _of_job(f"{name}-{job['name']}-{number}", job["template"]["spec"], labels,
                            spec.get("network", {}).get("subdomain", name))
    return pods


def _of_job(name, spec, labels, subdomain):
    template = spec["template"]
    labels = {**template["metadata"]["labels"], **labels, "batch.kubernetes.io/job-name": name}
    [container] = template["spec"]["containers"]
    assert spec["completionMode"] == "Indexed" and spec["parallelism"] == spec["completions"]
    assert container["command"] == ["python", "-m", "ps_train"]
    pods = []
    for index in range(spec["completions"]):
        environ = {"JOB_COMPLETION_INDEX": str(index), "HOSTNAME": f"{name}-{index}"}
        for variable in container["env"]:
            environ[variable["name"]] = variable["value"] if "value" in variable else labels[
                _LABEL.fullmatch(variable["valueFrom"]["fieldRef"]["fieldPath"])[1]]
        pods.append(Pod(f"{name}-{index}.{subdomain or template['spec']['subdomain']}", labels, template["spec"],
                        environ, container["args"]))
    return pods
