"""How the script of a task ends."""

from __future__ import annotations

import builtins
import gzip
import io
import subprocess
import sys
import threading
import types

import pytest

from ps_train.errors import ConfigError
from ps_train.parts.legacy.classic import ending, imported_script, membership
from ps_train.parts.legacy.classic.stop_hook import StopHook
from ps_train.runtime import tracebacks
from tests.tensorflow_mode import tf


def test_a_fault_in_the_report_shows_the_whole_error_and_ends_nothing(monkeypatch, capsys):
    """The process must still leave the cluster."""
    def fail(error):
        raise TypeError("not iterable")

    monkeypatch.setattr(tracebacks, "report", fail)
    ending.report_failure(ValueError("this batch is broken"))
    assert capsys.readouterr().err.splitlines() == ["ValueError: this batch is broken"]


def test_a_variable_that_was_not_initialised_is_the_script_s_error_without_a_cluster(monkeypatch):
    """Issue: it was a lost session, to be run again. With a server or a session of one, a ps may have restarted."""
    with tf.Graph().as_default(), tf.Session() as session:
        variable = tf.Variable(1.0)
        with pytest.raises(tf.errors.FailedPreconditionError) as raised:
            session.run(variable * 2)
    for has_remote, code in ((False, 1), (True, ending.LOST_CODE)):
        monkeypatch.setattr(ending.membership, "can_lose", lambda has_remote=has_remote: has_remote)
        assert ending.exit_code_of(raised.value) == code


def test_work_of_atexit_that_takes_too_long_is_cut_off_with_a_line(monkeypatch, capsys):
    """The process ends with its code all the same."""
    codes, is_over = [], threading.Event()

    def exit_at_once(code):
        codes.append(code)
        is_over.set()

    monkeypatch.setattr(ending.os, "_exit", exit_at_once)
    monkeypatch.setattr(ending.atexit, "_run_exitfuncs", lambda: is_over.wait(60))
    monkeypatch.setattr(ending, "_CLEAN_UP_SECS", 0.01)
    ending.leave(3)
    assert set(codes) == {3}
    assert "within 0.01 s" in capsys.readouterr().err


@pytest.mark.parametrize(("ended", "left", "codes"), [
    (None, [3], [4, 5]), ("script_ended", [], [3, 5]), ("_leaving", [], [3, 5]), ("_stopping", [], [3, 5])])
def test_a_script_that_ends_by_os_exit_leaves_the_cluster_first(monkeypatch, ended, left, codes):
    """Issue: its ps ended with 138 after the idle time-out. What ps_train itself ends so has left it."""
    found = {"left": [], "codes": []}
    monkeypatch.setattr(ending.os, "_exit", found["codes"].append)
    for name in ("script_ended", "_leaving", "_stopping", "_noted_signal"):
        monkeypatch.setattr(ending, name, threading.Event())
    ending.report_hard_end(lambda code: found["left"].append(code) or code + 1, is_ps=lambda: False)
    if ended:
        getattr(ending, ended).set()
    ending.os._exit(3)
    ending.os._exit(5)
    assert found == {"left": left, "codes": codes}


def test_an_end_by_os_exit_is_bounded_and_happens_whatever_fails(monkeypatch, capsys):
    """Issue: a watchdog's os._exit waited for the lock of a session that did not come, or raised and did not end."""
    codes, held = [], threading.Event()
    monkeypatch.setattr(ending.os, "_exit", codes.append)
    monkeypatch.setattr(ending, "_CLEAN_UP_SECS", 0.01)
    monkeypatch.setattr(membership, "_current", [])
    for name in ("script_ended", "_leaving", "_stopping", "_noted_signal"):
        monkeypatch.setattr(ending, name, threading.Event())
    ending.report_hard_end(lambda code: held.wait(60), is_ps=lambda: False)
    ending.os._exit(3)
    assert codes[0] == 3 and "within 0.01 s" in capsys.readouterr().err
    held.set()

    def fail(code):
        raise ConfigError("wrong_ps", "another one")

    codes.clear()
    ending.script_ended.clear()
    monkeypatch.setattr(ending.os, "_exit", codes.append)
    monkeypatch.setattr(ending, "_CLEAN_UP_SECS", 60.0)
    ending.report_hard_end(fail, is_ps=lambda: False)
    ending.os._exit(4)
    assert codes[0] == 4 and "another one" in capsys.readouterr().err


