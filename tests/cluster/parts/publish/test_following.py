"""The loop of the publisher, on states of a training that are there already."""

from __future__ import annotations

import json
import os
import threading

import numpy as np
import pytest

from ps_train.errors import CheckpointError, ClusterLostError, ConfigError, StoppedError
from ps_train.parts.control import history
from ps_train.parts.live import pushes
from ps_train.parts.object_store.store import StoreError
from ps_train.parts.publish import following, trained
from ps_train.parts.publish.flags import PublishConfig
from ps_train.parts.tables import contents
from ps_train.storage import checkpoints
from tests.cluster.parts.publish import test_publisher
from tests.cluster.parts.publish.test_publisher import Training, assert_read, make_export
from tests.errors import raises
from tests.push_reader import PushReader


@pytest.fixture
def training(tmp_path, monkeypatch):
    """A training of which a checkpoint was saved, and a publisher whose models are empty folders."""
    monkeypatch.setattr(following, "make_export", lambda config: make_export())
    training = Training(tmp_path / "train", np.random.default_rng(0))
    training.train()
    training.save()
    return training


def _publish(training, folder, stop=None, **flags):
    config = PublishConfig(train_dir=training.folder, publish_dir=str(folder), **flags)
    following.publish_until_done(config, stop or threading.Event())


def test_it_ends_with_the_training(training, tmp_path):
    """The last state is published, and publish.json says so, which `ps_train status` shows."""
    with open(tmp_path / "train/journal.jsonl", "w", encoding="utf-8") as file:
        for event in ({"event": "start", "run": {"train_steps": training.step}},
                      {"event": "end", "step": training.step}):
            file.write(json.dumps({"time": 1.0, **event}) + "\n")
    _publish(training, tmp_path / "out")
    assert_read(PushReader(tmp_path / "out"), training)
    published = history.read_published(training.folder)
    assert (published["number"], published["step"], published["targets"]) == (1, training.step, [])
    [line] = history.describe_published(published)
    assert line.startswith(f"published: step {training.step} as push 1, at ")


def test_once_publishes_what_is_new(training, tmp_path):
    """A second time only what has changed since; a target that is away does not stop it."""
    _publish(training, tmp_path / "out", once=True)
    training.train()
    training.save()
    _publish(training, tmp_path / "out", once=True, targets="localhost:1/m", target_timeout_secs=0.5)
    reader = PushReader(tmp_path / "out")
    assert_read(reader, training)
    assert (reader.number, reader.num_loads) == (2, 1)
    [_, target] = history.describe_published(history.read_published(training.folder))
    assert target.startswith("target localhost:1/m never reached: live_status: UNAVAILABLE")


@pytest.mark.parametrize("has_delta", [False, True])
def test_a_new_publisher_pushes_nothing_if_nothing_is_new(training, tmp_path, has_delta):
    """Issue: from cron, each --once pushed all dense variables again, and now and then a whole model."""
    if has_delta:
        training.train(drops=False)
        training.save_delta()
    _publish(training, tmp_path / "out", once=True)
    before = sorted(os.listdir(tmp_path / "out"))
    for _ in range(2):
        _publish(training, tmp_path / "out", once=True)
        assert sorted(os.listdir(tmp_path / "out")) == before
    publishing = _following(training, tmp_path / "out")
    number = publishing._publisher.published.begin.number
    assert publishing._publish_new() and publishing._publisher.published.begin.number == number
    for save in (training.save_delta, training.save):  # it goes on from there
        training.train(drops=False)
        save()
        assert publishing._publish_new()
        assert_read(PushReader(tmp_path / "out"), training)
    assert publishing._publisher.published.begin.number == number + 2


@pytest.mark.parametrize("is_other_training", [False, True])
def test_another_state_of_the_same_step_is_new(training, tmp_path, is_other_training):
    """As of a training that has gone back to an earlier checkpoint, or begun anew."""
    _begin_journal(training, 1)
    _publish(training, tmp_path / "out", once=True)
    if is_other_training:
        _begin_journal(training, 2)
    training.train(drops=False)
    training.step -= 1
    training.save()
    _publish(training, tmp_path / "out", once=True)
    assert_read(PushReader(tmp_path / "out"), training)


