"""Of `tf.contrib.seq2seq`: attention, and the cell that looks at its memory in each step.

    memory [batch, time, depth] --memory layer--> keys [batch, time, units]
    query  [batch, size]        --score, softmax--> alignments [batch, time] --weighted sum--> context [batch, depth]

The variables have TensorFlow 1's names.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow.compat.v1 as tf


def tile_batch(t: Any, multiplier: int, name: str | None = None) -> Any:
    """Returns a nest of [batch, ...] with each entry of the batch `multiplier` times in a row."""
    with tf.name_scope(name, "tile_batch"):
        return tf.nest.map_structure(lambda part: tf.repeat(part, multiplier, axis=0), t)


def hardmax(logits: tf.Tensor, name: str | None = None) -> tf.Tensor:
    """Returns 1 at the largest of each row, 0 elsewhere: float [batch, time], a `probability_fn`."""
    with tf.name_scope(name, "Hardmax", [logits]):
        logits = tf.convert_to_tensor(logits)
        return tf.one_hot(tf.argmax(logits, -1), logits.shape[-1] or tf.shape(logits)[-1], dtype=logits.dtype)


class AttentionMechanism:
    """What a cell looks at: `values` and, after the memory layer, `keys`; the base of all mechanisms."""

    def __init__(self, query_layer: Callable | None, memory: tf.Tensor, probability_fn: Callable | None = None,
                 memory_sequence_length: Any = None, memory_layer: Callable | None = None,
                 score_mask_value: float | None = None, name: str | None = None) -> None:
        self.query_layer, self.memory_layer = query_layer, memory_layer
        self._probability_fn = probability_fn or tf.nn.softmax
        with tf.name_scope(name, "BaseAttentionMechanismInit"):
            memory = tf.convert_to_tensor(memory, name="memory")
            self._is_real = None  # [batch, time], without which all steps are
            if memory_sequence_length is not None:
                self._is_real = tf.sequence_mask(memory_sequence_length, tf.shape(memory)[1])
                inner = [1] * (memory.shape.ndims - 2)
                mask = tf.reshape(self._is_real, [*tf.unstack(tf.shape(self._is_real)), *inner])
                memory = tf.where_v2(mask, memory, tf.zeros_like(memory))
            self._mask_value = float("-inf") if score_mask_value is None else score_mask_value
            self.values = memory
            self.keys = memory_layer(memory) if memory_layer else memory
        self.batch_size = self.keys.shape[0] or tf.shape(self.keys)[0]
        self.alignments_size = self.keys.shape[1] or tf.shape(self.keys)[1]
        self.state_size = self.alignments_size

    def initial_alignments(self, batch_size: Any, dtype: Any) -> tf.Tensor:
        """Returns zeros: [batch, time]."""
        return tf.zeros([batch_size, self.alignments_size], dtype)

    def initial_state(self, batch_size: Any, dtype: Any) -> tf.Tensor:
        """Returns what the first step is given as the state: the initial alignments."""
        return self.initial_alignments(batch_size, dtype)

    def __call__(self, query: tf.Tensor, state: Any) -> tuple[tf.Tensor, Any]:
        """Returns the alignments, float [batch, time] with the sum 1 in a row, and the next state."""
        del state
        score = self.score(query)
        if self._is_real is not None:
            score = tf.where_v2(self._is_real, score, tf.cast(self._mask_value, score.dtype))
        alignments = self._probability_fn(score)
        return alignments, alignments

    def score(self, query: tf.Tensor) -> tf.Tensor:
        """Returns how well a query fits each key: float [batch, time]."""
        raise NotImplementedError(f"{type(self).__name__} has no score(query)")


def _memory_layer(num_units: int, dtype: Any) -> Callable:
    return tf.layers.Dense(num_units, name="memory_layer", use_bias=False, dtype=dtype or tf.float32)


class LuongAttention(AttentionMechanism):
    """The score is the product of query and key, times a variable if `scale`: https://arxiv.org/abs/1508.04025."""

    def __init__(self, num_units: int, memory: tf.Tensor, memory_sequence_length: Any = None, scale: bool = False,
                 probability_fn: Callable | None = None, score_mask_value: float | None = None, dtype: Any = None,
                 name: str = "LuongAttention") -> None:
        super().__init__(None, memory, probability_fn, memory_sequence_length, _memory_layer(num_units, dtype),
                         score_mask_value, name)
        self._num_units, self._scale = num_units, scale

    def score(self, query: tf.Tensor) -> tf.Tensor:
        with tf.variable_scope(None, "luong_attention", [query]):
            if query.shape[-1] != self._num_units:
                raise ValueError(f"LuongAttention: the query has the size {query.shape[-1]}, the keys "
                                 f"{self._num_units}; give num_units={query.shape[-1]}")
            product = tf.squeeze(tf.matmul(tf.expand_dims(query, 1), self.keys, transpose_b=True), [1])
            if not self._scale:
                return product
            return product * tf.get_variable("attention_g", [], query.dtype, initializer=tf.ones_initializer())


