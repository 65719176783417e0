"""SIGTERM and Ctrl-C, as real signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from ps_train.runtime import signals

BOTH = [signal.SIGTERM, signal.SIGINT]
TWO_SIGNALS = """
import os, time
from ps_train.runtime import signals as stopping
with stopping.on_signals() as stop:
    os.kill(os.getpid(), {first})
    print("asked", stop.wait(5), flush=True)
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
    ended = subprocess.run([sys.executable, "-c", TWO_SIGNALS.format(first=int(first), second=int(second))],
                           capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (128 + second, "asked True\n", "")


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
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"{-signal.SIGTERM}\n", "")
