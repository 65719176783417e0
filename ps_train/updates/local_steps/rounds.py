"""Local steps: several steps on the worker's own copy of the parameters, then one change for the ps.

    one session run = one round
      pull   the parameters on the ps --> the copy; a second one keeps where the round began
      steps  in a while loop on the worker: a batch --> the loss --> its gradients --> the user's optimizer, on the copy
      push   where the round began - the copy --> the ps, which subtract it; the global step rises by the steps taken

So a round costs the transfers of a single step (local SGD: Stich 2019, arxiv.org/abs/1805.09767). In sync the changes
of R workers are averaged; in async each worker's change is divided by the number of workers that train
(coordination/liveness.py), so that the parameters move by the mean of what the workers did, and a worker that is alone
moves them by all that it did.
They are counted when the round begins and again when its steps are done, and the larger number holds: else a worker
that was alone, and for long in a round in which another one began, would move by all of it what that has changed since.

The optimizer's slots stay on the worker (slots.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.errors import ConfigError
from ps_train.graph import nan_guard, transfer
from ps_train.updates.local_steps import slots as slot_ops
from ps_train.updates.local_steps import variable_copies
from ps_train.updates.local_steps.sharing import Sharing
from ps_train.updates.local_steps.slots import SlotTransfer
from ps_train.updates.local_steps.variable_copies import Copy

Gradients = Sequence[tuple[Any, tf.Variable]]


class Period(NamedTuple):
    """How many steps a round has.

    Attributes:
      steps: of most rounds.
      warmup_steps: before this global step a round has one step.
      train_steps: a round that begins before this global step ends there, if no other worker's comes in between; one
        that begins later has no steps, but in sync.
    """

    steps: int = 1
    warmup_steps: int = 0
    train_steps: int | None = None

    def of_round(self, begun: tf.Tensor) -> tf.Tensor:
        """Returns the steps of a round that begins at this global step; both are int64 scalars."""
        steps = tf.where(begun < self.warmup_steps, tf.ones_like(begun), self.steps)
        if self.train_steps is not None:
            steps = tf.clip_by_value(self.train_steps - begun, 0, steps)
        return steps

    def of_update(self, begun: tf.Tensor) -> tf.Tensor:
        """Returns the same for a round in sync, which has a step: workers wait for the global step to rise."""
        return tf.maximum(self.of_round(begun), 1)


class Exchange(tf.train.GradientDescentOptimizer):
    """Subtracts the change of a round from the parameters, and adds its steps to the global step."""

    def __init__(self, num_steps: Callable[[], tf.Tensor]) -> None:
        """Prepares it; `num_steps` makes an int64 scalar, when the parameters are changed."""
        super().__init__(learning_rate=1.0)
        self._num_steps = num_steps

    def apply_gradients(
        self, grads_and_vars: Gradients, global_step: tf.Variable | None = None, name: str | None = None
    ) -> tf.Operation:
        """Applies the changes; see `tf.compat.v1.train.Optimizer`."""
        applied = super().apply_gradients(grads_and_vars, name=name)
        if global_step is None:
            return applied
        with tf.control_dependencies([applied]):
            return global_step.assign_add(self._num_steps(), read_value=False)


class Change(NamedTuple):
    """This worker's share of what its steps since its pull have changed.

    Attributes:
      pairs: (what to subtract, on its ps; variable) of each variable of the model.
      num_taken: int64 scalar on ps 0, the steps.
    """

    pairs: Gradients
    num_taken: tf.Tensor


class Round(NamedTuple):
    """What a worker runs.

    Attributes:
      change: by the local steps.
      rest: by those since the last pull, where the data ran out or a fault ended them early.
      loss: scalar, of the last mini-batch.
      slots: what becomes of the optimizer's slots.
    """

    change: Change
    rest: Change
    loss: tf.Tensor
    slots: SlotTransfer


def build(
    loss: tf.Tensor,
    gradients: Gradients,
    compute_loss: Callable[[], tf.Tensor],
    ps_optimizer: tf.train.Optimizer,
    own_optimizer: tf.train.Optimizer,
    global_step: tf.Variable,
    period: Period,
    wire: transfer.Wire,
    sharing: Sharing | None,
) -> Round:
    """Adds a round to the current graph.

    Args:
      loss: of the single-step graph, a scalar; with its summaries it is computed from what a round pulls.
      gradients: of the single-step graph; they tell which variables are sparse.
      compute_loss: builds the model again, on the next mini-batch, and returns its scalar loss.
      ps_optimizer: has its slots on the ps, from where a checkpoint has them.
      own_optimizer: another one of the same rule, without slots yet.
      sharing: tells, on ps 0, by how many the change of a round is divided; None where that is done elsewhere.

    Raises:
      ConfigError: the model cannot be trained so.
      UserCodeError: the model makes other variables when it is built again.
    """
    slot_variables = {variable.ref() for variable in ps_optimizer.variables()}
    variables = [variable for variable in tf.global_variables()
                 if variable is not global_step and variable.ref() not in slot_variables]
    _refuse_what_cannot_be_copied(gradients, variables)
    copies = [variable_copies.copy(whole) for whole in variable_copies.wholes(variables)]
    builder = _Builder(copies, compute_loss, ps_optimizer, own_optimizer, global_step, period, wire, sharing)
    built = builder.build()
    # What a session run computes of the model besides, as its summaries, costs no transfers of its own. Nor may it end
    # the run, for want of a batch, before the round has begun: its rest would be that of the round before.
    besides = [loss, *tf.get_collection(tf.GraphKeys.SUMMARIES)]
    transfer.serve_reads(transfer.upstream(besides), builder.pulled)
    transfer.take_batches_after(besides, builder.begun)
    return built


def _refuse_what_cannot_be_copied(gradients: Gradients, variables: Sequence[tf.Variable]) -> None:
    sparse = [variable.op.name for gradient, variable in gradients if isinstance(gradient, tf.IndexedSlices)]
    if sparse:
        raise ConfigError(f"--communication_period: the model looks up rows of {', '.join(sparse)}; such a table is "
                          "never copied whole to a worker. Leave the flag out, which pulls the rows of each mini-batch")
    others = [variable.op.name for variable in variables if not variable.dtype.base_dtype.is_floating]
    if others:
        raise ConfigError(f"--communication_period: {', '.join(others)} cannot be averaged over workers, not being "
                          "floats; leave the flag out, or make them local variables")


class _Builder:
    """Builds a round.

    Attributes:
      pulled: (variable, its value on the worker) of each variable of the model.
      begun: the operation after which the copy is what was pulled.
    """

    def __init__(
        self, copies: list[Copy], compute_loss: Callable[[], tf.Tensor], ps_optimizer: tf.train.Optimizer,
        own_optimizer: tf.train.Optimizer, global_step: tf.Variable, period: Period, wire: transfer.Wire,
        sharing: Sharing | None,
    ) -> None:
        self.pulled: list[tuple[tf.Variable, tf.Tensor]] = []
        self.begun: tf.Operation | None = None
        self._copies = copies
        self._compute_loss = compute_loss
        self._ps_optimizer = ps_optimizer
        self._own_optimizer = own_optimizer
        self._global_step = global_step
        self._period = period
        self._wire = wire
        self._sharing = sharing
        self._num_taken = variable_copies.own_variable("num_taken", [], tf.int64)

    def build(self) -> Round:
        """Returns the operations."""
        with tf.name_scope("round"):
            pulled, num_steps = self._pull()
            loss = self._steps(pulled, num_steps)
            kept = slot_ops.transfer_slots(self._copies, self._ps_optimizer, self._own_optimizer, self._num_taken)
            return Round(self._push(after=[loss]), self._push(after=[]), loss, kept)

    def _pull(self) -> tuple[tf.Operation, tf.Tensor]:
        with tf.device(self._global_step.device):
            begun = self._global_step.read_value()
            num_steps = self._period.of_round(begun) if self._sharing else self._period.of_update(begun)
        values: dict[Any, tf.Tensor] = {}
        parts = [part for copy in self._copies for part in copy.of.parts]
        for group in transfer.group(parts, self._wire):
            values.update(zip((part.ref() for part in group.variables), transfer.pull(group, self._wire)))
        self.pulled = [(part, values[part.ref()]) for part in parts]
        assigned = [self._num_taken.assign(0)]
        for copy in self._copies:
            value = copy.of.join([values[part.ref()] for part in copy.of.parts])
            assigned += [copy.now.assign(value), copy.begin.assign(value)]
        self.begun = tf.group(*assigned)
        return self.begun, num_steps

    def _steps(self, pulled: tf.Operation, num_steps: tf.Tensor) -> tf.Tensor:
        """Returns the loss of the last step, after all of them."""
        def step(number: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            loss, trained = self._step()
            # The next step reads the copy when this one's number has come: see _MaybeAddControlDependency in
            # control_flow_ops.py, which ties whatever depends on constants only to the step's beginning.
            with tf.control_dependencies([trained]):
                return number + 1, tf.identity(loss)

        with tf.control_dependencies([pulled]):
            first = tf.identity(tf.constant(0, tf.int64))
        _, loss = tf.while_loop(lambda number, _: number < num_steps, step, [first, tf.constant(0.0)],
                                parallel_iterations=1, back_prop=False)
        return loss

    def _step(self) -> tuple[tf.Tensor, tf.Operation]:
        """Returns the loss of a mini-batch, a float32 scalar, and the operation that applies its gradients."""
        values = {copy.of.name: copy.now.read_value() for copy in self._copies}
        with variable_copies.reading(self._copies, values):
            loss = self._compute_loss()
            update_ops = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
        trained = [copy for copy in self._copies if copy.of.parts[0].trainable]
        found = tf.gradients(loss, [values[copy.of.name] for copy in trained])
        # The parts' names are the model's own, for the message where something is not finite.
        checked = nan_guard.guard(loss, [(value, copy.of.parts[0]) for value, copy in zip(found, trained)])
        pairs = [(value, copy.now) for (value, _), copy in zip(checked, trained)]
        with variable_copies.on_this_worker():
            applied = self._own_optimizer.apply_gradients(pairs)
        with tf.control_dependencies([applied, *update_ops]):
            counted = self._num_taken.assign_add(1, read_value=False)
        return tf.cast(tf.ensure_shape(loss, []), tf.float32), counted

    def _push(self, after: list[tf.Tensor]) -> Change:
        """Returns the change by the steps since the pull, as it is after these tensors."""
        with tf.control_dependencies(after):  # here only: a ps that waited for it would take a transfer more
            num_taken = self._num_taken.read_value()
            differences = [copy.begin.read_value() - copy.now.read_value() for copy in self._copies]
        with tf.device(self._global_step.device):
            num_taken = tf.identity(num_taken)
            share = self._share(num_taken, has_begun_now=bool(after))
        change: dict[Any, tf.Tensor] = {}
        for copy, difference in zip(self._copies, differences):
            change.update(zip((part.ref() for part in copy.of.parts), copy.of.cut(difference)))
        pairs = []
        for group in transfer.group([part for copy in self._copies for part in copy.of.parts], self._wire):
            arrived = transfer.push(group, [change[part.ref()] for part in group.variables], self._wire, share)
            pairs += list(zip(arrived, group.variables))
        return Change(pairs, num_taken)

    def _share(self, num_taken: tf.Tensor, has_begun_now: bool) -> tf.Tensor | None:
        """Returns which part of the change counts, a float32 scalar, once that many steps are taken; None for all.

        Args:
          has_begun_now: whether the round begins in the same session run; else it has begun in an earlier one.
        """
        if self._sharing is None:
            return None
        done = [num_taken, self._sharing.begin_op] if has_begun_now else [num_taken]
        return 1 / tf.cast(self._sharing.after(done), tf.float32)
