"""The copy of the variables on a worker, and the model built again on further mini-batches, reading the copy.

    on the ps   weights (in one part or several), ...
    copy        ps_train/current/weights   changed by the steps of the worker
                ps_train/start/weights     as pulled at the start of the round

The copies are in no collection that TensorFlow initialises, checks or saves: their values come from the ps.

The slots of the optimizer move between a worker and the ps:

    ps      the slots as with single steps, under the names that a checkpoint has
             | begin: a worker without slots pulls them            ^ before a save: the chief pushes its own
             v                                                     |
    worker  its own slots, which its steps change; they outlive a lost session

A checkpoint therefore fits with and without local steps. See docs/decisions/local-steps.md.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf
from tensorflow.python.ops import variable_scope

from ps_train.errors import ConfigError, UserCodeError
from ps_train.graph import devices, optimizers, transfer
from ps_train.graph.batches import Batches
from ps_train.graph.extensions import ModelUpdate

# Collections that a model fills while it is built, and may read back. The second build must find them empty.
_BUILD_COLLECTIONS = (tf.GraphKeys.LOSSES, tf.GraphKeys.REGULARIZATION_LOSSES, tf.GraphKeys.UPDATE_OPS,
                      tf.GraphKeys.SUMMARIES, tf.GraphKeys.TRAIN_OP, tf.GraphKeys.TRAINABLE_VARIABLES,
                      tf.GraphKeys.GLOBAL_STEP)
_NOT_OF_MODELS = ("ps_train", "critical_section", "_")  # the latter two are TensorFlow's


def refuse_uncopyable(gradients: Sequence[tuple[Any, tf.Variable]], variables: Sequence[tf.Variable]) -> None:
    """Raises ConfigError if a worker cannot copy all, for sparse gradients, integers, a table or a constraint."""
    sparse = [variable.op.name for gradient, variable in gradients if isinstance(gradient, tf.IndexedSlices)]
    if sparse:
        raise ConfigError("variable_not_copyable", "--communication_period: the model looks up rows of "
                          f"{', '.join(sparse)}; a worker never copies a whole table. Make it by "
                          "ps_train.embedding_table, of which a round pulls only the rows that it needs, or leave the "
                          "flag out")
    others = [variable.op.name for variable in variables if not variable.dtype.base_dtype.is_floating]
    # A table that changes, such as a MutableHashTable. The model would make another one when it is called again.
    others += [one.name for one in tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS) if hasattr(one.op, "lookup")]
    if others:
        raise ConfigError("variable_not_copyable", f"--communication_period: {', '.join(others)} cannot be averaged "
                          "over workers, as only floats can; leave the flag out, or make variables local ones")
    bound = [variable.op.name for variable in variables if variable.constraint is not None]
    if bound:  # the mean of several workers' changes, added to what others have changed, need not meet it
        raise ConfigError("variable_not_copyable", f"--communication_period: {', '.join(bound)} has a constraint, "
                          "which holds only after each single step; leave the flag out, or the constraint")


class StepModel(NamedTuple):
    """A model on the mini-batch of a step.

    Attributes:
      loss: scalar.
      model_update: the update that the model itself has defined, or None.
    """

    loss: tf.Tensor
    model_update: ModelUpdate | None = None


class LogicalVariable(NamedTuple):
    """A variable as the model knows it. The ps may have it in several parts (a partitioned variable).

    Attributes:
      name: its name in the model, without device and part.
      parts: the variables on the ps: one, or several along one dimension.
    """

    name: str
    parts: list[tf.Variable]

    @property
    def shape(self) -> list[int]:
        """The shape of the whole variable."""
        part = self.parts[0]._get_save_slice_info()  # noqa: SLF001 (the Saver uses it; it has no public name)
        return list(part.full_shape) if part else self.parts[0].shape.as_list()

    @property
    def axis(self) -> int:
        """The dimension along which the whole variable is cut into several parts."""
        sizes = zip(self.parts[0].shape.as_list(), self.shape)
        return next((axis for axis, (size, whole) in enumerate(sizes) if size < whole), 0)

    def join(self, values: Sequence[tf.Tensor]) -> tf.Tensor:
        """Returns the whole value, given the values of the parts."""
        return tf.concat(values, self.axis) if len(values) > 1 else values[0]

    def split(self, value: tf.Tensor) -> list[tf.Tensor]:
        """Returns the values of the parts, given the whole value."""
        return [value] if len(self.parts) == 1 else tf.split(
            value, [int(part.shape[self.axis]) for part in self.parts], self.axis)


class VariableCopy(NamedTuple):
    """A worker's own copy of a variable.

    Attributes:
      original: the variable on the ps.
      current: its value after the steps taken so far.
      start: its value at the start of the round.
    """

    original: LogicalVariable
    current: tf.Variable
    start: tf.Variable


def logical_variables(variables: Sequence[tf.Variable]) -> list[LogicalVariable]:
    """Returns the variables as the model knows them, with the parts of each one together."""
    by_name: dict[str, LogicalVariable] = {}
    # An operation whose name was taken already, if only in another case, has another name than its variable was got by.
    # One of tf.Variable is got by no name, also where its own is that by which get_variable gives another one.
    store = variable_scope._get_default_variable_store()._vars  # noqa: SLF001
    got_by = {one.op.name: name for name, one in store.items()}
    for variable in variables:
        part, own = variable._get_save_slice_info(), variable.op.name  # noqa: SLF001 (the Saver uses it; not public)
        name = part.full_name if part else got_by.get(own, f"{own}/not_got" if own in store else own)
        by_name.setdefault(name, LogicalVariable(name, [])).parts.append(variable)
    return list(by_name.values())


def copy_variable(original: LogicalVariable) -> VariableCopy:
    """Returns a copy of a variable on this worker, without a value yet."""
    dtype = original.parts[0].dtype.base_dtype
    return VariableCopy(original, worker_variable(f"current/{original.name}", original.shape, dtype),
                        worker_variable(f"start/{original.name}", original.shape, dtype))


def worker_variable(name: str, shape: Sequence[int], dtype: tf.DType) -> tf.Variable:
    """Returns a variable on this worker, in no collection that TensorFlow initialises or saves."""
    with on_this_worker():
        return tf.Variable(lambda: tf.zeros(shape, dtype), trainable=False, name=f"ps_train/{name}")


@contextlib.contextmanager
def on_this_worker() -> Iterator[None]:
    """Creates variables on this worker, in no collection."""
    # `placement.on_cluster` keeps local variables on the worker. Leaving the collection again avoids initialisation.
    def create(next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        variable = next_creator(**{**kwargs, "collections": [tf.GraphKeys.LOCAL_VARIABLES]})
        tf.get_collection_ref(tf.GraphKeys.LOCAL_VARIABLES).pop()
        return variable

    with tf.variable_creator_scope(create):
        yield


def read_copy(copy: VariableCopy) -> tf.Tensor:
    """Returns the value of a copy, under a name that begins as the variable's: models choose variables by name."""
    value = copy.current.read_value()
    with tf.name_scope(None):  # not the very name: loops know tensors by their names, and the graph has the variable
        value = tf.identity(value, name=f"{copy.original.name}/copy")
    value.__class__ = type("VariableValue", (type(value),), dict.fromkeys(
        ("value", "read_value", "initialized_value"), lambda value: value))
    return value


