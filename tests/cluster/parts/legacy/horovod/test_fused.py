"""The values that operations of graphs exchange, on in-process servers."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from ps_train.errors import ClusterLostError
from ps_train.parts.legacy.classic import ending
from ps_train.parts.legacy.horovod.exchange import Exchange
from ps_train.parts.legacy.horovod.fused import FusedExchange
from ps_train.runtime.threads import Call
from tests.tensorflow_mode import tf

NUM_VALUES = 40
SECS = 60.0


def run_both(members, build, runs):
    """Returns, for each worker, what each of its runs gave: `runs` has the fetches' numbers for each worker."""
    def work(member, numbers):
        fused = FusedExchange(member, Exchange(member))
        with tf.Graph().as_default(), tf.device(member.cluster.task.device), tf.Session(member.target) as session:
            operations = build(fused, member.cluster.worker_number)
            return [session.run([operations[number] for number in each]) for each in numbers]

    calls = [Call(lambda member=member, numbers=numbers: work(member, numbers), "worker")
             for member, numbers in zip(members, runs)]
    for call in calls:
        call.join(SECS)
    return [call.result() for call in calls]


def test_more_values_than_threads_are_exchanged_in_whatever_order_they_come(members):
    """Issue: two workers whose threads waited for different values waited for ever."""
    def build(fused, rank):
        order = range(NUM_VALUES) if rank else reversed(range(NUM_VALUES))
        found = {number: fused.operation(tf.constant([number, rank]), f"allreduce/{number}", sum, tf.int32)
                 for number in order}
        return [found[number] for number in range(NUM_VALUES)]

    everything = list(range(NUM_VALUES))
    for got in run_both(members, build, [[everything] * 3, [everything] * 3]):
        for step in got:
            assert [value.tolist() for value in step] == [[2 * number, 1] for number in range(NUM_VALUES)]


def test_values_that_workers_do_not_leave_at_once_wait_for_each_other(members):
    """Worker 0 runs a, then b; worker 1 runs b and a together."""
    def build(fused, rank):
        return [fused.operation(tf.constant(10 * rank + number), f"gather/{name}", np.stack, tf.int32)
                for number, name in enumerate("ab")]

    first, second = run_both(members, build, [[[0], [1]], [[1, 0]]])
    assert [value.tolist() for each in first for value in each] == [[0, 10], [1, 11]]
    assert [value.tolist() for value in second[0]] == [[1, 11], [0, 10]]


def test_an_error_reaches_the_operation(members):
    """Its text is that of the function that combines."""
    def refuse(values):
        raise ValueError(f"{len(values)} values are of no use")

    def build(fused, rank):
        return [fused.operation(tf.constant(rank), "allreduce/x", refuse, tf.int32)]

    with pytest.raises(tf.errors.OpError, match="2 values are of no use"):
        run_both(members, build, [[[0]], [[0]]])


LOST = ClusterLostError("chief_failed", "rank 0 is no more")


@pytest.mark.parametrize("is_stopping", [False, True])
@pytest.mark.parametrize(("place", "error"), [
    ("exchange", LOST), ("exchange", tf.errors.UnavailableError(None, None, "ps:0 is lost")), ("operation", LOST),
], ids=["exchange", "session", "operation"])
def test_the_loss_of_a_task_ends_the_process_with_its_code(members, monkeypatch, place, error, is_stopping):
    """Issue: TensorFlow made an UnknownError of it, which is the script's: 1, and no supervisor tries again."""
    ends = []
    monkeypatch.setattr(ending, "end_process", ends.append)
    monkeypatch.setattr(ending.membership, "can_lose", lambda: True)
    monkeypatch.setattr(ending, "_noted_signal", threading.Event())
    if is_stopping:
        ending._noted_signal.set()

    def fail(*args):
        raise error

    if place == "exchange":
        monkeypatch.setattr(Exchange, "values", fail)
    combine = fail if place == "operation" else sum
    with pytest.raises(tf.errors.OpError):
        run_both(members, lambda fused, rank: [fused.operation(tf.constant(rank), "await/x", combine, tf.int32)],
                 [[[0]], [[0]]])
    assert set(ends) == (set() if is_stopping else {error})
    assert ending.exit_code_of(error) == 138
