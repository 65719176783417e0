"""Early stopping, the best checkpoint and predictions in several processes, with real tasks."""

from __future__ import annotations

import json
import re
import shutil

from ps_train.parts.control import history
from ps_train.storage import journal
from tests.processes import REPO, TaskCluster

_FLAGS = ["--model=served", "--dataset=served", "--train_steps=100000000", "--eval_steps=1", "--log_steps=0",
          "--early_stopping=constant:1", "--keep_best=constant", "--export_dir=exported", "--learning_rate=0.001",
          "--params=batch_secs=0.02"]


def test_early_stopping_ends_every_task_with_0_and_a_process_each_predicts_in_order(tmp_path, start_process):
    """The metric never becomes better, so the second evaluation ends a training of 10^8 steps; the chief evaluates."""
    shutil.copy(REPO / "tests/plugins/served.py", tmp_path)
    cluster = TaskCluster(1, 2)
    cluster.start(start_process, [*_FLAGS, f"--train_dir={tmp_path}/train"], cwd=tmp_path)
    assert start_process.wait() == {"ps-0": 0, "worker-0": 0, "worker-1": 0}
    log = start_process.log("worker-0")
    assert "early stopping: constant was best with 1 at step" in log
    for name in ("worker-0", "worker-1"):
        assert re.search(r"training ended at step \d+: early stopping: constant was best", start_process.log(name))
    *_, saved, end = [event for event in journal.read_journal(str(tmp_path / "train"))
                      if event["event"] in ("checkpoint", "end")]
    assert end["why"].startswith("early stopping: constant was best with 1 at step") and end["step"] == saved["step"]
    assert history.read_ending(str(tmp_path / "train")).state == history.STOPPED_EARLY
    assert "best constant: 1 at step" in log and "--checkpoint=best` takes it" in log
    record = json.loads((tmp_path / "train/selection.json").read_text())
    [best] = (tmp_path / "train/best").glob("*.index")
    assert best.name.startswith("model.ckpt-")
    assert record["early_stopping"]["value"] == 1 and record["early_stopping"]["num_worse"] >= 1
    for name in ("best", "final"):
        assert len(list((tmp_path / "exported" / name).iterdir())) == 1
    for count in (1, 2):
        start_process.start(f"predict-{count}", [
            "predict", f"--train_dir={tmp_path}/train", "--checkpoint=best", f"--output={tmp_path}/{count}.csv",
            f"--num_processes={count}"], cwd=tmp_path)
    assert set(start_process.wait().values()) == {0}
    assert (tmp_path / "1.csv").read_text() == (tmp_path / "2.csv").read_text()
    assert len((tmp_path / "1.csv").read_text().splitlines()) == 65
