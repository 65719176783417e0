"""`ps_train keras` as several processes: they train together, end together, and resume after a loss."""

from __future__ import annotations

import ast
import collections
import io
import pathlib
import re
import shutil
import signal
import threading
import time
import zipfile

import h5py
import pytest
import tensorflow as tf

from ps_train.cluster.spec import Cluster
from tests import processes
from tests.errors import raises
from tests.processes import DEADLINE_SECS, REPO

pytest.importorskip("tf_keras", reason="Keras training needs the extra `keras`")

from ps_train.parts.keras import task

MIRRORED = ["keras", "--strategy=multi_worker_mirrored", "--job_name=worker", "--save_summaries_steps=0"]


@pytest.fixture
def hosts():
    """The addresses of two workers, as the flag has them."""
    return ",".join(f"localhost:{port}" for port in processes.free_ports(2))


def test_a_killed_worker_is_restarted_and_training_resumes(start_process, tmp_path, hosts):
    """kill -9 of one: the other ends with 138 and names it; both again: from the checkpoint to the end."""
    for plugin in ("tiny.py", "keras_tiny.py"):
        shutil.copy(REPO / "tests/plugins" / plugin, tmp_path)
    flags = [*MIRRORED, f"--worker_hosts={hosts}", "--model=keras_tiny", "--dataset=keras_tiny", "--batch_size=8",
             "--log_steps=10", "--train_steps=100", "--steps_per_epoch=50", "--save_model_steps=10",
             "--learning_rate=0.1", f"--params=gate={tmp_path}/gate,gate_batch=40", f"--train_dir={tmp_path}/train"]

    def start(life):
        for index in range(2):
            start_process.start(f"{life}-{index}", [*flags, f"--task_index={index}"], cwd=tmp_path)

    start("first")
    start_process.wait_for_line("first-0", "step 20 of 100")
    start_process.kill("first-1")
    pathlib.Path(f"{tmp_path}/gate.0").touch()
    assert start_process.exit_code("first-0") == 138
    last = start_process.log("first-0").splitlines()[-1]
    assert f"worker:1 {hosts.split(',')[1]}" in last and last.endswith("[task_lost]")
    start("second")
    assert [start_process.exit_code(f"second-{index}") for index in range(2)] == [0, 0]
    output = start_process.log("second-0")
    assert "multi_worker_mirrored: 2 replicas, batch size 8 per replica, 16 in all; 2 workers" in output
    [restored] = re.findall(r"restored \S+/ckpt-0*(\d+)\.keras", output)
    assert int(restored) in (10, 20, 30, 40)
    assert "After 100 training steps, on 640 held-out examples:" in output
    assert "After" not in start_process.log("second-1")


def values_at_start(output):
    """Returns layer/variable -> the values on a worker's device with which training began; see keras_norm.py."""
    found = re.findall(r"^at the start: (\S+):0 (\[.*\])$", output, re.MULTILINE)
    return {name: ast.literal_eval(values) for name, values in found}


def values_in(path, names):
    """Returns the same of a checkpoint, in which a layer's variables are numbered."""
    values, numbers = {}, collections.Counter()
    with zipfile.ZipFile(path) as file, h5py.File(io.BytesIO(file.read("model.weights.h5"))) as store:
        for name in names:
            layer = name.partition("/")[0]
            values[name] = store[f"layers/{layer}/vars/{numbers[layer]}"][()].ravel().tolist()
            numbers[layer] += 1
    return values


def assert_restored(*outputs):
    """Each worker begins with the values in the checkpoint, and with its share of a sum over the workers."""
    [(path, step)] = re.findall(r"restored (\S+/ckpt-0*(\d+)\.keras)", outputs[0])
    for output in outputs:
        values = values_at_start(output)
        restored = values_in(path, values)
        assert restored["counter/seen"] == [16 * int(step)] and restored["counter/own"] == [8 * int(step)]
        restored["counter/seen"] = [8 * int(step)]
        assert values == restored


def assert_epochs_agree(first, second):
    """The callbacks of both workers see the same metrics, also those of a replica's own.

    Issue: ReduceLROnPlateau(monitor="loss") for a model with a train_step of its own gave the workers different rates.
    """
    shown = [re.findall(r"^at the end: (.*)$", output, re.MULTILINE) for output in (first, second)]
    assert shown[0] == shown[1] and "'own'" in shown[0][-1] and "'val_loss'" in shown[0][-1]


