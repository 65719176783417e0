"""When and how the chief saves, on folders that fail, with sessions that are lost, and with kill -9."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import shutil
import signal
import threading
import time
import types

import pytest

from ps_train.errors import ClusterLostError, SaveError
from ps_train.storage import checkpoints, saver
from ps_train.training.reporting import End
from ps_train.updates.variable_copies import SlotTransfer
from tests import clusters, processes
from tests.children import fill, wait_until
from tests.errors import raises
from tests.processes import REPO, TaskCluster
from tests.tensorflow_mode import tf

NEVER = 10**6


class Training:
    """Parameters in a local session, with what Saving takes of a TrainGraph."""

    def __init__(self, folder, deltas=saver.Deltas(), **schedule):  # noqa: B008 (a constant)
        with tf.Graph().as_default():
            self.global_step = tf.train.create_global_step()
            tf.get_variable("weights", [1000], initializer=tf.ones_initializer())
            self.saver = tf.train.Saver()
            keeping = SlotTransfer(tf.no_op(), tf.no_op(), tf.no_op())
            self.step = tf.placeholder(tf.int64, [])
            self.set_step = self.global_step.assign(self.step)
            self.init = tf.global_variables_initializer()
            self.open_session()
        self.folder = str(folder)
        self.save = self.saver.save
        self.saved_steps, self.noted = [], []
        savable = saver.Savable(self.counted_save, self.global_step, keeping.before_save_op, deltas)
        self.schedule = saver.SaveSchedule(**{"every_secs": 0, "every_steps": 0, "keep_max": 5, "timeout_secs": 20.0,
                                           **schedule})
        self.saving = saver.CheckpointSaver(savable, self.folder, self.schedule,
                                    lambda error: isinstance(error, tf.errors.AbortedError),
                                    note_saved=lambda path: self.noted.append(os.path.basename(path)))

    def open_session(self):
        self.session = tf.Session(graph=self.global_step.graph)
        self.session.run(self.init)

    def counted_save(self, session, _, cut):
        path = cut()
        prefix, step = path.rsplit("-", 1)
        self.saved_steps.append(int(step))
        self.save(session, prefix, int(step), write_state=False)

    def go_to(self, step):
        self.session.run(self.set_step, {self.step: step})

    def save_last(self, step=None):
        if step is not None:
            self.go_to(step)
        return self.saving.save_last(self.session)

    def steps(self):
        """Returns the global steps of the checkpoints in the folder."""
        return [int(path.rpartition("-")[2]) for path in checkpoints.paths(self.folder)]

    def newest(self):
        """Returns the global step of the newest sound one."""
        path = checkpoints.newest_sound(self.folder)
        return path and int(path.rpartition("-")[2])


@pytest.fixture
def training(tmp_path):
    """A function that makes a Training in the folder `train`; its thread ends with the test."""
    made = []

    def make(**schedule):
        made.append(Training(tmp_path / "train", **schedule))
        return made[-1]

    yield make
    for one in made:
        one.saving.stop()


@pytest.fixture
def quick(monkeypatch):
    """Makes the pauses short."""
    monkeypatch.setattr(saver, "_FIRST_SAVE_SECS", 0.0)
    monkeypatch.setattr(saver, "_FIRST_PAUSE_SECS", 0.05)
    monkeypatch.setattr(saver, "_POLL_SECS", 0.01)


@pytest.fixture
def no_pauses(monkeypatch):
    """Lets the pauses of the last save pass at once, on another clock: its time-out ends no attempt."""
    now = types.SimpleNamespace(secs=1000.0)

    def sleep(secs):
        now.secs += secs

    monkeypatch.setattr(saver, "clock", types.SimpleNamespace(
        now=lambda: now.secs, sleep=sleep, event=threading.Event))


def fail_times(run, errors):
    """Makes the next saves of a Training raise these errors, one after the other."""
    save, left = run.save, list(errors)

    def failing(*args, **options):
        if left:
            raise left.pop(0)
        return save(*args, **options)

    run.save = failing


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets: `clock.secs`."""
    now = types.SimpleNamespace(secs=1000.0)
    monkeypatch.setattr(saver, "clock", types.SimpleNamespace(now=lambda: now.secs))
    return now


def turns(every_secs, every_steps):
    return saver.SaveTimer(saver.SaveSchedule(every_secs, every_steps, 5, 1.0))


