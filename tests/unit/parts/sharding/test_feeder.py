"""What a feeder says of ranges, and when it looks for data, with a queue that answers as a test says."""

from __future__ import annotations

import threading
from unittest import mock

import numpy as np
import pytest

from ps_train.coordination import sessions
from ps_train.errors import BlackboardError
from ps_train.parts.readers.file_ranges import FileRange
from ps_train.parts.sharding import feeder as feeder_module
from ps_train.parts.sharding import growth_watch
from ps_train.parts.sharding.feeder import RangeFeeder
from ps_train.parts.sharding.local_ranges import LocalRanges
from ps_train.parts.sharding.range_plan import Extension
from ps_train.parts.sharding.range_queue import Answer, Assignment
from ps_train.runtime import clock
from tests.tensorflow_mode import tf

PLAN = [FileRange(number, "a", 10 * number, 10 * number + 10, -1) for number in range(9)]


@pytest.fixture
def feeder():
    """Knows 2 of 9 ranges."""
    local = mock.Mock(plan=PLAN[:2], has_verdicts=False)
    local.describe = lambda numbers: LocalRanges.describe(local, numbers)
    local.adopt = lambda text: setattr(local, "plan", PLAN)
    return RangeFeeder(local, mock.Mock(), mock.Mock(), mock.Mock(), 10.0)


@pytest.mark.parametrize("answers", [True, False])
def test_ranges_of_new_data_are_named_when_a_worker_returns_them(feeder, caplog, answers):
    """The answer that assigned them may be lost; ps 0 may have gone when a worker asks what they are."""
    caplog.set_level("INFO")
    queue = feeder._queue
    queue.plan.side_effect = None if answers else BlackboardError("ps_unreachable", "no answer")
    queue.give_back.return_value, queue.release_silent.return_value = [8, 3], {1: [8]}
    feeder.give_back()
    feeder.release_silent()
    assert "number 3, 8" in caplog.text and "number 8" in caplog.text
    assert ("of 20 bytes" in caplog.text) == answers


def test_a_failure_of_the_thread_is_raised_once_the_input_has_ended(feeder):
    """Otherwise a step would wait for a range until its time-out."""
    feeder._local.poll, feeder._cluster.is_chief = "poll", False
    feeder._queue.exchange.side_effect = ValueError("a fault")
    session = mock.Mock()
    session.run.side_effect = lambda fetched, *_, **__: (0, np.zeros([0, 2])) if fetched == "poll" else None
    feeder.start(session)
    feeder._thread.join(10.0)
    session.run.assert_called_with(feeder._local.end_op, feed_dict=None, options=mock.ANY)
    with pytest.raises(ValueError, match="a fault"):
        feeder.settle(session, is_data_end=True)


