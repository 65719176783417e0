"""The values that workers exchange, on in-process servers."""

from __future__ import annotations

import numpy as np

from ps_train.parts.legacy.classic.trainings import ScriptTraining
from ps_train.parts.legacy.horovod.exchange import REDUCTIONS, Exchange, mean
from ps_train.runtime.threads import Call
from tests.errors import raises
from tests.tensorflow_mode import tf

_SECS = 60.0


def exchange_both(exchanges, name, values):
    """Returns what each worker gets, by rank."""
    calls = [Call(lambda exchange=exchange, value=value: exchange.values(name, value), name)
             for exchange, value in zip(exchanges, values)]
    for call in calls:
        call.join(_SECS)
    return [call.result() for call in calls]


def test_each_worker_gets_the_values_of_all_by_rank(members):
    """Of any shape and dtype, round for round, and each name apart from the others."""
    exchanges = [Exchange(member) for member in members]
    for number in range(3):
        values = [np.full([rank + 1, 2], number + rank, np.int32) for rank in range(2)]
        for got in exchange_both(exchanges, "rows", values):
            assert [value.tolist() for value in got] == [value.tolist() for value in values]
    for got in exchange_both(exchanges, "text", [np.array(b"a\0", object), np.array(b"", object)]):
        assert [value.item() for value in got] == [b"a\0", b""]


def test_nobody_waits_for_a_worker_that_has_finished_and_one_that_comes_back_is_refused(members):
    """The others go on with the values of those that are there."""
    exchanges = [Exchange(member) for member in members]
    exchange_both(exchanges, "loss", [np.float32(1), np.float32(2)])
    members[1].finish(0)
    assert [float(value) for value in exchanges[0].values("loss", np.float32(3))] == [3.0]
    with raises("horovod_worker_returned"):
        Exchange(members[0]).values("loss", np.float32(4))


def test_a_worker_that_has_come_once_and_died_is_not_awaited(members):
    """Issue: the others waited for it until the start time-out was over, as for one that is still to come."""
    exchanges = [Exchange(member) for member in members]
    exchange_both(exchanges, "loss", [np.float32(1), np.float32(2)])
    members[1]._stack.close()  # its heartbeats end, and it has not finished
    call = Call(lambda: exchanges[0].values("loss", np.float32(3)), "loss")
    call.join(_SECS / 2)  # the start time-out is _SECS
    assert [float(value) for value in call.result()] == [3.0]


def test_the_exchange_goes_on_in_the_next_training_of_a_script(members):
    """Issue: rank 0 had closed its session when the second fold began, and failed at the score of that fold."""
    exchanges = [Exchange(member) for member in members]
    for _ in range(2):
        training = ScriptTraining(tf.Graph(), None, frozenset())
        assert not members[0].find_parameters(training)
        members[0].announce_prepared(training)
        for got in exchange_both(exchanges, "score", [np.float32(1), np.float32(2)]):
            assert [float(value) for value in got] == [1.0, 2.0]


def test_the_reductions_are_those_of_numpy():
    """The mean keeps a dtype of floats."""
    values = [np.array([1, 5], np.float32), np.array([3, 2], np.float32)]
    found = {name: reduce(values).tolist() for name, reduce in REDUCTIONS.items()}
    assert found == {"Average": [2, 3.5], "Sum": [4, 7], "Min": [1, 2], "Max": [3, 5], "Product": [3, 10]}
    assert mean(values).dtype == np.float32 and mean([np.array(1), np.array(2)]).tolist() == 1.5
