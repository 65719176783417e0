"""Cells of tf.contrib.rnn, and what runs them."""

from __future__ import annotations

import tensorflow as tf
from shared import floats, ids

R = tf.contrib.rnn


def run(cell, inputs=None):
    """Returns outputs and state of two sequences, of 3 and 5 steps."""
    return tf.nn.dynamic_rnn(cell, floats(2, 5, 4) if inputs is None else inputs, tf.constant([3, 5]),
                             dtype=tf.float32)


def gradients():
    outputs = run(R.BasicLSTMCell(3))
    return [outputs, tf.gradients(outputs[0], tf.trainable_variables())]


CELLS = {
    "BasicRNNCell": lambda: R.BasicRNNCell(3), "GRUCell": lambda: R.GRUCell(3),
    "BasicLSTMCell": lambda: R.BasicLSTMCell(3), "one_state": lambda: R.BasicLSTMCell(3, 0.0, state_is_tuple=False),
    "LSTMCell": lambda: R.LSTMCell(3, use_peepholes=True, num_proj=2, cell_clip=1.0),
    "shards": lambda: R.LSTMCell(6, num_unit_shards=2, num_proj=4, num_proj_shards=2),
    "MultiRNNCell": lambda: R.MultiRNNCell([R.BasicLSTMCell(3), R.GRUCell(2)]),
    "DropoutWrapper": lambda: R.DropoutWrapper(R.GRUCell(3), 1.0, 1.0),
    "ResidualWrapper": lambda: R.ResidualWrapper(R.GRUCell(4)),
    "HighwayWrapper": lambda: R.HighwayWrapper(R.GRUCell(4)),
    "InputProjectionWrapper": lambda: R.InputProjectionWrapper(R.GRUCell(3), 5),
    "OutputProjectionWrapper": lambda: R.OutputProjectionWrapper(R.GRUCell(3), 5),
    "LayerNormBasicLSTMCell": lambda: R.LayerNormBasicLSTMCell(3),
    "without_norm": lambda: R.LayerNormBasicLSTMCell(3, layer_norm=False, forget_bias=0.5),
    "CoupledInputForgetGateLSTMCell": lambda: R.CoupledInputForgetGateLSTMCell(3, use_peepholes=True),
    "LSTMBlockCell": lambda: R.LSTMBlockCell(3), "block_peephole": lambda: R.LSTMBlockCell(3, use_peephole=True),
    "GRUBlockCell": lambda: R.GRUBlockCell(3), "GRUBlockCellV2": lambda: R.GRUBlockCellV2(3),
    "AttentionCellWrapper": lambda: R.AttentionCellWrapper(R.BasicLSTMCell(3), 2),
    "GLSTMCell": lambda: R.GLSTMCell(4, number_of_groups=2), "NASCell": lambda: R.NASCell(3, num_proj=2),
    "UGRNNCell": lambda: R.UGRNNCell(3), "IntersectionRNNCell": lambda: R.IntersectionRNNCell(4),
    "SRUCell": lambda: R.SRUCell(4), "IndRNNCell": lambda: R.IndRNNCell(3), "IndyGRUCell": lambda: R.IndyGRUCell(3),
    "IndyLSTMCell": lambda: R.IndyLSTMCell(3),
    "CudnnCompatibleLSTMCell": lambda: tf.contrib.cudnn_rnn.CudnnCompatibleLSTMCell(3),
    "CudnnCompatibleGRUCell": lambda: tf.contrib.cudnn_rnn.CudnnCompatibleGRUCell(3),
    "DeviceWrapper": lambda: tf.nn.rnn_cell.DeviceWrapper(R.GRUCell(3), "/cpu:0"),
}
CASES = {
    **{name: lambda make=make: run(make()) for name, make in CELLS.items()},
    "EmbeddingWrapper": lambda: run(R.EmbeddingWrapper(R.GRUCell(3), 6, 4), ids(6, 2, 5, 1)),
    "PhasedLSTMCell": lambda: run(R.PhasedLSTMCell(3), (tf.cumsum(tf.ones([2, 5, 1]), 1), floats(2, 5, 4))),
    "fused": lambda: R.LSTMBlockFusedCell(3)(floats(5, 2, 4), dtype=tf.float32, sequence_length=tf.constant([3, 5])),
    "fused_reversed": lambda: R.TimeReversedFusedRNN(R.LSTMBlockFusedCell(3))(floats(5, 2, 4), dtype=tf.float32),
    "fused_adaptor": lambda: R.FusedRNNCellAdaptor(R.GRUCell(3), use_dynamic_rnn=True)(
        floats(5, 2, 4), dtype=tf.float32),
    "both_ways": lambda: tf.nn.bidirectional_dynamic_rnn(
        R.GRUCell(3), R.GRUCell(3), floats(2, 5, 4), dtype=tf.float32),
    "stacked_ways": lambda: R.stack_bidirectional_dynamic_rnn(
        [R.GRUCell(3), R.GRUCell(2)], [R.GRUCell(3), R.GRUCell(2)], floats(2, 5, 4), dtype=tf.float32),
    "stacked_list": lambda: R.stack_bidirectional_rnn(
        [R.GRUCell(3)], [R.GRUCell(3)], tf.unstack(floats(5, 2, 4)), dtype=tf.float32),
    "static": lambda: R.static_rnn(
        R.BasicLSTMCell(3), tf.unstack(floats(5, 2, 4)), dtype=tf.float32, sequence_length=tf.constant([3, 5])),
    "static_ways": lambda: R.static_bidirectional_rnn(
        R.GRUCell(3), R.GRUCell(3), tf.unstack(floats(5, 2, 4)), dtype=tf.float32),
    "gradients": gradients,
    "transposed": lambda: R.transpose_batch_time(floats(2, 3, 4)),
}
