"""Normal distributions of vectors, and binomial ones, beside numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ps_train.parts.legacy.names import distributions
from tests.tensorflow_mode import tf

MEAN, DEVIATIONS = np.array([[1.0, -2.0], [0.5, 0.0]], np.float32), np.array([0.5, 2.0], np.float32)
X = np.array([[1.2, 1.0], [0.0, -1.0]], np.float32)


def evaluate(build):
    with tf.Graph().as_default(), tf.Session() as session:
        return session.run(build())


def test_the_numbers_of_a_diagonal_normal_distribution():
    """Its density, entropy, moments and shapes; the deviations are for all means."""
    def build():
        normal = distributions.MultivariateNormalDiag(MEAN, DEVIATIONS)
        assert (normal.batch_shape.as_list(), normal.event_shape.as_list()) == ([2], [2])
        return [normal.log_prob(X), normal.prob(X), normal.entropy(), normal.mean(), normal.mode(), normal.stddev(),
                normal.variance(), normal.covariance(), normal.event_shape_tensor(), normal.batch_shape_tensor()]
    found = evaluate(build)
    log_density = (-0.5 * ((X - MEAN) / DEVIATIONS) ** 2 - np.log(DEVIATIONS) - 0.5 * np.log(2 * np.pi)).sum(1)
    entropy = np.full(2, (0.5 * np.log(2 * np.pi * np.e) + np.log(DEVIATIONS)).sum())
    expected = [log_density, np.exp(log_density), entropy, MEAN, MEAN, np.tile(DEVIATIONS, (2, 1)),
                np.tile(DEVIATIONS ** 2, (2, 1)), np.stack([np.diag(DEVIATIONS ** 2)] * 2), [2], [2]]
    for ours, wanted in zip(found, expected):
        np.testing.assert_allclose(ours, wanted, rtol=1e-5)


def test_samples_have_its_moments_and_carry_gradients():
    """Of 50,000 vectors; the derivative of a sample by the mean is 1."""
    def build():
        mean = tf.constant(MEAN)
        samples = distributions.MultivariateNormalDiag(mean, DEVIATIONS).sample(50_000, seed=1)
        return samples, tf.gradients(tf.reduce_mean(samples, 0), mean)[0]
    samples, gradient = evaluate(build)
    assert samples.shape == (50_000, 2, 2)
    np.testing.assert_allclose(samples.mean(0), MEAN, atol=0.05)
    np.testing.assert_allclose(samples.std(0), np.tile(DEVIATIONS, (2, 1)), rtol=0.02)
    np.testing.assert_allclose(gradient, np.ones((2, 2)), rtol=0.01)  # a mean of float32


def test_the_divergence_of_two_of_them():
    """Beside the formula; of one from itself 0."""
    def build():
        a = distributions.MultivariateNormalDiag(MEAN, DEVIATIONS)
        b = distributions.MultivariateNormalDiag(tf.zeros([2]), scale_identity_multiplier=3.0)
        return tf.distributions.kl_divergence(a, b), tf.distributions.kl_divergence(a, a), b.stddev()
    divergence, none, deviations = evaluate(build)
    expected = (np.log(3 / DEVIATIONS) + (DEVIATIONS ** 2 + MEAN ** 2) / 18 - 0.5).sum(1)
    np.testing.assert_allclose(divergence, expected, rtol=1e-5)
    np.testing.assert_allclose(none, [0, 0], atol=1e-6)
    assert deviations.tolist() == [3, 3]


def test_deviations_may_be_given_in_other_ways():
    """By a multiplier in addition, by softplus, not at all; of float64 too."""
    def build():
        both = distributions.MultivariateNormalDiag(scale_diag=DEVIATIONS, scale_identity_multiplier=1.0)
        soft = distributions.MultivariateNormalDiagWithSoftplusScale(MEAN, tf.constant([0.0, 1.0]))
        wide = distributions.MultivariateNormalDiag(MEAN.astype(np.float64))
        one = distributions.NormalWithSoftplusScale(0.0, tf.constant(1.0))
        back = tf.nn.softplus(distributions.softplus_inverse(tf.constant([1e-3, 1.0, 50.0])))
        return both.stddev(), both.mean(), soft.stddev(), wide.stddev(), one.stddev(), back
    both, zero, soft, wide, one, back = evaluate(build)
    assert both.tolist() == [1.5, 3] and zero.tolist() == [0, 0] and wide.dtype == np.float64
    np.testing.assert_allclose(soft[0], np.log1p(np.exp([0, 1])), rtol=1e-5)
    np.testing.assert_allclose(one, np.log1p(np.exp(1)), rtol=1e-5)
    np.testing.assert_allclose(back, [1e-3, 1, 50], rtol=1e-4)
    with pytest.raises(ValueError, match="number of dimensions"):
        distributions.MultivariateNormalDiag(scale_identity_multiplier=1.0)


@pytest.mark.parametrize("axis", [None, 0, -1, [0, 2], (1, 2)])
def test_a_percentile_is_that_of_numpy(axis):
    """Along axes, and where it lies between two numbers."""
    values = np.random.default_rng(0).normal(size=[3, 4, 5]).astype(np.float32)
    ours = tuple(axis) if isinstance(axis, list) else axis
    for q in (0.0, 30.0, 77.0, 100.0):
        for kind in ("nearest", "lower", "higher"):
            found, kept = evaluate(lambda q=q, kind=kind: [
                distributions.percentile(values, q, axis, kind, keep_dims=keep) for keep in (False, True)])
            np.testing.assert_array_equal(found, np.percentile(values, q, ours, method=kind))
            np.testing.assert_array_equal(kept, np.percentile(values, q, ours, method=kind, keepdims=True))
    with pytest.raises(ValueError, match="interpolation='linear'; allowed: nearest, lower, higher"):
        distributions.percentile(values, 1.0, interpolation="linear")


@pytest.mark.parametrize(("size", "kind", "expected"), [
    (2, None, [0, 0, 1, 1, 1]), (4, None, [0, 1, 1, 2, 3]), (6, None, [0, 1, 3, 4, 5]), (8, None, [0, 2, 3, 5, 7]),
    (3, "nearest", [0, 0, 1, 2, 2]), (6, "lower", [0, 1, 2, 3, 5]), (6, "higher", [0, 2, 3, 4, 5])])
def test_a_percentile_between_two_numbers_is_that_of_tensorflow_1(size, kind, expected):
    """Of 0, 1, 2 and so on: half of the way between two is rounded from the greatest number downwards."""
    values = np.arange(size)[::-1].copy()
    found = evaluate(lambda: [distributions.percentile(values, q, None, kind, False, False, "name") for q in (
        0, 25, 50, 75, 100)])
    assert found == expected


def test_the_numbers_of_a_binomial_distribution():
    """Its probabilities, which add up, and its moments; each number of successes for two probabilities."""
    counts, probs = np.arange(6, dtype=np.float32)[:, None], np.array([0.2, 0.7], np.float32)

    def build():
        by_probs = distributions.Binomial(5.0, probs=probs, validate_args=True)
        by_logits = distributions.Binomial(5.0, np.log(probs / (1 - probs)))
        assert (by_probs.batch_shape.as_list(), by_probs.event_shape.as_list()) == ([2], [])
        return [by_probs.prob(counts), tf.exp(by_logits.log_prob(counts)), by_probs.cdf(counts),
                by_logits.mean(), by_probs.variance(), by_probs.mode(), by_logits.batch_shape_tensor()]
    chances = np.array([[math.comb(5, k) * p ** k * (1 - p) ** (5 - k) for p in probs] for k in range(6)])
    expected = [chances, chances, chances.cumsum(0), 5 * probs, 5 * probs * (1 - probs), [1, 4], [2]]
    for ours, wanted in zip(evaluate(build), expected):
        np.testing.assert_allclose(ours, wanted, rtol=1e-4)


@pytest.mark.parametrize(("counts", "total"), [(6.0, 5.0), (-1.0, 5.0), (0.5, 5.0), (1.0, 2.5)])
def test_a_binomial_distribution_checks_counts_if_it_is_told_to(counts, total):
    """As in TensorFlow 1: none but whole numbers from 0 to the number of trials."""
    with pytest.raises(tf.errors.InvalidArgumentError):
        evaluate(lambda: distributions.Binomial(total, probs=0.5, validate_args=True).prob(counts))


def test_a_class_of_a_script_gives_a_binomial_distribution_samples():
    """Scripts do so, since it has none of its own; they override what TensorFlow 1 calls."""
    class Own(distributions.Binomial):
        def _log_prob(self, counts):
            return super()._log_prob(tf.to_float(counts))

        def _sample_n(self, n, seed=None):
            return tf.ones([n], tf.int32)
    samples, chance = evaluate(lambda: [Own(4.0, probs=0.5).sample(3), Own(4.0, probs=0.5).log_prob(1)])
    assert samples.tolist() == [1, 1, 1] and chance == pytest.approx(math.log(4 / 16))
