"""How a worker waits for more ranges, with a queue, a blackboard and a session that answer as a test says."""

from __future__ import annotations

import threading
from unittest import mock

import numpy as np
import pytest

from ps_train.coordination.state import Finished, State
from ps_train.parts.sharding.part import Followed, RangeTrainer
from ps_train.parts.sharding.range_queue import QueueState
from ps_train.runtime.waits import Timeouts
from tests.tensorflow_mode import tf

ALL_DONE = QueueState(np.array([1]), np.array([-1]))
ALL_HELD = QueueState(np.array([0]), np.array([1]))


@pytest.mark.parametrize("error", [
    RuntimeError("Attempted to use a closed Session."), tf.errors.AbortedError(None, None, "the ps has restarted")])
def test_a_chief_that_waits_for_data_notices_that_its_session_is_lost(error):
    """With --follow for hours. Its saver closes the session when a save does not end, and saves in a new one."""
    board, feeder, session = mock.Mock(), mock.Mock(**{"watch.idle_secs": 0.0}), mock.Mock()
    board.snapshot.return_value = mock.Mock(state=State.RUNNING, local_steps=np.zeros(2))
    session.run.side_effect = [[1], [1], error]
    feeder.look_around.side_effect = [None, None, AssertionError("the session was not used")]
    connected = mock.Mock(board=board, stop=threading.Event())
    trainer = RangeTrainer(
        feeder, mock.Mock(state=lambda: ALL_DONE), mock.Mock(is_chief=True), connected, Timeouts(), 1, rejoin_op=None,
        followed=Followed("train*", 1000.0))
    with pytest.raises(type(error)) as caught:
        trainer._wait_for_more(session)
    assert caught.value is error
    assert feeder.look_around.call_count == 2
    session.run.assert_called_with(connected.graph.steps.status, feed_dict=None, options=mock.ANY)


def test_a_worker_joins_the_staleness_bound_again_before_others_wait_for_it():
    """While it had no range, they went on: they need not wait until it has caught up."""
    board, session = mock.Mock(), mock.Mock()
    board.snapshot.return_value = mock.Mock(state=State.RUNNING, local_steps=np.zeros(4))
    connected = mock.Mock(board=board, stop=threading.Event())
    free = QueueState(np.array([0]), np.array([-1]))
    states = iter([ALL_HELD, ALL_HELD, ALL_HELD, free])
    trainer = RangeTrainer(
        mock.Mock(), mock.Mock(state=lambda: next(states, free)), mock.Mock(is_chief=True, worker_number=3), connected,
        Timeouts(), 1, rejoin_op=None, followed=None)
    calls = mock.Mock()
    calls.attach_mock(board.report_finished, "report"), calls.attach_mock(session.run, "run")
    assert trainer._wait_for_more(session) is None
    joined = mock.call.run(connected.graph.steps.join_op, feed_dict=None, options=mock.ANY)
    assert calls.mock_calls[0] == mock.call.report(3, Finished.PAUSES)
    assert calls.mock_calls[-2:] == [joined, mock.call.report(3, Finished.NO)]
