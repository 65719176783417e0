"""Cells around a cell, stacks of layers, and the models of tf.contrib.legacy_seq2seq."""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.parts.legacy.names import gated_cells, lstm_cells, private, rnn, seq2seq
from tests.tensorflow_mode import tf

BATCH, STEPS, SYMBOLS = 3, 3, 6


def test_projections_around_a_cell_change_the_sizes_of_input_and_output():
    """[3, 5] goes into a cell of 2 units as [3, 4], and its output comes out as [3, 7]."""
    with tf.Graph().as_default():
        cell = rnn.OutputProjectionWrapper(rnn.InputProjectionWrapper(tf.nn.rnn_cell.GRUCell(2), 4), 7)
        outputs, state = tf.nn.dynamic_rnn(cell, tf.ones([BATCH, STEPS, 5]), dtype=tf.float32)
        assert outputs.shape.as_list() == [BATCH, STEPS, 7] and state.shape.as_list() == [BATCH, 2]
        names = {variable.op.name.partition("/")[2]: variable.shape.as_list() for variable in tf.global_variables()}
        assert names["output_projection_wrapper/input_projection_wrapper/kernel"] == [5, 4]
        assert names["output_projection_wrapper/kernel"] == [2, 7]


def test_a_projection_is_called_again_with_the_same_variables():
    """In a loop of the script, and in another scope; a second one has a number."""
    with tf.Graph().as_default():
        cells = [rnn.OutputProjectionWrapper(tf.nn.rnn_cell.GRUCell(2), 7) for _ in range(2)]
        for cell in cells:
            state = cell.zero_state(BATCH, tf.float32)
            for scope in ("", "again", "again"):
                with tf.variable_scope(scope or tf.get_variable_scope()):
                    _, state = cell(tf.ones([BATCH, 5]), state)
        reused = rnn.OutputProjectionWrapper(cells[0]._cell, 7, reuse=True)
        reused(tf.ones([BATCH, 5]), reused.zero_state(BATCH, tf.float32))
        assert {variable.op.name.partition("/")[0] for variable in tf.global_variables()} == {
            "output_projection_wrapper", "output_projection_wrapper_1"}


