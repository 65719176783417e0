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


def exact_group_auc(labels, scores, groups, weights=None):
    """Returns the mean of the AUC of each group with both classes, weighted by its examples; by all pairs."""
    weights = np.ones_like(labels) if weights is None else weights
    total, sizes = 0.0, 0.0
    for group in np.unique(groups):
        of = groups == group
        positive, negative = (of & (labels == label) for label in (1, 0))
        pairs = weights[positive][:, np.newaxis] * weights[negative]
        if pairs.sum():
            differences = scores[positive][:, np.newaxis] - scores[negative]
            auc = (pairs * (np.sign(differences) + 1) / 2).sum() / pairs.sum()
            total, sizes = total + weights[of].sum() * auc, sizes + weights[of].sum()
    return total / sizes


def measured_with(make, batch_size=700, **arrays):
    """Returns the value of a metric that `make` makes of placeholders by these names, over batches."""
    with tf.Graph().as_default(), tf.Session() as session:
        given = {name: tf.placeholder(tf.as_dtype(array.dtype), [None]) for name, array in arrays.items()}
        value, update_op = make(**given)
        session.run(tf.local_variables_initializer())
        for begin in range(0, len(arrays["labels"]), batch_size):
            session.run(update_op, {given[name]: arrays[name][begin:begin + batch_size] for name in given})
        return session.run(value)


def grouped_clicks(num=6000, num_groups=300):
    """Returns clicks whose groups differ in size and in their mean, so that the AUC and that by group differ."""
    rng = np.random.default_rng(5)
    groups = np.minimum(rng.geometric(0.01, num), num_groups) - 1
    center = rng.normal(-1, 2, num_groups)[groups]
    own = rng.normal(0, 1, num)
    labels = (rng.random(num) < 1 / (1 + np.exp(-center - own))).astype(np.float32)
    return labels, (center + own).astype(np.float32), groups, rng.uniform(0, 3, num).astype(np.float32)


@pytest.mark.parametrize("is_weighted", [False, True])
def test_the_auc_by_group_is_that_of_numpy(is_weighted):
    """With weights and without, for integers and strings; it differs from the AUC of all."""
    labels, logits, groups, weights = grouped_clicks()
    arrays = {"labels": labels, "logits": logits, **({"weights": weights} if is_weighted else {})}
    exact = exact_group_auc(labels, logits, groups, arrays.get("weights"))
    assert abs(exact - exact_auc(labels, logits)) > 0.03
    assert measured_with(click_metrics.group_auc, **arrays, groups=groups) == pytest.approx(exact, abs=2e-3)
    with tf.Graph().as_default(), tf.Session() as session:
        bins = session.run(click_metrics.bin_of(tf.constant(logits), 4096, resolution=1.0))
    binned = exact_group_auc(labels, bins, groups, arrays.get("weights"))  # a group of few pairs feels each tie
    fine = measured_with(lambda **given: click_metrics.group_auc(num_bins=4096, num_groups=300, **given),
                         **arrays, groups=groups)
    assert fine == pytest.approx(binned, rel=1e-6) and fine == pytest.approx(exact, abs=5e-4)
    names = np.char.add("user ", groups.astype(str)).astype(object)
    with_names = measured_with(lambda **given: click_metrics.group_auc(num_groups=2**17, num_bins=64, **given),
                               **arrays, groups=names)
    assert with_names == pytest.approx(exact, abs=0.01)


@pytest.mark.parametrize("is_text", [False, True])
def test_groups_that_share_a_slot_do_not_count(is_text):
    """Their examples together have another AUC; the batches have them apart. Without others it is NaN."""
    labels, logits, groups, _ = grouped_clicks(num_groups=80)
    order = np.argsort(groups, kind="stable")
    labels, logits, groups = labels[order], logits[order], groups[order]
    slots = groups % 50
    if is_text:
        groups = np.char.add("user ", groups.astype(str)).astype(object)
        with tf.Graph().as_default(), tf.Session() as session:
            slots = session.run(tf.strings.to_hash_bucket_fast(groups, 50))
    alone = np.isin(slots, [slot for slot in range(50) if len(set(groups[slots == slot])) == 1])
    assert 0.05 < alone.mean() < 0.95

    def found(num_groups):
        return measured_with(lambda **given: click_metrics.group_auc(num_bins=4096, num_groups=num_groups, **given),
                             batch_size=10, labels=labels, logits=logits, groups=groups)

    exact = exact_group_auc(labels[alone], logits[alone], groups[alone].astype(str))
    assert found(50) == pytest.approx(exact, abs=2e-3)
    assert abs(exact_group_auc(labels, logits, slots) - exact) > 0.02
    assert np.isnan(found(1))


def test_a_group_of_one_class_does_not_count():
    """Two groups count here, with AUC 1 and 0 and four and two examples."""
    labels = np.array([0, 1, 0, 1, 1, 0, 1, 1], np.float32)
    logits = np.array([-1, 1, -1, 1, -2, 2, 5, -5], np.float32)
    groups = np.array([3, 3, 3, 3, 7, 7, 9, 9])
    assert measured_with(click_metrics.group_auc, labels=labels, logits=logits, groups=groups) == pytest.approx(4 / 6)


def test_a_weight_counts_as_so_many_examples():
    """AUC, log loss and calibration with whole weights are those of the examples repeated; 0 leaves one out."""
    labels, logits = clicks(-1, 1, num=3000)
    weights = np.random.default_rng(1).integers(0, 4, len(labels))
    repeated = measured(np.repeat(labels, weights), np.repeat(logits, weights), 999)
    for name, expected in repeated.items():
        found = measured_with(lambda name=name, **given: click_metrics.binary_metrics(**given)[name],
                              labels=labels, logits=logits, weights=weights.astype(np.float32))
        assert found == pytest.approx(expected, rel=1e-9), name
