"""A chief that is killed in the middle of an upload to S3, with real processes and moto's server."""

from __future__ import annotations

import shutil
import signal

import pytest

from tests.s3_server import BUCKET, SECRET, serving_s3

pytest.importorskip("s3fs", reason="s3fs is not installed")

@pytest.fixture
def s3(monkeypatch, tmp_path):
    """The server; tasks find it, and credentials, in their environment."""
    with serving_s3(monkeypatch, tmp_path, held=".data-") as server:
        yield server


@pytest.fixture
def train_to_s3(train, s3):
    """A function that starts a ps and a worker which train to a folder with a space in its name, and returns them."""
    def start(*flags):
        training = train(num_ps=1, num_workers=1, absent=("ps-0", "worker-0"))
        training.flags = [flag for flag in training.flags if not flag.startswith("--train_dir")]
        training.flags += [f"--train_dir=s3://{BUCKET}/my run", *flags]
        for job in ("ps", "worker"):
            training.start(job, 0)
        return training

    return start


def test_a_chief_killed_in_an_upload_leaves_the_checkpoint_before_to_another_machine(train_to_s3, s3, tmp_path):
    """In that of the last one, when all steps are taken: the ps wait for the new chief; no log has the secret."""
    training = train_to_s3("--save_model_secs=1")
    training.wait_for_gates("worker-0")
    training.group.wait_for_line("worker-0", f"uploaded s3://{BUCKET}/")
    s3.is_open.clear()
    training.open_gates()
    training.group.wait_for_line("worker-0", "evaluating")
    assert s3.reached.wait(60)
    training.group.kill("worker-0")
    s3.is_open.set()
    assert "my run/upload.json" in s3.names()
    shutil.rmtree(tmp_path / "ps_train")  # as on another machine
    training.start("worker", 0, "again")
    assert training.group.exit_code("again") == 0
    assert training.group.exit_code("ps-0") == 0
    assert f"my run/model.ckpt-{training.train_steps}.manifest.json" in s3.names()
    assert not {"my run/upload.json", "my run/training.lock"} & s3.names()
    assert SECRET not in training.group.logs()


def test_a_stopped_chief_uploads_its_last_checkpoint_first(train_to_s3, s3):
    """Within --stop_timeout_secs; it says from where the training continues: not from the folder on its machine."""
    training = train_to_s3("--save_model_secs=0")
    training.wait_for_gates("worker-0")
    training.open_gates()
    for name in ("worker-0", "ps-0"):
        training.group.signal(name, signal.SIGTERM)
    assert training.group.exit_code("worker-0") == 143
    assert f"--train_dir=s3://{BUCKET}/my run" in training.group.log("worker-0").replace("'", "")
    assert [name for name in s3.names() if name.endswith(".manifest.json")]