def test_what_cannot_be_published_is_refused(training, tmp_path):
    """Without a checkpoint, and to a folder in which another one publishes."""
    with raises("no_checkpoint"):
        following.publish_until_done(PublishConfig(
            train_dir=str(tmp_path / "none"), publish_dir=str(tmp_path / "out"), once=True), threading.Event())
    with following._locked(str(tmp_path / "out"), threading.Event()), raises("publish_dir_in_use"):
        _publish(training, tmp_path / "out", once=True)


def test_a_store_that_cannot_be_opened_is_one_line(training, tmp_path, monkeypatch):
    """Some, such as HDFS, are connected to at once: an error of that was a traceback, and no answer had no bound."""
    def fail(url, flag):
        raise StoreError("connection refused")

    monkeypatch.setattr(following, "open_store", fail)
    with raises("store_unreachable", kind=ClusterLostError) as caught:
        _publish(training, tmp_path / "out", once=True, targets="memory://bucket/clicks", target_timeout_secs=0.1)
    assert "--targets=memory://bucket/clicks: " in str(caught.value) and "connection refused" in str(caught.value)


def test_a_failure_before_the_first_checkpoint_is_not_the_end_of_a_training_that_begins_anew(training, tmp_path):
    """Its journal is what a corrected launch finds, too. Issue: a publisher that was started with it ended at once."""
    os.makedirs(tmp_path / "new")
    journal = tmp_path / "new/journal.jsonl"
    journal.write_text(json.dumps({"time": 1.0, "event": "start", "run": {}}) + "\n"
                       + json.dumps({"time": 2.0, "event": "end", "error": "no such file"}) + "\n")
    stop = threading.Event()

    class Stopping(threading.Event):
        def wait(self, timeout=None):
            return stop.is_set() or stop.set()  # the second wait is interrupted

    config = PublishConfig(train_dir=str(tmp_path / "new"), publish_dir=str(tmp_path / "out"))
    with raises("stopped", kind=StoppedError):
        following.publish_until_done(config, Stopping())
    assert stop.is_set()


def test_a_signal_ends_it(training, tmp_path):
    """The training has not ended; what was there is published."""
    stop = threading.Event()
    timer = threading.Thread(target=lambda: stop.wait(0) or _stop_after_first(training, stop))
    timer.start()
    with raises("stopped"):
        _publish(training, tmp_path / "out", stop)
    timer.join()
    assert_read(PushReader(tmp_path / "out"), training)


def _stop_after_first(training, stop):
    while not history.read_published(training.folder):
        stop.wait(0.01)
    stop.set()


def test_a_delta_that_is_removed_while_it_is_read_is_followed_by_the_next(training, tmp_path, monkeypatch):
    """As often as a newer one comes; the last one is published."""
    training.train()
    training.save_delta()
    read, removed = contents.read_table, []

    def removing(path, table):
        if ".delta-" in path and len(removed) < 2:
            removed.append(path)
            training.train(drops=False)
            training.save_delta()
            checkpoints.remove(path)
        return read(path, table)

    monkeypatch.setattr(contents, "read_table", removing)
    _publish(training, tmp_path / "out", once=True)
    assert len(removed) == 2
    monkeypatch.undo()
    assert_read(PushReader(tmp_path / "out"), training, has_dropped=False)


def test_what_is_served_does_not_go_back_when_the_newest_delta_cannot_be_read(training, tmp_path, monkeypatch):
    """It is passed over until it can be read again, as when it is written a second time."""
    training.train()
    training.save_delta()
    early = contents.Source(training.base, contents.newest_sound_delta(training.base))
    training.train(drops=False)
    training.save_delta()
    late, stop = contents.Source(training.base, contents.newest_sound_delta(training.base)), threading.Event()
    states = [late, early, early]

    def next_state(_):
        if len(states) == 1:
            stop.set()
        return states.pop(0)

    monkeypatch.setattr(following.trained, "newest_state", next_state)
    with raises("stopped"):
        _publish(training, tmp_path / "out", stop, publish_secs=0.1)
    assert_read(PushReader(tmp_path / "out"), training, has_dropped=False)


