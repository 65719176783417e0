"""The dense variables of a live model, in one variable of bytes that a prediction reads once.

    bytes    0: number of the push, int64    8: global step, int64    64: the first variable    ...
             each variable begins at a multiple of 64, so TensorFlow takes a slice of it without a copy

An assignment replaces all of them at one moment. What read the variables of the model reads slices of it instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.errors import CheckpointError, UserCodeError
from ps_train.storage import checkpoints

_ALIGNMENT = 64  # bytes; EIGEN_MAX_ALIGN_BYTES
_VARIABLE_OPS = {"VarHandleOp", "VariableV2", "Variable"}
_PASSED_ON = {"Enter", "Identity", "Switch", "RefEnter", "RefSwitch"}
_READS = {"ReadVariableOp", "ResourceGather", "ResourceGatherNd"}
_ASSIGNMENTS = {"AssignVariableOp", "Assign"}
_SAME_BYTES = {"Identity", "Reshape"}  # between what a Saver reads and the variable


class DenseLayout:
    """Where each variable is.

    Attributes:
      entries: of each variable {"name", "dtype", "shape", "offset", "saved", "part"}; the offset is in the input of
        `live_commit`, which is without the first 64 bytes; the last two are those of `origins_of`.
      num_bytes: of that input.
    """

    def __init__(self, variables: Sequence[tf.Variable], saver: tf.train.Saver) -> None:
        """Places the variables in their order.

        Args:
          saver: restores them from a checkpoint.

        Raises:
          UserCodeError: one has no shape, is no number, or the saver does not restore it from a value of a checkpoint.
        """
        origins = origins_of(saver)
        self.entries: list[dict[str, Any]] = []
        self.num_bytes = 0
        for variable in variables:
            dtype, shape = variable.dtype.base_dtype, variable.shape
            if not shape.is_fully_defined() or not (dtype.is_bool or dtype.is_floating or dtype.is_integer
                                                   or dtype.is_complex) or dtype.is_quantized:
                raise UserCodeError("variable_not_live", f"variable {variable.op.name} is {dtype.name} {shape}; a live "
                                    "model takes numbers of a known shape; export it without --live")
            if variable.op.name not in origins:
                raise UserCodeError("variable_not_live", f"variable {variable.op.name} is not restored as the "
                                    "checkpoint has it by the saver of model_fn's scaffold; let the saver do that, or "
                                    "export it without --live")
            saved, part = origins[variable.op.name]
            offset = -(-self.num_bytes // _ALIGNMENT) * _ALIGNMENT
            self.entries.append({"name": variable.op.name, "dtype": dtype.name, "shape": shape.as_list(),
                                 "offset": offset, "saved": saved, "part": part})
            self.num_bytes = offset + dtype.size * shape.num_elements()

    def pack(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns the input of `live_commit`, uint8 [num_bytes], of name -> array."""
        packed = np.zeros([self.num_bytes], np.uint8)
        for entry in self.entries:
            value = np.frombuffer(np.ascontiguousarray(arrays[entry["name"]]).tobytes(), np.uint8)
            packed[entry["offset"]:entry["offset"] + len(value)] = value
        return packed


def origins_of(saver: tf.train.Saver) -> dict[str, tuple[str, str]]:
    """Returns name of a variable -> what a saver of the current graph restores it from.

    That is a name in the checkpoint, which for moving averages is another one, and the part of the value there, as
    TensorFlow writes it: "" for the whole, or "4 3 0,2:0,3" for the first two rows of [4, 3].
    """
    restore_op = tf.get_default_graph().as_graph_element(saver.saver_def.restore_op_name, allow_tensor=False)
    origins = {}
    for _, assignment in _inputs_of([restore_op]):
        if assignment.type in _ASSIGNMENTS:
            variable, value, *_ = assignment.inputs
            while value.op.type in _SAME_BYTES:
                value = value.op.inputs[0]
            if value.op.type == "RestoreV2":
                saved, part = (tf.get_static_value(texts)[value.value_index].decode() for texts in value.op.inputs[1:])
                origins[variable.op.name] = (saved, part)
    return origins


def check_saved(path: str, entries: Sequence[Mapping[str, Any]]) -> None:
    """Refuses a checkpoint, or a delta, without a value from which a variable is restored.

    Args:
      entries: those of a `DenseLayout`.

    Raises:
      CheckpointError: a value is missing, or the file cannot be read.
    """
    with checkpoints.reading(path):
        there = tf.train.load_checkpoint(path).get_variable_to_shape_map()
    if missing := [entry for entry in entries if entry["saved"] not in there]:
        raise CheckpointError("checkpoint_of_another_model", f"checkpoint {path} has no {missing[0]['saved']}, from "
                              f"which the model restores {missing[0]['name']}; give the --train_dir of this model, or "
                              "let the saver of its scaffold restore what the training saves")


