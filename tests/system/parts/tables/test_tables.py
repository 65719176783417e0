"""Embedding tables of real tasks, which are killed, or have an id that their table cannot have."""

from __future__ import annotations

import re
import shutil

from tests import soak
from tests.processes import REPO, TaskCluster
from tests.sharded import Sharded


def test_tables_with_deltas_outlive_a_ps_a_worker_and_the_chief_in_the_midst_of_a_save(tmp_path, start_process):
    """Each line counts once an epoch in the rows and in the dense parameters, and besides as the logs say.

    The tasks share no folder, so the rows pass through the chief.
    """
    training = Sharded(tmp_path, start_process, ["--save_model_secs=1000", "--save_delta_secs=1"], batch_secs=0.3,
                       num_ps=2, params=",rows_per_line=1000", has_own_folders=True)
    start_process.wait_for_line("worker-0.1", ".delta-")
    training.kill("ps-1")
    training.start("ps-1")
    start_process.wait_for_line("worker-0.1", "restoring all ps from ")
    restored = re.findall(r"restoring all ps from (\S+)", start_process.log("worker-0.1"))
    assert restored and ".delta-" in restored[0]
    training.kill("worker-1")
    training.start("worker-1")
    training.wait_until_begun(1)
    training.wait_until_saving()
    training.kill("worker-0")
    assert training.saves_under_way(), "it was not in the midst of a save"
    training.start("worker-0")
    training.assert_ends_well()
    assert "the ps cannot use the files in train; " in start_process.log("worker-0.2")
    assert not list(tmp_path.glob("ps-*/*"))
    assert not training.saves_under_way()
    training.assert_counts_fit(training.saved_counts())
    training.assert_counts_fit(training.saved_rows())


def test_with_async_embeddings_a_worker_the_chief_and_a_ps_may_die(tmp_path):
    """Each is started again; no update is applied twice, and none lost but what the matrix of faults says."""
    options = soak.Options(mode="tables_hybrid", history=True, train_steps=150)
    with soak.Round(options, tmp_path) as disturbed:
        disturbed.run([soak.Fault(30, "worker-1", 0.0), soak.Fault(60, "worker-0", 0.0), soak.Fault(90, "ps-1", 0.0)])
    assert disturbed.num_kills == 3


def test_an_id_out_of_range_ends_the_task_with_one_line(tmp_path, start_process):
    """The exit code is 1, and the line has the table, the feature, the id and what is allowed."""
    for name in ("looking_too_far", "tiny"):
        shutil.copy(REPO / f"tests/plugins/{name}.py", tmp_path)
    TaskCluster(1, 1).start(
        start_process, ["--model=looking_too_far", "--dataset=tiny", "--batch_size=16", "--train_steps=40",
                        f"--train_dir={tmp_path}/train"], cwd=tmp_path)
    assert start_process.wait()["worker-0"] == 1
    log = start_process.logs()
    assert "table rows: sign has the id 1; allowed: 0 to 0; " in log and "[bad_id]" in log
    assert "Traceback" not in log
