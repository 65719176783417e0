"""How long a store is waited for: from its last progress."""

from __future__ import annotations

import itertools
import threading

import pytest

from ps_train.errors import ClusterLostError
from ps_train.parts.object_store import patience
from ps_train.parts.object_store.patience import PatientStore, persist
from tests.errors import raises
from tests.unit.parts.object_store.stores import new_store

_LOOK_SECS, _TIMEOUT_SECS = 40.0, 50.0  # two looks without progress are too many
_DATA = "model.ckpt-5.data-00000-of-00001"


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on by `_LOOK_SECS` with each look; its first value."""
    now, look = [0.0], patience._Watch.look

    def look_later(watch):
        now[0] += _LOOK_SECS
        look(watch)

    monkeypatch.setattr(patience.clock, "now", lambda: now[0])
    monkeypatch.setattr(patience._Watch, "look", look_later)
    monkeypatch.setattr(patience, "_PAUSE_SECS", 0.0)
    return now


@pytest.fixture
def store(tmp_path):
    """A store with one object."""
    made = new_store("memory", tmp_path)
    made.write(_DATA, b"x" * 500)
    return made


def test_a_call_with_progress_may_take_longer_than_its_bound(clock):
    """Without progress it may not."""
    is_done, numbers = threading.Event(), itertools.count()

    def progress():
        if (number := next(numbers)) == 5:
            is_done.set()
        return number

    assert persist(lambda: is_done.wait(60), "a store", _TIMEOUT_SECS, threading.Event(), progress=progress)
    assert clock[0] > _TIMEOUT_SECS
    is_done.clear()
    with raises("store_unreachable", kind=ClusterLostError):
        persist(is_done.wait, "a store", _TIMEOUT_SECS, threading.Event(), progress=lambda: "the same")
    is_done.set()


@pytest.mark.parametrize("chunk", [b"x" * 100, b""], ids=["slow", "silent"])
def test_a_large_file_may_take_longer_than_the_bound_of_a_file_while_more_of_it_arrives(
        store, tmp_path, clock, monkeypatch, chunk):
    """Issue: "mend the store", which was only slow. If nothing arrives, the error names the file."""
    written, looked, look = threading.Semaphore(0), threading.Semaphore(0), patience._Watch.look

    def get_slowly(source, path):
        with open(path, "wb") as file:
            for _ in range(5):
                file.write(chunk)
                file.flush()
                written.release()
                looked.acquire()
        written.release(1000)

    def look_after_a_chunk(watch):
        written.acquire()
        look(watch)
        looked.release()

    monkeypatch.setattr(store._fs, "get_file", get_slowly)
    monkeypatch.setattr(patience._Watch, "look", look_after_a_chunk)
    patient, path = PatientStore(store, _TIMEOUT_SECS, threading.Event()), tmp_path / "here" / _DATA
    if chunk:
        patient.get(_DATA, str(path))
        assert path.stat().st_size == 500 and clock[0] > 2 * _TIMEOUT_SECS
    else:
        with raises("store_unreachable", kind=ClusterLostError) as caught:
            patient.get(_DATA, str(path))
        assert f"{store.url}/{_DATA}: no answer in 50 s" in str(caught.value)
        looked.release(1000)


def test_what_a_killed_download_has_left_is_not_the_progress_of_the_next_one(store, tmp_path, monkeypatch):
    """Issue: the next download looked as if nothing arrived until it was as large, and was given up."""
    left = tmp_path / f"{_DATA}.new"
    left.write_bytes(b"x" * 1000)
    seen = []

    def get(source, path):
        seen.append(left.exists())
        left.write_bytes(b"y")

    monkeypatch.setattr(store._fs, "get_file", get)
    PatientStore(store, _TIMEOUT_SECS, threading.Event()).get(_DATA, str(tmp_path / _DATA))
    assert seen == [False] and (tmp_path / _DATA).read_bytes() == b"y"


def test_a_download_that_begins_again_and_again_is_no_progress(store, tmp_path, clock, monkeypatch):
    """It never gets further than before."""
    attempts, written, looked = itertools.count(1), threading.Semaphore(0), threading.Semaphore(0)
    look = patience._Watch.look

    def get_a_part(source, path):
        attempt = next(attempts)
        with open(path, "wb") as file:
            file.write(b"x" * (100 if attempt % 2 else 50))
        written.release()
        looked.acquire(timeout=60)
        raise PermissionError("endless") if attempt == 20 else OSError("connection reset")

    def look_at_a_part(watch):
        written.acquire()
        look(watch)
        looked.release()

    monkeypatch.setattr(store._fs, "get_file", get_a_part)
    monkeypatch.setattr(patience._Watch, "look", look_at_a_part)
    with raises("store_unreachable", kind=ClusterLostError) as caught:
        PatientStore(store, _TIMEOUT_SECS, threading.Event()).get(_DATA, str(tmp_path / _DATA))
    assert "connection reset" in str(caught.value)
