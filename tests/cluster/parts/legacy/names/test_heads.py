"""The heads of tf.contrib.estimator, in a model_fn."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from ps_train.parts.legacy import estimator as bridge
from tests.tensorflow_mode import tf

if importlib.util.find_spec("tensorflow_estimator") is None:
    pytest.skip("tensorflow-estimator is not installed", allow_module_level=True)
bridge.install_estimator()

from ps_train.parts.legacy.names import heads  # noqa: E402 (it needs the Estimator)

LABELS = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)


def spec_of(head, labels, size, **options):
    """Returns the specification of a model of zeros."""
    weight = tf.get_variable("weight", [2, size], initializer=tf.zeros_initializer())
    tf.train.get_or_create_global_step()
    return head.create_estimator_spec({"x": tf.ones([2, 2])}, "train", tf.ones([2, 2]) @ weight, labels, **options)


@pytest.mark.parametrize(("make", "labels", "size"), [
    (lambda: heads.multi_class_head(3), [[1], [2]], 3), (lambda: heads.binary_classification_head(), [[1], [0]], 1),
    (lambda: heads.regression_head(None, 2), LABELS, 2), (lambda: heads.multi_label_head(2), [[1, 0], [0, 1]], 2),
    (lambda: heads.logistic_regression_head(), [[1.0], [0.0]], 1),
    (lambda: heads.poisson_regression_head(label_dimension=2), LABELS, 2)])
def test_an_optimizer_of_tf_train_makes_the_step(make, labels, size):
    """It counts the global step, and runs what keeps moving averages."""
    with tf.Graph().as_default(), tf.Session() as session:
        average = tf.get_variable("average", [], initializer=tf.zeros_initializer(), trainable=False)
        tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, average.assign_add(1.0).op)
        spec = spec_of(make(), tf.constant(labels), size, optimizer=tf.train.GradientDescentOptimizer(0.1))
        session.run(tf.global_variables_initializer())
        session.run(spec.train_op)
        assert session.run([average, tf.train.get_global_step()]) == [1.0, 1]


@pytest.mark.parametrize(("reduction", "expected"), [
    (None, 7.5), (tf.losses.Reduction.SUM, 30.0), (tf.losses.Reduction.SUM_OVER_BATCH_SIZE, 7.5)])
def test_the_loss_is_reduced_by_tf_losses(reduction, expected):
    """Of the squares 1, 4, 9 and 16; by default their mean."""
    options = {} if reduction is None else {"loss_reduction": reduction}
    with tf.Graph().as_default(), tf.Session() as session:
        losses = []  # those that are to be minimized
        spec = spec_of(heads.regression_head(label_dimension=2, **options), tf.constant(LABELS), 2,
                       train_op_fn=lambda loss: losses.append(loss) or tf.no_op())
        session.run(tf.global_variables_initializer())
        assert session.run([spec.loss, *losses]) == pytest.approx([expected] * 2)


def test_several_heads_in_one():
    """Each with its own labels and logits."""
    with tf.Graph().as_default(), tf.Session() as session:
        both = heads.multi_head([heads.regression_head(name="a"), heads.binary_classification_head(name="b")])
        tf.train.get_or_create_global_step()
        weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())
        logits = {name: tf.ones([2, 1]) * weight for name in "ab"}
        labels = {"a": tf.constant([[1.0], [3.0]]), "b": tf.constant([[1], [0]])}
        spec = both.create_estimator_spec({}, "train", logits, labels, tf.train.GradientDescentOptimizer(0.1))
        session.run(tf.global_variables_initializer())
        session.run(spec.train_op)
        assert session.run(spec.loss) < 5.0 + np.log(2)
