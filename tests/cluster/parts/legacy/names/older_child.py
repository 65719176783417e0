"""Arguments, modules and private names of older TensorFlow 1 code. test_names.py runs these in a child process."""
# ruff: noqa: PLC0415 (these tests check imports)

from __future__ import annotations

import csv
import functools
import importlib
import os
import pickle
import sys
import types

import numpy as np
import pytest

os.environ.update(TF_USE_LEGACY_KERAS="1", TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")

import tensorflow.compat.v1 as real

from ps_train.errors import MissingModuleError, MissingNameError
from ps_train.parts.legacy import estimator, own_files, python2_library
from ps_train.parts.legacy.classic.server import replica_device_setter
from ps_train.parts.legacy.names import installation
from tests.errors import raises

real.disable_v2_behavior()
real.enable_resource_variables()
real.logging.set_verbosity(real.logging.ERROR)
estimator.install_estimator()
installation.install()
tf = sys.modules["tensorflow"]


@pytest.fixture(autouse=True)
def session():
    """A session of a graph for this test only."""
    with tf.Graph().as_default(), tf.Session() as session:
        yield session


def evaluate(session, tensors):
    """Returns the values of tensors, with every variable and table initialized."""
    session.run([tf.global_variables_initializer(), tf.local_variables_initializer(), tf.tables_initializer()])
    return session.run(tensors)


@pytest.mark.parametrize("is_resource", [True, False])
def test_a_variable_takes_the_name_of_one_collection(is_resource):
    """As before 1.0: its letters would be taken for collections."""
    with tf.variable_scope("scope", use_resource=is_resource):
        tf.get_variable("w", [2], collections=tf.GraphKeys.LOCAL_VARIABLES)
        tf.get_variable("v", [2], collections=["mine"])
    assert [variable.op.name for variable in tf.local_variables()] == ["scope/w"]
    assert [variable.op.name for variable in tf.get_collection("mine")] == ["scope/v"] and not tf.global_variables()


@pytest.mark.parametrize("count", [1, 2])
def test_variables_are_asserted_to_be_initialized(session, count):
    """TensorFlow's own asks for their ranks only, which are known without reading them."""
    variables = [tf.get_variable(f"v{index}", [3]) for index in range(count)]
    ranks = tf.assert_variables_initialized()
    assert tf.assert_variables_initialized([]) is None
    for fetch in (ranks, ranks.op):
        with pytest.raises(tf.errors.FailedPreconditionError):
            session.run(fetch)
    session.run(tf.variables_initializer(variables))
    assert session.run(ranks).tolist() == [1] * count


def test_a_variable_whose_shape_is_not_validated_may_grow(session):
    """Its static shape is not known, as that of TF1's reference variables."""
    grown = tf.Variable([], dtype=tf.float32, trainable=False, validate_shape=False)
    shared = tf.get_variable("shared", initializer=tf.ones([2]), validate_shape=False)
    grow = tf.assign(grown, tf.concat([grown, [1.5]], 0), validate_shape=False)
    step = tf.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(shared * shared))
    assert grown.shape.rank is shared.shape.rank is tf.identity(grown).shape.rank is None
    session.run(tf.global_variables_initializer())
    assert [session.run(grow).tolist() for _ in range(2)] == [[1.5], [1.5, 1.5]]
    session.run(step)
    np.testing.assert_allclose(session.run(shared), [0.9, 0.9], rtol=1e-6)


def test_an_assignment_that_checks_no_shape_takes_any(session):
    """Issue: "Shape mismatch", as a resource variable took only values of its own; what reads it has the new shape."""
    variable = tf.get_variable("variable", [2, 2], initializer=tf.zeros_initializer())
    grow, total = tf.assign(variable, tf.ones([3, 2]), validate_shape=False), tf.reduce_sum(variable)
    session.run(tf.global_variables_initializer())
    assert session.run(grow).tolist() == [[1.0, 1.0]] * 3 == session.run(variable).tolist()
    assert session.run(total) == 6.0
    with pytest.raises(ValueError, match="[Ss]hape"):
        tf.assign(variable, tf.ones([3, 2]))


@pytest.mark.parametrize("name", ["weights:0", "weights/read:0"])
def test_gradients_of_a_variable_by_its_name_are_those_of_the_variable(session, name):
    """Issue: they were None, as each use of a resource variable reads it anew."""
    weights = tf.get_variable("weights", initializer=[1.0, 2.0])
    loss = tf.reduce_sum(weights * weights * [3.0, 4.0])
    found = session.graph.get_tensor_by_name(name)
    session.run(tf.global_variables_initializer())
    for wanted in (found, [found]):
        [gradient] = session.run(tf.gradients(loss, wanted))
        assert gradient.tolist() == [6.0, 16.0]


def test_audio_is_decoded_by_the_module_of_the_tutorial(session):
    """Of `tensorflow.contrib.framework.python.ops`."""
    from tensorflow.contrib.framework.python.ops import audio_ops

    wave = tf.audio.encode_wav([[0.5], [-0.5]], 16000)
    decoded = audio_ops.decode_wav(wave, desired_channels=1, desired_samples=2)
    np.testing.assert_allclose(session.run(decoded.audio), [[0.5], [-0.5]], atol=1e-4)
    assert all(hasattr(audio_ops, name) for name in ("audio_spectrogram", "mfcc", "encode_wav"))


@pytest.mark.parametrize(("kind", "value", "wanted"), [
    ("Int64List", [True, np.bool_(False), 3], [1, 0, 3]), ("Int64List", np.array([True, False]), [1, 0]),
    ("Int64List", (np.array([label]) for label in (1, 2)), [1, 2]), ("FloatList", np.ones((2, 1)), [1.0, 1.0]),
    ("Int64List", None, []), ("FloatList", None, []), ("Int64List", {True: "a"}.keys(), [1]),
    ("FloatList", [1.5, np.array([2.5])], [1.5, 2.5])])
def test_lists_of_numbers_take_booleans_and_arrays_of_one(kind, value, wanted):
    """As with protobuf 3; each stands there once, although the first try fails midway."""
    made = getattr(tf.train, kind)(value=value)
    assert list(made.value) == wanted and isinstance(made, getattr(tf.train, kind))
    for wrong in (["a"], np.array(["a"]), np.ones([2, 2])):
        with pytest.raises(TypeError):
            getattr(tf.train, kind)(value=wrong)
    assert tf.Summary.Value(tag="loss", simple_value=np.array([0.5])).simple_value == 0.5


@pytest.mark.parametrize(("function", "kinds", "wanted"), [
    (lambda: np.full(2, 0.5), [tf.float32], [[0.5, 0.5]]), (lambda: [np.float64(0.5)], [tf.float32], [0.5]),
    (lambda: (np.ones(1), np.arange(2)), [tf.float32, tf.int32], [[1.0], [0, 1]]),
    (functools.partial(np.full, 1, 3), [tf.int32], [[3]]), (lambda: b"a", [tf.string], [b"a"])])
