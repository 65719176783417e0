"""What a target gets: each push once, in order, also when it was away, was started again, or refuses a call."""

from __future__ import annotations

import json
import os
import threading
import time

import numpy as np
import pytest

from ps_train.parts.live import pushes
from ps_train.parts.live.predict_calls import TargetError
from ps_train.parts.live.pushes import Begin, Current
from ps_train.parts.object_store import calls
from ps_train.parts.object_store.store import StoreError
from ps_train.parts.publish import sending
from ps_train.parts.publish.sending import ServerSender, StoreSender, close_all
from tests.live_server import LiveServer
from tests.processes import DEADLINE_SECS
from tests.unit.parts.object_store.stores import FaultyStore, new_store


class Server(LiveServer):
    """A live model at a number, which fails in the calls with these indexes."""

    def __init__(self, number=1, training="t", failing=()):
        super().__init__("")
        self.number, self.training, self.failing, self.num_calls = number, training, set(failing), 0

    def call(self, signature, inputs):
        """Answers one call."""
        self.num_calls += 1
        if self.num_calls - 1 in self.failing:
            raise TargetError("away")
        return super().call(signature, inputs)


@pytest.fixture
def folder(tmp_path):
    """A folder with a model of number 1, and the pushes 2 to 6."""
    for number in range(2, 7):
        with pushes.writing_push(str(tmp_path), Begin(number, number - 1, "t", 10 * number, 1e9)) as writer:
            for key in (number, 100):
                writer.rows("table", np.array([key]), np.full([1, 2], number, np.float32), np.array([number - 1]))
            writer.dense(bytes([number]))
    pushes.write_current(str(tmp_path), Current("t", pushes.model_name(1), 1, 6))
    return str(tmp_path)


def _assert_has_all(server, sender):
    assert (server.number, sender.number, server.dense) == (6, 6, bytes([6]))
    assert server.tables == {"table": {6: [6, 6], 100: [6, 6]}}


@pytest.mark.parametrize("number", range(1, 7))
def test_a_target_gets_what_it_lacks(folder, number):
    """From its number on, in order."""
    server = Server(number)
    if number == 6:
        server.tables, server.dense = {"table": {6: [6, 6], 100: [6, 6]}}, bytes([6])
    sender = ServerSender("a:1/m", folder, server.call)
    assert sender.catch_up() == ""
    assert server.commits == list(range(number + 1, 7))
    _assert_has_all(server, sender)


@pytest.mark.parametrize("call", range(16))
def test_a_target_that_fails_in_any_call_is_asked_again(folder, call):
    """The push at hand is sent again from its beginning."""
    server = Server(failing=[call])
    sender = ServerSender("a:1/m", folder, server.call)
    with pytest.raises(TargetError):
        sender.catch_up()
    assert sender.catch_up() == ""
    assert server.commits == [2, 3, 4, 5, 6]
    _assert_has_all(server, sender)


def test_a_target_that_was_started_again_is_caught_up(folder):
    """It is at the number of its model again."""
    sender = ServerSender("a:1/m", folder, Server().call)
    sender.catch_up()
    server = Server()
    sender._call = server.call
    assert sender.catch_up() == ""
    _assert_has_all(server, sender)


@pytest.mark.parametrize("server", [Server(training="u"), Server(number=0), Server(number=7)])
def test_a_target_that_cannot_be_caught_up_needs_the_model(folder, server):
    """It has another training, lacks a push that is no longer there, or one that never was; nothing is sent."""
    sender = ServerSender("a:1/m", folder, server.call)
    assert os.path.join(folder, pushes.model_name(1)) in sender.catch_up()
    assert server.num_calls == 1


def test_a_thread_sends_until_it_is_closed(folder):
    """It begins with what is there, and has each push after it was woken."""
    server = Server()
    sender = ServerSender("a:1/m", folder, server.call)
    sender.start()
    while not sender.has(6):
        sender.wake()
    with pushes.writing_push(folder, Begin(7, 6, "t", 70, 1e9)) as writer:
        writer.dense(bytes([7]))
    pushes.write_current(folder, Current("t", pushes.model_name(1), 1, 7))
    while not sender.has(7):
        sender.wake()
    close_all([sender], 10)
    assert server.commits == [2, 3, 4, 5, 6, 7]


def test_a_server_of_something_else_is_told_and_asked_again(folder, monkeypatch):
    """Its answer lacks what that of a live model has: the thread ended, and publish.json had no problem of it."""
    monkeypatch.setattr(sending, "_ASK_SECS", 0.01)
    server = Server()
    sender = ServerSender("a:1/m", folder, lambda signature, inputs: {})
    sender.start()
    _wait_until(lambda: sender.as_json()["problem"] == "KeyError: 'number'")
    sender._call = server.call
    _wait_until(lambda: sender.has(6))
    close_all([sender], 10)
    _assert_has_all(server, sender)


