"""Features in dicts and tuples of any depth, and ragged ones: predict, export and evaluate give them to the model."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from ps_train import testing
from ps_train.parts.inference import flags as inference_flags
from ps_train.parts.inference import on_checkpoint, request_inputs
from tests.errors import raises
from tests.tensorflow_mode import tf

_NESTED = """
import collections
import numpy as np
import ps_train
import tensorflow.compat.v1 as tf

User = collections.namedtuple("User", "ages id")
DEFAULT_PARAMS = {"kind": "dense"}


def values(kind):
    ages = np.arange(12, dtype=np.float32).reshape(6, 2)
    return tf.RaggedTensor.from_tensor(ages, lengths=[0, 1, 2, 2, 0, 1]) if kind == "ragged" else ages


def input_fn(mode, params, shard):
    features = {"user": User(values(params["kind"]), np.arange(6)), "visit": (np.ones(6, np.float32), np.arange(6) % 3)}
    dataset = tf.data.Dataset.from_tensor_slices((features, np.ones(6, np.float32))).batch(4)
    return dataset.repeat() if mode == ps_train.TRAIN else dataset


def model_fn(features, labels, mode, params):
    user, (weights, numbers) = features["user"], features["visit"]
    total = tf.reduce_sum(user.ages, axis=1) + tf.cast(10 * user.id + 100 * numbers, tf.float32)
    total += weights * tf.get_variable("bias", [], initializer=tf.zeros_initializer())
    loss = None if labels is None else tf.reduce_mean(tf.square(total - labels)) * 0.0
    return ps_train.ModelSpec(loss=loss, predictions={"total": total})
"""


def _predict(*flags):
    on_checkpoint.predict_examples(inference_flags.parse_predict(["--output=p.npz", *flags]), threading.Event())
    return np.load("p.npz")["total"]


@pytest.fixture(params=["dense", "ragged"])
def nested(request, tmp_path, monkeypatch):
    """The kind of a model whose features are in dicts and tuples, one of them perhaps ragged; it was trained."""
    name = f"nested_{request.param}"
    (tmp_path / f"{name}.py").write_text(_NESTED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    testing.run_in_threads(name, name, train_dir="train", num_workers=1, train_steps=2, log_steps=0,
                           save_summaries_steps=0, params=f"kind={request.param}")
    return request.param


def test_features_may_be_nested(nested):
    """With the dataset, as SavedModel and with a file, whose names have the path; ragged ones with the dataset only."""
    ages = np.arange(12, dtype=np.float32).reshape(6, 2)
    kept = np.arange(2) < np.array([[0], [1], [2], [2], [0], [1]]) if nested == "ragged" else True
    expected = (ages * kept).sum(axis=1) + 10 * np.arange(6) + 100 * (np.arange(6) % 3)
    np.testing.assert_allclose(_predict("--train_dir=train"), expected)
    on_checkpoint.evaluate_checkpoint(inference_flags.parse_evaluate(["--train_dir=train"]), threading.Event())
    export = inference_flags.parse_export(["--train_dir=train", "--export_dir=exported"])
    visits = {"visit/0": np.ones(6), "visit/1": np.arange(6) % 3}
    np.savez("f.npz", **{"user/id": np.arange(6), "user/ages": ages, **visits})
    if nested == "ragged":
        for refused in (lambda: on_checkpoint.export_checkpoint(export),
                        lambda: _predict("--train_dir=train", "--input=f.npz")):
            with raises("feature_not_servable"):
                refused()
        return
    on_checkpoint.export_checkpoint(export)
    for flags in (["--train_dir=train", "--input=f.npz"], ["--saved_model=exported", "--input=f.npz"],
                  ["--saved_model=exported", "--train_dir=train"]):
        np.testing.assert_allclose(_predict(*flags), expected)


@pytest.mark.parametrize("specs, names", [
    (tf.TensorSpec([None], tf.float32), {"inputs": "inputs"}),
    ((tf.TensorSpec([None], tf.float32), {"b": tf.TensorSpec([None], tf.int64)}), {"0": "input_0", "1/b": "1_b"}),
    ({"a b": tf.TensorSpec([None], tf.float32), "7": tf.TensorSpec([None], tf.int64)}, {"a b": "a_b", "7": "input_7"}),
])
def test_each_input_has_the_path_of_its_feature(specs, names):
    """And a placeholder whose name TensorFlow takes."""
    with tf.Graph().as_default():
        made = request_inputs.input_of_specs(specs)
        tf.nest.assert_same_structure(made.features, specs)
        assert {name: tensor.op.name for name, tensor in made.receivers.items()} == names