def test_the_result_of_a_py_func_has_the_type_that_is_asked_for(session, function, kinds, wanted):
    """Issue: with NumPy 2, `(image - image.mean()) / image.std()` of float32 is float64, and was refused."""
    results = tf.py_func(function, [], kinds)
    assert [result.dtype for result in results] == kinds
    assert [np.asarray(value).tolist() for value in session.run(results)] == wanted


def test_a_py_func_whose_result_is_of_another_kind_is_refused(session):
    """A fraction is no whole number."""
    with pytest.raises(tf.errors.InvalidArgumentError, match="double"):
        session.run(tf.py_func(lambda: np.array([0.5]), [], tf.int32))


@pytest.mark.parametrize("shape", [[3], [2, 2], None])
def test_a_variable_is_restored_with_its_own_shape_only(session, tmp_path, shape):
    """A checkpoint of another model is refused, as in TF1; one variable of an open shape takes all."""
    saved = tf.get_variable("saved", initializer=[1.0, 2.0])
    other = tf.Variable(tf.zeros([9] if shape is None else shape), validate_shape=shape is not None, name="other")
    session.run(tf.global_variables_initializer())
    path = tf.train.Saver([saved]).save(session, str(tmp_path / "model"))
    assert session.run(saved.assign([0.0, 0.0])).tolist() == [0.0, 0.0]
    tf.train.Saver([saved]).restore(session, path)
    assert session.run(saved).tolist() == [1.0, 2.0]
    if shape is None:
        tf.train.Saver({"saved": other}).restore(session, path)
        assert session.run(other).tolist() == [1.0, 2.0]
    else:
        with pytest.raises(tf.errors.InvalidArgumentError, match="mismatch between the current graph"):
            tf.train.Saver({"saved": other}).restore(session, path)
        assert session.run(other).tolist() == np.zeros(shape).tolist()


def test_pickles_in_files_of_gfile_are_read_and_written(tmp_path, monkeypatch):
    """As with a file of Python 2, whose mode "r" gave bytes."""
    for owner, name in ((pickle, "load"), (pickle, "loads"), (pickle, "dump"), (csv, "reader"), (csv, "writer")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    python2_library.read_files_of_python2()
    with tf.gfile.GFile(str(tmp_path / "pickled"), "w") as file:
        pickle.dump({"a": "\u20ac"}, file, 2)
    with tf.gfile.Open(str(tmp_path / "pickled"), "r") as file:
        assert pickle.load(file) == {"a": "\u20ac"}


def test_arrays_of_one_number_are_that_number_beside_others(session):
    """As in `np.asarray(values.tolist() + [0])`, which scripts feed: numpy refuses it since 2.4."""
    mixed = np.array([np.array([1.5]), np.array([2.5]), 0], dtype=object)
    x = tf.placeholder(tf.float32, [None])
    assert session.run(x, {x: mixed}).tolist() == [1.5, 2.5, 0.0]
    assert np.array([np.array([[1]]), 2], np.int32).tolist() == [1, 2]
    with pytest.raises((TypeError, ValueError)):
        np.asarray([np.array([1.0, 2.0]), 3], np.float32)
    value = session.run(tf.constant([1.5]))
    assert float(value) == 1.5 and repr([value]) == "[array([1.5], dtype=float32)]"
    assert type(pickle.loads(pickle.dumps(value))) is np.ndarray  # it can be read without ps_train


IMPORTS = """
from tensorflow.contrib.opt import NeverWritten
from tensorflow.contrib.nothing.here import function
import tensorflow.contrib.nothing.there as there
from tensorflow.python.tpu import gone_config
from tensorflow.python.gone.ops import gone_function
from tensorflow.tools.gone_transforms import gone_transform
class Derived(NeverWritten):
    pass
try:
    from tensorflow.contrib.opt import NorThis
except ImportError:
    NorThis = None
try:
    from tensorflow.python.tpu import gone_as_well
except ImportError:
    assert NorThis is None
import contextlib
NeitherThis = None
with contextlib.suppress(ImportError):
    from tensorflow.contrib.opt import NeitherThis
def in_function():
    try:
        if True:
            import tensorflow.contrib.neither
    except ImportError as error:
        return type(error).__name__
"""


def test_a_name_that_is_only_imported_fails_where_it_is_used(tmp_path, monkeypatch, caplog):
    """A library imports all that its modules need, and a job uses some of it; in a `try` it fails at once."""
    (tmp_path / "library_of_layers.py").write_text(IMPORTS)
    monkeypatch.syspath_prepend(tmp_path)
    import library_of_layers as library
    assert library.NorThis is library.NeitherThis is None and library.in_function() == "MissingModuleError"
    assert not hasattr(tf.contrib.opt, "NeverWritten") and not isinstance(3, library.NeverWritten)
    for use in (library.NeverWritten, library.Derived, library.function, lambda: library.there.name,
                lambda: library.gone_config.TPUConfig, library.gone_function, library.gone_transform,
                lambda: library.there[0], lambda: list(library.there)):
        with raises("tf_name_missing", kind=MissingNameError):
            use()
    assert len([message for message in caplog.messages if "fails where it uses it" in message]) == 5
    with raises("tf_name_missing", kind=MissingModuleError):
        importlib.import_module("tensorflow.contrib.nor_that")


def test_a_variable_in_a_collection_of_an_imported_graph_is_that_variable():
    """Issue: the tutorial of PTB reads its learning rate from there, and got a handle."""
    with tf.Graph().as_default():
        rate = tf.Variable(0.0, trainable=False, name="rate")
        tf.add_to_collection("lr", rate)
        tf.add_to_collection("doubled", 2 * rate)
        exported = tf.train.export_meta_graph()
    with tf.Graph().as_default(), tf.Session() as session:
        tf.train.import_meta_graph(exported)
        session.run(tf.global_variables_initializer())
        read, (doubled,) = tf.get_collection_ref("lr")[0], tf.get_collection("doubled")
        assert f"{session.run(read):.1f}" == "0.0"
        session.run(read.assign(3.0))
        assert session.run([read, doubled]) == [3.0, 6.0]


def test_shared_embedding_columns_are_made(session):
    """Issue: their class was replaced in the module from which TensorFlow takes it."""
    from tensorflow.python.feature_column import feature_column
    pair = [tf.feature_column.categorical_column_with_identity(name, 3) for name in "ab"]
    weighted = tf.feature_column.weighted_categorical_column(pair[0], "w")
    columns = tf.feature_column.shared_embedding_columns([weighted, pair[1]], 2, combiner="sum",
                                                         initializer=tf.ones_initializer())
    assert all(isinstance(column, feature_column._SharedEmbeddingColumn) for column in columns)
    features = {"a": tf.constant([[1]]), "b": tf.constant([[2]]), "w": tf.constant([[3.0]])}
    found = tf.feature_column.input_layer(features, columns)
    session.run(tf.global_variables_initializer())
    assert session.run(found).tolist() == [[3.0, 3.0, 1.0, 1.0]] and len(tf.global_variables()) == 1


def test_layers_of_feature_columns_are_where_1_15_had_them(session):
    """TensorFlow Ranking takes them from there; those of Keras 2 are the same."""
    from tensorflow.python.feature_column import feature_column_lib, sequence_feature_column
    from tensorflow.python.feature_column.dense_features import DenseFeatures
    assert feature_column_lib.DenseFeatures is DenseFeatures
    assert sequence_feature_column.SequenceFeatures is feature_column_lib.SequenceFeatures
    layer = feature_column_lib.DenseFeatures([tf.feature_column.numeric_column("a")])
    assert session.run(layer({"a": tf.constant([[3.0]])})).tolist() == [[3.0]]


def test_losses_take_the_names_of_0_12(session):
    """`targets` and `weight`; the values, averaged, are those of tf.losses."""
    predictions, labels = tf.constant([1.0, 4.0]), tf.constant([0.0, 2.0])
    onehot, logits = tf.constant([[0.0, 1.0]]), tf.constant([[1.0, 3.0]])
    losses = tf.contrib.losses
    pairs = [
        (losses.mean_squared_error(predictions, targets=labels, weight=2.0),
         tf.losses.mean_squared_error(labels, predictions, 2.0)),
        (losses.absolute_difference(predictions, targets=labels), tf.losses.absolute_difference(labels, predictions)),
        (losses.softmax_cross_entropy(logits, onehot, weight=0.5),
         tf.losses.softmax_cross_entropy(onehot, logits, 0.5)),
        (losses.sparse_softmax_cross_entropy(logits, tf.constant([1])),
         tf.losses.sparse_softmax_cross_entropy(tf.constant([1]), logits)),
        (losses.sigmoid_cross_entropy(logits, onehot, weight=1.0), tf.losses.sigmoid_cross_entropy(onehot, logits)),
        (losses.hinge_loss(logits, target=onehot), tf.losses.hinge_loss(onehot, logits)),
        (tf.contrib.slim.losses.cosine_distance(onehot, targets=onehot, dim=1, weight=3.0),
         tf.losses.cosine_distance(onehot, onehot, 1, 3.0))]
    for ours, today in evaluate(session, pairs):
        assert np.allclose(np.mean(ours), today)


def test_arguments_that_had_other_names(session):
    """A sparse tensor's shape, a cell's input size, and a one-hot column's source."""
    sparse = tf.SparseTensor(indices=[[0, 1]], values=[5], shape=[1, 2])
    cells = [tf.nn.rnn_cell.BasicLSTMCell(2, input_size=3), tf.contrib.rnn.GRUCell(2, input_size=None)]
    outputs = [cell(tf.ones([1, 3]), cell.zero_state(1, tf.float32))[0] for cell in cells]
    job = tf.contrib.layers.sparse_column_with_keys("job", ["a", "b"])
    column = tf.contrib.layers.one_hot_column(sparse_id_column=job)
    dense = tf.feature_column.input_layer({"job": tf.constant([["b"]])}, [column])
    values = evaluate(session, [tf.sparse_tensor_to_dense(sparse), *outputs, dense])
    assert (values[0].tolist(), values[1].shape, values[2].shape, values[3].tolist()) == (
        [[0, 5]], (1, 2), (1, 2), [[0, 1]])


def test_small_functions_of_contrib(session):
    """Lookups by a list, random numbers of a seed, a staging area, sequences of columns, linear operators."""
    lookup = tf.contrib.lookup
    area = tf.contrib.staging.StagingArea([tf.float32])
    column = tf.contrib.feature_column.sequence_numeric_column("x")
    numbers = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], [1.0, 2.0, 3.0], [2, 2])
    sequence, lengths = tf.contrib.feature_column.sequence_input_layer({"x": numbers}, [column])
    uniform = tf.contrib.stateless.stateless_random_uniform([2], seed=[1, 2])
    values = evaluate(session, [
        lookup.string_to_index(tf.constant(["b", "z"]), ["a", "b"]),
        lookup.index_to_string(tf.constant([1, 5], tf.int64), ["a", "b"]), uniform,
        tf.random.stateless_uniform([2], [1, 2]),
        tf.contrib.linalg.LinearOperatorTriL([[2.0, 9.0], [0.0, 3.0]]).to_dense()])
    assert values[0].tolist() == [1, -1] and values[1].tolist() == [b"b", b"UNK"]
    assert values[2].tolist() == values[3].tolist() and values[4].tolist() == [[2, 0], [0, 3]]
    session.run(area.put([tf.constant(4.0)]))
    assert np.ravel(session.run(area.get())).tolist() == [4.0]
    assert [value.tolist() for value in session.run([sequence, lengths])] == [[[[1], [2]], [[3], [0]]], [2, 1]]
    assert tf.contrib.optimizer_v2.AdamOptimizer is tf.train.AdamOptimizer


