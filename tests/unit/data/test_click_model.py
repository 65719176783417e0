"""The model of synthetic clicks: its probabilities are those of the labels, and its best scores are the best."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from data import clicks
from data.click_model import scores
from data.click_model.model import ClickModel

MODEL = ClickModel(vocab=20000, num_fields=26, num_numbers=13, zipf=1.1, pairs=20)
PARAMS = {**clicks.DEFAULT_PARAMS, "vocab": 20000, "eval_examples": 60000, "seed": 1}


@pytest.fixture(scope="module")
def drawn():
    return MODEL.draw(100000, np.random.default_rng(1), with_linear=True)


def test_labels_have_the_probabilities_of_the_logits(drawn):
    """In each tenth of the examples the mean of the labels is that of the probabilities, within four deviations."""
    probabilities = 1 / (1 + np.exp(-drawn.logits.astype(float)))
    for part in np.array_split(np.argsort(probabilities), 10):
        deviation = np.sqrt(np.mean(probabilities[part] * (1 - probabilities[part])) / len(part))
        assert abs(drawn.labels[part].mean() - probabilities[part].mean()) < 4 * deviation


@pytest.mark.parametrize("zipf", [0.7, 1.0, 1.1, 1.5])
def test_ids_follow_the_zipf_law(zipf):
    """The share of a rank in the largest field is that of the integral over (k + 1)^-zipf, up to sampling."""
    model = ClickModel(vocab=2000, num_fields=4, num_numbers=1, zipf=zipf, pairs=1)
    ranks = model._ranks(np.random.default_rng(2).random((4, 200000)))
    for field, size in enumerate(model._sizes.ravel()):
        edges = np.log(np.arange(1, size + 2)) if zipf == 1 else np.arange(1, size + 2) ** (1 - zipf) / (1 - zipf)
        expected = np.diff(edges) / (edges[-1] - edges[0])
        found = np.bincount(ranks[field].astype(int), minlength=size) / 200000
        assert len(found) == size and np.abs(found - expected).max() < 0.006


def test_weights_belong_to_ids_and_have_variance_one():
    """The same id has the same weights in any example; over many ids they have mean 0, variance 1, no correlation."""
    ids = np.arange(200000, dtype=np.uint64)[np.newaxis]
    weights, vectors = MODEL._weights(ids)
    np.testing.assert_array_equal(MODEL._weights(ids[:, ::-1])[1], vectors[:, :, ::-1])
    all_of_them = np.stack([weights[0], *vectors[:, 0]])
    np.testing.assert_allclose(all_of_them.mean(axis=1), 0, atol=0.01)
    np.testing.assert_allclose(np.cov(all_of_them), np.eye(5), atol=0.02)


def test_the_logit_is_the_formula(drawn):
    """By loops over fields and pairs, for some examples drawn again with the same generator."""
    rng = np.random.default_rng(9)
    few = MODEL.draw(20, rng)
    rng = np.random.default_rng(9)
    ids = MODEL._ranks(rng.random((26, 20))) + MODEL._offsets
    weights, vectors = MODEL._weights(ids)
    for example in range(20):
        logit = MODEL.bias + 0.35 * sum(weights[:, example])
        logit += sum(MODEL._number_weights * (few.numbers[example] - 1.3))
        for left, right in MODEL._pairs:
            logit += 0.30 / 2 * sum(vectors[rank, left, example] * vectors[rank, right, example] for rank in range(4))
        assert few.logits[example] == pytest.approx(logit, abs=1e-4)


def test_an_example_is_the_same_with_its_linear_logit(drawn):
    """So `best_scores` is about the examples that are trained on."""
    plain = MODEL.draw(100000, np.random.default_rng(1))
    np.testing.assert_array_equal(plain.ids, drawn.ids)
    np.testing.assert_array_equal(plain.labels, drawn.labels)


def test_best_scores_cannot_be_beaten():
    """Neither by noise nor by another scale; the linear part has clearly less, and without pairs as much."""
    best = clicks.best_scores(PARAMS)
    chunks = list(clicks._Source.of("eval", PARAMS).all_chunks())
    logits, labels = (np.concatenate([getattr(one, name) for one in chunks]) for name in ("logits", "labels"))
    rng = np.random.default_rng(1)
    for changed in (logits + rng.standard_normal(len(logits)) * 0.3, logits * 1.3, logits * 0.7, logits + 0.2):
        assert scores.log_loss(changed, labels) > best.log_loss
        assert scores.auc(changed, labels) <= best.auc + 1e-6  # two logits may round to one
    assert best.auc - best.linear_auc > 0.02 and best.linear_log_loss - best.log_loss > 0.01
    without = clicks.best_scores({**PARAMS, "pairs": 0})
    assert without.auc == pytest.approx(without.linear_auc) and without.log_loss == pytest.approx(
        without.linear_log_loss)


def test_no_logistic_regression_on_the_most_frequent_ids_beats_the_linear_scores(drawn):
    """The linear logit leaves nothing of the interactions that the mean over a field's other ids would show."""
    rest = drawn.logits - drawn.linear_logits
    for field in range(26):
        values, counts = np.unique(drawn.values[:, field], return_counts=True)
        top = values[counts.argmax()]
        has_top = drawn.values[:, field] == top
        assert abs(rest[has_top].mean()) < 5 * rest[has_top].std() / np.sqrt(has_top.sum())


def test_auc_and_log_loss_are_those_by_hand():
    """Against all pairs of examples, with ties."""
    rng = np.random.default_rng(4)
    logits, labels = rng.integers(0, 6, 60) / 2, rng.integers(0, 2, 60).astype(np.float32)
    pairs = [(one > other) + (one == other) / 2 for one, other in itertools.product(
        logits[labels == 1], logits[labels == 0])]
    assert scores.auc(logits, labels) == pytest.approx(np.mean(pairs))
    probabilities = 1 / (1 + np.exp(-logits))
    by_hand = -np.mean(np.where(labels == 1, np.log(probabilities), np.log(1 - probabilities)))
    assert scores.log_loss(logits, labels) == pytest.approx(by_hand)


@pytest.mark.parametrize("num", [1, 63, 64, 1000, 300000])
def test_chunks_have_all_examples(num):
    """And are of one size but for the last."""
    sizes = clicks.chunk_sizes(num)
    assert sum(sizes) == num and len(set(sizes[:-1])) <= 1 and max(sizes) <= 4096
    assert len(sizes) >= min(num, 64)
