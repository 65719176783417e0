"""The reference models: their numbers against numpy, and that they learn."""

from __future__ import annotations

import numpy as np
import pytest

import ps_train
from data import digits
from ps_train.plugins import loader
from tests.tensorflow_mode import tf

PARAMS = {"hidden_units": 20, "batch_size": 50, "seed": 1, "data_dir": "", "learning_rate": 0.01}


def params_of(model):
    """Returns the params that the framework would pass."""
    return {**PARAMS, **model.default_params}


def run_model(name, features, labels, mode):
    """Returns (loss, accuracy, predictions, variables by name) of a fresh model."""
    model = loader.load_model(name)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(1)
        spec = model.model_fn(features=tf.constant(features), labels=tf.constant(labels), mode=mode,
                              params=params_of(model))
        session.run(tf.global_variables_initializer())
        session.run(tf.local_variables_initializer())
        session.run([update for _, update in spec.eval_metric_ops.values()])
        accuracy = session.run(spec.eval_metric_ops["accuracy"][0])
        loss, predictions = session.run([spec.loss, spec.predictions])
        return loss, accuracy, predictions, {v.op.name: session.run(v) for v in tf.global_variables()}


def batch(num_examples=30):
    """Returns float32 images [n, 784] and int32 labels."""
    examples = digits.load().train
    return examples.images[:num_examples].astype(np.float32) / 255, examples.labels[:num_examples].astype(np.int32)


def softmax_cross_entropy(logits, labels):
    """Returns the mean of -log softmax(logits)[label]."""
    logits = logits - logits.max(axis=1, keepdims=True)
    return np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(labels)), labels])


def test_softmax_is_a_linear_layer_that_begins_at_zero():
    """Every class is equally likely: the loss is log 10."""
    loss, _, predictions, variables = run_model("models.softmax", *batch(), ps_train.EVAL)
    assert {name: value.shape for name, value in variables.items()} == {
        "softmax/weights": (784, 10), "softmax/biases": (10,)}
    np.testing.assert_allclose(loss, np.log(10), rtol=1e-5)
    np.testing.assert_allclose(predictions["probabilities"], 0.1, rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_mlp_is_relu_of_a_layer_and_a_layer(dtype):
    """Loss, classes and accuracy equal numpy's on the same variables; labels are int64 where numpy makes them."""
    features, labels = batch()
    labels = labels.astype(dtype)
    loss, accuracy, predictions, v = run_model("mlp", features, labels, ps_train.EVAL)
    hidden = np.maximum(features @ v["hidden/weights"] + v["hidden/biases"], 0)
    logits = hidden @ v["softmax/weights"] + v["softmax/biases"]
    assert v["hidden/weights"].shape == (784, 20)
    np.testing.assert_allclose(loss, softmax_cross_entropy(logits, labels), rtol=1e-4)
    np.testing.assert_array_equal(predictions["classes"], logits.argmax(axis=1))
    np.testing.assert_allclose(accuracy, np.mean(logits.argmax(axis=1) == labels))


def test_cnn_drops_out_in_training_only():
    """Two runs on the same variables agree in evaluation; the shapes are those of 5x5 convolutions."""
    features, labels = batch()
    first, second = (run_model("models.cnn", features, labels, ps_train.EVAL) for _ in range(2))
    assert first[0] == second[0]
    shapes = {name: value.shape for name, value in first[3].items()}
    assert shapes["conv1/kernel"] == (5, 5, 1, 16)
    assert shapes["conv2/kernel"] == (5, 5, 16, 32)
    assert shapes["hidden/weights"] == (7 * 7 * 32, 128)
    training = run_model("models.cnn", features, labels, ps_train.TRAIN)
    assert training[0] != first[0]


@pytest.mark.parametrize("name", ["softmax", "mlp", "cnn"])
def test_a_model_predicts_without_labels(name):
    """In mode "infer" the loss is None, and probabilities sum to one."""
    model = loader.load_model(name)
    with tf.Graph().as_default(), tf.Session() as session:
        spec = model.model_fn(features=tf.constant(batch()[0]), labels=None, mode=ps_train.PREDICT,
                              params=params_of(model))
        session.run(tf.global_variables_initializer())
        assert spec.loss is None
        np.testing.assert_allclose(session.run(spec.predictions["probabilities"]).sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize(("name", "steps", "least"), [("softmax", 250, 0.8), ("mlp", 300, 0.85), ("cnn", 60, 0.85)])
def test_a_model_learns_the_drawn_digits(name, steps, least):
    """Adam brings it far beyond the 10 % of guessing in a few steps."""
    model = loader.load_model(name)
    with tf.Graph().as_default() as graph, tf.Session() as session:
        tf.set_random_seed(1)
        iterator = tf.data.make_initializable_iterator(digits.input_fn("train", params_of(model), (0, 1)))
        features, labels = iterator.get_next()
        spec = model.model_fn(features=features, labels=labels, mode=ps_train.TRAIN, params=params_of(model))
        correct = tf.reduce_mean(tf.cast(tf.equal(spec.predictions["classes"], labels), tf.float32))
        train_op = tf.train.AdamOptimizer(0.003).minimize(spec.loss)
        session.run(tf.global_variables_initializer())
        session.run(iterator.initializer, feed_dict=ps_train.input_feed(graph))
        for _ in range(steps):
            session.run(train_op)
        assert np.mean([session.run(correct) for _ in range(10)]) >= least
