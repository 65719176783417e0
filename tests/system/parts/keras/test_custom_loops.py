"""Custom training loops instead of Model.fit, as a user runs them; each run has a deadline."""

from __future__ import annotations

import re
import shutil

import pytest

from tests.processes import DEADLINE_SECS, REPO

pytest.importorskip("tf_keras", reason="Keras training needs the extra `keras`")

DIGITS = ["--model=models.keras_step", "--dataset=data.digits", "--seed=1", "--save_summaries_steps=0"]
CLUSTER = {"multi_worker_mirrored": ["--num_workers=2"], "parameter_server": ["--num_ps=2", "--num_workers=1"]}
MIN_ACCURACY = 0.8  # of ten digits, after 100 steps; how far that is depends on the order in which updates arrive


def run(group, name, *flags, exit_code=0, **options):
    """Runs to the end, and returns what was printed."""
    group.start(name, list(flags), **options)
    assert group.exit_code(name, 3 * DEADLINE_SECS) == exit_code, group.log(name)  # up to five processes that compile
    return group.log(name)


def accuracy(output):
    """Returns the accuracy of the final report."""
    return float(re.search(r"^(?:\S+ +\|)? +accuracy = (\S+)$", output, re.MULTILINE)[1])


def loop_plugins(folder):
    """Puts the plug-in with a whole loop there."""
    for plugin in ("tiny.py", "keras_tiny.py", "keras_loop.py"):
        shutil.copy(REPO / "tests/plugins" / plugin, folder)
    return ["--model=keras_loop", "--dataset=keras_loop", "--batch_size=16", "--learning_rate=0.1", "--log_steps=10",
            "--save_summaries_steps=0", f"--train_dir={folder}/train"]


def test_a_training_step_runs_on_each_device(start_process, tmp_path):
    """On the devices that were named, several steps in an execution; it validates, saves, reports, and continues."""
    flags = ["keras", *DIGITS, "--strategy=mirrored", "--devices=cpu:0,cpu:1", "--cross_device_ops=reduction_to_one",
             "--steps_per_execution=7", "--steps_per_epoch=100", "--save_model_steps=50", "--learning_rate=0.01",
             f"--train_dir={tmp_path}/train"]
    output = run(start_process, "first", *flags, "--train_steps=110")
    assert "mirrored: 2 replicas, batch size 100 per replica, 200 in all; devices cpu:0,cpu:1; cross_d" in output
    assert "the loop of models.keras_step: from step 0 to step 110" in output
    assert re.search(r"step 105, on held-out data: loss \S+, accuracy \S+", output)
    assert "After 110 training steps, on 2000 held-out examples:" in output
    assert accuracy(output) > MIN_ACCURACY
    assert sorted(path.name for path in (tmp_path / "train").iterdir()) == [
        *(f"ckpt-{step:08d}.keras" for step in (56, 105, 110)), "training.json"]
    again = run(start_process, "again", *flags, "--train_steps=115")
    assert "from step 110 to step 115" in again and "After 115 training steps" in again


@pytest.mark.parametrize("strategy", CLUSTER)
def test_a_training_step_runs_on_each_worker(start_process, tmp_path, strategy):
    """As part of an all-reduce, or as closures of ClusterCoordinator, there on variables that are split."""
    partitioner = ["--variable_partitioner=fixed:2"] if strategy == "parameter_server" else []
    output = run(start_process, "launch", "launch", "keras", *DIGITS, f"--strategy={strategy}", *CLUSTER[strategy],
                 *partitioner, "--train_steps=100", "--steps_per_epoch=50", "--learning_rate=0.01",
                 f"--train_dir={tmp_path}/train")
    assert re.search(r"step 50, on held-out data: loss \S+, accuracy \S+", output)
    assert "After 100 training steps, on 2000 held-out examples:" in output
    assert accuracy(output) > MIN_ACCURACY


@pytest.mark.parametrize("words", [
    ["keras"], ["launch", "keras", "--strategy=parameter_server", "--num_ps=1", "--num_workers=1"]],
    ids=["default", "parameter_server"])
def test_a_whole_loop_of_the_plugin_trains(start_process, tmp_path, words):
    """It gets the distributed dataset and, with parameter_server, the coordinator; ps_train reports."""
    output = run(start_process, "loop", *words, *loop_plugins(tmp_path), "--train_steps=110", "--steps_per_epoch=50",
                 cwd=tmp_path)
    assert "the loop of keras_loop: from step 0 to step 110" in output
    assert "After 110 training steps, on 640 held-out examples:" in output
    assert float(re.search(r"mean_absolute_error = (\S+)", output)[1]) < 0.1


def test_data_that_end_are_an_error_and_the_steps_before_are_saved(start_process, tmp_path):
    """One line, exit code 1. Issue: the steps since the last checkpoint were lost."""
    flags = ["--model=ends", *loop_plugins(tmp_path)[1:], "--params=repeat=false", "--train_steps=100"]
    (tmp_path / "ends.py").write_text((REPO / "models/keras_step.py").read_text()
                                      .replace("from .keras_mlp", "from keras_tiny")
                                      .replace("sparse_categorical_crossentropy(labels, logits, from_logits=True)",
                                               "mean_squared_error(labels[:, None], logits)"))
    output = run(start_process, "ends", "keras", *flags, exit_code=1, cwd=tmp_path)
    assert output.splitlines()[-1].endswith("[training_data_ended]")
    assert "after step 40 of 100" in output.splitlines()[-1]
    assert (tmp_path / "train/ckpt-00000040.keras").exists()
