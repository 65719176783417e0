"""`OwnUpdate`: the update of a model that brings its own optimizer, for every update mode to use.

    train_op of the model --> separate --> OwnUpdate   gradients: from the model
                                                       optimizer: applies them where the update mode needs it
                          --> restore                  the train_op as the model wrote it: asynchronous only
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.errors import UserCodeError
from ps_train.graph import adam, optimizers, transfer
from ps_train.graph.optimizers import ELEMENTWISE
from ps_train.parts.own_train_op import effects
from ps_train.parts.own_train_op.capture import Captured


class ModelOptimizer(tf.train.GradientDescentOptimizer):
    """Applies gradients with the optimizers that a model_fn has created, each to its own variables."""

    def __init__(self, captured: Sequence[Captured], after: Sequence[tf.Operation] = ()) -> None:
        """Adds nothing to the graph yet.

        Args:
          captured: the calls of the model; no variable is in two of them.
          after: operations of the model to run after each update.
        """
        super().__init__(learning_rate=1.0)  # not used: the model's optimizers apply the gradients
        self._captured = captured
        self._after = after
        self.judges_gradients = all(optimizers.judges_gradients(one.optimizer) for one in captured)

    def __copy__(self) -> ModelOptimizer:
        """Returns one with copies of the model's optimizers, whose slots are their own; none are made yet."""
        copies = [copy.copy(one.optimizer) for one in self._captured]
        for optimizer in copies:
            optimizer._slots, optimizer._non_slot_dict = {}, {}  # noqa: SLF001 (as in packing; no public name)
        return ModelOptimizer([one._replace(optimizer=optimizer) for one, optimizer in zip(self._captured, copies)])

    def apply_gradients(
        self, grads_and_vars: Sequence[transfer.Pair], global_step: tf.Variable | None = None, name: str | None = None
    ) -> tf.Operation:
        """Applies gradients; see `tf.compat.v1.train.Optimizer`.

        With a global step this is a whole update, with the model's operations after it; once in a graph.

        Raises:
          UserCodeError: they are a mean over several workers, and an optimizer needs the mini-batch; one needs a step.
        """
        applied, all_pairs = [], list(grads_and_vars)
        for one, pairs in zip(self._captured, self._split(all_pairs)):
            if any(gradient is not None for gradient, _ in pairs):
                with one.scopes():
                    applied.append(_apply_without_step(one, pairs))
        _refuse_batch(all_pairs, applied)
        with tf.control_dependencies(applied):
            if global_step is None:
                return tf.no_op(name)
            counted = global_step.assign_add(1, read_value=False)
        return tf.group(counted, *self._follow(counted), name=name)

    def _follow(self, counted: tf.Operation) -> list[tf.Operation]:
        """Makes the operations of the model after its update run after this one; returns them."""
        for one in self._captured:
            transfer.add_control_input(one.after, counted)
        with tf.control_dependencies([counted]):
            averaged = [averages.apply(variables) for averages, variables in
                        (one.averages for one in self._captured if one.averages)]
        return [*self._after, *averaged]

    def _split(self, pairs: list[transfer.Pair]) -> list[list[transfer.Pair]]:
        """Returns the pairs of each optimizer; the first gets those of unknown variables."""
        owners = {variable.ref(): number for number, one in enumerate(self._captured) for _, variable in one.pairs}
        parts: list[list[transfer.Pair]] = [[] for _ in self._captured]
        for gradient, variable in pairs:
            parts[owners.get(variable.ref(), 0)].append((gradient, variable))
        return parts

    def get_slot(self, var: tf.Variable, name: str) -> tf.Variable | None:
        """Returns a slot of the optimizer that has it."""
        slots = (one.optimizer.get_slot(var, name) for one in self._captured)
        return next((slot for slot in slots if slot is not None), None)

    def get_slot_names(self) -> list[str]:
        """Returns the names of the slots of all optimizers."""
        return list(dict.fromkeys(name for one in self._captured for name in one.optimizer.get_slot_names()))

    def variables(self) -> list[tf.Variable]:
        """Returns the variables of all optimizers."""
        return [variable for one in self._captured for variable in one.optimizer.variables()]

    def _non_slot_variables(self) -> list[tf.Variable]:
        return [variable for one in self._captured
                for variable in one.optimizer._non_slot_variables()]  # noqa: SLF001 (no public name)


def _apply_without_step(one: Captured, pairs: Sequence[transfer.Pair]) -> Any:
    """Applies gradients by a model's optimizer; it need not count, and in rounds it would count too often."""
    try:
        return one.optimizer.apply_gradients(pairs, **one.options)
    except (TypeError, AttributeError, ValueError) as error:
        name = type(one.optimizer).__name__
        if type(one.optimizer).apply_gradients is tf.train.Optimizer.apply_gradients or "None" not in str(error):
            raise
        raise UserCodeError("optimizer_needs_step", f"{name}.apply_gradients fails without a global_step: {error}; "
                            "ps_train counts the steps itself, so let it take None: read tf.train.get_global_step() "
                            "in its place, and count only if there is one") from error


def _refuse_batch(pairs: Sequence[transfer.Pair], applied: Sequence[tf.Operation]) -> None:
    gradients = [part for gradient, _ in pairs for part in transfer.tensors_of(gradient)]
    # The mean of a synchronous update comes from accumulators. The chief would take a mini-batch for its rate alone.
    is_mean = any("AccumulatorTakeGradient" in op.type for op in transfer.upstream(gradients))
    if is_mean and effects.needs_batch(applied):
        raise UserCodeError("train_op_unsupported", "--sync_replicas: the model's optimizer depends on the mini-batch, "
                            "as a learning rate computed from the features does, and an update has the mini-batches of "
                            "all workers; compute it from variables or the global step, or scale the loss instead")


