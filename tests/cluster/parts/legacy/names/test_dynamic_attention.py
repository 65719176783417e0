"""DynamicAttentionWrapper, as scripts of TensorFlow 1.1 use it."""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.parts.legacy.names import attention, decoding
from ps_train.parts.legacy.names.dynamic_attention import DynamicAttentionWrapper, DynamicAttentionWrapperState
from tests.tensorflow_mode import tf

BATCH, TIME, UNITS = 2, 3, 4
MEMORY = np.linspace(-1.0, 1.0, BATCH * TIME * UNITS).reshape(BATCH, TIME, UNITS).astype(np.float32)


def run(fetches):
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetches)


def test_it_decodes_from_a_state_that_the_script_has_made():
    """The cell's state is the encoder's, and the attention begins with zeros; the outputs are attentions."""
    with tf.Graph().as_default():
        mechanism = attention.BahdanauAttention(UNITS, tf.constant(MEMORY), [3, 2])
        cell = DynamicAttentionWrapper(tf.nn.rnn_cell.LSTMCell(5), mechanism, 6)
        state = DynamicAttentionWrapperState(
            tf.nn.rnn_cell.LSTMStateTuple(tf.ones([BATCH, 5]), tf.ones([BATCH, 5])), tf.zeros([BATCH, 6]))
        helper = decoding.TrainingHelper(tf.ones([BATCH, TIME, 2]), [3, 3])
        outputs, last = decoding.dynamic_decode(decoding.BasicDecoder(cell, helper, state), impute_finished=True)
        names = {variable.op.name for variable in tf.trainable_variables()}
        outputs, last = run([outputs.rnn_output, last])
    assert outputs.shape == (BATCH, TIME, 6) and type(last) is DynamicAttentionWrapperState
    np.testing.assert_array_equal(outputs[:, -1], last.attention)
    assert "decoder/dynamic_attention_wrapper/attention_layer/kernel" in names


@pytest.mark.parametrize("probability", [None, attention.hardmax])
def test_it_is_an_attention_wrapper_with_a_smaller_state(probability):
    """The same output as that of AttentionWrapper with the same variables."""
    with tf.Graph().as_default():
        outputs = []
        for number, kind in enumerate((DynamicAttentionWrapper, attention.AttentionWrapper)):
            with tf.variable_scope("both", reuse=bool(number), auxiliary_name_scope=False):
                mechanism = attention.LuongAttention(UNITS, tf.constant(MEMORY), probability_fn=None if number == 0
                                                     else probability, memory_sequence_length=[3, 2])
                cell = kind(tf.nn.rnn_cell.GRUCell(UNITS), mechanism, 6, name="wrapper", **(
                    {"probability_fn": probability} if number == 0 else {}))
                outputs.append(cell(tf.ones([BATCH, 2]), cell.zero_state(BATCH, tf.float32))[0])
        first, second = run(outputs)
    np.testing.assert_allclose(first, second, rtol=1e-6)
    assert np.abs(first).sum() > 0
