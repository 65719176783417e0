"""What a TF1 script finds in modules inside TensorFlow; run as `names_child.py` is."""

from __future__ import annotations

import importlib
import os
import sys

import numpy as np
import pytest

os.environ.update(TF_USE_LEGACY_KERAS="1", TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")

import tensorflow.compat.v1 as real
from tensorflow.python.client import session as inner_session

from ps_train.parts.legacy import autograph_rules, conversion, run
from ps_train.parts.legacy.names import installation, moved, namespace
from ps_train.runtime.waits import Timeouts

real.disable_v2_behavior()
real.enable_resource_variables()
run.replace_classes(Timeouts())
run._prepare_estimator(Timeouts())
installation.install()
tf = sys.modules["tensorflow"]


@pytest.fixture(autouse=True)
def graph():
    with real.Graph().as_default() as graph:
        yield graph


@pytest.mark.parametrize("module", moved.AS_PUBLIC)
def test_a_script_finds_the_object_that_tf_has(module):
    """So a layer of `tensorflow.python.layers` is an instance of `tf.layers.Layer`."""
    found = importlib.import_module(module)
    for name, public in moved.AS_PUBLIC[module].items():
        value = getattr(found, name)
        assert value is namespace.resolve(public, tf)
        assert name.startswith("_") or name in found.__all__ and name in dir(found)


def test_tensorflow_itself_finds_its_own():
    """Its monitored sessions make sessions of the class that ps_train's derives from."""
    from tensorflow.python.client import session  # noqa: PLC0415 (in place of the one above)

    assert session is not inner_session and session.Session is tf.Session
    inside = {"__name__": "tensorflow.python.training.of_this_test", "session": session}
    assert eval("session.Session", inside) is inner_session.Session is not tf.Session
    assert session.BaseSession is inner_session.BaseSession


def test_what_a_script_sets_is_set_for_tensorflow_too(monkeypatch):
    """Some replace a function of TensorFlow by their own."""
    from tensorflow.python.client import session  # noqa: PLC0415

    monkeypatch.setattr(session, "BaseSession", "the script's")
    assert inner_session.BaseSession == session.BaseSession == "the script's"


def test_a_variable_of_the_private_module_takes_the_collections_of_its_time():
    """Copies of tf.metrics' functions make theirs so."""
    from tensorflow.python.ops import variables  # noqa: PLC0415

    variable = variables.Variable(lambda: tf.zeros([2]), trainable=False, collections=["own"], name="total")
    assert tf.get_collection("own") == [variable] and not tf.global_variables()
    assert isinstance(variable, variables.Variable)


def test_sums_take_the_arguments_of_before_1_13():
    """In math_ops; `tf.reduce_sum` still takes them."""
    from tensorflow.python.ops import math_ops  # noqa: PLC0415

    values = np.arange(6.0).reshape(2, 3)
    with tf.Session() as session:
        for name, function in (("sum", np.sum), ("mean", np.mean), ("max", np.max), ("prod", np.prod)):
            ours = getattr(math_ops, f"reduce_{name}")
            np.testing.assert_array_equal(
                session.run(ours(values, reduction_indices=[1], keep_dims=True)), function(values, 1, keepdims=True))
            np.testing.assert_array_equal(session.run(ours(values, 0)), function(values, 0))


@pytest.mark.parametrize("make", ["make_one_shot_iterator", "make_initializable_iterator"])
def test_a_dataset_goes_on_in_another_graph(make):
    """A module makes it, and an Estimator's input function shuffles and batches it; a function captures its own."""
    numbers = tf.data.Dataset.from_generator(lambda: iter(range(6)), tf.int32, [])
    pairs = tf.data.Dataset.range(2)
    with tf.Graph().as_default():
        both = numbers.map(lambda number: 2 * number).shuffle(buffer_size=6).batch(3).repeat(2)
        flat = tf.data.Dataset.range(2).flat_map(lambda _: tf.data.Dataset.range(3).take(1).repeat(2))
        iterators = [getattr(tf.data, make)(dataset) for dataset in (
            both, flat, tf.data.Dataset.zip((pairs.concatenate(pairs), pairs.repeat())))]
        elements = [iterator.get_next() for iterator in iterators]
        with tf.Session() as session:
            if make == "make_initializable_iterator":
                session.run([iterator.initializer for iterator in iterators])
            found = [session.run(elements) for _ in range(4)]
    assert sorted(np.concatenate([batch for batch, _, _ in found[:2]])) == [0, 2, 4, 6, 8, 10]
    assert [one for _, one, _ in found] == [0, 0, 0, 0] and [pair for _, _, pair in found] == [(0, 0), (1, 1)] * 2


def test_a_function_of_a_dataset_takes_constants_of_another_graph():
    """Those at the top of a module; a variable or a placeholder of another graph is an error, as in TF1."""
    mean = tf.constant([1.0, 2.0])
    both = 2 * mean - tf.cast([1, 1], tf.float32)
    fed = tf.placeholder(tf.float32, [])
    with tf.Graph().as_default():
        numbers = tf.data.Dataset.from_tensors(3.0)
        nested = numbers.flat_map(lambda value: tf.data.Dataset.from_tensors(value).map(lambda inner: inner * both))
        element = tf.data.make_one_shot_iterator(tf.data.Dataset.zip((
            numbers.map(lambda value: value - mean), nested))).get_next()
        with tf.Session() as session:
            subtracted, scaled = session.run(element)
        with pytest.raises(ValueError, match="must be from the same graph"):
            numbers.map(lambda value: value + fed)
    assert subtracted.tolist() == [2.0, 1.0] and scaled.tolist() == [3.0, 9.0]


def test_private_names_of_copied_code_are_there():
    """Those that copies of TPUEstimator, of the Saver and of tf.metrics use."""
    from tensorflow.python.ops import metrics_impl, resource_variable_ops  # noqa: PLC0415
    from tensorflow.python.training.saver import BaseSaverBuilder  # noqa: PLC0415

    variable = tf.get_variable("weight", [2], initializer=tf.ones_initializer())
    proto = resource_variable_ops._to_proto_fn(variable)
    assert resource_variable_ops._from_proto_fn(proto).name == variable.name == proto.variable_name
    assert list(BaseSaverBuilder.OpListToDict([variable])) == ["weight"]
    [saveable] = BaseSaverBuilder.SaveableObjectsForOp(variable, "weight")
    assert saveable.name == "weight"
    with tf.Session() as session:
        quotients = metrics_impl._safe_div(tf.constant([6.0, 1.0, 1.0]), tf.constant([2.0, 0.0, -1.0]), "ratio")
        assert session.run(quotients).tolist() == [3.0, 0.0, 0.0]


def test_the_current_variable_scope_is_set_in_its_collection():
    """As prettytensor does, with the key of before 1.6; and `_traceback` of an operation can be set."""
    from tensorflow.python.ops import variable_scope  # noqa: PLC0415

    before = tf.get_variable_scope()
    scopes = tf.get_collection_ref(variable_scope._VARSCOPE_KEY)
    scopes[0] = tf.VariableScope(before.reuse, name="other")
    inside = tf.get_variable("inside", [2])
    scopes[0] = before
    outside = tf.get_variable("outside", [2])
    assert (inside.op.name, outside.op.name) == ("other/inside", "outside")
    with tf.variable_scope("named"):
        assert scopes[0].name == "named"
    [file, line, function, _] = list(outside.op._traceback)[-1]
    assert (type(file), type(line), type(function)) == (str, int, str)
    outside.op._traceback = []


def test_adam_has_the_powers_of_its_betas():
    """Until 1.4 as attributes, which a class of the script's own, with a copy of Adam's code, set itself."""
    class Own(tf.train.AdamOptimizer):
        def __init__(self):
            super().__init__()
            self._beta1_power = "own"

    optimizer = tf.train.AdamOptimizer(beta1=0.5)
    assert optimizer._beta1_power is None
    optimizer.minimize(tf.get_variable("weight_of_adam", []) * 1.0)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run([optimizer._beta1_power, optimizer._beta2_power]) == pytest.approx([0.5, 0.999])
    assert Own()._beta1_power == "own"


def test_a_conversion_function_may_return_a_variable():
    """`tf.assign_add` returned a tensor, which a script's own class of layers may hold."""
    class Layer:
        def __init__(self, tensor):
            self.tensor = tensor

    def tensor_of(layer, name=None, as_ref=False, dtype=None):  # TensorFlow calls it by these names
        assert as_ref is False and (dtype is None or dtype == tf.float32) and not isinstance(name, tf.DType)
        return layer.tensor

    tf.register_tensor_conversion_function(Layer, tensor_of)
    variable = tf.get_variable("v", [2], initializer=tf.ones_initializer())
    with tf.Session() as session:
        session.run(variable.initializer)
        assert session.run(tf.identity(Layer(variable.assign_add([1.0, 2.0])))).tolist() == [2.0, 3.0]
        assert session.run(tf.identity(Layer(variable))).tolist() == [2.0, 3.0]
        assert session.run(tf.convert_to_tensor(Layer(variable), tf.float32, "named")).tolist() == [2.0, 3.0]


def test_contrib_is_found_by_all_its_roads():
    """`import tensorflow.compat.v1 as tf`, and modules of it that were copies of others."""
    import tensorflow.compat.v1 as v1  # noqa: PLC0415
    import tensorflow.compat.v2 as v2  # noqa: PLC0415
    from tensorflow.contrib.all_reduce.python import all_reduce  # noqa: PLC0415
    from tensorflow.contrib.data.python.util import nest  # noqa: PLC0415
    from tensorflow.contrib.keras.python.keras import backend  # noqa: PLC0415
    from tensorflow.contrib.learn.python.learn import monitored_session  # noqa: PLC0415
    from tensorflow.contrib.nccl.python.ops import nccl_ops  # noqa: PLC0415
    from tensorflow.contrib.rnn import core_rnn_cell  # noqa: PLC0415
    from tensorflow.python.keras._impl.keras.layers import core  # noqa: PLC0415

    assert v2.compat.v1 is v1.compat.v1 is v1 and v1.compat.v2 is v2.compat.v2 is v2
    assert v1.contrib.layers.fully_connected is tf.contrib.layers.fully_connected
    assert backend.get_session is tf.keras.backend.get_session and core.Dense is tf.keras.layers.Dense
    assert monitored_session.MonitoredSession is tf.train.MonitoredSession
    assert core_rnn_cell.BasicLSTMCell is tf.nn.rnn_cell.BasicLSTMCell
    assert nccl_ops.all_sum is tf.contrib.nccl.all_sum
    assert nest.flatten((1, (2, 3))) == [1, 2, 3] and callable(all_reduce.build_ring_all_reduce)


def test_a_module_is_also_the_function_of_its_name():
    """In TF1 the function took the module's place in its package; an import of the module's names still found it."""
    from tensorflow.contrib.framework.python.ops import arg_scope  # noqa: PLC0415
    from tensorflow.contrib.framework.python.ops.arg_scope import add_arg_scope  # noqa: PLC0415

    @add_arg_scope
    def scaled(value, by=1):
        return value * by

    with arg_scope([scaled], by=3):
        assert scaled(2) == 6
    assert scaled(2) == 2
    with pytest.raises(TypeError, match="not callable: tf.contrib.framework.python.ops"):
        importlib.import_module("tensorflow.contrib.framework.python.ops")()


def test_ops_of_a_model_of_contrib_learn_are_of_a_class():
    """Libraries ask whether a function has returned one, and make one of what else it has returned."""
    learn = tf.contrib.learn
    ops = learn.ModelFnOps("infer", {"x": tf.constant(1)}, output_alternatives={
        None: (learn.ProblemType.UNSPECIFIED, {"y": tf.constant(2)})})
    assert isinstance(ops, learn.ModelFnOps) and not isinstance((1, 2), learn.ModelFnOps)
    assert list(ops.export_outputs) == ["serving_default"] and list(ops.predictions) == ["x"] and ops.loss is None


def test_a_dimension_may_be_a_float_that_is_a_whole_number():
    """Such as `size / 2`, as the number of a cell's units or in a shape."""
    cell = tf.nn.rnn_cell.GRUCell(6 / 2)
    outputs, _ = tf.nn.dynamic_rnn(cell, tf.placeholder(tf.float32, [None, 5, np.float64(2)]), dtype=tf.float32)
    assert outputs.shape.as_list() == [None, 5, 3]
    with pytest.raises(TypeError, match="2.5"):
        tf.TensorShape([2.5])


def test_what_an_assignment_returns_is_evaluated_as_a_tensor():
    """With what to feed first, and a session behind it; the session alone is taken, too."""
    value = tf.placeholder(tf.float32)
    assigned, added = (method(value) for method in (tf.Variable(1.0).assign, tf.Variable(2.0).assign_add))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert assigned.eval({value: 5}) == 5 and added.eval({value: 3}, session) == 5
        assert added.eval(feed_dict={value: 1}, session=session) == 6
        assert tf.Variable(1.0).assign(7.0).eval(session=session) == tf.Variable(2.0).assign(7.0).eval(session) == 7


def test_a_file_that_is_opened_as_text_and_has_none_gives_bytes(tmp_path):
    """As an image that a script of Python 2 opens with "r", and reads as a whole; text stays text."""
    image, text = tmp_path / "image.jpg", tmp_path / "text.txt"
    image.write_bytes(b"\xff\xd8\xff\n\xe0")
    text.write_text("\u00e9\n")
    assert tf.gfile.FastGFile(str(image), "r").read() == b"\xff\xd8\xff\n\xe0"
    with pytest.raises(UnicodeDecodeError):  # lines would be of both kinds
        tf.gfile.GFile(str(image)).readlines()
    assert tf.gfile.Open(str(text)).read() == "\u00e9\n" and tf.gfile.GFile(str(text), "rb").read() == b"\xc3\xa9\n"
    assert tf.gfile.Open(str(text)).read(2) == "\u00e9"


def test_a_dimension_may_be_the_text_of_a_whole_number():
    """As `FLAGS.layer_sizes.split(",")` has them; TF1 called `int`."""
    assert tf.get_variable("of_text", [2, 3, "4"]).shape.as_list() == [2, 3, 4]
    with pytest.raises(ValueError, match="2.5"):
        tf.TensorShape(["2.5"])


def _by_definition(op):
    definition = op if isinstance(op, tf.NodeDef) else op.node_def
    return "/cpu:0" if definition.op in ("Variable", "VariableV2") else "/gpu:0"


@pytest.mark.parametrize("device", [_by_definition, lambda op: "/cpu:0", tf.train.replica_device_setter(ps_tasks=1)])
def test_a_layer_that_asks_for_its_device_is_made_by_a_device_function(device):
    """Keras shows the function an object that is no operation, and asked a session without the ps for its GPUs."""
    with tf.Graph().as_default(), tf.device(device):
        images = tf.placeholder(tf.float32, [2, 3, 8, 8])
        assert tf.layers.conv2d_transpose(images, 4, 3, data_format="channels_first").shape == [2, 4, 10, 10]


def test_the_first_node_of_a_model_is_its_own_graph():
    """And its calls are the next ones, as in TF1; those of a layer stay."""
    with tf.Graph().as_default():
        layer = tf.keras.layers.Dense(2)
        model = tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=(4,)), layer])
        assert model.get_input_at(0) is model.inputs[0] and model.get_output_at(-1) is model.outputs[0]
        x = tf.keras.Input(batch_shape=(5, 4))
        y = model(x)
        assert model.get_output_at(1) is model.get_output_at(-1) is y and model.get_input_at(1) is x
        assert model.get_output_at(0) is model.outputs[0] and layer.get_output_at(1) is y
        assert (model.get_input_shape_at(0), model.get_output_shape_at(1)) == ((None, 4), (5, 2))
        with pytest.raises(ValueError, match="node"):
            model.get_output_at(2)
        pair = [tf.keras.Input((2,)), tf.keras.Input((3,))]
        both = tf.keras.Model(pair, tf.keras.layers.concatenate(pair))
        assert [a is b for a, b in zip(both.get_input_at(0), pair)] == [True, True]


