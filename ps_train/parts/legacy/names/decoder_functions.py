"""Decoders of tf.contrib.seq2seq in TensorFlow 1.0 and 1.1: a function chooses each step's input, and when to end.

    decoder_fn(time, cell_state, cell_input, cell_output, context_state) -->
        (done, cell_state, next_input, output, context_state)

`done` is bool [batch], or None for the lengths of the sequences. At the first call there is no state and no output.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf


def dynamic_rnn_decoder(
    cell: Any, decoder_fn: Callable[..., tuple], inputs: Any = None, sequence_length: Any = None,
    parallel_iterations: int | None = None, swap_memory: bool = False, time_major: bool = False, scope: Any = None,
    name: str | None = None,
) -> tuple[tf.Tensor, Any, Any]:
    """Runs a cell until all sequences are done.

    Args:
      cell: the recurrent cell.
      decoder_fn: chooses the inputs, see above.
      inputs: float [batch, time, size], or [time, batch, size] if `time_major`; None where `decoder_fn` makes them.
      sequence_length: int [batch], which counts if `decoder_fn` gives no `done`; by default all steps of the inputs.
      parallel_iterations: see `tf.nn.raw_rnn`.
      swap_memory: see there.
      time_major: whether the time is the first axis of inputs and outputs.
      scope: of the cell's variables.
      name: of the operations.

    Returns:
      The outputs [batch, time, size], or with the time first; the last state; and the last context, or None.
    """
    with tf.name_scope(name, "dynamic_rnn_decoder"):
        if inputs is not None:
            inputs = tf.convert_to_tensor(inputs)
            inputs = inputs if time_major else tf.transpose(inputs, [1, 0, 2])
        outputs, state, last = tf.nn.raw_rnn(
            cell, _steps(decoder_fn, inputs, sequence_length), parallel_iterations, swap_memory, scope)
        outputs = outputs.stack()
        return outputs if time_major else tf.transpose(outputs, [1, 0, 2]), state, last[1] if len(last) > 1 else None


def _steps(decoder_fn: Callable[..., tuple], inputs: tf.Tensor | None, lengths: Any) -> Callable[..., tuple]:
    """Returns the function that `raw_rnn` calls before each step; its loop state is (done,) or (done, context)."""
    if inputs is not None:
        num_steps, batch = tf.shape(inputs)[0], inputs.shape[1].value or tf.shape(inputs)[1]
        array = tf.TensorArray(inputs.dtype, size=num_steps).unstack(inputs)

    def step(time: tf.Tensor, cell_output: Any, cell_state: Any, loop_state: Any) -> tuple:
        context = loop_state[1] if loop_state is not None and len(loop_state) > 1 else None
        cell_input = None
        if inputs is not None:
            cell_input = tf.cond(tf.less(time, num_steps), lambda: array.read(time),
                                 lambda: tf.zeros([batch, inputs.shape[2].value], inputs.dtype))
            cell_input.set_shape([inputs.shape[1].value, inputs.shape[2].value])
        done, state, cell_input, output, context = decoder_fn(time, cell_state, cell_input, cell_output, context)
        if done is None:
            done = time >= (tf.fill([batch], num_steps) if lengths is None else tf.cast(lengths, tf.int32))
        return done, cell_input, state, output, (done,) if context is None else (done, context)
    return step


def simple_decoder_fn_train(encoder_state: Any, name: str | None = None) -> Callable[..., tuple]:
    """Returns a function that takes the inputs as they are, and begins with the state of the encoder."""
    def decoder_fn(time: Any, cell_state: Any, cell_input: Any, cell_output: Any, context_state: Any) -> tuple:
        return None, encoder_state if cell_state is None else cell_state, cell_input, cell_output, context_state
    return decoder_fn


def simple_decoder_fn_inference(
    output_fn: Callable[[tf.Tensor], tf.Tensor] | None, encoder_state: Any, embeddings: tf.Tensor,
    start_of_sequence_id: Any, end_of_sequence_id: Any, maximum_length: Any, num_decoder_symbols: int,
    dtype: tf.DType = tf.int32, name: str | None = None,
) -> Callable[..., tuple]:
    """Returns a function that feeds the symbol with the highest logit, until `end_of_sequence_id`.

    Args:
      output_fn: makes logits [batch, num_decoder_symbols] of the cell's output; None if that is the logits.
      encoder_state: the first state.
      embeddings: float [num_decoder_symbols, size].
      start_of_sequence_id: the first symbol.
      end_of_sequence_id: the symbol that ends a sequence.
      maximum_length: all sequences end behind it.
      num_decoder_symbols: how many there are.
      dtype: of symbols.
      name: does not matter.
    """
    batch = tf.shape(tf.nest.flatten(encoder_state)[0])[0]

    def decoder_fn(time: Any, cell_state: Any, cell_input: Any, cell_output: Any, context_state: Any) -> tuple:
        if cell_output is None:
            symbols = tf.fill([batch], tf.cast(start_of_sequence_id, dtype))
            done, output = tf.zeros([batch], tf.bool), tf.zeros([num_decoder_symbols])
            cell_state = encoder_state
        else:
            output = cell_output if output_fn is None else output_fn(cell_output)
            symbols = tf.cast(tf.argmax(output, 1), dtype)
            done = tf.equal(symbols, tf.cast(end_of_sequence_id, dtype))
        done = done | (time > tf.cast(maximum_length, time.dtype))
        return done, cell_state, tf.gather(embeddings, symbols), output, context_state
    return decoder_fn


def attention_decoder_fn_train(
    encoder_state: Any, attention_keys: tf.Tensor, attention_values: tf.Tensor, attention_score_fn: Callable,
    attention_construct_fn: Callable, name: str | None = None,
) -> Callable[..., tuple]:
    """`simple_decoder_fn_train` whose inputs have the attention behind them; the outputs are attentions.

    Args:
      encoder_state: the first state.
      attention_keys: of `prepare_attention`, and so are the next three.
      attention_values: see there.
      attention_score_fn: see there.
      attention_construct_fn: see there.
      name: does not matter.
    """
    attend = _attend(encoder_state, attention_keys, attention_values, attention_construct_fn)
    simple = simple_decoder_fn_train(encoder_state)

    def decoder_fn(time: Any, cell_state: Any, cell_input: Any, cell_output: Any, context_state: Any) -> tuple:
        output, attention = attend(cell_output)
        done, state, cell_input, output, context = simple(time, cell_state, cell_input, output, context_state)
        return done, state, tf.concat([cell_input, attention], 1), output, context
    return decoder_fn


def attention_decoder_fn_inference(
    output_fn: Callable[[tf.Tensor], tf.Tensor] | None, encoder_state: Any, attention_keys: tf.Tensor,
    attention_values: tf.Tensor, attention_score_fn: Callable, attention_construct_fn: Callable,
    embeddings: tf.Tensor, start_of_sequence_id: Any, end_of_sequence_id: Any, maximum_length: Any,
    num_decoder_symbols: int, dtype: tf.DType = tf.int32, name: str | None = None,
) -> Callable[..., tuple]:
    """`simple_decoder_fn_inference` with the attention of `attention_decoder_fn_train`; see both."""
    attend = _attend(encoder_state, attention_keys, attention_values, attention_construct_fn)
    simple = simple_decoder_fn_inference(
        output_fn, encoder_state, embeddings, start_of_sequence_id, end_of_sequence_id, maximum_length,
        num_decoder_symbols, dtype)

    def decoder_fn(time: Any, cell_state: Any, cell_input: Any, cell_output: Any, context_state: Any) -> tuple:
        output, attention = attend(cell_output)
        done, state, cell_input, output, context = simple(time, cell_state, cell_input, output, context_state)
        return done, state, tf.concat([cell_input, attention], 1), output, context
    return decoder_fn


def _attend(encoder_state: Any, keys: tf.Tensor, values: tf.Tensor, construct: Callable) -> Callable[[Any], tuple]:
    """Returns a function: the cell's output, or None at first -> what stands in its place, and the attention."""
    def attend(cell_output: tf.Tensor | None) -> tuple[Any, tf.Tensor]:
        if cell_output is None:
            is_stack = isinstance(encoder_state, tuple) and not hasattr(encoder_state, "h")
            top = encoder_state[-1] if is_stack else encoder_state
            return None, tf.zeros_like(getattr(top, "h", top))
        attention = construct(cell_output, keys, values)
        return attention, attention
    return attend


