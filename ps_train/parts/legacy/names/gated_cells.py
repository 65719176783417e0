"""Cells of `tf.contrib.rnn` whose state is one vector, and that TensorFlow has no more.

They make the variables that TensorFlow 1 made, with the same names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.parts.legacy.names.rnn import linear

_FROM_MINUS_1_TO_1 = tf.random_uniform_initializer(-1.0, 1.0)


class UnitsCell(tf.nn.rnn_cell.RNNCell):
    """A cell whose output and state have one size."""

    def __init__(self, num_units: int, reuse: bool | None = None, **options: Any) -> None:
        super().__init__(_reuse=reuse, **options)
        self._num_units = num_units

    @property
    def state_size(self) -> Any:
        return self._num_units

    @property
    def output_size(self) -> int:
        return self._num_units


def affine(inputs: tf.Tensor, state: tf.Tensor, size: int, initializer: Any, start: Any, prefix: str = "",
           kernel: str = "kernel_w") -> tf.Tensor:
    """Returns `inputs * W + state * u + b`, in which each unit of the state has a weight of its own: [batch, size]."""
    w = tf.get_variable(prefix + kernel, [int(inputs.shape[1]), size], initializer=initializer)
    u = tf.get_variable(prefix + "kernel_u", [1, size], initializer=_FROM_MINUS_1_TO_1)
    b = tf.get_variable(prefix + "bias", [size], initializer=start)
    return tf.nn.bias_add(tf.matmul(inputs, w) + tf.tile(state, [1, size // int(state.shape[1])]) * u, b)


class UGRNNCell(UnitsCell):
    """A recurrent network with an update gate (https://arxiv.org/abs/1611.09913)."""

    def __init__(self, num_units: int, initializer: Any = None, forget_bias: float = 1.0,
                 activation: Callable = tf.tanh, reuse: bool | None = None) -> None:
        super().__init__(num_units, reuse)
        self._initializer, self._forget_bias, self._activation = initializer, forget_bias, activation

    def call(self, inputs: tf.Tensor, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the output [batch, units] and the new state for inputs [batch, size]."""
        both = linear([inputs, state], 2 * self._num_units, True, kernel_initializer=self._initializer)
        gate, candidate = tf.split(both, 2, 1)
        gate = tf.sigmoid(gate + self._forget_bias)
        new = gate * state + (1.0 - gate) * self._activation(candidate)
        return new, new


class IntersectionRNNCell(UnitsCell):
    """The intersection network of the same paper: one gate for the state, and one for the depth."""

    def __init__(self, num_units: int, num_in_proj: int | None = None, initializer: Any = None,
                 forget_bias: float = 1.0, y_activation: Callable = tf.nn.relu, reuse: bool | None = None) -> None:
        super().__init__(num_units, reuse)
        self._is_projected, self._initializer, self._forget_bias = bool(num_in_proj), initializer, forget_bias
        self._y_activation = y_activation

    def call(self, inputs: tf.Tensor, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the output [batch, units] and the new state for inputs [batch, size]."""
        if int(inputs.shape[1]) != self._num_units:
            if not self._is_projected:
                raise ValueError("Must have input size == output size for Intersection RNN. To fix, num_in_proj should "
                                 "be set to num_units at cell init.")
            inputs = linear(inputs, self._num_units, True, kernel_initializer=self._initializer, scope="in_projection")
        parts = linear([inputs, state], 4 * self._num_units, True, kernel_initializer=self._initializer)
        state_gate, new_state, depth_gate, new_output = tf.split(parts, 4, 1)
        state_gate, depth_gate = tf.sigmoid(state_gate + self._forget_bias), tf.sigmoid(depth_gate + self._forget_bias)
        new_state = state_gate * state + (1.0 - state_gate) * tf.tanh(new_state)
        return depth_gate * inputs + (1.0 - depth_gate) * self._y_activation(new_output), new_state


class SRUCell(UnitsCell):
    """The simple recurrent unit (https://arxiv.org/abs/1709.02755), whose gates do not read the state."""

    def __init__(self, num_units: int, activation: Callable | None = None, reuse: bool | None = None,
                 name: str | None = None, **kwargs: Any) -> None:
        super().__init__(num_units, reuse, name=name, **kwargs)
        self._activation = activation or tf.tanh

    def call(self, inputs: tf.Tensor, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the output [batch, units] and the new state for inputs [batch, size]."""
        units = self._num_units
        kernel = tf.get_variable("kernel", [int(inputs.shape[1]), 4 * units])
        bias = tf.get_variable("bias", [2 * units], initializer=tf.zeros_initializer())
        new, gates, carried = tf.split(tf.matmul(inputs, kernel), [units, 2 * units, units], 1)
        forget, reset = tf.split(tf.sigmoid(tf.nn.bias_add(gates, bias)), 2, 1)
        c = forget * state + (1.0 - forget) * new
        return reset * self._activation(c) + (1.0 - reset) * carried, c


class IndRNNCell(UnitsCell):
    """A recurrent network of independent units (https://arxiv.org/abs/1803.04831)."""

    def __init__(self, num_units: int, activation: Callable | None = None, reuse: bool | None = None,
                 name: str | None = None, dtype: Any = None) -> None:
        super().__init__(num_units, reuse, name=name, dtype=dtype)
        self._activation = activation or tf.tanh

    def call(self, inputs: tf.Tensor, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the output [batch, units] and the new state for inputs [batch, size]."""
        output = self._activation(affine(inputs, state, self._num_units, None, tf.zeros_initializer()))
        return output, output


class IndyGRUCell(UnitsCell):
    """A GRU of independent units."""

    def __init__(self, num_units: int, activation: Callable | None = None, reuse: bool | None = None,
                 kernel_initializer: Any = None, bias_initializer: Any = None, name: str | None = None,
                 dtype: Any = None) -> None:
        super().__init__(num_units, reuse, name=name, dtype=dtype)
        self._activation = activation or tf.tanh
        self._initializers = kernel_initializer, bias_initializer

    def call(self, inputs: tf.Tensor, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the output [batch, units] and the new state for inputs [batch, size]."""
        initializer, start = self._initializers
        gates = affine(inputs, state, 2 * self._num_units, initializer, start or tf.ones_initializer(), "gates/")
        reset, update = tf.split(tf.sigmoid(gates), 2, 1)
        candidate = self._activation(affine(  # its first kernel had no "_w" in its name
            inputs, reset * state, self._num_units, initializer, start or tf.zeros_initializer(), "candidate/",
            "kernel"))
        new = update * state + (1.0 - update) * candidate
        return new, new


class _KerasUnitsCell(UnitsCell):
    """A cell whose arguments are called as those of Keras."""

    def __init__(self, units: int, activation: Any = "tanh", kernel_initializer: Any = "glorot_uniform",
                 bias_initializer: Any = "ones", name: str | None = None, dtype: Any = None, **kwargs: Any) -> None:
        super().__init__(units, name=name, dtype=dtype, **kwargs)
        self._activation = tf.keras.activations.get(activation)
        self._kernel_initializer, self._bias_initializer = map(
            tf.keras.initializers.get, (kernel_initializer, bias_initializer))

    def _kernel(self, name: str, rows: int, columns: int) -> tf.Variable:
        return tf.get_variable(name, [rows, columns], initializer=self._kernel_initializer)


class MinimalRNNCell(_KerasUnitsCell):
    """The minimal recurrent network (https://arxiv.org/abs/1806.05394)."""

    def call(self, inputs: tf.Tensor, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the output [batch, units] and the new state for inputs [batch, size]."""
        size, units = int(inputs.shape[1]), self._num_units
        kernel = self._kernel("kernel", size + 2 * units, units)
        bias = tf.get_variable("bias", [units], initializer=self._bias_initializer)
        of_inputs, of_gate = tf.split(kernel, [size, 2 * units], 0)
        new = self._activation(tf.matmul(inputs, of_inputs))
        gate = tf.sigmoid(tf.nn.bias_add(tf.matmul(tf.concat([new, state], 1), of_gate), bias))
        output = gate * state + (1.0 - gate) * new
        return output, output


class CFNCell(_KerasUnitsCell):
    """The chaos-free network (https://arxiv.org/abs/1612.06212)."""

    def call(self, inputs: tf.Tensor, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the output [batch, units] and the new state for inputs [batch, size]."""
        units = self._num_units
        of_gates, of_inputs = tf.split(self._kernel("kernel", int(inputs.shape[1]), 3 * units), [2 * units, units], 1)
        gates = tf.matmul(state, self._kernel("recurrent_kernel", units, 2 * units)) + tf.matmul(inputs, of_gates)
        bias = tf.get_variable("bias", [2 * units], initializer=self._bias_initializer)
        theta, eta = tf.split(tf.sigmoid(tf.nn.bias_add(gates, bias)), 2, 1)
        new = theta * self._activation(state) + (1.0 - eta) * self._activation(tf.matmul(inputs, of_inputs))
        return new, new
