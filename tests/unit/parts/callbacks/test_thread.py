"""The thread of the callbacks: order, errors, and what happens if they are slow; and the form of the flag."""

from __future__ import annotations

import logging
import sys
import threading
import time
import types

import pytest

from ps_train.errors import StoppedError
from ps_train.parts.callbacks import part, thread
from ps_train.parts.callbacks.flags import parse_callbacks
from ps_train.parts.callbacks.thread import CallbackEvent, CallbackThread, RunningTraining
from tests.errors import raises

TRAINING = RunningTraining("run", "model", "dataset", {}, {})


def event(number, kind="progress"):
    return CallbackEvent(kind, number, {})


def test_all_callbacks_get_all_events_in_their_order():
    """In one thread, which is not that of the caller; `make` runs there, too."""
    calls, threads = [], set()

    def make(training):
        assert training is TRAINING
        threads.add(threading.current_thread())
        return [lambda event: calls.append(("a", event.step)), lambda event: calls.append(("b", event.step))]

    made = CallbackThread([make], TRAINING)
    made.start(10)
    for number in range(3):
        made.put(event(number))
    made.close()
    made.check()
    assert calls == [(name, number) for number in range(3) for name in "ab"]
    assert len(threads) == 1 and threading.current_thread() not in threads


@pytest.mark.parametrize("reason", ["", None, 0.25, "enough"])
def test_every_call_of_stop_ends_the_training(reason):
    """Issue: an empty reason did nothing."""
    training = RunningTraining("run", "model", "dataset", {}, {})
    training.stop(*([] if reason is None else [reason]))
    assert training.stop_reason == {"enough": "enough", 0.25: "0.25"}.get(reason, "a callback stopped it")
    other = RunningTraining("run", "model", "dataset", {}, {})
    other.stop(reason), other.stop("later")
    assert other.stop_reason == training.stop_reason


def test_after_an_error_no_callback_is_called():
    """And the error is there to be raised, at every check."""
    calls = []

    def fail(event):
        calls.append(event.step)
        raise ValueError("no")

    made = CallbackThread([lambda training: [fail, calls.append]], TRAINING)
    made.start(10)
    made.put(event(1))
    made.put(event(2))
    made.close()
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            made.check()
    assert calls == [1]


def test_an_error_of_tensorflow_is_not_taken_for_a_lost_session():
    """A callback that writes files with TensorFlow may raise one."""
    class OpError(Exception):
        """As that of TensorFlow, which looks at the name of no other."""

    def fail(event):
        raise OpError("no such bucket")

    made = CallbackThread([lambda training: fail], TRAINING)
    made.start(10)
    made.put(event(1))
    made.close()
    with pytest.raises(RuntimeError, match="no such bucket") as caught:
        made.check()
    assert caught.traceback[-1].name == "fail"


def test_progress_is_left_out_where_callbacks_are_slow(monkeypatch, caplog):
    """Other events are not; it is said once."""
    monkeypatch.setattr(thread, "_MOST_WAITING", 3)
    gate, calls = threading.Event(), []

    def wait(event):
        gate.wait(30)
        calls.append((event.kind, event.step))

    made = CallbackThread([lambda training: wait], TRAINING)
    made.start(10)
    for number in range(9):
        made.put(event(number))
    made.put(event(9, "end"))
    gate.set()
    made.close()
    assert calls[-1] == ("end", 9) and 3 <= len(calls) <= 5
    assert len([message for message in caplog.messages if "slow" in message]) == 1


def test_making_has_a_bound():
    """A function that never returns does not hold the chief for ever."""
    gate = threading.Event()
    made = CallbackThread([lambda training: gate.wait(30)], TRAINING)
    with raises("callbacks_slow"):
        made.start(0.01)
    start_secs = time.monotonic()
    made.close()  # no event waits for what was not made
    assert time.monotonic() - start_secs < 20
    gate.set()


def test_a_signal_ends_the_wait_for_making_and_the_log_says_what_it_waits_for(monkeypatch, caplog):
    """As for a tracker that does not answer: the chief took all of its time to stop, and said nothing before."""
    monkeypatch.setattr(thread.waits, "_REMIND_SECS", 0.01)
    caplog.set_level(logging.INFO)
    gate, stop = threading.Event(), threading.Event()
    made = CallbackThread([lambda training: gate.wait(60)], TRAINING)
    timer = threading.Timer(1.0, stop.set)
    timer.start()
    with raises("stopped", kind=StoppedError):
        made.start(50, stop)
    assert "waiting for the functions that make callbacks" in caplog.text
    gate.set()


def test_the_first_reason_to_stop_counts():
    """A callback may ask again."""
    training = RunningTraining("run", "model", "dataset", {}, {})
    training.stop("first")
    training.stop("second")
    assert training.stop_reason == "first"


def test_the_flag_names_modules_and_functions():
    """Several are separated by commas."""
    assert parse_callbacks("--callbacks", "") == parse_callbacks("--callbacks", "none") == []
    assert parse_callbacks("--callbacks", "a:b, c.d:e") == [("a", "b"), ("c.d", "e")]


def test_none_leaves_out_those_of_the_model(monkeypatch):
    """A trial of `ps_train tune` calls nothing of the user's that only looks on."""
    model = types.ModuleType("a_model")
    model.callbacks = lambda training: []
    monkeypatch.setitem(sys.modules, "a_model", model)
    assert len(part._makers_of("", "a_model")) == 1 and part._makers_of("none", "a_model") == []


@pytest.mark.parametrize("text", ["a", "a:", ":b", "a:b:c", "a/b.py:c", "a:b,", "a:b.c"])
def test_another_form_is_refused(text):
    """The error shows the right one."""
    with raises("flag_malformed"):
        parse_callbacks("--callbacks", text)


def test_a_task_that_is_stopped_leaves_out_progress_but_not_the_end():
    """Its time to stop is bounded, and a tracker must learn that the run is over."""
    gate, has_begun, calls = threading.Event(), threading.Event(), []

    def wait(event):
        calls.append((event.kind, event.step))
        has_begun.set()
        gate.wait(30)

    made = CallbackThread([lambda training: wait], TRAINING)
    made.start(10)
    made.put(event(0))
    assert has_begun.wait(30)
    for number in range(1, 9):
        made.put(event(number))
    made.put(event(9, "end"))
    made.close(0.01, leaves_out_progress=True)
    gate.set()
    made.close(30)
    assert calls == [("progress", 0), ("end", 9)]
