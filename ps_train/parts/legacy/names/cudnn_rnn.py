"""Of `tf.contrib.cudnn_rnn`: recurrent layers with the equations of cuDNN, on any device.

    layer i, unidirectional   cudnn_lstm/rnn/multi_rnn_cell/cell_i/CELL
             bidirectional    cudnn_lstm/stack_bidirectional_rnn/cell_i/bidirectional_rnn/fw/CELL, and .../bw/CELL

The first part is the layer's name, with a number behind it from the second one on; a layer that a script builds before
it calls it has none, as in TensorFlow 1. cuDNN keeps the weights of all layers in one opaque variable, which TensorFlow
1 saved under these names, those of the compatible cells. Here the variables have them, so the layers restore the
checkpoints of TensorFlow 1. Where cuDNN adds two biases, there is one, their sum, as in these checkpoints: an optimizer
changes it half as fast.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

CUDNN_RNN_UNIDIRECTION, CUDNN_RNN_BIDIRECTION = "unidirectional", "bidirectional"
CUDNN_LSTM, CUDNN_GRU, CUDNN_RNN_RELU, CUDNN_RNN_TANH = "lstm", "gru", "rnn_relu", "rnn_tanh"
CUDNN_LSTM_PARAMS_PER_LAYER, CUDNN_GRU_PARAMS_PER_LAYER = 8, 6
CUDNN_RNN_RELU_PARAMS_PER_LAYER = CUDNN_RNN_TANH_PARAMS_PER_LAYER = 2
CUDNN_INPUT_LINEAR_MODE, CUDNN_INPUT_SKIP_MODE, CUDNN_INPUT_AUTO_MODE = "linear_input", "skip_input", "auto_select"


class _Weights(NamedTuple):
    """One kernel of a cell and its bias.

    Attributes:
      scope: of "kernel" and "bias", with a slash, or "".
      gates: how many gates they are for.
      factors: what the kernel is multiplied with: "x" the input, "h" the hidden state.
    """

    scope: str
    gates: int
    factors: str = "xh"


class _Cell:
    """A cell for `tf.nn.dynamic_rnn`, over values that are read once, before the loop."""

    def __init__(self, step: Callable, values: dict[str, tf.Tensor], num_units: int, num_states: int) -> None:
        self._step, self._values = step, values
        self.output_size = num_units
        self.state_size = num_units if num_states == 1 else (num_units,) * num_states

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Returns zeros, [batch_size, num_units] each."""
        return tf.nest.map_structure(lambda size: tf.zeros([batch_size, size], dtype), self.state_size)

    def __call__(self, inputs: tf.Tensor, state: Any, scope: Any = None) -> tuple[tf.Tensor, Any]:
        return self._step(self._values, inputs, state)


def _affine(values: dict[str, tf.Tensor], inputs: Sequence[tf.Tensor], scope: str = "") -> tf.Tensor:
    return tf.matmul(tf.concat(inputs, 1), values[f"{scope}kernel"]) + values[f"{scope}bias"]


def _lstm(values: dict[str, tf.Tensor], inputs: tf.Tensor, state: tuple) -> tuple[tf.Tensor, tuple]:
    hidden, memory = state
    entry, new, forget, output = tf.split(_affine(values, [inputs, hidden]), 4, 1)
    memory = tf.sigmoid(forget) * memory + tf.sigmoid(entry) * tf.tanh(new)
    hidden = tf.sigmoid(output) * tf.tanh(memory)
    return hidden, (hidden, memory)


