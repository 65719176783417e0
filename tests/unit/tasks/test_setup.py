"""What the flags mean for a worker's graph."""

from __future__ import annotations

import pytest

from ps_train.cluster.spec import Cluster
from ps_train.config.task import Config
from ps_train.graph import placement, transfer
from ps_train.tasks import setup
from ps_train.updates import build, staleness
from ps_train.updates.update import Period, SyncSettings
from tests.errors import raises
from tests.tensorflow_mode import tf

TWO = Cluster("worker", 1, {"ps": {0: "a:1"}, "worker": {0: "b:1", 1: "c:1"}})
SPARSE = Cluster("worker", 3, {"ps": {0: "a:1"}, "worker": {3: "c:1"}})


def test_the_defaults_are_the_classic_semantics():
    """Async, a step at a time, nothing bounded or cut."""
    settings = setup.update_settings(Config(), TWO)
    assert (settings.sync, settings.period.steps, settings.wire.dtype) == (None, 1, None)
    assert setup.worker_settings(Config(num_gpus=0), TWO).graph.placement == placement.BY_BYTES
    assert setup.staleness_bound(Config(), TWO) is None


def test_each_flag_reaches_its_place():
    """With the number of this worker, and the names for messages."""
    config = Config(sync_replicas=True, communication_period=5, communication_warmup_steps=7, train_steps=100,
                    wire_dtype="bfloat16", fused_transfers=False, placement="round_robin", partition_bytes=9,
                    num_gpus=0)
    settings = setup.update_settings(config, TWO)
    assert (settings.sync, settings.worker) == (SyncSettings(2, 2), 1)
    assert settings.period == Period(steps=5, warmup_steps=7, train_steps=100)
    assert settings.wire == transfer.Wire(tf.bfloat16, is_fused=False)
    assert setup.worker_settings(config, TWO).graph.placement == placement.PlacementPlan("round_robin", 9)
    bound = setup.staleness_bound(Config(staleness_bound=9, communication_period=5, beat_timeout_secs=3.0), TWO)
    assert bound == staleness.Bound(
        steps=9, round_steps=5, heartbeat_timeout_secs=3.0, names={0: "worker:0 b:1", 1: "worker:1 c:1"})


def test_sync_is_refused_where_not_all_workers_are_named():
    """Each would wait for another number of gradients."""
    with raises("workers_unknown"):
        setup.update_settings(Config(sync_replicas=True), SPARSE)


def test_local_steps_need_not_know_the_other_workers():
    """ps 0 counts who trains."""
    assert setup.update_settings(Config(communication_period=5), SPARSE).period.steps == 5


def test_it_is_told_which_tables_adam_updates_row_by_row():
    """With the way to TensorFlow's own rule, where that is right: in sync."""
    own = setup.worker_settings(Config(optimizer="adam", num_gpus=0), TWO)
    assert build.describe_adam(own.graph.updates, ["table", "other"]) == [
        "Adam updates only the rows of table, other that have a gradient (lazy Adam)"]
    assert "of table that" in build.describe_adam(own.graph.updates, ["table"], "AdamOptimizer")[0]
    own = setup.worker_settings(Config(optimizer="adam", num_gpus=0, sync_replicas=True), TWO)
    assert build.describe_adam(own.graph.updates, ["table"])[0].endswith("; --adam_decays_all_rows decays all of them")


@pytest.mark.parametrize("flags, sparse, own_optimizer", [
    ({}, [], ""),
    ({"optimizer": "adagrad"}, ["table"], ""),
    ({}, ["table"], "FtrlOptimizer"),
    ({"sync_replicas": True, "adam_decays_all_rows": True}, ["table"], ""),
], ids=["dense", "another rule", "the model's own", "all rows"])
def test_nothing_is_said_of_tables_that_adam_does_not_update_row_by_row(flags, sparse, own_optimizer):
    """The other rules touch only these rows anyway."""
    own = setup.worker_settings(Config(num_gpus=0, **flags), TWO)
    assert build.describe_adam(own.graph.updates, sparse, own_optimizer) == []


def test_adam_decays_all_rows_only_in_sync():
    """Its update is not atomic."""
    with raises("flags_conflict"):
        Config(adam_decays_all_rows=True)
