"""LSTMs of `tf.contrib.rnn` that run over time and over windows of their input, with weights for each.

They make the variables that TensorFlow 1 made, with the same names.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.parts.legacy.names.lstm_cells import clipped_state, sharded_matrix


class GridLSTMCell(tf.nn.rnn_cell.RNNCell):
    """A grid LSTM (https://arxiv.org/abs/1507.01526) over time and over windows of the input, "frequencies".

    The windows have `feature_size` inputs each, and `frequency_skip` inputs lie between their starts. There may be
    several blocks of them, each with weights of its own, from `start_freqindex_list` to `end_freqindex_list`.
    """

    def __init__(self, num_units: int, use_peepholes: bool = False, share_time_frequency_weights: bool = False,
                 cell_clip: float | None = None, initializer: Any = None, num_unit_shards: int = 1,
                 forget_bias: float = 1.0, feature_size: int | None = None, frequency_skip: int | None = None,
                 num_frequency_blocks: Sequence[int] | None = None, start_freqindex_list: Sequence[int] | None = None,
                 end_freqindex_list: Sequence[int] | None = None, couple_input_forget_gates: bool = False,
                 state_is_tuple: bool = True, reuse: bool | None = None) -> None:
        """Creates the cell; `initializer` had no effect in TensorFlow 1 either."""
        super().__init__(_reuse=reuse)
        if num_frequency_blocks is None:
            raise ValueError(f"{type(self).__name__} needs num_frequency_blocks, such as [3]: the number of windows")
        self._num_units, self._num_shards, self._forget_bias = num_units, num_unit_shards, forget_bias
        self._has_peepholes, self._shares_weights = use_peepholes, share_time_frequency_weights
        self._is_coupled, self._clip, self._is_tuple = couple_input_forget_gates, cell_clip, state_is_tuple
        self._feature_size, self._skip = feature_size, frequency_skip
        self._blocks, self._bounds = list(num_frequency_blocks), (start_freqindex_list, end_freqindex_list)
        self.state_tuple_type = self._tuple_type("GridLSTMStateTuple", "state") if state_is_tuple else None

    def _tuple_type(self, name: str, *prefixes: str) -> Any:
        return collections.namedtuple(name, [
            f"{_state_name(prefix, window, block)}_{part}" for prefix in prefixes
            for block, num_windows in enumerate(self._blocks) for window in range(num_windows) for part in "cm"])

    @property
    def state_size(self) -> Any:
        if self.state_tuple_type is None:
            return self.output_size
        return self.state_tuple_type(*[self._num_units] * len(self.state_tuple_type._fields))

    @property
    def output_size(self) -> int:
        return 2 * self._num_units * sum(self._blocks)

    def call(self, inputs: tf.Tensor, state: Any) -> tuple[tf.Tensor, Any]:
        """Returns the output [batch, 2 * units * windows] and the new state for inputs [batch, size]."""
        outputs, states = self._run(self._windows(inputs), state, "state")
        return tf.concat(outputs, 1), self.state_tuple_type(*states) if self._is_tuple else tf.concat(states, 1)

    def _run(self, blocks: Sequence[list[tf.Tensor]], state: Any, prefix: str) -> tuple[list, list]:
        """Returns the outputs and the states of all windows."""
        outputs: list[tf.Tensor] = []
        states: list[tf.Tensor] = []
        for block, windows in enumerate(blocks):
            weights = self._weights(block, int(windows[0].shape[1]), windows[0].dtype)
            batch = tf.compat.dimension_value(windows[0].shape[0]) or tf.shape(windows[0])[0]
            beside = [tf.zeros([batch, self._num_units], windows[0].dtype)] * 2  # of the window before
            for number, window in enumerate(windows):
                before = self._state(state, _state_name(prefix, number, block), number)
                beside, after = self._step(window, beside, before, weights)
                outputs += [after[1], beside[1]]
                states += after
        return outputs, states

    def _state(self, state: Any, name: str, window: int) -> list[tf.Tensor]:
        """Returns c and m of a window; of one tensor, those of the first block for all blocks, as in TensorFlow 1."""
        if self._is_tuple:
            return [getattr(state, f"{name}_c"), getattr(state, f"{name}_m")]
        size = 2 * self._num_units
        return tf.split(state[:, window * size:(window + 1) * size], 2, 1)

    def _weights(self, block: int, size: int, dtype: tf.DType) -> list[tuple]:
        """Returns kernel, bias and peepholes of the windows ("f") and of time ("t"), which may be the same ones."""
        units, num_gates = self._num_units, 3 if self._is_coupled else 4
        kinds = (("f", "freq"),) if self._shares_weights else (("f", "freq"), ("t", "time"))
        matrices = [(sharded_matrix(f"W_{kind}_{block}", size + 2 * units, num_gates * units, dtype, self._num_shards),
                     tf.get_variable(f"B_{kind}_{block}", [num_gates * units], dtype, tf.zeros_initializer()))
                    for kind, _ in kinds]
        weights = [(*pair, self._peepholes(kind, block, dtype)) for pair, (_, kind) in zip(matrices, kinds)]
        return weights * 2 if self._shares_weights else weights

    def _peepholes(self, kind: str, block: int, dtype: tf.DType) -> Callable:
        """Returns a function (gate, c of the windows, c of time) -> what a gate sees of them."""
        if not self._has_peepholes:
            return lambda *_: 0.0
        pairs = {gate: [tf.get_variable(f"W_{gate}_diag_{kind}{of}_{block}", [self._num_units], dtype) for of in "ft"]
                 for gate in ("IO" if self._is_coupled else "FIO")}
        return lambda gate, c_freq, c_time: pairs[gate][0] * c_freq + pairs[gate][1] * c_time

    def _step(self, window: tf.Tensor, beside: Sequence[tf.Tensor], before: Sequence[tf.Tensor],
              weights: Sequence[tuple]) -> tuple[list, list]:
        """Returns c and m of a window for the next window, and for the next time."""
        joined = tf.concat([window, before[1], beside[1]], 1)
        cells, outputs = [], []
        for (kernel, bias, seen), c in zip(weights, (beside[0], before[0])):
            gates = tf.split(tf.nn.bias_add(tf.matmul(joined, kernel), bias), 3 if self._is_coupled else 4, 1)
            i = tf.sigmoid(gates[0] + seen("I", beside[0], before[0]))
            f = 1.0 - i if self._is_coupled else tf.sigmoid(
                gates[2] + self._forget_bias + seen("F", beside[0], before[0]))
            cells.append(clipped_state(f * c + i * tf.tanh(gates[1]), self._clip))
            outputs.append(gates[-1])
        m_freq, m_time = (tf.sigmoid(o + seen("O", *cells)) * tf.tanh(c)
                          for o, (_, _, seen), c in zip(outputs, weights, cells))
        return [cells[0], m_freq], [cells[1], m_time]

    def _windows(self, inputs: tf.Tensor, offset: int = 0) -> list[list[tf.Tensor]]:
        """Returns the windows of each block, [batch, feature_size], of inputs that are moved by an offset."""
        size = tf.compat.dimension_value(inputs.shape[-1])
        if size is None:
            raise ValueError(f"the size of the inputs must be known, got the shape {inputs.shape}")
        inputs = tf.pad(inputs, [[0, 0], [max(-offset, 0), max(offset, 0)]]) if offset else inputs
        starts, ends = self._bounds if self._bounds[0] else ([0], [size])
        if not len(starts) == len(ends) == len(self._blocks):
            raise ValueError(f"num_frequency_blocks has {len(self._blocks)} blocks, start_freqindex_list {len(starts)} "
                             f"and end_freqindex_list {len(ends)}; they must have as many")
        blocks = []
        for block, (start, end, num_windows) in enumerate(zip(starts, ends, self._blocks)):
            fit = int((end - start - self._feature_size) / self._skip) + 1
            if fit != num_windows:
                raise ValueError(f"block {block} of num_frequency_blocks={self._blocks} has room for {fit} windows: it "
                                 f"has the inputs {start} to {end}, with feature_size={self._feature_size} and "
                                 f"frequency_skip={self._skip}")
            first = start + max(offset, 0)
            blocks.append([inputs[:, first + window * self._skip:first + window * self._skip + self._feature_size]
                           for window in range(num_windows)])
        return blocks


def _state_name(prefix: str, window: int, block: int) -> str:
    return f"{prefix}_f{window:02d}_b{block:02d}"


class BidirectionalGridLSTMCell(GridLSTMCell):
    """A `GridLSTMCell` over the windows and, with weights of its own, over the windows in reverse.

    Those in reverse may begin at another input, `backward_slice_offset`.
    """

    def __init__(self, num_units: int, use_peepholes: bool = False, share_time_frequency_weights: bool = False,
                 cell_clip: float | None = None, initializer: Any = None, num_unit_shards: int = 1,
                 forget_bias: float = 1.0, feature_size: int | None = None, frequency_skip: int | None = None,
                 num_frequency_blocks: Sequence[int] | None = None, start_freqindex_list: Sequence[int] | None = None,
                 end_freqindex_list: Sequence[int] | None = None, couple_input_forget_gates: bool = False,
                 backward_slice_offset: int = 0, reuse: bool | None = None) -> None:
        super().__init__(num_units, use_peepholes, share_time_frequency_weights, cell_clip, initializer,
                         num_unit_shards, forget_bias, feature_size, frequency_skip, num_frequency_blocks,
                         start_freqindex_list, end_freqindex_list, couple_input_forget_gates, True, reuse)
        self._offset = int(backward_slice_offset)
        self.state_tuple_type = self._tuple_type("BidirectionalGridLSTMStateTuple", "fwd_state", "bwd_state")

    @property
    def output_size(self) -> int:
        return 2 * super().output_size

    def call(self, inputs: tf.Tensor, state: Any) -> tuple[tf.Tensor, Any]:
        """Returns the output [batch, 4 * units * windows] and the new state for inputs [batch, size]."""
        reverse = [windows[::-1] for windows in self._windows(inputs, self._offset)]
        outputs, states = [], []
        for scope, blocks in (("fwd", self._windows(inputs)), ("bwd", reverse)):
            with tf.variable_scope(scope):
                some_outputs, some_states = self._run(blocks, state, f"{scope}_state")
            outputs += some_outputs
            states += some_states
        return tf.concat(outputs, 1), self.state_tuple_type(*states)
