"""Private functions that scripts with cells and attentions of their own import."""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.parts.legacy.names import cell_helpers
from tests.tensorflow_mode import tf

LENGTHS = [3, 1]


class _Doubled(tf.nn.rnn_cell.RNNCell):
    """A cell as of 1.1, which enters its scope itself."""

    state_size = output_size = 2

    def __init__(self):
        pass

    def __call__(self, inputs, state, scope=None):
        with cell_helpers._checked_scope(self, scope or "doubled", reuse=tf.AUTO_REUSE):
            output = inputs * tf.get_variable("weight", [], initializer=tf.constant_initializer(2.0))
        return output, output


def test_a_cell_is_always_called_in_one_scope():
    """Another one is refused; the variables have the names of the scope."""
    with tf.Graph().as_default():
        cell = _Doubled()
        outputs = [cell(tf.ones([1, 2]), tf.zeros([1, 2]))[0] for _ in range(2)]
        assert [variable.op.name for variable in tf.global_variables()] == ["doubled/weight"]
        with tf.variable_scope("other"), pytest.raises(ValueError, match="called in the scope 'doubled' before"):
            cell(tf.ones([1, 2]), tf.zeros([1, 2]))
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            np.testing.assert_array_equal(session.run(outputs), np.full([2, 1, 2], 2.0))


def test_the_rows_of_a_variable_are_those_of_its_shards():
    """The first ones have a row more."""
    with tf.Graph().as_default():
        whole = cell_helpers._get_concat_variable("w", [5, 2], tf.float32, 2)
        assert whole.shape.as_list() == [5, 2]
        assert [(variable.op.name, variable.shape.as_list()) for variable in tf.global_variables()] == [
            ("w_0", [3, 2]), ("w_1", [2, 2])]
        with pytest.raises(ValueError, match="Too many shards"):
            cell_helpers._get_sharded_variable("v", [1, 2], tf.float32, 2)


def test_an_attentions_memory_and_scores_end_with_each_sequence():
    """By the lengths or by a mask; until 1.12 the third argument was another one."""
    memory, scores = np.ones([2, 3, 2], np.float32), np.ones([2, 3], np.float32)
    mask = np.arange(3) < np.array(LENGTHS)[:, None]
    with tf.Graph().as_default(), tf.Session() as session:
        kept = [cell_helpers._prepare_memory(memory, LENGTHS, True),
                cell_helpers._prepare_memory(memory, memory_mask=tf.constant(mask))]
        masked = [cell_helpers._maybe_mask_score(tf.constant(scores), LENGTHS, -np.inf),
                  cell_helpers._maybe_mask_score(tf.constant(scores), memory_mask=tf.constant(mask),
                                                 score_mask_value=-np.inf)]
        for value in session.run(kept):
            np.testing.assert_array_equal(value, np.where(mask[..., None], 1.0, 0.0) * np.ones(2))
        for value in session.run(masked):
            np.testing.assert_array_equal(value, np.where(mask, 1.0, -np.inf))
        assert cell_helpers._maybe_mask_score(scores) is scores
        with pytest.raises(ValueError, match="fully defined inner dims"):
            cell_helpers._prepare_memory(tf.placeholder(tf.float32, [2, 3, None]), LENGTHS, True)


def test_the_outputs_of_a_decoder_begin_with_zeros():
    """Of each size and type."""
    with tf.Graph().as_default(), tf.Session() as session:
        zeros = session.run(cell_helpers._create_zero_outputs((4, tf.TensorShape([])), (tf.float32, tf.int32), 2))
    assert [(value.shape, value.dtype.name) for value in zeros] == [((2, 4), "float32"), ((2,), "int32")]
