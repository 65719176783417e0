"""Unchanged scripts of further kinds: Estimator, contrib.learn, Keras under MultiWorkerMirroredStrategy."""

from __future__ import annotations

import pytest

from tests.system.parts.legacy.scripts import ScriptCluster


@pytest.mark.parametrize("kind", [[], ["--canned"]], ids=["custom", "canned"])
def test_an_estimator_trains_in_a_cluster_and_its_evaluator_evaluates_the_last_checkpoint(
        start_process, tmp_path, kind):
    """train_and_evaluate with chief, worker, ps and, for the custom one, an evaluator."""
    cluster = ScriptCluster(start_process, "estimator_script.py", [f"--model_dir={tmp_path}/model", *kind], chief=True,
                            evaluator=not kind)
    cluster.assert_ends_well()
    assert "chief 0 ends" in start_process.log("chief-0") and "worker 0 ends" in start_process.log("worker-0")
    from tests import clusters  # noqa: PLC0415 (it imports TensorFlow, which the processes need and this one does not)

    last_step = clusters.read_checkpoint(tmp_path / "model")["global_step"]
    assert last_step >= 60
    if not kind:
        assert f"global step {last_step}: accuracy" in start_process.log("evaluator-0")


def test_an_experiment_of_contrib_learn_trains(start_process, tmp_path):
    """Its RunConfig takes worker 0 for the chief, where tf.estimator's needs a task of that name."""
    cluster = ScriptCluster(start_process, "learn_script.py", [f"--job-dir={tmp_path}/model"])
    cluster.assert_ends_well()
    assert "the experiment ends" in start_process.log("worker-0")
    assert (tmp_path / "model" / "checkpoint").exists()


def test_a_keras_script_trains_with_keras_2(start_process, tmp_path):
    """MultiWorkerMirroredStrategy needs it on today's TensorFlow; the checkpoints are in TensorFlow's format."""
    cluster = ScriptCluster(start_process, "keras_strategy.py", [str(tmp_path)], num_ps=0)
    cluster.assert_ends_well()
    for worker in (0, 1):
        assert f"worker {worker} ends with tf_keras" in start_process.log(f"worker-{worker}")
    assert (tmp_path / "worker0" / "ckpt_2.index").exists()  # the other worker's are temporary
