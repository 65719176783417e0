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