def test_clusters_are_those_of_the_estimator():
    """A class with its constants, to be made and derived as TensorFlow 1's was."""
    k_means = tf.contrib.factorization.KMeansClustering
    assert issubclass(k_means, tf.estimator.experimental.KMeans) and k_means.COSINE_DISTANCE == "cosine"

    class Own(k_means):
        pass

    for made in (Own(2, random_seed=7), k_means(2, None, k_means.RANDOM_INIT, k_means.COSINE_DISTANCE, 7),
                 k_means(num_clusters=2, seed=7)):
        assert isinstance(made, tf.estimator.Estimator) and made._model_fn.__self__._seed == 7
    assert k_means(2)._model_fn.__self__._seed == 0


def test_few_names_that_only_tensorflow_2_has_are_found_in_modules_of_both():
    """Code that asks `hasattr(tf.random, "set_seed")` must not set a seed that no graph knows."""
    assert tf.keras.losses.Reduction.NONE == "none" and "tf_keras" in tf.keras.losses.Reduction.__module__
    assert tf.distribute.experimental.partitioners.FixedShardsPartitioner(2) is not None
    assert tf.losses.mean_squared_error is real.losses.mean_squared_error and not hasattr(tf.nn, "nothing")
    assert not (hasattr(tf.random, "set_seed") or hasattr(tf.summary, "create_file_writer"))
    assert not hasattr(tf.keras.utils, "set_random_seed")


def test_keras_within_tensorflow_is_keras_2():
    """Its models are models for the Estimator; TensorFlow's own copy of an older Keras has others."""
    from tensorflow.python.keras import backend, models
    from tensorflow.python.keras.layers import Dense
    from tensorflow.python.keras.preprocessing import text
    from tensorflow.python.keras.utils import np_utils

    assert models.Sequential is tf.keras.models.Sequential and Dense is tf.keras.layers.Dense
    assert backend.get_session is not None and text.Tokenizer(3) is not None
    assert np_utils.to_categorical([1]).tolist() == [[0, 1]]


