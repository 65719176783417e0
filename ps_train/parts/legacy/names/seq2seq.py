"""`tf.contrib.legacy_seq2seq`, which was `tf.nn.seq2seq`: encoders and decoders over lists of tensors, one a time step.

    decoders    rnn_decoder and attention_decoder; each has a form that looks up the symbols' embeddings
    models      an encoder, whose last state (and whose outputs, for the attention) a decoder begins with
    losses      the weighted cross entropy of lists of logits, and models for several lengths (buckets)

Inputs are lists of float [batch, size], or int [batch] where there are embeddings; outputs are lists of float
[batch, output size]. The variables have TensorFlow 1's names.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.parts.legacy.names.rnn import EmbeddingWrapper, OutputProjectionWrapper, linear, unbuilt_copy

_Outputs = tuple[list[tf.Tensor], Any]


def _each(inputs: Sequence[tf.Tensor]) -> Iterator[tuple[int, tf.Tensor]]:
    """Yields number and input of each time step; from the second on, variables are used again."""
    for step, value in enumerate(inputs):
        if step:
            tf.get_variable_scope().reuse_variables()
        yield step, value


def _next_input(loop_function: Callable | None, outputs: list, step: int, given: tf.Tensor) -> tf.Tensor:
    if loop_function is None or not outputs:
        return given
    with tf.variable_scope("loop_function", reuse=True):
        return loop_function(outputs[-1], step)


def rnn_decoder(decoder_inputs: Sequence, initial_state: Any, cell: Any, loop_function: Callable | None = None,
                scope: str | None = None) -> _Outputs:
    """Returns the outputs of a cell, and its last state; `loop_function(output, step)` makes the next input."""
    with tf.variable_scope(scope or "rnn_decoder"):
        state, outputs = initial_state, []
        for step, given in _each(decoder_inputs):
            output, state = cell(_next_input(loop_function, outputs, step, given), state)
            outputs.append(output)
        return outputs, state


def attention_decoder(decoder_inputs: Sequence, initial_state: Any, attention_states: tf.Tensor, cell: Any,
                      output_size: int | None = None, num_heads: int = 1, loop_function: Callable | None = None,
                      dtype: Any = None, scope: str | None = None, initial_state_attention: bool = False) -> _Outputs:
    """Returns the outputs of a cell that sees, at each step, a weighted mean of the attention states, and its state.

    Args:
      decoder_inputs: float [batch, input size] for each step.
      initial_state: of the cell.
      attention_states: float [batch, length, size].
      cell: an RNNCell.
      output_size: of the outputs; the cell's by default.
      num_heads: number of means.
      loop_function: (output, step) -> next input.
      dtype: of the zeros that the first attention is.
      scope: of the variables.
      initial_state_attention: whether the first attention comes from the initial state, not from zeros.

    Source: Vinyals et al., "Grammar as a Foreign Language", https://arxiv.org/abs/1412.7449
    """
    with tf.variable_scope(scope or "attention_decoder", dtype=dtype) as variable_scope:
        attend = _Attention(tf.convert_to_tensor(attention_states), num_heads)
        size = output_size or cell.output_size
        state, outputs = initial_state, []
        if initial_state_attention:
            attentions = attend(state)
        else:
            attentions = attend.zeros(tf.shape(decoder_inputs[0])[0], variable_scope.dtype)
        for step, given in _each(decoder_inputs):
            decoder_input = _next_input(loop_function, outputs, step, given)
            inputs = linear([decoder_input, *attentions], decoder_input.shape[-1], True)
            cell_output, state = cell(inputs, state)
            with tf.variable_scope(tf.get_variable_scope(), reuse=True if step or initial_state_attention else None):
                attentions = attend(state)
            with tf.variable_scope("AttnOutputProjection"):
                outputs.append(linear([cell_output, *attentions], size, True))
        return outputs, state


class _Attention:
    """v * tanh(W1 * states + W2 * query) for each head: the weights of the states."""

    def __init__(self, states: tf.Tensor, num_heads: int) -> None:
        length = states.shape[1] if states.shape[1] is not None else tf.shape(states)[1]
        self._size = int(states.shape[2])
        self._hidden = tf.reshape(states, [-1, length, 1, self._size])
        self._features, self._scales = [], []
        for head in range(num_heads):
            kernel = tf.get_variable(f"AttnW_{head}", [1, 1, self._size, self._size])
            self._features.append(tf.nn.conv2d(self._hidden, kernel, [1, 1, 1, 1], "SAME"))
            self._scales.append(tf.get_variable(f"AttnV_{head}", [self._size]))

    def zeros(self, batch_size: tf.Tensor, dtype: tf.DType) -> list[tf.Tensor]:
        attentions = [tf.zeros(tf.stack([batch_size, self._size]), dtype) for _ in self._scales]
        for attention in attentions:
            attention.set_shape([None, self._size])
        return attentions

    def __call__(self, query: Any) -> list[tf.Tensor]:
        """Returns a mean [batch, size] for each head; the query is the state of a cell."""
        query = tf.concat(tf.nest.flatten(query), 1)
        means = []
        for head, (features, scale) in enumerate(zip(self._features, self._scales)):
            with tf.variable_scope(f"Attention_{head}"):
                projected = tf.reshape(linear(query, self._size, True), [-1, 1, 1, self._size])
                weights = tf.nn.softmax(tf.reduce_sum(scale * tf.tanh(features + projected), [2, 3]))
                weights = tf.reshape(weights, [-1, tf.shape(weights)[1], 1, 1])
                means.append(tf.reshape(tf.reduce_sum(weights * self._hidden, [1, 2]), [-1, self._size]))
        return means


def _symbols_again(embedding: Any, output_projection: Any, updates_embedding: bool) -> Callable:
    """Returns a loop_function: the embedding of the symbol that an output makes most likely."""
    def loop_function(output: tf.Tensor, step: int) -> tf.Tensor:
        if output_projection is not None:
            output = tf.nn.xw_plus_b(output, output_projection[0], output_projection[1])
        found = tf.nn.embedding_lookup(embedding, tf.argmax(output, 1))
        return found if updates_embedding else tf.stop_gradient(found)
    return loop_function


def _embedded(decoder_inputs: Sequence, num_symbols: int, embedding_size: int, output_projection: Any,
              feed_previous: bool, updates_embedding: bool) -> tuple[list[tf.Tensor], Callable | None]:
    embedding = tf.get_variable("embedding", [num_symbols, embedding_size])
    again = _symbols_again(embedding, output_projection, updates_embedding) if feed_previous else None
    return [tf.nn.embedding_lookup(embedding, ids) for ids in decoder_inputs], again


def embedding_rnn_decoder(decoder_inputs: Sequence, initial_state: Any, cell: Any, num_symbols: int,
                          embedding_size: int, output_projection: Any = None, feed_previous: bool = False,
                          update_embedding_for_previous: bool = True, scope: str | None = None) -> _Outputs:
    """`rnn_decoder` of symbols; `feed_previous` takes each step's own choice as the next input."""
    with tf.variable_scope(scope or "embedding_rnn_decoder"):
        inputs, again = _embedded(decoder_inputs, num_symbols, embedding_size, output_projection, feed_previous,
                                  update_embedding_for_previous)
        return rnn_decoder(inputs, initial_state, cell, again)