def test_what_a_script_leaves_in_files_that_it_does_not_close_is_written(monkeypatch, tmp_path):
    """Issue: the file of its results was empty; Python writes the rest when it ends, and so does C."""
    monkeypatch.setattr(ending.os, "_exit", lambda code: None)
    monkeypatch.setattr(ending.atexit, "_run_exitfuncs", lambda: None)
    text, zipped = open(tmp_path / "text", "w"), gzip.open(tmp_path / "zipped", "wt")  # noqa: SIM115 (they stay open)
    records = tf.python_io.TFRecordWriter(str(tmp_path / "records"))
    text.write("the result\n")
    zipped.write("the result\n")
    records.write(b"a record")
    assert [(tmp_path / name).stat().st_size for name in ("text", "records")] == [0, 0]
    ending.leave(0)
    assert (tmp_path / "text").read_text() == "the result\n"
    assert gzip.decompress((tmp_path / "zipped").read_bytes()) == b"the result\n"
    assert list(tf.python_io.tf_record_iterator(str(tmp_path / "records"))) == [b"a record"]
    text.close()
    records.close()


def test_the_chief_saves_before_its_script_is_asked_to_end(monkeypatch):
    """Issue: a Supervisor's loop ended at once, and with it the session; up to ten minutes of training were lost."""
    order, ended, left = [], threading.Event(), []
    monkeypatch.setattr(ending, "script_ended", ended)
    monkeypatch.setattr(ending, "leave", left.append)
    monkeypatch.setattr(ending, "_said_stopped", threading.Lock())
    monkeypatch.setattr(ending, "_stop_requests", [lambda: order.append("stop") or ended.set()])
    monkeypatch.setattr(ending, "_savers", [lambda: order.append("save")])
    watch = object.__new__(ending.SignalWatch)  # without the handlers
    watch._stop_timeout_secs = 0.2
    watch._end(ending.signal.SIGTERM)
    assert order == ["save", "stop"] and left == [143]


@pytest.mark.parametrize(("ends", "expected"), [(True, ["stop"]), (False, ["stop", "save"])])
def test_what_the_end_of_a_loop_saves_is_saved_if_it_does_not_end(monkeypatch, ends, expected):
    """Issue: a chief that waited for its data, or for an update, saved nothing. Without a cluster, too."""
    order, ended = [], threading.Event()
    monkeypatch.setattr(ending, "script_ended", ended)
    monkeypatch.setattr(ending, "leave", lambda code: None)
    monkeypatch.setattr(ending, "_said_stopped", threading.Lock())
    for name in ("_stop_requests", "_savers", "_last_savers"):
        monkeypatch.setattr(ending, name, [])
    ending.on_stop(lambda: order.append("stop") or (ended.set() if ends else None), lambda: order.append("save"),
                   loop_saves=True)
    watch = object.__new__(ending.SignalWatch)  # without the handlers
    watch._stop_timeout_secs = 0.2
    watch._end(ending.signal.SIGTERM)
    assert order == expected


@pytest.mark.parametrize(("is_stopping", "expected"), [(True, [7]), (False, [7, 8])])
def test_a_save_that_the_end_of_a_loop_has_begun_is_not_repeated(monkeypatch, tmp_path, is_stopping, expected):
    """Issue: a save of 1.2 GB took longer than half the grace period, and was said not to be there.

    The thread of the signal waited for it, and then wrote the same checkpoint again. A save before the signal is none.
    """
    saved, is_saving, may_end = [], threading.Event(), threading.Event()

    def save(session, step):
        is_saving.set()
        may_end.wait(10)
        saved.append(int(step))

    monkeypatch.setattr(ending, "is_stopping", lambda: is_stopping)
    hook, stop = tf.train.CheckpointSaverHook(str(tmp_path), save_steps=100), StopHook()
    hook._save = save
    stop.save_by([hook])
    with tf.Graph().as_default(), tf.Session() as session:
        hook._global_step_tensor = tf.constant(8)
        stop.after_create_session(session, None)
        of_loop = threading.Thread(target=hook._save, args=(session, 7))
        of_signal = threading.Thread(target=stop.save)
        of_loop.start()
        assert is_saving.wait(10)
        of_signal.start()
        may_end.set()
        of_loop.join()
        of_signal.join()
    assert saved == expected


