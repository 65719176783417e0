"""`ps_train keras` with the URL of a folder in a store as its --train_dir."""

from __future__ import annotations

import re
import shutil

import pytest

from tests import processes
from tests.processes import REPO

pytest.importorskip("tf_keras", reason="Keras training needs the extra `keras`")
pytest.importorskip("s3fs", reason="s3fs is not installed")

from tests.s3_server import BUCKET, SECRET, serving_s3

# Shows the state from which each worker goes on.
_SHOWING = """
import hashlib

import tf_keras
from keras_tiny import DEFAULT_PARAMS, build_model, input_fn


def make_callbacks(params):
    def show(logs):
        model = callback.model
        values = [value.numpy().tobytes() for value in [*model.weights, *model.optimizer.variables]]
        print("state", hashlib.sha256(b"".join(values)).hexdigest(), flush=True)

    callback = tf_keras.callbacks.LambdaCallback(on_train_begin=show)
    return [callback]
"""


@pytest.fixture
def s3(monkeypatch, tmp_path):
    """A server that can hold back the files of checkpoints."""
    with serving_s3(monkeypatch, tmp_path, held=".keras") as server:
        yield server


@pytest.fixture
def start(start_process, tmp_path):
    """A function that starts two workers, each with a folder of its own for temporary files."""
    for plugin in ("tiny.py", "keras_tiny.py"):
        shutil.copy(REPO / "tests/plugins" / plugin, tmp_path)
    (tmp_path / "showing.py").write_text(_SHOWING)
    hosts = ",".join(f"localhost:{port}" for port in processes.free_ports(2))
    flags = ["keras", "--strategy=multi_worker_mirrored", "--job_name=worker", f"--worker_hosts={hosts}",
             "--model=showing", "--dataset=keras_tiny", "--batch_size=8", "--log_steps=10", "--steps_per_epoch=50",
             "--save_model_steps=10", "--save_summaries_steps=0", "--train_steps=100", "--learning_rate=0.1",
             f"--train_dir=s3://{BUCKET}/my run", f"--params=gate={tmp_path}/gate,gate_batch=40"]

    def start_workers(life: str) -> None:
        for index in range(2):
            folder = tmp_path / f"machine-{index}"
            folder.mkdir(exist_ok=True)
            rights = {} if index == 0 else {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
            start_process.start(f"{life}-{index}", [*flags, f"--task_index={index}"], cwd=tmp_path,
                                env={"TMPDIR": str(folder), **rights})

    return start_workers


def test_workers_without_a_shared_folder_go_on_from_the_checkpoint_before_a_killed_upload(
    start, start_process, s3, tmp_path
):
    """The chief is killed in an upload, and loses its folder. The other worker gets its exact state."""
    start("first")
    start_process.wait_for_line("first-0", f"uploaded s3://{BUCKET}/my run/ckpt-")
    s3.is_open.clear()
    for index in range(2):
        (tmp_path / f"gate.{index}").touch()
    assert s3.reached.wait(60)
    start_process.kill("first-0")
    s3.is_open.set()
    assert start_process.exit_code("first-1") == 138
    assert "my run/upload.json" in s3.names()
    shutil.rmtree(tmp_path / "machine-0")
    start("second")
    assert [start_process.exit_code(f"second-{index}") for index in range(2)] == [0, 0]
    logs = [start_process.log(f"second-{index}") for index in range(2)]
    [restored] = re.findall(r"restored \S+/ckpt-0*(\d+)\.keras", logs[0])
    assert 10 <= int(restored) <= 40
    first, second = (re.findall(r"state (\w+)", log)[0] for log in logs)
    assert first == second
    kept = sorted(name.removeprefix("my run/") for name in s3.names() if "ckpt-" in name)
    assert kept[-2:] == ["ckpt-00000100.keras", "ckpt-00000100.manifest.json"]
    assert len({name.split(".")[0] for name in kept}) == len(kept) / 2 <= 5
    assert not {"my run/upload.json", "my run/training.lock"} & s3.names()
    assert SECRET not in start_process.logs()