def embedding_attention_decoder(decoder_inputs: Sequence, initial_state: Any, attention_states: tf.Tensor, cell: Any,
                                num_symbols: int, embedding_size: int, num_heads: int = 1,
                                output_size: int | None = None, output_projection: Any = None,
                                feed_previous: bool = False, update_embedding_for_previous: bool = True,
                                dtype: Any = None, scope: str | None = None,
                                initial_state_attention: bool = False) -> _Outputs:
    """`attention_decoder` of symbols; `feed_previous` takes each step's own choice as the next input."""
    with tf.variable_scope(scope or "embedding_attention_decoder", dtype=dtype):
        inputs, again = _embedded(decoder_inputs, num_symbols, embedding_size, output_projection, feed_previous,
                                  update_embedding_for_previous)
        return attention_decoder(inputs, initial_state, attention_states, cell, output_size or cell.output_size,
                                 num_heads, again, initial_state_attention=initial_state_attention)


def _with_choice(feed_previous: Any, decode: Callable[[bool], _Outputs], scope: tf.VariableScope) -> _Outputs:
    """Decodes with the given inputs or with the own choices; a bool tensor chooses when the graph runs."""
    if isinstance(feed_previous, bool):
        return decode(feed_previous)
    states: list = []

    def branch(is_fed: bool) -> list[tf.Tensor]:
        with tf.variable_scope(scope, reuse=None if is_fed else True):
            outputs, state = decode(is_fed)
        states.append(state)
        return [*outputs, *tf.nest.flatten(state)]
    tensors = tf.cond(feed_previous, lambda: branch(True), lambda: branch(False))
    count = len(tensors) - len(tf.nest.flatten(states[0]))
    return tensors[:count], tf.nest.pack_sequence_as(states[0], tensors[count:])


