"""Cells of `tf.contrib.rnn` that TensorFlow has no more, and cells that run over the whole of a sequence ("fused").

They make the variables that TensorFlow 1 made, with the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.parts.legacy.names.rnn import linear

_rnn_cell = tf.nn.rnn_cell


class LayerNormBasicLSTMCell(_rnn_cell.RNNCell):
    """An LSTM whose gates and state are normalised (https://arxiv.org/abs/1607.06450), with recurrent dropout."""

    def __init__(self, num_units: int, forget_bias: float = 1.0, input_size: Any = None,
                 activation: Callable = tf.tanh, layer_norm: bool = True, norm_gain: float = 1.0,
                 norm_shift: float = 0.0, dropout_keep_prob: Any = 1.0, dropout_prob_seed: int | None = None,
                 reuse: bool | None = None) -> None:
        super().__init__(_reuse=reuse)
        self._num_units, self._forget_bias, self._activation = num_units, forget_bias, activation
        self._norms = (norm_gain, norm_shift) if layer_norm else None
        self._keep_prob, self._seed = dropout_keep_prob, dropout_prob_seed

    @property
    def state_size(self) -> Any:
        return _rnn_cell.LSTMStateTuple(self._num_units, self._num_units)

    @property
    def output_size(self) -> int:
        return self._num_units

    def call(self, inputs: tf.Tensor, state: Any) -> tuple[tf.Tensor, Any]:
        """Returns the output [batch, units] and the new state for inputs [batch, size]."""
        c, h = state
        gates = linear([inputs, h], 4 * self._num_units, bias=False)
        if self._norms is None:  # by the initializer of the scope, unlike the biases of other cells
            gates = tf.nn.bias_add(gates, tf.get_variable("bias", [4 * self._num_units], gates.dtype))
        gates = tf.split(gates, 4, 1)
        names = ("input", "transform", "forget", "output")
        i, j, f, o = (self._normalised(gate, name) for gate, name in zip(gates, names))
        g = self._activation(j)
        if not isinstance(self._keep_prob, float) or self._keep_prob < 1:
            g = tf.nn.dropout(g, rate=1 - self._keep_prob, seed=self._seed)
        new_c = self._normalised(c * tf.sigmoid(f + self._forget_bias) + tf.sigmoid(i) * g, "state")
        new_h = self._activation(new_c) * tf.sigmoid(o)
        return new_h, _rnn_cell.LSTMStateTuple(new_c, new_h)

    def _normalised(self, values: tf.Tensor, scope: str) -> tf.Tensor:
        return values if self._norms is None else normalised(values, scope, *self._norms)


def normalised(values: tf.Tensor, scope: str, gain: float, shift: float) -> tf.Tensor:
    """Returns values [batch, units] with the mean and deviation over the units that `beta` and `gamma` say."""
    units = [int(values.shape[-1])]
    with tf.variable_scope(scope):
        gamma = tf.get_variable("gamma", units, initializer=tf.constant_initializer(gain))
        beta = tf.get_variable("beta", units, initializer=tf.constant_initializer(shift))
    mean, variance = tf.nn.moments(values, [1], keep_dims=True)
    return tf.nn.batch_normalization(values, mean, variance, beta, gamma, 1e-12)


class NASCell(_rnn_cell.RNNCell):
    """The cell that a search over architectures found (https://arxiv.org/abs/1611.01578)."""

    def __init__(self, num_units: int, num_proj: int | None = None, use_bias: bool = False,
                 reuse: bool | None = None, **kwargs: Any) -> None:
        super().__init__(_reuse=reuse, **kwargs)
        self._num_units, self._num_proj, self._use_bias = num_units, num_proj, use_bias

    @property
    def state_size(self) -> Any:
        return _rnn_cell.LSTMStateTuple(self._num_units, self.output_size)

    @property
    def output_size(self) -> int:
        return self._num_proj or self._num_units

    def call(self, inputs: tf.Tensor, state: Any) -> tuple[tf.Tensor, Any]:
        """Returns the output [batch, units] and the new state for inputs [batch, size]."""
        c, m = state
        width = 8 * self._num_units
        of_state = tf.matmul(m, tf.get_variable("recurrent_kernel", [self.output_size, width]))
        of_inputs = tf.matmul(inputs, tf.get_variable("kernel", [int(inputs.shape[1]), width]))
        if self._use_bias:
            of_state += tf.get_variable("bias", [width], initializer=tf.zeros_initializer())
        x, y = tf.split(of_inputs, 8, 1), tf.split(of_state, 8, 1)
        sums = [a + b for a, b in zip(x, y)]
        first = tf.tanh(tf.sigmoid(sums[0]) * tf.nn.relu(sums[1]))
        second = tf.tanh(tf.sigmoid(sums[2]) + tf.nn.relu(x[3] * y[3]))
        third = tf.tanh(tf.tanh(sums[4]) * tf.sigmoid(sums[5]))
        fourth = tf.sigmoid(tf.tanh(sums[6]) + tf.sigmoid(sums[7]))
        new_c = tf.tanh(first + c) * second
        new_m = tf.tanh(new_c * tf.tanh(third + fourth))
        if self._num_proj:
            new_m = tf.matmul(new_m, tf.get_variable("projection_weights", [self._num_units, self._num_proj]))
        return new_m, _rnn_cell.LSTMStateTuple(new_c, new_m)


class ConvLSTMCell(_rnn_cell.RNNCell):
    """An LSTM whose matrices are convolutions (https://arxiv.org/abs/1506.04214)."""

    def __init__(self, conv_ndims: int, input_shape: Sequence[int], output_channels: int, kernel_shape: Sequence[int],
                 use_bias: bool = True, skip_connection: bool = False, forget_bias: float = 1.0,
                 initializers: Any = None, name: str = "conv_lstm_cell") -> None:
        super().__init__(name=name)
        if conv_ndims != len(input_shape) - 1:
            raise ValueError(f"Invalid input_shape {input_shape} for conv_ndims={conv_ndims}.")
        self._input_shape, self._channels, self._kernel_shape = list(input_shape), output_channels, list(kernel_shape)
        self._use_bias, self._forget_bias, self._skips = use_bias, forget_bias, skip_connection

    @property
    def state_size(self) -> Any:
        shape = tf.TensorShape([*self._input_shape[:-1], self._channels])
        return _rnn_cell.LSTMStateTuple(shape, shape)

    @property
    def output_size(self) -> tf.TensorShape:
        return tf.TensorShape([*self._input_shape[:-1], self._channels + self._skips * self._input_shape[-1]])

    def call(self, inputs: tf.Tensor, state: Any) -> tuple[tf.Tensor, Any]:
        """Returns the output [batch, ..., channels] and the new state for inputs [batch, ..., channels]."""
        c, h = state
        joined = tf.concat([inputs, h], -1)
        kernel = tf.get_variable("kernel", [*self._kernel_shape, int(joined.shape[-1]), 4 * self._channels])
        gates = tf.nn.convolution(joined, kernel, "SAME")
        if self._use_bias:
            gates += tf.get_variable("biases", [4 * self._channels], initializer=tf.zeros_initializer())
        i, j, f, o = tf.split(gates, 4, -1)
        new_c = tf.sigmoid(f + self._forget_bias) * c + tf.sigmoid(i) * tf.tanh(j)
        new_h = tf.tanh(new_c) * tf.sigmoid(o)
        output = tf.concat([new_h, inputs], -1) if self._skips else new_h
        return output, _rnn_cell.LSTMStateTuple(new_c, output)


def _of_rank(rank: int) -> type:
    def init(self: Any, name: str = f"conv_{rank}d_lstm_cell", **kwargs: Any) -> None:
        ConvLSTMCell.__init__(self, rank, name=name, **kwargs)
    return type(f"Conv{rank}DLSTMCell", (ConvLSTMCell,), {"__init__": init, "__module__": __name__})


Conv1DLSTMCell, Conv2DLSTMCell, Conv3DLSTMCell = map(_of_rank, (1, 2, 3))


class GRUBlockCellV2(_rnn_cell.GRUCell):
    """`tf.nn.rnn_cell.GRUCell`: the same numbers and variables, by several operations."""

    def __init__(self, num_units: int | None = None, cell_size: int | None = None, reuse: bool | None = None,
                 name: str = "gru_cell", **kwargs: Any) -> None:
        super().__init__(num_units or cell_size, reuse=reuse, name=name, **kwargs)


class GRUBlockCell(GRUBlockCellV2):
    """The same numbers, with the names that the variables of the first version had."""

    def build(self, inputs_shape: Any) -> None:
        """Makes the variables."""
        rows = tf.TensorShape(inputs_shape).as_list()[-1] + self._num_units
        sizes = {"ru": 2 * self._num_units, "c": self._num_units}
        kernels = [self.add_weight(f"w_{name}", [rows, size]) for name, size in sizes.items()]
        biases = [self.add_weight(f"b_{name}", [size], initializer=tf.constant_initializer(start))
                  for (name, size), start in zip(sizes.items(), (1.0, 0.0))]
        self._gate_kernel, self._candidate_kernel = kernels
        self._gate_bias, self._candidate_bias = biases
        self.built = True


class FusedRNNCell:
    """A cell that runs over a sequence; a class of a script has a `__call__` with the arguments of those below."""


class LSTMBlockWrapper(FusedRNNCell):
    """The class of `LSTMBlockFusedCell`, for code that asks which class a cell is of."""


class FusedRNNCellAdaptor(FusedRNNCell):
    """A cell that runs over a sequence [time, batch, size], or a list of [batch, size]."""

    def __init__(self, cell: Any, use_dynamic_rnn: bool = False) -> None:
        self._cell, self._is_dynamic = cell, use_dynamic_rnn

    def __call__(self, inputs: Any, initial_state: Any = None, dtype: Any = None, sequence_length: Any = None,
                 scope: Any = None) -> tuple[Any, Any]:
        """Returns the outputs, in the form of the inputs, and the last state of each sequence."""
        is_list = isinstance(inputs, list)
        if self._is_dynamic:
            outputs, state = tf.nn.dynamic_rnn(
                self._cell, tf.stack(inputs) if is_list else inputs, sequence_length, initial_state, dtype,
                time_major=True, scope=scope)
            return tf.unstack(outputs) if is_list else outputs, state
        outputs, state = tf.nn.static_rnn(
            self._cell, inputs if is_list else tf.unstack(inputs), initial_state, dtype, sequence_length, scope)
        return outputs if is_list else tf.stack(outputs), state


class LSTMBlockCell(_rnn_cell.LSTMCell):
    """`tf.nn.rnn_cell.LSTMCell`: the same numbers and variables, by several operations."""

    def __init__(self, num_units: int, forget_bias: float = 1.0, cell_clip: float | None = None,
                 use_peephole: bool = False, dtype: Any = None, reuse: bool | None = None,
                 name: str = "lstm_cell") -> None:
        super().__init__(num_units, use_peepholes=use_peephole, cell_clip=_bound(cell_clip), forget_bias=forget_bias,
                         reuse=reuse, name=name, dtype=dtype)


def _bound(cell_clip: float | None) -> float | None:
    """Returns what LSTMCell clips to; the fused cells took -1 for nothing."""
    return cell_clip if cell_clip and cell_clip > 0 else None


class LSTMBlockFusedCell(FusedRNNCellAdaptor, LSTMBlockWrapper):
    """`tf.nn.rnn_cell.LSTMCell` over a sequence: the same numbers and variables, by several operations a step."""

    def __init__(self, num_units: int, forget_bias: float = 1.0, cell_clip: float | None = None,
                 use_peephole: bool = False, reuse: bool | None = None, dtype: Any = None,
                 name: str = "lstm_fused_cell") -> None:
        super().__init__(_rnn_cell.LSTMCell(
            num_units, use_peepholes=use_peephole, cell_clip=_bound(cell_clip), forget_bias=forget_bias, reuse=reuse,
            dtype=dtype, name=name), use_dynamic_rnn=True)
        self.num_units, self._name, self._reuse = num_units, name, reuse

    def __call__(self, inputs: Any, initial_state: Any = None, dtype: Any = None, sequence_length: Any = None,
                 scope: Any = None) -> tuple[Any, Any]:
        """Returns the outputs and the last state; the variables have no name of an RNN around them."""
        if initial_state is not None:  # a pair of c and h was enough
            initial_state = _rnn_cell.LSTMStateTuple(*initial_state)
        if scope is None and self._cell._scope is None and not self._reuse:  # noqa: SLF001 (a layer's, set on its call)
            # A second cell has a name with a number: in the scope that the RNN enters again, no names are counted.
            with tf.variable_scope(None, self._name) as self._cell._scope:  # noqa: SLF001
                pass
        return super().__call__(inputs, initial_state, dtype, sequence_length, scope or tf.get_variable_scope())


class TimeReversedFusedRNN(FusedRNNCell):
    """Runs another one of these backwards."""

    def __init__(self, cell: Any) -> None:
        self._cell = cell

    def __call__(self, inputs: Any, initial_state: Any = None, dtype: Any = None, sequence_length: Any = None,
                 scope: Any = None) -> tuple[Any, Any]:
        """Returns the outputs, at the places of their inputs, and the state after the first of each sequence."""
        outputs, state = self._cell(_reversed(inputs, sequence_length), initial_state, dtype, sequence_length, scope)
        return _reversed(outputs, sequence_length), state


def _reversed(sequence: Any, lengths: Any) -> Any:
    if isinstance(sequence, list):
        return sequence[::-1]  # whatever the lengths, as in TensorFlow 1
    if lengths is None:
        return tf.reverse(sequence, [0])
    return tf.reverse_sequence(sequence, lengths, seq_axis=0, batch_axis=1)