@pytest.fixture
def session(feeder, monkeypatch):
    """One in which each operation gets an answer or none, as `session.answers` says: name -> its value or error."""
    monkeypatch.setattr(feeder_module, "_CALL", tf.RunOptions(timeout_in_ms=1))
    monkeypatch.setattr(sessions, "_ANSWER_SECS", 0.1)
    local, never = feeder._local, threading.Event()
    local.poll, local.end_op, local.add_op, local.reset_op = "poll", "end", "add", "reset"
    local.added, local.describe = ["range"], str
    feeder._cluster.is_chief = False
    session = mock.Mock(answers={"poll": (0, np.zeros([0, 2]))})

    def run(fetched, **_):
        answer = session.answers.get(fetched)
        if answer is never:
            never.wait(20.0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    session.run.side_effect, session.never = run, never
    yield session
    never.set()


LATE = tf.errors.DeadlineExceededError(None, None, "too late")


@pytest.mark.parametrize("answer", ["late", "never"])
@pytest.mark.parametrize("call", ["poll", "add", "end"])
def test_a_call_to_the_input_that_is_not_answered_is_the_loss_of_the_session(feeder, session, call, answer):
    """The input ends at once, as a step would wait for it until its own time-out; the next session is fed again."""
    answered = Answer(generation=0, accepted=(), taken=-1, epoch=0, is_again=False)
    feeder._queue.exchange.return_value = answered if call == "end" else answered._replace(taken=0)
    feeder._queue.release_silent.return_value = {}
    session.answers[call] = LATE if answer == "late" else session.never
    feeder.start(session)
    feeder._thread.join(10.0)
    assert not feeder._thread.is_alive()
    assert mock.call("end", feed_dict=None, options=mock.ANY) in session.run.mock_calls
    with pytest.raises(tf.errors.UnavailableError) as caught:
        feeder.settle(session, is_data_end=True)
    assert sessions.is_lost(caught.value)
    session.answers[call] = (0, np.zeros([0, 2]))
    feeder._queue.exchange.return_value = answered
    feeder.start(session)
    feeder.settle(session, is_data_end=False)


def test_an_input_that_cannot_be_emptied_does_not_hold_up_the_task(feeder, session):
    """It is the task's own thread that begins to feed a session."""
    session.answers["reset"] = session.never
    with pytest.raises(tf.errors.DeadlineExceededError):
        feeder.start(session)


def test_a_range_whose_report_was_repeated_is_not_said_to_be_trained_on_twice(feeder, session, caplog):
    """The answer to the first report was lost. One that another worker got is."""
    done = [Assignment(0, 0), Assignment(1, 0)]
    refused = Answer(generation=0, accepted=[False, False], taken=-1, epoch=0, is_again=False)
    feeder._queue.exchange.side_effect = [BlackboardError("ps_unreachable", "no answer"), refused, refused]
    with pytest.raises(BlackboardError):
        feeder._exchange(session, done[:1], wants_another=False)
    feeder._exchange(session, done, wants_another=False)
    assert [record.getMessage()[:7] for record in caplog.records if "trained on twice" in record.message] == ["range 1"]
    feeder._exchange(session, done, wants_another=False)
    assert caplog.text.count("range 0 of epoch 0 is trained on twice") == 1


@pytest.fixture
def hanging_look(feeder, monkeypatch):
    """In a chief whose files grow; `begun` is set when a look has begun, which goes on until `answer` is set."""
    monkeypatch.setattr(feeder_module, "_CALL_SECS", 0.1)
    monkeypatch.setattr(growth_watch, "_WAIT_SECS", 0.0)
    look = mock.Mock(begun=threading.Event(), answer=threading.Event())

    def extended(text):
        look.begun.set()
        look.answer.wait(60.0)
        return Extension(PLAN, "more", 1, 7)

    feeder._local.extended = mock.Mock(side_effect=extended)
    feeder._cluster.is_chief, feeder._generation = True, 7
    feeder._queue.release_silent.return_value = {}
    feeder._queue.exchange.return_value = Answer(generation=7, accepted=(), taken=-1, epoch=0, is_again=False)
    feeder._queue.state.return_value = mock.Mock(done=())
    yield look
    look.answer.set()


def test_a_chief_that_is_stopped_while_a_store_does_not_answer_saves(feeder, session, hanging_look):
    """Before the last checkpoint it settles what it has trained on, in the session that trains."""
    feeder._cluster.is_chief = True  # `session` has changed it
    feeder.start(session)
    assert hanging_look.begun.wait(60.0)
    feeder.settle(session, is_data_end=False)
    feeder.look_around()  # as it waits for data; this look does not end either
    feeder.start(session)
    feeder.settle(session, is_data_end=False)
    assert feeder._local.extended.call_count == 1


def test_what_a_late_look_has_found_is_added_at_the_next_call(feeder, hanging_look):
    """To the queue that it began with, behind the ranges of then: the queue refuses it if it has begun again."""
    feeder.look_around()
    assert hanging_look.begun.wait(60.0)
    feeder.look_around()
    feeder._queue.add.assert_not_called()
    hanging_look.answer.set()
    feeder.watch._look.call.join(60.0)
    feeder._generation = 8
    feeder._queue.add.return_value = False
    feeder.look_around()
    feeder._queue.add.assert_called_once_with(7, first=2, num_ranges=7, plan="more")
    feeder._queue.plan.assert_called_once_with()


def test_an_error_of_a_look_is_that_of_the_caller(feeder, hanging_look, monkeypatch):
    """It ends the task, as one of the thread that feeds."""
    monkeypatch.setattr(growth_watch, "_WAIT_SECS", 60.0)
    feeder._local.extended.side_effect = ValueError("a fault")
    with pytest.raises(ValueError, match="a fault"):
        feeder.look_around()


def test_the_chief_looks_less_often_while_a_look_takes_long(feeder, monkeypatch):
    """20 times its CPU time, and twice its time; 1 to 30 s; what it did not look at does not count as idle."""
    monkeypatch.setattr(growth_watch, "_WAIT_SECS", 60.0)
    time = mock.Mock(secs=1000.0, cpu_secs=0.0, look_secs=0.01, look_cpu_secs=0.01)
    monkeypatch.setattr(clock, "now", lambda: time.secs)
    monkeypatch.setattr("time.thread_time", lambda: time.cpu_secs)

    def extended(text):
        time.secs += time.look_secs
        time.cpu_secs += time.look_cpu_secs
        return Extension(PLAN, text, 0, 0)

    feeder._local.extended = mock.Mock(side_effect=extended)
    feeder._queue.state.return_value = mock.Mock(done=())
    feeder._queue.release_silent.return_value = {}
    feeder.watch.restart()
    feeder._generation = 7
    for look_secs, look_cpu_secs, pause_secs in [
            (0.01, 0.01, 1.0), (0.6, 0.5, 10.0), (9.0, 9.0, 30.0), (0.3, 0.01, 1.0), (2.0, 0.01, 4.0)]:
        time.look_secs, time.look_cpu_secs = look_secs, look_cpu_secs
        feeder.look_around()
        num_looks, looked_secs = feeder._local.extended.call_count, time.secs - look_secs
        assert feeder.watch.idle_secs == pytest.approx(looked_secs - 1000.0)
        time.secs = looked_secs + pause_secs - 0.1
        feeder.look_around()
        assert feeder._local.extended.call_count == num_looks
        assert feeder.watch.idle_secs == pytest.approx(looked_secs - 1000.0)
        time.secs += 0.2
    feeder.look_around()
    assert feeder._local.extended.call_count == num_looks + 1
    time.secs += 100.0
    feeder._local.growing.has_seen_all = False  # the store does not answer
    feeder.look_around()
    assert feeder.watch.idle_secs <= 0.0