def test_autograph_calls_functions_of_python_2_as_they_are(tmp_path):
    """It would read their source again, and divide as Python 3 does."""
    half = "def half(number):\n    return number / 2\n"
    (tmp_path / "of_python_2.py").write_text(f"{half}print 'Python 2'\n")
    (tmp_path / "of_python_3.py").write_text(half)
    sys.path.insert(0, str(tmp_path))
    conversion.Conversion(is_python2=False, mapped=(), finds_python2=True).install()
    autograph_rules.leave_python2_alone()
    old, new = map(importlib.import_module, ("of_python_2", "of_python_3"))
    elements = [tf.data.make_one_shot_iterator(tf.data.Dataset.from_tensors(7).map(
        lambda _, module=module: module.half(7))).get_next() for module in (old, new)]
    with tf.Session() as session:
        assert session.run(elements) == [3, 3.5]


def test_a_metric_of_contrib_learn_may_be_a_tensor():
    """Its last value counts, as of the update of a streaming metric."""
    value = tf.placeholder(tf.float32, [])
    pair = tf.metrics.mean(value)
    ops = tf.contrib.learn.ModelFnOps("eval", loss=value, eval_metric_ops={"last": value + 1, "mean": pair})
    assert ops.eval_metric_ops["mean"] is pair
    metric, update = ops.eval_metric_ops["last"]
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        for number in (2.0, 5.0):
            session.run(update, {value: number})
        assert session.run(metric) == 6


