"""The flag of the engine of synchronous updates, and the settings that follow from it."""

from __future__ import annotations

import pytest

from ps_train.cluster.spec import Cluster
from ps_train.config import task as config
from ps_train.parts import table
from ps_train.parts.tensorflow_sync.part import tensorflow_engine
from ps_train.tasks import setup
from tests.errors import codes_of, error_of

CLUSTER = Cluster("worker", 0, {"ps": {0: "localhost:1"}, "worker": {0: "localhost:2", 1: "localhost:3"}})


def test_the_engine_needs_sync_replicas_and_is_ours_by_default():
    """Without --sync_replicas it would silently do nothing; the error about an unknown one lists the known ones."""
    assert codes_of(error_of(config.parse_task, ["--sync_engine=tensorflow"], {})) == ["flag_without_effect"]
    assert "ps_train, tensorflow" in str(error_of(config.parse_task, ["--sync_replicas", "--sync_engine=tf"], {}))
    assert config.parse_task(["--sync_replicas", "--sync_engine=tensorflow"], {}).sync_engine == "tensorflow"


@pytest.mark.parametrize(("flag", "value"), [
    ("communication_period", "2"), ("sum_embedding_gradients", "true"), ("min_replicas_to_aggregate", "2")])
def test_tensorflows_engine_refuses_what_it_cannot_do(flag, value):
    """In one line; the engine of ps_train accepts both."""
    flags = ["--sync_replicas", f"--{flag}={value}", "--replicas_to_aggregate=2"]
    error = error_of(config.parse_task, [*flags, "--sync_engine=tensorflow"], {})
    assert all(name in str(error) for name in ("--sync_engine", f"--{flag}")) and len(error.problems) == 1
    assert config.parse_task([*flags, "--sync_engine=ps_train"], {}).sync_engine == "ps_train"


@pytest.mark.parametrize(("flags", "engine"), [([], None), (["--sync_engine=ps_train"], None),
                                               (["--sync_engine=tensorflow"], tensorflow_engine)])
def test_the_flag_sets_the_engine(flags, engine):
    """That of ps_train has no name in the settings."""
    parsed = config.parse_task(["--sync_replicas", "--num_gpus=0", *flags], {})
    settings = table.make_parts(parsed, CLUSTER).adjust(setup.worker_settings(parsed, CLUSTER))
    assert settings.graph.updates.sync.engine is engine