def test_moving_averages_are_restored_on_each_worker(start_process, tmp_path, hosts):
    """Issue: no model with BatchNormalization could begin, as one worker read alone what all of them must read.

    It begins, resumes after a `kill -9` and after SIGTERM, and ends.
    """
    for plugin in ("tests/plugins/tiny.py", "tests/system/parts/keras/keras_norm.py"):
        shutil.copy(REPO / plugin, tmp_path)
    flags = [*MIRRORED, f"--worker_hosts={hosts}", "--model=keras_norm", "--dataset=keras_norm", "--batch_size=8",
             "--log_steps=10", "--train_steps=100", "--steps_per_epoch=50", "--save_model_steps=10",
             "--keep_checkpoint_max=20", f"--params=gate={tmp_path}/gate,gate_batch=40",
             f"--train_dir={tmp_path}/train"]

    def start(life):
        for index in range(2):
            start_process.start(f"{life}-{index}", [*flags, f"--task_index={index}"], cwd=tmp_path,
                                env={"TINY_GATE": life})

    start("killed")
    start_process.wait_for_line("killed-0", "step 20 of 100")
    start_process.kill("killed-1")
    (tmp_path / "gate.killed").touch()
    assert start_process.exit_code("killed-0") == 138
    start("stopped")
    start_process.wait_for_line("stopped-0", " of 100  loss")
    for index in range(2):
        start_process.signal(f"stopped-{index}", signal.SIGTERM)
    (tmp_path / "gate.stopped").touch()
    assert [start_process.exit_code(f"stopped-{index}") for index in range(2)] == [143, 143]
    (tmp_path / "gate.whole").touch()
    start("whole")
    assert [start_process.exit_code(f"whole-{index}") for index in range(2)] == [0, 0]
    assert "After 100 training steps, on 640 held-out examples:" in start_process.log("whole-0")
    assert_epochs_agree(*(start_process.log(f"whole-{index}") for index in range(2)))
    for life in ("stopped", "whole"):
        assert_restored(*(start_process.log(f"{life}-{index}") for index in range(2)))


def test_a_worker_that_is_still_dying_is_named(monkeypatch):
    """Its connections may be closed before its port is."""
    answers = iter([True, True, False])
    monkeypatch.setattr(task.reachability, "accepts", lambda _: next(answers))
    cluster = Cluster("worker", 0, {"worker": {0: "a:1", 1: "b:2"}})
    with raises("task_lost") as caught, task._explaining_losses(cluster, "train_dir", threading.Event()):
        raise tf.errors.UnavailableError(None, None, "Connection reset by peer")
    assert "worker:1 b:2 cannot be reached" in str(caught.value)


def test_an_absent_worker_is_named(start_process, tmp_path, hosts):
    """TensorFlow would wait for ever; exit code 138."""
    start_process.start("worker-0", [*MIRRORED, f"--worker_hosts={hosts}", "--task_index=0", "--dataset=data.digits",
                                     "--start_timeout_secs=1", f"--train_dir={tmp_path}"])
    assert start_process.exit_code("worker-0") == 138
    assert f"1 s for worker:1 {hosts.split(',')[1]}" in start_process.log("worker-0").splitlines()[-1]


def test_sigterm_is_heard_while_a_worker_waits(start_process, tmp_path, hosts):
    """Exit code 143; the message names the task that it waited for."""
    start_process.start("worker-0", [*MIRRORED, f"--worker_hosts={hosts}", "--task_index=0", "--dataset=data.digits",
                                     f"--train_dir={tmp_path}"])
    port, end_secs = int(hosts.split(",")[0].split(":")[1]), time.monotonic() + DEADLINE_SECS
    while not processes.is_open(port):  # it waits for the other worker then
        assert time.monotonic() < end_secs
        time.sleep(0.05)
    start_process.signal("worker-0", signal.SIGTERM)
    assert start_process.exit_code("worker-0") == 143
    assert f"worker:1 {hosts.split(',')[1]}" in start_process.log("worker-0").splitlines()[-1]


def test_launch_runs_a_parameter_server_cluster_to_its_end(start_process, tmp_path):
    """Coordinator, ps and workers as processes; the ps and workers, which TensorFlow never ends, exit 0 too."""
    start_process.start("launch", [
        "launch", "keras", "--strategy=parameter_server", "--num_ps=1", "--dataset=data.digits", "--train_steps=200",
        "--steps_per_epoch=100", f"--train_dir={tmp_path}/train"])
    assert start_process.exit_code("launch") == 0
    output = start_process.log("launch")
    assert re.search(r"^Exit codes: ps:0 0 .*, chief:0 0 .*, worker:0 0 .*, worker:1 0 ", output, re.MULTILINE)
    assert "parameter_server: 2 workers and 1 ps" in output
    assert float(re.search(r"chief:0  \|   accuracy = (\S+)", output)[1]) > 0.9


def test_training_data_that_end_are_the_coordinators_error(start_process, tmp_path):
    """With exit code 1, not as a loss of all other tasks with 138."""
    for plugin in ("tiny.py", "keras_tiny.py"):
        shutil.copy(REPO / "tests/plugins" / plugin, tmp_path)
    start_process.start("launch", [
        "launch", "keras", "--strategy=parameter_server", "--num_ps=1", "--num_workers=1", "--model=keras_tiny",
        "--dataset=keras_tiny", "--batch_size=16", "--params=repeat=false", "--train_steps=200",
        f"--train_dir={tmp_path}/train"], cwd=tmp_path)
    assert start_process.exit_code("launch") == 1, start_process.log("launch")
    assert "[training_data_ended]" in start_process.log("launch")
