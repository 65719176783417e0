"""The state of training, who is alive, and claims: unlike each other, alike in their place for the same port."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import numpy as np
import pytest

from ps_train.coordination import state
from ps_train.coordination.state import Snapshot, State
from tests.processes import REPO

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="a place is known on Linux only")


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


def claim_of_another_process(port, *before):
    code = f"from ps_train.coordination import state; print(state.new_claim({port}))"
    ended = subprocess.run([*before, sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, check=True)
    return int(ended.stdout)


def test_no_two_claims_are_equal():
    """They fit into an int64 and are above 0, which means that nobody is there."""
    drawn = [state.new_claim(port) for port in (None, 2222) for _ in range(1000)]
    assert len(set(drawn)) == 2000
    assert all(0 < claim < 2**62 for claim in drawn)


@LINUX
def test_the_place_is_that_of_the_port():
    """Also in another process; another port is another place."""
    own = state.new_claim(2222)
    assert state.is_same_place(own, claim_of_another_process(2222))
    assert not state.is_same_place(own, state.new_claim(2223))


@LINUX
def test_a_container_of_the_same_machine_is_another_place():
    """It may have the same port in its own network."""
    if subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode:
        pytest.skip("may not make a network of its own")
    assert not state.is_same_place(state.new_claim(2222), claim_of_another_process(2222, "unshare", "--net"))


def test_without_a_port_or_a_known_machine_every_place_is_another(monkeypatch, tmp_path):
    """So that nobody takes the number of a process that may be alive."""
    assert not state.is_same_place(state.new_claim(), state.new_claim())
    monkeypatch.setattr(state, "_BOOT_ID", str(pathlib.Path(tmp_path) / "absent"))
    assert not state.is_same_place(state.new_claim(2222), state.new_claim(2222))
