"""Of `tf.contrib.rnn`: cells around a cell, and stacks of bidirectional layers."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.framework import op_def_registry
from tensorflow.python.ops import variable_scope


def linear(args: Any, output_size: Any, bias: bool, bias_initializer: Any = None, kernel_initializer: Any = None,
           bias_start: float = 0.0, scope: str | None = None) -> tf.Tensor:
    """Returns sum(argument * W) + b over a tensor or a list of tensors: float [batch, output_size]."""
    args = list(args) if isinstance(args, (list, tuple)) else [args]
    size = sum(int(arg.shape[1]) for arg in args)
    with tf.variable_scope(scope) if scope else tf.variable_scope(tf.get_variable_scope()):
        kernel = tf.get_variable("kernel", [size, int(output_size)], args[0].dtype, initializer=kernel_initializer)
        product = tf.matmul(args[0] if len(args) == 1 else tf.concat(args, 1), kernel)
        if not bias:
            return product
        start = bias_initializer or tf.constant_initializer(bias_start)
        return tf.nn.bias_add(product, whole_bias(int(output_size), args[0].dtype, initializer=start))


def whole_bias(size: int, dtype: tf.DType, *, initializer: Any) -> Any:
    """Returns the variable "bias" [size]; no partitioner of the scope around divides it, as in TensorFlow 1."""
    with tf.variable_scope(tf.get_variable_scope(), auxiliary_name_scope=False) as scope:  # a copy
        scope.set_partitioner(None)
        return tf.get_variable("bias", [size], dtype, initializer=initializer)


def unbuilt_copy(cell: Any) -> Any:
    """Returns a copy of a cell that will make, or find, variables where it is called, as each call did in TF 1.0."""
    new = type(cell).__new__(type(cell))
    for name, value in vars(cell).items():  # object's: Keras would track what is set
        object.__setattr__(new, name, _unbuilt_value(value, cell, new))
    for name, value in (("built", False), ("_scope", None), ("rnncell_scope", None), ("_trainable_weights", []),
                        ("_non_trainable_weights", [])):
        object.__setattr__(new, name, value)
    return new


def _unbuilt_value(value: Any, cell: Any, new: Any) -> Any:
    """Returns an attribute for the copy: cells within it are copied, and methods of the cell become the copy's."""
    if isinstance(value, tf.nn.rnn_cell.RNNCell):
        return unbuilt_copy(value)
    if isinstance(value, list) and value and all(isinstance(item, tf.nn.rnn_cell.RNNCell) for item in value):
        return [unbuilt_copy(item) for item in value]
    return types.MethodType(value.__func__, new) if getattr(value, "__self__", None) is cell else value


def repair_cells(wrap: Callable) -> None:
    """Lets TensorFlow's cells take what they took before 1.1, by a function that wraps one method of a class."""
    cells = tf.nn.rnn_cell
    for name in ("BasicRNNCell", "GRUCell", "BasicLSTMCell", "LSTMCell"):
        wrap("__init__", _without_input_size, getattr(cells, name))
    wrap("__call__", _with_own_variables, cells.MultiRNNCell)
    wrap("get_variable", _by_old_name, variable_scope._VariableStore)  # noqa: SLF001 (it has no public name)


def _without_input_size(original: Callable, *args: Any, input_size: Any = None, **kwargs: Any) -> None:
    # Deprecated since 0.8, and without effect: a cell takes the size of its input.
    original(*args, **kwargs)


# The ends of the names that a cell's variables had until 1.1, and before 1.0.
_OLD_ENDS = {"Linear/Matrix": "kernel", "Linear/Bias": "bias", "weights": "kernel", "biases": "bias"}


def _by_old_name(original: Callable, store: Any, name: str, *args: Any, reuse: Any = None, **kwargs: Any) -> Any:
    """Finds a cell's variable that a script asks for by the name that it had: `get_variable("lstm_cell/weights")`."""
    variables = store._vars  # noqa: SLF001
    if reuse is True and name not in variables:
        today = next((name.removesuffix(old) + new for old, new in _OLD_ENDS.items() if name.endswith(f"/{old}")), name)
        snake_case = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", today).lower()
        name = next((each for each in (today, snake_case) if each in variables), name)
    return original(store, name, *args, reuse=reuse, **kwargs)


