"""The recipes of docs/callbacks.md, taken from the page and run with the real packages, where they are installed."""

from __future__ import annotations

import importlib

import pytest

from ps_train import testing
from tests.pages import block
from tests.tensorflow_mode import tf


@pytest.fixture
def train(tmp_path, monkeypatch):
    """A function that trains with the callbacks of a module of the page; returns the folder of the training."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def train_with(name, **flags):
        (tmp_path / f"{name}.py").write_text(block("docs/callbacks.md", "python", f"# {name}.py"))
        importlib.invalidate_caches()
        tiny = "tests.plugins.tiny"
        testing.run_in_threads(tiny, tiny, train_dir=tmp_path / "run", num_workers=1, batch_size=16, log_steps=10,
                               callbacks=f"{name}:make", **{"train_steps": 40, **flags})
        return tmp_path / "run"

    return train_with


def test_the_first_callback_of_the_page_ends_a_training(train, capsys):
    """The loss of a linear model is soon below a half."""
    train("watch", train_steps=100000, learning_rate=0.1)
    output = capsys.readouterr().out
    assert "step 10: loss" in output and "worker:0 finished" in output


def test_tensorboard_has_another_curve(train):
    """The steps of the fastest worker, in the folder `callbacks`."""
    folder = train("board")
    [path] = (folder / "callbacks").glob("events.out.tfevents.*")
    values = [(value.tag, event.step, value.simple_value) for event in tf.train.summary_iterator(str(path))
              for value in event.summary.value]
    assert values[-1] == ("steps of the fastest worker", 40, 40.0)


def test_mlflow_has_loss_and_metrics(train, monkeypatch):
    """In its own store, in the folder of the training; the run is finished."""
    mlflow = pytest.importorskip("mlflow", reason="needs mlflow, or mlflow-skinny and sqlalchemy")
    folder = train("flow")
    client = mlflow.MlflowClient(f"sqlite:///{folder}/mlflow.db")
    [run] = client.search_runs(["0"])
    assert run.info.status == "FINISHED" and run.data.params["model"] == "tests.plugins.tiny"
    assert [point.step for point in client.get_metric_history(run.info.run_id, "loss")] == [10, 20, 30, 40]
    assert run.data.metrics["error"] > 0


def test_weights_and_biases_has_a_run_offline(train):
    """Its file is in the folder of the training."""
    pytest.importorskip("wandb", reason="needs wandb")
    [path] = train("bias").glob("wandb/offline-run-*/*.wandb")
    assert path.stat().st_size > 0
