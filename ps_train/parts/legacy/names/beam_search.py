"""Of `tf.contrib.seq2seq`: BeamSearchDecoder, which keeps the `beam_width` most likely sequences of each example.

    beams [batch, beam] --cell, log softmax--> continuations [batch, beam * classes] --top_k--> the next beams

The cell sees each beam as an example of its own, [batch * beam, ...]; `gather_tree` puts the sequences together at the
end, from the symbols and the parents of all steps. The score is log P / ((5 + length) / 6) ** length_penalty_weight,
with a penalty of words without attention: https://arxiv.org/abs/1609.08144.
"""

from __future__ import annotations

import collections
import logging
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.parts.legacy.names.attention import AttentionWrapperState
from ps_train.parts.legacy.names.decoding import Decoder, lookup_function

_log = logging.getLogger(__name__)

BeamSearchDecoderState = collections.namedtuple("BeamSearchDecoderState", (
    "cell_state", "log_probs", "finished", "lengths", "accumulated_attention_probs"))
BeamSearchDecoderOutput = collections.namedtuple("BeamSearchDecoderOutput", ("scores", "predicted_ids", "parent_ids"))
FinalBeamSearchDecoderOutput = collections.namedtuple("FinalBeamSearchDecoderOutput", (
    "predicted_ids", "beam_search_decoder_output"))


