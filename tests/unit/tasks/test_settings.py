"""What the flags mean for a worker's graph."""

from __future__ import annotations

import pytest

from ps_train.cluster.spec import Cluster
from ps_train.config.task import Config
from ps_train.errors import ConfigError
from ps_train.graph import placement, transfer
from ps_train.tasks import settings as task_settings
from ps_train.updates import staleness
from ps_train.updates.local_steps.period import Period
from tests.tensorflow_mode import tf

TWO = Cluster("worker", 1, {"ps": {0: "a:1"}, "worker": {0: "b:1", 1: "c:1"}})
SPARSE = Cluster("worker", 3, {"ps": {0: "a:1"}, "worker": {3: "c:1"}})


def test_the_defaults_are_the_classic_semantics():
    """Async, a step at a time, nothing bounded or cut."""
    settings = task_settings.update_settings(Config(), TWO)
    assert (settings.replicas_to_aggregate, settings.period.steps, settings.wire.dtype) == (None, 1, None)
    assert task_settings.worker_settings(Config(num_gpus=0), TWO).placement == placement.BY_BYTES
    assert task_settings.staleness_bound(Config(), TWO) is None


def test_each_flag_reaches_its_place():
    """With the number of this worker, and the names for messages."""
    config = Config(sync_replicas=True, communication_period=5, communication_warmup_steps=7, train_steps=100,
                    wire_dtype="bfloat16", fused_transfers=False, placement="round_robin", partition_bytes=9,
                    num_gpus=0)
    settings = task_settings.update_settings(config, TWO)
    assert (settings.replicas_to_aggregate, settings.num_workers, settings.worker) == (2, 2, 1)
    assert settings.period == Period(steps=5, warmup_steps=7, train_steps=100)
    assert settings.wire == transfer.Wire(tf.bfloat16, is_fused=False)
    assert task_settings.worker_settings(config, TWO).placement == placement.PlacementPlan("round_robin", 9)
    bound = task_settings.staleness_bound(Config(staleness_bound=9, communication_period=5, beat_timeout_secs=3.0), TWO)
    assert bound == staleness.Bound(
        steps=9, round_steps=5, heartbeat_timeout_secs=3.0, names={0: "worker:0 b:1", 1: "worker:1 c:1"})


def test_sync_is_refused_where_not_all_workers_are_named():
    """Each would wait for another number of gradients."""
    with pytest.raises(ConfigError, match="--sync_replicas: TF_CONFIG names 1 of 4 workers to this task"):
        task_settings.update_settings(Config(sync_replicas=True), SPARSE)


def test_local_steps_need_not_know_the_other_workers():
    """ps 0 counts who trains."""
    assert task_settings.update_settings(Config(communication_period=5), SPARSE).period.steps == 5


def test_adam_on_sparse_gradients_of_several_async_workers_is_warned_of():
    """It names the variables, and a rule that loses nothing."""
    elastic = Cluster("worker", 0, {"ps": {0: "a:1"}, "worker": {0: "b:1"}}, is_elastic=True)
    for cluster in (TWO, elastic):
        own = task_settings.worker_settings(Config(optimizer="adam", num_gpus=0), cluster)
        said = task_settings.adam_warning(own, cluster, ["table", "other"])
        assert said.startswith("--optimizer=adam loses updates of table, other: ")
        assert "--optimizer=adagrad" in said and "\n" not in said
        said = task_settings.adam_warning(own, cluster, ["table"], "AdamOptimizer")
        assert said.startswith("the model's AdamOptimizer loses updates of table: ")
        assert task_settings.adam_warning(own, cluster, ["table"], "FtrlOptimizer") is None


@pytest.mark.parametrize("flags, cluster, sparse", [
    ({}, TWO, []),
    ({"optimizer": "adagrad"}, TWO, ["table"]),
    ({"sync_replicas": True}, TWO, ["table"]),
    ({}, Cluster("worker", 0, {"ps": {0: "a:1"}, "worker": {0: "b:1"}}), ["table"]),
], ids=["dense", "another rule", "sync", "one worker"])
def test_nothing_is_said_where_no_update_is_lost(flags, cluster, sparse):
    """Then only one task updates a row at a time, or the rule is atomic."""
    own = task_settings.worker_settings(Config(num_gpus=0, **flags), cluster)
    assert task_settings.adam_warning(own, cluster, sparse) is None
