"""A whole cluster evaluates together, in this process: its result is that of one process on the same checkpoint."""

from __future__ import annotations

import pytest

from ps_train import testing
from ps_train.errors import UserCodeError
from ps_train.plugins import loader
from ps_train.storage import checkpoints
from ps_train.training.evaluation import Evaluator
from tests.errors import raises
from tests.tensorflow_mode import tf

CLICKS, TINY = "tests.plugins.tiny_clicks", "tests.plugins.tiny"
FLAGS = {"batch_size": 20, "seed": 3, "optimizer": "adagrad", "learning_rate": 0.1, "num_gpus": 0, "log_steps": 0}


def train(folder, plugin=CLICKS, params="", **flags):
    """Returns the Evaluation of a cluster whose workers evaluate together; it has one worker where that shows it."""
    return testing.run_in_threads(plugin, plugin, train_dir=folder, params=params, evaluate_with="workers",
                                  **{**FLAGS, "num_workers": 1, "train_steps": 20, **flags}).evaluation


def evaluate_alone(folder, plugin=CLICKS, **params):
    """Returns the Evaluation of the newest checkpoint by one process."""
    model, dataset = loader.load_model(plugin), loader.load_dataset(plugin)
    chosen = {**FLAGS, **model.default_params, **params}
    return Evaluator(model, chosen, dataset, chosen).evaluate(checkpoints.newest_sound(str(folder)))


def assert_same(result, expected, counted=()):
    """The metrics in `counted` are equal to 1e-9; others to what batches of other examples change in float32."""
    assert (result.global_step, result.num_examples) == (expected.global_step, expected.num_examples)
    assert result.loss_name == expected.loss_name
    assert result.loss_sum == pytest.approx(expected.loss_sum, rel=1e-6)
    assert set(result.metrics) == set(expected.metrics)
    for name, value in expected.metrics.items():
        assert result.metrics[name] == pytest.approx(value, rel=1e-9 if name in counted else 1e-6), name


@pytest.mark.parametrize(("is_dynamic", "num_ps", "num_workers"), [(False, 1, 2), (True, 2, 2)],
                         ids=["fixed", "dynamic"])
def test_several_workers_find_what_one_process_finds(tmp_path, caplog, is_dynamic, num_ps, num_workers):
    """A table of each kind; metrics of TensorFlow and of clicks; the event file has what the chief reports."""
    # Batches of one, so that each example is computed alike.
    params = {"extra": "standard", "eval_batch": 1, "num_eval": 100, "is_dynamic": is_dynamic, "group_field": 0}
    flags = {"embedding_wire_dtype": "bfloat16"} if is_dynamic else {}  # of training: an evaluation has whole rows
    with caplog.at_level("INFO"):
        evaluation = train(tmp_path, params=",".join(f"{name}={value}" for name, value in params.items()),
                           num_ps=num_ps, num_workers=num_workers, **flags)
    assert f"evaluating on {num_workers} workers" in caplog.text
    assert_same(evaluation, evaluate_alone(tmp_path, **params),
                counted=["accuracy", "auc", "gauc", "roc", "log_loss", "calibration"])
    (path,) = (tmp_path / "eval").glob("events.*")
    written = {value.tag: value.simple_value for event in tf.train.summary_iterator(str(path))
               for value in event.summary.value}
    assert written == pytest.approx({"loss": evaluation.loss_mean, **evaluation.metrics})


@pytest.mark.parametrize(("num_parts", "flags"), [
    (1, {"sync_replicas": True, "num_workers": 2}), (1, {"communication_period": 4, "partition_bytes": 8}),
    (20, {"num_ps": 1})], ids=["sync", "local steps on parts", "packed"])
def test_parameters_are_those_of_the_checkpoint_in_every_mode(tmp_path, num_parts, flags):
    """What the workers look up on the ps is what was saved.

    Of 20 small variables the ps has the trained values in one packed variable, and the old ones in the variables.
    """
    evaluation = train(tmp_path, TINY, params=f"num_parts={num_parts}", **{"num_ps": 2, "learning_rate": 0.01, **flags})
    assert_same(evaluation, evaluate_alone(tmp_path, TINY, num_parts=num_parts))


def test_a_metric_that_cannot_be_added_is_refused_before_training(tmp_path):
    """One line, and no checkpoint; test_metric_sums.py has the kinds of metrics."""
    with raises("metric_not_additive") as caught:
        train(tmp_path, params="extra=last")
    assert "'last'" in str(caught.value)
    assert checkpoints.newest_sound(str(tmp_path)) is None


def test_a_variable_that_only_the_evaluation_has_is_refused_before_training(tmp_path, monkeypatch):
    """The ps have no value of it."""
    from tests.plugins import tiny_clicks  # noqa: PLC0415 (loaded by name elsewhere)

    original = tiny_clicks.model_fn

    def model_fn(features, labels, mode, params):
        if mode == "eval":
            tf.get_variable("only_here", [3])
        return original(features, labels, mode, params)

    monkeypatch.setattr(tiny_clicks, "model_fn", model_fn)
    with raises("variable_only_in_evaluation") as caught:
        train(tmp_path)
    assert "only_here" in str(caught.value)


@pytest.mark.parametrize("changed", [{"model_dim": 4}, {"num_ids": 50}], ids=["width", "rows"])
def test_a_table_that_differs_in_the_evaluation_is_refused_before_training(tmp_path, monkeypatch, changed):
    """Its rows on the ps would be read as others."""
    from tests.plugins import tiny_clicks  # noqa: PLC0415 (loaded by name elsewhere)

    original = tiny_clicks.model_fn
    monkeypatch.setattr(tiny_clicks, "model_fn", lambda features, labels, mode, params: original(
        features, labels, mode, {**params, **changed} if mode == "eval" else params))
    with raises("table_only_in_evaluation") as caught:
        train(tmp_path)
    assert "deepfm" in str(caught.value)


def test_an_id_that_the_table_cannot_have_is_refused(tmp_path, monkeypatch):
    """One line with table, feature and id, as in training."""
    from tests.plugins import tiny_clicks  # noqa: PLC0415 (loaded by name elsewhere)

    original = tiny_clicks.input_fn
    monkeypatch.setattr(tiny_clicks, "input_fn", lambda mode, params, shard: original(mode, params, shard).map(
        lambda features, labels: ({**features, "ids": features["ids"] + (10**6 if mode == "eval" else 0)}, labels)))
    with pytest.raises(UserCodeError, match=r"deepfm.*10000\d\d.*39"):
        train(tmp_path)


def test_held_out_data_without_shards_is_evaluated_by_the_chief(tmp_path, monkeypatch, caplog):
    """Each worker would read all of it."""
    from tests.plugins import tiny_clicks  # noqa: PLC0415 (loaded by name elsewhere)

    original = tiny_clicks.input_fn
    monkeypatch.setattr(tiny_clicks, "input_fn", lambda mode, params: original(mode, params, (0, 1)))
    with caplog.at_level("INFO"):
        evaluation = train(tmp_path, num_workers=2)
    assert "takes no shard of the held-out data" in caplog.text
    assert "evaluating on 1 worker" in caplog.text
    assert_same(evaluation, evaluate_alone(tmp_path))
