"""The package `keras` of 1 to 2.3 in scripts. test_names.py runs these in a child process."""
# ruff: noqa: E402, N812, PLC0415 (these tests check imports)

from __future__ import annotations

import importlib
import inspect
import os
import sys

import numpy as np
import pytest

os.environ.update(TF_USE_LEGACY_KERAS="1", TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")

import tensorflow.compat.v1 as real

real.disable_v2_behavior()
real.enable_resource_variables()
real.logging.set_verbosity(real.logging.ERROR)

from ps_train.parts.legacy.names import installation, keras_modules

installation.install()
tf = sys.modules["tensorflow"]

import keras
from keras import backend as K
from keras.layers import (
    LSTM,
    BatchNormalization,
    Convolution2D,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    MaxPooling2D,
    merge,
)
from keras.models import Input, Model, Sequential

IMAGES = np.random.default_rng(0).normal(size=(20, 8, 8, 1)).astype(np.float32)
CLASSES = np.eye(3)[np.arange(20) % 3]


@pytest.fixture(autouse=True)
def clear():
    """Each test has a graph of its own."""
    K.clear_session()


@pytest.mark.parametrize(("module", "names"), [
    ("engine.topology", "Layer InputSpec Input get_source_inputs"), ("engine", "Layer InputSpec Model"),
    ("engine.training", "Model"), ("engine.base_layer", "Layer"), ("engine.network", "Network"),
    ("engine.saving", "load_weights_from_hdf5_group"), ("backend.tensorflow_backend", "set_session get_session tf"),
    ("backend.common", "epsilon"), ("objectives", "categorical_crossentropy mse"), ("layers.merge", "concatenate Add"),
    ("layers.core", "Dense Lambda"), ("layers.cudnn_recurrent", "CuDNNLSTM"),
    ("utils.conv_utils", "conv_output_length"),
    ("utils.multi_gpu_utils", "multi_gpu_model"), ("utils.io_utils", "HDF5Matrix"),
    ("utils.layer_utils", "print_summary count_params"), ("utils.generic_utils", "get_custom_objects has_arg to_list"),
    ("legacy.interfaces", "legacy_recurrent_support"), ("initializations", "glorot_uniform")])
def test_modules_have_the_names_that_scripts_import(module, names):
    """By import statements and as attributes; wherever Keras was."""
    for package in ("keras", "tensorflow.contrib.keras.python.keras"):
        found = importlib.import_module(f"{package}.{module}")
        assert [name for name in names.split() if not hasattr(found, name)] == []
    with pytest.raises(AttributeError, match="nonsense"):
        found.nonsense  # noqa: B018 (its error is what is tested)


def test_modules_inside_tensorflow_are_those_of_keras_2():
    """A layer of TensorFlow's own copy would be none for tf.keras."""
    from tensorflow.contrib.keras.api.keras import models
    from tensorflow.python.keras.engine.base_layer import Layer
    from tensorflow.python.keras.layers import core

    assert Layer is tf.keras.layers.Layer and core.Dense is Dense and models.Sequential is Sequential
    assert keras.engine.topology.Layer is Layer and callable(keras.layers.merge)


def test_backend_has_names_of_keras_1():
    """The order of dimensions, and small functions."""
    assert K.image_dim_ordering() == "tf"
    K.set_image_dim_ordering("th")
    assert K.image_data_format() == "channels_first" and K.image_dim_ordering() == "th"
    K.set_image_dim_ordering("tf")
    assert K.get_variable_shape(K.zeros([2, 3])) == (2, 3) and K.is_tensor(K.tf.zeros([1]))
    assert np.isclose(K.get_session().run(K.logsumexp(tf.zeros([4]))), np.log(4))


def test_layers_and_training_take_arguments_of_keras_1():
    """Names, a kernel's size by position, and numbers of epochs and examples."""
    model = Sequential([
        Convolution2D(4, 3, 3, border_mode="same", input_shape=(8, 8, 1), dim_ordering="tf", init="normal"),
        Convolution2D(4, 2, 3), MaxPooling2D(pool_size=(2, 2), border_mode="valid"), Flatten(), Dropout(p=0.2),
        Dense(output_dim=3, init="uniform", W_regularizer="l2", activation="softmax")])
    assert [layer.kernel_size for layer in model.layers[:2]] == [(3, 3), (2, 3)]
    assert model.layers[0].padding == "same" and model.layers[-1].kernel_regularizer is not None
    model.compile("sgd", "categorical_crossentropy", metrics=["accuracy"])
    history = model.fit(IMAGES, CLASSES, batch_size=5, nb_epoch=2, verbose=0)
    assert len(history.history["loss"]) == 2 and "acc" in history.history

    def batches():
        while True:
            yield IMAGES[:5], CLASSES[:5]
    history = model.fit_generator(batches(), samples_per_epoch=3, nb_epoch=1, verbose=0, max_q_size=2)
    assert len(history.history["loss"]) == 1
    assert model.predict_classes(IMAGES).tolist() == model.predict_proba(IMAGES).argmax(-1).tolist()


def test_recurrent_and_embedding_layers_take_arguments_of_keras_1():
    """An argument that a layer has today keeps its meaning: `output_dim` of an embedding."""
    model = Sequential([
        Embedding(output_dim=5, input_dim=9, input_length=3, init="uniform"),
        LSTM(output_dim=4, inner_init="orthogonal", consume_less="gpu", dropout_W=0.1, U_regularizer="l2"),
        BatchNormalization(mode=0), Dense(1)])
    assert model.layers[0].output_dim == 5 and model.layers[1].units == 4 and model.layers[1].dropout == 0.1
    assert model.output_shape == (None, 1)


def test_models_and_merge_of_keras_1():
    """`Model(input=..., output=...)`, and a function for several inputs."""
    left, right = Input(shape=(4,)), Input(shape=(4,))
    model = Model(input=[left, right], output=[
        merge([left, right], mode=mode) for mode in ("sum", "mul", "concat", "max")])
    rows = [np.full([1, 4], 2.0), np.full([1, 4], 3.0)]
    assert [result[0].tolist() for result in model.predict(rows)] == [[5] * 4, [6] * 4, [2] * 4 + [3] * 4, [3] * 4]
    with pytest.raises(ValueError, match="sum, mul"):
        merge([left, right], mode="difference")
    difference = merge([left, right], mode=lambda both: both[0] - both[1], output_shape=(4,), name="nm")
    named = Model([left, right], difference)
    assert named.get_layer("nm") is named.layers[-1] and named.predict(rows).tolist() == [[-1] * 4]
    assert merge.Add is keras.layers.Add
    assert merge([left, right], "concat", -1, 1).shape.as_list() == [None, 8]  # by position, as Keras 1 had them


def test_arguments_of_today_stay():
    """The third number of a convolution is its stride, unless the code has the class by its name of Keras 1."""
    layers = tf.keras.layers
    for layer in (layers.Conv2DTranspose(4, 2, 2), layers.Conv2D(4, 2, 2, "same")):
        assert (layer.kernel_size, layer.strides) == ((2, 2), (2, 2))
    assert keras.layers.Convolution3D(4, 3, 2, 1).kernel_size == (3, 2, 1)


@pytest.mark.parametrize(("make", "error"), [
    (lambda: Dense(4, nonsense=1), "nonsense"), (lambda: Dense(3, mode="x"), "mode"),
    (lambda: Dense(3, nb_row=4), "nb_row"), (lambda: Dense(3, length=4), "length"),
    (lambda: keras.layers.Add(mode="concat"), "mode"),
    (lambda: Dense(3, init="zeros", kernel_initializer="ones"), "init and kernel_initializer")])
def test_arguments_that_a_layer_never_had_are_refused(make, error):
    """By the name that the script has written."""
    with pytest.raises(TypeError, match=error):
        make()


def test_methods_that_take_old_arguments_still_say_which_they_have():
    """Keras asks for them before it calls."""
    model = Sequential([Dense(1, input_shape=(2,))])
    assert {"epochs", "batch_size"} <= set(inspect.signature(model.fit).parameters)
    assert keras.utils.has_arg(model.fit, "epochs") and not keras.utils.has_arg(model.fit, "nonsense")
    assert keras.__version__.startswith("2.")


def test_examples_of_an_epoch_are_counted_in_batches():
    """By the size of a batch of each generator, wherever it stands; one at least."""
    class Batches(keras.utils.Sequence):
        def __init__(self, batch_size):
            self.batch_size = batch_size

        def __len__(self):
            return 50

        def __getitem__(self, index):
            return np.zeros([self.batch_size, 2]), np.zeros(self.batch_size)

    class Counting(keras.callbacks.Callback):
        trained = validated = 0

        def on_train_batch_end(self, batch, logs=None):
            self.trained += 1

        def on_test_batch_end(self, batch, logs=None):
            self.validated += 1

    model = Sequential([Dense(1, input_shape=(2,))])
    model.compile("sgd", "mse")
    for samples, steps in ((40, 4), (5, 1)):
        counted = Counting()
        model.fit_generator(generator=Batches(10), samples_per_epoch=samples, validation_data=Batches(20),
                            nb_val_samples=60, nb_epoch=1, verbose=0, callbacks=[counted])
        assert (counted.trained, counted.validated) == (steps, 3)


@pytest.mark.parametrize("module", ["keras.layers.core", "keras.engine.topology", "keras.utils.generic_utils",
                                    "keras.backend.tensorflow_backend", "keras.backend"])
def test_star_imports_leave_the_modules_of_a_script_alone(module):
    """`tf` among them."""
    scope = {"tf": tf, "np": np, "os": os}
    exec(f"from {module} import *", scope)
    assert (scope["tf"], scope["np"], scope["os"]) == (tf, np, os) and len(scope) > 10


def test_an_optimizer_of_tensorflow_is_one_of_keras():
    """As `TFOptimizer`; a model for several GPUs is the model itself."""
    from keras.optimizers import TFOptimizer, adam
    from keras.utils import multi_gpu_model

    model = Sequential([Dense(1, input_shape=(2,), kernel_initializer="zeros")])
    multi_gpu_model(model, gpus=2).compile(TFOptimizer(tf.train.GradientDescentOptimizer(0.5)), "mse")
    model.fit(np.ones([4, 2]), np.ones([4]), epochs=1, batch_size=4, verbose=0)
    np.testing.assert_allclose(model.get_weights()[0], [[1], [1]])
    assert adam is keras.optimizers.Adam


def test_rows_of_an_hdf5_file_are_read_where_they_are_indexed(tmp_path):
    """By slices, numbers and lists in any order."""
    import h5py

    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["rows"] = np.arange(20).reshape(10, 2)
    rows = keras_modules.HDF5Matrix(str(tmp_path / "data.h5"), "rows", start=2, end=8, normalizer=lambda row: row + 1)
    assert (len(rows), rows.shape, rows.ndim, rows.size) == (6, (6, 2), 2, 12) and rows.dtype == np.int64
    assert rows[0].tolist() == [5, 6] and rows[4:9].tolist() == [[13, 14], [15, 16]]
    assert rows[[3, 0, 3]].tolist() == [[11, 12], [5, 6], [11, 12]]


def test_models_take_inputs_of_another_shape_than_they_declare():
    """In TF1 only a step found one wrong, so an example of CIFAR-10 declares 32 * 32 numbers, and is given images."""
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Reshape([2, 2, 3], input_shape=(4,)), layers.Flatten()])
    images = tf.reshape(tf.range(24.0), [2, 2, 2, 3])
    with tf.Session() as session:
        assert session.run(model(images, training=True)).tolist() == np.arange(24).reshape(2, 12).tolist()
    model.input_spec = layers.InputSpec(shape=(None, 4))
    with pytest.raises(ValueError, match="incompatible"):
        model(images)


