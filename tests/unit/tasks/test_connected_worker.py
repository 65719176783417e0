"""The life of a worker, where it ends because another process has taken its number; its other ends are in test_task."""

from __future__ import annotations

import types

import pytest

from ps_train.cluster.spec import Cluster
from ps_train.errors import ClusterLostError, ConfigError, StoppedError
from ps_train.tasks.connected_worker import _giving_way

VIEW = Cluster("worker", 0, {"ps": {0: "a:1"}, "worker": {0: "b:1"}})


@pytest.mark.parametrize("error", [None, StoppedError("told to stop while the session was lost")])
def test_a_process_whose_number_was_taken_says_so_however_its_training_ended(error):
    """To be replaced stops training like a signal, but is none: the exit code is 138."""
    replaced = types.SimpleNamespace(is_replaced=True)
    told = "another process has taken the place of worker:0 b:1"
    with pytest.raises(ClusterLostError, match=told), _giving_way(VIEW, replaced, 10.0):
        if error:
            raise error


@pytest.mark.parametrize("error", [None, StoppedError("told to stop while waiting")])
def test_a_process_of_tasks_that_do_not_fit_together_says_so_however_its_training_ended(error):
    """It stops like one that gets a signal: the exit code is 2."""
    misled = types.SimpleNamespace(is_replaced=False, mismatch="ps:0 was configured with 1 worker")
    with pytest.raises(ConfigError, match="ps:0 was configured with 1 worker"), _giving_way(VIEW, misled, 10.0):
        if error:
            raise error


def test_a_signal_stays_a_signal():
    """Where nobody has taken the number."""
    alone = types.SimpleNamespace(is_replaced=False, mismatch="")
    with pytest.raises(StoppedError, match="by a signal"), _giving_way(VIEW, alone, 10.0):
        raise StoppedError("by a signal")
    with _giving_way(VIEW, alone, 10.0):
        pass