def _begin_journal(training, life):
    with open(os.path.join(training.folder, "journal.jsonl"), "w", encoding="utf-8") as file:
        file.write(json.dumps({"time": life, "event": "start"}) + "\n")


def _following(training, folder, **flags):
    config = PublishConfig(train_dir=training.folder, publish_dir=str(folder), **flags)
    folder.mkdir(exist_ok=True)
    return following.Following(config, [], threading.Event(), lambda: None)


def test_another_training_at_lower_steps_is_noticed(training, tmp_path):
    """In the same train_dir, emptied meanwhile, with a checkpoint of the same step and an earlier delta."""
    _begin_journal(training, 1)
    step = training.step
    training.train()
    training.train()
    training.save_delta()
    publishing = _following(training, tmp_path / "out")
    assert publishing._publish_new()
    for name in os.listdir(training.folder):
        os.remove(os.path.join(training.folder, name))
    _begin_journal(training, 2)
    training.step = step
    training.train(drops=False)
    training.step = step
    training.save()
    assert publishing._publish_new()
    assert_read(PushReader(tmp_path / "out"), training)


def test_a_new_publisher_does_not_go_back_when_the_newest_delta_cannot_be_read(training, tmp_path, monkeypatch):
    """Only the step of what is published tells it."""
    training.train()
    training.save_delta()
    early = contents.Source(training.base, contents.newest_sound_delta(training.base))
    training.train(drops=False)
    training.save_delta()
    _publish(training, tmp_path / "out", once=True)
    with monkeypatch.context() as patched:
        patched.setattr(following.trained, "newest_state", lambda _: early)
        _publish(training, tmp_path / "out", once=True)
    assert_read(PushReader(tmp_path / "out"), training, has_dropped=False)


def test_a_checkpoint_that_lacks_a_variable_is_not_tried_again(training, tmp_path, monkeypatch):
    """It would fail as often as it is read."""
    monkeypatch.setattr(following, "_PAUSE_SECS", 0.01)
    monkeypatch.setattr(test_publisher, "DENSE", [("dense/none", "float32", [2], 0)])
    with raises("checkpoint_of_another_model"):
        _publish(training, tmp_path / "out", once=True)


def test_publishing_once_ends_when_it_fails_again_and_again(training, tmp_path, monkeypatch):
    """As on a full disk."""
    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(following, "_PAUSE_SECS", 0.01)
    monkeypatch.setattr(following.Publisher, "publish", fail)
    with raises("publish_failed"):
        _publish(training, tmp_path / "out", once=True)


def test_a_folder_that_is_full_when_a_model_is_written_is_tried_again(training, tmp_path, monkeypatch, caplog):
    """Issue: the publisher ended with 2, as if the folder were wrong."""
    export, tries = make_export(), []

    def fail_first(*arguments):
        tries.append(arguments)
        if len(tries) == 1:
            raise ConfigError("folder_not_writable", "cannot write the model: No space left on device")
        export(*arguments)

    monkeypatch.setattr(following, "make_export", lambda config: fail_first)
    monkeypatch.setattr(following, "_PAUSE_SECS", 0.01)
    _publish(training, tmp_path / "out", once=True)
    assert "No space left on device; the next try is in" in caplog.text
    assert_read(PushReader(tmp_path / "out"), training)


def test_a_model_that_cannot_be_exported_is_not_tried_again(training, tmp_path, monkeypatch):
    """It would fail as often."""
    def fail(*_):
        raise ConfigError("data_dir_missing", "not there")

    monkeypatch.setattr(following, "make_export", lambda config: fail)
    with raises("data_dir_missing"):
        _publish(training, tmp_path / "out", once=True)


