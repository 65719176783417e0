"""`tf.contrib.crf`: a linear-chain conditional random field (Lafferty et al., 2001) over the tags of a sequence.

    score(tags) = sum of inputs[t, tags[t]] + sum of transitions[tags[t], tags[t + 1]]
    P(tags) = exp(score(tags) - log_norm)      log_norm by the forward algorithm, the best tags by Viterbi's

Inputs are [batch, time, tags], tag indices int [batch, time], lengths int [batch]; what is behind the length of a
sequence does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf


class CrfForwardRnnCell(tf.nn.rnn_cell.RNNCell):
    """A step of the forward algorithm: the state and output [batch, tags] are the sums over the ways to each tag."""

    def __init__(self, transition_params: tf.Tensor) -> None:
        """Takes the transitions, float [tags, tags]."""
        super().__init__()
        self._transitions = tf.expand_dims(transition_params, 0)
        self._num_tags = tf.dimension_value(transition_params.shape[0])

    @property
    def state_size(self) -> int:
        return self._num_tags

    @property
    def output_size(self) -> int:
        return self._num_tags

    def __call__(self, inputs: tf.Tensor, state: tf.Tensor, scope: Any = None) -> tuple[tf.Tensor, tf.Tensor]:
        alphas = inputs + tf.reduce_logsumexp(tf.expand_dims(state, 2) + self._transitions, 1)
        return alphas, alphas


class CrfDecodeForwardRnnCell(CrfForwardRnnCell):
    """A step of Viterbi's algorithm: the state is the best score of each tag, the output the tag before, int32."""

    def __call__(self, inputs: tf.Tensor, state: tf.Tensor, scope: Any = None) -> tuple[tf.Tensor, tf.Tensor]:
        scores = tf.expand_dims(state, 2) + self._transitions
        return tf.argmax(scores, 1, output_type=tf.int32), inputs + tf.reduce_max(scores, 1)


class CrfDecodeBackwardRnnCell(tf.nn.rnn_cell.RNNCell):
    """A step back: of the tags before each tag, int32 [batch, tags], that of the state, int32 [batch, 1]."""

    state_size = output_size = 1

    def __init__(self, num_tags: int) -> None:
        """Takes the number of tags."""
        super().__init__()
        self._num_tags = num_tags

    def __call__(self, inputs: tf.Tensor, state: tf.Tensor, scope: Any = None) -> tuple[tf.Tensor, tf.Tensor]:
        tags = tf.gather(inputs, state, batch_dims=1)
        return tags, tags


def _real(lengths: Any, tags: tf.Tensor) -> tf.Tensor:
    """Returns whether each step is one of its sequence, bool [batch, time]."""
    return tf.sequence_mask(lengths, tf.shape(tags)[1])


def _sum_of_real(scores: tf.Tensor, is_real: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.where(is_real, scores, tf.zeros_like(scores)), 1)


def crf_unary_score(tag_indices: tf.Tensor, sequence_lengths: Any, inputs: tf.Tensor) -> tf.Tensor:
    """Returns the sum of the inputs of the tags, float [batch]."""
    is_real = _real(sequence_lengths, tag_indices)
    tags = tf.where(is_real, tag_indices, tf.zeros_like(tag_indices))  # padding may have a tag that is none
    return _sum_of_real(tf.gather(inputs, tags, batch_dims=2), is_real)


def crf_binary_score(tag_indices: tf.Tensor, sequence_lengths: Any, transition_params: tf.Tensor) -> tf.Tensor:
    """Returns the sum of the transitions between the tags, float [batch]."""
    is_real = _real(sequence_lengths, tag_indices)
    tags = tf.where(is_real, tag_indices, tf.zeros_like(tag_indices))
    return _sum_of_real(tf.gather_nd(transition_params, tf.stack([tags[:, :-1], tags[:, 1:]], 2)), is_real[:, 1:])


def crf_sequence_score(inputs: tf.Tensor, tag_indices: Any, sequence_lengths: Any,
                       transition_params: tf.Tensor) -> tf.Tensor:
    """Returns the score of a sequence of tags, float [batch]; 0 for an empty one."""
    inputs, tags = tf.convert_to_tensor(inputs), tf.convert_to_tensor(tag_indices)
    return crf_unary_score(tags, sequence_lengths, inputs) + crf_binary_score(
        tags, sequence_lengths, tf.convert_to_tensor(transition_params))


def crf_multitag_sequence_score(inputs: tf.Tensor, tag_bitmap: Any, sequence_lengths: Any,
                                transition_params: tf.Tensor) -> tf.Tensor:
    """Returns the logarithm of the sum over all sequences of tags that a bitmap, bool [batch, time, tags], allows."""
    inputs = tf.convert_to_tensor(inputs)
    never = tf.fill(tf.shape(inputs), tf.constant(float("-inf"), inputs.dtype))
    return crf_log_norm(tf.where(tag_bitmap, inputs, never), sequence_lengths, transition_params)


