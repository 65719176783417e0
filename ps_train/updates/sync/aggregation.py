"""Synchronous updates: the mean of several workers' gradients is applied at once, and nobody waits for the dead.

    worker   push each gradient --> enter the gate --> wait for the update --> its next step begins
    chief    wait until so many are in the gate --> take all, apply their mean --> global step + 1 --> let them go

Where nobody dies, the numbers are those of `tf.compat.v1.train.SyncReplicasOptimizer`: an accumulator beside each
variable averages what is pushed to it, and drops what was computed for an earlier global step. That optimizer waits
inside the accumulators, for a number that is fixed when the graph is made, and puts tokens into a queue, which are too
many or too few once somebody has died. Here all wait for what is written on ps 0 (`coordination/variables.py`), while:

    chief    gradients in the gate < required           `required` follows the living (updates/chief.py)
    worker   the global step < awaited by this worker   0 lets it go whatever the step is

Each worker and the chief's update have a bell (`condition.py`) to be woken by.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.coordination import variables
from ps_train.updates.sync import accumulators
from ps_train.updates.sync.condition import Condition


class SyncStatus(NamedTuple):
    """Where the workers stand, on ps 0.

    Attributes:
      step: int64 scalar, the global step.
      gathered: int32 scalar, the gradients in the gate.
      awaited: int64 [workers], the global step that each waits for; not above `step` where it does not wait.
      dropped: int64 scalar, the gradients that are in no update and never will be.
      is_updating: int64 scalar, 1 while the gradients of an update are taken and applied, else 0.
    """

    step: Any
    gathered: Any
    awaited: Any
    dropped: Any
    is_updating: Any


class Operations(NamedTuple):
    """What runs when.

    Attributes:
      train_op: one step of a worker.
      local_init_op: each worker runs it before its first step: it waits for nothing.
      begin_op: the chief makes everything ready for the first update of new or restored parameters.
      flush_op: the global step rises without an update, so that every gradient on its way is stale, and all are let go.
      resume_op: the same, for a new chief, which then trains at that step itself.
      update_op: one update, as soon as the required gradients are there.
      look_op: sets `required`, which is all gradients at first, and lets everybody who waits look again.
      required: placeholder of `look_op`, int64 scalar, at least 1.
      status: what the chief looks at.
      release_op: lets everybody go.
    """

    train_op: tf.Operation
    local_init_op: tf.Operation
    begin_op: tf.Operation
    flush_op: tf.Operation
    resume_op: tf.Operation
    update_op: tf.Operation
    look_op: tf.Operation
    required: tf.Tensor
    status: SyncStatus
    release_op: tf.Operation


def share(replicas_to_aggregate: int, num_workers: int, worker: int) -> int:
    """Returns how many gradients of an update a worker computes: one, or more where there are more than workers."""
    each, more = divmod(replicas_to_aggregate, num_workers)
    return max(1, each + (worker < more))


class Synchronous:
    """Builds the operations of one worker, and those of the chief, in the current graph."""

    def __init__(
        self, optimizer: tf.train.Optimizer, gradients: list, global_step: tf.Variable, replicas_to_aggregate: int,
        num_workers: int, worker: int, is_in_rounds: bool = False,
    ) -> None:
        """Makes what they work on.

        Args:
          optimizer: applies the mean.
          gradients: pairs of a gradient, dense, sparse or None, and its variable.
          global_step: the variable, on ps 0; of any integer type.
          worker: the number of this worker.
          is_in_rounds: whether an update raises the global step by more than one.
        """
        self._is_in_rounds = is_in_rounds
        self._optimizer = optimizer
        self._gradients = gradients
        self._global_step = global_step
        self._replicas = replicas_to_aggregate
        self._num_workers = num_workers
        self._worker = worker
        self._share = share(replicas_to_aggregate, num_workers, worker)
        self._ps = global_step.device
        self._worker_bells = [Condition(f"ps_train/bell_{number}", self._ps) for number in range(num_workers)]
        self._update_bell = Condition("ps_train/bell_of_update", self._ps)
        self._gate = accumulators.for_count("ps_train/gate", self._ps)
        self._accumulators = [None if gradient is None else accumulators.for_gradient(gradient, variable)
                              for gradient, variable in gradients]

    def operations(self) -> Operations:
        """Returns the operations."""
        flush_op = self._begin(1)
        with tf.device(self._ps):
            with tf.control_dependencies([flush_op]):
                resume_op = self._begin_step(self._read_step(), 0)
            required = tf.placeholder(tf.int64, [], "required")
            with tf.control_dependencies([variables.write("required", required)]):
                look_op = tf.group(self._update_bell.ring(), self._ring_for_workers())
            local_init_op = tf.group(variables.write_element("awaited", self._worker, 0),
                                     self._begin_step(self._read_step(), 0))
            gathered = self._gate.size()
            status = SyncStatus(self._read_step(), gathered, variables.read("awaited")[:self._num_workers],
                                tf.maximum(variables.read("unused") - tf.cast(gathered, tf.int64), 0),
                                variables.read("updating"))
        return Operations(
            train_op=self._step(), local_init_op=local_init_op, begin_op=self._begin(0), flush_op=flush_op,
            resume_op=resume_op, update_op=self._update(), look_op=look_op, required=required, status=status,
            release_op=self._release())

    def _step(self) -> tf.Operation:
        """A worker's step: it is for one global step until an update has come, which its next step then begins from.

        That is noted on ps 0: kept on the worker it would cost three transfers more. A step that was given up, but
        still waits on ps 0, may note it a last time: then one gradient may be dropped that was in time.
        """
        with tf.device(self._ps):
            step = variables.read("computed_for")[self._worker]
            num_pushed = variables.read("pushed")[self._worker] + 1
        pushes = [accumulator.push(gradient, step)
                  for (gradient, _), accumulator in zip(self._gradients, self._accumulators) if accumulator is not None]
        with tf.device(self._ps):
            with tf.control_dependencies(pushes):
                noted = [variables.write_element("awaited", self._worker, self._awaited(step, num_pushed)),
                         variables.add("unused", 1)]
            with tf.control_dependencies(noted):
                entered = self._gate.push(1.0, step)
            with tf.control_dependencies([entered]):
                rung = self._update_bell.ring()
            with tf.control_dependencies([rung]):
                waited = self._worker_bells[self._worker].wait_while(self._must_wait)
            with tf.control_dependencies([waited]):
                next_step = self._read_step()
                return self._begin_step(next_step, tf.where(next_step > step, tf.zeros_like(step), num_pushed))

    def _read_step(self) -> tf.Tensor:
        """Returns the global step as an int64 scalar, whatever integer type the variable has."""
        return tf.cast(self._global_step.read_value(), tf.int64)

    def _must_wait(self) -> tf.Tensor:
        """Returns whether this worker waits for an update."""
        return variables.read("awaited")[self._worker] > self._read_step()

    def _begin_step(self, step: tf.Tensor, num_pushed: Any) -> tf.Operation:
        """Notes the global step that this worker's next gradient is for, and how many it has pushed for it."""
        return tf.group(variables.write_element("computed_for", self._worker, step),
                        variables.write_element("pushed", self._worker, num_pushed))

    def _awaited(self, step: tf.Tensor, num_pushed: tf.Tensor) -> tf.Tensor:
        """Returns the global step to wait for: the next one, with the last gradient of its share; before that none."""
        if self._share == 1:
            return step + 1
        return tf.where(num_pushed < self._share, tf.zeros_like(step), step + 1)

    def _update(self) -> tf.Operation:
        """The chief's part: whoever is in the gate has pushed all its gradients, so no accumulator is empty."""
        with tf.device(self._ps):
            ready = self._update_bell.wait_while(
                lambda: tf.cast(self._gate.size(), tf.int64) < variables.read("required"))
            with tf.control_dependencies([ready]):
                num_taken = self._gate.take()
            with tf.control_dependencies([num_taken]):
                noted = variables.write("updating", 1)
        with tf.control_dependencies([noted]):
            means = [(None if accumulator is None else accumulator.take(), variable)
                     for (_, variable), accumulator in zip(self._gradients, self._accumulators)]
        with tf.device(self._ps):
            # It raises the global step when all variables have their new values.
            applied = self._optimizer.apply_gradients(means, self._global_step)
        with tf.control_dependencies([applied]):
            over = self._follow_global_step() if self._is_in_rounds else applied
        with tf.device(self._ps), tf.control_dependencies([over]):
            return tf.group(
                self._ring_for_workers(), variables.add("unused", -num_taken), variables.write("updating", 0))

    def _follow_global_step(self) -> tf.Operation:
        """Lets the accumulators drop what is older than this global step: taking raised theirs by one only."""
        with tf.device(self._ps):
            step = self._read_step()
            return tf.group(*(accumulator.set_step(step) for accumulator in self._everything()))

    def _everything(self) -> list[accumulators.Accumulator]:
        return [self._gate, *(accumulator for accumulator in self._accumulators if accumulator is not None)]

    def _begin(self, num_steps: int) -> tf.Operation:
        """Raises the global step by so many, with nothing accumulated and nobody waiting."""
        everything = self._everything()
        with tf.device(self._ps):
            step = self._read_step() + num_steps
        # Set before, so that nothing old comes in any more, and after, as taking raises it.
        with tf.control_dependencies([accumulator.set_step(step) for accumulator in everything]):
            dropped = [accumulator.drop() for accumulator in everything]
        with tf.control_dependencies(dropped):
            ready = [accumulator.set_step(step) for accumulator in everything]
        with tf.device(self._ps):
            ready += [variables.write("required", self._replicas), variables.write("updating", 0)]
            if num_steps == 0:
                ready.append(variables.clear("unused"))
            with tf.control_dependencies(ready):
                raised = self._global_step.assign(tf.cast(step, self._global_step.dtype.base_dtype))
            with tf.control_dependencies([raised]):
                return self._release()

    def _release(self) -> tf.Operation:
        with tf.device(self._ps), tf.control_dependencies([variables.clear("awaited")]):
            return self._ring_for_workers()

    def _ring_for_workers(self) -> tf.Operation:
        return tf.group(*(bell.ring() for bell in self._worker_bells))
