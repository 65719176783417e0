"""Local steps: a worker pulls once, takes several steps on its own copy of the parameters, and pushes the change.

    one session run = one round
      pull   the parameters on the ps --> the copy; a second copy remembers them
      steps  in a while loop on the worker: a batch --> the loss --> its gradients --> the user's optimizer, on the copy
      push   parameters at the start - copy --> the ps, which subtract this; the global step rises by the steps taken

A round costs the transfers of one step (local SGD: Stich 2019, arxiv.org/abs/1805.09767). In sync, the changes of R
workers are averaged. In async, a change is divided by the number of workers that train at the same time, so the
parameters move by the mean of what the workers did. The optimizer's slots stay on the worker (variable_copies.py).
docs/decisions/local-steps.md has the reasons and the measurements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf
from tensorflow.python.ops import control_flow_ops

from ps_train.coordination import variables as board
from ps_train.errors import UserCodeError
from ps_train.graph import nan_guard, transfer
from ps_train.graph.extensions import ModelUpdate
from ps_train.graph.optimizers import OptimizerPlan
from ps_train.updates import staleness, variable_copies
from ps_train.updates.update import UpdateSettings
from ps_train.updates.variable_copies import SlotTransfer, StepSource, VariableCopy

Gradients = Sequence[tuple[Any, tf.Variable]]


class ChangeOptimizer(tf.train.GradientDescentOptimizer):
    """Subtracts the change of a round from the parameters, and adds its steps to the global step."""

    def __init__(self, num_steps: Callable[[], tf.Tensor]) -> None:
        """Prepares it; `num_steps()` adds an int64 scalar to the graph when the change is applied."""
        super().__init__(learning_rate=1.0)
        self._num_steps = num_steps

    def apply_gradients(
        self, grads_and_vars: Gradients, global_step: tf.Variable | None = None, name: str | None = None
    ) -> tf.Operation:
        """Applies changes as gradients; see `tf.compat.v1.train.Optimizer`."""
        applied = super().apply_gradients(grads_and_vars, name=name) if grads_and_vars else tf.no_op(name)
        if global_step is None:
            return applied
        with tf.control_dependencies([applied]):
            return global_step.assign_add(self._num_steps(), read_value=False)


def loop_in_graph(
    condition: Callable[..., tf.Tensor], body: Callable[..., Any], first: list[tf.Tensor], shapes: Any = None
) -> list[tf.Tensor]:
    """Returns the values after a `tf.while_loop`, whose operations are in this graph even with control flow v2."""
    # A loop of v2 is a function: whether the model in it reads the global step, for one, cannot be seen from outside.
    with tf.name_scope("while"):
        loop = control_flow_ops.WhileContext(parallel_iterations=1, back_prop=False)
        tf.add_to_collection(tf.GraphKeys.WHILE_CONTEXT, loop)
        return loop.BuildLoop(condition, body, first, shapes, False)


class Change(NamedTuple):
    """What this worker's steps have changed since its pull, after division by the number of workers.

    Attributes:
      pairs: (what to subtract, on the variable's ps; variable) for each variable of the model.
      num_taken: int64 scalar on ps 0, the steps.
    """

    pairs: Gradients
    num_taken: tf.Tensor


def count_training(worker: int, heartbeat_timeout_secs: float) -> tf.Tensor:
    """Returns how many workers train now, this worker included: an int64 scalar of at least 1, on ps 0."""
    has_joined = tf.equal(board.read("joined"), board.read("claims"))
    # In its own first round a worker counts all live workers: the others may be about to begin, too. If each took
    # itself to be alone, the parameters would move by the sum of all changes.
    counted = staleness.alive_workers(heartbeat_timeout_secs) & (has_joined | ~has_joined[worker])
    return 1 + tf.math.count_nonzero(staleness.without_worker(worker, counted))


class Round(NamedTuple):
    """What a worker runs.

    Attributes:
      change: the change by the steps of this round.
      cut_change: that by the steps since the last pull, for a round that the end of the data or an error has cut short.
      loss: scalar, the loss of the last mini-batch.
      slots: moves the optimizer's slots.
      begin_op: must run in the session run of the round.
    """

    change: Change
    cut_change: Change
    loss: tf.Tensor
    slots: SlotTransfer
    begin_op: tf.Operation


def build_round(
    loss: tf.Tensor, gradients: Gradients, source: StepSource, settings: UpdateSettings, *,
    ps_optimizer: tf.train.Optimizer, global_step: tf.Variable, rows: Any = None,
) -> Round:
    """Adds a round to the current graph.

    Args:
      loss: scalar loss of the single-step graph, which computes the summaries from what a round pulls.
      gradients: of the single-step graph; they show which variables are sparse.
      source: builds the model again, on further mini-batches.
      ps_optimizer: an optimizer that has created its slots on the ps, where a checkpoint saves them.
      rows: the copies of row parameters, `RowParameters.copies`; None without any.
    """
    slot_variables = {variable.ref() for variable in ps_optimizer.variables()}
    variables = [variable for variable in tf.global_variables()
                 if variable is not global_step and variable.ref() not in slot_variables]
    variable_copies.refuse_uncopyable(gradients, variables)
    builder = _RoundBuilder(variables, global_step, settings, rows)
    with tf.name_scope("round"):
        last_loss = builder.take_steps(builder.pull(), source)
        change, cut_change = builder.push(after=[last_loss]), builder.push(after=[])
        slots = variable_copies.transfer_slots(
            builder.copies, ps_optimizer=ps_optimizer, worker_optimizer=builder.optimizer, mark=builder.num_taken)
    # What else a session run computes of the model, such as summaries, reads what the round has pulled, and so
    # costs no transfers. It must not end the run, for want of a batch, before the round has begun: otherwise
    # `cut_change` would push the change of the previous round again.
    others = [loss, *tf.get_collection(tf.GraphKeys.SUMMARIES)]
    transfer.serve_reads(transfer.upstream(others), builder.pulled)
    transfer.take_batches_after(others, builder.begun)
    return Round(change, cut_change, last_loss, slots, builder.begin_op)


class _RoundBuilder:
    """Adds the parts of a round to the current graph, in the order of its methods.

    Attributes:
      copies: the worker's copies of the model's variables.
      num_taken: int64 variable on the worker, the steps since the last pull.
      step_copy: int64 variable on the worker, the global step at the last pull and the worker's own steps since.
      optimizer: what the steps use, once they are built.
      pulled: (variable, its value on the worker) for each variable of the model.
      begun: the operation after which the copies have the pulled values.
      begin_op: runs in the session run of the round's steps.
    """

    def __init__(
        self, variables: Sequence[tf.Variable], global_step: tf.Variable, settings: UpdateSettings, rows: Any
    ) -> None:
        self.copies = [variable_copies.copy_variable(one) for one in variable_copies.logical_variables(variables)]
        self.num_taken = variable_copies.worker_variable("num_taken", [], tf.int64)
        self.step_copy = variable_copies.worker_variable("current/global_step", [], global_step.dtype.base_dtype)
        self.optimizer: tf.train.Optimizer | None = None
        self.pulled: list[tuple[tf.Variable, tf.Tensor]] = []
        self.begun: tf.Operation | None = None
        self._parts = [part for copy in self.copies for part in copy.original.parts]
        self._global_step, self._settings, self._rows = global_step, settings, rows
        self._begun_step: tf.Tensor | None = None
        self.begin_op = tf.no_op()
        if settings.sync is None:
            with tf.device(global_step.device):
                self.begin_op = _begin_round(settings.worker, settings.heartbeat_timeout_secs)

    def pull(self) -> tf.Tensor:
        """Pulls the parameters into the copies; returns how many steps the round has, an int64 scalar."""
        period, wire = self._settings.period, self._settings.wire
        with tf.device(self._global_step.device):
            begun = self._begun_step = self._global_step.read_value()
            num_steps = period.sync_round_steps(begun) if self._settings.sync else period.round_steps(begun)
        values: dict[Any, tf.Tensor] = {}
        for group in transfer.group(self._parts, wire):
            values.update(zip((part.ref() for part in group.variables), transfer.pull(group, wire)))
        self.pulled = [(part, values[part.ref()]) for part in self._parts]
        assigned = [self.num_taken.assign(0)]
        for copy in self.copies:
            value = copy.original.join([values[part.ref()] for part in copy.original.parts])
            assigned += [copy.current.assign(value), copy.start.assign(value)]
        self.begun = tf.group(*assigned)
        return self._fetch_rows(num_steps) if self._rows else num_steps

    def _fetch_rows(self, num_steps: tf.Tensor) -> tf.Tensor:
        """Fetches the mini-batches and the rows; returns how many mini-batches there are, int64 scalar."""
        def reading_copies() -> Any:
            values = {copy.original.name: variable_copies.read_copy(copy) for copy in self.copies}
            return variable_copies.reading_copies(self.copies, values, self.step_copy)

        taken = self._rows.fetch(num_steps, self.begun, reading_copies)
        self.begun = taken.op
        return taken

    def take_steps(self, num_steps: tf.Tensor, source: StepSource) -> tf.Tensor:
        """Returns the loss of the last step, a float32 scalar, after all steps."""
        def step(number: tf.Tensor, _: tf.Tensor, *offsets: tf.Tensor) -> list[tf.Tensor]:
            loss, counted, offsets = self._take_step(source, offsets)
            # The next step may read the copy only when this one is done. A read in a loop begins when the condition is
            # computed (_MaybeAddControlDependency in control_flow_ops.py), and the condition needs the next number.
            with tf.control_dependencies([counted]):
                return [number + 1, tf.identity(loss), *map(tf.identity, offsets)]

        with tf.control_dependencies([self.begun]):
            first = tf.identity(tf.constant(0, tf.int64))
        offsets = [tf.constant(0)] * (self._rows.count if self._rows else 0)
        return loop_in_graph(lambda number, *_: number < num_steps, step, [first, tf.constant(0.0), *offsets])[1]

    def _take_step(
        self, source: StepSource, offsets: Sequence[tf.Tensor]
    ) -> tuple[tf.Tensor, tf.Operation, Sequence[tf.Tensor]]:
        """Returns the loss of a mini-batch, a float32 scalar, and the operation that counts the step at its end.

        Args:
          offsets: where the steps before have ended in the copies of rows; those that are returned include this one.
        """
        values = {copy.original.name: variable_copies.read_copy(copy) for copy in self.copies}
        trained = {id(values[copy.original.name]): copy for copy in self.copies if copy.original.parts[0].trainable}
        with variable_copies.reading_copies(self.copies, values, self.step_copy):
            unread = self.step_copy.handle.consumers()
            loss, model_update = _build(source, self._rows or source.batches)
            waits_for = model_update.waits_for if model_update else tf.get_collection(tf.GraphKeys.UPDATE_OPS)
            plan_optimizer = None if model_update else self._settings.plan.make(self.step_copy)
            rows = self._rows.connect(offsets) if self._rows else None
            gradients, of_rows = _gradients_on_copies(loss, model_update or plan_optimizer, trained, values, rows)
        used = [part for gradient in gradients for part in transfer.tensors_of(gradient)]
        variable_copies.refuse_originals(self.copies, [loss, *used, *of_rows.values()])
        self.optimizer = plan_optimizer or model_update.on_copies(
            {number: copy.current for number, copy in trained.items()})
        # Guarded under the names of the variables on the ps, which the user knows from the model.
        guarded, of_rows = nan_guard.guard(
            loss, [(value, copy.original.parts[0]) for value, copy in zip(gradients, trained.values())],
            of_rows=of_rows, waits_for=waits_for,
            written={copy.current.op: copy.original.name for copy in self.copies})
        pairs = [(value, copy.current) for (value, _), copy in zip(guarded, trained.values())]
        applied = self._apply(pairs, of_rows, rows, None if model_update else self._settings.plan)
        reads_step = self.step_copy.handle.consumers() != unread
        with tf.control_dependencies([*applied, *waits_for]):
            counted = self.num_taken.assign_add(1, read_value=False)
            if reads_step:
                counted = tf.group(counted, self._count_on_copy())
        return tf.cast(tf.ensure_shape(loss, []), tf.float32), counted, rows.offsets if rows else offsets

    def _apply(
        self, pairs: list, of_rows: Mapping[str, tf.Tensor], rows: Any, plan: OptimizerPlan | None
    ) -> list[tf.Operation]:
        """Returns the operations that apply the gradients of a step to the copies; `plan` is None for the model's."""
        optimizer, factor = self.optimizer, None
        if plan:
            pairs, of_rows = plan.rule.clipped(pairs, of_rows)
            optimizer = plan.wrap(optimizer, self.step_copy, is_clipped=True)
            factor = plan.factor(self.step_copy)
        with variable_copies.on_this_worker():
            applied = [optimizer.apply_gradients(pairs)] if any(pair[0] is not None for pair in pairs) else []
        if rows:
            number = tf.cast(self._begun_step, tf.int64) + self.num_taken.read_value() + 1
            applied += rows.update(of_rows, number, factor)
        return applied

    def _count_on_copy(self) -> tf.Operation:
        """Lets the model's reads of the global step follow the steps of a round; without any, nothing is pulled."""
        with tf.control_dependencies(None):
            pulled = self.step_copy.assign(self._begun_step, read_value=False)
        self.begun._add_control_input(pulled)  # noqa: SLF001 (it has no public name)
        return self.step_copy.assign_add(1, read_value=False)

    def push(self, after: list[tf.Tensor]) -> Change:
        """Returns the change by the steps since the pull, once these tensors are computed."""
        # Only reads on the worker wait: if an operation on a ps waited, that would cost another transfer.
        with tf.control_dependencies(after):
            num_taken = self.num_taken.read_value()
            differences = [copy.start.read_value() - copy.current.read_value() for copy in self.copies]
        with tf.device(self._global_step.device):
            num_taken = tf.identity(num_taken)
            scale = None if self._settings.sync else self._scale(num_taken, has_begun_now=bool(after))
        changes: dict[Any, tf.Tensor] = {}
        for copy, difference in zip(self.copies, differences):
            changes.update(zip((part.ref() for part in copy.original.parts), copy.original.split(difference)))
        pairs = []
        wire = self._settings.wire
        for group in transfer.group(self._parts, wire):
            arrived = transfer.push(group, [changes[part.ref()] for part in group.variables], wire, scale)
            pairs += list(zip(arrived, group.variables))
        return Change([*pairs, *(self._rows.push(after) if self._rows else [])], num_taken)

    def _scale(self, num_taken: tf.Tensor, has_begun_now: bool) -> tf.Tensor:
        """Returns the factor of the change, a float32 scalar, once that many steps are taken; place it on ps 0.

        Args:
          has_begun_now: whether the round begins in the same session run; if not, it began in an earlier one.
        """
        worker = self._settings.worker
        # The larger of two counts, at the begin of the round and now. Otherwise a worker that was alone when a long
        # round began, and is not any more, would apply its whole change on top of what the others did since.
        with tf.control_dependencies([num_taken, self.begin_op] if has_begun_now else [num_taken]):
            num_workers = tf.maximum(board.read("round_divisors")[worker],
                                     count_training(worker, self._settings.heartbeat_timeout_secs))
        return 1 / tf.cast(num_workers, tf.float32)


def _begin_round(worker: int, heartbeat_timeout_secs: float) -> tf.Operation:
    """Counts the workers when a round begins, records the count, and joins; place it on ps 0."""
    recorded = board.write_element("round_divisors", worker, count_training(worker, heartbeat_timeout_secs))
    with tf.control_dependencies([recorded]):
        return staleness.join_training(worker)


def _build(source: StepSource, batches: Any) -> tuple[tf.Tensor, Any]:
    """Builds the model in the loop of a round; returns what `source.build` does."""
    try:
        return source.build(batches.next())
    except ValueError as error:
        if "is in a while loop" not in str(error):
            raise
        raise UserCodeError("lookup_table_in_loop", "--communication_period: model_fn is called again in a loop, where "
                            "TensorFlow cannot set up a table of tf.lookup from tensors; make it in input_fn, give "
                            f"lists to KeyValueTensorInitializer, or leave the flag out: {error}") from error


def _gradients_on_copies(
    loss: tf.Tensor, update: ModelUpdate | tf.train.Optimizer, trained: Mapping[int, VariableCopy],
    values: Mapping[str, tf.Tensor], rows: Any,
) -> tuple[list[Any], dict[str, tf.Tensor]]:
    """Returns the gradients of the variables, and those of row parameters by name.

    Args:
      update: the model's own, or the optimizer of the plan.
      trained: the `id` of what the model reads of each trainable variable -> its copy.
      values: name of a variable -> what the model reads.
    """
    read = dict(rows.values) if rows else {}
    if isinstance(update, tf.train.Optimizer):
        # All at once: a second call would build the model's gradients a second time.
        asked = [*(values[copy.original.name] for copy in trained.values()), *read.values()]
        found = {id(value): gradient for gradient, value in update.compute_gradients(loss, asked)}
        dense, of_rows = ([found.pop(one, None) for one in ids] for ids in (trained, map(id, read.values())))
        if found:
            raise UserCodeError("untracked_variable", "--communication_period: compute_gradients of the model's "
                                "optimizer returns gradients of other variables than the worker's copies that it is "
                                "given; leave them out, or the flag")
    else:
        dense, of_rows = update.gradients_of(list(trained)), update.gradients_of_rows(loss, list(read.values()))
    return dense, rows.gradients_by_id(dict(zip(read, of_rows))) if rows else {}
