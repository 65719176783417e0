"""Synchronous updates: the mean of several workers' gradients is applied at once, and nobody waits for the dead.

    worker   push each gradient --> enter the gate --> wait for the update --> its next step begins
    chief    wait until so many are in the gate --> take all, apply their mean --> global step + 1 --> let them go

Where nobody dies, the numbers are those of `tf.compat.v1.train.SyncReplicasOptimizer`: an accumulator beside each
variable averages what is pushed to it, and drops what was computed for an earlier global step. That optimizer waits
inside the accumulators, for a number that is fixed when the graph is made, and puts tokens into a queue, which are too
many or too few once somebody has died. Here a wait is a condition over what is written on ps 0 (`notes.py`):

    chief    gradients in the gate < required           `required` follows the living (coordinator.py)
    worker   the global step < awaited by this worker   0 lets it go whatever the step is

A condition is looked at again whenever the waiting one's bell rings. A ring is kept until it is heard, several count as
one, and one too many costs a look: so whoever is in doubt rings.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train import notes


class Standing(NamedTuple):
    """Where the workers stand, on ps 0.

    Attributes:
      step: int64 scalar, the global step.
      gathered: int32 scalar, the gradients in the gate.
      awaited: int64 [workers], the global step that each waits for; not above `step` where it does not wait.
      dropped: int64 scalar, the gradients that are in no update and never will be.
    """

    step: Any
    gathered: Any
    awaited: Any
    dropped: Any


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
      standing: what the chief looks at.
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
    standing: Standing
    release_op: tf.Operation


def share(replicas_to_aggregate: int, num_workers: int, worker: int) -> int:
    """Returns how many gradients of an update a worker computes: one, or more where there are more than workers."""
    each, more = divmod(replicas_to_aggregate, num_workers)
    return max(1, each + (worker < more))


def build(
    optimizer: tf.train.Optimizer, gradients: list, global_step: tf.Variable, replicas_to_aggregate: int,
    num_workers: int, worker: int,
) -> Operations:
    """Adds the operations of one worker and of the chief to the current graph.

    Args:
      optimizer: applies the mean.
      gradients: pairs of a gradient, dense, sparse or None, and its variable.
      global_step: the variable, on ps 0.
      worker: the number of this worker.
    """
    own_share = share(replicas_to_aggregate, num_workers, worker)
    return _Synchronous(
        optimizer, gradients, global_step, replicas_to_aggregate, num_workers, worker, own_share).operations()


class _Synchronous:
    def __init__(
        self, optimizer: tf.train.Optimizer, gradients: list, global_step: tf.Variable, replicas: int,
        num_workers: int, worker: int, own_share: int,
    ) -> None:
        self._optimizer = optimizer
        self._global_step = global_step
        self._replicas = replicas
        self._worker = worker
        self._num_workers = num_workers
        self._share = own_share
        self._ps = global_step.device
        with tf.device(self._ps):
            # The last bell is the chief's, which waits for an update's gradients beside its own step.
            self._bells = [tf.ConditionalAccumulator(tf.float32, [], f"ps_train/bell_{number}")
                           for number in range(num_workers + 1)]
            self._gate = tf.ConditionalAccumulator(tf.float32, [], "ps_train/gate", reduction_type="SUM")
        self._triples = [(gradient, variable, _accumulator(gradient, variable)) for gradient, variable in gradients]
        # Local variables: they stay on this worker. Their initial values are set in each new session.
        self._local_step = tf.Variable(global_step.read_value(), trainable=False, name="local_step",
                                       collections=[tf.GraphKeys.LOCAL_VARIABLES])
        self._num_pushed = tf.Variable(0, trainable=False, name="num_pushed",
                                       collections=[tf.GraphKeys.LOCAL_VARIABLES])

    def operations(self) -> Operations:
        """Returns the operations."""
        train_op, update_op = self._step(), self._update()
        flush_op = self._begin(1)
        with tf.control_dependencies([flush_op]):
            resume_op = self._local_step.assign(self._global_step.read_value()).op
        with tf.device(self._ps):
            required = tf.placeholder(tf.int64, [], "required")
            with tf.control_dependencies([notes.write("required", required)]):
                look_op = self._ring(self._bells)
            gathered = self._gate.num_accumulated()
            return Operations(
                train_op=train_op,
                local_init_op=notes.write_element("awaited", self._worker, 0),
                begin_op=self._begin(0),
                flush_op=flush_op,
                resume_op=resume_op,
                update_op=update_op,
                look_op=look_op,
                required=required,
                standing=Standing(
                    self._global_step.read_value(), gathered, notes.read("awaited")[:self._num_workers],
                    tf.maximum(notes.read("unused") - tf.cast(gathered, tf.int64), 0)),
                release_op=self._release(),
            )

    def _step(self) -> tf.Operation:
        """A worker's step: its own global step stays until an update has come, which its next step then begins from."""
        step = self._local_step.read_value()
        num_pushed = self._num_pushed.read_value() + 1
        pushes = []
        for gradient, variable, accumulator in self._triples:
            if accumulator is not None:
                with tf.device(variable.device):
                    pushes.append(_push(accumulator, gradient, step))
        with tf.device(self._ps):
            with tf.control_dependencies(pushes):
                awaited = step + 1
                if self._share > 1:  # it waits with the last of its share only
                    awaited = tf.where(num_pushed < self._share, tf.zeros_like(step), awaited)
                noted = [notes.write_element("awaited", self._worker, awaited), notes.add("unused", 1)]
            with tf.control_dependencies(noted):
                entered = self._gate.apply_grad(1.0, step)
            with tf.control_dependencies([entered]):
                rung = self._ring([self._bells[-1]])
            with tf.control_dependencies([rung]):
                waited = self._wait_while(self._is_waiting, self._bells[self._worker])
            with tf.control_dependencies([waited]):
                next_step = self._global_step.read_value()
        counted = self._num_pushed.assign(tf.where(next_step > step, 0, num_pushed))
        return tf.group(self._local_step.assign(next_step), counted)

    def _update(self) -> tf.Operation:
        """The chief's part: whoever is in the gate has pushed all its gradients, so no accumulator is empty."""
        with tf.device(self._ps):
            ready = self._wait_while(self._is_short, self._bells[-1])
            with tf.control_dependencies([ready]):
                num_taken = self._gate.take_grad(1)
        with tf.control_dependencies([num_taken]):
            means = []
            for _, variable, accumulator in self._triples:
                with tf.device(variable.device):
                    means.append((None if accumulator is None else _take(accumulator), variable))
        with tf.device(self._ps):
            # It adds one to the global step when all variables have their new values.
            applied = self._optimizer.apply_gradients(means, self._global_step)
            with tf.control_dependencies([applied]):
                return tf.group(self._ring(self._bells[:-1]), notes.add("unused", -num_taken))

    def _begin(self, num_steps: int) -> tf.Operation:
        """Raises the global step by so many, with nothing accumulated and nobody waiting."""
        with tf.device(self._ps):
            step = self._global_step.read_value() + num_steps
        everything = [(self._gate, self._ps), *(
            (accumulator, variable.device) for _, variable, accumulator in self._triples if accumulator is not None)]
        # Set before, so that nothing old comes in any more, and after, as taking gradients raises it.
        refusing = _on_each(everything, lambda accumulator: accumulator.set_global_step(step))
        with tf.control_dependencies(refusing):
            emptied = _on_each(everything, _drop)
        with tf.control_dependencies(emptied):
            ready = _on_each(everything, lambda accumulator: accumulator.set_global_step(step))
        with tf.device(self._ps):
            ready.append(notes.write("required", self._replicas))
            if num_steps == 0:
                ready.append(notes.clear("unused"))
            with tf.control_dependencies(ready):
                raised = self._global_step.assign(step)
            with tf.control_dependencies([raised]):
                return self._release()

    def _release(self) -> tf.Operation:
        with tf.device(self._ps), tf.control_dependencies([notes.clear("awaited")]):
            return self._ring(self._bells[:-1])

    def _is_waiting(self) -> tf.Tensor:
        return notes.read("awaited")[self._worker] > self._global_step.read_value()

    def _is_short(self) -> tf.Tensor:
        return tf.cast(self._gate.num_accumulated(), tf.int64) < notes.read("required")

    def _wait_while(self, condition: Callable[[], tf.Tensor], bell: Any) -> tf.Tensor:
        def look_again(_: tf.Tensor) -> tf.Tensor:
            with tf.control_dependencies([bell.take_grad(1)]):
                return condition()

        return tf.while_loop(lambda waits: waits, look_again, [condition()], parallel_iterations=1, back_prop=False)

    def _ring(self, bells: Iterable[Any]) -> tf.Operation:
        never_stale = tf.constant(tf.int64.max, tf.int64)
        return tf.group(*(bell.apply_grad(0.0, never_stale) for bell in bells))