def _paths(parent_ids: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Returns the beam in which each final sequence was at each step, int32 [time, batch, beam].

    Args:
      parent_ids: the beam before, int32 [time, batch, beam].
      lengths: the steps of an example, int32 [batch]; behind them a sequence is in its own beam.
    """
    own = _own_beams(parent_ids)[0]

    def step(following: tuple, at: tuple) -> tuple:
        (_, beam), (time, parents) = following, at
        is_real = (time < lengths)[:, tf.newaxis]
        return beam, tf.where_v2(is_real, tf.gather(parents, beam, batch_dims=1), beam)

    return tf.scan(step, (tf.range(tf.shape(parent_ids)[0]), parent_ids), (own, own), reverse=True)[0]


def _own_beams(parent_ids: tf.Tensor) -> tf.Tensor:
    """Returns the number of each beam: int32 [time, batch, beam]."""
    return tf.zeros_like(parent_ids) + tf.range(tf.shape(parent_ids)[2])


def gather_tree(step_ids: tf.Tensor, parent_ids: tf.Tensor, max_sequence_lengths: tf.Tensor, end_token: Any,
                name: str | None = None) -> tf.Tensor:
    """Returns the sequences that end in each beam, int32 [time, batch, beam], filled up with the end token.

    Args:
      step_ids: the symbol of each beam at each step, int32 [time, batch, beam].
      parent_ids: the beam before, int32 [time, batch, beam].
      max_sequence_lengths: the steps of each example, int32 [batch].
      end_token: the symbol that ends a sequence, int32 [].
      name: of the operations.
    """
    with tf.name_scope(name, "GatherTree"):
        step_ids, parent_ids = tf.convert_to_tensor(step_ids), tf.convert_to_tensor(parent_ids)
        lengths, end = tf.convert_to_tensor(max_sequence_lengths), tf.cast(end_token, step_ids.dtype)
        symbols = tf.gather(step_ids, _paths(parent_ids, lengths), batch_dims=2)
        is_real = tf.transpose(tf.sequence_mask(lengths, tf.shape(step_ids)[0]))[:, :, tf.newaxis]
        symbols = tf.where_v2(is_real, symbols, end)
        num_ends = tf.cumsum(tf.cast(tf.equal(symbols, end), tf.int32), 0, exclusive=True)
        result = tf.where_v2(num_ends > 0, end, symbols)
        result.set_shape(step_ids.shape)
        return result


class BeamSearchDecoder(Decoder):
    """Decodes with `beam_width` sequences for each example; the first one is the best.

    Args:
      cell: an RNNCell for [batch * beam, ...], such as an AttentionWrapper whose memory went through `tile_batch`.
      embedding: a variable, or a function of symbols int [batch, beam].
      start_tokens: the first input, int [batch].
      end_token: the symbol that ends a sequence, int [].
      initial_state: of the cell, [batch * beam, ...].
      beam_width: how many.
      output_layer: makes logits of the cell's outputs.
      length_penalty_weight: 0 for none.
      coverage_penalty_weight: 0 for none; otherwise the cell has an attention.
      reorder_tensor_arrays: whether TensorArrays in the cell's state, such as the history of alignments, follow the
        sequences, by their beam of each step; they come back as tensors [time, batch * beam, ...].
    """

    tracks_own_finished = True

    def __init__(self, cell: Any, embedding: Any, start_tokens: Any, end_token: Any, initial_state: Any,
                 beam_width: int, output_layer: Any = None, length_penalty_weight: Any = 0.0,
                 coverage_penalty_weight: float = 0.0, reorder_tensor_arrays: bool = True) -> None:
        self._cell, self._output_layer, self._beam_width = cell, output_layer, beam_width
        self._length_weight, self._coverage_weight = length_penalty_weight, coverage_penalty_weight
        self._reorders = reorder_tensor_arrays
        self._embedding_fn = lookup_function(embedding)
        start = tf.cast(tf.convert_to_tensor(start_tokens), tf.int32)
        self._end_token = tf.cast(tf.convert_to_tensor(end_token), tf.int32)
        if start.shape.ndims != 1 or self._end_token.shape.ndims != 0:
            raise ValueError("BeamSearchDecoder: start_tokens must be a vector [batch], and end_token a number; got "
                             f"the shapes {start.shape} and {self._end_token.shape}")
        self._static_batch, self._batch_size = tf.dimension_value(start.shape[0]), tf.size(start)
        self._start_inputs = self._embedding_fn(tf.tile(start[:, tf.newaxis], [1, beam_width]))
        self._initial_cell_state = tf.nest.map_structure(self._split, initial_state)

    @property
    def batch_size(self) -> tf.Tensor:
        return self._batch_size

    @property
    def output_size(self) -> BeamSearchDecoderOutput:
        return BeamSearchDecoderOutput(*[tf.TensorShape([self._beam_width])] * 3)

    @property
    def output_dtype(self) -> BeamSearchDecoderOutput:
        return BeamSearchDecoderOutput(tf.nest.flatten(self._initial_cell_state)[0].dtype, tf.int32, tf.int32)

    def initialize(self, name: str | None = None) -> tuple[tf.Tensor, Any, BeamSearchDecoderState]:
        """Returns which beams have finished, all but the first, the first inputs, and the initial state."""
        dtype = self.output_dtype.scores
        first = tf.fill([self._batch_size, 1], tf.zeros([], dtype))
        others = tf.fill([self._batch_size, self._beam_width - 1], tf.constant(float("-inf"), dtype))
        log_probs = self._known(tf.concat([first, others], 1))
        attention = _alignments(self._initial_cell_state) if self._coverage_weight else ()
        return log_probs < 0, self._start_inputs, BeamSearchDecoderState(
            self._initial_cell_state, log_probs, log_probs < 0, tf.zeros_like(log_probs, tf.int64), attention)

    def step(self, time: tf.Tensor, inputs: Any, state: BeamSearchDecoderState,
             name: str | None = None) -> tuple[Any, Any, Any, Any]:
        """Returns outputs, next state, next inputs, and which beams have finished."""
        with tf.name_scope(name, "BeamSearchDecoderStep"):
            outputs, cell_state = self._cell(
                self._merge(inputs), tf.nest.map_structure(self._merge, state.cell_state))
            cell_state = tf.nest.map_structure(self._split, cell_state)
            logits = self._split(outputs)
            if self._output_layer is not None:
                logits = self._output_layer(logits)
            output, following = self._choose(logits, cell_state, state)
            tf.nest.map_structure(_keep_shape, following, state)
            inputs = _keep_shape(self._embedding_fn(output.predicted_ids), inputs)
        return output, following, inputs, following.finished

    def _choose(self, logits: tf.Tensor, cell_state: Any,
                state: BeamSearchDecoderState) -> tuple[BeamSearchDecoderOutput, BeamSearchDecoderState]:
        """Returns the best continuations and the state of their beams, for logits [batch, beam, classes]."""
        num_classes = tf.dimension_value(logits.shape[-1]) or tf.shape(logits)[-1]
        is_end = tf.equal(tf.range(num_classes), self._end_token)
        # A sequence that has finished goes on with the end token only, at no cost.
        after_end = tf.where_v2(is_end, tf.zeros([], logits.dtype), logits.dtype.min)
        log_probs = tf.where_v2(state.finished[:, :, tf.newaxis], after_end, tf.nn.log_softmax(logits))
        totals = state.log_probs[:, :, tf.newaxis] + log_probs
        goes_on = tf.logical_not(tf.logical_or(state.finished[:, :, tf.newaxis], is_end))
        lengths = state.lengths[:, :, tf.newaxis] + tf.cast(goes_on, tf.int64)
        attention: Any = ()
        if self._coverage_weight:
            seen = _alignments(cell_state)
            attention = state.accumulated_attention_probs + tf.where_v2(
                state.finished[:, :, tf.newaxis], tf.zeros_like(seen), seen)
        scores = self._scores(totals, lengths, state.finished, attention)
        best, places = tf.nn.top_k(tf.reshape(scores, [self._batch_size, -1]), self._beam_width)
        symbols, parents = self._known(places % num_classes), self._known(places // num_classes)
        had_finished = tf.gather(state.finished, parents, batch_dims=1)
        following = BeamSearchDecoderState(
            tf.nest.map_structure(lambda part: _of_parents(part, parents), cell_state),
            tf.gather(tf.reshape(totals, [self._batch_size, -1]), places, batch_dims=1),
            tf.logical_or(had_finished, tf.equal(symbols, self._end_token)),
            tf.gather(state.lengths, parents, batch_dims=1) + tf.cast(tf.logical_not(had_finished), tf.int64),
            tf.nest.map_structure(lambda part: _of_parents(part, parents), attention))
        return BeamSearchDecoderOutput(self._known(best), symbols, parents), following

    def _scores(self, totals: tf.Tensor, lengths: tf.Tensor, finished: tf.Tensor, attention: Any) -> tf.Tensor:
        """Returns the score of each continuation, float [batch, beam, classes]."""
        scores = totals
        if tf.get_static_value(tf.convert_to_tensor(self._length_weight)) != 0:
            penalty = ((5.0 + tf.cast(lengths, tf.float32)) / 6.0) ** self._length_weight
            scores = totals / tf.cast(penalty, totals.dtype)
        if not self._coverage_weight:
            return scores
        seen = tf.where_v2(tf.equal(attention, 0.0), 1.0, tf.minimum(attention, 1.0))  # 0: behind the source's end
        penalty = tf.reduce_sum(tf.math.log(seen), 2) * tf.cast(finished, seen.dtype)
        return scores + (self._coverage_weight * penalty)[:, :, tf.newaxis]

    def finalize(self, outputs: BeamSearchDecoderOutput, final_state: BeamSearchDecoderState,
                 sequence_lengths: tf.Tensor) -> tuple[FinalBeamSearchDecoderOutput, BeamSearchDecoderState]:
        """Returns the sequences, int32 [time, batch, beam], and the state; `lengths` of it are those of the beams."""
        del sequence_lengths
        longest = tf.cast(tf.reduce_max(final_state.lengths, 1), tf.int32)
        ids = gather_tree(outputs.predicted_ids, outputs.parent_ids, longest, self._end_token)
        if self._reorders:
            final_state = final_state._replace(cell_state=tf.nest.map_structure(
                lambda part: self._sorted(part, outputs.parent_ids, final_state.lengths), final_state.cell_state))
        return FinalBeamSearchDecoderOutput(ids, outputs), final_state

    def _sorted(self, part: Any, parent_ids: tf.Tensor, lengths: tf.Tensor) -> Any:
        """Returns what a TensorArray has of each final sequence, [time, batch * beam, ...]; a tensor as it is."""
        if not isinstance(part, tf.TensorArray):
            return part
        if not part.element_shape.rank:
            _log.warning("BeamSearchDecoder: a TensorArray of the cell's state is not sorted: its elements have the "
                         "shape %s", part.element_shape)
            return part
        stacked = part.stack()
        by_beam = tf.reshape(stacked, [tf.shape(stacked)[0], self._batch_size, self._beam_width, -1])
        paths = _paths(parent_ids, tf.cast(tf.reduce_max(lengths, 1), tf.int32))
        is_real = tf.transpose(tf.sequence_mask(lengths, tf.shape(stacked)[0]), [2, 0, 1])
        places = tf.where(is_real, paths, _own_beams(parent_ids))
        return tf.reshape(tf.gather(by_beam, places, batch_dims=2), tf.shape(stacked))

    def _known(self, value: tf.Tensor) -> tf.Tensor:
        """Returns a tensor whose static shape begins with the batch, if that is known, and the beams."""
        value.set_shape(tf.TensorShape([self._static_batch, self._beam_width]).concatenate(value.shape[2:]))
        return value

    def _split(self, part: Any) -> Any:
        """Returns [batch * beam, ...] as [batch, beam, ...]; numbers and TensorArrays as they are."""
        if isinstance(part, tf.TensorArray) or not part.shape.ndims:
            return part
        inner = part.shape[1:]
        split = tf.reshape(part, tf.concat([[self._batch_size, self._beam_width], tf.shape(part)[1:]], 0))
        split.set_shape(tf.TensorShape([None, None]).concatenate(inner))
        return self._known(split)

    def _merge(self, part: Any) -> Any:
        """Returns [batch, beam, ...] as [batch * beam, ...]."""
        if isinstance(part, tf.TensorArray) or part.shape.ndims < 2:
            return part
        merged = tf.reshape(part, tf.concat([[self._batch_size * self._beam_width], tf.shape(part)[2:]], 0))
        size = None if self._static_batch is None else self._static_batch * self._beam_width
        merged.set_shape(tf.TensorShape([size]).concatenate(part.shape[2:]))
        return merged


def _of_parents(part: Any, parents: tf.Tensor) -> Any:
    """Returns what the chosen beams have of a state [batch, beam, ...]; numbers and TensorArrays as they are."""
    if isinstance(part, tf.TensorArray) or part.shape.ndims < 2:
        return part
    return tf.gather(part, parents, batch_dims=1)


def _keep_shape(new: Any, old: Any) -> Any:
    """Returns the new value with the static shape of the old one, which a loop demands."""
    if not isinstance(new, tf.TensorArray):
        new.set_shape(old.shape)
    return new


def _alignments(cell_state: Any) -> tf.Tensor:
    """Returns the alignments of the last step, float [batch, beam, time], the mean over all attentions.

    Raises:
      ValueError: there is no attention.
    """
    states = [cell_state] if isinstance(cell_state, AttentionWrapperState) else [
        state for state in (cell_state if isinstance(cell_state, tuple) else ())
        if isinstance(state, AttentionWrapperState)]
    if not states:
        raise ValueError("BeamSearchDecoder: coverage_penalty_weight must be 0.0 for a cell without an attention")
    means = [tf.add_n(list(state.alignments)) / len(state.alignments) if isinstance(state.alignments, tuple)
             else state.alignments for state in states]
    return tf.add_n(means) / len(means)