def test_a_delta_is_due_only_if_there_were_steps_since(clock):
    """And once more, as what follows a step is noted a moment later."""
    timer = saver.DeltaTimer(2)
    assert timer.wait_secs() == 2
    clock.secs += 2
    assert timer.wait_secs() == 0
    assert [timer.is_due(step) for step in (5, 5, 5, 5, 6, 6, 6)] == [True, True, False, False, True, True, False]
    assert timer.wait_secs() == 2


def test_it_is_time_soon_and_then_after_the_seconds(clock):
    """Without steps the global step is not read in between."""
    turn = turns(60, 0)
    assert turn.wait_secs() == saver._FIRST_SAVE_SECS and not turn.is_due(NEVER)
    clock.secs += saver._FIRST_SAVE_SECS
    assert turn.wait_secs() == 0 and turn.is_due(0)
    turn.saved(0)
    assert turn.wait_secs() == 60 and not turn.is_due(NEVER)
    clock.secs += 60
    assert turn.wait_secs() == 0 and turn.is_due(0)


def test_it_is_time_at_once_and_then_after_the_steps(clock):
    """The steps count from the one that was saved."""
    turn = turns(0, 100)
    assert turn.wait_secs() == saver._POLL_SECS and turn.is_due(7)
    turn.saved(7)
    assert turn.wait_secs() == saver._POLL_SECS
    clock.secs += 10**9
    assert not turn.is_due(106)
    assert turn.is_due(107)


def test_the_first_save_is_not_later_than_the_others(clock):
    """An interval may be shorter than the time that the first one is given."""
    turn = turns(0.5, 0)
    clock.secs += 0.5
    assert turn.is_due(0)


def test_whichever_comes_first_counts_for_both(clock):
    """A save by steps moves the next one by time, and the other way round."""
    turn = turns(60, 100)
    turn.saved(0)
    clock.secs += 59
    assert turn.is_due(100)
    turn.saved(100)
    clock.secs += 59
    assert not turn.is_due(199)
    clock.secs += 1
    assert turn.is_due(101)


@pytest.mark.parametrize(("every_secs", "every_steps", "pauses"), [
    (600, 0, [1, 2, 4, 8, 16, 32, 60, 60]), (0, 1, [1, 2, 4, 8, 16, 32, 60, 60]), (5, 1, [1, 2, 4, 5, 5])])
def test_the_pause_after_failures_grows_up_to_the_interval(clock, every_secs, every_steps, pauses):
    """It starts again after a success; during a pause the steps do not count."""
    turn = turns(every_secs, every_steps)
    for pause_secs in pauses:
        assert turn.failed() == pause_secs
        assert not turn.is_due(NEVER)
        clock.secs += pause_secs
        assert turn.is_due(0)
    turn.saved(0)
    assert turn.failed() == 1


def test_the_thread_saves_at_once_and_by_steps(training, quick):
    """Each checkpoint loads, the note names it, and nothing is saved in between."""
    run = training(every_steps=10)
    run.saving.start(run.session)
    for step, expected in ((0, 0), (10, 10), (19, 10), (25, 25)):
        run.go_to(step)
        wait_until(lambda expected=expected: tf.train.latest_checkpoint(run.folder) ==
                   checkpoints.path_of(run.folder, expected), f"a checkpoint of step {expected}")
    assert run.saved_steps == [0, 10, 25]


def test_without_an_interval_it_saves_on_request_and_at_the_end(training):
    """`ps_train save`: the checkpoint is there, or the reason why not, when the answer comes."""
    run = training()
    run.saving.start(run.session)
    answers = queue.Queue()
    run.saving.request(lambda *answer: answers.put(answer))
    assert answers.get(timeout=60) == (checkpoints.path_of(run.folder, 0), "")
    fail_times(run, [tf.errors.ResourceExhaustedError(None, None, "the disk is full")])
    run.go_to(9)
    run.saving.request(lambda *answer: answers.put(answer))
    path, problem = answers.get(timeout=60)
    assert path == "" and "the disk is full" in problem and run.steps() == [0]
    assert run.save_last(12) == checkpoints.path_of(run.folder, 12)
    assert run.steps() == [0, 12] and run.noted == ["model.ckpt-0", "model.ckpt-12"]
    run.saving.request(lambda *answer: answers.put(answer))  # while the chief evaluates: nothing is left to save
    assert answers.get_nowait() == (checkpoints.path_of(run.folder, 12), "")


