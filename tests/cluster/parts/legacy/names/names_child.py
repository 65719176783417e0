"""What a TF1 script finds at `import tensorflow as tf`. test_names.py runs these tests in a child process, as the names
change the whole process."""
# ruff: noqa: PLC0415 (these tests check imports)

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import json
import math
import os
import pkgutil
import subprocess
import sys

import numpy as np
import pytest

os.environ.update(TF_USE_LEGACY_KERAS="1", TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")

import tensorflow.compat.v1 as real

from ps_train.errors import MissingModuleError, MissingNameError
from ps_train.parts.legacy import estimator
from ps_train.parts.legacy.names import installation, moved, namespace, tables

real.disable_v2_behavior()
real.enable_resource_variables()
real.logging.set_verbosity(real.logging.ERROR)
estimator.install_estimator()
installation.install()
installation.install()  # the second call does nothing
tf = sys.modules["tensorflow"]


def value_of(full):
    """Returns what a name such as "tf.train.Saver" leads to."""
    return functools.reduce(getattr, full.split(".")[1:], tf)


def evaluate(tensors):
    """Returns the values of tensors of the default graph, as lists, with every variable and table initialized."""
    with real.Session() as session:
        session.run([real.global_variables_initializer(), real.local_variables_initializer(),
                     real.tables_initializer()])
        return real.nest.map_structure(
            lambda value: np.asarray(value).astype(str if np.asarray(value).dtype == object else None).tolist(),
            session.run(tensors))


def run_with_queues(session, fetch):
    """Calls a function while the queues of the default graph are filled; returns what it returns."""
    coordinator = tf.train.Coordinator()
    threads = tf.train.start_queue_runners(session, coordinator)
    result = fetch()
    coordinator.request_stop()
    coordinator.join(threads)
    return result


@pytest.fixture
def graph():
    """A default graph for this test only."""
    with tf.Graph().as_default() as graph:
        yield graph


@pytest.fixture
def session(graph):
    """A session in it."""
    with tf.Session() as session:
        yield session


# The beginnings of what needs a package that no extra of ps_train has.
OPTIONAL = {"tensorflow_probability": "tensorflow_probability", "tensorflow_gan": "tensorflow_gan",
            "ps_train.parts.legacy.names.probability": "tensorflow_probability"}


@pytest.mark.parametrize("full", [*tables.TABLES.names, *tables.TABLES.modules])
def test_every_name_leads_somewhere(full):
    """By attribute, and for modules by an import statement as well."""
    value_of(full)
    if full in tables.TABLES.modules:
        importlib.import_module("tensorflow" + full.removeprefix("tf"))
        for source in tables.TABLES.modules[full]:
            package = next((needed for start, needed in OPTIONAL.items() if source.startswith(start)), "tensorflow")
            if importlib.util.find_spec(package):
                namespace.resolve(source, tf)


def test_names_inside_tensorflow_and_numpy_are_there():
    assert [f"{module}.{name}" for module, names in moved.MOVED.items() for name in names
            if not hasattr(importlib.import_module(module), name)] == []
    assert [name for name in tables.NUMPY if not hasattr(np, name)] == []


def test_no_advice_is_for_a_name_that_is_there():
    """Nobody would ever read it."""
    def is_there(full):
        try:
            return value_of(full) is not None
        except AttributeError:
            return False

    assert [full for full in tables.TABLES.advice
            if full not in tables.TABLES.modules and full != "tf.estimator" and is_there(full)] == []


def test_tensorflow_itself_stays_reachable():
    """Its version, compat.v1, compat.v2, the private modules, and TF1's `io` after an import of TF2's."""
    import tensorflow as tf
    import tensorflow.compat.v1 as v1
    import tensorflow.compat.v2 as v2
    import tensorflow.io.gfile
    from tensorflow.python.framework import device, ops

    assert [tf.__version__, tf.VERSION] == [real.__version__] * 2
    assert v1 is real and v2.__name__.startswith("tensorflow") and ops.Graph is tf.Graph
    assert tf.io is not v2.io and tf.io.tf_record_iterator is real.io.tf_record_iterator
    assert tf.logging.__dict__["INFO"] == real.logging.INFO
    assert "tf_keras" in tf.keras.layers.Dense.__module__
    assert {"mul", "Session", "contrib"} <= set(dir(tf))
    assert vars(tf.contrib.rnn)["LSTMCell"] is tf.nn.rnn_cell.LSTMCell and "no_such_cell" not in vars(tf.contrib.rnn)
    assert tf.nn.rnn_cell.GRUCell in vars(tf.contrib.rnn).values()
    spec = device.DeviceSpec.from_string("/job:ps")
    spec.merge_from(device.DeviceSpec.from_string("/task:1"))
    assert spec.to_string() == "/job:ps/task:1"


def test_import_statements_find_what_attributes_find():
    """Modules and names of contrib, Keras, the tutorials and the Estimator's old place."""
    import tensorflow.contrib.layers as layers
    import tensorflow.contrib.slim as slim
    import tensorflow.keras.backend as K  # noqa: N812
    import tf_slim
    from tensorflow import keras
    from tensorflow.contrib import slim as slim_by_from
    from tensorflow.contrib.layers.python.layers import initializers
    from tensorflow.contrib.learn.python.learn import learn_runner
    from tensorflow.contrib.slim.nets import resnet_v1
    from tensorflow.contrib.slim.python.slim.data import tfexample_decoder
    from tensorflow.contrib.training.python.training import hparam
    from tensorflow.examples.tutorials.mnist import input_data, mnist
    from tensorflow.keras.layers import Dense
    from tensorflow.python.estimator import run_config
    from tensorflow.python.keras.preprocessing.sequence import pad_sequences
    from tensorflow.train import SummaryWriter

    assert slim is slim_by_from and slim.conv2d is tf_slim.conv2d
    assert layers.l2_regularizer is tf_slim.l2_regularizer
    assert initializers.xavier_initializer is tf_slim.xavier_initializer
    assert keras.layers.Dense is Dense and SummaryWriter is real.summary.FileWriter
    assert all(map(callable, (K.clear_session, learn_runner.run, resnet_v1.resnet_v1_50, tfexample_decoder.Tensor,
                              hparam.HParams, input_data.read_data_sets, mnist.inference, run_config.RunConfig,
                              pad_sequences)))
    assert [name for name in sys.modules if name.split(".")[0] in ("data", "models")] == []


def test_modules_that_moved_are_imported_by_their_old_names():
    """Those of saved objects, private functions of cells, and one of Python's own."""
    from xml.etree import cElementTree

    from tensorflow.python.ops import rnn_cell
    from tensorflow.python.ops.rnn_cell_impl import _like_rnncell, _state_size_with_prefix
    from tensorflow.python.saved_model.utils_impl import get_variables_path
    from tensorflow.python.training.tracking import graph_view
    from tensorflow.python.training.tracking.data_structures import sticky_attribute_assignment
    from tensorflow.python.training.tracking.tracking import AutoTrackable

    cell = real.nn.rnn_cell.LSTMCell(3)
    assert _like_rnncell(cell) and not _like_rnncell(real.nn.relu) and cElementTree.fromstring("<a/>").tag == "a"
    assert _state_size_with_prefix(cell.state_size, [None, 2]) == ([None, 2, 3], [None, 2, 3])
    assert _state_size_with_prefix(real.TensorShape([4, 5]), [2]) == [2, 4, 5]
    assert rnn_cell.linear is rnn_cell._linear and get_variables_path("x").endswith("variables/variables")
    assert all(map(callable, (graph_view.ObjectGraphView, sticky_attribute_assignment, AutoTrackable)))


@pytest.mark.parametrize(("find", "kind", "start"), [
    (lambda: tf.train.nothing, MissingNameError, "tf.train.nothing is not in TensorFlow 2."),
    (lambda: tf.contrib.labeled_tensor.concat, MissingNameError, "tf.contrib.labeled_tensor is not in"),
    (lambda: __import__("tensorflow.contrib.nothing"), MissingModuleError, "tf.contrib.nothing is not in"),
    (lambda: __import__("tensorflow.contrib.seq2seq", fromlist=["SequenceLoss"]).SequenceLoss,
     MissingModuleError, "tf.contrib.seq2seq.SequenceLoss is not in"),
    (lambda: __import__("tensorflow.nothing"), MissingModuleError, "tf.nothing is not in"),
    (lambda: __import__("tensorflow.mul"), MissingModuleError,
     "tensorflow.mul is no module: write from tensorflow import mul"),
], ids=["attribute", "contrib", "import", "from", "of TensorFlow", "a name"])
def test_a_missing_name_is_one_line_with_the_line_of_the_script(find, kind, start):
    """An AttributeError or ImportError of one line, with what to use instead."""
    with pytest.raises(kind) as caught:
        find()
    message = str(caught.value)
    assert message.startswith(start) and "\n" not in message
    assert "names_child.py:" in message or message == start
    assert ("copy the function" in message) is ("seq2seq" in start)


def test_modules_inside_of_seq2seq_and_crf_have_what_scripts_import():
    """Private names of it, too."""
    from tensorflow.contrib import crf, seq2seq
    from tensorflow.contrib.crf.python.ops.crf import crf_decode
    from tensorflow.contrib.seq2seq.python.ops import beam_search_decoder, decoder, helper, loss
    from tensorflow.contrib.seq2seq.python.ops.attention_wrapper import (
        BahdanauAttention,
        _BaseAttentionMechanism,
        _compute_attention,
    )

    assert crf.crf_decode is crf_decode and issubclass(BahdanauAttention, _BaseAttentionMechanism)
    assert beam_search_decoder.BeamSearchDecoder is seq2seq.BeamSearchDecoder and callable(_compute_attention)
    assert (decoder.dynamic_decode, helper.InferenceHelper, loss.sequence_loss) == (
        seq2seq.dynamic_decode, seq2seq.InferenceHelper, seq2seq.sequence_loss)
    assert callable(seq2seq.gather_tree) and callable(seq2seq.LuongMonotonicAttention)


def test_code_may_ask_whether_a_name_exists():
    assert not hasattr(tf, "nothing") and not hasattr(tf.contrib, "specs") and getattr(tf, "nothing", 3) == 3


def test_a_name_is_located_as_in_tensorflow_1():
    """pydoc.locate looks for a module first, and goes on without one; so does other code that looks for a spec."""
    import pydoc

    assert pydoc.locate("tensorflow.nn.relu") is tf.nn.relu
    assert pydoc.locate("tensorflow.contrib.slim.conv2d") is not None
    assert pydoc.locate("tensorflow.nn.nothing") is importlib.util.find_spec("tensorflow.contrib.nothing") is None
    assert pkgutil.resolve_name("tensorflow.train.AdamOptimizer") is tf.train.AdamOptimizer


@pytest.mark.parametrize(("module", "name"), [
    ("seq2seq", "BahdanauAttention"), ("seq2seq", "BasicDecoderOutput"), ("legacy_seq2seq", "rnn_decoder"),
    ("cudnn_rnn", "CudnnLSTM"), ("seq2seq", "sequence_loss")])
def test_an_import_of_all_names_of_a_module_brings_no_others(module, name):
    """Issue: the script's `tf` was another one after `from tensorflow.contrib.seq2seq import *`."""
    names = {}
    exec(f"from tensorflow.contrib.{module} import *", names)  # `import *` is not allowed in a function
    assert name in names and not {"tf", "Any", "annotations", "collections", "Callable"}.intersection(names)


def test_flags_stand_beside_those_that_the_script_reads_with_getopt(monkeypatch, tmp_path):
    """Issue: -s was refused, and the flags behind its value were not read."""
    script = tmp_path / "script.py"
    script.write_text('for opt, arg in getopt(sys.argv[1:], "s:", ["server="]):\n  if opt in ("-s", "--server"): ...')
    monkeypatch.setattr(sys, "argv", [str(script), "-s", "a:1", "--by_getopt_too=ps"])
    flags, values = tf.app.flags, tf.app.flags.FLAGS
    flags.DEFINE_string("by_getopt_too", "", "")
    values.unparse_flags()
    assert values.by_getopt_too == "ps"
    values.unparse_flags()
    monkeypatch.setattr(sys, "argv", [str(script), "-x", "a:1"])
    with pytest.raises(flags.Error, match="Unknown command line flag 'x'"):
        print(values.by_getopt_too)


def test_a_script_may_define_flags_that_absl_has(monkeypatch):
    """--log_dir, --v and --verbosity are the script's; _parse_flags leaves unknown flags alone."""
    tf.app.flags.DEFINE_string("log_dir", "/logs", "The script's.")
    tf.app.flags.DEFINE_boolean("v", True, "The script's.")
    tf.app.flags.DEFINE_integer("verbosity", 7, "The script's.")
    monkeypatch.setattr(sys, "argv", ["script", "--verbosity=8", "--unknown=1"])
    flags = tf.app.flags.FLAGS
    flags._parse_flags()
    assert (flags.log_dir, flags.v, flags.verbosity) == ("/logs", True, 8)


def test_a_flag_may_be_read_before_all_are_defined(monkeypatch, tmp_path):
    """A module that a script imports reads one at once; a flag that is nowhere in the script stays an error."""
    script = tmp_path / "script.py"
    script.write_text('flags.DEFINE_string("hosts_later", "", "")')
    flags, values = tf.app.flags, tf.app.flags.FLAGS
    flags.DEFINE_integer("classes_now", 10, "")
    values.unparse_flags()
    monkeypatch.setattr(sys, "argv", [str(script), "--hosts_later=a:1", "--classes_now=3"])
    assert values.classes_now == 3
    flags.DEFINE_string("hosts_later", "", "")
    assert values.hosts_later == "a:1"
    values.unparse_flags()
    monkeypatch.setattr(sys, "argv", [str(script), "--hosts_latter=a:1"])
    with pytest.raises(flags.Error, match="hosts_latter"):
        print(values.classes_now)
    monkeypatch.setattr(sys, "argv", ["script"])
    assert values.classes_now == 10


@pytest.mark.parametrize(("kind", "default", "value"), [
    ("integer", np.inf, math.inf), ("integer", 1e6, 1000000), ("integer", np.int64(3), 3), ("integer", "", ""),
    ("float", np.float32(0.5), 0.5), ("string", 5, 5), ("boolean", "maybe", "maybe"), ("list", 7, 7),
])
def test_a_flag_takes_any_default(kind, default, value):
    """As before 1.5; whole numbers become ints."""
    name = f"odd_{kind}_{str(default).replace('.', '')}"
    getattr(tf.app.flags, f"DEFINE_{kind}")(name, default, "")
    assert getattr(tf.app.flags.FLAGS, name) == value


def test_the_command_line_is_still_checked():
    tf.app.flags.DEFINE_enum("kind", "other", ["one"], "")
    tf.app.flags.DEFINE_integer("replaced", np.inf, "")
    tf.app.flags.FLAGS(["script", "--replaced=4"], known_only=True)
    assert (tf.app.flags.FLAGS.kind, tf.app.flags.FLAGS.replaced) == ("other", 4)
    with pytest.raises(Exception, match="kind"):
        tf.app.flags.FLAGS(["script", "--kind=x"])


def test_numpy_prints_whole_arrays_for_a_threshold_of_nan():
    """In set_printoptions by name and by position, and in array2string; 2000 numbers."""
    array = np.zeros(2000)
    np.set_printoptions(threshold=np.nan)
    assert len(str(array).split()) == 2000
    np.set_printoptions(threshold=10)
    assert "..." in str(array)
    assert len(np.array2string(array, threshold=np.nan).split()) == 2000
    np.set_printoptions(None, "nan")
    assert len(str(array).split()) == 2000
    assert (np.in1d([1, 2], [2]).tolist(), np.rank([[1]]), np.NINF) == ([False, True], 2, -math.inf)
    assert [np.asscalar(value) for value in (np.float32(2), np.ones([1, 1]), 3)] == [2, 1, 3]


def test_columns_of_pandas_own_types_reach_the_graph(session):
    """Strings, categories and integers with gaps, by pandas_input_fn; and methods that pandas has removed."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["x", "y"], "own": pandas.array(["x", "y"], "string"),
                              "kind": pandas.Categorical(["b", "a"]), "number": pandas.array([1, 2], "Int64")})
    batch = tf.estimator.inputs.pandas_input_fn(frame, batch_size=2, num_epochs=1, shuffle=False)()
    tensors = {**batch, "constant": tf.constant(frame["text"]),
               "of its dtype": tf.constant(list(frame["own"]), frame["own"].dtype)}
    session.run(tf.local_variables_initializer())
    columns = run_with_queues(session, lambda: session.run(tensors))
    assert {name: np.asarray(value).astype(str).tolist() for name, value in columns.items()} == {
        "text": ["x", "y"], "own": ["x", "y"], "kind": ["b", "a"], "number": ["1", "2"], "constant": ["x", "y"],
        "of its dtype": ["x", "y"]}
    assert frame[["number"]].as_matrix().tolist() == [[1], [2]] and frame.get_value(1, "text") == "y"
    assert len(frame.append({"text": "z"}, ignore_index=True)) == 3


def test_keras_mnist_is_read_from_a_file_that_is_there(tmp_path):
    """Without a download, whatever its hash."""
    np.savez(tmp_path / "own.npz", x_train=[1], y_train=[2], x_test=[3], y_test=[4])
    from keras.datasets import mnist

    assert mnist.load_data is tf.keras.datasets.mnist.load_data
    parts = mnist.load_data(str(tmp_path / "own.npz"))
    assert [[array.tolist() for array in part] for part in parts] == [[[1], [2]], [[3], [4]]]


def test_functions_take_their_old_arguments_and_those_of_1_0(graph):
    """The axis of concat and split comes first or last; reverse takes bools or axes."""
    x, y = tf.constant([[1, 2]]), tf.constant([[3, 4]])
    joined, halves = [[1, 2, 3, 4]], [[[1]], [[2]]]
    assert evaluate([tf.concat(1, [x, y]), tf.concat(concat_dim=1, values=[x, y]), tf.concat([x, y], 0)]) == [
        joined, joined, [[1, 2], [3, 4]]]
    assert evaluate([tf.split(1, 2, x), tf.split(x, 2, 1), tf.split(split_dim=1, num_split=2, value=x)]) == [halves] * 3
    assert evaluate([tf.reverse(x, [False, True]), tf.reverse(x, [1])]) == [[[2, 1]]] * 2
    assert evaluate([tf.pack([x, y]), tf.select([[True, False]], x, y), tf.batch_matmul(x, y, adj_y=True), tf.mul(x, y),
                     tf.sub(x, y)]) == [[[[1, 2]], [[3, 4]]], [[1, 4]], [[11]], [[3, 8]], [[-2, -2]]]


def test_cross_entropies_take_logits_and_labels_by_position(graph):
    """As before 1.0, and by name as since."""
    logits, labels = tf.constant([[1.0, 2.0]]), tf.constant([[0.0, 1.0]])
    by_name = {"logits": logits, "labels": labels}
    softmax = tf.nn.softmax_cross_entropy_with_logits
    values = evaluate([
        softmax(logits, labels), tf.contrib.nn.deprecated_flipped_softmax_cross_entropy_with_logits(logits, labels),
        softmax(**by_name), tf.nn.sparse_softmax_cross_entropy_with_logits(logits, [1]),
        tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=[1])])
    assert values == [pytest.approx([math.log(1 + math.exp(-1))])] * 5
    sigmoid = tf.nn.sigmoid_cross_entropy_with_logits
    assert evaluate([sigmoid(logits, targets=labels), sigmoid(**by_name)]) == [
        [pytest.approx([math.log(1 + math.e), math.log(1 + math.exp(-2))])]] * 2


def test_metrics_and_losses_of_contrib_take_predictions_first(graph):
    """Of predictions 1 1 1 0 and labels 1 0 0 0: accuracy 1/2, precision 1/3, recall 1; log loss of 1/4."""
    predictions, labels, metrics = tf.constant([1, 1, 1, 0]), tf.constant([1, 0, 0, 0]), tf.contrib.metrics
    assert evaluate([
        metrics.streaming_accuracy(predictions, labels)[1], metrics.streaming_precision(predictions, labels)[1],
        metrics.streaming_recall(predictions, labels)[1],
        tf.contrib.losses.log_loss(tf.constant([0.25]), tf.constant([1.0]))]) == pytest.approx(
            [0.5, 1 / 3, 1.0, math.log(4)], abs=1e-5)


def test_tables_of_contrib_lookup_look_up(graph):
    """Strings to positions and back; unknown ones get the default."""
    lookup = tf.contrib.lookup
    positions = lookup.index_table_from_tensor(mapping=tf.constant(["a", "b"]))
    strings = lookup.index_to_string_table_from_tensor(["a", "b"], default_value="?")
    numbers = lookup.HashTable(lookup.KeyValueTensorInitializer(["a"], [7]), -1)
    assert evaluate([positions.lookup(tf.constant(["b", "c", "a"])), numbers.lookup(tf.constant(["a", "z"])),
                     strings.lookup(tf.constant([1, 5], tf.int64))]) == [[1, -1, 0], [7, -1], ["b", "?"]]


def test_a_dataset_takes_the_arguments_of_contrib_data(session):
    """num_threads and output_buffer_size of map, batch_and_drop_remainder."""
    dataset = tf.contrib.data.Dataset.range(4).map(lambda x: x * 2, num_threads=2, output_buffer_size=3)
    dataset = dataset.apply(tf.contrib.data.batch_and_drop_remainder(3))
    ops = tf.contrib.data.python.ops
    dataset = ops.threadpool.override_threadpool(dataset, ops.threadpool.PrivateThreadPool(2, display_name="input"))
    assert dataset.options().threading.private_threadpool_size == 2
    assert ops.prefetching_ops.prefetch_to_device is tf.data.experimental.prefetch_to_device
    assert session.run(dataset.make_one_shot_iterator().get_next()).tolist() == [0, 2, 4]


def test_a_compiled_keras_model_becomes_an_estimator(tmp_path):
    """The Estimator looks for names that tf.keras of TensorFlow 1 does not have."""
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])
    model.compile("sgd", "mse")
    estimator = tf.keras.estimator.model_to_estimator(model, model_dir=str(tmp_path))
    assert isinstance(estimator, tf.estimator.Estimator)


def test_a_global_step_made_by_hand_is_found(graph):
    """None before it is made; then hooks stop at it, though no collection has it."""
    assert tf.train.get_global_step() is None
    step = tf.Variable(0, name="global_step", trainable=False)
    hook = tf.train.StopAtStepHook(last_step=3)
    train_op = tf.assign_add(step, 1)
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        while not session.should_stop():
            last = session.run(train_op)
    assert tf.train.get_global_step() is step and last == 3


def test_every_variable_is_an_instance_of_variable(graph):
    """Resource variables too; a tensor is none."""
    for variable in (tf.Variable(0.0), tf.get_variable("own", [2]), tf.Variable(0.0, use_resource=False)):
        assert isinstance(variable, tf.Variable)
    assert not isinstance(tf.zeros([]), tf.Variable)


def test_an_assignment_in_place_makes_a_tensor_of_a_variable(graph):
    """The variable keeps its value."""
    labels = variable = tf.Variable([3.0, 5.0])
    labels -= 1
    doubled = variable
    doubled *= 2.0
    assert evaluate([labels, doubled, variable]) == [[2, 4], [6, 10], [3, 5]]


def test_the_loss_of_a_regularizer_is_a_tensor(graph):
    """With a name, and half of a half of 25."""
    tf.get_variable("w", initializer=[3.0, 4.0], regularizer=tf.contrib.layers.l2_regularizer(0.5))
    loss, = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
    assert (loss.op.name, evaluate(loss)) == ("w/Regularizer/l2_regularizer", 6.25)


def test_a_queue_takes_its_names_from_a_variable(session):
    """string_input_producer asks `not variable`."""
    file_names = tf.get_variable("names", initializer=["a", "b"], trainable=False)
    dequeued = tf.train.string_input_producer(file_names, shuffle=False, num_epochs=1).dequeue()
    session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
    assert run_with_queues(session, lambda: [session.run(dequeued) for _ in range(2)]) == [b"a", b"b"]


def test_a_slim_model_trains(session):
    """With arg_scope, a regularizer, batch_norm and optimize_loss, which counts the global step."""
    from tensorflow.contrib import slim

    tf.set_random_seed(1)
    with slim.arg_scope([slim.fully_connected], weights_regularizer=slim.l2_regularizer(1e-6)):
        y = slim.fully_connected(tf.constant(np.eye(4, dtype=np.float32)), 1, activation_fn=None)
    y = tf.contrib.layers.batch_norm(y, is_training=True, scale=True)
    loss = tf.losses.mean_squared_error(tf.constant([[0.0], [1.0], [0.0], [1.0]]), y)
    train_op = tf.contrib.layers.optimize_loss(loss, tf.train.get_or_create_global_step(), 0.1, "Adam")
    session.run(tf.global_variables_initializer())
    first_loss = session.run(loss)
    for _ in range(50):
        session.run(train_op)
    assert session.run(loss) < first_loss / 10 and session.run(tf.train.get_global_step()) == 50


@pytest.mark.parametrize(("is_inverse", "expected"), [(False, [-1.0887, 0.0]), (True, [0.0, -1.1547])])
def test_a_generalized_divisive_normalization_trains(session, is_inverse, expected):
    """The gradients of TensorFlow 1.15: below its bound, beta moves upwards only."""
    y = tf.contrib.layers.gdn(
        tf.constant([[[[1.0, -2.0]]]]), inverse=is_inverse, beta_min=0.5, gamma_init=0.25)
    beta, gamma = tf.trainable_variables()
    slopes = tf.gradients(tf.reduce_sum(y), [beta, gamma])
    session.run(tf.global_variables_initializer())
    session.run(beta.assign([0.1, 0.1]))
    np.testing.assert_allclose(session.run(slopes)[0], expected, atol=1e-4)


def test_lstm_block_cell_gives_the_numbers_of_basic_lstm_cell(session):
    """From the same weights; it is LSTMCell today."""
    x = tf.constant(np.arange(12, dtype=np.float32).reshape(2, 3, 2) / 10)
    outputs = []
    for cell_class in (tf.contrib.rnn.BasicLSTMCell, tf.contrib.rnn.LSTMBlockCell):
        with tf.variable_scope(cell_class.__name__, initializer=tf.constant_initializer(0.1)):
            outputs.append(tf.nn.dynamic_rnn(cell_class(4), x, dtype=tf.float32)[0])
    session.run(tf.global_variables_initializer())
    np.testing.assert_allclose(*session.run(outputs), atol=1e-6)


X = np.random.RandomState(0).normal(size=(200, 3)).astype(np.float32)


def test_a_classifier_of_contrib_learn_trains_evaluates_and_predicts(tmp_path, caplog):
    """With arrays and a MetricSpec; it warns of an argument that has no effect, and clips gradients."""
    from tensorflow.contrib import learn

    y = (X.sum(axis=1) > 0).astype(np.int32)
    linear = learn.LinearClassifier(learn.infer_real_valued_columns_from_input(X), model_dir=str(tmp_path),
                                    optimizer=tf.train.FtrlOptimizer(0.5), gradient_clip_norm=5.0,
                                    enable_centered_bias=True)
    assert "LinearClassifier: enable_centered_bias has no effect" in caplog.text
    linear.fit(X, y, steps=60, batch_size=50)
    metrics = linear.evaluate(X, y, metrics={"own": learn.MetricSpec(
        tf.contrib.metrics.streaming_accuracy, prediction_key=learn.PredictionKey.CLASSES)})
    assert metrics["own"] == metrics["accuracy"] > 0.95
    assert list(linear.predict_classes(X[:5])) == y[:5].tolist()


def test_an_experiment_of_contrib_learn_trains_and_evaluates(tmp_path):
    """With a model_fn of contrib.learn."""
    from tensorflow.contrib import layers, learn
    from tensorflow.contrib.learn.python.learn import learn_runner

    def model_fn(features, targets, mode, params):
        predictions = tf.squeeze(tf.matmul(features, tf.get_variable("w", [3, 1])), 1)
        loss = tf.losses.mean_squared_error(targets, predictions)
        train_op = layers.optimize_loss(loss, tf.contrib.framework.get_global_step(), params["rate"], "SGD")
        return learn.ModelFnOps(mode, predictions=predictions, loss=loss, train_op=train_op)

    def input_fn():
        return tf.constant(X), tf.constant(X.sum(axis=1))

    def experiment_fn(run_config, hparams):
        estimator = learn.Estimator(model_fn, config=run_config, params=hparams.values())
        return learn.Experiment(estimator, input_fn, input_fn, train_steps=60, eval_steps=1, eval_delay_secs=0)

    metrics, _ = learn_runner.run(experiment_fn, run_config=learn.RunConfig(model_dir=str(tmp_path)),
                                  hparams=tf.contrib.training.HParams(rate=0.1))
    assert metrics["loss"] < 1e-3 and metrics["global_step"] == 60


def test_worker_0_is_the_chief_of_a_cluster_without_one(monkeypatch):
    """contrib.learn took such a TF_CONFIG; the Estimator does not."""
    from tensorflow.contrib import learn

    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"ps": ["a:1"], "worker": ["b:1", "c:2"]},
                                                "task": {"type": "worker", "index": 1}}))
    config = learn.RunConfig(model_dir="unused")
    assert (config.is_chief, config.master, config.task_type, config.task) == (False, "grpc://c:2", "worker", 1)
    assert (config.num_worker_replicas, config.num_ps_replicas, "TF_CONFIG" in os.environ) == (2, 1, True)


def test_a_module_comes_before_a_function_of_its_name():
    """tf.contrib.rnn.python.ops.rnn is a module, though tf.nn.rnn, where its names are looked up, is a function."""
    from tensorflow.contrib.rnn.python.ops import rnn
    assert rnn.stack_bidirectional_dynamic_rnn.__name__ == "stack_bidirectional_dynamic_rnn"
    assert tf.nn.rnn is tf.nn.static_rnn
    from tensorflow.contrib.distributions.python.ops import bernoulli
    assert bernoulli.Bernoulli is tf.distributions.Bernoulli


def test_names_of_packages_that_are_not_installed_are_an_error_that_names_the_package():
    """And those that ps_train has itself are found."""
    assert tf.contrib.distributions.Normal is tf.distributions.Normal
    assert tf.contrib.distributions.percentile.__module__.endswith("legacy.names.distributions")
    for full, package in (("distributions.Independent", "probability"), ("distributions.bijectors.Tanh", "probability"),
                          ("gan.gan_model", "gan"), ("gan.losses.wasserstein_generator_loss", "gan")):
        if not importlib.util.find_spec(f"tensorflow_{package}"):
            with pytest.raises(MissingNameError, match=f"pip install tensorflow-{package}"):
                value_of(f"tf.contrib.{full}")


def test_names_of_packages_that_are_installed_are_theirs(tmp_path):
    """Also those that TensorFlow has, as the classes of the two do not mix."""
    for package, code in (("tensorflow_probability", "from . import bijectors, distributions"),
                          ("tensorflow_gan", "gan_model = 'a model'")):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(code)
    (tmp_path / "tensorflow_probability/distributions.py").write_text(
        "class Normal: pass\nclass MultivariateNormalDiag: pass\nIndependent = 'a distribution'")
    (tmp_path / "tensorflow_probability/bijectors.py").write_text("Tanh = 'a bijector'")
    script = ("from tests.tensorflow_mode import tf\n"
              "from ps_train.parts.legacy.names import installation\n"
              "installation.install()\n"
              "import tensorflow as tf\n"
              "from tensorflow.contrib.distributions import bijectors, Normal\n"
              "found = tf.contrib.distributions\n"
              "print(Normal.__module__, found.Independent, bijectors.Tanh, tf.contrib.gan.gan_model)\n"
              "print(issubclass(found.NormalWithSoftplusScale, Normal))\n"
              "print(found.percentile.__name__, tf.distributions.Normal.__name__)\n")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=False,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])})
    assert done.stdout.splitlines() == [
        "tensorflow_probability.distributions a distribution a bijector a model", "True", "percentile Normal"], done


def test_modules_of_tensorflow_models_are_taken_from_beside_the_script(tmp_path, monkeypatch):
    """Until 0.12 they were in TensorFlow; today a script has copies of them, or is told to."""
    (tmp_path / "data_utils_copy.py").write_text("EOS_ID = 2\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    from tensorflow.models.rnn.translate import data_utils_copy
    assert data_utils_copy.EOS_ID == 2
    with pytest.raises(ImportError, match="tf.models.rnn.translate.nothing .*beside your script"):
        importlib.import_module("tensorflow.models.rnn.translate.nothing")
    from tensorflow.models.rnn import seq2seq
    assert seq2seq.model_with_buckets is tf.nn.seq2seq.model_with_buckets


def test_initializers_take_a_shape_as_before_1_0():
    """With a shape they return a tensor; without they are the classes of today."""
    with tf.Graph().as_default():
        assert evaluate([tf.zeros_initializer([2]), tf.ones_initializer([1, 2], tf.int32)]) == [[0.0, 0.0], [[1, 1]]]
        assert isinstance(tf.zeros_initializer(), real.zeros_initializer)
        assert evaluate(tf.get_variable("x", [2], initializer=tf.ones_initializer)) == [1.0, 1.0]


def test_rows_that_differ_in_length_are_an_array_of_objects():
    """Text models shuffle `np.array(list(zip(x, y)))`; with a dtype it is an error still."""
    pairs = np.array(list(zip(np.zeros([4, 3]), np.ones([4, 2]))))
    assert pairs.shape == (4, 2) and pairs.dtype == object and pairs[1][0].tolist() == [0, 0, 0]
    assert np.asarray([[1], [2, 3]])[1] == [2, 3]
    with pytest.raises(ValueError, match="inhomogeneous"):
        np.array([[1], [2, 3]], np.float32)


def test_an_array_of_one_number_is_a_number_for_python():
    """Since numpy 2.4 Python's own float() refuses it; scripts print a loss of the shape [1] with "%f"."""
    with tf.Graph().as_default(), tf.Session() as session:
        one, two = session.run([tf.constant([[1.5]]), tf.constant([1.0, 2.0])])
    assert f"{one[0, 0]} %.2f %d" % (one, one) == "1.5 1.50 1" and math.sqrt(one * 6) == 3.0
    with pytest.raises((TypeError, ValueError)):
        float(two)


def test_a_number_of_numpy_is_written_as_a_number():
    """Scripts write lists of them into files; with options of their own, too."""
    assert repr([np.float32(1.5), np.int64(2)]) == "[1.5, 2]"
    with np.printoptions(precision=3):
        assert repr([np.float64(0.5)]) == "[0.5]" and str(np.array([1 / 3])) == "[0.333]"


def test_forward_features_adds_features_to_predictions(tmp_path):
    """The key of an example comes back with its prediction, also from an export."""
    def inputs():
        return {"x": tf.constant([[1.0], [2.0]]), "key": tf.constant([["a"], ["b"]])}
    columns = [tf.feature_column.numeric_column("x")]
    plain = tf.estimator.LinearRegressor(columns, model_dir=str(tmp_path))
    plain.train(lambda: (inputs(), tf.constant([[1.0], [2.0]])), steps=1)
    found = tf.contrib.estimator.forward_features(plain, "key").predict(inputs)
    assert [next(found)["key"].tolist() for _ in range(2)] == [[b"a"], [b"b"]]
    with pytest.raises(ValueError, match="missing must be features"):
        next(tf.contrib.estimator.forward_features(plain, ["missing"]).predict(inputs))


def test_sampled_losses_take_inputs_before_labels_as_before_1_0():
    """The labels are the integers."""
    with tf.Graph().as_default():
        weights, biases, labels, inputs = tf.ones([6, 2]), tf.zeros([6]), tf.constant([[1], [3]]), tf.ones([2, 2])
        for loss in (tf.nn.nce_loss, tf.nn.sampled_softmax_loss):
            drawn = (tf.constant([0, 2], tf.int64), tf.fill([2, 1], 0.5), tf.fill([2], 0.5))
            losses = [loss(weights, biases, labels, inputs, 2, 6, sampled_values=drawn),
                      loss(weights, biases, inputs, labels, 2, 6, sampled_values=drawn),
                      loss(weights=weights, biases=biases, labels=labels, inputs=inputs, num_sampled=2, num_classes=6,
                           sampled_values=drawn)]
            first, *others = evaluate(losses)
            assert others == [first, first] and first[0] > 0.5


def test_the_sessions_configuration_of_a_run_config_can_be_changed():
    """contrib.learn called it tf_config."""
    config = tf.contrib.learn.RunConfig()
    config.tf_config.gpu_options.allow_growth = True
    assert config.session_config.gpu_options.allow_growth


def test_the_norm_of_optimize_loss_may_be_an_int():
    """It is cut to it: the gradient of 2 * x is 2."""
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.get_variable("x", [], initializer=tf.zeros_initializer())
        train = tf.contrib.layers.optimize_loss(2 * x, tf.train.get_or_create_global_step(), 0.5, "SGD",
                                                clip_gradients=1)
        session.run(tf.global_variables_initializer())
        session.run(train)
        assert session.run(x) == pytest.approx(-0.5)


def test_models_of_one_layer():
    """Those that begin with zeros: all classes are as likely. Class weights may be a tensor of the graph."""
    with tf.Graph().as_default():
        x, y = tf.ones([3, 2]), tf.one_hot([0, 1, 3], 4)
        probabilities, loss = tf.contrib.learn.models.logistic_regression_zero_init(x, y)
        predictions, error = tf.contrib.learn.models.linear_regression_zero_init(x, tf.constant([1.0, 2.0, 3.0]))
        assert tf.losses.get_losses() == [loss, error]
        values = evaluate([probabilities, loss, predictions, error])
    assert values[0] == [[0.25] * 4] * 3 and values[1] == pytest.approx(math.log(4))
    assert values[2] == [0.0] * 3 and values[3] == pytest.approx(14 / 3)
    with tf.Graph().as_default():
        tf.constant([1.0, 0.0, 0.0, 0.0], name="class_weight")
        weighted, _ = tf.contrib.learn.models.logistic_regression(tf.ones([3, 2]), y=tf.one_hot([0, 1, 3], 4))
        found = np.array(evaluate([weighted])[0])
    assert np.ptp(found[:, 1:]) < 1e-6 and found[0, 0] != found[0, 1]


def test_classes_have_rows_of_a_table():
    """Of any shape; the variable is named as in TensorFlow 1."""
    with tf.Graph().as_default(), tf.Session() as session:
        rows = tf.contrib.learn.ops.categorical_variable([[1, 2], [0, 1]], 5, 3, "words")
        table, = tf.global_variables()
        session.run(table.initializer)
        values, found = session.run([table, rows])
    assert table.name == "words/words_embeddings:0" and rows.shape == (2, 2, 3)
    assert found.tolist() == values[[[1, 2], [0, 1]]].tolist()


def test_an_estimator_of_contrib_learn_takes_a_tuple_of_its_model(tmp_path):
    """Its model_fn returned (predictions, loss, train_op), called the labels as it liked, and needed no mode."""
    def model_fn(features, targets):
        weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer)
        loss = tf.reduce_mean(tf.square(features * weight - targets))
        return {"value": features * weight}, loss, tf.contrib.layers.optimize_loss(
            loss, tf.contrib.framework.get_global_step(), 0.1, "SGD")

    estimator = tf.contrib.learn.Estimator(model_fn, str(tmp_path))
    estimator.fit(input_fn=lambda: (tf.constant([1.0, 2.0]), tf.constant([3.0, 6.0])), steps=30)
    assert estimator.get_variable_value("weight") == pytest.approx(3.0, abs=1e-3)
    # With params among them, the Estimator would warn that it has none to pass.
    assert list(inspect.signature(estimator._model_fn).parameters) == ["features", "labels", "mode"]


