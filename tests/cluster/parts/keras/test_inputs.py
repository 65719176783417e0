"""How much held-out data there is: counted with a bound, or said by the user."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

pytest.importorskip("tf_keras", reason="the Keras road needs the extra `keras`")

import ps_train
from ps_train.errors import ConfigError, DataError
from ps_train.parts.keras import flags, inputs
from ps_train.plugins.contracts import Dataset
from ps_train.runtime.threads import Call

FEATURES, LABELS = np.zeros([10, 4], np.float32), np.zeros(10, np.int32)


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    """As in a process of the Keras road, in each of its threads."""
    def call(function, name):
        return Call(context.eager_mode()(function), name)

    monkeypatch.setattr(inputs, "Call", call)
    with context.eager_mode():
        yield


def dataset(make):
    """Returns a plug-in whose data is what `make(mode)` returns."""
    return Dataset("mine", lambda mode, params, shard: make(mode), lambda params: None, {})


def inputs_of(plugin, *argv, **params):
    """Returns the inputs of a plug-in under these flags."""
    return inputs.KerasInputs(flags.parse_keras_task(argv, {}), plugin, params)


def slices():
    """Returns 4 batches, the last one smaller."""
    return tf.data.Dataset.from_tensor_slices((FEATURES, LABELS)).batch(3)


def unknown(batches):
    """Returns the dataset without its number of batches."""
    return batches.filter(lambda features, labels: True)


@pytest.mark.parametrize("make", [slices, lambda: unknown(slices()),
                                  lambda: ps_train.from_arrays((FEATURES, LABELS), 3)])
def test_a_set_with_an_end_is_evaluated_whole(make):
    """Each example counts once; a validation may be shorter, and never longer."""
    plugin = dataset(lambda mode: make())
    assert inputs_of(plugin).eval_sizes() == [3, 3, 3, 1]
    assert inputs_of(plugin).validation_steps() == 4
    assert inputs_of(plugin, "--validation_steps=2").validation_steps() == 2
    assert inputs_of(plugin, "--validation_steps=9").validation_steps() == 4


@pytest.mark.parametrize("make", [lambda: slices().repeat(),
                                  lambda: ps_train.from_arrays((FEATURES, LABELS), 3, repeat=True)])
def test_a_set_that_repeats_needs_a_number_of_batches(make):
    """It hung without a line: Keras' guide has .batch().repeat() on all three sets."""
    plugin = dataset(lambda mode: make())
    for count in (inputs_of(plugin).eval_sizes, inputs_of(plugin).validation_steps):
        with pytest.raises(ConfigError, match=r'^--validation_steps: not given, and the dataset of mode "eval" of mine '
                                              "repeats without end; give the number of batches"):
            count()
    assert inputs_of(plugin, "--validation_steps=2").validation_steps() == 2
    assert len(inputs_of(plugin, "--validation_steps=2").eval_sizes()) == 2


def test_an_end_that_does_not_come_is_told():
    """Where the set does not say that it repeats, and where it stands still."""
    told = r"^--eval_timeout_secs: the dataset of mode \"eval\" of mine gave \d+ batches in 0.2 s, and did not " \
           "end; give --validation_steps"
    endless = dataset(lambda mode: unknown(slices().repeat()))
    with pytest.raises(DataError, match=told):
        inputs_of(endless, "--eval_timeout_secs=0.2").eval_sizes()
    assert len(inputs_of(endless, "--validation_steps=2").eval_sizes()) == 2
    released = threading.Event()

    def wait(features, labels):
        released.wait()
        return features, labels

    still = dataset(lambda mode: slices().map(lambda *batch: tf.numpy_function(wait, batch, [tf.float32, tf.int32])))
    try:
        with pytest.raises(DataError, match=told):
            inputs_of(still, "--eval_timeout_secs=0.2").eval_sizes()
    finally:
        released.set()


def test_an_empty_set_is_told():
    """There is nothing to evaluate on."""
    with pytest.raises(DataError, match='the dataset of mode "eval" is empty'):
        inputs_of(dataset(lambda mode: slices().take(0))).eval_sizes()


def test_a_validation_set_of_its_own_is_asked_for():
    """Where the dataset has a validation_size; the report is of the test set nevertheless."""
    plugin = dataset(lambda mode: slices().take(1 if mode == ps_train.VALIDATION else 2))
    assert inputs_of(plugin, validation_size=3).validation_steps() == 1
    assert inputs_of(plugin, validation_size=0).validation_steps() == 2
    assert inputs_of(plugin, validation_size=3).eval_sizes() == [3, 3]
