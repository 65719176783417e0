"""`ShapedOptimizer`: clips gradients by their global norm and decays weights; another optimizer does the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.graph import transfer


class ShapedOptimizer(tf.train.GradientDescentOptimizer):
    """An optimizer whose gradients are clipped together, and whose dense variables decay (decoupled, as AdamW)."""

    def __init__(
        self, inner: tf.train.Optimizer, *, clip_norm: float | None, decay: tf.Tensor | float | None
    ) -> None:
        """Prepares it; nothing is added to the graph yet.

        Args:
          inner: applies the gradients, and has the slots.
          clip_norm: the largest global norm, or None.
          decay: float32 scalar, what a dense variable loses of itself in an update: rate * weight decay; or None.
        """
        super().__init__(learning_rate=1.0)  # has no meaning: the other optimizer applies the gradients
        self._inner = inner
        self._clip_norm = clip_norm
        self._decay_share = decay

    def apply_gradients(
        self, grads_and_vars: Sequence[transfer.Pair], global_step: tf.Variable | None = None, name: str | None = None
    ) -> tf.Operation:
        """Applies gradients; see `tf.compat.v1.train.Optimizer`."""
        pairs = list(grads_and_vars)
        if self._clip_norm is not None:
            clipped = clip_by_norm([gradient for gradient, _ in pairs], self._clip_norm)
            pairs = [(gradient, variable) for gradient, (_, variable) in zip(clipped, pairs)]
        if self._decay_share is not None:
            pairs = [(self._after_decay(gradient, variable), variable) for gradient, variable in pairs]
        return self._inner.apply_gradients(pairs, global_step, name=name)

    def _after_decay(self, gradient: Any, variable: tf.Variable) -> Any:
        """Returns a gradient that is there when its variable has decayed; a sparse one as it is."""
        if gradient is None or isinstance(gradient, tf.IndexedSlices):
            return gradient
        with tf.device(variable.device), tf.control_dependencies([gradient]):
            lost = tf.cast(self._decay_share, variable.dtype.base_dtype) * variable.read_value()
            with tf.control_dependencies([variable.assign_sub(lost, read_value=False)]):
                return tf.identity(gradient)

    def get_slot(self, var: tf.Variable, name: str) -> tf.Variable | None:
        """Returns a slot of the other optimizer."""
        return self._inner.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """Returns the names of the slots of the other optimizer."""
        return self._inner.get_slot_names()

    def variables(self) -> list[tf.Variable]:
        """Returns the variables of the other optimizer."""
        return self._inner.variables()


def clip_by_norm(gradients: Sequence[Any], clip_norm: float) -> list[Any]:
    """Returns gradients scaled down so that their global norm is at most `clip_norm`; each stays where it is.

    A row that occurs several times in a sparse gradient counts once, with the sum of its gradients.
    """
    summed = [_each_row_once(one) if isinstance(one, tf.IndexedSlices) else one for one in gradients]
    squares = []
    for one in summed:
        if one is not None:
            values = one.values if isinstance(one, tf.IndexedSlices) else one
            with tf.colocate_with(values):
                squares.append(tf.cast(tf.nn.l2_loss(values), tf.float32))
    if not squares:
        return list(gradients)
    norm = tf.sqrt(2.0 * tf.add_n(squares))
    scale = clip_norm * tf.minimum(1.0 / norm, 1.0 / clip_norm)  # as tf.clip_by_global_norm; for 0 it is 1
    return [None if one is None else _scaled(one, scale) for one in summed]


def _scaled(gradient: Any, scale: tf.Tensor) -> Any:
    values = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
    with tf.colocate_with(values):
        scaled = values * tf.cast(scale, values.dtype)
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(scaled, gradient.indices, gradient.dense_shape)
    return scaled


def _each_row_once(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    with tf.colocate_with(gradient.values):
        indices, places = tf.unique(gradient.indices)
        values = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(indices))
    return tf.IndexedSlices(values, indices, gradient.dense_shape)
