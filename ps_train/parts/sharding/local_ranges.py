"""The worker's end of dynamic sharding: ranges come in from ps 0, and notes on their batches go out.

    feeder --FileRange--> [waiting] --> tf.data reads it --> batch and its RangeMark --> the training step
           <-- [notes] <-- (number, is it the last batch?) when a step takes the batch ----------------+
                       <-- in sync, whether the gradients of what was taken were lost, at the end of the step

Both are queues on the worker's server, so the step itself asks no ps. `feeder.py` feeds the first and reads the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.errors import ConfigError, UserCodeError
from ps_train.graph.input import file_ranges
from ps_train.graph.input.file_ranges import FileRange
from ps_train.graph.input.range_batches import RangeMark
from ps_train.parts.sharding import range_plan

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


class QueueSource(file_ranges.RangeSource):
    """Makes the input of one training graph take its ranges from a LocalRanges.

    Attributes:
      settings: how ranges are handed out.
      local: the ranges, once the input_fn has called `file_ranges`; None before.
    """

    def __init__(self, settings: RangeSettings) -> None:
        self.settings = settings
        self.local: LocalRanges | None = None

    def ranges(self, plan: Sequence[FileRange], patterns: Sequence[str], *, is_text: bool) -> tf.data.Dataset:
        """Returns the ranges as they come in; see `RangeSource`.

        Raises:
          ConfigError: the input has ranges already.
        """
        if self.local is not None:
            raise ConfigError("--dynamic_sharding: input_fn calls file_ranges twice; give all files to one call, or "
                              "leave the flag out")
        self.local = LocalRanges(plan, patterns, self.settings, is_text=is_text)
        return self.local.ranges()

    def check_used(self, dataset: str) -> None:
        """Raises a ConfigError if the input has no ranges."""
        if self.local is None:
            raise ConfigError(f"--dynamic_sharding: {dataset}.input_fn does not call ps_train.file_ranges, so there "
                              "are no ranges to hand out; leave the flag out")

    def taken(self, element: Any, dataset: str) -> Any:
        """Returns the batch of a marked one; see `RangeSource`."""
        if not isinstance(element, tuple) or len(element) != 2 or not isinstance(element[1], RangeMark):
            raise UserCodeError(f"{dataset}.input_fn: with --dynamic_sharding its dataset must yield ((features, "
                                f"labels), RangeMark), as ps_train.range_batches does; it yields "
                                f"{tf.nest.map_structure(tf.type_spec_from_value, element)}")
        batch, mark = element
        with tf.control_dependencies([self.local.note(mark.number, mark.is_last)]):
            return tf.nest.map_structure(tf.identity, batch, expand_composites=True)


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

    def __init__(
        self, plan: Sequence[FileRange], patterns: Sequence[str], settings: RangeSettings, *, is_text: bool
    ) -> None:
        """Adds the queues to the current graph, on the current device.

        Args:
          plan: the ranges of the files here.
          patterns: find these files.
          is_text: whether a range begins where a line does.
        """
        self.has_verdicts = False
        self.settings = settings
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

    def shown(self, numbers: Iterable[int]) -> str:
        """Returns ranges in words, by their numbers."""
        found = sorted(numbers)
        if not found:
            return "no range"
        num_bytes = sum(self.plan[number].stop - self.plan[number].start for number in found)
        return (f"{len(found)} range{'s' if len(found) > 1 else ''} of {num_bytes} bytes: number "
                f"{', '.join(map(str, found))}")
