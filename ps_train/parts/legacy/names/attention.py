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
    """What a cell looks at: `values` and, after the memory layer, `keys`; the base of all mechanisms.

    Its attributes with an underscore are TensorFlow 1's: subclasses in scripts read them.
    """

    def __init__(self, query_layer: Callable | None, memory: tf.Tensor, probability_fn: Callable | None = None,
                 memory_sequence_length: Any = None, memory_layer: Callable | None = None,
                 check_inner_dims_defined: bool = True, score_mask_value: float | None = None,
                 custom_key_value_fn: Callable | None = None, name: str | None = None) -> None:
        """Takes `probability_fn(score, state)`, and what makes keys and values of the keys and values."""
        del check_inner_dims_defined
        self._query_layer, self._memory_layer, self._name = query_layer, memory_layer, name
        self.take_probability_fn(probability_fn or _of_score(tf.nn.softmax))
        with tf.name_scope(name, "BaseAttentionMechanismInit"):
            memory = tf.convert_to_tensor(memory, name="memory")
            self._is_real = None  # [batch, time], without which all steps are
            if memory_sequence_length is not None:
                # The softmax of no step at all is not a number.
                with tf.control_dependencies([tf.debugging.assert_positive(
                        memory_sequence_length, message="memory_sequence_length must be at least 1")]):
                    self._is_real = tf.sequence_mask(memory_sequence_length, tf.shape(memory)[1])
                inner = [1] * (memory.shape.ndims - 2)
                mask = tf.reshape(self._is_real, [*tf.unstack(tf.shape(self._is_real)), *inner])
                memory = tf.where_v2(mask, memory, tf.zeros_like(memory))
            self._mask_value = float("-inf") if score_mask_value is None else score_mask_value
            self._values, self._keys = memory, memory_layer(memory) if memory_layer else memory
            if custom_key_value_fn is not None:
                self._keys, self._values = custom_key_value_fn(self._keys, self._values)
        self.dtype = self._keys.dtype
        self._batch_size = self._keys.shape[0] or tf.shape(self._keys)[0]
        self._alignments_size = self._keys.shape[1] or tf.shape(self._keys)[1]

    query_layer = property(lambda self: self._query_layer)
    memory_layer = property(lambda self: self._memory_layer)
    keys = property(lambda self: self._keys)
    values = property(lambda self: self._values)
    batch_size = property(lambda self: self._batch_size)
    alignments_size = property(lambda self: self._alignments_size)
    state_size = property(lambda self: self._alignments_size)

    def initial_alignments(self, batch_size: Any, dtype: Any) -> tf.Tensor:
        """Returns zeros: [batch, time]."""
        return tf.zeros([batch_size, self.alignments_size], dtype)

    def initial_state(self, batch_size: Any, dtype: Any) -> tf.Tensor:
        """Returns what the first step is given as the state: the initial alignments."""
        return self.initial_alignments(batch_size, dtype)

    def take_probability_fn(self, function: Callable) -> None:
        """Takes what makes alignments of the score of real steps and the state."""
        self._probability_fn = lambda score, state: function(self._masked(score), state)

    def _masked(self, score: tf.Tensor) -> tf.Tensor:
        if self._is_real is None:
            return score
        return tf.where_v2(self._is_real, score, tf.cast(self._mask_value, score.dtype))

    def __call__(self, query: tf.Tensor, state: Any) -> tuple[tf.Tensor, Any]:
        """Returns the alignments, float [batch, time] with the sum 1 in a row, and the next state."""
        alignments = self._probability_fn(self.score(query), state)
        return alignments, alignments

    def score(self, query: tf.Tensor) -> tf.Tensor:
        """Returns how well a query fits each key: float [batch, time]."""
        raise NotImplementedError(f"{type(self).__name__} has no score(query)")


_BaseAttentionMechanism = AttentionMechanism  # of which scripts import this name


def _of_score(function: Callable | None) -> Callable | None:
    """Returns a function of score and state for one of the score."""
    return function and (lambda score, state: function(score))


def _memory_layer(num_units: int, dtype: Any) -> Callable:
    return tf.layers.Dense(num_units, name="memory_layer", use_bias=False, dtype=dtype or tf.float32)


def product_score(query: tf.Tensor, keys: tf.Tensor, num_units: int, has_scale: bool) -> tf.Tensor:
    """Returns query * key, float [batch, time], times a variable "attention_g" of the scope if it has a scale."""
    if query.shape[-1] != num_units:
        raise ValueError(f"LuongAttention: the query has the size {query.shape[-1]}, the keys {num_units}; give "
                         f"num_units={query.shape[-1]}")
    product = tf.squeeze(tf.matmul(tf.expand_dims(query, 1), keys, transpose_b=True), [1])
    if not has_scale:
        return product
    return product * tf.get_variable("attention_g", [], query.dtype, initializer=tf.ones_initializer())