def prepare_attention(
    attention_states: tf.Tensor, attention_option: str, num_units: int, reuse: bool | None = False,
) -> tuple[tf.Tensor, tf.Tensor, Callable, Callable]:
    """Returns keys, values, the function that scores, and the one that makes the attention vector.

    Args:
      attention_states: of the encoder, float [batch, time, size].
      attention_option: "luong" (https://arxiv.org/abs/1508.04025) or "bahdanau" (https://arxiv.org/abs/1409.0473).
      num_units: of the keys and the attention.
      reuse: whether the variables exist.

    Raises:
      ValueError: another attention_option.
    """
    if attention_option not in ("luong", "bahdanau"):
        raise ValueError(f"prepare_attention: got attention_option {attention_option!r}; allowed: luong, bahdanau")
    with tf.variable_scope("attention_keys", reuse=reuse):
        keys = _linear(attention_states, num_units)
    with tf.variable_scope("attention_score", reuse=reuse):
        variables = [tf.get_variable("attnW", [num_units, num_units]), tf.get_variable("attnV", [num_units])] if (
            attention_option == "bahdanau") else []
    with tf.variable_scope("attention_construct", reuse=reuse) as construct_scope:
        pass

    def score(query: tf.Tensor, keys: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        if variables:
            query = tf.expand_dims(tf.matmul(query, variables[0]), 1)
            scores = tf.reduce_sum(variables[1] * tf.tanh(keys + query), 2)
        else:
            scores = tf.reduce_sum(keys * tf.expand_dims(query, 1), 2)
        context = tf.reduce_sum(tf.expand_dims(tf.nn.softmax(scores), 2) * values, 1)
        context.set_shape([None, num_units])
        return context

    def construct(query: tf.Tensor, keys: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        with tf.variable_scope(construct_scope, reuse=reuse):
            return _linear(tf.concat([query, score(query, keys, values)], 1), num_units)

    return keys, attention_states, score, construct


def _linear(inputs: tf.Tensor, num_units: int) -> tf.Tensor:
    """Returns the product with the variable `weights` of this scope, [..., num_units]."""
    weights = tf.get_variable("weights", [inputs.shape[-1].value, num_units], inputs.dtype,
                              initializer=tf.glorot_uniform_initializer())
    return tf.tensordot(inputs, weights, [[inputs.shape.rank - 1], [0]])