class BahdanauAttention(AttentionMechanism):
    """The score is v * tanh(query + key), https://arxiv.org/abs/1409.0473; `normalize` gives v a norm of its own."""

    def __init__(self, num_units: int, memory: tf.Tensor, memory_sequence_length: Any = None, normalize: bool = False,
                 probability_fn: Callable | None = None, score_mask_value: float | None = None, dtype: Any = None,
                 name: str = "BahdanauAttention") -> None:
        query_layer = tf.layers.Dense(num_units, name="query_layer", use_bias=False, dtype=dtype or tf.float32)
        super().__init__(query_layer, memory, probability_fn, memory_sequence_length, _memory_layer(num_units, dtype),
                         score_mask_value, name)
        self._num_units, self._normalize = num_units, normalize

    def score(self, query: tf.Tensor) -> tf.Tensor:
        with tf.variable_scope(None, "bahdanau_attention", [query]):
            processed = tf.expand_dims(self.query_layer(query), 1)
            v = tf.get_variable("attention_v", [self._num_units], query.dtype)
            if not self._normalize:
                return tf.reduce_sum(v * tf.tanh(self.keys + processed), 2)
            g = tf.get_variable("attention_g", [], query.dtype,
                                initializer=tf.constant_initializer(self._num_units ** -0.5))
            b = tf.get_variable("attention_b", [self._num_units], query.dtype, initializer=tf.zeros_initializer())
            normed = g * v * tf.rsqrt(tf.reduce_sum(tf.square(v)))
            return tf.reduce_sum(normed * tf.tanh(self.keys + processed + b), 2)


class AttentionWrapperState(collections.namedtuple("AttentionWrapperState", (
        "cell_state", "attention", "time", "alignments", "alignment_history", "attention_state"))):
    """The state of an AttentionWrapper; alignments, history and attention_state are tuples for several mechanisms."""

    def clone(self, **kwargs: Any) -> AttentionWrapperState:
        """Returns a copy with other values in some places, such as `cell_state=` the encoder's last state."""
        return self._replace(**kwargs)


