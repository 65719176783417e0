"""The soak itself, short: what is drawn, and one disturbed training that must end as an undisturbed one does."""

from __future__ import annotations

import random
import re

import pytest

from tests import soak
from tests.processes import ProcessGroup


def test_a_seed_draws_the_same_faults_and_another_one_others():
    """So that what went wrong can be tried again."""
    options = soak.Options()
    drawn = [soak.draw(options, random.Random(seed)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(drawn[0]) == options.faults
    assert all(0 <= fault.step < options.train_steps for fault in drawn[0])


def test_faults_are_kills_and_freezes_of_every_task():
    """Over many rounds each role is hit, and two of three faults kill."""
    rng = random.Random(1)
    faults = [fault for _ in range(100) for fault in soak.draw(soak.Options(), rng)]
    assert {fault.task for fault in faults} == {"ps-0", "ps-1", "worker-0", "worker-1", "worker-2"}
    kills = sum(not fault.frozen_secs for fault in faults)
    assert 0.5 < kills / len(faults) < 0.8
    assert all(fault.frozen_secs == 0 or 1 <= fault.frozen_secs <= 8 for fault in faults)


def test_a_disturbed_training_ends_as_an_undisturbed_one(tmp_path):
    """Four faults at steps and tasks of a seed; 0, the accuracy, no process, no port."""
    lines = []
    # In sync only: in async the accuracy still rises at 200 steps. `python -m tests.soak` has every mode, and the tests
    # in system/recovery/ kill each role in async.
    options = soak.Options(minutes=0, seed=3, mode="sync", train_steps=200, learning_rate=0.01, faults=4)
    num_kills, num_freezes = soak.run(options, tmp_path, lines.append)
    assert num_kills + num_freezes == 4, lines
    assert sum(bool(re.match(r"  step \d+: \S+ is (killed|frozen)", line)) for line in lines) == 4


def test_a_fault_of_the_users_own_ends_a_round_with_all_logs(tmp_path, monkeypatch):
    """A task that ends with a code that is not retryable is no accident: the round fails, and shows every log."""
    def start_wrongly(group, name, arguments, **options):
        return start(group, name, [*arguments, "--batch_size=0"] if name == "worker-1.1" else arguments, **options)

    start = ProcessGroup.start
    monkeypatch.setattr(ProcessGroup, "start", start_wrongly)
    told = r"(?s)worker-1.1 ended with 2.*--- ps-0.1.*--- worker-1.1 \(2\)\n.*batch_size"
    with soak.Round(soak.Options(), tmp_path) as disturbed, pytest.raises(AssertionError, match=told):
        disturbed.run([])
