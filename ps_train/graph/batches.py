"""Input: the mini-batches of a dataset plug-in as tensors of the current graph.

    input_fn returns                                     `Batches.next()` returns
    a tf.data.Dataset of (features, labels)              another mini-batch at each call
    (features, labels), as tf.train.batch returns them   the same tensors, a new mini-batch in each session run

docs/decisions/input.md says more.
"""

from __future__ import annotations

import abc
import contextlib
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, Callable

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.errors import UserCodeError
from ps_train.plugins.contracts import Dataset

INPUT_SCOPE = "input"  # of all operations of the input
_PREFETCHED = 2
_FEEDS, _SOURCE = "ps_train_input_feeds", "ps_train_input_source"
_thread = threading.local()  # a chief may evaluate in another thread than that which builds its training graph


class Batches:
    """The mini-batches of one dataset in one mode.

    Attributes:
      initializer: the operation to run before the first mini-batch.
      device: of the input, or "".
      has_one_batch_per_run: whether a session run has only one mini-batch, however often `next` was called.
    """

    def __init__(
        self, dataset: Dataset, mode: str, params: Mapping[str, Any], shard: tuple[int, int], device: str = "", *,
        needs_labels: bool = True,
    ) -> None:
        """Calls the input_fn.

        Args:
          shard: (index, count), this worker's share of the data.
          device: the device of the input, or "" for any.
          needs_labels: whether each element must be (features, labels); otherwise it may be features alone.

        Raises:
          UserCodeError: the input_fn returns neither a Dataset nor a pair of tensors.
          ConfigError: the input is to come from a source, and the input_fn does not take it from there.
        """
        self._name, self._needs_labels = dataset.name, needs_labels
        self.device = device
        with tf.device(device), tf.name_scope(INPUT_SCOPE):
            self._input = dataset.input_fn(mode=mode, params=dict(params), shard=shard)
            is_pair = isinstance(self._input, (tuple, list)) and len(self._input) == 2
            self.has_one_batch_per_run = is_pair and all(map(tf.is_tensor, tf.nest.flatten(self._input)))
            self._source = source_of_graph()
            if self._source is not None:
                self._source.check_used(self._name)
            if self.has_one_batch_per_run:
                self.initializer = tf.no_op()
                return
            if not isinstance(self._input, tf.compat.v2.data.Dataset):
                raise UserCodeError("plugin_returned_wrong_type", f"{self._name}.input_fn returned "
                                    f"{type(self._input).__name__}; it must return a tf.data.Dataset of (features, "
                                    "labels), or such a pair of tensors")
            self._iterator = tf.data.make_initializable_iterator(untuned(self._input.prefetch(_PREFETCHED)))
        self.initializer = self._iterator.initializer

    def next(self) -> tuple[Any, Any]:
        """Returns (features, labels), each a tensor or a nested structure of tensors [batch, ...].

        Raises:
          UserCodeError: the dataset does not yield such a pair.
        """
        if self.has_one_batch_per_run:
            return tuple(self._input)
        with tf.device(self.device), tf.name_scope(INPUT_SCOPE):
            return self._pair(self._iterator.get_next())

    @property
    def element_spec(self) -> Any:
        """The types of a mini-batch; only for a tf.data.Dataset."""
        return self._input.element_spec if self._source is None else self._input.element_spec[0]

    def cardinality(self) -> tf.Tensor:
        """Returns the number of mini-batches as far as TensorFlow knows it, see `tf.data.experimental.cardinality`."""
        unknown = tf.data.experimental.UNKNOWN_CARDINALITY
        return tf.constant(unknown) if self.has_one_batch_per_run else tf.data.experimental.cardinality(self._input)

    def next_if_any(self) -> tuple[tf.Tensor, Callable[[], tuple[Any, Any]]]:
        """Returns whether another mini-batch exists, a bool scalar, and a function that adds it to the graph.

        Only for a tf.data.Dataset.
        """
        with tf.device(self.device), tf.name_scope(INPUT_SCOPE):
            batch = tf.data.experimental.get_next_as_optional(self._iterator)
            return batch.has_value(), lambda: self._pair(batch.get_value())

    def _pair(self, element: Any) -> tuple[Any, Any]:
        if self._source is not None:
            element = self._source.taken(element, self._name)
        if not isinstance(element, tuple) or len(element) != 2:
            if not self._needs_labels:
                return element, None
            raise UserCodeError("plugin_returned_wrong_type", f"{self._name}.input_fn: its dataset yields "
                                f"{self._input.element_spec}; it must yield (features, labels)")
        return element


def untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset with tf.data's autotuning off, unless its options say otherwise.

    AUTOTUNE then means as many parallel calls as the session has threads, at most 16 (docs/decisions/input.md).
    """
    # After a lost session, autotuning can stop the worker for up to 60 s. To close a session, TensorFlow ends the
    # tuning thread, which sleeps up to 60 s and checks `IsCancelled` when it is woken. That is set only after the
    # wake-up (Model::OptimizeLoop in core/framework/model.cc). If the check comes first, the thread sleeps on, and the
    # process's SessionMgr, which waits for it, opens no other session.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the options of a stored dataset are not known in a graph
        is_chosen = dataset.options().autotune.enabled is not None
    if is_chosen:
        return dataset
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


class InputSource(abc.ABC):
    """Where the input of a training comes from, in place of a share of this worker."""

    @abc.abstractmethod
    def check_used(self, dataset: str) -> None:
        """Raises ConfigError if the input_fn of this dataset does not take its input from here."""

    @abc.abstractmethod
    def taken(self, element: Any, dataset: str) -> Any:
        """Returns the batch of an element (batch, mark); computing it notes that a step has taken it.

        Raises:
          UserCodeError: this is no such pair.
        """


def set_source(source: InputSource) -> None:
    """Makes this the source of the training input in the current graph."""
    tf.add_to_collection(_SOURCE, source)


def source_of_graph() -> InputSource | None:
    """Returns the source of the current graph, or None."""
    graph = tf.get_default_graph()
    while getattr(graph, "outer_graph", None) is not None:  # of a function, such as the body of a loop
        graph = graph.outer_graph
    return next(iter(graph.get_collection(_SOURCE)), None)


@contextlib.contextmanager
def single_pass() -> Iterator[None]:
    """Makes the datasets that this thread creates in its body yield each example once and in order."""
    previous = is_single_pass()
    _thread.is_single_pass = True
    try:
        yield
    finally:
        _thread.is_single_pass = previous


def is_single_pass() -> bool:
    """Returns whether datasets end after one pass."""
    return getattr(_thread, "is_single_pass", False)


def feed_at_start(placeholder: tf.Tensor, array: np.ndarray) -> None:
    """Adds to what the iterators of the current graph are initialised with."""
    tf.add_to_collection(_FEEDS, (placeholder, array))


def input_feed(graph: tf.Graph) -> dict[Any, np.ndarray]:
    """Returns placeholder -> array: the feed with which the graph's iterators are initialised."""
    return dict(graph.get_collection(_FEEDS))
