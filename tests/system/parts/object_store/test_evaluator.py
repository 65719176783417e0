"""An evaluator whose train_dir is a URL."""

from __future__ import annotations

import pytest

from tests.processes import TaskCluster

pytest.importorskip("fsspec", reason="the extra `stores` is not installed")


def test_an_evaluator_that_sleeps_through_the_end_evaluates_the_last_checkpoint_of_the_store(
    tmp_path, start_process, monkeypatch
):
    """The ps have ended when it wakes up; the chief's journal in the store says that training is over.

    The chief keeps the best checkpoint: an evaluator writes nothing but its summaries there.
    """
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    cluster, run = TaskCluster(1, 1), tmp_path / "store/my run"
    flags = [*cluster.flags("worker", 0)[:2], "--model=tests.plugins.tiny", "--dataset=tests.plugins.tiny",
             "--train_steps=20", f"--train_dir=file://{run}", "--keep_best=loss",
             f"--params=gate={tmp_path}/gate,gate_batch=10", "--log_steps=1"]
    for job in ("ps", "worker", "evaluator"):
        start_process.start(job, [*flags, f"--job_name={job}"])
    start_process.wait_for_line("evaluator", "After ")
    start_process.pause("evaluator")
    (tmp_path / "gate.0").touch()
    assert [start_process.exit_code(job) for job in ("worker", "ps")] == [0, 0]
    start_process.resume("evaluator")
    assert start_process.exit_code("evaluator") == 0
    assert "After 20 training steps" in start_process.log("evaluator")
    assert (run / "best/model.ckpt-20.index").exists()
    assert len(list((run / "eval").iterdir())) >= 2
    assert not list(tmp_path.glob("ps_train-*")), "the folder of the evaluator is left"
