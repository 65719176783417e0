"""Distributions of `tf.contrib.distributions` that TensorFlow has no more: normal ones of vectors, binomial ones."""

from __future__ import annotations

import math
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.ops.distributions import util  # as the distributions of TensorFlow check their arguments

_distributions = tf.distributions


class MultivariateNormalDiag(_distributions.Distribution):
    """Vectors of independent normal numbers: [..., k], of the mean `loc` and of deviations.

    The deviations are `scale_diag`, plus `scale_identity_multiplier` for each of them; 1 if neither is given.
    """

    def __init__(self, loc: Any = None, scale_diag: Any = None, scale_identity_multiplier: Any = None,
                 validate_args: bool = False, allow_nan_stats: bool = True,
                 name: str = "MultivariateNormalDiag") -> None:
        parameters = dict(locals())
        if loc is None and scale_diag is None:
            raise ValueError("MultivariateNormalDiag: give loc, scale_diag, or both; they say the number of dimensions")
        with tf.name_scope(name) as scope:
            dtype = next((tf.as_dtype(value.dtype).base_dtype for value in (loc, scale_diag, scale_identity_multiplier)
                          if hasattr(value, "dtype")), tf.float32)
            deviations = None if scale_diag is None else tf.convert_to_tensor(scale_diag, dtype)
            if scale_identity_multiplier is not None:
                each = tf.convert_to_tensor(scale_identity_multiplier, dtype)[..., tf.newaxis]
                deviations = each if deviations is None else deviations + each
            mean = tf.zeros_like(deviations) if loc is None else tf.convert_to_tensor(loc, dtype)
            deviations = tf.ones_like(mean) if deviations is None else deviations
            both = tf.broadcast_dynamic_shape(tf.shape(mean), tf.shape(deviations))
            static = tf.broadcast_static_shape(mean.shape, deviations.shape)
            self._loc, self._deviations = (
                tf.ensure_shape(tf.broadcast_to(value, both), static) for value in (mean, deviations))
        super().__init__(
            dtype=dtype, reparameterization_type=_distributions.FULLY_REPARAMETERIZED, validate_args=validate_args,
            allow_nan_stats=allow_nan_stats, parameters=parameters, graph_parents=[self._loc, self._deviations],
            name=scope)

    @property
    def loc(self) -> tf.Tensor:
        """The mean, float [..., k]."""
        return self._loc

    def _batch_shape_tensor(self) -> tf.Tensor:
        return tf.shape(self._loc)[:-1]

    def _batch_shape(self) -> tf.TensorShape:
        return self._loc.shape[:-1]

    def _event_shape_tensor(self) -> tf.Tensor:
        return tf.shape(self._loc)[-1:]

    def _event_shape(self) -> tf.TensorShape:
        return self._loc.shape[-1:]

    def _sample_n(self, n: Any, seed: int | None = None) -> tf.Tensor:
        shape = tf.concat([[n], tf.shape(self._loc)], 0)
        return self._loc + self._deviations * tf.random_normal(shape, dtype=self.dtype, seed=seed)

    def _log_prob(self, x: Any) -> tf.Tensor:
        distances = (x - self._loc) / self._deviations
        return -0.5 * tf.reduce_sum(tf.square(distances) + math.log(2 * math.pi), -1) - self._log_size()

    def _log_size(self) -> tf.Tensor:
        return tf.reduce_sum(tf.log(tf.abs(self._deviations)), -1)

    def _entropy(self) -> tf.Tensor:
        size = tf.cast(tf.shape(self._loc)[-1], self.dtype)
        return 0.5 * (1 + math.log(2 * math.pi)) * size + self._log_size()

    def _mean(self) -> tf.Tensor:
        return self._loc

    def _mode(self) -> tf.Tensor:
        return self._loc

    def _stddev(self) -> tf.Tensor:
        return tf.abs(self._deviations)

    def _variance(self) -> tf.Tensor:
        return tf.square(self._deviations)

    def _covariance(self) -> tf.Tensor:
        return tf.linalg.diag(tf.square(self._deviations))


@_distributions.RegisterKL(MultivariateNormalDiag, MultivariateNormalDiag)
def _divergence(a: MultivariateNormalDiag, b: MultivariateNormalDiag, name: str | None = None) -> tf.Tensor:
    """Returns the Kullback-Leibler divergence of two of them, float [...]."""
    with tf.name_scope(name, "kl_mvn"):
        ratio = tf.square(a.stddev() / b.stddev())
        distance = tf.square((b.mean() - a.mean()) / b.stddev())
        return 0.5 * tf.reduce_sum(distance + ratio - 1 - tf.log(ratio), -1)


class MultivariateNormalDiagWithSoftplusScale(MultivariateNormalDiag):
    """The same, of the deviations `softplus(scale_diag)`."""

    def __init__(self, loc: Any, scale_diag: Any, validate_args: bool = False, allow_nan_stats: bool = True,
                 name: str = "MultivariateNormalDiagWithSoftplusScale") -> None:
        super().__init__(loc, tf.nn.softplus(scale_diag), None, validate_args, allow_nan_stats, name)


class NormalWithSoftplusScale(_distributions.Normal):
    """Normal numbers of the deviation `softplus(scale)`."""

    def __init__(self, loc: Any, scale: Any, validate_args: bool = False, allow_nan_stats: bool = True,
                 name: str = "NormalWithSoftplusScale") -> None:
        super().__init__(loc, tf.nn.softplus(scale), validate_args, allow_nan_stats, name)


