"""The lock of a train_dir as a file: whether its holder is alive, and that no lock of a live holder is removed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pytest

from ps_train.errors import ConfigError, StoppedError
from ps_train.storage import folder_lock
from tests.errors import raises
from tests.processes import REPO

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up on Linux only")


def never(secs):
    pytest.fail("waited for a sign of life")


def content(**changes):
    """Returns a lock as this process would write it, with some entries changed."""
    holder = {**json.loads(folder_lock.lock_text("2030-01-02 03:04:05 +0000", "0a", 7)), **changes}
    return json.dumps(holder).encode()


def process_with_lock():
    """Returns another process of this machine and its lock; it lives until its stdin is closed."""
    code = ("import sys; from ps_train.storage import folder_lock; "
            "sys.stdout.buffer.write(folder_lock.lock_text('now', '0b', 0)); sys.stdout.flush(); sys.stdin.read()")
    child = subprocess.Popen([sys.executable, "-c", code], cwd=REPO, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    return child, child.stdout.readline()


def test_a_folder_without_a_lock_is_free(tmp_path):
    """A missing folder, too."""
    folder_lock.make_free(str(tmp_path), 9.0, never)
    folder_lock.make_free(str(tmp_path / "none"), 9.0, never)


@LINUX
def test_a_lock_of_a_live_process_is_respected_and_that_of_a_killed_one_removed(tmp_path):
    """At once, also while the killed one is a zombie; the error names process, host and time."""
    child, lock = process_with_lock()
    path = tmp_path / folder_lock.LOCK_NAME
    try:
        path.write_bytes(lock)
        with raises("train_dir_in_use", kind=ConfigError) as caught:
            folder_lock.make_free(str(tmp_path), 9.0, never)
        assert f"process {child.pid} on " in str(caught.value) and "since now" in str(caught.value)
        assert path.read_bytes() == lock
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
        folder_lock.make_free(str(tmp_path), 9.0, never)
    finally:
        child.kill()
        child.communicate()
    assert list(tmp_path.iterdir()) == []


@LINUX
def test_a_process_number_that_is_used_again_is_another_process(tmp_path):
    """As with process 1 of a restarted container: it began at another time."""
    (tmp_path / folder_lock.LOCK_NAME).write_bytes(content(start="1"))
    folder_lock.make_free(str(tmp_path), 9.0, never)
    assert list(tmp_path.iterdir()) == []


def test_a_holder_on_another_machine_is_refused_when_its_count_goes_up(tmp_path):
    """Even with the host name and the process number of this process, as two containers may have."""
    path = tmp_path / folder_lock.LOCK_NAME
    path.write_bytes(content(machine="another", count="1"))

    def it_lives(secs):
        path.write_bytes(content(machine="another", count="2"))
        return False

    with raises("train_dir_in_use") as caught:
        folder_lock.make_free(str(tmp_path), 9.0, it_lives)
    assert "2030-01-02 03:04:05 +0000" in str(caught.value)
    assert path.read_bytes() == content(machine="another", count="2")


@pytest.mark.parametrize("left", [content(machine="another"), content(machine=""), b"", b"{\"host\"", b"[1]"])
def test_a_silent_holder_that_cannot_be_looked_up_has_ended_after_a_while(tmp_path, left):
    """Also one whose lock is empty, as a full disk leaves it."""
    (tmp_path / folder_lock.LOCK_NAME).write_bytes(left)
    waits = []
    folder_lock.make_free(str(tmp_path), 3.0, lambda secs: waits.append(secs))
    assert sum(waits) == pytest.approx(3.0)
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_is_released_during_the_wait_frees_the_folder(tmp_path):
    """Its holder has ended."""
    path = tmp_path / folder_lock.LOCK_NAME
    path.write_bytes(content(machine="another"))
    folder_lock.make_free(str(tmp_path), 3.0, lambda secs: path.unlink())


def test_a_signal_ends_the_wait_for_a_sign_of_life(tmp_path):
    """Exit code 143; the lock stays."""
    (tmp_path / folder_lock.LOCK_NAME).write_bytes(content(machine="another"))
    stop = threading.Event()
    stop.set()
    with raises("stopped", kind=StoppedError):
        folder_lock.make_free(str(tmp_path), 60.0, stop.wait)
    assert (tmp_path / folder_lock.LOCK_NAME).exists()


def test_a_new_lock_is_put_back_if_another_contender_was_faster(tmp_path):
    """It had read the lock of a process that has ended; the lock that it then moved belongs to a live one."""
    path = tmp_path / folder_lock.LOCK_NAME
    path.write_bytes(b"the new one")
    assert not folder_lock._move_aside(str(path), b"the old one")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [(folder_lock.LOCK_NAME, b"the new one")]
    assert folder_lock._move_aside(str(path), b"the new one")
    assert folder_lock._move_aside(str(path), b"the new one"), "another one has removed it"


def test_of_many_contenders_one_has_the_lock_in_the_end(tmp_path):
    """All see that its holder has ended. A contender that loses its lock finds that of another one, and ends."""
    path = tmp_path / folder_lock.LOCK_NAME
    path.write_bytes(content(machine="another"))
    barrier, winners = threading.Barrier(8), []

    def contend(number):
        barrier.wait(30)
        if folder_lock._move_aside(str(path), content(machine="another")):
            try:
                with open(path, "x", encoding="utf-8") as file:
                    file.write(str(number))
                winners.append(str(number))
            except FileExistsError:
                return

    threads = [threading.Thread(target=contend, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert path.read_text() in winners
    assert list(tmp_path.iterdir()) == [path]