def sum_score(query: tf.Tensor, keys: tf.Tensor, num_units: int, is_normed: bool) -> tf.Tensor:
    """Returns v * tanh(query + key), float [batch, time], with the variable "attention_v" of the scope."""
    query = tf.expand_dims(query, 1)
    v = tf.get_variable("attention_v", [num_units], query.dtype)
    if not is_normed:
        return tf.reduce_sum(v * tf.tanh(keys + query), 2)
    g = tf.get_variable("attention_g", [], query.dtype, initializer=tf.constant_initializer(num_units ** -0.5))
    b = tf.get_variable("attention_b", [num_units], query.dtype, initializer=tf.zeros_initializer())
    normed = g * v * tf.rsqrt(tf.reduce_sum(tf.square(v)))
    return tf.reduce_sum(normed * tf.tanh(keys + query + b), 2)


def _bahdanau_score(processed_query: tf.Tensor, keys: tf.Tensor, normalize: bool) -> tf.Tensor:
    """The name of 1.2 to 1.13, of which scripts import the module's private names."""
    return sum_score(processed_query, keys, keys.shape[-1], normalize)


def _luong_score(query: tf.Tensor, keys: tf.Tensor, scale: bool) -> tf.Tensor:
    """As above."""
    return product_score(query, keys, keys.shape[-1], scale)


class LuongAttention(AttentionMechanism):
    """The score is the product of query and key, times a variable if `scale`: https://arxiv.org/abs/1508.04025."""

    def __init__(self, num_units: int, memory: tf.Tensor, memory_sequence_length: Any = None, scale: bool = False,
                 probability_fn: Callable | None = None, score_mask_value: float | None = None, dtype: Any = None,
                 custom_key_value_fn: Callable | None = None, name: str = "LuongAttention") -> None:
        super().__init__(None, memory, _of_score(probability_fn), memory_sequence_length,
                         _memory_layer(num_units, dtype), score_mask_value=score_mask_value,
                         custom_key_value_fn=custom_key_value_fn, name=name)
        self._num_units, self._scale = num_units, scale

    def score(self, query: tf.Tensor) -> tf.Tensor:
        with tf.variable_scope(None, "luong_attention", [query]):
            return product_score(query, self.keys, self._num_units, self._scale)


class BahdanauAttention(AttentionMechanism):
    """The score is v * tanh(query + key), https://arxiv.org/abs/1409.0473; `normalize` gives v a norm of its own."""

    def __init__(self, num_units: int, memory: tf.Tensor, memory_sequence_length: Any = None, normalize: bool = False,
                 probability_fn: Callable | None = None, score_mask_value: float | None = None, dtype: Any = None,
                 custom_key_value_fn: Callable | None = None, name: str = "BahdanauAttention") -> None:
        query_layer = tf.layers.Dense(num_units, name="query_layer", use_bias=False, dtype=dtype or tf.float32)
        super().__init__(query_layer, memory, _of_score(probability_fn), memory_sequence_length,
                         _memory_layer(num_units, dtype), score_mask_value=score_mask_value,
                         custom_key_value_fn=custom_key_value_fn, name=name)
        self._num_units, self._normalize = num_units, normalize

    def score(self, query: tf.Tensor) -> tf.Tensor:
        with tf.variable_scope(None, "bahdanau_attention", [query]):
            return sum_score(self.query_layer(query), self.keys, self._num_units, self._normalize)


def _compute_attention(attention_mechanism: Any, cell_output: tf.Tensor, attention_state: Any,
                       attention_layer: Callable | None) -> tuple[tf.Tensor, tf.Tensor, Any]:
    """Returns attention [batch, size], alignments and next state of a mechanism: what an `attention_fn` does, too."""
    alignments, state = attention_mechanism(cell_output, attention_state)
    context = tf.squeeze(tf.matmul(tf.expand_dims(alignments, 1), attention_mechanism.values), [1])
    attention = context if attention_layer is None else attention_layer(tf.concat([cell_output, context], 1))
    return attention, alignments, state


class AttentionWrapperState(collections.namedtuple("AttentionWrapperState", (
        "cell_state", "attention", "time", "alignments", "alignment_history", "attention_state"), defaults=[()])):
    """The state of an AttentionWrapper; alignments, history and attention_state are tuples for several mechanisms.

    Before 1.5 it had no attention_state.
    """

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
      attention_fn: (mechanism, cell output, its state, attention layer) -> (attention, alignments, its next state).
      dtype: of the cell.
    """

    def __init__(self, cell: Any, attention_mechanism: Any, attention_layer_size: Any = None,
                 alignment_history: bool = False, cell_input_fn: Callable | None = None, output_attention: bool = True,
                 initial_cell_state: Any = None, name: str | None = None, attention_layer: Any = None,
                 attention_fn: Callable | None = None, dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)
        self._attention_fn = attention_fn or _compute_attention
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
          ValueError: there is another number of layers than of mechanisms, or both sizes and layers are given.
        """
        if layers is not None and sizes is not None:
            raise ValueError("AttentionWrapper: give attention_layer_size or attention_layer, not both")
        if sizes is not None:
            layers = [tf.layers.Dense(size, name="attention_layer", use_bias=False, dtype=mechanism.dtype)
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
            attention, aligned, next_state = self._attention_fn(
                mechanism, output, self._all(state.attention_state)[number],
                self._attention_layers[number] if self._attention_layers else None)
            attentions.append(attention)
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
