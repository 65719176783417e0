"""The worker's end of dynamic sharding: ranges come in from ps 0, and notes on their batches go out.

    feeder --FileRange--> [waiting] --> tf.data reads it --> batch and its RangeMark --> the training step
           <-- [notes] <-- (number, is it the last batch?) when a step takes the batch ----------------+
                       <-- in sync, whether the gradients of what was taken were lost, at the end of the step

Both are queues on the worker's server, so the step itself asks no ps. `file_ranges` finds out here that ps 0 hands out
ranges; training/ranges/ feeds the queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.errors import ConfigError
from ps_train.parts.sharding import range_plan
from ps_train.parts.sharding.range_plan import FileRange

_REQUESTED, _LOCAL = "ps_train_dynamic_sharding", "ps_train_local_ranges"
_TYPES = FileRange(tf.int64, tf.string, tf.int64, tf.int64, tf.int64)
_END = -1  # in place of a range: there are no more
VERDICT = -1  # in place of a range in a note: what was taken since the last one is in an update (0), or lost (1)


class RangeSettings(NamedTuple):
    """How ranges are handed out.

    Attributes:
      num_epochs: how often each range is trained on; None for no end.
      seed: of the order of the ranges.
    """

    num_epochs: int | None
    seed: int


def request(settings: RangeSettings | None) -> None:
    """Makes the training input of the current graph take its ranges from a LocalRanges; None asks for nothing."""
    if settings is not None:
        tf.add_to_collection(_REQUESTED, settings)


def are_requested() -> bool:
    """Tells whether `request` was called for the current graph."""
    return bool(_graph().get_collection(_REQUESTED))


def of_graph() -> LocalRanges | None:
    """Returns the LocalRanges of the current graph, if its input has made one."""
    return next(iter(_graph().get_collection(_LOCAL)), None)


class LocalRanges:
    """The ranges that this worker has been given.

    Attributes:
      settings: how ranges are handed out.
      plan: all ranges of the input, by number: those of the files here, until `adopt`.
      plan_text: describes them, see `range_plan.py`.
      given: placeholders for a range.
      give_op: hands that range to the input.
      end_op: tells the input that there are no more ranges.
      poll: int32 scalar, the ranges that the input has not begun to read; int64 [n, 2], the new notes: the number of
        the range of a batch that a step has taken, and whether that is its last batch; or VERDICT and whether the
        batches before it are lost.
      has_verdicts: whether a batch counts as trained on only after a verdict.
      reset_op: empties both queues.
    """

    def __init__(self, plan: Sequence[FileRange], patterns: Sequence[str], *, is_text: bool) -> None:
        """Adds the queues to the current graph, on the current device.

        Args:
          plan: the ranges of the files here.
          patterns: find these files.
          is_text: whether a range begins where a line does.

        Raises:
          ConfigError: the input has ranges already.
        """
        if of_graph() is not None:
            raise ConfigError("--dynamic_sharding: input_fn calls file_ranges twice; give all files to one call, or "
                              "leave the flag out")
        self.has_verdicts = False
        self.settings, = tf.get_collection(_REQUESTED)
        self._here, self._patterns, self._is_text = list(plan), patterns, is_text
        self.plan, self.plan_text = self._here, range_plan.describe_ranges(plan, patterns)
        # Without shared_name: `training.queues` removes the queues that have one.
        self._waiting = tf.queue.FIFOQueue(-1, list(_TYPES), [[]] * len(_TYPES), name="waiting_ranges")
        self._notes = tf.queue.FIFOQueue(-1, [tf.int64], [[2]], name="notes_on_ranges")
        self.given = FileRange(*(tf.placeholder(dtype, [], name="range") for dtype in _TYPES))
        self.give_op = self._waiting.enqueue(list(self.given))
        self.end_op = self._waiting.enqueue([tf.constant(value, dtype) for value, dtype in zip(
            FileRange(_END, "", 0, 0, 0), _TYPES)])
        num_waiting = self._waiting.size()
        notes = self._notes.dequeue_many(self._notes.size())
        self.poll = (num_waiting, notes)
        self.reset_op = tf.group(self._waiting.dequeue_many(self._waiting.size()), notes)
        tf.add_to_collection(_LOCAL, self)

    def ranges(self) -> tf.data.Dataset:
        """Returns a dataset of `FileRange`, as they come in."""
        endless = tf.data.Dataset.from_tensors(0).repeat()
        do_not_convert = tf.autograph.experimental.do_not_convert  # it would write the functions to temporary files
        taken = endless.map(do_not_convert(lambda _: FileRange(*self._waiting.dequeue())))
        return taken.take_while(do_not_convert(lambda one: tf.not_equal(one.number, _END)))

    def extended(self, text: str) -> range_plan.Extension:
        """Returns the ranges of a text, and those of the files here that it does not have.

        Raises:
          range_plan.MisfitError: a file of the text is not here, or has changed.
        """
        return range_plan.take_up(text, self._here, self._patterns, is_text=self._is_text)

    def adopt(self, text: str) -> None:
        """Makes the ranges of a text those of the input; files that it does not have are left out.

        Raises:
          ConfigError: a file of the text is not here, or has changed.
        """
        try:
            found = self.extended(text)
        except range_plan.MisfitError as error:
            raise ConfigError(f"--dynamic_sharding: the files are not those of the training on the ps: {error}; all "
                              "workers need the same files") from None
        self.plan, self.plan_text = found.plan[:len(found.plan) - found.num_ranges], text

    def note(self, number: tf.Tensor, is_last: tf.Tensor) -> tf.Operation:
        """Returns the operation that notes that a batch of this range is taken for a step."""
        return self._notes.enqueue(tf.stack([tf.cast(number, tf.int64), tf.cast(is_last, tf.int64)]))

    def judge(self, train_op: tf.Operation, is_settled: tf.Tensor, is_lost: tf.Tensor) -> tf.Operation:
        """Returns a step that also notes whether its gradients are lost, once that is settled; both bool scalars."""
        self.has_verdicts = True
        with tf.control_dependencies([train_op]), tf.device(self._notes.queue_ref.device):
            is_settled, is_lost = tf.identity(is_settled), tf.identity(is_lost)
            return tf.group(tf.cond(
                is_settled, lambda: tf.group(self.note(tf.constant(VERDICT), is_lost)), tf.no_op))


def _graph() -> tf.Graph:
    graph = tf.get_default_graph()
    while getattr(graph, "outer_graph", None) is not None:  # of a function, such as the body of a loop
        graph = graph.outer_graph
    return graph