class AttentionWrapper(tf.nn.rnn_cell.RNNCell):
    """A cell that gets input and last attention, and whose output asks the memory for the next attention.

    Args:
      cell: an RNNCell.
      attention_mechanism: one, or a list of them.
      attention_layer_size: of the attention, one for each mechanism; by default it is the context itself.
      alignment_history: whether the state keeps the alignments of all steps, as a TensorArray.
      cell_input_fn: (inputs, attention) -> input of the cell; by default, one behind the other.
      output_attention: whether the output is the attention, not the output of the cell.
      initial_cell_state: what `zero_state` has for the cell.
      name: of the scope of its variables.
      attention_layer: (cell output and context) -> attention, one for each mechanism.
    """

    def __init__(self, cell: Any, attention_mechanism: Any, attention_layer_size: Any = None,
                 alignment_history: bool = False, cell_input_fn: Callable | None = None, output_attention: bool = True,
                 initial_cell_state: Any = None, name: str | None = None, attention_layer: Any = None) -> None:
        super().__init__(name=name)
        self._cell, self._scope_name = cell, name or "attention_wrapper"
        self._scope: tf.VariableScope | None = None  # of its variables, once it was called
        self._is_multi = isinstance(attention_mechanism, Sequence)
        self._mechanisms = list(attention_mechanism) if self._is_multi else [attention_mechanism]
        self._attention_layers = self._make_layers(attention_layer_size, attention_layer)
        self._keeps_history, self._output_attention = alignment_history, output_attention
        self._cell_input_fn = cell_input_fn or (lambda inputs, attention: tf.concat([inputs, attention], -1))
        self._initial_cell_state = initial_cell_state

    def _make_layers(self, sizes: Any, layers: Any) -> list[Callable] | None:
        """Returns a layer for each mechanism; None if the attention is the context itself.

        Raises:
          ValueError: there is another number of layers than of mechanisms.
        """
        if layers is None and sizes is not None:
            layers = [tf.layers.Dense(size, name="attention_layer", use_bias=False, dtype=mechanism.keys.dtype)
                      for size, mechanism in zip(_as_list(sizes), self._mechanisms)]
            self._layer_sizes = list(_as_list(sizes))
        elif layers is not None:
            layers = _as_list(layers)
            self._layer_sizes = [
                int(layer.compute_output_shape([None, self._cell.output_size + int(mechanism.values.shape[-1])])[-1])
                for layer, mechanism in zip(layers, self._mechanisms)]
        else:
            self._layer_sizes = [int(mechanism.values.shape[-1]) for mechanism in self._mechanisms]
        if len(self._layer_sizes) != len(self._mechanisms):
            raise ValueError(f"AttentionWrapper: {len(self._mechanisms)} attention mechanisms need as many attention "
                             f"layers, got {len(self._layer_sizes)}")
        return layers

    @property
    def output_size(self) -> Any:
        return sum(self._layer_sizes) if self._output_attention else self._cell.output_size

    @property
    def state_size(self) -> AttentionWrapperState:
        sizes = [mechanism.alignments_size for mechanism in self._mechanisms]
        return AttentionWrapperState(
            self._cell.state_size, sum(self._layer_sizes), tf.TensorShape([]), self._one(sizes),
            self._one([size if self._keeps_history else () for size in sizes]),
            self._one([mechanism.state_size for mechanism in self._mechanisms]))

    def zero_state(self, batch_size: Any, dtype: Any) -> AttentionWrapperState:
        """Returns the state before the first step."""
        with tf.name_scope(f"{type(self).__name__}ZeroState"):
            cell_state = self._cell.zero_state(batch_size, dtype) if self._initial_cell_state is None else \
                tf.nest.map_structure(lambda part: tf.identity(part, name="checked_cell_state"),
                                      self._initial_cell_state)
            alignments = [mechanism.initial_alignments(batch_size, dtype) for mechanism in self._mechanisms]
            states = [mechanism.initial_state(batch_size, dtype) for mechanism in self._mechanisms]
            history = [tf.TensorArray(dtype, 0, dynamic_size=True, element_shape=part.shape)
                       if self._keeps_history else () for part in alignments]
            return AttentionWrapperState(
                cell_state, tf.zeros([batch_size, sum(self._layer_sizes)], dtype), tf.zeros([], tf.int32),
                self._one(alignments), self._one(history), self._one(states))

    def __call__(self, inputs: Any, state: AttentionWrapperState, scope: Any = None) -> tuple[Any, Any]:
        # Not by way of Keras: the variables are those of the scope around its first call, as TensorFlow 1 had them.
        if self._scope is None:
            with tf.variable_scope(scope, self._scope_name) as self._scope:
                return self.call(inputs, state)
        with tf.variable_scope(self._scope, reuse=True, auxiliary_name_scope=False):
            return self.call(inputs, state)

    def call(self, inputs: Any, state: AttentionWrapperState) -> tuple[Any, AttentionWrapperState]:
        """Returns the output and the next state.

        Raises:
          TypeError: the state is that of the cell; it begins with `zero_state(...).clone(cell_state=...)`.
        """
        if not isinstance(state, AttentionWrapperState):
            raise TypeError("AttentionWrapper: the state must be an AttentionWrapperState; begin with "
                            f"zero_state(batch_size, dtype).clone(cell_state=...), got {type(state).__name__}")
        output, cell_state = self._cell(self._cell_input_fn(inputs, state.attention), state.cell_state)
        attentions, alignments, states, histories = [], [], [], []
        for number, mechanism in enumerate(self._mechanisms):
            aligned, next_state = mechanism(output, self._all(state.attention_state)[number])
            context = tf.squeeze(tf.matmul(tf.expand_dims(aligned, 1), mechanism.values), [1])
            attentions.append(self._attention_layers[number](tf.concat([output, context], 1))
                              if self._attention_layers else context)
            alignments.append(aligned)
            states.append(next_state)
            history = self._all(state.alignment_history)[number]
            histories.append(history.write(state.time, aligned) if self._keeps_history else ())
        attention = tf.concat(attentions, 1)
        state = AttentionWrapperState(cell_state, attention, state.time + 1, self._one(alignments),
                                      self._one(histories), self._one(states))
        return (attention if self._output_attention else output), state

    def _one(self, values: list) -> Any:
        """Returns the values of the mechanisms as the state has them: a tuple, or the value of the only one."""
        return tuple(values) if self._is_multi else values[0]

    def _all(self, value: Any) -> Any:
        return value if self._is_multi else (value,)


def _as_list(value: Any) -> Sequence:
    return value if isinstance(value, (list, tuple)) else [value]
