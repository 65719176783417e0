"""The lock of a train_dir as a file: who is alive, who is gone, and that nobody removes a lock of a living one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pytest

from ps_train.errors import ConfigError, StoppedError
from ps_train.storage import folder_lock
from tests.processes import REPO

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up on Linux only")


def never(secs):
    pytest.fail("waited for a sign of life")


def content(**changes):
    """Returns a lock as this process would write it, with some entries changed."""
    holder = {**json.loads(folder_lock.lock_text("2030-01-02 03:04:05 +0000", "0a", 7)), **changes}
    return json.dumps(holder).encode()


def text_of(process):
    """Returns what another process of this machine writes; it lives until its stdin is closed."""
    code = ("import sys; from ps_train.storage import folder_lock; "
            "sys.stdout.buffer.write(folder_lock.lock_text('now', '0b', 0)); sys.stdout.flush(); sys.stdin.read()")
    child = subprocess.Popen([sys.executable, "-c", code], cwd=REPO, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    return child, child.stdout.readline()


def test_a_folder_without_a_lock_is_free(tmp_path):
    """One that is not there, too."""
    folder_lock.make_free(str(tmp_path), 9.0, never)
    folder_lock.make_free(str(tmp_path / "none"), 9.0, never)


@LINUX
def test_a_living_process_of_this_machine_is_refused_and_a_killed_one_forgotten(tmp_path):
    """At once, without a wait, also while the killed one is a zombie; a refusal names host, process and since when."""
    child, told = text_of("other")
    path = tmp_path / folder_lock.LOCK_NAME
    try:
        path.write_bytes(told)
        with pytest.raises(ConfigError, match=rf"process {child.pid} on \S+, since now, is training in .*--train_dir"):
            folder_lock.make_free(str(tmp_path), 9.0, never)
        assert path.read_bytes() == told
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
        folder_lock.make_free(str(tmp_path), 9.0, never)
    finally:
        child.kill()
        child.communicate()
    assert list(tmp_path.iterdir()) == []


@LINUX
def test_a_process_number_that_is_used_again_is_another_process(tmp_path):
    """As with process 1 of a container that is started again: it began at another time."""
    (tmp_path / folder_lock.LOCK_NAME).write_bytes(content(start="1"))
    folder_lock.make_free(str(tmp_path), 9.0, never)
    assert list(tmp_path.iterdir()) == []


def test_a_holder_on_another_machine_is_refused_when_its_count_goes_up(tmp_path):
    """Even where it has the host name and the process number of this process, as two containers may."""
    path = tmp_path / folder_lock.LOCK_NAME
    path.write_bytes(content(machine="another", count="1"))

    def it_lives(secs):
        path.write_bytes(content(machine="another", count="2"))
        return False

    with pytest.raises(ConfigError, match="since 2030-01-02 03:04:05 [+]0000, is training in"):
        folder_lock.make_free(str(tmp_path), 9.0, it_lives)
    assert path.read_bytes() == content(machine="another", count="2")


@pytest.mark.parametrize("left", [content(machine="another"), content(machine=""), b"", b"{\"host\"", b"[1]"])
def test_a_silent_holder_that_cannot_be_looked_up_is_gone_after_a_while(tmp_path, left):
    """Also one that never said who it is, as a full disk leaves it."""
    (tmp_path / folder_lock.LOCK_NAME).write_bytes(left)
    waits = []
    folder_lock.make_free(str(tmp_path), 3.0, lambda secs: waits.append(secs))
    assert sum(waits) == pytest.approx(3.0)
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_is_released_meanwhile_is_no_obstacle(tmp_path):
    """Its holder has ended while this process looked at it."""
    path = tmp_path / folder_lock.LOCK_NAME
    path.write_bytes(content(machine="another"))
    folder_lock.make_free(str(tmp_path), 3.0, lambda secs: path.unlink())


def test_the_wait_for_a_sign_of_life_hears_a_signal(tmp_path):
    """Exit code 143; the lock stays."""
    (tmp_path / folder_lock.LOCK_NAME).write_bytes(content(machine="another"))
    stop = threading.Event()
    stop.set()
    with pytest.raises(StoppedError, match="waiting for a sign of life of process"):
        folder_lock.make_free(str(tmp_path), 60.0, stop.wait)
    assert (tmp_path / folder_lock.LOCK_NAME).exists()


def test_a_new_lock_is_put_back_where_another_contender_was_faster(tmp_path):
    """It had read the lock of one that is gone; the one that it then found belongs to a living process."""
    path = tmp_path / folder_lock.LOCK_NAME
    path.write_bytes(b"the new one")
    assert not folder_lock._move_aside(str(path), b"the old one")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [(folder_lock.LOCK_NAME, b"the new one")]
    assert folder_lock._move_aside(str(path), b"the new one")
    assert folder_lock._move_aside(str(path), b"the new one"), "another one has removed it"


def test_of_many_contenders_one_has_the_lock_in_the_end(tmp_path):
    """All have seen that its holder is gone. One that made a lock and lost it finds another's there, and ends."""
    path = tmp_path / folder_lock.LOCK_NAME
    path.write_bytes(content(machine="another"))
    barrier, made = threading.Barrier(8), []

    def contend(number):
        barrier.wait(30)
        if folder_lock._move_aside(str(path), content(machine="another")):
            try:
                with open(path, "x", encoding="utf-8") as file:
                    file.write(str(number))
                made.append(str(number))
            except FileExistsError:
                return

    threads = [threading.Thread(target=contend, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert path.read_text() in made
    assert list(tmp_path.iterdir()) == [path]
