"""The worker's end of dynamic sharding: ranges come in from ps 0, and notes on their batches go out.

    feeder --FileRange--> [waiting] --> tf.data reads it --> batch and its RangeMark --> the training step
           <-- [notes] <-- (number, is it the last batch?) when a step takes the batch ----------------+
                       <-- in sync, whether the gradients of these batches were lost, at the end of the step

Both are queues on the worker's server, so the step itself asks no ps. `feeder.py` feeds the first and reads the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.errors import ConfigError, UserCodeError
from ps_train.parts.readers.file_ranges import FileRange, RangeSource
from ps_train.parts.readers.range_batches import RangeMark
from ps_train.parts.sharding import range_plan
from ps_train.parts.sharding.growth import Cut, GrowingFiles

_TYPES = FileRange(tf.int64, tf.string, tf.int64, tf.int64, tf.int64)
_END = -1  # instead of a range: no more ranges follow
# Instead of a range in a note:
VERDICT = -1  # the batches since the last verdict are in an update (0), or lost (1)
EXHAUSTED = -2  # all batches of the ranges were read


class RangeSettings(NamedTuple):
    """How ranges are handed out.

    Attributes:
      num_epochs: how often each range is trained on; None for no end.
      seed: of the order of the ranges; None for that in which they came.
      follows: whether the files grow.
    """

    num_epochs: int | None
    seed: int | None
    follows: bool = False


class QueueSource(RangeSource):
    """Makes the input of one training graph take its ranges from a LocalRanges.

    Attributes:
      settings: how ranges are handed out.
      local: the ranges, once the input_fn has called `file_ranges`; None before.
    """

    def __init__(self, settings: RangeSettings) -> None:
        self.settings = settings
        self.local: LocalRanges | None = None

    def ranges(
        self, plan: Callable[[], Sequence[FileRange]], patterns: Sequence[str], *, is_text: bool, cut: Cut,
    ) -> tf.data.Dataset:
        """Returns the ranges as they come in; see `RangeSource`.

        Raises:
          ConfigError: the input has ranges already, or its files cannot be followed.
        """
        if self.local is not None:
            raise ConfigError("file_ranges_called_twice", (
                "--dynamic_sharding: input_fn calls file_ranges twice; give all files to one call, or leave the flag "
                "out"))
        growing = GrowingFiles(patterns, cut) if self.settings.follows else None
        self.local = LocalRanges([] if growing else plan(), patterns, self.settings, is_text=is_text, growing=growing)
        return self.local.ranges()

    def note_end(self) -> tf.Operation:
        """Returns the operation that notes that all batches were read; see `RangeSource`."""
        return self.local.note(tf.constant(EXHAUSTED), tf.constant(True)) if self.local else tf.no_op()

    def check_used(self, dataset: str) -> None:
        """Raises a ConfigError if the input has no ranges."""
        if self.local is None:
            raise ConfigError("file_ranges_not_called", (
                f"--dynamic_sharding: {dataset}.input_fn does not call ps_train.file_ranges, so it has no ranges to "
                "hand out; leave the flag out"))

    def taken(self, element: Any, dataset: str) -> Any:
        """Returns the batch of a marked element; see `RangeSource`."""
        if not isinstance(element, tuple) or len(element) != 2 or not isinstance(element[1], RangeMark):
            raise UserCodeError("range_mark_missing", (
                f"{dataset}.input_fn: with --dynamic_sharding its dataset must yield ((features, labels), RangeMark), "
                "as ps_train.range_batches does; it yields "
                f"{tf.nest.map_structure(tf.type_spec_from_value, element)}"))
        batch, mark = element
        with tf.control_dependencies([self.local.note(mark.number, mark.is_last)]):
            return tf.nest.map_structure(tf.identity, batch, expand_composites=True)


class LocalRanges:
    """The queue of ranges for this worker's input, and the queue of notes on them.

    Attributes:
      settings: how ranges are handed out.
      growing: the files, if they grow, else None.
      plan: all ranges of the input, by number: those of this worker's files, until `adopt`.
      plan_text: describes them, see `range_plan.py`.
      added: placeholders for a range.
      add_op: hands that range to the input.
      end_op: ends the input.
      poll: int32 scalar, the ranges that the input has not begun to read; int64 [n, 2], the new notes: the number of
        the range of a batch that a step has taken, and whether that is its last batch; or VERDICT and whether the
        batches before it are lost; or EXHAUSTED.
      has_verdicts: whether a batch counts as trained on only after a verdict.
      reset_op: empties both queues.
    """

    def __init__(
        self, plan: Sequence[FileRange], patterns: Sequence[str], settings: RangeSettings, *, is_text: bool,
        growing: GrowingFiles | None = None,
    ) -> None:
        """Adds the queues to the current graph, on the current device.

        Args:
          plan: the ranges of this worker's files.
          patterns: find these files.
          is_text: whether a range begins where a line does.
          growing: the files, if they grow; then `plan` is not used.
        """
        self.has_verdicts = False
        self.settings, self.growing = settings, growing
        self._own_plan, self._patterns, self._is_text = list(plan), patterns, is_text
        self.plan, self.plan_text = self._own_plan, "" if growing else range_plan.describe_ranges(plan, patterns)
        # Without shared_name: `plugin_calls.Queues` removes the queues that have one.
        self._waiting = tf.queue.FIFOQueue(-1, list(_TYPES), [[]] * len(_TYPES), name="waiting_ranges")
        self._notes = tf.queue.FIFOQueue(-1, [tf.int64], [[2]], name="notes_on_ranges")
        self.added = FileRange(*(tf.placeholder(dtype, [], name="range") for dtype in _TYPES))
        self.add_op = self._waiting.enqueue(list(self.added))
        self.end_op = self._waiting.enqueue([tf.constant(value, dtype) for value, dtype in zip(
            FileRange(_END, "", 0, 0, 0), _TYPES)])
        num_waiting = self._waiting.size()
        notes = self._notes.dequeue_many(self._notes.size())
        self.poll = (num_waiting, notes)
        self.reset_op = tf.group(self._waiting.dequeue_many(self._waiting.size()), notes)

    def ranges(self) -> tf.data.Dataset:
        """Returns a dataset of `FileRange`, as they come in; to repeat it adds nothing."""
        endless = tf.data.Dataset.from_tensors(0).repeat()
        do_not_convert = tf.autograph.experimental.do_not_convert  # it would write the functions to temporary files
        incoming = endless.map(do_not_convert(lambda _: self._next_range()))
        ranges = incoming.take_while(do_not_convert(lambda file_range: tf.not_equal(file_range.number, _END)))
        # `repeat` ends when its input is empty. Fused with `shuffle`, it does so only if there never was an element.
        options = tf.data.Options()
        options.experimental_optimization.shuffle_and_repeat_fusion = False
        return ranges.with_options(options)

    def _next_range(self) -> FileRange:
        """Takes a range from the queue, in which the end stays: an input_fn that repeats its dataset reads it again."""
        fields = self._waiting.dequeue()
        num_ends = tf.cast(tf.equal(FileRange(*fields).number, _END), tf.int32)
        with tf.control_dependencies([self._waiting.enqueue_many([tf.fill([num_ends], field) for field in fields])]):
            return FileRange(*map(tf.identity, fields))

    def extended(self, text: str) -> range_plan.Extension:
        """Returns the ranges of a text, and those of this worker's files that it does not have.

        Raises:
          range_plan.MisfitError: this worker lacks a file of the text, or the file has changed.
        """
        if self.growing:
            return self.growing.extend(text)
        return range_plan.extend(text, self._own_plan, self._patterns, is_text=self._is_text)

    def check(self, text: str) -> None:
        """Raises range_plan.MisfitError as `extended` does; looks at no file that grows."""
        if self.growing:
            self.growing.plan(text)
        else:
            self.extended(text)

    def adopt(self, text: str) -> None:
        """Makes the ranges of a text those of the input; files that it does not have are left out.

        Raises:
          ConfigError: this worker lacks a file of the text, or the file has changed.
        """
        if self.growing:
            self.plan, self.plan_text = self.growing.plan(text), text
            return
        try:
            extension = self.extended(text)
        except range_plan.MisfitError as error:
            raise ConfigError(error.code, (
                f"--dynamic_sharding: the files are not those of the training on the ps: {error}; all workers need the "
                "same files and flags")) from None
        self.plan, self.plan_text = extension.plan[:len(extension.plan) - extension.num_ranges], text

    def note(self, number: tf.Tensor, is_last: tf.Tensor) -> tf.Operation:
        """Returns the operation that notes that a step takes a batch of this range."""
        return self._notes.enqueue(tf.stack([tf.cast(number, tf.int64), tf.cast(is_last, tf.int64)]))

    def judge(self, train_op: tf.Operation, is_settled: tf.Tensor, is_lost: tf.Tensor) -> tf.Operation:
        """Returns a step that also notes whether its gradients are lost, once that is settled; both bool scalars."""
        self.has_verdicts = True
        with tf.control_dependencies([train_op]), tf.device(self._notes.queue_ref.device):
            is_settled, is_lost = tf.identity(is_settled), tf.identity(is_lost)
            return tf.group(tf.cond(
                is_settled, lambda: tf.group(self.note(tf.constant(VERDICT), is_lost)), tf.no_op))

    def describe(self, numbers: Iterable[int]) -> str:
        """Returns ranges as text, by their numbers."""
        numbers = sorted(numbers)
        if not numbers:
            return "no range"
        num_bytes = sum(self.plan[number].stop - self.plan[number].start for number in numbers)
        return (f"{len(numbers)} range{'s' if len(numbers) > 1 else ''} of {num_bytes} bytes: number "
                f"{', '.join(map(str, numbers))}")