def _with_own_variables(original: Callable, stack: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    """Makes the layers of `MultiRNNCell([cell] * 2)` different ones, as before 1.1, if they cannot be the same.

    Since 1.1 they share their variables, which takes an input of the size of their output.
    """
    cells = stack._cells  # noqa: SLF001 (it has no public name)
    innermost = [_innermost(cell) for cell in cells]
    size = _size_of(inputs)
    if not stack.built and size not in (None, cells[0].output_size) and len(set(map(id, innermost))) < len(cells):
        stack._cells = [  # noqa: SLF001
            unbuilt_copy(cell) if any(inner is earlier for earlier in innermost[:place]) else cell
            for place, (cell, inner) in enumerate(zip(cells, innermost))]
    return original(stack, inputs, *args, **kwargs)


def _size_of(inputs: Any) -> int | None:
    """Returns the last dimension of a tensor or an array; None if it is unknown, or if these are several."""
    shape = tf.TensorShape(getattr(inputs, "shape", None))
    return tf.dimension_value(shape[-1]) if shape.rank else None


def _innermost(cell: Any) -> Any:
    """Returns the cell within wrappers such as for dropout."""
    while isinstance(inner := getattr(cell, "cell", None) or getattr(cell, "_cell", None), tf.nn.rnn_cell.RNNCell):
        cell = inner
    return cell


class _Wrapper(tf.nn.rnn_cell.RNNCell):
    """A cell around a cell, of the same state."""

    def __init__(self, cell: Any, reuse: bool | None = None) -> None:
        super().__init__(_reuse=reuse)
        self._cell = cell
        self._scope: tf.VariableScope | None = None  # of its variables, once it was called

    @property
    def state_size(self) -> Any:
        return self._cell.state_size

    @property
    def output_size(self) -> Any:
        return self._cell.output_size

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        return self._cell.zero_state(batch_size, dtype)

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> tuple[Any, Any]:
        # Not by way of Keras: the variables are those of the scope around its first call, as TensorFlow 1 had them.
        if self._scope is not None:
            with tf.variable_scope(self._scope, reuse=True, auxiliary_name_scope=False):
                return self.call(inputs, state)
        name = re.sub(r"\B(?=[A-Z])", "_", type(self).__name__).lower()
        with tf.variable_scope(scope or name if self._reuse else scope, name, reuse=self._reuse) as self._scope:
            return self.call(inputs, state)


class InputProjectionWrapper(_Wrapper):
    """Makes each input [batch, num_proj] before it goes into the cell."""

    def __init__(self, cell: Any, num_proj: int, activation: Callable | None = None, input_size: Any = None,
                 reuse: bool | None = None) -> None:
        super().__init__(cell, reuse)
        self._num_proj, self._activation = num_proj, activation

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        projected = linear(inputs, self._num_proj, True)
        return self._cell(self._activation(projected) if self._activation else projected, state)


class OutputProjectionWrapper(_Wrapper):
    """Makes each output of the cell [batch, output_size]."""

    def __init__(self, cell: Any, output_size: int, activation: Callable | None = None,
                 reuse: bool | None = None) -> None:
        super().__init__(cell, reuse)
        self._projected_size, self._activation = output_size, activation

    @property
    def output_size(self) -> int:
        return self._projected_size

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        output, state = self._cell(inputs, state)
        projected = linear(output, self._projected_size, True)
        return self._activation(projected) if self._activation else projected, state


class EmbeddingWrapper(_Wrapper):
    """Takes symbols, int [batch] or [batch, 1], and gives the cell the rows of its variable "embedding"."""

    def __init__(self, cell: Any, embedding_classes: int, embedding_size: int, initializer: Any = None,
                 reuse: bool | None = None) -> None:
        super().__init__(cell, reuse)
        self._shape, self._initializer = [embedding_classes, embedding_size], initializer

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        # sqrt(3): uniform numbers of variance 1
        start = self._initializer or tf.get_variable_scope().initializer or \
            tf.random_uniform_initializer(-3 ** 0.5, 3 ** 0.5)
        dtype = tf.nest.flatten(state)[0].dtype
        embedding = tf.get_variable("embedding", self._shape, dtype, initializer=start)
        return self._cell(tf.nn.embedding_lookup(embedding, tf.reshape(inputs, [-1])), state)


class HighwayWrapper(_Wrapper):
    """Lets a part of each input go past the cell (https://arxiv.org/abs/1505.00387), of the size of its output."""

    def __init__(self, cell: Any, couple_carry_transform_gates: bool = True, carry_bias_init: float = 1.0) -> None:
        super().__init__(cell)
        self._is_coupled, self._carry_bias = couple_carry_transform_gates, carry_bias_init

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> tuple[Any, Any]:
        # Its variables are in the scope around, with no name of its own.
        outputs, state = self._cell(inputs, state, scope=scope)
        return tf.nest.map_structure(self._mixed, inputs, outputs), state

    def _mixed(self, inputs: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        carry = self._gate("carry", inputs, self._carry_bias)
        return inputs * carry + outputs * (
            1 - carry if self._is_coupled else self._gate("transform", inputs, -self._carry_bias))

    def _gate(self, name: str, inputs: tf.Tensor, start: float) -> tf.Tensor:
        size = int(inputs.shape[1])
        weights = tf.get_variable(f"{name}_w", [size, size])
        biases = tf.get_variable(f"{name}_b", [size], initializer=tf.constant_initializer(start))
        return tf.sigmoid(tf.nn.xw_plus_b(inputs, weights, biases))


class CompiledWrapper(_Wrapper):
    """Lets XLA compile the step of a cell, if it can on the device."""

    def __init__(self, cell: Any, compile_stateful: bool = False) -> None:
        super().__init__(cell)
        self._compiled: Any = True if compile_stateful else _has_no_state

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> tuple[Any, Any]:
        with tf.xla.experimental.jit_scope(self._compiled):
            return self._cell(inputs, state, scope=scope)


def _has_no_state(node: Any) -> bool:
    definition = op_def_registry.get(node.op)
    return definition is not None and not definition.is_stateful


class AttentionCellWrapper(_Wrapper):
    """Attends to the last outputs of the cell (https://arxiv.org/abs/1409.0473): the state has them beside each other.

    Its state is (the cell's, what was attended to, float [batch, attn_size], and float [batch, length * attn_size]).
    """

    def __init__(self, cell: Any, attn_length: int, attn_size: int | None = None, attn_vec_size: int | None = None,
                 input_size: int | None = None, state_is_tuple: bool = True, reuse: bool | None = None) -> None:
        super().__init__(cell, reuse)
        if attn_length <= 0:
            raise ValueError(f"attn_length should be greater than zero, got {attn_length}")
        if tf.nest.is_nested(cell.state_size) and not state_is_tuple:
            raise ValueError("Cell returns tuple of states, but the flag state_is_tuple is not set. State size is: "
                             f"{cell.state_size}")
        self._length, self._size = attn_length, attn_size or cell.output_size
        self._vector_size, self._input_size, self._is_tuple = attn_vec_size or self._size, input_size, state_is_tuple

    @property
    def state_size(self) -> Any:
        sizes = (self._cell.state_size, self._size, self._size * self._length)
        return sizes if self._is_tuple else sum(sizes)

    @property
    def output_size(self) -> int:
        return self._size

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        return tf.nn.rnn_cell.RNNCell.zero_state(self, batch_size, dtype)

    def call(self, inputs: tf.Tensor, state: Any) -> tuple[tf.Tensor, Any]:
        sizes = [self._cell.state_size, self._size, self._size * self._length]
        state, attended, past = state if self._is_tuple else tf.split(state, sizes, 1)
        past = tf.reshape(past, [-1, self._length, self._size])
        inputs = linear([inputs, attended], self._input_size or int(inputs.shape[1]), True)
        output, state = self._cell(inputs, state)
        attended = self._attend(tf.concat(tf.nest.flatten(state), 1), past)
        output = linear([output, attended], self._size, True, scope="attn_output_projection")
        past = tf.concat([past[:, 1:], output[:, tf.newaxis]], 1)
        parts = (state, attended, tf.reshape(past, [-1, self._length * self._size]))
        return output, parts if self._is_tuple else tf.concat(parts, 1)

    def _attend(self, query: tf.Tensor, past: tf.Tensor) -> tf.Tensor:
        """Returns the mean of the outputs [batch, length, size], weighted by how they fit the query [batch, ...]."""
        with tf.variable_scope("attention"):
            # Tensors: a partitioned variable has no index and no product.
            kernel = tf.convert_to_tensor(tf.get_variable("attn_w", [1, 1, self._size, self._vector_size]))
            vector = tf.convert_to_tensor(tf.get_variable("attn_v", [self._vector_size]))
            features = tf.einsum("bls,sv->blv", past, kernel[0, 0])
            wanted = linear(query, self._vector_size, True)[:, tf.newaxis]
            weights = tf.nn.softmax(tf.reduce_sum(vector * tf.tanh(features + wanted), 2))
            return tf.reduce_sum(weights[:, :, tf.newaxis] * past, 1)


def stack_bidirectional_rnn(cells_fw: Sequence, cells_bw: Sequence, inputs: Sequence,
                            initial_states_fw: Sequence | None = None, initial_states_bw: Sequence | None = None,
                            dtype: Any = None, sequence_length: Any = None, scope: str | None = None) -> tuple:
    """Bidirectional layers upon each other, over a list of inputs: outputs, and each layer's states of both ways."""
    states_fw, states_bw = [], []
    with tf.variable_scope(scope or "stack_bidirectional_rnn"):
        for layer, (forward, backward) in enumerate(_pairs(cells_fw, cells_bw)):
            with tf.variable_scope(f"cell_{layer}") as scope_of_cell:
                inputs, state_fw, state_bw = tf.nn.static_bidirectional_rnn(
                    forward, backward, inputs, _nth(initial_states_fw, layer), _nth(initial_states_bw, layer), dtype,
                    sequence_length, scope=scope_of_cell)
            states_fw.append(state_fw)
            states_bw.append(state_bw)
    return inputs, tuple(states_fw), tuple(states_bw)


def stack_bidirectional_dynamic_rnn(cells_fw: Sequence, cells_bw: Sequence, inputs: tf.Tensor,
                                    initial_states_fw: Sequence | None = None,
                                    initial_states_bw: Sequence | None = None, dtype: Any = None,
                                    sequence_length: Any = None, parallel_iterations: int | None = None,
                                    time_major: bool = False, scope: str | None = None,
                                    swap_memory: bool = False) -> tuple:
    """The same over a tensor [batch, time, size]."""
    states_fw, states_bw = [], []
    with tf.variable_scope(scope or "stack_bidirectional_rnn"):
        for layer, (forward, backward) in enumerate(_pairs(cells_fw, cells_bw)):
            with tf.variable_scope(f"cell_{layer}"):
                outputs, (state_fw, state_bw) = tf.nn.bidirectional_dynamic_rnn(
                    forward, backward, inputs, sequence_length, _nth(initial_states_fw, layer),
                    _nth(initial_states_bw, layer), dtype, parallel_iterations, swap_memory, time_major)
            inputs = tf.concat(outputs, 2)
            states_fw.append(state_fw)
            states_bw.append(state_bw)
    return inputs, tuple(states_fw), tuple(states_bw)


def _pairs(cells_fw: Sequence, cells_bw: Sequence) -> list[tuple[Any, Any]]:
    if not cells_fw or len(cells_fw) != len(cells_bw):
        raise ValueError(f"cells_fw and cells_bw must be of one length, at least 1; got {len(cells_fw)} and "
                         f"{len(cells_bw)}")
    return list(zip(cells_fw, cells_bw))


def _nth(states: Sequence | None, layer: int) -> Any:
    return None if states is None else states[layer]
