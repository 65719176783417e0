"""Workers that find each other before TensorFlow starts."""

from __future__ import annotations

import threading

import pytest

from ps_train.cluster.spec import Task
from ps_train.errors import ClusterLostError
from ps_train.parts.keras import strategies
from tests.processes import free_ports, is_open


@pytest.fixture
def workers():
    """Three tasks of this machine."""
    return [Task("worker", index, f"localhost:{port}") for index, port in enumerate(free_ports(3))]


def test_all_meet_in_any_order(workers, stop):
    """Each returns when it has seen the others; afterwards every port is free for TensorFlow."""
    errors = []

    def meet(this_task):
        try:
            strategies.meet(this_task, [task for task in workers if task != this_task], 30, stop)
        except ClusterLostError as error:
            errors.append(error)
        finally:
            # As TensorFlow's server would do: a worker that is late still finds this one.
            listeners.append(strategies._accepting(int(this_task.address.rpartition(":")[2])))

    listeners = []
    threads = [threading.Thread(target=meet, args=(task,)) for task in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    for listener in listeners:
        listener.close()
    assert errors == []
    assert not any(is_open(int(task.address.rpartition(":")[2])) for task in workers)


def test_missing_tasks_are_named(workers, stop):
    """All of them, and the port is free again."""
    with pytest.raises(ClusterLostError, match=r"0.3 s for worker:1 localhost:\d+, worker:2 localhost:\d+"):
        strategies.meet(workers[0], workers[1:], 0.3, stop)
    assert not is_open(int(workers[0].address.rpartition(":")[2]))


def test_a_wait_that_holds_pythons_lock_is_ended(start_process, tmp_path):
    """SIGALRM ends the process, after it has printed where it stood; a block that ends in time is left alone."""
    (tmp_path / "waiting.py").write_text(
        "import ctypes; from ps_train.parts.keras.strategies import bounded_without_python as bounded\n"
        "with bounded(60): pass\n"
        "with bounded(0.3): ctypes.PyDLL(None).sleep(30)\n")
    start_process.start("waiting", [], script=str(tmp_path / "waiting.py"))
    assert start_process.exit_code("waiting", 25) == -14
    log = start_process.log("waiting")
    assert "Timeout (0:00:00.3" in log and "line 3" in log