def make_classifier(units=8, loss="categorical_crossentropy"):
    """Returns a small model of three classes."""
    model = Sequential([Dense(units, input_dim=3, activation="relu"), Dense(3, activation="softmax")])
    model.compile(loss=loss, optimizer=keras.optimizers.Adam(0.05), metrics=["accuracy"])
    return model


@pytest.mark.parametrize("loss", ["categorical_crossentropy", "sparse_categorical_crossentropy"])
def test_a_model_is_a_classifier_of_scikit_learn(loss):
    """Its classes may be words; parameters go to the function that takes them. Import works from both packages."""
    from keras.wrappers.scikit_learn import KerasClassifier
    from tensorflow.keras.wrappers import scikit_learn

    assert scikit_learn.KerasClassifier is KerasClassifier
    x = np.random.default_rng(0).normal(size=(120, 3))
    y = np.array(["a", "b", "c"])[x.argmax(1)]
    learner = KerasClassifier(make_classifier, loss=loss, epochs=30, batch_size=20, verbose=0)
    assert not learner.__sklearn_is_fitted__()
    assert len(learner.fit(x, y).history["loss"]) == 30
    assert learner.__sklearn_is_fitted__()  # which a Pipeline asks
    found, chances = learner.predict(x), learner.predict_proba(x)
    assert found.tolist() == learner.classes_[chances.argmax(1)].tolist() and set(found) <= set("abc")
    assert learner.score(x, y) == pytest.approx(np.mean(found == y)) and np.mean(found == y) > 0.8
    assert learner.set_params(units=2).get_params()["units"] == 2
    with pytest.raises(ValueError, match="'nonsense' is not a parameter"):
        KerasClassifier(make_classifier, nonsense=1)


