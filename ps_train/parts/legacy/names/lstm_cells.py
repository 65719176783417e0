"""LSTMs of `tf.contrib.rnn` that TensorFlow has no more.

They make the variables that TensorFlow 1 made, with the same names.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.parts.legacy.names.cells import normalised
from ps_train.parts.legacy.names.gated_cells import UnitsCell, affine
from ps_train.parts.legacy.names.rnn import linear, whole_bias

_StateTuple = tf.nn.rnn_cell.LSTMStateTuple


class _LSTM(UnitsCell):
    """A cell with a state (c, h), or both beside each other; a projection may make h narrower."""

    def __init__(self, num_units: int, num_proj: int | None = None, reuse: bool | None = None,
                 state_is_tuple: bool = True, **options: Any) -> None:
        super().__init__(num_units, reuse, **options)
        self._num_proj, self._is_tuple = num_proj, state_is_tuple

    @property
    def state_size(self) -> Any:
        sizes = (self._num_units, self.output_size)
        return _StateTuple(*sizes) if self._is_tuple else sum(sizes)

    @property
    def output_size(self) -> int:
        return self._num_proj or self._num_units

    def _parts(self, state: Any) -> Any:
        return state if self._is_tuple else tf.split(state, [self._num_units, self.output_size], 1)

    def _joined(self, c: tf.Tensor, h: tf.Tensor) -> Any:
        return _StateTuple(c, h) if self._is_tuple else tf.concat([c, h], 1)


def clipped_state(values: tf.Tensor, bound: float | None) -> tf.Tensor:
    """Returns the values between -bound and bound, or as they are if there is none."""
    return values if bound is None else tf.clip_by_value(values, -bound, bound)


def sharded_matrix(name: str, rows: int, columns: int, dtype: tf.DType, num_shards: int) -> tf.Tensor:
    """Returns a matrix of the variables `name_0`, `name_1`, ...; the first ones have the rows that are left over."""
    if num_shards > rows:
        raise ValueError(f"Too many shards: shape={[rows, columns]}, num_shards={num_shards}")
    parts = [tf.get_variable(f"{name}_{index}", [rows // num_shards + (index < rows % num_shards), columns], dtype)
             for index in range(num_shards)]
    return parts[0] if num_shards == 1 else tf.concat(parts, 0)


def _peepholes(exist: bool, units: int, dtype: tf.DType, *names: str) -> list[Callable[[tf.Tensor], Any]]:
    """Returns what each gate sees of a state [batch, units]: it times the variable of that name, or nothing."""
    if not exist:
        return [lambda _: 0.0] * len(names)
    return [functools.partial(tf.multiply, tf.get_variable(name, [units], dtype)) for name in names]


class CoupledInputForgetGateLSTMCell(_LSTM):
    """An LSTM whose input gate is 1 less the forget gate (https://arxiv.org/abs/1503.04069, section 2)."""

    def __init__(self, num_units: int, use_peepholes: bool = False, initializer: Any = None,
                 num_proj: int | None = None, proj_clip: float | None = None, num_unit_shards: int = 1,
                 num_proj_shards: int = 1, forget_bias: float = 1.0, state_is_tuple: bool = True,
                 activation: Callable = tf.tanh, reuse: bool | None = None, layer_norm: bool = False,
                 norm_gain: float = 1.0, norm_shift: float = 0.0) -> None:
        super().__init__(num_units, num_proj, reuse, state_is_tuple)
        self._has_peepholes, self._proj_clip, self._forget_bias = use_peepholes, proj_clip, forget_bias
        self._shards, self._activation = (num_unit_shards, num_proj_shards), activation
        self._norms = (norm_gain, norm_shift) if layer_norm else None
        # `initializer` had no effect in TensorFlow 1 either.

    def call(self, inputs: tf.Tensor, state: Any) -> tuple[tf.Tensor, Any]:
        """Returns the output [batch, units] and the new state for inputs [batch, size]."""
        (c, h), units, dtype = self._parts(state), self._num_units, inputs.dtype
        kernel = sharded_matrix("W", int(inputs.shape[1]) + self.output_size, 3 * units, dtype, self._shards[0])
        bias = tf.get_variable("B", [3 * units], dtype, initializer=tf.zeros_initializer())
        gates = tf.matmul(tf.concat([inputs, h], 1), kernel)
        j, f, o = tf.split(gates if self._norms else tf.nn.bias_add(gates, bias), 3, 1)
        if self._norms:
            j, f, o = (normalised(gate, name, *self._norms)
                       for gate, name in zip((j, f, o), ("transform", "forget", "output")))
        of_forget, of_output = _peepholes(self._has_peepholes, units, dtype, "W_F_diag", "W_O_diag")
        forget = tf.sigmoid(f + self._forget_bias + of_forget(c))
        new_c = forget * c + (1 - forget) * self._activation(j)
        if self._norms:
            new_c = normalised(new_c, "state", *self._norms)
        new_h = tf.sigmoid(o + of_output(new_c)) * self._activation(new_c)
        if self._num_proj:
            projection = sharded_matrix("W_P", units, self._num_proj, dtype, self._shards[1])
            new_h = clipped_state(tf.matmul(new_h, projection), self._proj_clip)
        return new_h, self._joined(new_c, new_h)


class TimeFreqLSTMCell(UnitsCell):
    """An LSTM over time and over windows of its input (https://research.google/pubs/lstm-time-and-frequency/)."""

    def __init__(self, num_units: int, use_peepholes: bool = False, cell_clip: float | None = None,
                 initializer: Any = None, num_unit_shards: int = 1, forget_bias: float = 1.0,
                 feature_size: int | None = None, frequency_skip: int = 1, reuse: bool | None = None) -> None:
        super().__init__(num_units, reuse)
        self._has_peepholes, self._cell_clip, self._forget_bias = use_peepholes, cell_clip, forget_bias
        self._num_shards, self._feature_size, self._skip = num_unit_shards, feature_size, frequency_skip

    @property
    def state_size(self) -> int:
        return 2 * self._num_units

    def call(self, inputs: tf.Tensor, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the outputs of all windows, [batch, windows * units], and their states."""
        units, width, dtype = self._num_units, int(self._feature_size), inputs.dtype
        num_windows = int((int(inputs.shape[1]) - width) / self._skip) + 1
        kernel = sharded_matrix("W", width + 2 * units, 4 * units, dtype, self._num_shards)
        bias = tf.get_variable("B", [4 * units], dtype, initializer=tf.zeros_initializer())
        of_forget, of_input, of_output = _peepholes(
            self._has_peepholes, units, dtype, "W_F_diag", "W_I_diag", "W_O_diag")
        outputs, states = [], []
        beside = tf.zeros([tf.shape(inputs)[0], units], dtype)  # the output of the window before
        for window in range(num_windows):
            start = window * self._skip
            c, h = tf.split(state[:, 2 * window * units:2 * (window + 1) * units], 2, 1)
            joined = tf.concat([inputs[:, start:start + width], h, beside], 1)
            i, j, f, o = tf.split(tf.nn.bias_add(tf.matmul(joined, kernel), bias), 4, 1)
            c = tf.sigmoid(f + self._forget_bias + of_forget(c)) * c + tf.sigmoid(i + of_input(c)) * tf.tanh(j)
            c = clipped_state(c, self._cell_clip)
            beside = tf.sigmoid(o + of_output(c)) * tf.tanh(c)
            outputs.append(beside)
            states += [c, beside]
        return tf.concat(outputs, 1), tf.concat(states, 1)


class LayerNormLSTMCell(_LSTM):
    """`tf.nn.rnn_cell.LSTMCell`, whose gates and state may be normalised (https://arxiv.org/abs/1607.06450)."""

    def __init__(self, num_units: int, use_peepholes: bool = False, cell_clip: float | None = None,
                 initializer: Any = None, num_proj: int | None = None, proj_clip: float | None = None,
                 forget_bias: float = 1.0, activation: Callable | None = None, layer_norm: bool = False,
                 norm_gain: float = 1.0, norm_shift: float = 0.0, reuse: bool | None = None, **options: Any) -> None:
        super().__init__(num_units, num_proj, reuse, **options)
        self._has_peepholes, self._clips, self._initializer = use_peepholes, (cell_clip, proj_clip), initializer
        self._forget_bias, self._activation = forget_bias, activation or tf.tanh
        self._norms = (norm_gain, norm_shift) if layer_norm else None

    def call(self, inputs: tf.Tensor, state: Any) -> tuple[tf.Tensor, Any]:
        """Returns the output [batch, units] and the new state for inputs [batch, size]."""
        with tf.variable_scope(tf.get_variable_scope(), initializer=self._initializer):
            c, h = state
            i, j, f, o = self._gates(inputs, h)
            of_forget, of_input, of_output = _peepholes(
                self._has_peepholes, self._num_units, inputs.dtype, "w_f_diag", "w_i_diag", "w_o_diag")
            new_c = (tf.sigmoid(f + self._forget_bias + of_forget(c)) * c
                     + tf.sigmoid(i + of_input(c)) * self._activation(j))
            if self._norms:
                new_c = normalised(new_c, "state", *self._norms)
            new_c = clipped_state(new_c, self._clips[0])
            new_h = tf.sigmoid(o + of_output(new_c)) * self._activation(new_c)
            if self._num_proj:
                new_h = clipped_state(self._product(new_h, self._num_proj, False, "projection"), self._clips[1])
            return new_h, self._joined(new_c, new_h)

    def _gates(self, inputs: tf.Tensor, h: tf.Tensor) -> list[tf.Tensor]:
        gates = tf.split(self._product([inputs, h], 4 * self._num_units, self._norms is None), 4, 1)
        if self._norms is None:
            return gates
        # Not added, as `beta` has its place; but it is in the checkpoints of TensorFlow 1.
        whole_bias(4 * self._num_units, inputs.dtype, initializer=tf.zeros_initializer())
        return [normalised(gate, name, *self._norms)
                for gate, name in zip(gates, ("input", "transform", "forget", "output"))]

    def _product(self, args: Any, size: int, bias: bool, scope: str | None = None) -> tf.Tensor:
        return linear(args, size, bias, scope=scope)


class WeightNormLSTMCell(LayerNormLSTMCell):
    """An LSTM whose weights are normalised (https://arxiv.org/abs/1602.07868)."""

    def __init__(self, num_units: int, norm: bool = True, use_peepholes: bool = False, cell_clip: float | None = None,
                 initializer: Any = None, num_proj: int | None = None, proj_clip: float | None = None,
                 forget_bias: float = 1.0, activation: Callable | None = None, reuse: bool | None = None) -> None:
        super().__init__(num_units, use_peepholes, cell_clip, initializer, num_proj, proj_clip, forget_bias,
                         activation, reuse=reuse, name="wn_lstm_cell")
        self._is_normed = norm

    def call(self, inputs: tf.Tensor, state: Any) -> tuple[tf.Tensor, Any]:
        """Returns the output [batch, units] and the new state for inputs [batch, size]."""
        with tf.variable_scope("wn_lstm_cell"):
            return super().call(inputs, state)

    def _product(self, args: Any, size: int, bias: bool, scope: str | None = None) -> tf.Tensor:
        if not self._is_normed:
            return super()._product(args, size, bias, scope)
        args = args if isinstance(args, list) else [args]
        rows = [int(arg.shape[1]) for arg in args]
        with tf.variable_scope(scope) if scope else tf.variable_scope(tf.get_variable_scope()):
            kernel = tf.get_variable("kernel", [sum(rows), size], args[0].dtype)
            parts = [tf.nn.l2_normalize(part, axis=0) * tf.get_variable(f"norm_{index}", [size], part.dtype)
                     for index, part in enumerate(tf.split(kernel, rows, 0))]
            product = tf.matmul(tf.concat(args, 1), tf.concat(parts, 0))
            if not bias:
                return product
            return tf.nn.bias_add(product, whole_bias(size, args[0].dtype, initializer=tf.zeros_initializer()))


class GLSTMCell(_LSTM):
    """An LSTM of groups of units, each of which reads its share of the input (https://arxiv.org/abs/1703.10722)."""

    def __init__(self, num_units: int, initializer: Any = None, num_proj: int | None = None, number_of_groups: int = 1,
                 forget_bias: float = 1.0, activation: Callable = tf.tanh, reuse: bool | None = None) -> None:
        super().__init__(num_units, num_proj, reuse)
        for name, size in (("num_units", num_units), ("num_proj", num_proj or 0)):
            if size % number_of_groups:
                raise ValueError(f"{name} must be divisible by number_of_groups")
        self._initializer, self._num_groups = initializer, number_of_groups
        self._forget_bias, self._activation = forget_bias, activation

    def call(self, inputs: tf.Tensor, state: Any) -> tuple[tf.Tensor, Any]:
        """Returns the output [batch, units] and the new state for inputs [batch, size]."""
        (c, h), groups = state, self._num_groups
        if int(inputs.shape[1]) % groups:
            raise ValueError(f"input size ({inputs.shape[1]}) must be divisible by number_of_groups ({groups})")
        with tf.variable_scope(tf.get_variable_scope(), initializer=self._initializer):
            parts = [tf.split(linear(list(pair), 4 * self._num_units // groups, False, scope=f"group{index}"), 4, 1)
                     for index, pair in enumerate(zip(tf.split(inputs, groups, 1), tf.split(h, groups, 1)))]
            biases = (tf.get_variable(f"bias_{name}", [self._num_units], inputs.dtype,
                                      initializer=tf.zeros_initializer()) for name in "ijfo")
            i, j, f, o = (tf.nn.bias_add(tf.concat(gate, 1), bias) for gate, bias in zip(zip(*parts), biases))
            new_c = tf.sigmoid(f + self._forget_bias) * c + tf.sigmoid(i) * tf.tanh(j)
            new_h = tf.sigmoid(o) * self._activation(new_c)
            if self._num_proj:
                new_h = linear(new_h, self._num_proj, False, scope="projection")
        return new_h, self._joined(new_c, new_h)


class IndyLSTMCell(_LSTM):
    """An LSTM of independent units (https://arxiv.org/abs/1903.08023)."""

    def __init__(self, num_units: int, forget_bias: float = 1.0, activation: Callable | None = None,
                 reuse: bool | None = None, kernel_initializer: Any = None, bias_initializer: Any = None,
                 name: str | None = None, dtype: Any = None) -> None:
        super().__init__(num_units, None, reuse, name=name, dtype=dtype)
        self._forget_bias, self._activation = forget_bias, activation or tf.tanh
        self._initializers = kernel_initializer, bias_initializer or tf.zeros_initializer()

    def call(self, inputs: tf.Tensor, state: Any) -> tuple[tf.Tensor, Any]:
        """Returns the output [batch, units] and the new state for inputs [batch, size]."""
        c, h = state
        i, j, f, o = tf.split(affine(inputs, h, 4 * self._num_units, *self._initializers), 4, 1)
        new_c = c * tf.sigmoid(f + self._forget_bias) + tf.sigmoid(i) * self._activation(j)
        new_h = self._activation(new_c) * tf.sigmoid(o)
        return new_h, self._joined(new_c, new_h)


class PhasedLSTMCell(_LSTM):
    """An LSTM whose units are open for a part of a period of their own (https://arxiv.org/abs/1610.09513).

    Its inputs are (times, features): [batch, 1] and [batch, size].
    """

    def __init__(self, num_units: int, use_peepholes: bool = False, leak: float = 0.001, ratio_on: float = 0.1,
                 trainable_ratio_on: bool = True, period_init_min: float = 1.0, period_init_max: float = 1000.0,
                 reuse: bool | None = None) -> None:
        super().__init__(num_units, None, reuse, autocast=False)  # times may be float64
        self._has_peepholes, self._leak, self._ratio_on = use_peepholes, leak, (ratio_on, trainable_ratio_on)
        self._periods = period_init_min, period_init_max

    def call(self, inputs: Any, state: Any) -> tuple[tf.Tensor, Any]:
        """Returns the output [batch, units] and the new state."""
        (c, h), (time, x) = state, inputs
        seen = [c] if self._has_peepholes else []
        gates = tf.sigmoid(linear([x, h, *seen], 2 * self._num_units, True, scope="mask_gates"))
        input_gate, forget_gate = tf.split(gates, 2, 1)
        new_c = c * forget_gate + input_gate * tf.tanh(linear([x, h], self._num_units, True, scope="new_input"))
        seen = [new_c] if self._has_peepholes else []
        output_gate = tf.sigmoid(linear([x, h, *seen], self._num_units, True, scope="output_gate"))
        new_h = tf.tanh(new_c) * output_gate
        openness = self._openness(time)
        new_c, new_h = (openness * new + (1 - openness) * old for new, old in ((new_c, c), (new_h, h)))
        return new_h, self._joined(new_c, new_h)

    def _openness(self, time: tf.Tensor) -> tf.Tensor:
        """Returns how far each unit is open at these times: float [batch, units]."""
        low, high = map(math.log, self._periods)
        period = tf.get_variable("period", [self._num_units], initializer=lambda shape, dtype=None, **_: tf.exp(
            tf.random_uniform(shape, low, high)))
        phase = tf.get_variable("phase", [self._num_units], initializer=lambda shape, dtype=None, **_: (
            period.initial_value * tf.random_uniform(shape)))
        ratio_on = tf.get_variable("ratio_on", [self._num_units], trainable=self._ratio_on[1],
                                   initializer=tf.constant_initializer(self._ratio_on[0]))
        shifted, turn = time - tf.cast(phase, time.dtype), tf.cast(period, time.dtype)
        # Its gradient is that of a straight line.
        within = tf.stop_gradient(tf.floormod(shifted, turn) - shifted) + shifted
        cycle = tf.cast(within / turn, tf.float32)
        rising, closed = 2 * cycle / ratio_on, self._leak * cycle
        return tf.where(cycle < 0.5 * ratio_on, rising, tf.where(cycle < ratio_on, 2 - rising, closed))
