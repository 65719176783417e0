"""How the training of a worker ends if another process has taken its number, or the tasks do not fit together."""

from __future__ import annotations

import types

import pytest

from ps_train.cluster.spec import Cluster
from ps_train.errors import StoppedError
from ps_train.tasks.connected_worker import _raising_stop_reason
from tests.errors import raises

VIEW = Cluster("worker", 0, {"ps": {0: "a:1"}, "worker": {0: "b:1"}})
STOPPED = StoppedError("stopped", "stopped while waiting")


@pytest.mark.parametrize(("heartbeat", "code", "value"), [
    ({"is_replaced": True}, "worker_replaced", "worker:0 b:1"),
    ({"is_replaced": False, "mismatch": "ps:0 has 1 worker"}, "clusters_differ", "ps:0 has 1 worker"),
])
@pytest.mark.parametrize("error", [None, STOPPED])
def test_the_reason_is_raised_however_the_training_ended(heartbeat, code, value, error):
    """Either reason stops the training as a signal does, with another exit code."""
    with raises(code) as ended, _raising_stop_reason(VIEW, types.SimpleNamespace(**heartbeat), 10.0):
        if error:
            raise error
    assert value in str(ended.value)


def test_a_signal_stays_a_signal():
    """If no process has taken the number."""
    alone = types.SimpleNamespace(is_replaced=False, mismatch="")
    with raises("stopped"), _raising_stop_reason(VIEW, alone, 10.0):
        raise STOPPED
    with _raising_stop_reason(VIEW, alone, 10.0):
        pass