class Binomial(_distributions.Distribution):
    """How many of `total_count` independent trials, float [...], succeed; each does with a probability.

    The probability is `probs`, or its log-odds `logits`, float [...]. As in TensorFlow 1 there are no samples.
    """

    def __init__(self, total_count: Any, logits: Any = None, probs: Any = None, validate_args: bool = False,
                 allow_nan_stats: bool = True, name: str = "Binomial") -> None:
        parameters = dict(locals())
        with tf.name_scope(name) as scope:
            self._total_count = tf.convert_to_tensor(total_count, name="total_count")
            self._logits, self._probs = util.get_logits_and_probs(
                logits, probs, validate_args=validate_args, name=scope)
            if validate_args:
                with tf.control_dependencies([
                        tf.assert_non_negative(self._total_count, message="a negative total_count"),
                        util.assert_integer_form(
                            self._total_count, message="total_count has fractions")]):
                    self._total_count = tf.identity(self._total_count)
        super().__init__(
            dtype=self._probs.dtype, reparameterization_type=_distributions.NOT_REPARAMETERIZED,
            validate_args=validate_args, allow_nan_stats=allow_nan_stats, parameters=parameters,
            graph_parents=[self._total_count, self._logits, self._probs], name=scope)

    total_count = property(lambda self: self._total_count)
    logits = property(lambda self: self._logits)
    probs = property(lambda self: self._probs)

    def _batch_shape_tensor(self) -> tf.Tensor:
        return tf.broadcast_dynamic_shape(tf.shape(self._total_count), tf.shape(self._probs))

    def _batch_shape(self) -> tf.TensorShape:
        return tf.broadcast_static_shape(self._total_count.shape, self._probs.shape)

    def _event_shape_tensor(self) -> tf.Tensor:
        return tf.constant([], tf.int32)

    def _event_shape(self) -> tf.TensorShape:
        return tf.TensorShape([])

    def _log_prob(self, counts: Any) -> tf.Tensor:
        counts, total = self._checked(counts), self._total_count
        return (counts * tf.log(self._probs) + (total - counts) * tf.log1p(-self._probs) + tf.lgamma(1.0 + total)
                - tf.lgamma(1.0 + counts) - tf.lgamma(1.0 + total - counts))

    def _prob(self, counts: Any) -> tf.Tensor:
        return tf.exp(self._log_prob(counts))

    def _cdf(self, counts: Any) -> tf.Tensor:
        """Returns the probability of at most so many successes: the regularized incomplete beta function."""
        counts = self._checked(counts)
        probs = self._probs + tf.zeros_like(counts)
        counts += tf.zeros_like(self._probs)
        failures = self._total_count - counts
        ones = tf.ones_like(failures)
        is_all = tf.equal(counts, self._total_count)  # of which the function and its gradients are no numbers
        return tf.where(is_all, ones, tf.betainc(tf.where(is_all, ones, failures), counts + 1, 1 - probs))

    def _mean(self) -> tf.Tensor:
        return self._total_count * self._probs

    def _variance(self) -> tf.Tensor:
        return self._mean() * (1.0 - self._probs)

    def _mode(self) -> tf.Tensor:
        return tf.floor((1.0 + self._total_count) * self._probs)

    def _checked(self, counts: Any) -> tf.Tensor:
        """Returns counts, which fail with `validate_args` unless they are whole numbers from 0 to `total_count`."""
        if not self.validate_args:
            return counts
        counts = util.embed_check_nonnegative_integer_form(counts)
        with tf.control_dependencies([tf.assert_less_equal(
                counts, self._total_count, message="more counts than total_count")]):
            return tf.identity(counts)


def softplus_inverse(x: Any, name: str | None = None) -> tf.Tensor:
    """Returns the y of which `softplus(y)` is x."""
    with tf.name_scope(name, "softplus_inverse"):
        x = tf.convert_to_tensor(x)
        return x + tf.log(-tf.math.expm1(-x))


def percentile(x: Any, q: Any, axis: Any = None, interpolation: str | None = None, keep_dims: bool = False,
               validate_args: bool = False, name: str | None = None, preserve_gradients: bool = True) -> tf.Tensor:
    """Returns the q-th percentile of x along axes, by default of all numbers.

    It counts from the greatest number downwards, as TensorFlow 1 did, and rounds a half to the even place: the median
    of four numbers is the second one.

    Args:
      x: numbers, [...].
      q: from 0 to 100, one number.
      axis: an axis or several.
      interpolation: which number is taken where q lies between two: "nearest", the default, "lower" or "higher".
      keep_dims: whether the axes stay, with the size 1.
      validate_args: does nothing: a q outside of the range takes the first or the last number.
      name: of the operations.
      preserve_gradients: does nothing: they reach the number that was taken.

    Raises:
      ValueError: another interpolation.
    """
    rounding = {None: tf.round, "nearest": tf.round, "lower": tf.ceil, "higher": tf.floor}.get(interpolation)
    if rounding is None:
        raise ValueError(f"percentile: got interpolation={interpolation!r}; allowed: nearest, lower, higher")
    with tf.name_scope(name, "percentile"):
        x = tf.convert_to_tensor(x)
        rank = x.shape.rank
        axes = range(rank) if axis is None else [axis] if isinstance(axis, int) else axis
        axes = sorted(one % rank for one in axes)
        others = [one for one in range(rank) if one not in axes]
        rows = tf.transpose(x, [*others, *axes])
        rows = tf.sort(tf.reshape(rows, tf.concat([tf.shape(rows)[:len(others)], [-1]], 0)), -1)
        last = tf.shape(rows)[-1] - 1
        place_from_end = rounding(tf.cast(last, tf.float64) * (1 - tf.cast(q, tf.float64) / 100))
        found = tf.gather(rows, last - tf.clip_by_value(tf.cast(place_from_end, tf.int32), 0, last), axis=-1)
        for one in axes if keep_dims else ():
            found = tf.expand_dims(found, one)
        return found
