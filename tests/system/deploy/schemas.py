"""The parts of published schemas that the manifests use, written by hand; unknown fields are refused, as by kubectl.

    Job         batch/v1 of Kubernetes 1.36: io.k8s.api.batch.v1.JobSpec
    JobSet      jobset.x-k8s.io/v1alpha2 of JobSet v0.12.0: config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml
    TrainJob    trainer.kubeflow.org/v1alpha1 of Kubeflow Trainer v2.3.0: manifests/base/crds

The template of a pod comes from the published definition of TFJob. On 2026-11-25 the manifests were checked with the
whole definitions of JobSet, TrainJob and TrainingRuntime, too.
"""

from __future__ import annotations

TEXT, COUNT, BOOLEAN = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "boolean"}
TEXTS = {"type": "array", "items": TEXT}


def record(required=(), **properties):
    """Returns the schema of an object with these fields and no others."""
    return {"type": "object", "properties": properties, "additionalProperties": False, "required": list(required)}


def one_of(*values):
    """Returns the schema of a text that is one of these."""
    return {"type": "string", "enum": list(values)}


def list_of(schema):
    """Returns the schema of a list that is not empty."""
    return {"type": "array", "items": schema, "minItems": 1}


METADATA = record(name=TEXT, namespace=TEXT, labels={"type": "object", "additionalProperties": TEXT},
                  annotations={"type": "object", "additionalProperties": TEXT})


def job_spec(pod):
    """Returns the schema of the spec of a Job whose pods have the template `pod`."""
    rule = record(["action"], action=one_of("FailJob", "FailIndex", "Ignore", "Count"),
                  onExitCodes=record(["operator", "values"], operator=one_of("In", "NotIn"), containerName=TEXT,
                                     values=list_of(COUNT)),
                  onPodConditions=list_of(record(["type"], type=TEXT, status=TEXT)))
    return record(["template"], completionMode=one_of("Indexed", "NonIndexed"), completions=COUNT, parallelism=COUNT,
                  backoffLimit=COUNT, podFailurePolicy=record(["rules"], rules=list_of(rule)), suspend=BOOLEAN,
                  podReplacementPolicy=one_of("Failed", "TerminatingOrFailed"), ttlSecondsAfterFinished=COUNT,
                  activeDeadlineSeconds=COUNT, template=pod)


def jobset_spec(pod):
    """Returns the schema of the spec of a JobSet."""
    replicated_job = record(["name", "template"], name=TEXT, groupName=TEXT, replicas=COUNT,
                            template=record(["spec"], metadata=METADATA, spec=job_spec(pod)))
    return record(["replicatedJobs"], replicatedJobs=list_of(replicated_job), suspend=BOOLEAN,
                  network=record(enableDNSHostnames=BOOLEAN, subdomain=TEXT, publishNotReadyAddresses=BOOLEAN),
                  ttlSecondsAfterFinished=COUNT)


def document(api_version, kind, spec):
    """Returns the schema of a whole document."""
    return record(["apiVersion", "kind", "metadata", "spec"], apiVersion=one_of(api_version), kind=one_of(kind),
                  metadata=METADATA, spec=spec)


def documents(pod):
    """Returns kind -> schema, for pods with the template `pod`."""
    trainer = record(image=TEXT, command=TEXTS, args=TEXTS, numNodes=COUNT)
    return {
        "Job": document("batch/v1", "Job", job_spec(pod)),
        "JobSet": document("jobset.x-k8s.io/v1alpha2", "JobSet", jobset_spec(pod)),
        "TrainingRuntime": document("trainer.kubeflow.org/v1alpha1", "TrainingRuntime", record(
            mlPolicy=record(numNodes=COUNT), template=record(metadata=METADATA, spec=jobset_spec(pod)))),
        "TrainJob": document("trainer.kubeflow.org/v1alpha1", "TrainJob", record(
            ["runtimeRef"], trainer=trainer, suspend=BOOLEAN, runtimeRef=record(
                ["name"], name=TEXT, apiGroup=TEXT, kind=one_of("TrainingRuntime", "ClusterTrainingRuntime")))),
        "Service": document("v1", "Service", record(
            clusterIP=TEXT, publishNotReadyAddresses=BOOLEAN,
            selector={"type": "object", "additionalProperties": TEXT})),
    }
