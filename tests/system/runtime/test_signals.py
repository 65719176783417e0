"""SIGTERM and Ctrl-C, as real signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from ps_train.runtime import signals
from tests.processes import GUARD_SECS, REPO

BOTH = [signal.SIGTERM, signal.SIGINT]
TWO_SIGNALS = """
import os, time
from ps_train.runtime import signals as stopping
with stopping.on_signals() as stop:
    os.kill(os.getpid(), {first})
    print("asked", stop.wait(5), flush=True)
    stopping._ECHO_SECS = {echo_secs}
    os.kill(os.getpid(), {second})
    time.sleep(10)
    print("still here")
"""


@pytest.mark.parametrize("number", BOTH)
def test_the_first_signal_asks_to_stop(number):
    """The event is set, and the process goes on."""
    with signals.on_signals() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        assert stop.wait(5)


@pytest.mark.parametrize(("first", "second"), [(first, second) for first in BOTH for second in BOTH])
def test_the_second_signal_ends_the_process(first, second):
    """The exit code is 128 and the number of the second signal, and it comes at once."""
    ended = subprocess.run([sys.executable, "-c", TWO_SIGNALS.format(
        first=int(first), second=int(second), echo_secs=0)], capture_output=True, text=True, timeout=GUARD_SECS,
                           check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (128 + second, "asked True\n", "")


BEHIND_A_WAIT = """
import os, signal, sys, threading, traceback
from ps_train.runtime import signals
said = threading.Event()
signals._log.info = lambda *_: said.set()
def work():
    os.kill(os.getpid(), signal.SIGINT)
    said.wait(10)
    while not any(frame.name == "join" for frame in traceback.extract_stack(sys._current_frames()[main])):
        pass
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    threading.Event().wait(60)
main = threading.get_ident()
with signals.on_signals() as stop:
    signals.run_until_stopped(work, stop, 60)
"""


def test_a_second_signal_that_does_not_interrupt_the_wait_ends_the_process():
    """One that comes just before the main thread begins to wait does not; here another thread takes it."""
    ended = subprocess.run(
        [sys.executable, "-c", BEHIND_A_WAIT], capture_output=True, text=True, timeout=GUARD_SECS, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (128 + signal.SIGINT, "", "")


def test_the_launchers_sigterm_behind_one_to_all_processes_changes_nothing():
    """As when systemd stops a service: the task has begun to save."""
    program = TWO_SIGNALS.replace("sleep(10)", "sleep(0.1)")
    ended = subprocess.run([sys.executable, "-c", program.format(
        first=int(signal.SIGTERM), second=int(signal.SIGTERM), echo_secs=60)],
        capture_output=True, text=True, timeout=GUARD_SECS, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "asked True\nstill here\n", "")


def test_a_closed_terminal_asks_to_stop_once():
    """The shell and the kernel may both send SIGHUP; a signal of another kind still ends the process."""
    ended = subprocess.run([sys.executable, "-c", TWO_SIGNALS.format(first=int(signal.SIGHUP), echo_secs=0, second=(
        f"{int(signal.SIGHUP)}); os.kill(os.getpid(), {int(signal.SIGTERM)}"))],
        capture_output=True, text=True, timeout=GUARD_SECS, check=False,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))  # the tests may run under nohup
    assert (ended.returncode, ended.stdout, ended.stderr) == (128 + signal.SIGTERM, "asked True\n", "")


def test_under_nohup_a_closed_terminal_changes_nothing():
    """What was ignored before stays ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals.on_signals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.is_set() and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


FIRST_PROCESS = """
import os, signal
os.getpid = lambda: 1
from ps_train import __main__ as command_line
command_line.main = lambda argv: signal.raise_signal(signal.SIGTERM)
command_line.console()
"""


def test_the_first_process_of_a_container_ends_by_sigterm_from_its_start():
    """The kernel drops a signal that process 1 has no handler for."""
    ended = subprocess.run([sys.executable, "-c", FIRST_PROCESS], capture_output=True, text=True, timeout=GUARD_SECS,
                           check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (143, "", "")


UNWRITTEN = """
import ctypes
from ps_train import __main__ as command_line
def main(argv):
    main.file = open("losses.csv", "w")
    main.file.write("0.5")
    ctypes.CDLL(None).printf(b"from C")
    return 0
command_line.main = main
command_line.console()
"""


def test_what_users_code_has_not_yet_written_is_kept(tmp_path):
    """A callback may leave its file open, and an operation of a model print without a flush."""
    ended = subprocess.run([sys.executable, "-c", UNWRITTEN], capture_output=True, text=True, timeout=GUARD_SECS,
                           check=False, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(REPO)})
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "from C", "")
    assert (tmp_path / "losses.csv").read_text() == "0.5"


IGNORED_CHILDREN = """
import subprocess, sys
from ps_train import __main__ as command_line
command_line.main = lambda argv: print(subprocess.call([sys.executable, "-c", "raise SystemExit(7)"]), flush=True) or 0
command_line.console()
"""


def test_exit_codes_arrive_where_the_parent_ignores_its_children():
    """What is ignored stays so in a new program, and Python takes a code that is lost for 0."""
    ended = subprocess.run([sys.executable, "-c", IGNORED_CHILDREN], capture_output=True, text=True, timeout=GUARD_SECS,
                           check=False, preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "7\n", "")


def test_the_handlers_from_before_come_back():
    """After the block the signals mean what they meant, also when it ends with an error."""
    before = [signal.getsignal(number) for number in BOTH]
    with pytest.raises(ZeroDivisionError), signals.on_signals():
        assert [signal.getsignal(number) for number in BOTH] != before
        raise ZeroDivisionError
    assert [signal.getsignal(number) for number in BOTH] == before


CHILDREN = """
import multiprocessing, time
from ps_train import __main__ as command_line
from ps_train.runtime import signals
fork = multiprocessing.get_context("fork")
def main(argv):
    with signals.on_signals():
        child = fork.Process(target=time.sleep, args=(600,))
        child.start()
        child.terminate()
        child.join(60)
        print(child.exitcode, flush=True)
        fork.Process(target=time.sleep, args=(600,)).start()
    return 0
command_line.main = main
command_line.console()
"""


def test_a_child_of_the_users_code_ends_at_its_first_signal_and_with_its_task():
    """It inherited the handler that swallows the first one, so `Pool` never ended; and it kept the task's port."""
    ended = subprocess.run([sys.executable, "-c", CHILDREN], capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout) == (0, f"{-signal.SIGTERM}\n")
    assert "child processes did not end within 8 s" in ended.stderr