class OwnUpdate(NamedTuple):
    """The update of a model that brings its own optimizer.

    Attributes:
      captured: what the model applies.
      before: operations to run in each step before its gradients are applied.
      after: operations to run after each update.
      after_needs_batch: whether these need the mini-batch.
    """

    captured: list[Captured]
    before: list[tf.Operation]
    after: list[tf.Operation]
    after_needs_batch: bool

    @property
    def pairs(self) -> list[transfer.Pair]:
        """Returns (gradient or None, variable) of all variables, as the model passes them to its optimizers."""
        return [pair for one in self.captured for pair in one.pairs]

    @property
    def waits_for(self) -> list[tf.Operation]:
        """Returns the operations that a step runs before its gradients are applied."""
        return [*(one.before for one in self.captured), *self.before]

    @property
    def names(self) -> str:
        """Returns the classes of the optimizers."""
        return ", ".join(type(one.optimizer).__name__ for one in self.captured)

    @property
    def is_sync(self) -> bool:
        """Returns whether the model asks for synchronous updates."""
        return any(one.is_sync for one in self.captured)

    @property
    def does_more(self) -> bool:
        """Returns whether the model does something after each update."""
        return bool(self.after) or any(one.averages for one in self.captured)

    @property
    def is_elementwise(self) -> bool:
        """Returns whether its variables may be packed: it updates elements independently, and nothing comes after."""
        return not self.does_more and len(self.captured) == 1 and type(self.captured[0].optimizer) in ELEMENTWISE

    def make_row_sparse(self) -> None:
        """Makes TensorFlow's AdamOptimizer update only the rows of a table that have a gradient."""
        for one in self.captured:
            adam.make_row_sparse(one.optimizer)

    def make_optimizer(self) -> ModelOptimizer:
        """Returns what applies the gradients."""
        return ModelOptimizer(self.captured, self.after)

    def gradients_of_rows(self, loss: tf.Tensor, values: Sequence[tf.Tensor]) -> list[Any]:
        """Returns the gradients, or None, of the rows that the model has looked up, of what its optimizer minimises.

        Args:
          loss: what the model returns; it counts if the gradients are of several losses, or of one that is not known.
        """
        known = {tuple(each.key): each for one in self.captured for each in one.differentiated}
        losses, grad_losses = loss, None
        if len(known) == 1:
            (only,) = known.values()
            losses, grad_losses = only.losses, only.grad_losses
        return tf.gradients(losses, values, grad_losses) if values else []

    def gradients_of(self, variables: Sequence[int]) -> list[Any]:
        """Returns the gradient, or None, of each of these variables of a model, given by their `id`.

        Raises:
          UserCodeError: the model has a gradient of another variable.
        """
        for _, variable in self.pairs:
            if id(variable) not in variables:
                raise UserCodeError("untracked_variable", "--communication_period: the model's optimizer updates "
                                    f"{variable.name}, which it does not get from tf.compat.v1.get_variable or "
                                    "tf.compat.v1.trainable_variables; use these")
        gradients = {id(variable): gradient for gradient, variable in self.pairs}
        return [gradients.get(variable) for variable in variables]

    def on_copies(self, copies: Mapping[int, tf.Variable]) -> ModelOptimizer:
        """Returns what applies the gradients to copies of the variables, given copies by the `id` of the original."""
        return ModelOptimizer([
            one._replace(pairs=[(gradient, copies[id(variable)]) for gradient, variable in one.pairs])
            for one in self.captured])


def separate(
    train_op: tf.Operation | tf.Tensor, loss: tf.Tensor, captured: Sequence[Captured], global_step: tf.Variable,
    created: Collection[tf.Operation],
) -> OwnUpdate | str:
    """Returns the update of a train_op, or why it cannot be separated, such as "applies gradients in a loop".

    Args:
      captured: the calls of the model's optimizers.
      created: the operations that model_fn has created.
    """
    end = train_op if isinstance(train_op, tf.Operation) else train_op.op
    used = _used(end, captured)
    if not used:
        return "updates variables by other means than a tf.compat.v1.train.Optimizer that model_fn creates"
    besides = effects.find_effects(end, loss, used, global_step, created)
    return besides.problem or OwnUpdate(used, besides.before, besides.after, besides.needs_batch)


def _used(end: tf.Operation, captured: Sequence[Captured]) -> list[Captured]:
    """Returns the captured calls that an operation needs, directly or because one update needs another."""
    used: list[Captured] = []
    while True:
        gradients = [part for one in used for gradient, _ in one.pairs for part in transfer.tensors_of(gradient)]
        needed = set(transfer.upstream([end, *gradients, *(one.before for one in used)]))
        num_used, used = len(used), [one for one in captured if one.after in needed]
        if len(used) == num_used:
            return used


def restore(
    train_op: tf.Operation | tf.Tensor, captured: Sequence[Captured], global_step: tf.Variable
) -> tf.Operation | tf.Tensor:
    """Applies the captured gradients where the model did: then its train_op runs as the model wrote it.

    Returns:
      the train_op; if nothing in it raises the global step, an operation that does so after it.
    """
    for one in captured:
        one.apply()
    if effects.may_write(train_op, global_step):
        return train_op
    with tf.device(global_step.device), tf.control_dependencies([train_op]):
        return global_step.assign_add(1, read_value=False)
