"""Workers that share a GPU: they compute on it, and the ps on its CPU. Skipped on a machine without an NVIDIA GPU."""

from __future__ import annotations

import glob
import json
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not glob.glob("/dev/nvidia[0-9]*"), reason="needs an NVIDIA GPU")
DEADLINE_SECS = 180


def launch(folder, *flags):
    """Returns the output of a training with 1 ps and 2 workers that ended with 0."""
    command = [sys.executable, "-m", "ps_train", "launch", "--num_ps=1", "--num_workers=2", "--train_steps=300",
               "--profile_steps=100:110", f"--train_dir={folder}/train", *flags]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=DEADLINE_SECS,
                          cwd=folder, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


def devices_of_matmul(folder):
    """Returns on which devices the first worker's timeline shows a matrix product."""
    [timeline] = (folder / "train" / "profile").glob("worker-0-*.json")
    events = json.loads(timeline.read_text())["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    return {name for event in events if event.get("args", {}).get("op", "").endswith("MatMul")
            for name in re.findall(r"/job:\w+/.*/device:\w+:\d+", names[event["pid"]])}


@pytest.mark.parametrize("flags", [
    (), ("--sync_replicas",), ("--communication_period=4",), ("--staleness_bound=4",)])
def test_workers_compute_on_the_gpu(tmp_path, flags):
    """Two workers on one GPU, of whose memory each takes only what it needs."""
    output = launch(tmp_path, "--dataset=data.digits", *flags)
    assert "worker:0 computes on /device:GPU:0" in output and "worker:1 computes on /device:GPU:0" in output
    assert float(re.findall(r"accuracy = ([\d.]+)", output)[-1]) > 0.9
    found = devices_of_matmul(tmp_path)
    assert found and all("/job:worker/" in name and "GPU:0" in name for name in found), found


def test_without_a_gpu_if_so_asked(tmp_path):
    """--num_gpus=0."""
    assert "worker:0 computes on /device:CPU:0" in launch(tmp_path, "--dataset=data.digits", "--num_gpus=0")
    found = devices_of_matmul(tmp_path)
    assert found and all("CPU:0" in name for name in found), found


def test_rows_of_a_table(tmp_path):
    """Rows are looked up and updated on the ps; what the model makes of them is computed on the GPU."""
    output = launch(tmp_path, "--model=models.deepfm", "--dataset=data.clicks",
                    "--params=vocab=1000,group=26,dim=8,layers=32")
    assert re.search(r"auc = 0\.\d+", output), output
    found = devices_of_matmul(tmp_path)
    assert found and all("GPU:0" in name for name in found), found
