"""The layers of tf.contrib.cudnn_rnn, against cuDNN's equations in numpy."""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.parts.legacy.names import cudnn_rnn
from tests.tensorflow_mode import tf

TIME, BATCH, SIZE, UNITS, LAYERS = 5, 3, 2, 4, 2
LENGTHS = [5, 2, 3]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm_step(v, x, state):
    h, c = state
    i, j, f, o = np.split(np.concatenate([x, h]) @ v["kernel"] + v["bias"], 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(j)
    return sigmoid(o) * np.tanh(c), c


def gru_step(v, x, state):
    h, = state
    r, i = np.split(sigmoid(np.concatenate([x, h]) @ v["gates/kernel"] + v["gates/bias"]), 2)
    projected = {name: part @ v[f"candidate/{name}_projection/kernel"] + v[f"candidate/{name}_projection/bias"]
                 for name, part in (("input", x), ("hidden", h))}
    return ((1 - i) * np.tanh(projected["input"] + r * projected["hidden"]) + i * h,)


def simple_step(activation):
    return lambda v, x, state: (activation(np.concatenate([x, state[0]]) @ v["kernel"] + v["bias"]),)


KINDS = {cudnn_rnn.CudnnLSTM: (lstm_step, "cudnn_lstm", "cudnn_compatible_lstm_cell"),
         cudnn_rnn.CudnnGRU: (gru_step, "cudnn_gru", "cudnn_compatible_gru_cell"),
         cudnn_rnn.CudnnRNNTanh: (simple_step(np.tanh), "cudnn_rnn_tanh", "basic_rnn_cell"),
         cudnn_rnn.CudnnRNNRelu: (simple_step(lambda x: np.maximum(x, 0)), "cudnn_rnn_relu", "basic_rnn_cell")}


def by_numpy(layer, values, inputs, state, lengths):
    """Returns outputs and state, one example after the other."""
    step, name, cell = KINDS[type(layer)]
    ways = [""] if layer.num_dirs == 1 else ["fw", "bw"]
    last = [np.array(part) for part in state]
    for index in range(layer.num_layers):
        outputs = np.zeros((*inputs.shape[:2], UNITS * len(ways)))
        for number, way in enumerate(ways):
            scope = name + (f"/stack_bidirectional_rnn/cell_{index}/bidirectional_rnn/{way}/{cell}/" if way else
                            f"/rnn/multi_rnn_cell/cell_{index}/{cell}/")
            own = {name.removeprefix(scope): value for name, value in values.items() if name.startswith(scope)}
            place = index * len(ways) + number
            for example, length in enumerate(lengths):
                now = tuple(part[place, example] for part in state)
                for time in range(length)[::-1] if way == "bw" else range(length):
                    now = step(own, inputs[time, example], now)
                    outputs[time, example, number * UNITS:(number + 1) * UNITS] = now[0]
                for part, value in zip(last, now):
                    part[place, example] = value
        inputs = outputs
    return inputs, last


@pytest.mark.parametrize("direction", ["unidirectional", "bidirectional"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_layers_compute_what_cudnn_computes(kind, direction):
    """With a first state and lengths, whose rest is zero; the variables have the names of TF1's checkpoints."""
    random = np.random.default_rng(0)
    with tf.Graph().as_default(), tf.Session() as session:
        layer = kind(LAYERS, UNITS, direction=direction, bias_initializer=tf.random_uniform_initializer(seed=1))
        shapes = layer.state_shape(BATCH)
        inputs, state = random.normal(size=(TIME, BATCH, SIZE)), [random.normal(size=shape) for shape in shapes]
        outputs, last = layer(inputs, tuple(state), sequence_lengths=LENGTHS)
        session.run(tf.global_variables_initializer())
        values = {variable.op.name: session.run(variable) for variable in layer.variables}
        expected, expected_last = by_numpy(layer, values, inputs, state, LENGTHS)
        np.testing.assert_allclose(session.run(outputs), expected, atol=1e-5)
        np.testing.assert_allclose(session.run(last), expected_last, atol=1e-5)
        by_batch, _ = layer(inputs.swapaxes(0, 1), tuple(part.swapaxes(0, 1) for part in state), LENGTHS, False)
        np.testing.assert_allclose(session.run(by_batch).swapaxes(0, 1), expected, atol=1e-5)
        whole, _ = layer(inputs)
        zeros = [np.zeros(shape) for shape in shapes]
        np.testing.assert_allclose(
            session.run(whole), by_numpy(layer, values, inputs, zeros, [TIME] * BATCH)[0], atol=1e-5)
        assert len(tf.trainable_variables()) == len(layer.variables) == len(values)


@pytest.mark.parametrize("is_built", [False, True])
@pytest.mark.parametrize(("kind", "cell"), [
    (cudnn_rnn.CudnnLSTM, cudnn_rnn.CudnnCompatibleLSTMCell), (cudnn_rnn.CudnnGRU, cudnn_rnn.CudnnCompatibleGRUCell)])
def test_the_compatible_cells_restore_what_the_layers_saved(kind, cell, is_built, tmp_path):
    """In a MultiRNNCell, in the scope of the layer; one that was built before it was called has none."""
    inputs = np.random.default_rng(0).normal(size=(TIME, BATCH, SIZE)).astype(np.float32)
    with tf.Graph().as_default(), tf.Session() as session, tf.variable_scope("model"):
        layer = kind(LAYERS, UNITS)
        if is_built:
            layer.build([None, None, SIZE])
        outputs, _ = layer(inputs)
        session.run(tf.global_variables_initializer())
        path, expected = tf.train.Saver().save(session, str(tmp_path / "ckpt")), session.run(outputs)
    scope = "model" if is_built else f"model/{KINDS[kind][1]}"
    with tf.Graph().as_default(), tf.Session() as session, tf.variable_scope(scope):
        cells = tf.nn.rnn_cell.MultiRNNCell([cell(UNITS) for _ in range(LAYERS)])
        outputs, _ = tf.nn.dynamic_rnn(cells, tf.constant(inputs), dtype=tf.float32, time_major=True)
        tf.train.Saver().restore(session, path)
        np.testing.assert_allclose(session.run(outputs), expected, atol=1e-5)


def test_layers_of_one_scope_have_variables_of_their_own():
    """The second one's name has a number; one that is made again where variables are reused has the first one's."""
    with tf.Graph().as_default():
        inputs = tf.zeros([TIME, BATCH, SIZE])
        with tf.variable_scope("model"):
            layers = [cudnn_rnn.CudnnLSTM(1, UNITS, name=name) for name in (None, None, "awesome")]
            for layer in [*layers, layers[0]]:
                layer(inputs)
        with tf.variable_scope("model", reuse=True):
            cudnn_rnn.CudnnLSTM(1, UNITS)(inputs)
        cudnn_rnn.CudnnGRU(1, UNITS)(inputs, scope="own")
        assert {variable.op.name.partition("/rnn/")[0] for variable in tf.global_variables()} == {
            "model/cudnn_lstm", "model/cudnn_lstm_1", "model/awesome", "own"}


def test_each_gate_is_initialised_by_itself_and_dropout_is_between_the_layers():
    """Glorot's bound for [4, 2] is 1: over the whole kernel [6, 16] it would be lower. Inference has no dropout."""
    with tf.Graph().as_default(), tf.Session() as session:
        layer = cudnn_rnn.CudnnLSTM(LAYERS, UNITS, dropout=0.5, kernel_initializer=tf.ones_initializer())
        inputs = tf.ones([TIME, BATCH, SIZE])
        training, inference, again = (layer(inputs, training=is_on)[0] for is_on in (True, False, False))
        session.run(tf.global_variables_initializer())
        assert session.run(layer.variables[0]).tolist() == np.ones((SIZE + UNITS, 4 * UNITS)).tolist()
        values = session.run([training, inference, again])
        assert (values[1] == values[2]).all() and not (values[0] == values[1]).all()
    with tf.Graph().as_default(), tf.Session() as session:
        layer = cudnn_rnn.CudnnLSTM(1, UNITS, seed=1)
        layer.build([None, None, SIZE])
        session.run(tf.global_variables_initializer())
        kernel = np.abs(session.run(layer.variables[0]))
        assert 0.6 < kernel[:SIZE].max() <= 1 and kernel[SIZE:].max() <= (6 / (2 * UNITS)) ** 0.5


def test_what_the_layers_cannot_do_is_refused():
    """In one line, when the layer is made."""
    with pytest.raises(NotImplementedError, match="got 'skip_input'; ps_train has linear_input only"):
        cudnn_rnn.CudnnGRU(1, 2, input_mode="skip_input")
    with pytest.raises(ValueError, match="got 'both'; allowed: unidirectional, bidirectional"):
        cudnn_rnn.CudnnGRU(1, 2, direction="both")