def test_a_highway_goes_past_the_cell():
    """By a gate for both ways, or one for each; its variables are in the scope around."""
    inputs = np.array([[1.0, -2.0], [0.5, 3.0]], np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        for is_coupled in (True, False):
            with tf.variable_scope(f"net{is_coupled}", initializer=tf.constant_initializer(0.3)):
                cell = rnn.HighwayWrapper(tf.nn.rnn_cell.GRUCell(2), is_coupled, carry_bias_init=0.5)
                output, state = cell(tf.constant(inputs), cell.zero_state(2, tf.float32))
            session.run(tf.global_variables_initializer())
            mixed, inner = session.run([output, state])  # a GRU's state is its output
            carry = 1 / (1 + np.exp(-(inputs @ np.full((2, 2), 0.3) + 0.5)))
            transform = 1 - carry if is_coupled else 1 / (1 + np.exp(-(inputs @ np.full((2, 2), 0.3) - 0.5)))
            np.testing.assert_allclose(mixed, inputs * carry + inner * transform, rtol=1e-5)
        assert "netTrue/carry_w" in {variable.op.name for variable in tf.global_variables()}


@pytest.mark.parametrize("compile_stateful", [False, True])
def test_a_compiled_cell_is_the_cell(compile_stateful):
    """The same outputs and variables; operations with a state are compiled if the script wants it."""
    with tf.Graph().as_default() as graph, tf.Session() as session:
        outputs = []
        for scope, cell in (("plain", tf.nn.rnn_cell.LSTMCell(3)),
                            ("compiled", rnn.CompiledWrapper(tf.nn.rnn_cell.LSTMCell(3), compile_stateful))):
            with tf.variable_scope(scope, initializer=tf.constant_initializer(0.3)):
                outputs.append(tf.nn.dynamic_rnn(cell, tf.ones([2, 5, 4]), dtype=tf.float32)[0])
        names = {variable.op.name.partition("/")[2] for variable in tf.global_variables()}
        assert len(names) == 2 and len(tf.global_variables()) == 4
        session.run(tf.global_variables_initializer())
        np.testing.assert_allclose(*session.run(outputs), rtol=1e-5)
        compiled = {op.type for op in graph.get_operations() if "_XlaCompile" in op.node_def.attr
                    and op.get_attr("_XlaCompile")}
        assert "MatMul" in compiled and ("ReadVariableOp" in compiled) == compile_stateful


@pytest.mark.parametrize("make", [
    lambda: gated_cells.UGRNNCell(4), lambda: gated_cells.IntersectionRNNCell(4),
    lambda: lstm_cells.LayerNormLSTMCell(4), lambda: lstm_cells.LayerNormLSTMCell(4, layer_norm=True),
    lambda: lstm_cells.WeightNormLSTMCell(4), lambda: rnn.InputProjectionWrapper(gated_cells.UGRNNCell(4), 4),
    lambda: rnn.OutputProjectionWrapper(gated_cells.UGRNNCell(4), 4),
    lambda: rnn.AttentionCellWrapper(gated_cells.UGRNNCell(4), 2)])
def test_a_partitioner_divides_the_kernel_and_not_the_bias(make):
    """As in TensorFlow 1; the outputs are those of whole kernels."""
    with tf.Graph().as_default(), tf.Session() as session:
        outputs = []
        for scope, partitioner in (("whole", None), ("parts", tf.fixed_size_partitioner(2))):
            with tf.variable_scope(scope, initializer=tf.constant_initializer(0.3), partitioner=partitioner):
                outputs.append(tf.nn.dynamic_rnn(make(), tf.ones([2, STEPS, 4]), dtype=tf.float32)[0])
        session.run(tf.global_variables_initializer())
        np.testing.assert_allclose(*session.run(outputs), rtol=1e-5)
        names = [variable.op.name for variable in tf.global_variables("parts")]
    assert any(name.endswith("kernel/part_1") for name in names)
    assert any(name.endswith("/bias") for name in names) and not any("bias/part" in name for name in names)


def test_a_linear_layer_of_private_names_has_a_whole_bias():
    """The variables of the scope around keep their partitioner."""
    with tf.Graph().as_default(), tf.variable_scope("net", partitioner=tf.fixed_size_partitioner(2)):
        private._Linear([tf.ones([2, 4])], 6, True)
        tf.get_variable("next", [2])
        assert [variable.op.name for variable in tf.global_variables()] == [
            "net/kernel/part_0", "net/kernel/part_1", "net/bias", "net/next/part_0", "net/next/part_1"]


@pytest.mark.parametrize("is_tuple", [True, False])
def test_attention_to_the_last_outputs(is_tuple):
    """Three steps with a memory of two outputs, beside numpy; the state may be one tensor."""
    inputs = np.random.default_rng(2).normal(size=(3, 2, 3)).astype(np.float32)  # [time, batch, size]
    with tf.Graph().as_default(), tf.Session() as session:
        with tf.variable_scope("net", initializer=tf.random_normal_initializer(seed=4)):
            cell = rnn.AttentionCellWrapper(
                tf.nn.rnn_cell.GRUCell(4), 2, attn_size=5, attn_vec_size=6, state_is_tuple=is_tuple)
            outputs, _ = tf.nn.dynamic_rnn(cell, tf.constant(inputs), time_major=True, dtype=tf.float32)
        session.run(tf.global_variables_initializer())
        results, v = session.run([outputs, {variable.op.name: variable for variable in tf.global_variables()}])
    scope = "net/rnn/attention_cell_wrapper/"

    def product(values, name):
        return np.concatenate(values, 1) @ v[f"{scope}{name}kernel"] + v[f"{scope}{name}bias"]

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))
    h, attended, past = np.zeros((2, 4)), np.zeros((2, 5)), np.zeros((2, 2, 5))
    for x, result in zip(inputs, results):
        x = product([x, attended], "")
        r, u = np.split(sigmoid(product([x, h], "gru_cell/gates/")), 2, 1)
        h = u * h + (1 - u) * np.tanh(product([x, r * h], "gru_cell/candidate/"))
        fit = np.tanh(past @ v[scope + "attention/attn_w"][0, 0] + product([h], "attention/")[:, np.newaxis])
        scores = np.exp((fit * v[scope + "attention/attn_v"]).sum(2))
        attended = ((scores / scores.sum(1, keepdims=True))[:, :, np.newaxis] * past).sum(1)
        output = product([h, attended], "attn_output_projection/")
        past = np.concatenate([past[:, 1:], output[:, np.newaxis]], 1)
        np.testing.assert_allclose(result, output, rtol=1e-3, atol=1e-4)


