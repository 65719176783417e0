"""What the blackboard says."""

from __future__ import annotations

import numpy as np

from ps_train.coordination.state import Snapshot, State


def test_who_is_alive_is_there_and_was_heard_of():
    """By ps 0's clock: worker 1 is silent for too long, worker 2 has left."""
    zeros = np.zeros(3, np.int64)
    heartbeats = np.array([99.0, 80.0, 99.0])
    snapshot = Snapshot(State.RUNNING, 100.0, np.array([5, 6, 0]), heartbeats, zeros, zeros, zeros > 0)
    assert snapshot.alive(10.0) == [0]
    assert snapshot.alive(30.0) == [0, 1]
    assert snapshot.age_secs(1) == 20.0


def test_the_state_only_rises():
    """So `state >= STOPPING` means that no further step is wanted."""
    assert sorted(State) == [State.IDLE, State.RUNNING, State.STOPPING, State.DONE, State.FAILED]