def basic_rnn_seq2seq(encoder_inputs: Sequence, decoder_inputs: Sequence, cell: Any, dtype: Any = tf.float32,
                      scope: str | None = None) -> _Outputs:
    """An encoder, and a decoder that begins with its last state."""
    with tf.variable_scope(scope or "basic_rnn_seq2seq"):
        _, state = tf.nn.static_rnn(unbuilt_copy(cell), encoder_inputs, dtype=dtype)
        return rnn_decoder(decoder_inputs, state, cell)


def tied_rnn_seq2seq(encoder_inputs: Sequence, decoder_inputs: Sequence, cell: Any,
                     loop_function: Callable | None = None, dtype: Any = tf.float32,
                     scope: str | None = None) -> _Outputs:
    """The same; encoder and decoder have the same variables."""
    with tf.variable_scope("combined_tied_rnn_seq2seq"):
        name = scope or "tied_rnn_seq2seq"
        _, state = tf.nn.static_rnn(cell, encoder_inputs, dtype=dtype, scope=name)
        tf.get_variable_scope().reuse_variables()
        return rnn_decoder(decoder_inputs, state, cell, loop_function, name)


def embedding_rnn_seq2seq(encoder_inputs: Sequence, decoder_inputs: Sequence, cell: Any, num_encoder_symbols: int,
                          num_decoder_symbols: int, embedding_size: int, output_projection: Any = None,
                          feed_previous: Any = False, dtype: Any = None, scope: str | None = None) -> _Outputs:
    """An encoder of symbols, and a decoder of symbols that begins with its last state."""
    with tf.variable_scope(scope or "embedding_rnn_seq2seq") as variable_scope:
        encoder = EmbeddingWrapper(unbuilt_copy(cell), num_encoder_symbols, embedding_size)
        _, state = tf.nn.static_rnn(encoder, encoder_inputs, dtype=dtype or variable_scope.dtype)
        if output_projection is None:
            cell = OutputProjectionWrapper(cell, num_decoder_symbols)

        def decode(is_fed: bool) -> _Outputs:
            return embedding_rnn_decoder(decoder_inputs, state, cell, num_decoder_symbols, embedding_size,
                                         output_projection, is_fed)
        return _with_choice(feed_previous, decode, tf.get_variable_scope())


def embedding_tied_rnn_seq2seq(encoder_inputs: Sequence, decoder_inputs: Sequence, cell: Any, num_symbols: int,
                               embedding_size: int, num_decoder_symbols: int | None = None,
                               output_projection: Any = None, feed_previous: Any = False, dtype: Any = None,
                               scope: str | None = None) -> _Outputs:
    """The same; encoder and decoder have the same variables, the embedding among them."""
    with tf.variable_scope(scope or "embedding_tied_rnn_seq2seq", dtype=dtype) as variable_scope:
        embedding = tf.get_variable("embedding", [num_symbols, embedding_size])
        encoded, decoded = ([tf.nn.embedding_lookup(embedding, ids) for ids in inputs]
                            for inputs in (encoder_inputs, decoder_inputs))
        if output_projection is None:
            cell = OutputProjectionWrapper(cell, num_decoder_symbols or num_symbols)

        def decode(is_fed: bool) -> _Outputs:
            again = _symbols_again(embedding, output_projection, isinstance(feed_previous, bool)) if is_fed else None
            return tied_rnn_seq2seq(encoded, decoded, cell, again, variable_scope.dtype)
        return _with_choice(feed_previous, decode, variable_scope)


def one2many_rnn_seq2seq(encoder_inputs: Sequence, decoder_inputs_dict: dict, enc_cell: Any, dec_cells_dict: dict,
                         num_encoder_symbols: int, num_decoder_symbols_dict: dict, embedding_size: int,
                         feed_previous: Any = False, dtype: Any = None,
                         scope: str | None = None) -> tuple[dict, dict]:
    """An encoder of symbols, and several decoders by name; returns the outputs and the states by name."""
    with tf.variable_scope(scope or "one2many_rnn_seq2seq", dtype=dtype) as variable_scope:
        encoder = EmbeddingWrapper(enc_cell, num_encoder_symbols, embedding_size)
        _, state = tf.nn.static_rnn(encoder, encoder_inputs, dtype=variable_scope.dtype)
        outputs, states = {}, {}
        for name, decoder_inputs in decoder_inputs_dict.items():
            number = num_decoder_symbols_dict[name]
            decode = functools.partial(embedding_rnn_decoder, decoder_inputs, state,
                                       OutputProjectionWrapper(dec_cells_dict[name], number), number, embedding_size,
                                       None)
            with tf.variable_scope(f"one2many_decoder_{name}") as decoder_scope:
                outputs[name], states[name] = _with_choice(feed_previous, decode, decoder_scope)
        return outputs, states