def test_files_of_the_copy_of_keras_are_there_and_it_is_whole_for_tensorflow(session):
    """Those that Keras 2 keeps private; what TensorFlow itself imports of its copy, also late, is of the copy."""
    import tensorflow.python.keras.layers as all_layers
    from tensorflow.python.keras import layers
    from tensorflow.python.keras.engine import base_layer, base_layer_v1
    from tensorflow.python.keras.layers import recurrent
    from tensorflow.python.keras.legacy_tf_layers import core
    from tensorflow.python.keras.utils import conv_utils, losses_utils, tf_utils
    from tensorflow.python.keras.utils.generic_utils import Progbar

    assert all(module.__name__.startswith("tensorflow.python.keras.") for module in (
        conv_utils, losses_utils, tf_utils, layers, recurrent))
    assert callable(tf_utils.convert_shapes) and callable(Progbar) and all_layers is layers
    assert layers.Dense is tf.keras.layers.Dense and layers.__name__ == "tensorflow.python.keras.layers"
    assert sys.modules["tf_keras"].layers.__name__ != layers.__name__
    assert base_layer.Layer is tf.keras.layers.Layer  # which a script derives from
    copied = importlib.import_module("tensorflow.python.keras.engine.base_layer_v1").Layer
    assert issubclass(core.Dense, copied.__base__) and base_layer_v1.Layer is copied
    scope = {}
    exec("from tensorflow.python.keras.layers import *", scope)
    assert scope["Dense"] is tf.keras.layers.Dense
    inside = {"__name__": "tensorflow.python.keras.engine.late"}
    exec("from tensorflow.python.keras import backend, layers\nDense, graph = layers.Dense, backend.get_graph", inside)
    assert issubclass(inside["Dense"], copied.__base__) and inside["graph"].__module__.startswith("tensorflow.python.")
    assert evaluate(session, core.dense(tf.ones([1, 2]), 3)).shape == (1, 3)


def test_private_names_of_copied_code(session, tmp_path):
    """A checkpoint's reader, generated operations with an underscore, their tensors, and what cells are made with."""
    from tensorflow.python import pywrap_tensorflow
    from tensorflow.python.eager import context
    from tensorflow.python.framework import graph_util, tensor_shape
    from tensorflow.python.ops import gen_array_ops, rnn_cell_impl
    from tensorflow.python.ops.rnn_cell_impl import _Linear
    from tensorflow.python.training import training_ops

    variable = tf.get_variable("v", initializer=[1.0, 2.0])
    x = tf.constant([[1.0, 2.0]])
    square = tf.square(x)
    assert [*square.op._inputs, *square.op._outputs] == [x, square]
    ones = tf.ones_initializer()
    with tf.variable_scope("a"):
        first = rnn_cell_impl._linear([x, x], 2, True, kernel_initializer=ones)
    with tf.variable_scope("b"):
        layer = _Linear(x, 2, True, ones, ones)
        second, third = layer(x), layer([x])
    with tf.variable_scope("c"):
        fourth = tf.contrib.rnn.python.ops.core_rnn_cell_impl._linear([x], 2, True, 1.0)
    values = evaluate(session, [first, second, third, gen_array_ops._concat_v2([x, x], 1)])
    assert [value.tolist() for value in values] == [[[6, 6]], [[4, 4]], [[4, 4]], [[1, 2, 1, 2]]]
    assert fourth.shape.as_list() == [1, 2] and {"a/kernel", "a/bias", "c/bias"} <= {
        v.op.name for v in tf.global_variables()}
    path = tf.train.Saver([variable]).save(session, str(tmp_path / "model"))
    assert pywrap_tensorflow.NewCheckpointReader(path).get_tensor("v").tolist() == [1, 2]
    assert context.in_graph_mode() and tensor_shape.vector(3).as_list() == [3]
    assert callable(training_ops.resource_apply_adam) and callable(graph_util.convert_variables_to_constants)
    with pytest.raises(AttributeError, match="_no_such_operation"):
        print(gen_array_ops._no_such_operation)


def test_numpy_takes_what_it_took(session):
    """Through numpy's own names, and in TensorFlow as well."""
    assert np.fromstring(b"\1\2", dtype=np.uint8).tolist() == [1, 2] and np.array([1], copy=False).tolist() == [1]
    assert np.vstack(map(np.array, ([1], [2]))).shape == (2, 1) and np.lib.pad([1], 1, "constant").tolist() == [0, 1, 0]
    assert np.cast["float32"](3).dtype == np.float32 and np.math.sqrt(4) == 2
    assert session.run(tf.constant(np.array([1.0, 2.0], copy=False))).tolist() == [1, 2]


def test_an_estimator_of_contrib_learn_engineers_features_and_is_like_scikit_learn(tmp_path):
    """feature_engineering_fn doubles the features; SKCompat trains, scores and predicts over arrays."""
    learn = tf.contrib.learn
    seen = []

    def double(features, labels):
        return features * 2, labels

    def model_fn(features, labels, mode):
        seen.append(mode)
        rate = tf.get_variable("rate", [], initializer=tf.zeros_initializer())
        predictions = tf.reduce_sum(features, 1) * rate
        if mode == learn.ModeKeys.INFER:
            return predictions, None, None
        loss = tf.losses.mean_squared_error(labels, predictions)
        return {"value": predictions}, loss, tf.contrib.layers.optimize_loss(
            loss, tf.train.get_global_step(), 0.05, "SGD")

    x, y = np.array([[1.0], [2.0]], np.float32), np.array([2.0, 4.0], np.float32)
    model = learn.SKCompat(learn.Estimator(model_fn, str(tmp_path), feature_engineering_fn=double))
    assert model.fit(x, y, batch_size=2, steps=50) is model
    assert model.score(x, y, batch_size=2)["loss"] < 1e-3 and learn.ModeKeys.TRAIN in seen
    reader = learn.Estimator(model_fn, str(tmp_path), feature_engineering_fn=double)
    assert abs(reader.get_variable_value("rate") - 1.0) < 0.05


def test_an_input_function_of_a_generator(session):
    """Dictionaries of numbers and arrays, with one of them as the label."""
    def examples():
        for number in range(4):
            yield {"x": np.array([number, number], np.float32), "label": np.int64(number)}

    input_fn = tf.contrib.learn.io.generator_input_fn(examples, "label", batch_size=3, shuffle=False)
    iterator = tf.data.make_initializable_iterator(input_fn())
    features, label = iterator.get_next()
    session.run(iterator.initializer)
    x, labels = session.run([features["x"], label])
    assert x.tolist() == [[0, 0], [1, 1], [2, 2]] and labels.tolist() == [0, 1, 2]


@pytest.mark.parametrize("is_variable", [
    lambda op: op.type == "Variable", lambda op: op.node_def.op in {"VariableV2", "Other"},
    lambda op: (op if isinstance(op, tf.NodeDef) else op.node_def).op in ["Variable", "VariableV2"],
    lambda op: op.type == "Variable" and op.name.startswith("v") and op.node_def.name == op.name,
    # Code that knows resource variables, too
    lambda op: op.type in {"VarHandleOp"}, lambda op: {"VarHandleOp": 1}.get(op.type), lambda op: "Var" in op.type,
    lambda op: op.type.startswith("VarHandle"), lambda op: op.type in ("Variable", "VariableV2", "VarHandleOp")])
