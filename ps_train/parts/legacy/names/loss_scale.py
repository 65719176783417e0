"""`tf.contrib.mixed_precision`: an optimizer that multiplies the loss, so that small gradients do not become 0."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


class LossScaleManager:
    """Says by what the loss is multiplied, and learns whether the gradients were finite."""

    def get_loss_scale(self) -> Any:
        """Returns float32 []."""
        raise NotImplementedError

    def update_loss_scale(self, finite_grads: tf.Tensor) -> tf.Operation:
        """Returns the operation that takes notice of a step: whether all its gradients were finite."""
        raise NotImplementedError


class FixedLossScaleManager(LossScaleManager):
    """The same factor, at least 1, in each step."""

    def __init__(self, loss_scale: float) -> None:
        if loss_scale < 1:
            raise ValueError("loss scale must be at least 1.")
        self._scale = tf.convert_to_tensor(loss_scale, tf.float32)

    def get_loss_scale(self) -> tf.Tensor:
        """Returns the factor."""
        return self._scale

    def update_loss_scale(self, finite_grads: tf.Tensor) -> tf.Operation:
        """Returns an operation that does nothing."""
        return tf.no_op()


class ExponentialUpdateLossScaleManager(LossScaleManager):
    """A factor that grows after good steps, and shrinks, to 1 at least, after bad ones."""

    def __init__(self, init_loss_scale: float, incr_every_n_steps: int, decr_every_n_nan_or_inf: int = 2,
                 incr_ratio: float = 2, decr_ratio: float = 0.8) -> None:
        """Takes the first factor; after how many good or bad steps it changes, and by what it is multiplied then."""
        self._good, self._bad = (incr_every_n_steps, incr_ratio), (decr_every_n_nan_or_inf, decr_ratio)
        self._scale = tf.Variable(tf.cast(init_loss_scale, tf.float32), trainable=False, name="loss_scale")
        self._num_good = tf.Variable(0, trainable=False, name="good_steps")
        self._num_bad = tf.Variable(0, trainable=False, name="bad_steps")

    def get_loss_scale(self) -> tf.Variable:
        """Returns the factor."""
        return self._scale

    def update_loss_scale(self, finite_grads: tf.Tensor) -> tf.Operation:
        """Returns the operation that counts a step."""
        (good_steps, growth), (bad_steps, shrinkage) = self._good, self._bad
        num_good, num_bad = self._num_good + 1, self._num_bad + 1
        grown = self._scale * growth
        grown = tf.where(tf.math.is_finite(grown), grown, self._scale)
        changes = tf.where(finite_grads, num_good >= good_steps, num_bad >= bad_steps)
        changed = tf.where(finite_grads, grown, tf.maximum(1.0, self._scale * shrinkage))
        zero = tf.zeros([], tf.int32)
        # A bad step ends a row of good ones; a good step leaves the count of the bad ones.
        new_good = tf.where(finite_grads & ~changes, num_good, zero)
        new_bad = tf.where(changes, zero, tf.where(finite_grads, self._num_bad, num_bad))
        new_scale = tf.where(changes, changed, self._scale)
        with tf.control_dependencies([new_good, new_bad, new_scale]):
            return tf.group(self._num_good.assign(new_good), self._num_bad.assign(new_bad),
                            self._scale.assign(new_scale))


class LossScaleOptimizer(tf.train.Optimizer):
    """Computes gradients by the multiplied loss; a step with one that is not finite changes no variable."""

    judges_gradients = True  # ps_train asks; see graph/optimizers.py

    def __init__(self, opt: tf.train.Optimizer, loss_scale_manager: LossScaleManager) -> None:
        super().__init__(False, type(self).__name__)
        self._optimizer, self._manager = opt, loss_scale_manager

    def compute_gradients(self, loss: Any, *args: Any, **kwargs: Any) -> list:
        """As the other one; the gradients are those of the loss itself."""
        loss, scale = loss() if callable(loss) else loss, self._manager.get_loss_scale()
        pairs = self._optimizer.compute_gradients(loss * tf.cast(scale, loss.dtype.base_dtype), *args, **kwargs)
        inverse = tf.math.reciprocal(tf.convert_to_tensor(scale))
        return [(grad if grad is None else grad * tf.cast(inverse, grad.dtype.base_dtype), var) for grad, var in pairs]

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> tf.Operation:
        """As the other one, if all gradients are finite."""
        pairs = list(grads_and_vars)
        is_finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(_values(grad)))
                                   for grad, _ in pairs if grad is not None])
        update = tf.cond(is_finite, lambda: tf.group(self._optimizer.apply_gradients(pairs, global_step, name)),
                         tf.no_op)
        return tf.group(update, self._manager.update_loss_scale(is_finite))

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """As the other one."""
        return self._optimizer.get_slot(*args, **kwargs)

    def variables(self) -> list:
        """As the other one."""
        return self._optimizer.variables()


def _values(grad: Any) -> tf.Tensor:
    return grad.values if isinstance(grad, tf.IndexedSlices) else grad