def crf_log_norm(inputs: tf.Tensor, sequence_lengths: Any, transition_params: tf.Tensor) -> tf.Tensor:
    """Returns the logarithm of the sum over all sequences of tags, float [batch]; 0 for an empty one."""
    cell = CrfForwardRnnCell(tf.convert_to_tensor(transition_params))
    lengths = tf.convert_to_tensor(sequence_lengths)
    alphas, _ = _forward(cell, tf.convert_to_tensor(inputs), lengths)
    norm = tf.reduce_logsumexp(alphas, 1)
    return tf.where(lengths > 0, norm, tf.zeros_like(norm))


def _forward(cell: Callable, inputs: tf.Tensor, lengths: tf.Tensor,
             output_dtype: Any = None) -> tuple[tf.Tensor, tf.TensorArray]:
    """Returns the last state of each sequence, [batch, tags], and the outputs, from step 1 on, if they have a dtype.

    Behind the end of a sequence the state stays, and the outputs are 0, 1, 2 and so on.
    """
    num_steps, num_tags = tf.shape(inputs)[1], tf.dimension_value(inputs.shape[2])
    by_time = tf.TensorArray(inputs.dtype, num_steps, element_shape=[None, num_tags]).unstack(
        tf.transpose(inputs, [1, 0, 2]))
    outputs = tf.TensorArray(output_dtype or inputs.dtype, num_steps if output_dtype else 0,
                             element_shape=[None, num_tags])
    same = tf.tile(tf.expand_dims(tf.range(num_tags), 0), [tf.shape(inputs)[0], 1])

    def step(time: tf.Tensor, state: tf.Tensor, outputs: tf.TensorArray) -> tuple:
        output, following = cell(by_time.read(time), state)
        is_real = tf.cast(time, lengths.dtype) < lengths
        if output_dtype is not None:
            outputs = outputs.write(time, tf.where(is_real, output, same))
        following = tf.where(is_real, following, state)
        following.set_shape(state.shape)
        return time + 1, following, outputs

    first = inputs[:, 0]
    _, state, outputs = tf.while_loop(lambda time, *_: time < num_steps, step, (tf.constant(1), first, outputs))
    return state, outputs


def crf_log_likelihood(inputs: tf.Tensor, tag_indices: Any, sequence_lengths: Any,
                       transition_params: Any = None) -> tuple[tf.Tensor, Any]:
    """Returns the logarithm of the probability of each sequence of tags, float [batch], and the transitions.

    Args:
      transition_params: float [tags, tags]; by default a new variable "transitions" of the scope.
    """
    inputs = tf.convert_to_tensor(inputs)
    if transition_params is None:
        num_tags = tf.dimension_value(inputs.shape[2])
        transition_params = tf.get_variable("transitions", [num_tags, num_tags])
    score = crf_sequence_score(inputs, tag_indices, sequence_lengths, transition_params)
    return score - crf_log_norm(inputs, sequence_lengths, transition_params), transition_params


def crf_decode(potentials: tf.Tensor, transition_params: tf.Tensor,
               sequence_length: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the tags with the best score, int32 [batch, time], 0 behind the end, and that score, float [batch]."""
    potentials = tf.convert_to_tensor(potentials)
    lengths = tf.maximum(tf.convert_to_tensor(sequence_length), 1)  # an empty sequence is decoded as one of one step
    cell = CrfDecodeForwardRnnCell(tf.convert_to_tensor(transition_params))
    scores, before = _forward(cell, potentials, lengths, tf.int32)
    num_steps = tf.shape(potentials)[1]

    def step(time: tf.Tensor, tag: tf.Tensor, tags: tf.TensorArray) -> tuple:
        previous = tf.gather(before.read(time), tag, batch_dims=1)
        previous.set_shape(tag.shape)
        return time - 1, previous, tags.write(time, tag)

    last = tf.argmax(scores, 1, output_type=tf.int32)
    tags = tf.TensorArray(tf.int32, num_steps, element_shape=[None])
    _, first, tags = tf.while_loop(lambda time, *_: time > 0, step, (num_steps - 1, last, tags))
    decoded = tf.transpose(tags.write(0, first).stack())
    decoded.set_shape(potentials.shape[:2])
    return tf.where(_real(lengths, decoded), decoded, tf.zeros_like(decoded)), tf.reduce_max(scores, 1)


def viterbi_decode(score: np.ndarray, transition_params: np.ndarray) -> tuple[Sequence[int], float]:
    """Returns the tags with the best score of one sequence [time, tags], a list, and that score; by numpy."""
    best, before = score[0], []
    for step in score[1:]:
        ways = best[:, np.newaxis] + transition_params
        before.append(ways.argmax(0))
        best = step + ways.max(0)
    tags = [best.argmax()]
    for tags_before in reversed(before):
        tags.append(tags_before[tags[-1]])
    return tags[::-1], best.max()