def test_a_device_function_places_variables(is_variable):
    """As those of resource variables have another type, they would lie on each worker; other operations stay."""
    with tf.device(lambda op: "/job:ps/task:1" if is_variable(op) else "/job:worker/task:0"):
        variable, other = tf.get_variable("v", [2]), tf.constant(1)
    assert (variable.device, other.device) == ("/job:ps/task:1", "/job:worker/task:0")
    with tf.device(replica_device_setter(ps_tasks=2, ps_ops=["Variable"])):
        assert tf.get_variable("w", [2]).device.startswith("/job:ps/task:")


def test_a_device_function_that_knows_resource_variables_counts_each_once():
    """One that does not know them counts the variable in their place; other operations are asked for once, too."""
    asked = []

    def in_turn(op):
        asked.append(op.type)
        return f"/job:ps/task:{len(asked) % 2}" if op.type in ("VarHandleOp", "VariableV2") else ""

    with tf.device(in_turn):
        tasks = [tf.get_variable(f"v{i}", [2], initializer=tf.zeros_initializer()).device for i in range(4)]
    assert asked.count("VarHandleOp") == 4 and not {"VariableV2", "Variable"} & set(asked)
    assert all(task.startswith("/job:ps/task:") for task in tasks)
    with tf.device(lambda op: None if op.type == "VarHandleOp" else "/job:ps/task:0"):
        assert tf.get_variable("other", [2]).device == "/job:ps/task:0"
    with tf.device(lambda op: tf.DeviceSpec(job="worker", task=1) if op.type == "VarHandleOp" else ""):
        assert tf.get_variable("own", [2]).device == "/job:worker/task:1"


@pytest.mark.parametrize("wrap", [lambda cell: cell, lambda cell: tf.nn.rnn_cell.DropoutWrapper(cell)])
def test_layers_of_one_cell_have_variables_of_their_own(session, wrap):
    """As before 1.1, where the input is not of the size of the output; else they share them, as since then."""
    cell = wrap(tf.nn.rnn_cell.BasicLSTMCell(4))
    stack = tf.nn.rnn_cell.MultiRNNCell([cell] * 3)
    outputs, _ = tf.nn.dynamic_rnn(stack, tf.ones([2, 3, 7]), dtype=tf.float32)
    kernels = [v for v in tf.trainable_variables() if "kernel" in v.name]
    assert [v.shape.as_list() for v in kernels] == [[11, 16], [8, 16], [8, 16]]
    assert [v.name.split("/")[2] for v in kernels] == ["cell_0", "cell_1", "cell_2"]
    assert evaluate(session, outputs).shape == (2, 3, 4)
    shared = tf.nn.rnn_cell.MultiRNNCell([wrap(tf.nn.rnn_cell.GRUCell(4))] * 2)
    shared(tf.ones([2, 4]), shared.zero_state(2, tf.float32))
    assert sum("candidate/kernel" in v.name for v in tf.trainable_variables()) == 1


def test_the_variables_of_a_cell_are_found_by_their_old_names():
    """Of 1.0 and 1.1, and of before; a script asks for them to train or to copy them."""
    with tf.Graph().as_default(), tf.variable_scope("net") as scope:
        for cell in (tf.nn.rnn_cell.BasicLSTMCell(4), tf.nn.rnn_cell.GRUCell(4)):
            cell(tf.ones([2, 3]), cell.zero_state(2, tf.float32))
        scope.reuse_variables()
        for names, today in (
                (("basic_lstm_cell/weights", "BasicLSTMCell/Linear/Matrix"), "net/basic_lstm_cell/kernel"),
                (("basic_lstm_cell/biases", "BasicLSTMCell/Linear/Bias"), "net/basic_lstm_cell/bias"),
                (("gru_cell/gates/weights", "GRUCell/Gates/Linear/Matrix"), "net/gru_cell/gates/kernel")):
            for name in names:
                assert tf.get_variable(name).op.name == today
        with pytest.raises(ValueError, match="net/other/weights does not exist"):
            tf.get_variable("other/weights")


def test_images_are_resized_to_a_height_and_a_width():
    """Two numbers, as before 1.0; a list or a tensor of both since."""
    image = tf.ones([1, 2, 2, 1])
    for resized in (tf.image.resize_images(image, 4, 5), tf.image.resize_images(image, new_height=4, new_width=5),
                    tf.image.resize_images(image, [4, 5], 1), tf.image.resize_images(image, tf.constant([4, 5]))):
        assert resized.shape.as_list() == [1, 4, 5, 1]


def test_the_value_of_a_boolean_flag_may_be_a_word_of_its_own(monkeypatch):
    """As argparse read it before 1.5; absl would take `--sync_word False` for true."""
    flags = tf.app.flags
    flags.DEFINE_boolean("sync_word", True, "")
    flags.DEFINE_boolean("on_word", False, "")
    flags.DEFINE_string("job_word", "", "")
    monkeypatch.setattr(sys, "argv", ["x", "--sync_word", "False", "--on_word", "--job_word", "1"])
    flags.FLAGS.unparse_flags()
    assert (flags.FLAGS.sync_word, flags.FLAGS.on_word, flags.FLAGS.job_word) == (False, True, "1")


def test_a_variable_is_found_by_the_name_of_its_tensor(session):
    """Issue: that is the name of its handle today. In a scope, of a local variable, and fetched by the name itself."""
    with tf.variable_scope("a"):
        variable = tf.get_variable("w", initializer=[1.0, 2.0])
    tf.get_local_variable("count", initializer=5)
    graph = tf.get_default_graph()
    value = graph.get_tensor_by_name("a/w:0")
    twice = value * 2
    assert (value.dtype, value.shape.as_list()) == (tf.float32, [2])
    values = evaluate(session, [value, twice, "a/w:0", {"count": "count:0"}])
    assert [values[0].tolist(), values[1].tolist(), values[2].tolist(), values[3]] == [
        [1, 2], [2, 4], [1, 2], {"count": 5}]
    assert graph.get_tensor_by_name("a/w/read:0") is value and session.run("a/w/read:0").tolist() == [1, 2]
    with pytest.raises(KeyError, match="b/read:0"):
        graph.get_tensor_by_name("b/read:0")
    session.run(variable.assign([3.0, 4.0]))
    hook = tf.train.LoggingTensorHook(["a/w"], every_n_iter=1)
    hook.begin()
    assert session.run(hook.before_run(None).fetches)["a/w"].tolist() == [3, 4]
    graph.finalize()
    assert session.run(graph.get_tensor_by_name("a/w:0")).tolist() == [3, 4]
    assert graph.get_tensor_by_name("mul:0") is twice and variable.handle.dtype == tf.resource


def test_variables_of_an_imported_graph_are_found_by_the_names_of_their_tensors(session, tmp_path):
    """As scripts that fine-tune do."""
    path = str(tmp_path / "model")
    tf.get_variable("w", initializer=[1.0, 2.0])
    evaluate(session, [])
    tf.train.Saver().save(session, path)
    with tf.Graph().as_default() as graph, tf.Session() as other:
        tf.train.import_meta_graph(path + ".meta").restore(other, path)
        value = graph.get_tensor_by_name("w:0")
        assert other.run(value).tolist() == [1, 2]
        assert other.run(tf.assign_add(value, [1.0, 1.0])).tolist() == [2, 3]
        other.run(tf.assign(value, [7.0, 8.0]))
        assert other.run(value).tolist() == [7, 8]


