"""The operations of synchronous updates: the mean of several workers' gradients is applied at once.

    worker   push each gradient --> enter the gate --> wait for the update --> its next step begins
    chief    wait until enough are in the gate --> take all, apply their mean --> global step + 1 --> notify the workers

As long as no worker dies, the numbers are those of `tf.compat.v1.train.SyncReplicasOptimizer`: an accumulator
of each variable averages what is pushed to it, and drops what was computed for an earlier global step. But here a task
waits for variables on ps 0 (coordination/variables.py), which the chief can change when a worker dies:

    chief    waits while the gate has fewer gradients than `required`, which the chief sets (runner.py)
    worker   waits while the global step is below `awaited`; 0 releases it at any step

Each worker and the chief's update have a condition variable (`Condition`). See docs/decisions/sync.md.

The gate says which gradients the next update has, and whether the last one of a worker was in an update:

    worker   draws a mark for its gradient --> enters the gate with it --> after its wait: does `included` have my mark?
    chief    takes all from the gate --> writes their marks to `included` --> applies the gradients --> raises the step

A flush forgets the marks before it raises the step. So a worker that finds its mark at a later step knows that an
update with its gradient was applied.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.coordination import variables
from ps_train.updates.update import InitOps, SyncSettings, Verdict

_MOST = 2**40  # of a mark: sums of a few thousand are exact in float64
_FLUSHED = -1.0


class Accumulator:
    """An accumulator on one device, which averages a dense or a sparse gradient, or counts.

    It has a step, and drops gradients that were computed for an earlier one. Each `take` raises its step by one.
    """

    def __init__(self, accumulator: Any, device: str) -> None:
        self._accumulator, self._device = accumulator, device
        self._is_sparse = isinstance(accumulator, tf.SparseConditionalAccumulator)

    def push(self, gradient: Any, step: tf.Tensor) -> tf.Operation:
        """Adds a gradient that was computed for a global step."""
        with tf.device(self._device):
            apply = self._accumulator.apply_indexed_slices_grad if self._is_sparse else self._accumulator.apply_grad
            return apply(tf.cast(gradient, self._accumulator.dtype), step)

    def take(self, dtype: tf.DType | None = None) -> Any:
        """Returns the mean (or the count), of this type, and empties the accumulator; waits while it is empty."""
        with tf.device(self._device):
            taken = self._accumulator.take_indexed_slices_grad(1) if self._is_sparse else self._accumulator.take_grad(1)
            return tf.cast(taken, dtype or taken.dtype)

    def size(self) -> tf.Tensor:
        """Returns how many gradients it contains, int32 scalar."""
        with tf.device(self._device):
            return self._accumulator.num_accumulated()

    def drop(self) -> tf.Operation:
        """Empties the accumulator."""
        with tf.device(self._device):
            # Taking from an empty accumulator would wait.
            return tf.cond(self._accumulator.num_accumulated() > 0,
                           lambda: tf.group(self._accumulator.take_grad(1)), tf.no_op)

    def set_step(self, step: tf.Tensor) -> tf.Operation:
        """Sets the accumulator's own step."""
        with tf.device(self._device):
            return self._accumulator.set_global_step(step)


def restart(accumulators: Sequence[Accumulator], step: tf.Tensor) -> list[tf.Operation]:
    """Returns operations that empty accumulators and set their steps to a global step."""
    # The step is set twice: first to keep older gradients out, then because `drop` raises it. One operation stands for
    # all of them: with an edge from each to each, the graph of a model with hundreds of variables takes minutes.
    with tf.control_dependencies([tf.group(*(accumulator.set_step(step) for accumulator in accumulators))]):
        dropped = tf.group(*(accumulator.drop() for accumulator in accumulators))
    with tf.control_dependencies([dropped]):
        return [accumulator.set_step(step) for accumulator in accumulators]


def gradient_accumulator(gradient: Any, variable: tf.Variable, *, sums: bool = False) -> Accumulator:
    """Returns what sums or averages a variable's gradients on its ps: a row of sparse ones over those that have it."""
    # TensorFlow has no accumulator of bfloat16, and a sum of float16 soon overflows.
    dtype = tf.float32 if gradient.dtype.size == 2 else gradient.dtype
    is_sparse, reduction = isinstance(gradient, tf.IndexedSlices), "SUM" if sums else "MEAN"
    make = tf.SparseConditionalAccumulator if is_sparse else tf.ConditionalAccumulator
    kind = {"dtype": dtype, "shape": () if is_sparse else variable.shape, "reduction_type": reduction}
    # The kind is in the name: the next training on the same servers may have other shapes.
    name = "_".join([f"{variable.op.name}/gradients", make.__name__, *map(str, kind.values())])
    with tf.device(variable.device):
        return Accumulator(make(**kind, shared_name=name), variable.device)