def _wait_until(condition):
    end_secs = time.monotonic() + DEADLINE_SECS
    while not condition():
        assert time.monotonic() < end_secs
        time.sleep(0.01)


@pytest.mark.parametrize("fault", range(-1, 8))
def test_a_store_has_what_the_folder_has(folder, tmp_path, fault):
    """Also if a request fails: the next attempt makes up for it, and `CURRENT` there never names what is missing."""
    os.makedirs(os.path.join(folder, pushes.model_name(1), "variables"))
    for name in ("saved_model.pb", "variables/variables.index"):
        with open(os.path.join(folder, pushes.model_name(1), name), "w", encoding="utf-8") as file:
            file.write(name)
    store = FaultyStore(new_store("file", tmp_path / "there"), StoreError("away"), fault)
    sender = StoreSender("file:///there", folder, store)
    try:
        sender.catch_up()
    except TargetError:
        assert store.read(pushes.CURRENT) is None
        assert sender.catch_up() == ""
    os.remove(pushes.push_path(folder, 2))
    pushes.write_current(folder, Current("t", pushes.model_name(1), 1, 5))
    assert sender.catch_up() == ""
    assert sender.number == 5
    assert json.loads(store.read(pushes.CURRENT))["last"] == 5
    assert set(store.names(is_deep=True)) == {
        pushes.CURRENT, *(f"push-{number:010d}.tfrecord" for number in (3, 4, 5)),
        "model-0000000001/saved_model.pb", "model-0000000001/variables/variables.index"}


def _store(tmp_path):
    return new_store("file", tmp_path / "there")


def test_a_store_that_hangs_is_told_in_publish_json(folder, tmp_path, monkeypatch):
    """Until the call has ended."""
    monkeypatch.setattr(calls, "_SILENT_SECS", 0.0)
    sender = StoreSender("file:///there", folder, _store(tmp_path))
    sender.problem = ""
    with sender._store.calls.noting("put push-2"):
        assert sender.as_json()["problem"].startswith("put push-2: no answer for ")
    assert sender.as_json()["problem"] == ""


@pytest.mark.parametrize("name", ["model.ckpt-7.index", "journal.jsonl", "best/model.ckpt-7.index"])
def test_a_store_with_files_of_others_is_left_as_it_is(folder, tmp_path, name):
    """As the train_dir of a training, given by mistake."""
    store = _store(tmp_path)
    store.write(name, b"kept")
    sender = StoreSender("file:///there", folder, store)
    assert name in sender.catch_up()
    assert store.names(is_deep=True) == {name: 4}
    store.remove([name])
    assert sender.catch_up() == ""
    assert sender.number == 6


def test_a_new_folder_replaces_files_of_the_same_size_in_a_store(folder, tmp_path):
    """Those of an earlier publisher, whose folder was emptied since."""
    store = _store(tmp_path)
    path = pushes.push_path(folder, 3)
    name = os.path.basename(path)
    store.write(name, bytes(os.path.getsize(path)))
    assert StoreSender("file:///there", folder, store).catch_up() == ""
    with open(path, "rb") as file:
        assert store.read(name) == file.read()


def test_a_store_gets_a_new_model_of_the_same_push_and_is_not_listed_when_nothing_is_new(folder, tmp_path, monkeypatch):
    """`CURRENT` there names what that here does."""
    store = _store(tmp_path)
    sender = StoreSender("file:///there", folder, store)
    sender.catch_up()
    with monkeypatch.context() as patched:
        patched.setattr(store, "names", None)
        assert sender.catch_up() == ""
    os.makedirs(os.path.join(folder, pushes.model_name(6), "assets.extra"))
    os.replace(pushes.push_path(folder, 6), pushes.push_path(
        os.path.join(folder, pushes.model_name(6), "assets.extra"), 6))
    pushes.write_current(folder, Current("t", pushes.model_name(6), 6, 6))
    assert sender.catch_up() == ""
    assert json.loads(store.read(pushes.CURRENT))["model"] == pushes.model_name(6)


def test_all_targets_end_at_the_same_time(folder):
    """A thread whose call hangs delays no other, and all of them are waited for together."""
    release, waited = threading.Event(), []
    senders = [ServerSender(f"{name}:1/m", folder, lambda *_: release.wait(60)) for name in "abc"]
    for sender in senders:
        sender.start()
        sender.join = lambda secs: waited.append(secs) or time.sleep(0.05)
    close_all(senders, 0.08)
    release.set()
    assert waited == sorted(waited, reverse=True) and waited[0] <= 0.08 and waited[-1] == 0
    assert all(sender._is_closing.is_set() for sender in senders)