def test_arrays_of_objects_are_read_and_lazy_lists_are_arrays(session, tmp_path):
    """As `np.load` did before 1.16.3, and as `map` and `keys()` made lists; in what a session is fed as well."""
    np.save(tmp_path / "weights.npy", {"conv": [np.ones(2), "\u00e4"]})
    np.savez(tmp_path / "all.npz", a=np.array([{"b": 1}, None]))
    assert np.load(tmp_path / "weights.npy").item()["conv"][1] == "\u00e4"
    assert np.load(str(tmp_path / "weights.npy"), encoding="latin1", allow_pickle=True).item()["conv"][0].size == 2
    assert np.load(tmp_path / "all.npz")["a"][0] == {"b": 1}
    with pytest.raises(ValueError, match="allow_pickle"):
        np.load(tmp_path / "weights.npy", allow_pickle=False)
    numbers, keys = map(float, "12"), {3: 0, 4: 0}.keys()
    assert np.array(numbers).tolist() == [1, 2] and np.asarray(keys, np.int32).tolist() == [3, 4]
    fed = tf.placeholder(tf.float32, [None, 2])
    assert session.run(fed, {fed: zip([1, 2], [3, 4])}).tolist() == [[1, 3], [2, 4]]
    assert session.run(tf.constant(map(int, "56"))).tolist() == [5, 6]


def test_an_array_of_objects_of_python_2_is_read(tmp_path):
    """Its text as Latin-1; numpy would demand an encoding."""
    pickled = b"cnumpy.core.multiarray\n_reconstruct\np0\n(cnumpy\nndarray\np1\n(I0\ntS'b'\ntRp2\n" \
              b"(I1\n(tcnumpy\ndtype\np3\n(S'O8'\nI0\nI1\ntRp4\n(I3\nS'|'\nNNNI-1\nI-1\nI63\ntb" \
              b"I00\n(lp5\nS'\\xe4'\naDUMMY"
    with open(tmp_path / "old.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|O", "fortran_order": False, "shape": ()})
        file.write(pickled.replace(b"DUMMY", b"tb."))
    assert np.load(tmp_path / "old.npy").item() == "\u00e4"


def test_the_inputs_of_ctc_loss_may_come_first(session):
    """As before 1.0; the labels are the sparse ones in any order."""
    labels = tf.SparseTensor([[0, 0]], tf.constant([1], tf.int32), [1, 1])
    inputs, lengths = tf.random.stateless_normal([3, 1, 4], [1, 2]), tf.constant([3])
    losses = evaluate(session, [
        tf.nn.ctc_loss(inputs, labels, lengths), tf.nn.ctc_loss(labels, inputs, lengths),
        tf.nn.ctc_loss(inputs=inputs, labels=labels, sequence_length=lengths)])
    assert losses[0].tolist() == losses[1].tolist() == losses[2].tolist()


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize(("of_scope", "of_network", "trains"), [
    (((), {}), {}, True), (((), {}), {"is_training": False}, False),
    (((), {"is_training": False}), {}, False), (((False,), {}), {}, False), (((True, 0.001), {}), {}, True),
    (((), {"is_training": True}), {"is_training": False}, False)])
def test_a_residual_network_trains_if_it_or_its_scope_says_so(session, version, of_scope, of_network, trains):
    """The network is asked first, then the scope, as until 1.1; the default is training."""
    module = getattr(tf.contrib.slim.nets, f"resnet_{version}")
    network, make_block = getattr(module, f"resnet_{version}"), getattr(module, f"resnet_{version}_block")
    images = tf.random_normal([4, 8, 8, 3], 5.0, 3.0)
    with tf.contrib.slim.arg_scope(module.resnet_arg_scope(*of_scope[0], **of_scope[1])):
        features, _ = network(images, [make_block("block", 2, 1, 1)], global_pool=True, **of_network)
    assert np.isfinite(evaluate(session, features)).all()
    assert bool(tf.get_collection(tf.GraphKeys.UPDATE_OPS)) is trains


def test_a_scope_of_batch_normalization_alone_leaves_a_residual_network_to_train():
    """As since 1.2, where the network has a default of its own."""
    slim, nets = tf.contrib.slim, tf.contrib.slim.nets
    with tf.Graph().as_default(), slim.arg_scope(nets.resnet_v1.resnet_arg_scope()), slim.arg_scope(
            [slim.batch_norm], is_training=False):
        nets.resnet_v1.resnet_v1(tf.ones([1, 8, 8, 3]), [nets.resnet_v1.resnet_v1_block("block", 2, 1, 1)])
        assert tf.get_collection(tf.GraphKeys.UPDATE_OPS)


def test_residual_networks_of_all_depths_ask_their_scope():
    """With other arguments by place as before."""
    nets = tf.contrib.slim.nets
    with tf.Graph().as_default(), tf.contrib.slim.arg_scope(nets.resnet_v1.resnet_arg_scope(is_training=False)):
        logits, _ = nets.resnet_v1.resnet_v1_50(tf.ones([1, 32, 32, 3]), 7)
        assert logits.shape.as_list() == [1, 1, 1, 7] and not tf.get_collection(tf.GraphKeys.UPDATE_OPS)


def test_the_values_of_flags_are_an_attribute_of_all_flags(monkeypatch, tmp_path):
    """As until 1.4, without the flags that absl brings; scripts copy them into a configuration of theirs."""
    flags = tf.app.flags
    flags.DEFINE_integer("copied_number", 3, "")
    flags.DEFINE_string("copied_word", "x", "")
    monkeypatch.setattr(sys, "argv", ["x", "--copied_number=5"])
    flags.FLAGS.unparse_flags()
    assert flags.FLAGS.copied_number == 5
    values = flags.FLAGS.__dict__["__flags"]
    assert (values["copied_number"], values["copied_word"]) == (5, "x") and "logtostderr" not in values
    monkeypatch.setattr(own_files.tracebacks, "is_local", lambda path: path.startswith(str(tmp_path)))
    for name, loop in (("new", "{k: v.value for k, v in FLAGS.__flags.items() if v}"),
                       ("old", "{k: v for k, v in FLAGS.__flags.items()}  # x.bytes_list.value"),
                       ("older", "{k: v for k, v in FLAGS.__flags.items()}\ndef f(x):\n  return x.size.value"),
                       ("function", "FLAGS.__flags\ndef f(d):\n  return {k: f.value for k, f in d.items()}\n"
                                    "read = f(read)"),
                       ("elsewhere", "FLAGS.__flags\ndef f(flag):\n  return flag.value\n"
                                     "read = {k: f(flag) for k, flag in read.items()}")):
        path = tmp_path / f"{name}.py"
        path.write_text(f"read = {loop}\n")
        found = {"FLAGS": flags.FLAGS}
        exec(compile(path.read_text(), str(path), "exec"), found)
        assert (found["read"]["copied_number"], found["read"]["copied_word"]) == (5, "x")
    values["copied_number"] = 7
    values.update(copied_word="y")
    assert (flags.FLAGS.copied_number, flags.FLAGS.copied_word) == (7, "y")
    with pytest.raises(KeyError):
        flags.FLAGS.__dict__["nothing"]