def summing(name: str, size: int, device: str) -> Accumulator:
    """Returns an accumulator of float64 [size], of which `take` returns the sum."""
    with tf.device(device):
        shared_name = f"{name}_{size}"  # as in `gradient_accumulator`
        return Accumulator(tf.ConditionalAccumulator(tf.float64, [size], shared_name, reduction_type="SUM"), device)


class Gate:
    """The gate on ps 0, as one worker uses it."""

    def __init__(self, device: str, *, worker: int, num_workers: int, drops_late: bool) -> None:
        """Creates the gate; with `drops_late`, updates leave out the slowest workers' gradients, which are not lost."""
        self._device, self._worker, self._num_workers, self._drops_late = device, worker, num_workers, drops_late
        # The sums of each worker's marks, then the number of gradients.
        self.accumulator = summing("ps_train/gate", num_workers + 1, device)

    def draw_mark(self) -> tf.Tensor:
        """Returns a number that no other gradient has, float64 scalar: the sum of this worker's marks in an update."""
        # Not of the graph's seed: a process that is started again must draw other marks.
        seeds = [1 + secrets.randbelow(2**31 - 1) for _ in range(2)]
        drawn = tf.raw_ops.RandomUniformInt(
            shape=tf.constant([], tf.int32), minval=tf.constant(1, tf.int64), maxval=tf.constant(_MOST, tf.int64),
            seed=seeds[0], seed2=seeds[1])
        return tf.cast(drawn, tf.float64)

    def enter(self, mark: tf.Tensor, step: tf.Tensor) -> tf.Operation:
        """Adds a gradient that was computed for a global step."""
        at_worker, at_count = tf.unstack(
            tf.one_hot([self._worker, self._num_workers], self._num_workers + 1, dtype=tf.float64))
        return self.accumulator.push(at_worker * mark + at_count, step)

    def take(self) -> tuple[tf.Tensor, tf.Operation]:
        """Empties the gate; returns how many gradients were in it, and the operation that records whose they are."""
        taken = self.accumulator.take()
        marks, included = taken[:-1], variables.read("included")
        updated = tf.where(marks > 0, marks, included[:self._num_workers])
        return taken[-1], variables.write("included", tf.concat([updated, included[self._num_workers:]], 0))

    def forget(self) -> tf.Operation:
        """Forgets all marks: what was pushed and is in no finished update is lost."""
        return variables.write("included", tf.fill([variables.MAX_WORKERS], tf.constant(_FLUSHED, tf.float64)))

    def begin_step(self, marks: Any) -> tf.Operation:
        """Begins this worker's next step; `marks` is the sum of those of its gradients that wait for an update."""
        begun = [variables.write_element("marks", self._worker, marks)]
        if self._drops_late:  # a flush counts for one step
            begun.append(variables.write_element("included", self._worker, 0.0))
        return tf.group(*begun)

    def verdict(self, marks: tf.Tensor, *, is_later: tf.Tensor, is_settled: tf.Tensor) -> Verdict:
        """Judges this worker's gradients of an update.

        Args:
          marks: their sum.
          is_later: bool scalar, whether the global step has risen since the gradients were computed.
          is_settled: bool scalar, whether this worker pushes no further one for the same update.
        """
        with tf.control_dependencies([is_later]):  # a flush comes before the step
            included = variables.read_element("included", self._worker)
        # What came too late is in no update either, so only a flush counts then.
        is_missing = tf.equal(included, _FLUSHED) if self._drops_late else tf.not_equal(included, marks) | ~is_later
        return Verdict(is_settled, is_missing)


class Condition:
    """A condition variable on a ps: one task waits while a condition holds, and rereads it when notified.

    A notification is kept until the waiting task receives it, and several count as one. So none is lost, and one too
    many costs only a reread.
    """

    def __init__(self, name: str, device: str) -> None:
        """Creates it; tasks that give the same name share it."""
        self._device = device
        with tf.device(device):
            # An accumulator of scalars: a pushed gradient is a notification, and its value means nothing.
            self._notifications = tf.ConditionalAccumulator(tf.float32, [], name)

    def notify(self) -> tf.Operation:
        """Lets the waiting task reread its condition, now or when it begins to wait."""
        with tf.device(self._device):
            never_stale = tf.constant(tf.int64.max, tf.int64)
            return self._notifications.apply_grad(0.0, never_stale)

    def wait_while(self, must_wait: Callable[[], tf.Tensor]) -> tf.Tensor:
        """Returns a tensor that is computed once `must_wait()`, a bool scalar read on the same device, is false."""

        def wait_and_reread(_: tf.Tensor) -> tf.Tensor:
            with tf.control_dependencies([self._notifications.take_grad(1)]):
                return must_wait()

        with tf.device(self._device):
            return tf.while_loop(lambda waits: waits, wait_and_reread, [must_wait()], parallel_iterations=1,
                                 back_prop=False)


