"""The further training steps of a graph, as of a GAN: the first one has the ps's gate, which a graph has once.

    each worker   gradients --> their mean over all workers (exchange.py) --> wait until rank 0 has applied it
    rank 0        gradients --> their mean over all workers               --> applies it on the ps

It costs more than the first: the gradients pass through Python, as one vector of each dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow.compat.v1 as tf


class Collectives(NamedTuple):
    """What all workers do together.

    Attributes:
      reduce: takes a tensor and a common name; returns the mean or the sum of all workers' tensors.
      await_chief: takes a common name; returns a tensor that is there when rank 0 has come so far.
    """

    reduce: Callable[[tf.Tensor, str], tf.Tensor]
    await_chief: Callable[[str], tf.Tensor]


def exchanged_step(
    optimizer: tf.train.Optimizer, grads_and_vars: Sequence[tuple], global_step: tf.Variable | None,
    collectives: Collectives, *, is_chief: bool, name: str | None,
) -> tf.Operation:
    """Returns a worker's step, which ends when rank 0 has applied the mean gradients; it raises the global step."""
    pairs = [(tf.convert_to_tensor(gradient), variable) for gradient, variable in grads_and_vars
             if gradient is not None]
    common_name = pairs[0][1].op.name
    reduced = reduced_together([gradient for gradient, _ in pairs], common_name, collectives.reduce)
    done = reduced
    if is_chief:
        done = [optimizer.apply_gradients(
            [(gradient, variable) for gradient, (_, variable) in zip(reduced, pairs)], global_step)]
    with tf.control_dependencies(done):
        return tf.group(collectives.await_chief(f"{common_name}/applied"), name=name)


def reduced_together(gradients: Sequence[tf.Tensor], common_name: str, reduce: Callable) -> list[tf.Tensor]:
    """Returns the gradients of all workers together; all of one dtype travel at once.

    Args:
      gradients: this worker's, all dense.
      common_name: the same on all workers.
      reduce: as that of `Collectives`.
    """
    found: dict[int, tf.Tensor] = {}
    for dtype in sorted({gradient.dtype.base_dtype.name for gradient in gradients}):
        places = [place for place, gradient in enumerate(gradients) if gradient.dtype.base_dtype.name == dtype]
        vector = tf.concat([tf.reshape(gradients[place], [-1]) for place in places], 0)
        parts = tf.split(reduce(vector, f"{common_name}/{dtype}"),
                         [tf.size(gradients[place]) for place in places])
        for place, part in zip(places, parts):
            found[place] = tf.reshape(part, tf.shape(gradients[place]))
            found[place].set_shape(gradients[place].shape)
    return [found[place] for place in range(len(gradients))]
