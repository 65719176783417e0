"""The published schema of TFJob, which has that of a pod in it."""

from __future__ import annotations

import pytest

from tests.processes import REPO

CRD = REPO.parent / "shared/data/kubeflow/kubeflow.org_tfjobs.yaml"  # of Kubeflow's training operator, not ours


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


@pytest.fixture(scope="package")
def tfjob_schema():
    """The schema of TFJob v1."""
    yaml = pytest.importorskip("yaml", reason="needs PyYAML, of the extra [test]")
    if not CRD.exists():
        pytest.skip(f"needs the definition of TFJob at {CRD}")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # twelve times as fast
    definition = yaml.load(CRD.read_text(), Loader=loader)
    version, = [version for version in definition["spec"]["versions"] if version["name"] == "v1"]
    return strict(version["schema"]["openAPIV3Schema"])