def test_the_static_shape_of_a_transposed_convolution_is_its_output_shape(graph):
    """Models reshape to `get_shape()`; the batch of the input may be unknown, and one of the sizes a tensor."""
    images = tf.placeholder(tf.float32, [None, 4, 4, 8])
    kernel = tf.ones([5, 5, 16, 8])
    for shape, expected in (([64, 8, 8, 16], [64, 8, 8, 16]), ([tf.shape(images)[0], 8, 8, 16], [None, 8, 8, 16])):
        by_position = tf.nn.conv2d_transpose(images, kernel, shape, [1, 2, 2, 1])
        by_name = tf.nn.conv2d_transpose(value=images, filter=kernel, output_shape=shape, strides=[1, 2, 2, 1])
        assert by_position.shape.as_list() == by_name.shape.as_list() == expected
    volumes = tf.placeholder(tf.float32, [None, 2, 2, 2, 1])
    assert tf.nn.conv3d_transpose(volumes, tf.ones([3, 3, 3, 4, 1]), [5, 4, 4, 4, 4], [1, 2, 2, 2, 1]).shape == [
        5, 4, 4, 4, 4]


def test_sums_of_nccl_are_on_each_device(graph):
    """By plain operations, as there may be no GPU."""
    from tensorflow.contrib import nccl

    with tf.device("/cpu:0"):
        first, second = tf.constant([1.0, 5.0]), tf.constant([3.0, 2.0])
    sums = nccl.all_sum([first, second])
    assert [each.device for each in sums] == [first.device, second.device]
    others = [*nccl.all_max([first, second]), nccl.reduce_sum([first, second]), nccl.broadcast(first)]
    assert evaluate([*sums, *others]) == [[4, 7], [4, 7], [3, 5], [3, 5], [4, 7], [1, 5]]