def test_a_package_on_the_path_does_not_say_what_the_values_of_flags_are(monkeypatch, tmp_path):
    """What `pip install --target` has put there, such as SciPy, asks other items for their `value`."""
    package = tmp_path / "installed" / "package.py"
    (tmp_path / "installed" / "package-1.0.dist-info").mkdir(parents=True)
    package.write_text("def f(flag):\n  return flag.value\n")
    monkeypatch.setitem(sys.modules, "package", types.SimpleNamespace(__file__=str(package)))
    monkeypatch.setattr(own_files.tracebacks, "is_local", lambda path: path.startswith(str(tmp_path)))
    monkeypatch.syspath_prepend(str(tmp_path / "installed"))
    tf.app.flags.DEFINE_integer("pickled_number", 3, "")
    tf.app.flags.FLAGS.mark_as_parsed()
    script = tmp_path / "script.py"
    script.write_text("read = pickle.loads(pickle.dumps(FLAGS.__flags))\n")
    found = {"FLAGS": tf.app.flags.FLAGS, "pickle": pickle}
    exec(compile(script.read_text(), str(script), "exec"), found)
    assert found["read"]["pickled_number"] == 3


def test_a_softmax_layer_takes_any_number_of_dimensions(session):
    """Also one that is not known yet, as behind an `InputLayer` without a shape."""
    layer = tf.keras.layers.Softmax()
    x = tf.placeholder(tf.float32)
    assert session.run(layer(x), {x: [[0.0, 0.0]]}).tolist() == [[0.5, 0.5]]
    assert session.run(layer(tf.zeros([1, 2, 2]))).tolist() == [[[0.5, 0.5], [0.5, 0.5]]]


def test_a_variable_is_true():
    """Scripts write `if global_step:` to ask whether they were given one."""
    with tf.Graph().as_default():
        assert tf.Variable(0, name="step") and tf.get_variable("x", [2]) and tf.train.get_or_create_global_step()


def test_the_functions_of_datasets_are_found_by_an_object_too(session):
    """`tf.data.Dataset()` made one, which is no dataset."""
    dataset = tf.data.Dataset().from_tensors(5).map(lambda x: x + 1)
    assert session.run(dataset.make_one_shot_iterator().get_next()) == 6


def test_lists_of_numbers_and_of_arrays_have_another_shape(session):
    """Agents collect rewards and predictions: `[1.0, array([2.0])]`."""
    mixed = [1.0, np.array([2.0])]
    x = tf.placeholder(tf.float32, [2, 1])
    for column in (np.resize(mixed, [2, 1]), np.reshape(mixed, [2, 1]), np.expand_dims(mixed, 1)):
        assert session.run(2 * x, {x: column}).tolist() == [[2.0], [4.0]]
    assert np.tile([[1], [2, 3]], 2).shape == np.tile(A=[1, 2], reps=2).shape == (4,)


def test_a_memory_of_transitions_is_stacked_as_objects(tmp_path):
    """Replay buffers hold states, actions and rewards: rows of arrays and numbers. Shapes are those of numpy 1.18."""
    memory = [(np.ones(3), 1, -1.0, np.zeros(3), False)] * 6
    assert np.vstack(memory).shape == np.stack(memory).shape == np.atleast_2d(memory).shape == (6, 5)
    assert np.vstack(memory)[:, 2].tolist() == [-1.0] * 6 and np.stack(np.vstack(memory)[:, 0]).shape == (6, 3)
    assert np.concatenate([memory, memory]).shape == (12, 5) and np.column_stack(memory).shape == (5, 6)
    assert np.hstack([memory[0], memory[1]]).shape == (10,) and np.append([], memory[0]).shape == (5,)
    assert np.shape(memory) == (6, 5) and np.take(memory, [0, 1], axis=0).shape == (2, 5)
    assert [len(part) for part in np.array_split([[1], [2, 3], [4]], 2)] == [2, 1]
    np.save(tmp_path / "rows.npy", [[1], [2, 3]])
    assert np.load(tmp_path / "rows.npy").tolist() == [[1], [2, 3]]
    assert np.sum(row[1] for row in memory) == 6 and np.sum([[1], [2, 3]]) == [1, 2, 3]
    with pytest.raises(ValueError, match="same size|dimensions"):
        np.vstack([[1, 2], [1, 2, 3]])  # refused before, too


def test_a_graph_is_frozen(session, tmp_path):
    """By TensorFlow's tool, which gives a Saver the tensors that have the names of variables."""
    from tensorflow.python.tools import freeze_graph

    weight = tf.Variable([1.0, 2.0], name="weight")
    tf.identity(weight, name="out")
    saver = tf.train.Saver()
    session.run(weight.initializer)
    path = saver.save(session, str(tmp_path / "model"))
    tf.train.write_graph(session.graph_def, str(tmp_path), "graph.pbtxt")
    freeze_graph.freeze_graph(str(tmp_path / "graph.pbtxt"), "", False, path, "out", "save/restore_all", "save/Const:0",
                              str(tmp_path / "frozen.pb"), True, "")
    graph_def = tf.GraphDef.FromString((tmp_path / "frozen.pb").read_bytes())
    with tf.Graph().as_default(), tf.Session() as other:
        out, = tf.import_graph_def(graph_def, return_elements=["out:0"])
        assert other.run(out).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(("steps", "warnings"), [([1, 1, 2, 3, 3, 4], 0), ([1, 1, 1, 1], 2)])
def test_a_step_that_is_read_twice_may_have_been_counted(monkeypatch, steps, warnings):
    """A step reads its number before or after it is increased. Three times the same number is worth a warning."""
    import tensorflow.python.training.basic_session_run_hooks as hooks

    logged = []
    monkeypatch.setattr(hooks.logging, "log_first_n", lambda *args: logged.append(args))
    hook = tf.train.StepCounterHook(every_n_steps=1000)
    hook._timer.update_last_triggered_step(1)  # so that it asks no session
    hook._steps_per_run = 1
    for step in steps:
        hook.after_run(None, types.SimpleNamespace(results=step))
    assert len(logged) == warnings


def test_rows_are_clustered(tmp_path):
    """contrib.learn's KMeansClustering; the input is a constant, of which a prediction takes one batch."""
    rows = np.array([[0, 0], [0, 1], [9, 9], [9, 8]], np.float32)
    kmeans = tf.contrib.learn.KMeansClustering
    model = kmeans(2, str(tmp_path), initial_clusters=rows[[0, 2]], use_mini_batch=False)
    model.fit(input_fn=lambda: (tf.constant(rows), None), steps=3)
    np.testing.assert_allclose(np.sort(model.clusters(), 0), [[0.0, 0.5], [9.0, 8.5]], atol=1e-5)
    found = list(model.predict_cluster_idx(input_fn=lambda: tf.constant(rows)))
    assert found[0] == found[1] != found[2] == found[3] and len(found) == 4
    distances = model.transform(input_fn=lambda: tf.constant(rows))
    assert distances.shape == (4, 2)
    np.testing.assert_allclose(distances.min(1), [0.25] * 4, atol=1e-4)
    assert model.score(input_fn=lambda: (tf.constant(rows), None), steps=1) == pytest.approx(1.0, abs=1e-4)
    assert sorted(next(model.predict(input_fn=lambda: tf.constant(rows)))) == [kmeans.ALL_SCORES, kmeans.CLUSTER_IDX]