def test_a_flag_that_the_script_sets_without_a_definition():
    """As before 1.5; one that nobody has set is still an AttributeError."""
    flags = tf.app.flags.FLAGS
    flags.mark_as_parsed()  # the command line is that of pytest
    flags.set_by_the_script = 5
    flags.set_by_the_script += 1
    assert flags.set_by_the_script == 6 and flags.flag_values_dict()["set_by_the_script"] == 6
    with pytest.raises(AttributeError):
        _ = flags.set_by_nobody
    assert tf.logging._logger.name == "tensorflow"


def test_the_recurrent_networks_are_in_the_private_modules_of_nn_too():
    """They moved from `nn` and `standard_ops`, of which model code takes them by `from ... import`."""
    from tensorflow.python.ops import nn, random_ops, standard_ops  # noqa: PLC0415
    from tensorflow.python.ops.nn import bidirectional_dynamic_rnn, dynamic_rnn, static_rnn  # noqa: PLC0415

    assert (bidirectional_dynamic_rnn, dynamic_rnn, static_rnn) == (
        tf.nn.bidirectional_dynamic_rnn, tf.nn.dynamic_rnn, tf.nn.static_rnn)
    with tf.Session() as session:
        assert session.run(standard_ops.unstack(standard_ops.stack([1, 2]))) == [1, 2]
        assert session.run(random_ops.random_crop(tf.ones([4, 4]), [2, 2])).tolist() == [[1, 1], [1, 1]]
        np.testing.assert_allclose(session.run(nn.l2_normalize_v2([3.0, 4.0])), [0.6, 0.8])
