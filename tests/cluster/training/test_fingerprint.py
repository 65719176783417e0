"""What all workers of a training must have in common."""

from __future__ import annotations

import contextlib
import threading

import pytest

from ps_train.cluster.spec import Cluster
from ps_train.coordination import blackboard, fingerprint
from ps_train.coordination.state import State
from ps_train.embeddings.spec import TableSpec
from ps_train.errors import ConfigError
from tests import clusters
from tests.children import wait_until
from tests.tensorflow_mode import tf

CLUSTER = Cluster("worker", 0, {"ps": {0: "a:1", 1: "b:1"}, "worker": {0: "c:1"}})


def describe(options=None, shape=(2,), ps=1, cluster=CLUSTER, dim=4):
    """Returns the fingerprint of a worker with one variable and one embedding table."""
    tables = {"items": TableSpec("items", dim)}
    with tf.Graph().as_default(), tf.device(f"/job:ps/task:{ps}"):
        return fingerprint.describe(
            cluster, options or {"optimizer": "adam"}, [tf.get_variable("w", list(shape))], tables=tables)


def test_equal_workers_do_not_differ():
    """Nor do their addresses count: a task may reach another through a tunnel."""
    tunnel = Cluster("worker", 0, {"ps": {0: "localhost:5", 1: "localhost:6"}, "worker": {0: "c:1"}})
    assert fingerprint.differences(describe(), describe(cluster=tunnel), their_name="the chief") == []


def test_what_one_of_them_cannot_know_is_not_compared():
    """In TF_CONFIG's sparse form a worker may know itself only, and so not how many workers there are."""
    sparse = Cluster("worker", 3, {"ps": CLUSTER.addresses["ps"], "worker": {3: "f:1"}}, partial=frozenset({"worker"}))
    assert fingerprint.differences(describe(), describe(cluster=sparse), their_name="the chief") == []


@pytest.mark.parametrize(("own", "expected"), [
    ({"options": {"optimizer": "sgd"}}, "--optimizer: here sgd, at the chief adam"),
    ({"shape": (3,)}, "variable w: here float32[3] on ps:1, at the chief float32[2] on ps:1"),
    ({"ps": 0}, "variable w: here float32[2] on ps:0, at the chief float32[2] on ps:1"),
    ({"cluster": Cluster("worker", 0, {"ps": CLUSTER.addresses["ps"], "worker": {0: "c:1", 1: "d:1"}})},
     "number of workers: here 2, at the chief 1"),
    ({"cluster": Cluster("worker", 0, {"ps": {0: "a:1"}, "worker": {0: "c:1"}})},
     "number of ps: here 1, at the chief 2"),
    ({"dim": 8}, f"table items: here {TableSpec('items', 8)}, at the chief {TableSpec('items', 4)}"),
])
def test_what_differs_is_named(own, expected):
    """With both values."""
    assert fingerprint.differences(describe(), describe(**own), their_name="the chief") == [expected]


def test_many_differences_are_counted():
    """The message stays readable, and what one of them lacks is said to be missing."""
    own = describe({f"flag{index}": index for index in range(9)})
    lines = fingerprint.differences(describe(), own, their_name="the chief")
    assert lines[0] == "--flag0: here 0, at the chief missing"
    assert lines[-1] == "and 6 more"


def _worker(cluster, index, tmp_path, optimizer, steps):
    return clusters.Worker(cluster, index, tmp_path, steps, shared_flags={"optimizer": optimizer}, end_timeout_secs=0.5)


def test_a_worker_that_does_not_fit_is_refused_with_the_difference(start_servers, tmp_path):
    """It exits 2 before it has touched a parameter, and the chief trains on."""
    cluster = start_servers(1, 2)
    chief, other = (_worker(cluster, index, tmp_path, optimizer, 20)
                    for index, optimizer in enumerate(["adam", "sgd"]))
    train, is_refused = chief.body, threading.Event()
    chief.body = lambda live, write_summary: is_refused.wait(60) and train(live, write_summary)
    chief.start()
    other.start()
    with pytest.raises(ConfigError, match="worker:1 .* does not fit .*--optimizer: here sgd, at the running training"):
        other.result()
    is_refused.set()
    assert chief.result().global_step == 20


@pytest.mark.parametrize(("folder", "optimizer"), [("first", "sgd"), ("second", "adam")])
def test_a_chief_with_another_training_begins_anew_where_nobody_trains(start_servers, tmp_path, folder, optimizer):
    """Parameters that an interrupted client left on the ps are not taken for its own, nor for those of a new folder."""
    cluster = start_servers(1, 1)
    with contextlib.closing(blackboard.for_worker(cluster.target("worker", 0), cluster.view("worker", 0))) as board:
        first = _worker(cluster, 0, tmp_path / "first", "adam", 20)
        first.start()
        first.result()
        board.start_run(board.fingerprint())  # as a client leaves it that was killed
        clusters.remove_checkpoints(tmp_path / "first")
        second = _worker(cluster, 0, tmp_path / folder, optimizer, 30)
        second.start()
        assert second.result().first_step == 0


@pytest.mark.parametrize("state", [State.RUNNING, State.STOPPING])
def test_all_workers_of_another_training_begin_anew_where_nobody_trains(start_servers, tmp_path, state):
    """Also if the chief comes last: the ps are left from a training whose workers are gone."""
    cluster = start_servers(1, 2)
    first = _worker(cluster, 0, tmp_path / "first", "adam", 20)
    first.start()
    first.join()
    first.board.start_run(first.board.fingerprint())
    first.board.announce(state)  # as workers leave it that were told to stop, or were killed at the end
    other, chief = (_worker(cluster, index, tmp_path / "second", "sgd", 200) for index in (1, 0))
    other.start()
    wait_until(lambda: first.board.snapshot().claims[1], "the claim of worker 1")
    chief.start()
    outcome = chief.result()
    assert outcome.first_step == 0
    assert chief.progress.local_steps == outcome.local_steps  # and not those of the first training as well
    other.result()