def test_a_model_is_a_regressor_of_scikit_learn():
    """Its score is the loss, with the other sign; nb_epoch is Keras 1's."""
    from keras.wrappers.scikit_learn import KerasRegressor

    def make():
        model = Sequential([Dense(1, input_dim=3)])
        model.compile(loss="mean_squared_error", optimizer="sgd")
        return model
    x = np.random.default_rng(0).normal(size=(40, 3))
    learner = KerasRegressor(make, nb_epoch=2, verbose=0)
    assert len(learner.fit(x, x.sum(1)).history["loss"]) == 2
    found = learner.predict(x)
    assert found.shape == (40,) and learner.score(x, x.sum(1)) == pytest.approx(-np.mean((found - x.sum(1)) ** 2), 1e-4)


@pytest.mark.parametrize(("name", "rate"), [
    ("Adadelta", 1.0), ("Adagrad", 0.01), ("Adamax", 0.002), ("Nadam", 0.002), ("SGD", 0.01), ("Adam", 0.001)])
def test_optimizers_have_the_rates_of_the_package_keras(name, rate):
    """As in Keras 2.2.4, also by their names; a rate that is given stays."""
    kind = getattr(keras.optimizers, name)
    model = Sequential([Dense(1, input_dim=2)])
    model.compile(name.lower(), "mse")
    assert K.get_value(kind().lr) == K.get_value(model.optimizer.lr) == pytest.approx(rate)
    assert K.get_value(kind(lr=0.25).lr) == K.get_value(kind(0.25).lr) == 0.25