class SyncStatus(NamedTuple):
    """The state of the updates, on ps 0.

    Attributes:
      step: int64 scalar, the global step.
      gathered: int32 scalar, the gradients in the gate.
      awaited: int64 [workers], the global step that each worker waits for; at most `step` if it does not wait.
      dropped: int64 scalar, the gradients that no update has used or will use.
      is_updating: int64 scalar, 1 while an update takes and applies gradients, else 0.
    """

    step: Any
    gathered: Any
    awaited: Any
    dropped: Any
    is_updating: Any


class SyncOperations(NamedTuple):
    """The operations of one worker, and those of the chief.

    Attributes:
      train_op: one step of a worker.
      verdict: whether its gradient was in an update.
      init: lets a worker's first step wait for nothing; the chief prepares the first update of a new run, and does as
        `flush_op` for one that is live.
      flush_op: raises the global step without an update: all gradients on their way are stale, all workers released.
      update_op: one update, as soon as the required gradients are there.
      require_op: sets `required`, which is all gradients at first, and notifies every waiting task.
      required: placeholder of `require_op`, int64 scalar, at least 1.
      status: what the chief checks.
      release_op: releases all workers.
    """

    train_op: tf.Operation
    verdict: Verdict
    init: InitOps
    flush_op: tf.Operation
    update_op: tf.Operation
    require_op: tf.Operation
    required: tf.Tensor
    status: SyncStatus
    release_op: tf.Operation


