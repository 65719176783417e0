"""AUC, log loss and calibration from sums, against exact values in numpy."""

from __future__ import annotations

import numpy as np
import pytest

from models import click_metrics
from tests.tensorflow_mode import tf


def exact_auc(labels, scores):
    """Returns how often a positive example has the higher score; ties count a half."""
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]  # the mean rank of equal scores
    num_positives = labels.sum()
    wins = ranks[labels == 1].sum() - num_positives * (num_positives + 1) / 2
    return wins / (num_positives * (len(labels) - num_positives))


def measured(labels, logits, batch_size):
    """Returns the metrics over batches of the examples."""
    with tf.Graph().as_default(), tf.Session() as session:
        label, logit = tf.placeholder(tf.float32, [None]), tf.placeholder(tf.float32, [None])
        metrics = click_metrics.binary_metrics(label, logit)
        session.run(tf.local_variables_initializer())
        for begin in range(0, len(labels), batch_size):
            some = slice(begin, begin + batch_size)
            session.run([update_op for _, update_op in metrics.values()], {label: labels[some], logit: logits[some]})
        return session.run({name: value for name, (value, _) in metrics.items()})


def clicks(center, spread, num=20_000, seed=0):
    """Returns labels [num] and the logits of their probabilities, with errors as a model makes them."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(center, spread, num)
    labels = rng.random(num) < 1 / (1 + np.exp(-logits))
    return labels.astype(np.float32), (logits + rng.normal(0, spread / 3, num)).astype(np.float32)


@pytest.mark.parametrize(("center", "spread"), [(0, 1), (-3, 1.5), (-4, 0.1), (0, 1e-4), (1, 30)])
def test_metrics_are_those_of_numpy(center, spread):
    """Ordinary logits, rare positives, a model that has hardly learned, and logits beyond the outermost bins."""
    labels, logits = clicks(center, spread)
    found = measured(labels, logits, batch_size=999)
    scores = logits.astype(np.float64)
    probabilities = 1 / (1 + np.exp(-scores))
    losses = np.logaddexp(0, scores) - labels * scores
    assert found["auc"] == pytest.approx(exact_auc(labels, np.clip(logits, -32, 32)), abs=1e-4)
    assert found["log_loss"] == pytest.approx(losses.mean(), rel=1e-9)
    assert found["calibration"] == pytest.approx(probabilities.sum() / labels.sum(), rel=1e-9)


def test_equal_logits_count_a_half():
    """A constant model has an AUC of 0.5; of four pairs here two are won and two tied."""
    assert measured(np.array([0, 1, 1, 0], np.float32), np.full(4, -3, np.float32), 2)["auc"] == 0.5
    assert measured(np.array([0, 1, 1, 0], np.float32), np.array([1, 1, 2, 1], np.float32), 4)["auc"] == 0.75


def test_a_positive_far_above_and_far_below_all_negatives():
    """The outermost bins are in order, infinity included."""
    labels = np.array([0, 0, 1], np.float32)
    for logit, wanted in [(np.inf, 1.0), (1e30, 1.0), (-1e30, 0.0)]:
        assert measured(labels, np.array([-0.1, 0.1, logit], np.float32), 3)["auc"] == wanted


def test_auc_of_one_class_is_not_a_number():
    """There is no pair to compare."""
    assert np.isnan(measured(np.ones(3, np.float32), np.zeros(3, np.float32), 3)["auc"])