def test_a_step_that_was_saved_already_is_not_saved_twice(training):
    """Not by the same process, and not by the next one, unless the checkpoint cannot be read."""
    run = training()
    run.save_last(5)
    run.save_last()
    again = training()
    again.save_last(5)
    assert (run.saved_steps, again.saved_steps) == ([5], [])
    os.truncate(checkpoints.path_of(run.folder, 5) + ".data-00000-of-00001", 10)
    again.save_last(5)
    assert again.saved_steps == [5]
    assert again.newest() == 5


def test_the_number_of_checkpoints_holds_over_restarts(training):
    """A second process removes those of the first, the oldest first."""
    run = training(keep_max=3)
    for step in (1, 2, 9, 10):
        run.save_last(step)
    assert run.steps() == [2, 9, 10]
    again = training(keep_max=2)
    again.save_last(11)
    assert again.steps() == [10, 11]


def test_a_checkpoint_that_cannot_be_read_back_is_removed_and_written_again(training, quick, caplog):
    """The older one stays until the new one was read, also where only one is kept."""
    run = training(keep_max=1)
    run.save_last(1)
    sound_save, seen = run.save, []

    def damaging_save(session, path, step, **options):
        path = sound_save(session, path, step, **options)
        os.truncate(path + ".data-00000-of-00001", 100)
        seen.append(run.steps())
        run.save = sound_save
        return path

    run.save = damaging_save
    run.save_last(2)
    assert seen == [[1, 2]]
    assert run.saved_steps == [1, 2, 2]
    assert "model.ckpt-2 cannot be read" in caplog.text
    assert (run.steps(), run.newest()) == ([2], 2)


def test_the_thread_warns_goes_on_and_tries_again(training, quick, caplog):
    """One line for each failure: what, why and when it is tried again."""
    run = training(every_steps=1)
    fail_times(run, [OSError(30, "Read-only file system"),
                     tf.errors.ResourceExhaustedError(None, None, "/x/model.ckpt-0; No space left on device")])
    run.saving.start(run.session)
    wait_until(lambda: run.newest() == 0, "the third try")
    messages = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert messages == [
        f"cannot save to {run.folder}: [Errno 30] Read-only file system; training goes on, the next try is in 0.05 s",
        f"cannot save to {run.folder}: /x/model.ckpt-0; No space left on device; training goes on, the next try is in "
        "0.1 s"]


LOSSES = {"lost": tf.errors.AbortedError(None, None, "the ps was restarted"),
          "cancelled": tf.errors.CancelledError(None, None, "closed"),
          "closed": RuntimeError("Attempted to use a closed Session.")}


@pytest.mark.parametrize("error", LOSSES.values(), ids=LOSSES)
def test_the_thread_ends_quietly_with_its_session(training, quick, caplog, error):
    """The owner of the session reports it, and learns of it if only the save did; the next one has a thread again."""
    run = training(every_steps=1)
    fail_times(run, [error])
    run.saving.start(run.session)
    run.saving._thread.join(10)
    assert not run.saving._thread.is_alive()
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []
    assert isinstance(run.saving.error, tf.errors.UnavailableError)
    assert run.saving._bound_secs == run.schedule.timeout_secs  # which a save that was too slow raises, and no loss
    wait_until(lambda: run.session._closed, "the end of the session")
    run.open_session()
    run.saving.start(run.session)
    wait_until(lambda: run.newest() == 0, "a checkpoint in the next session")


@pytest.mark.parametrize("kind", [tf.errors.AbortedError, tf.errors.UnavailableError])
def test_a_folder_that_is_away_for_a_moment_is_no_lost_session(training, quick, caplog, kind):
    """As when another machine takes over the file system: TensorFlow has the same errors for it."""
    run = training(every_steps=1)
    fail_times(run, [kind(None, None, "/x/model.ckpt-0; Stale file handle")])
    run.saving.start(run.session)
    wait_until(lambda: run.newest() == 0, "the second try")
    assert run.saving.error is None and "Stale file handle; training goes on" in caplog.text


def test_a_session_that_is_really_closed_ends_the_thread(training, quick, caplog):
    """TensorFlow's own error for it is the one that is known here."""
    run = training(every_steps=1)
    run.saving.start(run.session)
    wait_until(lambda: run.newest() == 0, "a checkpoint")
    run.session.close()
    run.saving._thread.join(10)
    assert not run.saving._thread.is_alive()
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []


def test_a_thread_whose_session_is_over_leaves_the_folder_alone(training, quick):
    """A save that was blocked and comes back late neither removes nor notes anything: another one may be at work."""
    run = training(every_steps=1)
    entered, release = threading.Event(), threading.Event()
    sound_save = run.save

    def slow_save(*args, **options):
        entered.set()
        assert release.wait(30)
        return sound_save(*args, **options)

    run.save = slow_save
    run.saving.start(run.session)
    assert entered.wait(30)
    thread = run.saving._thread
    run.saving.stop()
    os.makedirs(run.folder, exist_ok=True)
    temporary = os.path.join(run.folder, "model.ckpt-5.index.tempstate1")
    open(temporary, "w").close()
    release.set()
    thread.join(30)
    assert os.path.exists(temporary)
    assert tf.train.latest_checkpoint(run.folder) is None


def test_the_last_save_is_tried_again(training, quick, caplog):
    """A warning for each failure, and then it is there."""
    run = training()
    fail_times(run, [OSError(5, "Input/output error")] * 2)
    run.save_last(8)
    assert run.newest() == 8
    assert caplog.text.count("cannot save the last step") == 2


def test_a_last_save_that_never_succeeds_is_an_error_that_names_the_last_good_one(training, no_pauses):
    """In one line, within the time-out, with exit code 1."""
    run = training(timeout_secs=60.0)
    run.save_last(4)
    fail_times(run, [OSError(28, "No space left on device")] * 100)
    start_secs = saver.clock.now()
    with raises("last_save_failed", kind=SaveError) as caught:
        run.save_last(8)
    assert saver.clock.now() - start_secs < 60
    assert all(value in str(caught.value) for value in (
        "within 60 s", "No space left on device", f"{run.folder}/model.ckpt-4;"))
    assert run.steps() == [4]


def test_the_last_save_has_its_whole_time_after_one_that_is_under_way(training, no_pauses):
    """Issue: it began when half its time was over, beside the other one in the same folder."""
    run = training(timeout_secs=60.0)
    run.saving._thread = types.SimpleNamespace(join=saver.clock.sleep)  # a save that takes longer
    fail_times(run, [OSError(28, "No space left on device")] * 100)
    start_secs = saver.clock.now()
    with raises("last_save_failed", kind=SaveError):
        run.save_last(8)
    assert 60 + 50 <= saver.clock.now() - start_secs < 120


def test_the_last_save_has_the_time_that_a_save_before_it_needed(training, quick, monkeypatch):
    """Issue: where only saves of twice --save_timeout_secs succeed, the training ended without its last steps."""
    run, bounds = training(every_steps=1, timeout_secs=60.0), []

    def bounded(call, timeout_secs, awaited):
        bounds.append(timeout_secs)
        if len(bounds) == 1:
            raise ClusterLostError("timed_out", f"waited for {awaited}")
        return call()

    monkeypatch.setattr(saver, "waits", types.SimpleNamespace(bounded=bounded))
    run.saving.start(run.session)
    run.saving._thread.join(10)
    run.open_session()
    run.save_last(8)
    assert bounds == [60, 120] and run.newest() == 8


def test_a_last_save_that_does_not_come_back_is_given_up(training):
    """As with a frozen ps; the error names the last good checkpoint."""
    run = training(timeout_secs=0.5)
    release = threading.Event()
    run.save = lambda *args, **options: release.wait(30)
    with raises("timed_out", kind=ClusterLostError):
        run.save_last(8)
    release.set()


def test_a_last_save_in_a_lost_session_is_its_owners_matter(training):
    """The error comes through at once."""
    run = training()
    fail_times(run, [LOSSES["lost"]])
    with pytest.raises(tf.errors.AbortedError):
        run.save_last(8)


def make_worker(cluster, folder, train_steps, **schedule):
    """Returns a chief that writes summaries of each step."""
    saves = saver.SaveSchedule(**{"every_secs": 0, "every_steps": 1, "keep_max": 5, "timeout_secs": 20.0, **schedule})
    worker = clusters.Worker(cluster, 0, folder, train_steps, saves=saves)
    worker.schedule = worker.schedule._replace(save_summaries_steps=1)
    return worker


def train_to(worker, live, write_summary, step):
    """Trains until the global step is this."""
    return worker.loop(live, write_summary, train_steps=step).run()


