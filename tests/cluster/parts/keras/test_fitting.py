"""What Model.fit is given: how scheduled steps are awaited, metrics of several values, and what is saved at the end."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("tf_keras", reason="Keras training needs the extra `keras`")

import tf_keras

from ps_train.parts.keras import callbacks, checkpoints, fitting
from ps_train.parts.keras.plugins import KerasModel
from tests.errors import raises
from tests.processes import REPO

DEADLINE_SECS = 300


class Scheduled:
    """The result of a scheduled step, which is done when it is fetched."""

    def __init__(self, journal, number):
        self.journal, self.number = journal, number

    def fetch(self):
        self.journal.append(self.number)


def steps_callback(num_workers, steps, validation_steps):
    """Returns a callback of parameter_server, and the journal of its signs of life and of what it has awaited."""
    journal = []
    progress = SimpleNamespace(check_stop=lambda: None, beat=None)
    scheduled = fitting.ScheduledSteps(num_workers, lambda: journal.append("beat"))
    callback = fitting.StepCallback(progress, scheduled, validation_steps)
    callback.set_params({"steps": steps})
    return callback, journal


def test_a_long_epoch_of_scheduled_steps_gives_signs_of_life():
    """Keras schedules a whole epoch at once, and waits at its end, which may take longer than --step_timeout_secs."""
    callback, journal = steps_callback(2, 100, 10)
    for step in range(100):
        callback.on_train_batch_end(step, Scheduled(journal, step))
        awaited = [entry for entry in journal if entry != "beat"]
        assert step - (awaited or [-1])[-1] <= 2 * (fitting._ROUNDS_AHEAD + 1) or step == 99
        assert not awaited or journal[-1] == "beat"
    assert awaited == list(range(1, 100, 2))  # one for each worker
    del journal[:]
    for step in range(10):
        callback.on_test_batch_end(step, Scheduled(journal, step))
    assert [entry for entry in journal if entry != "beat"] == [1, 3, 5, 7, 9]


def test_a_short_epoch_is_awaited_too():
    """With fewer steps than workers, and executions of several steps."""
    callback, journal = steps_callback(5, 7, 1)
    for last in (2, 5, 6):
        callback.on_train_batch_end(last, Scheduled(journal, last))
    assert journal == ["beat", "beat", "beat", 6, "beat"]


def test_a_metric_of_several_values_is_one_number_each():
    """As that of F1Score, which has a value for each class."""
    assert callbacks.single_values({"loss": 0.5, "f1": np.array([0.25, 1.0], np.float32)}) == {
        "loss": 0.5, "f1_0": 0.25, "f1_1": 1.0}


def test_metrics_without_a_loss_are_an_error():
    """Of a model whose train_step returns others, such as those of two networks."""
    assert fitting.loss_of({"loss": 2.0}, "mine", "train_step") == 2.0
    with raises("loss_missing") as caught:
        fitting.loss_of({"d_loss": 1.0, "g_loss": 2.0}, "mine", "train_step")
    assert "d_loss, g_loss" in str(caught.value)


def test_an_optimizer_without_state_in_a_checkpoint_is_refused():
    """Keras' legacy ones: they have no `build`, and the checkpoint would lose their moments."""
    model = tf_keras.Sequential([tf_keras.layers.Input((1,)), tf_keras.layers.Dense(1)])
    model.compile(tf_keras.optimizers.legacy.Adam(), "mse")
    with raises("legacy_keras_optimizer"):
        checkpoints.build_model(KerasModel("mine", lambda params: model, {}), {})


def test_a_checkpoint_of_the_same_step_is_replaced_if_asked(tmp_path, monkeypatch):
    """EarlyStopping and averages of weights change the model after the last epoch was saved."""
    path = tmp_path / "ckpt-00000007.keras"
    monkeypatch.setattr(checkpoints, "write_model", lambda model, path: pathlib.Path(path).write_text(model))
    config = SimpleNamespace(train_dir=str(tmp_path), variable_partitioner="", keep_checkpoint_max=5,
                             strategy="default")
    saver = checkpoints.ModelSaver(config, None, True, SimpleNamespace(check=lambda: None))
    saver.save("last", 7)
    saver.save("same", 7)
    assert path.read_text() == "last"
    saver.save("best", 7, again=True)
    assert path.read_text() == "best"


def test_one_training_in_two_calls_of_fit():
    """In a process of TensorFlow 2, as that of `ps_train keras`: in this one, Keras is that of TensorFlow 1."""
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "--noconftest", "-q", "-p", "no:cacheprovider",
         *[f"tests/cluster/parts/keras/{name}_child.py" for name in ("fitting", "checkpoints")]],
        cwd=REPO, capture_output=True, text=True, timeout=DEADLINE_SECS, env={**os.environ, "PYTHONPATH": str(REPO)})
    assert ended.returncode == 0, ended.stdout + ended.stderr
