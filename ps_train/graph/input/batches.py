"""Adds the mini-batches of a dataset plug-in to the current graph.

    input_fn returns                                     `next()` returns
    a tf.data.Dataset of (features, labels)              another mini-batch at each call
    the same of ((features, labels), RangeMark)          the same, and notes which range it comes from
    (features, labels), as tf.train.batch returns them   the same tensors, a new mini-batch in each session run
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from ps_train.errors import UserCodeError
from ps_train.graph.input import bad_records, file_ranges
from ps_train.plugins.contracts import Dataset

INPUT_SCOPE = "input"  # of all operations of the input
_PREFETCHED = 2


class Batches:
    """The mini-batches of one dataset in one mode.

    Attributes:
      initializer: the operation to run before the first mini-batch.
      device: of the input, "" where that is open.
      is_one_a_run: whether a session run has only one mini-batch, however often `next` was called.
    """

    def __init__(
        self, dataset: Dataset, mode: str, params: Mapping[str, Any], shard: tuple[int, int], device: str = "", *,
        needs_labels: bool = True,
    ) -> None:
        """Calls the input_fn.

        Args:
          shard: (index, count), this worker's share of the data.
          device: the device of the input, "" to leave that open.
          needs_labels: whether each element must be (features, labels), and not features alone.

        Raises:
          UserCodeError: the input_fn returns neither a Dataset nor a pair of tensors.
          ConfigError: the ranges of files are to come from a source, and the input_fn takes none.
        """
        self._name, self._needs_labels = dataset.name, needs_labels
        self.device = device
        with tf.device(device), tf.name_scope(INPUT_SCOPE):
            self._made = dataset.input_fn(mode=mode, params=params, shard=shard)
            self.is_one_a_run = _is_pair_of_tensors(self._made)
            self._source = file_ranges.source_of_graph()
            if self._source is not None:
                self._source.check_used(self._name)
            if self.is_one_a_run:
                self.initializer = tf.no_op()
                return
            if not isinstance(self._made, tf.compat.v2.data.Dataset):
                raise UserCodeError(f"{self._name}.input_fn returned {type(self._made).__name__}; it must return a "
                                    "tf.data.Dataset of (features, labels), or such a pair of tensors")
            self._iterator = tf.data.make_initializable_iterator(self._made.prefetch(_PREFETCHED))
            counters = tf.variables_initializer(bad_records.counters(tf.get_default_graph()))
        self.initializer = tf.group(self._iterator.initializer, counters)

    def next(self) -> tuple[Any, Any]:
        """Returns (features, labels), each a tensor or a nested structure of tensors [batch, ...].

        Raises:
          UserCodeError: the dataset does not yield such a pair.
        """
        if self.is_one_a_run:
            return tuple(self._made)
        with tf.device(self.device), tf.name_scope(INPUT_SCOPE):
            return self._pair(self._iterator.get_next())

    @property
    def element_spec(self) -> Any:
        """The types of a mini-batch; only for a tf.data.Dataset."""
        return self._made.element_spec if self._source is None else self._made.element_spec[0]

    def cardinality(self) -> tf.Tensor:
        """Returns the number of mini-batches as far as TensorFlow knows it, see `tf.data.experimental.cardinality`."""
        unknown = tf.data.experimental.UNKNOWN_CARDINALITY
        return tf.constant(unknown) if self.is_one_a_run else tf.data.experimental.cardinality(self._made)

    def next_if_any(self) -> tuple[tf.Tensor, Callable[[], tuple[Any, Any]]]:
        """Returns whether there is another mini-batch, a bool scalar, and what adds it to the graph if there is.

        Only for a tf.data.Dataset.
        """
        with tf.device(self.device), tf.name_scope(INPUT_SCOPE):
            found = tf.data.experimental.get_next_as_optional(self._iterator)
            return found.has_value(), lambda: self._pair(found.get_value())

    def _pair(self, element: Any) -> tuple[Any, Any]:
        if self._source is not None:
            element = self._source.taken(element, self._name)
        if not isinstance(element, tuple) or len(element) != 2:
            if not self._needs_labels:
                return element, None
            raise UserCodeError(f"{self._name}.input_fn: its dataset yields {self._made.element_spec}; it must "
                                "yield (features, labels)")
        return element


def _is_pair_of_tensors(made: Any) -> bool:
    return isinstance(made, (tuple, list)) and len(made) == 2 and all(map(tf.is_tensor, tf.nest.flatten(made)))
