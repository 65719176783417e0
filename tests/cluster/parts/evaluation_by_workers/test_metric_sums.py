"""The sums behind metrics: which ones there are, adding them, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from models import click_metrics
from ps_train.parts.evaluation_by_workers import share_graph
from ps_train.parts.evaluation_by_workers.share_graph import MetricSums
from tests.errors import raises
from tests.tensorflow_mode import tf

LOGITS = np.random.default_rng(0).normal(size=900).astype(np.float32)
LABELS = (np.random.default_rng(1).random(900) < 0.3).astype(np.float32)


def make_metrics(labels, logits):
    """Returns metrics of TensorFlow and of this project."""
    return {
        "accuracy": tf.metrics.accuracy(labels > 0.5, logits > 0),
        "mean": tf.metrics.mean(logits),
        "error": tf.metrics.root_mean_squared_error(labels, logits),
        "roc": tf.metrics.auc(labels, tf.sigmoid(logits), summation_method="careful_interpolation"),
        "confusion": tf.metrics.mean_iou(labels, tf.cast(logits > 0, tf.int64), 2),
        **click_metrics.binary_metrics(labels, logits),
    }


@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
def test_added_sums_give_the_metrics_of_all_examples(use_resource):
    """Three unequal shares, one of them empty: counts to the last digit."""
    with tf.Graph().as_default(), tf.Session() as session, tf.variable_scope("model", use_resource=use_resource):
        labels, logits = tf.placeholder(tf.float32, [None]), tf.placeholder(tf.float32, [None])
        metrics = make_metrics(labels, logits)
        values = {name: value for name, (value, _) in metrics.items()}
        sums = MetricSums(values)

        def run_through(examples):
            session.run(tf.local_variables_initializer())
            initial = sums.read(session)
            session.run([update for _, update in metrics.values()],
                        {labels: LABELS[examples], logits: LOGITS[examples]})
            return share_graph.added(initial, sums.read(session))

        shares = [run_through(slice(0, 700)), run_through(slice(0, 0)), run_through(slice(700, None))]
        whole = run_through(slice(None))
        expected = session.run(values)
        session.run(tf.local_variables_initializer())
        merged = share_graph.merge(shares, sums.read(session))
        sums.set(session, merged)
        merged_values = session.run(values)
    assert set(merged) == set(whole)
    (counts,) = (name for name in whole if name.endswith("/counts"))  # the bins of the clicks' AUC
    np.testing.assert_array_equal(merged[counts], whole[counts])
    for name in expected:
        np.testing.assert_allclose(merged_values[name], expected[name], rtol=1e-6)
    for name in ("accuracy", "auc", "confusion", "roc"):
        assert merged_values[name] == expected[name]


def test_counts_above_the_integers_of_float32_are_added_exactly():
    """Each share is below 2^24; their sum is not, and is in float64 until it is put into the variable."""
    shares = [{"count": np.float32(2**24 - 1)}] * 3
    assert share_graph.merge(shares, {"count": np.float32(0)}) == {"count": 3 * (2**24 - 1)}


def maximum():
    """A maximum, which is no sum."""
    largest = tf.get_variable("largest", [], collections=[tf.GraphKeys.LOCAL_VARIABLES], use_resource=True)
    return largest.read_value(), largest.assign(tf.maximum(largest, 1.0))


def flag():
    """A truth value."""
    seen = tf.get_variable("seen", [], tf.bool, tf.zeros_initializer(), use_resource=True,
                           collections=[tf.GraphKeys.LOCAL_VARIABLES])
    return seen.read_value(), seen.assign(True)


def deviation(use_resource):
    """A sum of the distances from the mean so far, as streaming variances have it."""
    with tf.variable_scope("mine", use_resource=use_resource):
        count, total, distances = (tf.get_variable(name, [], collections=[tf.GraphKeys.LOCAL_VARIABLES])
                                   for name in ("count", "total", "distances"))
    changes = [count.assign_add(1.0), total.assign_add(2.0), distances.assign_add(tf.abs(2.0 - total / count))]
    return distances + total / count, tf.group(changes)


def on_a_ps():
    """A sum that all workers share."""
    with tf.device("/job:ps/task:0"):
        return tf.metrics.mean(tf.ones([3]))


@pytest.mark.parametrize(("metric", "why"), [
    (lambda: deviation(True), "distances what depends on mine/"), (lambda: deviation(False), "what depends on mine/"),
    (on_a_ps, "on /job:ps/task:0"),
    (lambda: (tf.constant(1.0), tf.no_op()), "no local variables"),
    (lambda: (tf.data.make_one_shot_iterator(tf.data.Dataset.range(3)).get_next(), tf.no_op()), "mini-batch"),
    (maximum, "largest by AssignVariableOp"),
    (flag, "bool in seen"),
], ids=["resource", "reference", "ps", "none", "batch", "maximum", "bool"])
def test_a_metric_that_is_certainly_no_sum_is_refused(metric, why):
    """In one line, with the metric and the reason."""
    with tf.Graph().as_default(), raises("metric_not_additive") as caught:
        value, _ = metric()
        MetricSums({"mine": value})
    assert "'mine'" in str(caught.value) and why in str(caught.value) and "\n" not in str(caught.value)


def test_a_variable_of_unknown_rank_is_the_same_in_both_modes():
    """Only another shape or dtype is refused."""
    made = []
    for _ in range(2):
        with tf.Graph().as_default():
            made.append(tf.get_variable("a", initializer=tf.placeholder(tf.float32), validate_shape=False))
    share_graph._check_variables(made[:1], made[1:])