def _fail(*_):
    raise OSError(28, "No space left on device")


def test_a_folder_that_is_full_when_a_new_version_is_there_is_tried_again(training, tmp_path, monkeypatch):
    """Issue: the publisher ended with a traceback, and the version that was written was never used."""
    publishing = _following(training, tmp_path / "out")
    assert publishing._publish_new()
    for _ in range(2):
        training.train()
        training.save()
        assert publishing._publish_new()
    publisher = publishing._publisher
    publisher._begin_version(contents.Source(training.base))
    publisher._version.join()
    with monkeypatch.context() as patched:
        patched.setattr(pushes, "write_current", _fail)
        assert not publishing._publish_new()
        assert "No space left on device" in publishing._problem
    assert publishing._publish_new()
    assert publisher.published.current.model_number == publisher.published.current.last == 3
    assert_read(PushReader(tmp_path / "out"), training)


def test_a_folder_that_is_full_at_the_end_leaves_the_version_before(training, tmp_path, monkeypatch, caplog):
    """Which has all pushes: a warning, and no traceback."""
    publishing = _following(training, tmp_path / "out")
    for _ in range(2):
        assert publishing._publish_new()
        training.train()
        training.save()
    assert publishing._publish_new()
    publishing._publisher._begin_version(contents.Source(training.base))
    monkeypatch.setattr(pushes, "write_current", _fail)
    publishing._end("")
    assert "cannot tell the readers" in caplog.text
    assert_read(PushReader(tmp_path / "out"), training)


def test_a_train_dir_that_cannot_be_listed_for_a_moment_is_tried_again(training, tmp_path, monkeypatch, caplog):
    """As a mount that is away: a warning, and the next try publishes."""
    newest_state, num_calls = trained.newest_state, []

    def failing_first(train_dir):
        num_calls.append(train_dir)
        if len(num_calls) == 1:
            raise CheckpointError("folder_unreadable", f"cannot list {train_dir!r}: Stale file handle")
        if len(num_calls) == 2:
            raise PermissionError(13, "Permission denied")
        return newest_state(train_dir)

    monkeypatch.setattr(trained, "newest_state", failing_first)
    monkeypatch.setattr(following, "_PAUSE_SECS", 0.01)
    _publish(training, tmp_path / "out", once=True)
    assert_read(PushReader(tmp_path / "out"), training)
    assert "cannot look for a new state: cannot list" in caplog.text and "Permission denied; the next" in caplog.text


def test_a_train_dir_that_cannot_be_written_is_warned_of_once(training, tmp_path, caplog):
    """The states are published all the same."""
    os.mkdir(os.path.join(training.folder, "publish.json"))
    publishing = _following(training, tmp_path / "out")
    publishing._publish_new()
    for _ in range(3):
        publishing._write_status()
    assert sum("publish.json" in record.getMessage() for record in caplog.records) == 1


def test_two_publishers_of_one_training_say_that_its_status_is_that_of_one(training, tmp_path, monkeypatch, caplog):
    """Issue: they wrote one temporary file, which the first to rename took away; the status changed without a word."""
    one, two = (_following(training, tmp_path / name) for name in ("one", "two"))
    replace = os.replace

    def replace_after_another(source, target):
        monkeypatch.undo()
        two._write_status()
        replace(source, target)

    for publishing in (one, two):
        publishing._publish_new()
    monkeypatch.setattr(os, "replace", replace_after_another)
    one._write_status()
    assert os.path.dirname(history.read_published(training.folder)["model"]) == str(tmp_path / "one")
    assert not caplog.records
    for _ in range(2):
        training.train()
        training.save()
        for publishing in (one, two):
            publishing._publish_new()
            publishing._write_status()
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [warning.partition(";")[0] for warning in warnings] == [
        f"another process publishes this training to {tmp_path}/{other}" for other in ("one", "two")]
    assert not [name for name in os.listdir(training.folder) if name.endswith(".new")]