def test_a_script_has_all_the_time_that_it_takes_to_handle_ctrl_c(monkeypatch):
    """Issue: it was killed after half of the grace period, in the middle of its own last save."""
    waits, left = [], []

    class Ended(threading.Event):
        def wait(self, timeout):
            waits.append(timeout)
            if len(waits) == 5:  # the handler is done
                monkeypatch.setattr(ending, "_wait_for", lambda find: None)
                ending.wait_for_threads()
            return super().wait(0)

    for name in ("_stop_requests", "_savers", "_last_savers", "_EXECUTORS"):
        monkeypatch.setattr(ending, name, [])
    for name in ("_noted_signal", "_handles_interrupt"):
        monkeypatch.setattr(ending, name, threading.Event())
    monkeypatch.setattr(ending, "script_ended", Ended())
    monkeypatch.setattr(ending, "_said_stopped", threading.Lock())
    monkeypatch.setattr(ending, "leave", left.append)
    monkeypatch.setattr(ending.multiprocessing.util, "_run_finalizers", lambda priority: None)
    with pytest.raises(KeyboardInterrupt):
        ending._note_signal(ending.signal.SIGINT, None)
    watch = object.__new__(ending.SignalWatch)  # without the handlers
    watch._stop_timeout_secs = 0.0
    watch._end(ending.signal.SIGINT)
    assert len(waits) == 5 and left == [143]


@pytest.mark.parametrize(("code", "expected"), [(0, 143), (1, 1)])
def test_a_signal_while_the_chief_waits_for_the_others_counts(monkeypatch, code, expected):
    """Issue: its script had ended, and it ended with 0, though the others still needed its updates."""
    monkeypatch.setattr(ending, "_said_stopped", threading.Lock())
    monkeypatch.setattr(ending, "_noted_signal", threading.Event())
    member = types.SimpleNamespace(finish=lambda code: ending._noted_signal.set())
    monkeypatch.setattr(ending.membership, "current", lambda: member)
    assert ending.finish(code) == expected


class Tee:
    """What scripts of Python 2 put in the place of `sys.stdout`: it has no `flush`, and passes on what it has not."""

    def __init__(self, stream):
        self.stream = stream

    def write(self, text):
        self.stream.write(text)

    def __getattr__(self, name):
        return self.stream.__getattr__(name)


def test_a_stream_of_the_script_that_can_only_write_ends_nothing(monkeypatch):
    """Issue: the script was done, and its task failed with 120 in the flush before its end; plain Python does, too."""
    codes, own = [], io.StringIO()
    own.flush = lambda: own.write("flushed")
    monkeypatch.setattr(ending.os, "_exit", codes.append)
    monkeypatch.setattr(ending.atexit, "_run_exitfuncs", lambda: None)
    monkeypatch.setattr(sys, "__stdout__", own)
    monkeypatch.setattr(sys, "stdout", Tee(own))
    ending.leave(0)
    assert codes == [0] and own.getvalue() == "flushed"


def test_the_message_of_a_stop_is_printed_once(monkeypatch, capsys):
    """Also where the script ends at the moment at which another thread ends it."""
    monkeypatch.setattr(ending, "_said_stopped", threading.Lock())
    both = threading.Barrier(8)

    def end():
        both.wait(60)
        ending._say_stopped()

    ends = [threading.Thread(target=end) for _ in range(8)]
    for thread in ends:
        thread.start()
    for thread in ends:
        thread.join(60)
    assert capsys.readouterr().err.count("[stopped]") == 1


@pytest.fixture
def imported(monkeypatch):
    """What ends the interpreter of a script that imports the classes and has a server, and the exit codes."""
    codes, registered = [], []
    monkeypatch.setattr(ending.os, "_exit", codes.append)
    monkeypatch.setattr(ending.atexit, "register", registered.append)
    monkeypatch.setattr(ending, "SignalWatch", lambda stop_timeout_secs: None)
    monkeypatch.setattr(ending, "script_ended", threading.Event())
    monkeypatch.setattr(imported_script, "_exit_codes", [0])
    monkeypatch.setattr(sys, "stdin", io.StringIO())  # `exit` closes it
    for place, name in ((sys, "excepthook"), (sys, "exit"), (builtins, "exit"), (builtins, "quit")):
        monkeypatch.setattr(place, name, getattr(place, name))
    imported_script.watch_end(1.0)
    return registered[0], codes


@pytest.mark.parametrize("place", [sys, builtins], ids=["sys", "builtins"])
@pytest.mark.parametrize(("status", "code"), [((), 0), ((4,), 4), (("a message",), 1)])
def test_an_imported_script_ends_with_the_code_that_it_gives(imported, place, status, code):
    """By `sys.exit`, and by `exit`, which is another function."""
    end_interpreter, codes = imported
    with pytest.raises(SystemExit):
        place.exit(*status)
    end_interpreter()
    assert codes == [code]


def test_an_imported_script_that_runs_to_its_end_ends_with_0(imported):
    """Nothing was said."""
    end_interpreter, codes = imported
    end_interpreter()
    assert codes == [0]


