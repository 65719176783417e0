"""What is around a training may fail too: where it prints, who can reach it; and it ends every time."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from tests import clusters, processes
from tests.processes import REPO, TaskCluster
from tests.training import MODES

REPEATS = int(os.environ.get("PS_TRAIN_REPEATS", "3"))


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_a_full_disk_under_the_logs_does_not_end_training(tmp_path, start_process, mode):
    """Matrix row 52: no task can print a line; all exit 0, and the last step is saved."""
    shutil.copy(REPO / "tests/plugins/tiny.py", tmp_path)
    TaskCluster(2, 2).start(
        start_process, ["--model=tiny", "--dataset=tiny", "--batch_size=16", "--log_steps=1", "--train_steps=60",
                        f"--train_dir={tmp_path}/train", *mode], cwd=tmp_path, log_path="/dev/full")
    assert set(start_process.wait().values()) == {0}
    assert clusters.read_checkpoint(tmp_path / "train")["global_step"] >= 60
    assert [path.name for path in (tmp_path / "train/eval").iterdir()], "the evaluation was written"


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_every_one_of_many_trainings_ends(tmp_path, start_process, mode):
    """Matrix row 55: 1 ps and 2 workers, again and again (PS_TRAIN_REPEATS says how often): 0, no process, no port."""
    shutil.copy(REPO / "tests/plugins/tiny.py", tmp_path)
    for number in range(REPEATS):
        cluster = TaskCluster(1, 2)
        for job, index in cluster.tasks():
            start_process.start(f"{job}-{index}-{number}", [
                *cluster.flags(job, index), "--model=tiny", "--dataset=tiny", "--batch_size=16", "--train_steps=40",
                f"--train_dir={tmp_path}/train-{number}", *mode], cwd=tmp_path)
        assert set(start_process.wait().values()) == {0}
        assert [port for port in cluster.ports if processes.is_open(port)] == []


def _cannot_isolate() -> str:
    """Returns why this machine lets nobody make a network of his own, "" where it does."""
    if sys.platform != "linux" or shutil.which("unshare") is None or shutil.which("ip") is None:
        return "needs Linux, unshare and ip"
    tried = subprocess.run(["unshare", "--net", "ip", "link", "set", "lo", "up"], capture_output=True, text=True)
    return tried.stderr.strip()


def test_nobody_outside_reaches_a_cluster_in_a_network_of_its_own(tmp_path):
    """Matrix row 53: TensorFlow's servers trust whoever connects, so the network must not; as docs/faults.md shows."""
    if why := _cannot_isolate():
        pytest.skip(why)
    shutil.copy(REPO / "tests/plugins/tiny.py", tmp_path)
    gate = tmp_path / "gate.0"
    command = ["unshare", "--net", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh", sys.executable, "-m",
               "ps_train", "launch", "--num_ps=1", "--num_workers=1", "--model=tiny", "--dataset=tiny",
               "--batch_size=16", "--log_steps=10", "--train_steps=60", f"--train_dir={tmp_path}/train",
               f"--params=gate={tmp_path}/gate,gate_batch=30"]
    log_path = tmp_path / "log"
    with open(log_path, "wb") as log, subprocess.Popen(
            command, cwd=tmp_path, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": str(REPO)}) as launched:
        try:
            processes.wait_for_text(log_path, "worker:0 | step 30 of", launched)
            ports = [int(port) for port in set(re.findall(r"localhost:(\d+)", log_path.read_text()))]
            assert len(ports) == 2
            assert [port for port in ports if processes.is_open(port)] == []
            inside = f"import socket; [socket.create_connection(('localhost', port)) for port in {ports}]"
            _run_beside(launched.pid, [sys.executable, "-c", inside])
            gate.touch()
            assert launched.wait(processes.DEADLINE_SECS) == 0, log_path.read_text()
        finally:
            launched.kill()


def _run_beside(pid: int, command: list[str]) -> None:
    """Runs a command in the network of a process."""
    subprocess.run(["nsenter", f"--net=/proc/{pid}/ns/net", *command], check=True, timeout=processes.DEADLINE_SECS)


def test_a_server_says_that_it_trusts_whoever_connects(train):
    """Matrix row 53: each task says so in its first line, as TensorFlow has neither authentication nor encryption."""
    training = train(1, 1)
    for name in ("ps-0", "worker-0"):
        line = training.group.wait_for_line(name, "serves at")
        assert "on every network interface and without authentication" in line
    assert "Keep the ports inside a private network" in pathlib.Path(REPO / "README.md").read_text()
