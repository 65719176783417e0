"""tf.contrib.seq2seq, tf.contrib.legacy_seq2seq and tf.contrib.crf."""

from __future__ import annotations

import tensorflow as tf
from shared import floats, ids, shares

R, S, OLD, CRF = tf.contrib.rnn, tf.contrib.seq2seq, tf.contrib.legacy_seq2seq, tf.contrib.crf


def table():
    return tf.get_variable("table", [6, 4])


def teacher():
    return S.TrainingHelper(floats(2, 5, 4), tf.constant([3, 5]))


def decode(cell, helper, output_layer=None, **options):
    decoder = S.BasicDecoder(cell, helper, cell.zero_state(2, tf.float32), output_layer)
    outputs, state, lengths = S.dynamic_decode(decoder, maximum_iterations=6, **options)
    return [outputs.rnn_output, outputs.sample_id, state, lengths]


def attend(kind, **options):
    def build():
        attention = getattr(S, kind)(4, floats(2, 6, 4), memory_sequence_length=tf.constant([4, 6]))
        return decode(S.AttentionWrapper(R.GRUCell(4), attention, attention_layer_size=3, **options), teacher())
    return build


def attend_twice():
    mechanisms = [S.LuongAttention(4, floats(2, 6, 4), scale=True),
                  S.BahdanauAttention(3, floats(2, 6, 4), normalize=True)]
    return decode(S.AttentionWrapper(R.BasicLSTMCell(4), mechanisms, attention_layer_size=[3, 2]), teacher())


def search(cell, penalty):
    decoder = S.BeamSearchDecoder(cell, table(), tf.constant([1, 1]), 2, cell.zero_state(6, tf.float32), 3,
                                  output_layer=tf.layers.Dense(6, name="o"), length_penalty_weight=penalty)
    outputs, _, lengths = S.dynamic_decode(decoder, maximum_iterations=5)
    return [outputs.predicted_ids, outputs.beam_search_decoder_output.scores, lengths]


def search_attending():
    memory = S.tile_batch(floats(2, 6, 4), 3)
    return search(S.AttentionWrapper(R.GRUCell(4), S.LuongAttention(4, memory), attention_layer_size=3), 0.0)


def encoded():
    return tf.unstack(ids(6, 5, 2, dtype="int32"))


def sequence():
    return tf.unstack(floats(3, 2, 4))


CASES = {
    "training": lambda: decode(R.GRUCell(4), teacher()),
    "imputed": lambda: decode(R.GRUCell(4), teacher(), impute_finished=True),
    "time_major": lambda: decode(R.GRUCell(4), S.TrainingHelper(floats(5, 2, 4), tf.constant([3, 5]), time_major=True),
                                 output_time_major=True),
    "greedy": lambda: decode(R.GRUCell(4), S.GreedyEmbeddingHelper(table(), tf.constant([1, 1]), 2),
                             tf.layers.Dense(6, use_bias=False, name="o")),
    "inference": lambda: decode(R.GRUCell(4), S.InferenceHelper(
        lambda outputs: outputs, [4], tf.float32, floats(2, 4), lambda sample: tf.reduce_sum(sample, 1) > 9)),
    "bahdanau": attend("BahdanauAttention"), "luong": attend("LuongAttention"),
    "luong_cell": attend("LuongAttention", output_attention=False),
    "bahdanau_monotonic": attend("BahdanauMonotonicAttention"), "luong_monotonic": attend("LuongMonotonicAttention"),
    "two_mechanisms": attend_twice,
    "beam_search": lambda: search(R.GRUCell(4), 0.6), "beam_search_attending": search_attending,
    "loss": lambda: [
        S.sequence_loss(floats(2, 5, 6), ids(6, 2, 5), tf.ones([2, 5])),
        S.sequence_loss(floats(2, 5, 6), ids(6, 2, 5), shares(2, 5), average_across_timesteps=False)],
    "small": lambda: [
        S.tile_batch(floats(2, 3), 3), S.hardmax(floats(2, 3)), S.safe_cumprod(shares(2, 3), axis=1),
        *(S.monotonic_attention(shares(2, 4), tf.nn.softmax(floats(2, 4)), mode)
          for mode in ("recursive", "parallel", "hard"))],
    "rnn_decoder": lambda: OLD.rnn_decoder(sequence(), floats(2, 4), R.GRUCell(4)),
    "basic": lambda: OLD.basic_rnn_seq2seq(sequence(), sequence(), R.GRUCell(4)),
    "tied": lambda: OLD.tied_rnn_seq2seq(sequence(), sequence(), R.GRUCell(4)),
    "embedding": lambda: OLD.embedding_rnn_seq2seq(encoded(), encoded(), R.GRUCell(4), 6, 6, 3),
    "embedding_fed": lambda: OLD.embedding_rnn_seq2seq(
        encoded(), encoded(), R.GRUCell(4), 6, 6, 3, feed_previous=True),
    "attention_decoder": lambda: OLD.attention_decoder(sequence(), floats(2, 4), floats(2, 5, 4), R.GRUCell(4)),
    "embedding_attention": lambda: OLD.embedding_attention_seq2seq(
        encoded(), encoded(), R.GRUCell(4), 6, 6, 3, num_heads=2, initial_state_attention=True, feed_previous=True),
    "old_loss": lambda: [
        OLD.sequence_loss(tf.unstack(floats(3, 2, 6)), tf.unstack(ids(6, 3, 2)), [tf.ones([2])] * 3),
        OLD.sequence_loss_by_example(tf.unstack(floats(3, 2, 6)), tf.unstack(ids(6, 3, 2)), tf.unstack(shares(3, 2)))],
    "crf": lambda: [
        CRF.crf_log_likelihood(floats(2, 5, 3), ids(3, 2, 5, dtype="int32"), tf.constant([3, 5])),
        CRF.crf_log_norm(floats(2, 5, 3), tf.constant([3, 5]), floats(3, 3)),
        CRF.crf_decode(floats(2, 5, 3), floats(3, 3), tf.constant([3, 5])),
        CRF.crf_multitag_sequence_score(floats(2, 5, 3), floats(2, 5, 3) > 0, tf.constant([3, 5]), floats(3, 3))],
}