@contextlib.contextmanager
def reading_copies(
    copies: Sequence[VariableCopy], values: Mapping[str, tf.Tensor], step_copy: tf.Variable
) -> Iterator[None]:
    """Lets a model that is built again in its body read the copy wherever it asks for one of its variables.

    Args:
      values: name of a trainable variable -> value of its copy in this step.
      step_copy: what the model reads as the global step.
    """
    by_name = {copy.original.name: copy for copy in copies}
    created: set[str] = set()

    def get(getter: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> Any:
        if (copy := by_name.get(name)) is None:
            return getter(name, *args, **kwargs)
        value = values[name] if copy.original.parts[0].trainable else copy.current
        if name not in created:
            created.add(name)
            tf.add_to_collections([each for each in kwargs.get("collections") or () if _is_own(each)], value)
            if kwargs.get("regularizer") and (penalty := kwargs["regularizer"](value)) is not None:
                tf.add_to_collection(tf.GraphKeys.REGULARIZATION_LOSSES, penalty)
        return value

    with (
        build_collections({
            tf.GraphKeys.GLOBAL_STEP: [step_copy],
            tf.GraphKeys.TRAINABLE_VARIABLES: [
                values[copy.original.name] for copy in copies if copy.original.parts[0].trainable]}),
        devices.ignoring_ps(),
        # Reuse is for local variables, such as those of a metric, which the first build has made.
        tf.variable_scope(tf.get_variable_scope(), custom_getter=get, reuse=tf.AUTO_REUSE, auxiliary_name_scope=False),
        tf.variable_creator_scope(_create_local),
    ):
        yield


def _create_local(next_creator: Callable[..., Any], **kwargs: Any) -> Any:
    if tf.GraphKeys.LOCAL_VARIABLES not in (kwargs.get("collections") or ()):
        raise UserCodeError("model_creates_other_variables", "model_fn creates "
                            f"{kwargs.get('name') or 'a variable'} when it is called again; --communication_period "
                            "needs variables from tf.compat.v1.get_variable, with the same names each time")
    return next_creator(**kwargs)


@contextlib.contextmanager
def build_collections(contents: Mapping[str, Sequence[Any]]) -> Iterator[None]:
    """Gives the collections that a model fills these contents, none where not named, until the end of the context."""
    graph = tf.get_default_graph()

    def fill(collections: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
        names = [name for name in graph.get_all_collection_keys() if name in _BUILD_COLLECTIONS or _is_own(name)]
        before = {name: graph.get_collection(name) for name in names}
        for name in {**before, **collections}:
            graph.get_collection_ref(name)[:] = collections.get(name, ())
        return before

    saved = fill(contents)
    try:
        yield
    finally:
        fill(saved)


def _is_own(collection: str) -> bool:
    """Returns whether a collection is one of the model's own."""
    return collection not in vars(tf.GraphKeys).values() and not collection.startswith(_NOT_OF_MODELS)


def refuse_originals(copies: Sequence[VariableCopy], step: Sequence[tf.Tensor]) -> None:
    """Raises UserCodeError if these tensors of a step depend on a variable itself, and not on its copy."""
    needed = set(transfer.upstream(step, is_by_data=True))
    for read in (part for copy in copies for part in copy.original.parts if part.op in needed):
        raise UserCodeError("untracked_variable", f"--communication_period: the loss depends on {read.op.name} when "
                            "model_fn is called again, and not on its copy on the worker; get it from "
                            "tf.compat.v1.get_variable or tf.compat.v1.trainable_variables in model_fn")


class StepSource(NamedTuple):
    """The mini-batches, and the model on one of them.

    Attributes:
      batches: `next()` adds the next mini-batch to the graph.
      build: `build(batch)` adds the model once more.
    """

    batches: Batches
    build: Callable[[Any], StepModel]


def refuse_single_batches(batches: Batches) -> None:
    """Raises ConfigError if an input gives only one mini-batch per session run, for rounds of several steps."""
    if batches.has_one_batch_per_run or tf.get_collection(tf.GraphKeys.QUEUE_RUNNERS):
        raise ConfigError("input_gives_single_batches", "--communication_period: the input comes from queues or from "
                          "tensors, which give one mini-batch per session run, and a round of local steps needs "
                          "several; let input_fn return a tf.data.Dataset, or leave the flag out")


class SlotTransfer(NamedTuple):
    """Moves optimizer slots between a worker and the parameter servers.

    Attributes:
      forget_op: discards the worker's copy and its slots, which `begin_op` pulls again; for a process's first session.
      begin_op: pulls the slots from the ps unless the worker has slots; runs before the first round.
      before_save_op: pushes this worker's slots to the ps, for a checkpoint.
    """

    forget_op: tf.Operation
    begin_op: tf.Operation
    before_save_op: tf.Operation


def transfer_slots(
    copies: Sequence[VariableCopy], *, ps_optimizer: tf.train.Optimizer, worker_optimizer: tf.train.Optimizer,
    mark: tf.Variable,
) -> SlotTransfer:
    """Returns operations on the slots of two optimizers with the same rule, which both exist.

    Args:
      copies: the copies of the variables that have slots.
      mark: an integer variable on this worker, which has a value once the worker has slots.
    """
    slots = [(LogicalVariable(slot.op.name, parts), slot) for slot, parts in optimizers.pair_slots(
        [(copy.current, copy.original.parts) for copy in copies],
        whole_optimizer=worker_optimizer, parts_optimizer=ps_optimizer)]
    slots += [(LogicalVariable(slot.op.name, [on_ps]), slot)
              for slot, on_ps in optimizers.pair_non_slots(worker_optimizer, ps_optimizer)]

    def pull() -> tf.Operation:
        assigned = [slot.assign(logical.join([part.read_value() for part in logical.parts])) for logical, slot in slots]
        with tf.control_dependencies(assigned):
            return tf.group(mark.assign(0))

    pushed = [part.assign(value) for logical, slot in slots
              for part, value in zip(logical.parts, logical.split(slot.read_value()))]
    # All of them: the next training on the same servers may have other shapes.
    kept = [mark, *(slot for _, slot in slots), *(part for copy in copies for part in (copy.current, copy.start))]
    forgotten = (tf.raw_ops.DestroyResourceOp(resource=one.handle, ignore_lookup_error=True) for one in kept)
    return SlotTransfer(
        forget_op=tf.group(*forgotten),
        begin_op=tf.group(tf.cond(tf.is_variable_initialized(mark), tf.no_op, pull)),
        before_save_op=tf.group(*pushed),
    )