def _gru(values: dict[str, tf.Tensor], inputs: tf.Tensor, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    reset, update = tf.split(tf.sigmoid(_affine(values, [inputs, state], "gates/")), 2, 1)
    new = tf.tanh(_affine(values, [inputs], "candidate/input_projection/")
                  + reset * _affine(values, [state], "candidate/hidden_projection/"))
    state = (1 - update) * new + update * state
    return state, state


def _simple(activation: Callable) -> Callable:
    def step(values: dict[str, tf.Tensor], inputs: tf.Tensor, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        state = activation(_affine(values, [inputs, state]))
        return state, state

    return step


class _CudnnRNN:
    """Layers of one kind, one upon the other; dropout is between them."""

    rnn_mode: str
    _cell_name: str
    _weights: tuple[_Weights, ...]
    _num_states = 1

    def __init__(self, num_layers: int, num_units: int, input_mode: str = CUDNN_INPUT_LINEAR_MODE,
                 direction: str = CUDNN_RNN_UNIDIRECTION, dropout: float = 0.0, seed: int | None = None,
                 dtype: Any = tf.float32, kernel_initializer: Any = None, bias_initializer: Any = None,
                 name: str | None = None) -> None:
        """Takes TensorFlow 1's arguments; the initializers make each gate's weights, [num_units, size], and biases."""
        if direction not in (CUDNN_RNN_UNIDIRECTION, CUDNN_RNN_BIDIRECTION):
            raise ValueError(f"direction: got {direction!r}; allowed: unidirectional, bidirectional")
        if input_mode != CUDNN_INPUT_LINEAR_MODE:
            raise NotImplementedError(f"input_mode: got {input_mode!r}; ps_train has linear_input only")
        self.num_layers, self.num_units, self.input_mode, self.direction = num_layers, num_units, input_mode, direction
        self.num_dirs = 2 if direction == CUDNN_RNN_BIDIRECTION else 1
        # As TensorFlow 1 made it of the class: "cudnn_rnn_tanh".
        self.name = name or re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=N)(?=[A-Z][a-z])", "_", type(self).__name__).lower()
        self.dtype = tf.as_dtype(dtype)
        self.trainable_variables: list[tf.Variable] = []
        self._dropout, self._seed = dropout, seed
        self._kernel_initializer = kernel_initializer or tf.glorot_uniform_initializer(seed=seed, dtype=self.dtype)
        self._bias_initializer = bias_initializer or tf.zeros_initializer()
        self._variables: list[dict[str, tf.Variable]] = []  # of each layer and direction

    @property
    def variables(self) -> list[tf.Variable]:
        """The kernels and biases, those of the first layer first."""
        return self.trainable_variables

    @property
    def built(self) -> bool:
        """Whether the variables exist."""
        return bool(self._variables)

    def state_shape(self, batch_size: Any) -> tuple[list, ...]:
        """Returns the shape of each part of the state: h and c of an LSTM, h of the others."""
        return ([self.num_layers * self.num_dirs, batch_size, self.num_units],) * self._num_states

    def build(self, input_shape: Any) -> None:
        """Creates the variables for inputs [time, batch, size], of which only the size needs to be known."""
        if self.built:
            return
        size = tf.TensorShape(input_shape).as_list()[-1]
        if size is None:
            raise ValueError("The last dimension of the inputs must be known, got None")
        for layer in range(self.num_layers):
            scopes = [f"rnn/multi_rnn_cell/cell_{layer}"] if self.num_dirs == 1 else [
                f"stack_bidirectional_rnn/cell_{layer}/bidirectional_rnn/{way}" for way in ("fw", "bw")]
            self._variables += [self._create(f"{scope}/{self._cell_name}", size) for scope in scopes]
            size = self.num_units * self.num_dirs
        self.trainable_variables = [variable for cell in self._variables for variable in cell.values()]

    def _create(self, scope: str, input_size: int) -> dict[str, tf.Variable]:
        """Returns name -> variable of a cell."""
        created = {}
        with tf.variable_scope(scope):
            for weights in self._weights:
                sizes = [{"x": input_size, "h": self.num_units}[factor] for factor in weights.factors]
                starts = {"kernel": self._first_kernel(sizes, weights.gates),
                          "bias": self._first_bias(len(sizes), weights.gates)}
                for name, start in starts.items():
                    name = weights.scope + name
                    created[name] = tf.get_variable(name, dtype=self.dtype, initializer=start)
        return created

    def _first_kernel(self, sizes: list[int], gates: int) -> tf.Tensor:
        return tf.concat([tf.concat([tf.transpose(self._kernel_initializer([self.num_units, size], dtype=self.dtype))
                                     for size in sizes], 0) for _ in range(gates)], 1)

    def _first_bias(self, addends: int, gates: int) -> tf.Tensor:
        return tf.concat([tf.add_n([self._bias_initializer([self.num_units], dtype=self.dtype)
                                    for _ in range(addends)]) for _ in range(gates)], 0)

    def __call__(self, inputs: Any, initial_state: tuple | None = None, sequence_lengths: Any = None,
                 time_major: bool = True, training: bool = True, scope: Any = None) -> tuple[tf.Tensor, tuple]:
        """Returns the outputs, [time, batch, num_dirs * num_units], and the state, a tuple as of `state_shape`.

        Args:
          inputs: float [time, batch, size].
          initial_state: a tuple as of `state_shape`; zeros if None.
          sequence_lengths: int32 [batch], or None if all are of full length.
          time_major: with `sequence_lengths`, whether the time comes before the batch, in the state the layer. Without
            them it does, as in TensorFlow 1.
          training: whether there is dropout.
          scope: of the variables, instead of the layer's name.
        """
        if initial_state is not None and not isinstance(initial_state, tuple):
            raise TypeError(f"Invalid initial_state type: {initial_state}, expecting tuple.")
        inputs = tf.convert_to_tensor(inputs, self.dtype)
        if not self.built:
            with tf.variable_scope(scope, self.name):
                self.build(inputs.shape)
        axis = 0 if time_major or sequence_lengths is None else 1
        num_cells = self.num_layers * self.num_dirs
        firsts = [None] * num_cells if initial_state is None else [
            parts if self._num_states > 1 else parts[0]
            for parts in zip(*(tf.unstack(tf.convert_to_tensor(part, self.dtype), num_cells, axis)
                               for part in initial_state))]
        lasts: list[Any] = []
        for layer in range(self.num_layers):
            if layer and self._dropout and training:
                inputs = tf.nn.dropout(inputs, rate=self._dropout, seed=self._seed)
            inputs, states = self._run(inputs, slice(layer * self.num_dirs, (layer + 1) * self.num_dirs), firsts,
                                       sequence_lengths, axis == 0)
            lasts += states
        parts = zip(*lasts) if self._num_states > 1 else [lasts]
        return inputs, tuple(tf.stack(part, axis) for part in parts)

    call = __call__

    def _run(self, inputs: tf.Tensor, of_layer: slice, firsts: list, lengths: Any, time_major: bool) -> tuple:
        """Returns the outputs of a layer, and the last state of each direction."""
        step = type(self)._step  # noqa: SLF001 (a plain function of the class)
        cells = [_Cell(step, {name: tf.convert_to_tensor(variable) for name, variable in variables.items()},
                       self.num_units, self._num_states) for variables in self._variables[of_layer]]
        options = {"sequence_length": lengths, "dtype": self.dtype, "time_major": time_major}
        if self.num_dirs == 1:
            outputs, state = tf.nn.dynamic_rnn(cells[0], inputs, initial_state=firsts[of_layer][0], **options)
            return outputs, [state]
        forward, backward = firsts[of_layer]
        outputs, states = tf.nn.bidirectional_dynamic_rnn(
            *cells, inputs, initial_state_fw=forward, initial_state_bw=backward, **options)
        return tf.concat(outputs, 2), states


class CudnnLSTM(_CudnnRNN):
    """Layers of LSTM cells; the state is (h, c)."""

    rnn_mode, _cell_name, _weights, _num_states = CUDNN_LSTM, "cudnn_compatible_lstm_cell", (_Weights("", 4),), 2
    _step = staticmethod(_lstm)


class CudnnGRU(_CudnnRNN):
    """Layers of GRU cells, with the reset gate behind the product of the hidden state; the state is (h,)."""

    rnn_mode, _cell_name = CUDNN_GRU, "cudnn_compatible_gru_cell"
    _weights = (_Weights("gates/", 2), _Weights("candidate/input_projection/", 1, "x"),
                _Weights("candidate/hidden_projection/", 1, "h"))
    _step = staticmethod(_gru)


class CudnnRNNTanh(_CudnnRNN):
    """Layers of cells tanh(W [x, h] + b); the state is (h,)."""

    rnn_mode, _cell_name, _weights = CUDNN_RNN_TANH, "basic_rnn_cell", (_Weights("", 1),)
    _step = staticmethod(_simple(tf.tanh))


class CudnnRNNRelu(_CudnnRNN):
    """Layers of cells relu(W [x, h] + b); the state is (h,)."""

    rnn_mode, _cell_name, _weights = CUDNN_RNN_RELU, "basic_rnn_cell", (_Weights("", 1),)
    _step = staticmethod(_simple(tf.nn.relu))


class CudnnCompatibleLSTMCell(tf.nn.rnn_cell.LSTMCell):
    """A cell with the variables of a layer of CudnnLSTM."""

    def __init__(self, num_units: int, reuse: bool | None = None) -> None:
        super().__init__(num_units, forget_bias=0, reuse=reuse, name="cudnn_compatible_lstm_cell")


class CudnnCompatibleGRUCell(tf.nn.rnn_cell.GRUCell):
    """A cell with the variables of a layer of CudnnGRU; its gates begin with biases of 1."""

    def __init__(self, num_units: int, reuse: bool | None = None, kernel_initializer: Any = None) -> None:
        super().__init__(num_units, reuse=reuse, kernel_initializer=kernel_initializer,
                         name="cudnn_compatible_gru_cell")

    def build(self, inputs_shape: Any) -> None:
        """Creates the variables."""
        sizes = {"x": int(inputs_shape[-1]), "h": self._num_units}
        self._values = {}
        for scope, gates, factors in CudnnGRU._weights:  # noqa: SLF001 (of this module)
            width = gates * self._num_units
            self._values[f"{scope}kernel"] = self.add_weight(
                f"{scope}kernel", [sum(sizes[factor] for factor in factors), width],
                initializer=self._kernel_initializer)
            self._values[f"{scope}bias"] = self.add_weight(
                f"{scope}bias", [width], initializer=tf.ones_initializer() if gates > 1 else tf.zeros_initializer())
        self.built = True

    def call(self, inputs: tf.Tensor, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the new state, twice."""
        return _gru(self._values, inputs, state)