def newest_step(folder):
    path = checkpoints.newest_sound(str(folder))
    return int(path.rpartition("-")[2]) if path else -1


def has_saved(folder, step, keep_max=5):
    """Tells whether the checkpoint of this step is recorded and the older ones are removed: nothing is under way."""
    recorded = tf.train.latest_checkpoint(str(folder))
    # Of one that is removed, the index goes first: what its other files leave would be room on a full disk.
    kept = {name.split(".")[1] for name in names(folder) if name.startswith("model.ckpt-")}
    return recorded is not None and recorded.endswith(f"-{step}") and len(kept) <= keep_max


def make_full(folder):
    return fill(folder).unlink


def make_unusable(folder):
    """A file instead of the folder: root, too, cannot write to that."""
    folder.rename(folder.parent / "aside")
    folder.write_text("")

    def mend():
        folder.unlink()
        (folder.parent / "aside").rename(folder)

    return mend


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # of the summaries' own thread
@pytest.mark.parametrize("kind", ["full", "unusable"])
def test_training_goes_on_while_the_folder_fails(tmp_path, start_servers, quick, caplog, request, kind):
    """Full disk, or no folder: a warning says so, steps are taken, and when it is mended checkpoints come again."""
    folder = request.getfixturevalue("small_disk") if kind == "full" else tmp_path / "train"
    worker = make_worker(start_servers(1, 1), folder, 60)
    earlier = threading.enumerate()  # what other tests of this process have left

    def body(live, write_summary):
        train_to(worker, live, write_summary, 10)
        wait_until(lambda: has_saved(folder, 10), "a checkpoint of step 10")
        mend = {"full": make_full, "unusable": make_unusable}[kind](folder)
        train_to(worker, live, write_summary, 40)
        wait_until(lambda: "training goes on" in caplog.text, "a warning")
        assert train_to(worker, live, write_summary, 50).global_step == 50
        if kind == "full":
            (thread,) = (one for one in threading.enumerate()
                         if type(one).__name__ == "_EventLoggerThread" and one not in earlier)
            thread._next_event_flush_time = 0  # as it comes every two minutes
            train_to(worker, live, write_summary, 51)
            thread.join(20)
            train_to(worker, live, write_summary, 55)
        assert newest_step(folder) == (10 if kind == "full" else -1)
        mend()
        wait_until(lambda: newest_step(folder) >= 50, "a checkpoint after the folder was mended")
        return train_to(worker, live, write_summary, 60)

    worker.body = body
    worker.start()
    assert worker.result().end is End.STEPS
    assert newest_step(folder) == 60
    assert ("cannot write summaries" in caplog.text) == (kind == "full")
    assert re.search({"full": f"cannot save to {folder}: .*No space left on device; training goes on, the next try is ",
                      "unusable": f"cannot save to {folder}: .*(exists|Not a directory).*; training goes on"}[kind],
                     caplog.text)


def test_a_save_that_does_not_end_costs_a_new_session(tmp_path, start_servers, quick, caplog):
    """Issue: a call of a save was never answered, and nothing was saved until a ps was lost, 26 s later.

    The next save may take twice as long, as that may have been the reason.
    """
    folder, release = tmp_path / "train", threading.Event()
    worker = make_worker(start_servers(1, 1), folder, 60, timeout_secs=2.0)
    saving, sessions = worker.supervised._saving, []
    sound = saving._savable

    def slow(session, path, cut):
        threading.Event().wait(2.5)  # as a slow disk does
        sound.save(session, path, cut)

    def hang(session, path, cut):
        cut()
        assert release.wait(60)
        raise tf.errors.CancelledError(None, None, "as TensorFlow raises it when the session is closed")

    def body(live, write_summary):
        sessions.append(live)
        if len(sessions) > 1:
            release.set()
            wait_until(lambda: newest_step(folder) > 10, "a save that takes long")
            saving._savable = sound
            return train_to(worker, live, write_summary, 60)
        train_to(worker, live, write_summary, 10)
        wait_until(lambda: has_saved(folder, 10), "a checkpoint of step 10")
        saving._savable = sound._replace(save=hang)
        train_to(worker, live, write_summary, 20)
        wait_until(lambda: saving.error is not None, "the end of its time")
        saving._savable = sound._replace(save=slow)
        return train_to(worker, live, write_summary, NEVER)

    worker.body = body
    worker.start()
    assert worker.result().end is End.STEPS
    assert (len(sessions), newest_step(folder)) == (2, 60)
    (lost,) = (record.getMessage() for record in caplog.records if "lost the session" in record.getMessage())
    assert f"waited 2 s for a checkpoint in {folder} (--save_timeout_secs)" in lost