def test_datasets_have_the_methods_of_contrib_data(session):
    """Each gives a dataset of which an iterator can be made."""
    numbers = tf.contrib.data.Dataset.range(6)
    words = tf.contrib.data.Dataset.range(3).map(lambda number: tf.fill([number + 1], number), num_threads=2)
    elements = [dataset.make_one_shot_iterator().get_next() for dataset in (
        numbers.ignore_errors(), numbers.enumerate(), words.dense_to_sparse_batch(2, [5]),
        numbers.group_by_window(lambda number: number % 2, lambda _, window: window.batch(3), 3))]
    first, second, sparse, odd = session.run(elements)
    assert (first, second, odd.tolist()) == (0, (0, 0), [0, 2, 4])
    assert sparse.values.tolist() == [0, 1, 1] and sparse.dense_shape.tolist() == [2, 5]


def test_options_of_datasets_have_names_of_1_12_to_1_15(session):
    """Those that chose a rewrite that is gone do nothing; a name that never was is refused."""
    options = tf.data.Options()
    options.experimental_optimization.autotune = False
    options.experimental_optimization.map_vectorization.enabled = True
    options.experimental_optimization.autotune_buffers = True
    options.experimental_distribute.auto_shard = False
    options.experimental_map_and_batch_fusion = True
    options.experimental_numa_aware = True
    options.experimental_deterministic = False
    assert options.experimental_distribute.auto_shard_policy == tf.data.experimental.AutoShardPolicy.OFF
    assert options.experimental_optimization.map_and_batch_fusion is True and options.deterministic is False
    with pytest.raises(AttributeError):
        options.nonsense = 1
    dataset = tf.data.Dataset.range(3).with_options(options)
    assert session.run(dataset.make_one_shot_iterator().get_next()) == 0


def test_arrays_of_tensors_and_splits_have_names_of_0_12(session):
    """`pack` and `unpack`; `size_splits`."""
    array = tf.TensorArray(tf.float32, 2).unpack(tf.constant([1.0, 2.0]))
    assert session.run(array.pack()).tolist() == [1, 2]
    parts = tf.split_v(value=tf.range(4), size_splits=[1, 3], split_dim=0)
    assert [part.tolist() for part in session.run(parts)] == [[0], [1, 2, 3]]


def test_a_variable_begins_with_the_initialized_value_of_another(session):
    """Initialized at once, it draws the same random numbers as the other one."""
    first = tf.Variable(tf.random_normal([3]), name="first")
    second = tf.Variable(first.initialized_value() * 2, name="second")
    session.run(first.initializer)
    session.run(second.initializer)
    values = session.run([first, second])
    np.testing.assert_allclose(values[1], values[0] * 2)


def test_layers_say_which_inputs_an_update_needs(session):
    """It is collected as any other update."""
    class Counting(tf.layers.Layer):
        def build(self, shape):
            self.input_spec = tf.layers.InputSpec(ndim=2)
            self.count = self.add_variable("count", [], initializer=tf.zeros_initializer(), trainable=False)
            self.built = True

        def call(self, inputs):
            self.add_update(tf.assign_add(self.count, 1.0), inputs=inputs)
            return inputs

    layer = Counting()
    layer.apply(tf.zeros([2, 3]))
    assert layer.get_updates_for(None) == layer.updates == tf.get_collection(tf.GraphKeys.UPDATE_OPS) != []
    session.run(tf.global_variables_initializer())
    session.run(layer.updates)
    assert session.run(layer.count) == 1


def test_a_cluster_of_tpus_without_a_name_is_this_machine(session):
    """For scripts that use a TPU only if they are told so."""
    for module in (tf.distribute.cluster_resolver, tf.contrib.cluster_resolver):
        resolver = module.TPUClusterResolver("", zone=None, project=None)
        assert resolver.master() == "" and resolver.cluster_spec().as_dict() == {}
    with pytest.raises(ValueError, match="TPU"):
        tf.contrib.cluster_resolver.TPUClusterResolver(None)


def test_irises_are_those_of_a_file_or_of_scikit_learn(tmp_path, monkeypatch):
    """Two have the measures that TensorFlow 1 gave them; without either, the error names the package."""
    load_iris = tf.contrib.learn.datasets.load_iris
    path = tmp_path / "iris.csv"
    path.write_text("2,4,setosa,versicolor\n5.1,3.5,1.4,0.2,0\n6.4,2.8,5.6,2.2,1\n", encoding="utf-8")
    irises = load_iris(str(path))
    assert irises.data.tolist() == [[5.1, 3.5, 1.4, 0.2], [6.4, 2.8, 5.6, 2.2]] and irises.target.tolist() == [0, 1]
    known = _offer_irises(monkeypatch)
    expected = np.array(known.data)
    expected[34] = expected[37] = 4.9, 3.1, 1.5, 0.1
    for irises in (load_iris(), tf.contrib.learn.datasets.load_dataset("iris")):
        np.testing.assert_array_equal(irises.data, expected)
    assert load_iris().target is known.target
    with pytest.raises(ValueError, match="name is 'dbpedia'; ps_train has mnist, iris, boston"):
        tf.contrib.learn.datasets.load_dataset("dbpedia")
    with raises("tf_name_missing"):
        tf.contrib.learn.datasets.load_dataset("boston")
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with raises("tf_name_missing"):
        load_iris()


def _offer_irises(monkeypatch):
    """Returns irises that `import sklearn` finds from now on."""
    known = types.SimpleNamespace(data=np.ones([150, 4]), target=np.repeat([0, 1, 2], 50))
    datasets = types.SimpleNamespace(load_iris=lambda: known)
    monkeypatch.setitem(sys.modules, "sklearn", types.SimpleNamespace(datasets=datasets))
    return known


def test_input_functions_of_the_irises(session, monkeypatch):
    """Of contrib.learn's test data, which examples of an Experiment import."""
    from tensorflow.contrib.learn.python.learn.estimators import test_data

    _offer_irises(monkeypatch)
    for make, count in ((test_data.iris_input_multiclass_fn, 150), (test_data.iris_input_logistic_fn, 100)):
        features, labels = make()
        assert (features["feature"].dtype, labels.dtype) == (tf.float32, tf.int32)
        measures, species = session.run([features["feature"], labels])
        assert measures.shape == (count, 4) and measures[34].tolist() == pytest.approx([4.9, 3.1, 1.5, 0.1])
        np.testing.assert_array_equal(species[:, 0], np.repeat([0, 1, 2], 50)[:count])
    assert test_data.get_quantile_based_buckets([1, 2, 4, 8, 16], 3) == [2.0, 4.0, 8.0]