class SyncEngine:
    """Builds the operations of one worker, and those of the chief, in the current graph."""

    def __init__(
        self, optimizer: tf.train.Optimizer, gradients: list, global_step: tf.Variable, settings: SyncSettings, *,
        worker: int, is_in_rounds: bool = False, summed: Sequence[tf.Variable] = (),
        also_in_step: Sequence[tf.Operation] = (),
    ) -> None:
        """Creates the accumulators and condition variables.

        Args:
          optimizer: applies the mean.
          gradients: pairs of a gradient (dense, sparse or None) and its variable.
          global_step: the variable, on ps 0; of any integer type.
          worker: the number of this worker.
          is_in_rounds: whether an update raises the global step by more than one.
          summed: variables whose gradients are summed, not averaged.
          also_in_step: what a worker does besides before it enters the gate.
        """
        self._is_in_rounds, self._also_in_step = is_in_rounds, list(also_in_step)
        self._optimizer, self._global_step, self._ps = optimizer, global_step, global_step.device
        self._gradients = [pair for pair in gradients if pair[0] is not None]
        self._replicas, self._num_workers = settings.replicas_to_aggregate, settings.num_workers
        self._worker, self._num_own = worker, settings.gradients_of(worker)
        self._worker_conditions = [
            Condition(f"ps_train/condition_of_worker_{number}", self._ps) for number in range(self._num_workers)]
        self._update_condition = Condition("ps_train/condition_of_update", self._ps)
        self._gate = Gate(self._ps, worker=worker, num_workers=self._num_workers,
                          drops_late=self._replicas < self._num_workers)
        to_sum = {variable.ref() for variable in summed}
        self._accumulators = [gradient_accumulator(gradient, variable, sums=variable.ref() in to_sum)
                              for gradient, variable in self._gradients]
        self._all_accumulators = [self._gate.accumulator, *self._accumulators]

    def operations(self) -> SyncOperations:
        """Returns the operations."""
        flush_op = self._begin(1)
        with tf.device(self._ps), tf.control_dependencies([flush_op]):
            live_run_op = self._begin_step(self._read_step(), 0, 0)
        train_op, verdict = self._step()
        with tf.device(self._ps):
            required = tf.placeholder(tf.int64, [], "required")
            with tf.control_dependencies([variables.write("required", required)]):
                require_op = tf.group(self._update_condition.notify(), self._notify_workers())
            init_op = tf.group(variables.write_element("awaited", self._worker, 0),
                               self._begin_step(self._read_step(), 0, 0))
            gathered = self._gate.accumulator.size()
            status = SyncStatus(
                step=self._read_step(), gathered=gathered, awaited=variables.read("awaited")[:self._num_workers],
                dropped=tf.maximum(variables.read("unused") - tf.cast(gathered, tf.int64), 0),
                is_updating=variables.read("updating"))
        return SyncOperations(
            train_op=train_op, verdict=verdict, init=InitOps(init_op, self._begin(0), live_run_op), flush_op=flush_op,
            update_op=self._update(), require_op=require_op, required=required, status=status,
            release_op=self._release())

    def _step(self) -> tuple[tf.Operation, Verdict]:
        """Returns a worker's step, which pushes its gradients and waits for the update with them, and its verdict."""
        # The global step of the gradients is on ps 0: on the worker, it would cost three transfers more. A step
        # that the worker gave up may still wait there and write it once more; a gradient in time may be dropped then.
        with tf.device(self._ps):
            step = variables.read("computed_for")[self._worker]
            num_pushed = variables.read("pushed")[self._worker] + 1
            mark = self._gate.draw_mark()
            marks = variables.read("marks")[self._worker] + mark
        pushes = [accumulator.push(gradient, step)
                  for (gradient, _), accumulator in zip(self._gradients, self._accumulators)]
        with tf.device(self._ps):
            with tf.control_dependencies([*pushes, *self._also_in_step]):
                recorded = [variables.write_element("awaited", self._worker, self._awaited(step, num_pushed)),
                            variables.add("unused", 1)]
            with tf.control_dependencies(recorded):
                entered = self._gate.enter(mark, step)
            with tf.control_dependencies([entered]):
                notified = self._update_condition.notify()
            with tf.control_dependencies([notified]):
                waited = self._worker_conditions[self._worker].wait_while(self._must_wait)
            with tf.control_dependencies([waited]):
                next_step = self._read_step()
            is_later = next_step > step
            verdict = self._gate.verdict(marks, is_later=is_later, is_settled=num_pushed >= self._num_own)
            with tf.control_dependencies([verdict.is_lost]):
                return self._begin_step(next_step, tf.where(is_later, tf.zeros_like(step), num_pushed),
                                        tf.where(is_later, tf.zeros_like(marks), marks)), verdict

    def _read_step(self) -> tf.Tensor:
        """Returns the global step as an int64 scalar; the variable may have another integer type."""
        return tf.cast(self._global_step.read_value(), tf.int64)

    def _must_wait(self) -> tf.Tensor:
        """Returns whether this worker waits for an update, bool scalar."""
        return variables.read("awaited")[self._worker] > self._read_step()

    def _begin_step(self, step: tf.Tensor, num_pushed: Any, marks: Any) -> tf.Operation:
        """Records the global step that this worker's next gradient is for, and what it has pushed for that step."""
        return tf.group(variables.write_element("computed_for", self._worker, step),
                        variables.write_element("pushed", self._worker, num_pushed), self._gate.begin_step(marks))

    def _awaited(self, step: tf.Tensor, num_pushed: tf.Tensor) -> tf.Tensor:
        """Returns the global step to wait for: the next one after this worker's last gradient of an update, else 0."""
        if self._num_own == 1:
            return step + 1
        return tf.where(num_pushed < self._num_own, tf.zeros_like(step), step + 1)

    def _update(self) -> tf.Operation:
        """Returns the chief's part: one update."""
        with tf.device(self._ps):
            ready = self._update_condition.wait_while(
                lambda: tf.cast(self._gate.accumulator.size(), tf.int64) < variables.read("required"))
            with tf.control_dependencies([ready]):
                num_taken, recorded = self._gate.take()
            with tf.control_dependencies([recorded]):
                begun = variables.write("updating", 1)
        # A worker enters the gate after it has pushed all its gradients, so no accumulator is empty here.
        with tf.control_dependencies([begun]):
            means = [(accumulator.take(gradient.dtype), variable)
                     for (gradient, variable), accumulator in zip(self._gradients, self._accumulators)]
        with tf.device(self._ps), tf.control_dependencies([begun]):
            # This raises the global step after all variables have their new values.
            applied = self._optimizer.apply_gradients(means, self._global_step)
        done = [applied]
        if self._is_in_rounds:  # taking raised the accumulators' own steps by one only
            with tf.device(self._ps), tf.control_dependencies([applied]):
                step = self._read_step()
                done = [accumulator.set_step(step) for accumulator in self._all_accumulators]
        with tf.device(self._ps), tf.control_dependencies(done):
            return tf.group(self._notify_workers(), variables.add("unused", -num_taken), variables.write("updating", 0))

    def _begin(self, num_steps: int) -> tf.Operation:
        """Raises the global step by `num_steps`, empties all accumulators and releases all workers."""
        with tf.device(self._ps):
            step = self._read_step() + num_steps
            ready = restart(self._all_accumulators, step)
            ready += [variables.write("required", self._replicas), variables.write("updating", 0), self._gate.forget()]
            if num_steps == 0:
                ready.append(variables.clear("unused"))
            with tf.control_dependencies(ready):
                raised = self._global_step.assign(tf.cast(step, self._global_step.dtype.base_dtype))
            with tf.control_dependencies([raised]):
                return self._release()

    def _release(self) -> tf.Operation:
        with tf.device(self._ps), tf.control_dependencies([variables.clear("awaited")]):
            return self._notify_workers()

    def _notify_workers(self) -> tf.Operation:
        return tf.group(*(condition.notify() for condition in self._worker_conditions))
