"""What a checkpoint of a Keras model holds: test_fitting.py runs these tests in a process of TensorFlow 2."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from ps_train.parts.keras import checkpoints, flags, readable, task
from ps_train.parts.keras.plugins import KerasModel
from tests.errors import raises

layers = tf_keras.layers


class Paths(layers.Layer):
    """Sums what two of its layers make of the input."""

    def call(self, inputs):
        first, second = self.used()
        return first(inputs) + second(inputs)


class ListOfLists(Paths):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.paths = [[layers.Dense(2)], [layers.Dense(2)]]

    def used(self):
        return self.paths[0][0], self.paths[1][0]


class DictOfLists(Paths):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.paths = {"a": [layers.Dense(2)], "b": [layers.Dense(2)]}

    def used(self):
        return self.paths["a"][0], self.paths["b"][0]


class Flat(Paths):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.paths, self.more = [layers.Dense(3)], {"a": layers.BatchNormalization()}

    def used(self):
        return self.paths[0], self.more["a"]


class Module(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.module = tf.Module()
        self.module.scale = tf.Variable(1.0, name="scale")

    def call(self, inputs):
        return inputs * self.module.scale


class SavedModule(Module):
    def save_own_variables(self, store):
        store["scale"] = self.module.scale.numpy()

    def load_own_variables(self, store):
        self.module.scale.assign(store["scale"])


class FailingModule(Module):
    def save_own_variables(self, store):
        raise KeyError("scale")


SHARED = layers.Dense(3)
TABLE = tf.Variable([[1.0, 2.0, 3.0]])


class SharedLayer(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.shared = SHARED

    def call(self, inputs):
        return self.shared(inputs)


class SharedVariable(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.table = TABLE

    def call(self, inputs):
        return inputs * self.table


def plugin_of(*parts, optimizer=tf_keras.optimizers.SGD):
    """Returns a plug-in whose model has these layers, and a Dense after them."""
    def build_model(params):
        model = tf_keras.Sequential([layers.Input((3,)), *parts, layers.Dense(1, name="last")])
        model.compile(optimizer(), "mse")
        return model

    return KerasModel("mine", build_model, {}, {type(part).__name__: type(part) for part in parts})


@pytest.mark.parametrize(("layer", "lost"), [
    (ListOfLists, "dense"), (DictOfLists, "dense"), (Module, "scale"), (FailingModule, "KeyError"),
])
def test_a_model_whose_checkpoints_would_lack_weights_is_refused(layer, lost):
    """Issue: it trained, and each model read from its checkpoints had random values there, without a word."""
    plugin = plugin_of(layer())
    with raises("weights_not_saved") as caught:
        readable.check_readable(checkpoints.build_model(plugin, {}), plugin)
    assert lost in str(caught.value) and "last/" not in str(caught.value)


@pytest.mark.parametrize("layer", [
    Flat, SavedModule, SharedLayer, SharedVariable, layers.LayerNormalization, layers.BatchNormalization,
    lambda: layers.IntegerLookup(output_mode="multi_hot", vocabulary=[1, 2]),
])
@pytest.mark.parametrize("optimizer", [
    lambda: tf_keras.optimizers.Adam(amsgrad=True, use_ema=True),
    lambda: tf_keras.mixed_precision.LossScaleOptimizer(tf_keras.optimizers.SGD()),
])
def test_a_model_whose_checkpoints_have_all_weights_is_not(layer, optimizer):
    """Nor does the check change it. Issue: variables of its module, which Keras reads as the same, were overwritten."""
    plugin = plugin_of(layer(), optimizer=optimizer)
    model = checkpoints.build_model(plugin, {})
    before = model.get_weights()
    readable.check_readable(model, plugin)
    assert all((new == old).all() for new, old in zip(model.get_weights(), before))


@pytest.mark.parametrize(("layer", "data"), [
    (lambda: layers.TextVectorization(output_mode="tf_idf"), [["a b a"], ["b c"]]),
    (lambda: layers.IntegerLookup(output_mode="tf_idf"), [[1], [2]]),
    (lambda: layers.Discretization(num_bins=3), [[1.0], [2.0], [3.0]]),
    (layers.Normalization, [[1.0], [2.0]]),
])
def test_a_layer_that_has_seen_data_is_not_refused(layer, data):
    """Issue: a variable of open shape was a traceback; and Keras saves no count with which such a layer adapts."""
    def build_model(params):
        adapted, examples = layer(), tf.constant(data)
        adapted.adapt(examples)
        model = tf_keras.Sequential([layers.Input((1,), dtype=examples.dtype), adapted, layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    plugin = KerasModel("mine", build_model, {})
    readable.check_readable(checkpoints.build_model(plugin, {}), plugin)


def test_a_full_folder_for_temporary_files_ends_no_training(monkeypatch, caplog):
    """The check is left out, with a warning."""
    plugin = plugin_of(Flat())
    monkeypatch.setattr(readable.tempfile, "tempdir", "/nowhere/at/all")
    readable.check_readable(checkpoints.build_model(plugin, {}), plugin)
    assert "was not tried" in caplog.text


@pytest.mark.parametrize(("before", "after", "is_refused"), [
    ("Adam", "Ftrl", True), ("Adam", "Adadelta", True), ("Adam", "Adamax", True), ("SGD", "Adagrad", True),
    ("Adam", "AdamW", False), ("Ftrl", "Ftrl", False),
])
def test_slots_are_restored_by_an_optimizer_that_has_the_same(tmp_path, before, after, is_refused):
    """Issue: one with as many slots took them for its own, and made NaN of the moments of another."""
    old, new = (plugin_of(optimizer=getattr(tf_keras.optimizers, name)) for name in (before, after))
    checkpoints.write_model(checkpoints.build_model(old, {}), checkpoints.checkpoint_path(str(tmp_path), 7))
    newest = checkpoints.load_newest(new, str(tmp_path))
    with tf.name_scope("other"):  # which is in the names of slots
        model = checkpoints.build_model(new, {})
    if not is_refused:
        assert checkpoints.restore_model(model, newest) == 7
        return
    with raises("checkpoint_of_another_optimizer") as caught:
        checkpoints.restore_model(model, newest)
    assert f"is of {before}, and the model has {after}" in str(caught.value)


class Shifted(layers.Layer):
    """Adds a constant, which may be infinite, as in a mask."""

    def __init__(self, constant, **kwargs):
        super().__init__(**kwargs)
        self.mask = self.add_weight("mask", (3,), initializer=tf_keras.initializers.Constant(constant), trainable=False)
        self.count = self.add_weight("count", (), tf.int64, "zeros", trainable=False)

    def call(self, inputs):
        return inputs + self.mask


def test_a_moving_average_that_is_not_finite_is_found():
    """Issue: only trained weights were looked at, and an optimizer that scales the loss keeps these finite."""
    normed = layers.BatchNormalization()
    model = checkpoints.build_model(plugin_of(normed, Shifted(-np.inf)), {})
    constants = checkpoints.infinite_constants(model)
    assert len(constants) == 1 and not checkpoints.spoilt_weight(model, constants)
    normed.moving_mean.assign([0.0, np.inf, 0.0])
    assert "moving_mean" in checkpoints.spoilt_weight(model, constants)
    normed.moving_mean.assign([0.0, np.nan, 0.0])
    assert "moving_mean" in checkpoints.spoilt_weight(model, constants)


def test_a_constant_that_becomes_nan_is_found():
    """It may be infinite only."""
    shifted = Shifted(-np.inf)
    model = checkpoints.build_model(plugin_of(shifted), {})
    constants = checkpoints.infinite_constants(model)
    shifted.mask.assign([0.0, np.nan, 0.0])
    assert "mask" in checkpoints.spoilt_weight(model, constants)


@pytest.mark.parametrize(("asked", "compiled", "warns"), [
    (["--steps_per_execution=7"], None, True), (["--steps_per_execution=7"], 7, False), ([], 7, False),
])
def test_a_model_that_is_compiled_for_other_executions_is_told(caplog, asked, compiled, warns):
    """Issue: the flag had no effect on a model that does not give it to compile, and nothing said so."""
    plugin = plugin_of()
    model = checkpoints.build_model(plugin, {})
    model.compile("sgd", "mse", steps_per_execution=compiled)
    task._warn_of_executions(model, flags.parse_keras_task(asked, {}), plugin)
    assert ("compiled the model for 1" in caplog.text) == warns


class OwnCompile(tf_keras.Sequential):
    def compile(self, steps):
        super().compile("sgd", "mse", steps_per_execution=steps)

    def get_compile_config(self):
        return {"steps": None}


@pytest.mark.parametrize(("compiled", "told"), [
    (7, ""), (5, "compiled the model for 5"), ("auto", "compiled the model for auto"),
])
def test_the_executions_of_a_model_with_its_own_compile_are_known(caplog, compiled, told):
    """Issue: they were read from its compile configuration, which need not have them, so it was warned of falsely."""
    model = OwnCompile([layers.Input((3,)), layers.Dense(1)])
    model.compile(compiled)
    task._warn_of_executions(model, flags.parse_keras_task(["--steps_per_execution=7"], {}), plugin_of())
    assert told in caplog.text and bool(told) == ("--steps_per_execution" in caplog.text)