def test_stacked_bidirectional_layers_see_both_ways_of_the_layer_before():
    """The second layer's input is as wide as both outputs of the first."""
    with tf.Graph().as_default():
        def cells():
            return [tf.nn.rnn_cell.GRUCell(2), tf.nn.rnn_cell.GRUCell(5)]
        outputs, forward, backward = rnn.stack_bidirectional_dynamic_rnn(
            cells(), cells(), tf.ones([BATCH, STEPS, 3]), dtype=tf.float32)
        assert outputs.shape.as_list() == [BATCH, STEPS, 10]
        assert [state.shape.as_list() for state in (*forward, *backward)] == [[3, 2], [3, 5], [3, 2], [3, 5]]
        lists, _, _ = rnn.stack_bidirectional_rnn(cells(), cells(), [tf.ones([BATCH, 3])] * 2, dtype=tf.float32,
                                                  scope="lists")
        assert [output.shape.as_list() for output in lists] == [[3, 10], [3, 10]]
        with pytest.raises(ValueError, match="of one length, at least 1; got 0 and 0"):
            rnn.stack_bidirectional_dynamic_rnn([], [], tf.ones([BATCH, STEPS, 3]))


@pytest.mark.parametrize("feeds_itself", [False, "tensor"])
def test_a_model_with_buckets_learns_to_repeat_its_input(feeds_itself):
    """Both buckets have the same variables, whether the cell is made once or for each; their losses fall."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(1)
        symbols = [tf.constant(row) for row in np.random.default_rng(0).integers(1, SYMBOLS, (STEPS, BATCH))]
        cell = tf.nn.rnn_cell.MultiRNNCell([tf.nn.rnn_cell.GRUCell(8)])
        feed_previous = tf.constant(False) if feeds_itself else False

        def model(encoder_inputs, decoder_inputs):
            return seq2seq.embedding_attention_seq2seq(
                encoder_inputs, decoder_inputs, cell, SYMBOLS, SYMBOLS, 5, feed_previous=feed_previous)
        starts = [tf.zeros_like(symbols[0]), *symbols[:-1]]
        outputs, losses = seq2seq.model_with_buckets(
            symbols, starts, symbols, [tf.ones([BATCH])] * STEPS, [(2, 2), (STEPS, STEPS)], model)
        assert [len(output) for output in outputs] == [2, STEPS]
        assert len({variable.op.name for variable in tf.trainable_variables()}) == len(tf.trainable_variables()) == 20
        step = tf.train.AdamOptimizer(0.05).minimize(losses[0] + losses[1])
        session.run(tf.global_variables_initializer())
        before = session.run(losses)
        for _ in range(30):
            session.run(step)
        assert all(after < 0.3 * first for after, first in zip(session.run(losses), before))


def test_the_variables_have_the_names_of_checkpoints_of_tensorflow_1():
    """Those that public scripts read from such checkpoints by name."""
    with tf.Graph().as_default():
        symbols = [tf.zeros([BATCH], tf.int32)] * 2
        for model in (seq2seq.embedding_rnn_seq2seq, seq2seq.embedding_attention_seq2seq):
            model(symbols, symbols, tf.nn.rnn_cell.GRUCell(4), SYMBOLS, SYMBOLS, 5)
        attention = "embedding_attention_seq2seq/embedding_attention_decoder"
        assert {
            "embedding_rnn_seq2seq/rnn/embedding_wrapper/embedding",
            "embedding_rnn_seq2seq/embedding_rnn_decoder/rnn_decoder/output_projection_wrapper/bias",
            "embedding_attention_seq2seq/rnn/embedding_wrapper/embedding", f"{attention}/embedding",
            f"{attention}/attention_decoder/AttnW_0", f"{attention}/attention_decoder/AttnV_0",
            f"{attention}/attention_decoder/kernel",
        } <= {variable.op.name for variable in tf.global_variables()}


def test_a_tied_model_shares_its_variables_and_a_model_of_many_decoders_has_each_by_name():
    """The variables of TensorFlow 1.15; a tensor chooses, when the graph runs, what a bool chooses before."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(1)
        symbols, is_fed = [tf.constant([1, 2, 3])] * 2, tf.placeholder(tf.bool, [])
        cells = {name: tf.nn.rnn_cell.GRUCell(3) for name in "abc"}
        tied, _ = seq2seq.embedding_tied_rnn_seq2seq(symbols, symbols, cells["c"], SYMBOLS, 3, 4, feed_previous=is_fed)
        many, states = seq2seq.one2many_rnn_seq2seq(
            symbols, {"a": symbols, "b": symbols * 2}, tf.nn.rnn_cell.GRUCell(3), {name: cells[name] for name in "ab"},
            SYMBOLS, {"a": 4, "b": 5}, 3, feed_previous=is_fed)
        assert [len(many[name]) for name in "ab"] == [2, 4] and states["b"].shape.as_list() == [BATCH, 3]
        assert [tied[1].shape[1], many["b"][3].shape[1]] == [4, 5]
        names = {variable.op.name for variable in tf.global_variables()}
        assert len([name for name in names if name.startswith("embedding_tied")]) == 7
        assert {"embedding_tied_rnn_seq2seq/embedding", "one2many_rnn_seq2seq/rnn/embedding_wrapper/embedding",
                "embedding_tied_rnn_seq2seq/combined_tied_rnn_seq2seq/tied_rnn_seq2seq/output_projection_wrapper/bias",
                "one2many_rnn_seq2seq/one2many_decoder_b/embedding_rnn_decoder/embedding"} <= names
        session.run(tf.global_variables_initializer())
        for outputs in (tied, many["a"]):
            first, second = (session.run(outputs, {is_fed: value}) for value in (True, False))
            np.testing.assert_array_equal(first[0], second[0])
            assert np.abs(first[1] - second[1]).max() > 0