def embedding_attention_seq2seq(encoder_inputs: Sequence, decoder_inputs: Sequence, cell: Any,
                                num_encoder_symbols: int, num_decoder_symbols: int, embedding_size: int,
                                num_heads: int = 1, output_projection: Any = None, feed_previous: Any = False,
                                dtype: Any = None, scope: str | None = None,
                                initial_state_attention: bool = False) -> _Outputs:
    """The same with an attention over the encoder's outputs."""
    with tf.variable_scope(scope or "embedding_attention_seq2seq", dtype=dtype) as variable_scope:
        encoder = EmbeddingWrapper(unbuilt_copy(cell), num_encoder_symbols, embedding_size)
        encoded, state = tf.nn.static_rnn(encoder, encoder_inputs, dtype=dtype or variable_scope.dtype)
        attention_states = tf.stack(encoded, 1)
        output_size = None
        if output_projection is None:
            cell, output_size = OutputProjectionWrapper(cell, num_decoder_symbols), num_decoder_symbols

        def decode(is_fed: bool) -> _Outputs:
            return embedding_attention_decoder(
                decoder_inputs, state, attention_states, cell, num_decoder_symbols, embedding_size, num_heads,
                output_size, output_projection, is_fed, initial_state_attention=initial_state_attention)
        return _with_choice(feed_previous, decode, tf.get_variable_scope())


def sequence_loss_by_example(logits: Sequence, targets: Sequence, weights: Sequence,
                             average_across_timesteps: bool = True, softmax_loss_function: Callable | None = None,
                             name: str | None = None) -> tf.Tensor:
    """The cross entropy of each example, float [batch]: the sum over the steps, divided by that of the weights."""
    if len({len(logits), len(targets), len(weights)}) > 1:
        raise ValueError(f"logits, targets and weights must be of one length; they have {len(logits)}, {len(targets)} "
                         f"and {len(weights)} steps")
    function = _by_name(softmax_loss_function) if softmax_loss_function else \
        tf.nn.sparse_softmax_cross_entropy_with_logits
    with tf.name_scope(name, "sequence_loss_by_example"):
        losses = [function(labels=tf.reshape(target, [-1]), logits=logit) * weight
                  for logit, target, weight in zip(logits, targets, weights)]
        # An example of padding only has the weight 0.
        return tf.add_n(losses) / (tf.add_n(list(weights)) + 1e-12) if average_across_timesteps else tf.add_n(losses)


def _by_name(function: Callable) -> Callable:
    """Returns a loss function of `labels` and `logits`; before 1.0 it took the logits and the labels by position."""
    if {"labels", "logits"} <= set(inspect.signature(function).parameters):
        return function
    return lambda labels, logits: function(logits, labels)


def list_sequence_loss(logits: Sequence, targets: Sequence, weights: Sequence, average_across_timesteps: bool = True,
                       average_across_batch: bool = True, softmax_loss_function: Callable | None = None,
                       name: str | None = None) -> tf.Tensor:
    """The sum of `sequence_loss_by_example`, divided by the batch size: float []."""
    with tf.name_scope(name, "sequence_loss"):
        cost = tf.reduce_sum(sequence_loss_by_example(
            logits, targets, weights, average_across_timesteps, softmax_loss_function))
        return cost / tf.cast(tf.shape(targets[0])[0], cost.dtype) if average_across_batch else cost


def model_with_buckets(encoder_inputs: Sequence, decoder_inputs: Sequence, targets: Sequence, weights: Sequence,
                       buckets: Sequence[tuple[int, int]], seq2seq: Callable,
                       softmax_loss_function: Callable | None = None, per_example_loss: bool = False,
                       name: str | None = None) -> tuple[list, list]:
    """Makes a model for each bucket, all with the same variables; returns the outputs and the loss of each.

    Args:
      encoder_inputs: for the longest bucket; and so are the next three.
      decoder_inputs: for each step.
      targets: int [batch] for each step.
      weights: float [batch] for each step.
      buckets: (length of the inputs, length of the outputs), in ascending order.
      seq2seq: (encoder inputs, decoder inputs) -> (outputs, state).
      softmax_loss_function: instead of the softmax cross entropy.
      per_example_loss: whether a loss is float [batch], not [].
      name: of the operations.
    """
    loss_function = sequence_loss_by_example if per_example_loss else list_sequence_loss
    outputs, losses = [], []
    with tf.name_scope(name, "model_with_buckets"):
        for number, (source, target) in enumerate(buckets):
            with tf.variable_scope(tf.get_variable_scope(), reuse=True if number else None):
                logits, _ = seq2seq(encoder_inputs[:source], decoder_inputs[:target])
            outputs.append(logits)
            losses.append(loss_function(logits, targets[:target], weights[:target],
                                        softmax_loss_function=softmax_loss_function))
    return outputs, losses