def test_why_a_session_was_closed_does_not_hide_the_error_of_the_next_one(tmp_path, start_servers):
    """Issue: that of the last one was reported six times in the place of a missing file."""
    worker = make_worker(start_servers(1, 1), tmp_path / "train", 10)
    supervised = worker.supervised
    supervised._saving.error = supervised._chief_service.error = tf.errors.UnavailableError(None, None, "of before")

    def body(live, write_summary):
        raise tf.errors.NotFoundError(None, None, "No files matched")

    worker.body = body
    worker.start()
    with pytest.raises(tf.errors.NotFoundError, match="No files matched"):
        worker.result()


def test_a_disk_that_stays_full_ends_the_chief_with_the_last_good_checkpoint(small_disk, start_servers, quick,
                                                                           no_pauses):
    """The error says which it is; nothing of the save that failed is left, so the space is not used up by it."""
    worker = make_worker(start_servers(1, 1), small_disk, 20, timeout_secs=50.0)

    def body(live, write_summary):
        train_to(worker, live, write_summary, 10)
        wait_until(lambda: has_saved(small_disk, 10), "a checkpoint of step 10")
        fill(small_disk)
        return train_to(worker, live, write_summary, 20)

    worker.body = body
    worker.start()
    with raises("last_save_failed", kind=SaveError) as caught:
        worker.result(180.0)  # --save_timeout_secs of it are retries
    assert "No space left on device" in str(caught.value) and f"{small_disk}/model.ckpt-10;" in str(caught.value)
    assert [name for name in os.listdir(small_disk) if "ckpt-20" in name or "tempstate" in name] == []


def names(folder):
    return os.listdir(folder) if folder.is_dir() else []


def is_being_written(folder):
    return any("tempstate" in name for name in names(folder))


def is_being_read_back(folder):
    """The newest is complete, and not yet noted."""
    found = [name for name in names(folder) if name.endswith(".index")]
    newest = max(found, key=lambda name: int(name[len("model.ckpt-"):-len(".index")]), default="")
    with contextlib.suppress(FileNotFoundError):
        return newest[:-len(".index")] not in (folder / "checkpoint").read_text()
    return False


@pytest.mark.parametrize("moment", [is_being_written, is_being_read_back])
def test_kill_9_of_the_chief_during_a_save_leaves_a_checkpoint_that_loads(tmp_path, start_process, moment):
    """The restarted cluster continues from it; at the end the files of the killed save are removed."""
    for plugin in ("tiny.py", "heavy.py"):
        shutil.copy(REPO / "tests/plugins" / plugin, tmp_path)
    folder = tmp_path / "train"
    flags = ["--model=heavy", "--dataset=tiny", "--batch_size=16", "--save_model_secs=0", "--save_model_steps=1",
             "--keep_checkpoint_max=1", f"--train_dir={folder}"]
    first = TaskCluster(1, 1)
    first.start(start_process, [*flags, f"--train_steps={NEVER}"], cwd=tmp_path)
    chief = start_process._processes["worker-0"]
    start_process.wait_for_line("worker-0", "saved")
    deadline_secs = time.monotonic() + processes.DEADLINE_SECS
    while not moment(folder):  # without a pause: the moment is short
        assert time.monotonic() < deadline_secs, "no such moment"
    chief.send_signal(signal.SIGKILL)
    chief.wait(processes.DEADLINE_SECS)
    start_process._processes["ps-0"].send_signal(signal.SIGKILL)
    start_process._processes["ps-0"].wait(processes.DEADLINE_SECS)
    step = newest_step(folder)
    assert step >= 0
    again = TaskCluster(1, 1)
    for job, index in again.tasks():
        start_process.start(f"again-{job}", [*again.flags(job, index), *flags, f"--train_steps={step + 500}"],
                            cwd=tmp_path)
    assert start_process._processes["again-worker"].wait(processes.DEADLINE_SECS) == 0
    assert f"continuing from {folder}/model.ckpt-{step}\n" in start_process.log("again-worker")
    assert [name for name in names(folder) if "temp" in name] == []
    assert len([name for name in names(folder) if name.endswith(".index")]) == 1
    assert newest_step(folder) >= step + 500