def test_the_graph_editor_is_found_by_its_modules():
    """Each name also in its module; what has no stand-in says what to use."""
    import tensorflow.contrib.graph_editor as ge
    from tensorflow.contrib.graph_editor import get_backward_walk_ops, select

    assert ge.reroute.add_control_inputs is ge.add_control_inputs and ge.transform.copy is ge.copy
    assert ge.edit.connect is ge.connect
    assert select.get_backward_walk_ops is get_backward_walk_ops and ge.sgv is ge.subgraph.make_view
    with pytest.raises(MissingNameError, match=r"graph_editor\.Transformer is not in .* use copy and reroute_ts"):
        _ = ge.Transformer


def test_columns_are_instances_of_the_old_private_classes():
    """By which templates choose the wide and the deep ones."""
    from tensorflow.python.feature_column import feature_column

    number = tf.feature_column.numeric_column("age")
    words = tf.feature_column.categorical_column_with_vocabulary_list("city", ["a", "b"])
    made = {
        "Numeric": number, "VocabularyListCategorical": words, "Indicator": tf.feature_column.indicator_column(words),
        "Embedding": tf.feature_column.embedding_column(words, 2), "Bucketized": tf.feature_column.bucketized_column(
            number, [1.0]), "Crossed": tf.feature_column.crossed_column(["city", "age"], 5),
        "IdentityCategorical": tf.feature_column.categorical_column_with_identity("x", 3),
        "HashedCategorical": tf.feature_column.categorical_column_with_hash_bucket("y", 3)}
    for name in made:
        of_class = [other for other, column in made.items() if isinstance(
            column, getattr(feature_column, f"_{name}Column"))]
        assert of_class == [name]


def test_keras_of_its_own_package_is_keras_2(session):
    """With the modules that it had, and in the graph of the script."""
    import keras
    from keras import backend
    from keras.layers import Dense
    from keras.layers.core import Dropout
    from keras.models import Sequential
    from keras.utils import np_utils, to_categorical

    assert keras.layers.Dropout is Dropout and np_utils.to_categorical is to_categorical
    backend.set_session(session)
    model = Sequential([Dense(2, input_shape=(3,), kernel_initializer="ones", use_bias=False)])
    inputs = tf.placeholder(tf.float32, [None, 3])
    outputs = model(inputs)
    session.run(tf.global_variables_initializer())
    assert session.run(outputs, {inputs: [[1, 2, 3]]}).tolist() == [[6, 6]]
