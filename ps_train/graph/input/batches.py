"""Adds the mini-batches of a dataset plug-in to the current graph.

    input_fn returns                                     `next()` returns
    a tf.data.Dataset of (features, labels)              another mini-batch at each call
    (features, labels), as tf.train.batch returns them   the same tensors, a new mini-batch in each session run
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.errors import UserCodeError
from ps_train.plugins.contracts import Dataset

_PREFETCHED = 2


class Batches:
    """The mini-batches of one dataset in one mode.

    Attributes:
      initializer: the operation to run before the first mini-batch.
      is_one_a_run: whether a session run has only one mini-batch, however often `next` was called.
    """

    def __init__(
        self, dataset: Dataset, mode: str, params: Mapping[str, Any], shard: tuple[int, int], device: str = ""
    ) -> None:
        """Calls the input_fn.

        Args:
          shard: (index, count), this worker's share of the data.
          device: the device of the input, "" to leave that open.

        Raises:
          UserCodeError: the input_fn returns neither a Dataset nor a pair of tensors.
        """
        self._name = dataset.name
        self._device = device
        with tf.device(device), tf.name_scope("input"):
            self._made = dataset.input_fn(mode=mode, params=params, shard=shard)
            self.is_one_a_run = _is_pair_of_tensors(self._made)
            if self.is_one_a_run:
                self.initializer = tf.no_op()
                return
            if not isinstance(self._made, tf.compat.v2.data.Dataset):
                raise UserCodeError(f"{self._name}.input_fn returned {type(self._made).__name__}; it must return a "
                                    "tf.data.Dataset of (features, labels), or such a pair of tensors")
            self._iterator = tf.data.make_initializable_iterator(self._made.prefetch(_PREFETCHED))
        self.initializer = self._iterator.initializer

    def next(self) -> tuple[Any, Any]:
        """Returns (features, labels), each a tensor or a nested structure of tensors [batch, ...].

        Raises:
          UserCodeError: the dataset does not yield such a pair.
        """
        if self.is_one_a_run:
            return tuple(self._made)
        with tf.device(self._device), tf.name_scope("input"):
            element = self._iterator.get_next()
        if not isinstance(element, tuple) or len(element) != 2:
            raise UserCodeError(f"{self._name}.input_fn: its dataset yields {self._made.element_spec}; it must "
                                "yield (features, labels)")
        return element


def _is_pair_of_tensors(made: Any) -> bool:
    return isinstance(made, (tuple, list)) and len(made) == 2 and all(map(tf.is_tensor, tf.nest.flatten(made)))
