"""The lock in a store."""

from __future__ import annotations

import json
import threading

import pytest

from ps_train.parts.object_store.lock import StoreLock
from ps_train.parts.object_store.store import ObjectStore, StoreError
from ps_train.storage import folder_lock
from tests.errors import raises
from tests.unit.parts.object_store.stores import new_store


@pytest.fixture
def store(tmp_path):
    return new_store("memory", tmp_path)


def _lock(store, silent_secs=0.1, stop=None):
    return StoreLock(store, stop or threading.Event(), silent_secs)


def _of_another_machine(content):
    return json.dumps({**json.loads(content), "machine": "another"}).encode()


def test_a_second_training_is_refused_and_the_lock_is_removed_at_the_end(store):
    """The message names its holder."""
    first, second = _lock(store), _lock(store)
    first.acquire()
    with raises("train_dir_in_use"):
        second.acquire()
    first.release()
    assert folder_lock.LOCK_NAME not in store.names()
    second.acquire()
    second.release()


def test_a_lock_of_a_process_here_that_has_ended_is_taken_over_at_once(store):
    """Its process ID may be used again: the time of its start counts, too."""
    content = json.loads(folder_lock.lock_text("long ago", "token", 0))
    store.write(folder_lock.LOCK_NAME, json.dumps({**content, "start": "1"}).encode())
    lock = _lock(store, silent_secs=3600.0)
    lock.acquire()
    lock.check()
    lock.release()


def test_a_silent_holder_on_another_machine_is_taken_over(store):
    """Its count does not rise."""
    store.write(folder_lock.LOCK_NAME, _of_another_machine(folder_lock.lock_text("long ago", "token", 7)))
    lock = _lock(store)
    lock.acquire()
    lock.check()
    lock.release()


def test_the_wait_for_a_sign_of_life_does_not_count_as_a_wait_for_the_store(store, monkeypatch):
    """Issue: with --start_timeout_secs=20 the chief gave up before its 30 s were over. It has a bound of its own."""
    now, seen = [0.0], []

    class Stop(threading.Event):
        def wait(self, timeout=None):
            now[0] += timeout
            seen.append(lock.waited_secs())
            return False

    monkeypatch.setattr("ps_train.parts.object_store.lock.clock.now", lambda: now[0])
    lock = _lock(store, silent_secs=30.0, stop=Stop())
    for _ in range(2):
        store.write(folder_lock.LOCK_NAME, _of_another_machine(folder_lock.lock_text("long ago", "token", 7)))
        lock.acquire()
    assert seen[:7] == [5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 31.0] and set(seen[7:]) == {31.0}
    lock.release()


def test_a_holder_whose_lock_was_taken_stops(store):
    """It was frozen; no checkpoint of it becomes visible from then on."""
    stop = threading.Event()
    first = _lock(store, silent_secs=3600.0, stop=stop)
    first.acquire()
    store.write(folder_lock.LOCK_NAME, folder_lock.lock_text("now", "another token", 0))
    with raises("folder_lost"):
        first.check()
    assert stop.is_set()
    first.release()
    assert folder_lock.LOCK_NAME in store.names()


def test_a_holder_that_beats_on_another_machine_is_alive(store):
    """The count rises within the time."""
    first, second = _lock(store, silent_secs=0.3), _lock(store, silent_secs=3600.0)
    first._content = lambda: _of_another_machine(folder_lock.lock_text("now", first._token, first._count))
    first.acquire()
    second._silent_secs = 6.0
    with raises("train_dir_in_use"):
        second.acquire()
    first.release()


class _Changing(threading.Event):
    """Changes the lock while a contender waits for a sign of life."""

    def __init__(self, change):
        super().__init__()
        self._change = change

    def wait(self, timeout=None):
        self._change()
        return False


def test_a_lock_that_is_released_during_the_wait_frees_the_store(store):
    """Its holder on another machine has ended: the contender was refused, with the name of that holder."""
    store.write(folder_lock.LOCK_NAME, _of_another_machine(folder_lock.lock_text("now", "token", 7)))
    lock = _lock(store, stop=_Changing(lambda: store.remove([folder_lock.LOCK_NAME])))
    lock.acquire()
    lock.check()
    lock.release()
    assert folder_lock.LOCK_NAME not in store.names()


def test_a_lock_that_another_training_takes_during_the_wait_is_left_to_it(store):
    """The message names the training that holds it by then."""
    store.write(folder_lock.LOCK_NAME, _of_another_machine(folder_lock.lock_text("long ago", "token", 7)))
    taken = _of_another_machine(folder_lock.lock_text("just now", "another token", 0))
    lock = _lock(store, stop=_Changing(lambda: store.write(folder_lock.LOCK_NAME, taken)))
    with raises("train_dir_in_use") as caught:
        lock.acquire()
    assert "since just now," in str(caught.value)
    assert store.read(folder_lock.LOCK_NAME) == taken


def test_a_lock_that_could_not_be_removed_at_the_end_does_not_hold_up_the_same_process(store, monkeypatch):
    """The store failed just then; a notebook trains again."""
    def fail(self, names):
        raise StoreError("503 Slow Down")

    first, second = _lock(store, silent_secs=3600.0), _lock(store, silent_secs=3600.0)
    first.acquire()
    with monkeypatch.context() as patched:
        patched.setattr(ObjectStore, "remove", fail)
        first.release()
    assert folder_lock.LOCK_NAME in store.names()
    second.acquire()
    second.check()
    second.release()