def test_keras_says_its_version():
    """By each of its names."""
    from tensorflow.python import keras as inside

    assert tf.keras.__version__ == keras.__version__ == inside.__version__ >= "2.15"


def test_mixed_precision_and_schedules_have_names_of_2_0_to_2_3():
    """A policy of 16 bits computes with them and keeps variables of 32; the schedule is the function of tf.train."""
    from tensorflow.keras.mixed_precision import experimental

    try:
        experimental.set_policy(experimental.Policy("mixed_float16"))
        layer = tf.keras.layers.Dense(2)
        assert layer(tf.ones([1, 3])).dtype == tf.float16 and layer.kernel.dtype.base_dtype == tf.float32
        experimental.set_policy("mixed_float16")
        policy = experimental.global_policy()
        assert (policy.name, policy.loss_scale) == ("mixed_float16", "dynamic")
    finally:
        experimental.set_policy("float32")
        tf.keras.layers.disable_v2_dtype_behavior()
    for scale in ("dynamic", 128):
        optimizer = experimental.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1), loss_scale=scale)
        assert optimizer.dynamic is (scale == "dynamic")
    fixed = tf.train.experimental.FixedLossScale(8.0)
    for scale, expected in ((fixed, 8), (tf.train.experimental.DynamicLossScale(), 2 ** 15), (None, 1)):
        optimizer = experimental.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1), scale)
        assert optimizer.initial_scale == expected
    schedule = tf.keras.experimental.LinearCosineDecay(0.1, 100, 2)
    with tf.Session() as session:
        assert session.run(schedule(30)) == session.run(tf.train.linear_cosine_decay(0.1, 30, 100, num_periods=2))
    assert schedule.get_config() == {"initial_learning_rate": 0.1, "decay_steps": 100, "num_periods": 2}


def test_memory_in_use_is_0_without_a_gpu():
    """The operations exist, so a script that prints it runs."""
    from tensorflow.contrib.memory_stats.python.ops.memory_stats_ops import BytesInUse, MaxBytesInUse

    with tf.Session() as session:
        assert session.run([BytesInUse(), MaxBytesInUse()]) == [0, 0]


def test_the_optimizers_of_tensorflow_2_are_those_that_graphs_can_use():
    """Its own ones since 2.11 take part in no graph; the old ones train models and Estimators."""
    from tensorflow.optimizers import Adam

    assert Adam is tf.optimizers.Adam is tf.keras.optimizers.Adam
    assert tf.optimizers.schedules.ExponentialDecay is tf.keras.optimizers.schedules.ExponentialDecay
    model = Sequential([Dense(3, activation="softmax", input_shape=(8 * 8,))])
    model.compile(tf.optimizers.Adam(0.1), "categorical_crossentropy")
    losses = model.fit(IMAGES.reshape(20, -1), CLASSES, epochs=9, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