def test_a_decoder_feeds_its_own_choice():
    """With feed_previous the inputs after the first have no effect."""
    with tf.Graph().as_default(), tf.Session() as session:
        inputs = [tf.placeholder(tf.int32, [BATCH]) for _ in range(3)]
        outputs, _ = seq2seq.embedding_rnn_seq2seq(
            inputs, inputs, tf.nn.rnn_cell.GRUCell(4), SYMBOLS, SYMBOLS, 5, feed_previous=True)
        session.run(tf.global_variables_initializer())
        with tf.variable_scope("again"):
            fixed, _ = seq2seq.embedding_rnn_decoder(
                inputs, tf.zeros([BATCH, 4]), tf.nn.rnn_cell.GRUCell(4), SYMBOLS, 5,
                (tf.ones([4, SYMBOLS]), tf.zeros([SYMBOLS])), feed_previous=True)
        session.run(tf.global_variables_initializer())
        one, other = ({inputs[0]: [1, 2, 3], inputs[1]: row, inputs[2]: row} for row in ([0, 0, 0], [4, 4, 4]))
        np.testing.assert_array_equal(session.run(fixed, one), session.run(fixed, other))
        assert [output.shape.as_list() for output in outputs] == [[BATCH, SYMBOLS]] * 3


def test_losses_of_lists_take_functions_of_both_orders():
    """By name since 1.0; logits and labels by position before. Padding has no part."""
    with tf.Graph().as_default(), tf.Session() as session:
        logits, targets, weights = [tf.ones([2, 3])] * 2, [tf.constant([0, 1])] * 2, [tf.constant([1.0, 0.0])] * 2
        plain = seq2seq.sequence_loss_by_example(logits, targets, weights)
        named, ordered = (
            seq2seq.list_sequence_loss(logits, targets, weights, softmax_loss_function=function) for function in (
                lambda labels, logits: tf.cast(labels, tf.float32) + 2 + 0 * logits[:, 0],
                lambda inputs, ids: tf.cast(ids, tf.float32) + 2 + 0 * inputs[:, 0]))
        np.testing.assert_allclose(session.run(plain), [np.log(3), 0], rtol=1e-6)
        assert session.run([named, ordered]) == [1.0, 1.0]
        with pytest.raises(ValueError, match="they have 2, 2 and 1 steps"):
            seq2seq.list_sequence_loss(logits, targets, weights[:1])


def test_stacked_ways_name_their_variables_as_tensorflow_1_did():
    """So that its checkpoints fit: over a list, no further scope lies in that of a layer; over a tensor, one does."""
    def cells():
        return [tf.nn.rnn_cell.BasicRNNCell(2)]
    with tf.Graph().as_default():
        rnn.stack_bidirectional_rnn(cells(), cells(), [tf.ones([BATCH, 5])], dtype=tf.float32, scope="list")
        rnn.stack_bidirectional_dynamic_rnn(cells(), cells(), tf.ones([BATCH, STEPS, 5]), dtype=tf.float32,
                                            scope="tensor")
        assert {variable.op.name for variable in tf.global_variables() if variable.op.name.endswith("kernel")} == {
            *(f"list/cell_0/{way}/basic_rnn_cell/kernel" for way in ("fw", "bw")),
            *(f"tensor/cell_0/bidirectional_rnn/{way}/basic_rnn_cell/kernel" for way in ("fw", "bw"))}
