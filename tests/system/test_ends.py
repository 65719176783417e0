"""What is around a training may fail too: where it prints, who can reach it; and it ends every time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests import clusters, processes
from tests.processes import REPO, TaskCluster
from tests.training import MODES

REPEATS = int(os.environ.get("PS_TRAIN_REPEATS", "2"))


def test_a_full_disk_under_the_logs_does_not_end_training(tmp_path, start_process):
    """Matrix row 52: no task can print a line; all exit 0, and the last step is saved."""
    shutil.copy(REPO / "tests/plugins/tiny.py", tmp_path)
    TaskCluster(1, 2).start(
        start_process, ["--model=tiny", "--dataset=tiny", "--batch_size=16", "--log_steps=1", "--train_steps=60",
                        f"--train_dir={tmp_path}/train", "--sync_replicas"], cwd=tmp_path, log_path="/dev/full")
    assert set(start_process.wait().values()) == {0}
    assert clusters.read_checkpoint(tmp_path / "train")["global_step"] >= 60
    assert [path.name for path in (tmp_path / "train/eval").iterdir()], "the evaluation was written"


def test_tasks_with_closed_output_train(train):
    """A daemon's: nothing that they open, such as a server's socket, takes the numbers of stdout and stderr."""
    training = train(1, 1, before=["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"])
    training.open_gates()
    training.assert_ends_well()
    assert [training.group.log(name) for name in ("ps-0", "worker-0")] == ["", ""]


def assert_trust_is_told(logs):
    """Matrix row 53: the chief says that servers trust whoever connects, and each task where it is reached."""
    for name, log in logs.items():
        [line] = [line for line in log.splitlines() if "serves at" in line]
        assert "which others reach at" in line
        assert ("all tasks serve without authentication" in line) is (name == "worker-0")


def test_every_one_of_many_trainings_ends(tmp_path, start_process):
    """Matrix row 55: 1 ps and 2 workers, PS_TRAIN_REPEATS times, in each mode in turn: 0, no process, no port."""
    shutil.copy(REPO / "tests/plugins/tiny.py", tmp_path)
    for number in range(REPEATS):
        cluster, mode = TaskCluster(1, 2), [*MODES.values()][number % len(MODES)]
        for job, index in cluster.tasks():
            start_process.start(f"{job}-{index}-{number}", [
                *cluster.flags(job, index), "--model=tiny", "--dataset=tiny", "--batch_size=16", "--train_steps=40",
                f"--train_dir={tmp_path}/train-{number}", *mode], cwd=tmp_path)
        assert set(start_process.wait().values()) == {0}
        assert_trust_is_told({name: start_process.log(f"{name}-{number}") for name in ("ps-0", "worker-0", "worker-1")})
        assert [port for port in cluster.ports if processes.is_open(port)] == []


def _cannot_isolate() -> str:
    """Returns why this machine does not let a user make a network namespace, or ""."""
    if sys.platform != "linux" or shutil.which("unshare") is None or shutil.which("ip") is None:
        return "needs Linux, unshare and ip"
    tried = subprocess.run(["unshare", "--net", "ip", "link", "set", "lo", "up"], capture_output=True, text=True)
    return tried.stderr.strip()


@pytest.fixture
def own_network():
    """The begin of a command that runs it in a network namespace which nothing outside can reach."""
    if why := _cannot_isolate():
        pytest.skip(why)
    with subprocess.Popen(["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec sleep 600"],
                          stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"up\n"
        yield ["nsenter", f"--net=/proc/{holder.pid}/ns/net"]
        holder.kill()


def test_nobody_outside_reaches_a_cluster_in_a_network_of_its_own(train, own_network):
    """Matrix row 53: TensorFlow's servers trust every client, so the network must not; see docs/faults.md."""
    training = train(1, 1, before=own_network)
    training.wait_for_gates()
    ports = training.cluster.ports
    assert [port for port in ports if processes.is_open(port)] == []
    inside = f"import socket; [socket.create_connection(('localhost', port)) for port in {ports}]"
    subprocess.run([*own_network, sys.executable, "-c", inside], check=True, timeout=processes.DEADLINE_SECS)
    training.open_gates()
    training.assert_ends_well()