def _accumulator(gradient: Any, variable: tf.Variable) -> Any:
    """Returns the accumulator of a variable, beside it; None where there is no gradient."""
    if gradient is None:
        return None
    name = f"{variable.op.name}/gradients"
    with tf.device(variable.device):
        if isinstance(gradient, tf.IndexedSlices):
            return tf.SparseConditionalAccumulator(gradient.dtype, shape=(), shared_name=name)
        return tf.ConditionalAccumulator(gradient.dtype, variable.shape, shared_name=name)


def _push(accumulator: Any, gradient: Any, step: tf.Tensor) -> tf.Operation:
    if isinstance(gradient, tf.IndexedSlices):
        return accumulator.apply_indexed_slices_grad(gradient, step)
    return accumulator.apply_grad(gradient, step)


def _take(accumulator: Any) -> Any:
    """Returns the mean of all gradients that are there, and raises the accumulator's own step by one."""
    if isinstance(accumulator, tf.SparseConditionalAccumulator):
        return accumulator.take_indexed_slices_grad(1)
    return accumulator.take_grad(1)


def _drop(accumulator: Any) -> tf.Operation:
    """Takes out what is accumulated; taking 0 gradients is refused, and taking from an empty one would wait."""
    return tf.cond(accumulator.num_accumulated() > 0, lambda: tf.group(accumulator.take_grad(1)), tf.no_op)


def _on_each(accumulators: Iterable[tuple[Any, str]], make: Callable[[Any], tf.Operation]) -> list[tf.Operation]:
    made = []
    for accumulator, device in accumulators:
        with tf.device(device):
            made.append(make(accumulator))
    return made