class DenseState:
    """The variable of bytes.

    Attributes:
      layout: of the model's variables.
      variable: uint8 [64 + num_bytes].
    """

    def __init__(self, layout: DenseLayout) -> None:
        """Adds the variable to the current graph."""
        self.layout = layout
        size = _ALIGNMENT + layout.num_bytes
        self.variable = tf.Variable(lambda: tf.zeros([size], tf.uint8), trainable=False, name="ps_train/live/dense",
                                    use_resource=True, collections=[])
        with tf.control_dependencies(None):
            # In no loop or branch, and one operation: each run reads it once.
            self._read = tf.raw_ops.ReadVariableOp(resource=self.variable.handle, dtype=tf.uint8)
        self._read.set_shape([size])

    def number_and_step(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the number of the current push, and its global step; int64 scalars, read when this runs."""
        value = tf.raw_ops.ReadVariableOp(resource=self.variable.handle, dtype=tf.uint8)
        both = tf.bitcast(tf.reshape(value[:16], [2, 8]), tf.int64)
        return both[0], both[1]

    def assign(self, number: tf.Tensor, step: tf.Tensor, dense: tf.Tensor) -> tf.Operation:
        """Returns the operation that replaces all; the bytes are those of `live_commit`."""
        head = tf.reshape(tf.bitcast(tf.stack([number, step]), tf.uint8), [16])
        value = tf.concat([head, tf.zeros([_ALIGNMENT - 16], tf.uint8), dense], 0)
        return tf.raw_ops.AssignVariableOp(resource=self.variable.handle, value=value)

    def first_value(self, number: int, step: int, dense: np.ndarray) -> np.ndarray:
        """Returns the contents of the variable for the input of a commit."""
        head = np.zeros([_ALIGNMENT], np.uint8)
        head[:16] = np.frombuffer(np.array([number, step], "<i8").tobytes(), np.uint8)
        return np.concatenate([head, dense])

    def value_of(self, entry: Mapping[str, Any]) -> tf.Tensor:
        """Returns a variable's value, of the same read as all others."""
        dtype, shape = tf.as_dtype(entry["dtype"]), entry["shape"]
        num = dtype.size * int(np.prod(shape, dtype=np.int64))
        flat = tf.slice(self._read, [_ALIGNMENT + entry["offset"]], [num])
        if dtype.is_bool:
            return tf.reshape(tf.cast(flat, tf.bool), shape)
        if dtype == tf.uint8:
            return tf.reshape(flat, shape)
        if dtype.size > 1:
            flat = tf.reshape(flat, [-1, dtype.size])
        return tf.reshape(tf.bitcast(flat, dtype), shape)

    def connect(self, variables: Sequence[tf.Variable]) -> dict[str, str]:
        """Lets what reads the variables of the model read this one.

        Returns:
          name of a tensor that was a variable's value -> name of the one that is now.
        """
        renamed: dict[str, str] = {}
        for variable, entry in zip(variables, self.layout.entries):
            with tf.control_dependencies(None):  # in no loop or branch
                _replace(variable.op.outputs[0], self.value_of(entry), renamed)
        return renamed


def _replace(old: tf.Tensor, value: tf.Tensor, renamed: dict[str, str]) -> None:
    """Connects what reads a variable's handle, or the value of a reference variable, with another value."""
    is_handle = old.dtype == tf.resource
    if not is_handle:
        renamed[old.name] = value.name
    for consumer in list(old.consumers()):
        if consumer.type in _PASSED_ON and (is_handle or consumer.type.startswith("Ref")):
            for original, copied in zip(consumer.outputs, _passed_on(consumer, value)):
                _replace(original, copied, renamed)
        elif is_handle and consumer.type in _READS:
            _replace_read(consumer, value, renamed)
        elif not is_handle and not any(argument.is_ref for argument in consumer.op_def.input_arg):
            _reconnect(old, value, consumer)


def _reconnect(old: tf.Tensor, value: tf.Tensor, consumer: tf.Operation) -> None:
    for place, tensor in enumerate(consumer.inputs):
        if tensor is old:
            consumer._update_input(place, value)  # noqa: SLF001 (it has no public name)


def _replace_read(read: tf.Operation, value: tf.Tensor, renamed: dict[str, str]) -> None:
    """Replaces the result of an operation that reads a resource variable."""
    if read.type != "ReadVariableOp":
        if read._get_control_flow_context() is not None:  # noqa: SLF001 (it has no public name)
            return  # a constant of the new operation would be outside of a loop; `check_connected` says so
        value = (tf.gather(value, read.inputs[1], batch_dims=read.get_attr("batch_dims"))
                 if read.type == "ResourceGather" else tf.gather_nd(value, read.inputs[1]))
    old = read.outputs[0]
    renamed[old.name] = value.name
    for consumer in list(old.consumers()):
        _reconnect(old, value, consumer)


def _passed_on(operation: tf.Operation, value: tf.Tensor) -> list[tf.Tensor]:
    """Returns the outputs of an operation that passes its first input on, with a value in place of that."""
    kind = operation.type.removeprefix("Ref")
    if kind == "Switch":
        return list(tf.raw_ops.Switch(data=value, pred=operation.inputs[1]))
    if kind == "Identity":
        return [tf.identity(value)]
    attributes = {name: operation.get_attr(name) for name in ("frame_name", "is_constant", "parallel_iterations")}
    return [tf.raw_ops.Enter(data=value, **attributes)]


def check_connected(outputs: Sequence[tf.Tensor], variables: Sequence[tf.Variable]) -> None:
    """Refuses outputs that read a variable of the model in a way that cannot be replaced.

    Raises:
      UserCodeError: with the variable and the operation that reads it.
    """
    names = {variable.op.name for variable in variables}
    for operation, source in _inputs_of([output.op for output in outputs]):
        if source.type in _VARIABLE_OPS and source.name in names:
            raise UserCodeError("variable_not_live", f"variable {source.name} is read by {operation.name}, of the type "
                                f"{operation.type}, which a live model cannot have; export it without --live")


def _inputs_of(operations: Sequence[tf.Operation]) -> Iterator[tuple[tf.Operation, tf.Operation]]:
    """Yields pairs: one of these operations, or one on which they depend, and one whose result it takes."""
    waiting, seen = list(operations), set()
    while waiting:
        operation = waiting.pop()
        if operation in seen:
            continue
        seen.add(operation)
        for source in [*(tensor.op for tensor in operation.inputs), *operation.control_inputs]:
            yield operation, source
            waiting.append(source)