def test_a_checkpoint_that_cannot_be_saved_does_not_keep_a_process_that_must_stop(caplog):
    """A call to a frozen ps may never return; the launcher would have to kill the process."""
    never = threading.Event()
    with caplog.at_level("WARNING"):
        ending._save(never.wait, 0.01)
    assert "no checkpoint was saved: waited 0.01 s for the last checkpoint" in caplog.text
    never.set()


def test_threads_of_a_script_that_go_on_are_named_again_and_again(monkeypatch):
    """After its main thread has ended, nothing else says why the process is still there."""
    names, has_reminded = [], threading.Event()

    def remind(self):
        names.append(self.name())
        has_reminded.set()

    monkeypatch.setattr(ending, "_POLL_SECS", 0.01)
    monkeypatch.setattr(ending.waits.Reminder, "remind", remind)
    thread = threading.Thread(target=has_reminded.wait, args=(60,), name="reader", daemon=False)
    thread.start()
    monkeypatch.setattr(ending.threading, "enumerate", lambda: [thread] if thread.is_alive() else [])
    # For good it would end the executors of this process, which other tests need.
    monkeypatch.setattr(ending, "_EXECUTORS", ())
    monkeypatch.setattr(ending.multiprocessing.util, "_run_finalizers", lambda priority: None)
    ending.wait_for_threads()
    assert names[0] == "the script's thread 'reader'"


_FORKING = """
import multiprocessing, time
from ps_train.errors import ConfigError
from ps_train.parts.legacy.classic import ending, imported_script, membership
from ps_train.parts.legacy.classic.stop_hook import StopHook
ending.SignalWatch(1.0)
child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
child.start()
child.terminate()
child.join(30)
print(child.exitcode, ending._stopping.wait(1.0), flush=True)
"""


def test_a_signal_to_a_child_of_the_script_is_not_one_to_the_script():
    """The child had the same wake-up descriptor: the end of a `Pool` stopped the script, or never came."""
    ended = subprocess.run([sys.executable, "-c", _FORKING], capture_output=True, text=True, timeout=150, check=False)
    assert (ended.returncode, ended.stdout) == (0, "-15 False\n"), ended.stderr


_SAVING = """
import os, signal, sys, time
from ps_train.errors import ConfigError
from ps_train.parts.legacy.classic import ending, imported_script, membership
from ps_train.parts.legacy.classic.stop_hook import StopHook
ending.signals._ECHO_SECS = float(sys.argv[1])
def save():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1.0)
    print("saved", flush=True)
ending.on_stop(lambda: None, save)
ending.SignalWatch(20.0)
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(60)
"""


@pytest.mark.parametrize(("echo_secs", "output"), [(60.0, "saved\n"), (0.0, "")])
def test_the_echo_of_a_signal_does_not_end_the_last_save(echo_secs, output):
    """systemd, pkill and others signal all processes at once; the launcher then signals its tasks, too."""
    ended = subprocess.run([sys.executable, "-c", _SAVING, str(echo_secs)], capture_output=True, text=True, timeout=150,
                           check=False)
    assert (ended.returncode, ended.stdout) == (143, output), ended.stderr


_HANGING_UP = """
import os, signal, sys, time
from ps_train.errors import ConfigError
from ps_train.parts.legacy.classic import ending, imported_script, membership
from ps_train.parts.legacy.classic.stop_hook import StopHook
def save():
    os.kill(os.getpid(), signal.SIGHUP)
    time.sleep(1.0)
    print("saved", flush=True)
signal.signal(signal.SIGHUP, signal.SIG_IGN if sys.argv[1] == "nohup" else signal.SIG_DFL)  # pytest's may be ignored
ending.on_stop(lambda: None, save)
ending.SignalWatch(6.0)
os.kill(os.getpid(), signal.SIGHUP)
time.sleep(1.0)
print("goes on", flush=True)
if sys.argv[1] != "nohup":
    time.sleep(60)
"""


@pytest.mark.parametrize(("way", "code", "output"), [
    ("closed", 143, {"saved", "goes on"}), ("nohup", 0, {"goes on"})])
def test_a_terminal_that_closes_stops_a_script_as_sigterm_does(way, code, output):
    """Issue: it was killed at once, and nothing saved. A second SIGHUP, and one under `nohup`, change nothing."""
    ended = subprocess.run([sys.executable, "-c", _HANGING_UP, way], capture_output=True, text=True, timeout=150,
                           check=False)
    assert (ended.returncode, set(ended.stdout.splitlines())) == (code, output), ended.stderr
