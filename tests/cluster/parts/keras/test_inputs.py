"""The size of the held-out data: counted with a time limit, or given by the user."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

pytest.importorskip("tf_keras", reason="Keras training needs the extra `keras`")

import ps_train
from ps_train.parts.keras import flags, inputs
from ps_train.plugins.contracts import Dataset
from ps_train.runtime.threads import Call
from tests.errors import raises

FEATURES, LABELS = np.zeros([10, 4], np.float32), np.zeros(10, np.int32)


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    """Executes eagerly, as a process of `ps_train keras` does in each of its threads."""
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


def num_evaluated(keras_inputs):
    """Returns the number of examples in the evaluation at the end."""
    batches, steps, num_examples = keras_inputs.counted_eval_batches()
    assert sum(1 for _ in batches) == steps
    return int(num_examples)


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
    assert num_evaluated(inputs_of(plugin)) == 10
    assert inputs_of(plugin).validation_steps() == 4
    assert inputs_of(plugin, "--validation_steps=2").validation_steps() == 2
    assert inputs_of(plugin, "--validation_steps=9").validation_steps() == 4
    for limit in (2, 9):  # issue: of a set that does not know its length, the evaluation at the end was shorter, too
        assert num_evaluated(inputs_of(plugin, f"--validation_steps={limit}")) == 10


@pytest.mark.parametrize("make", [lambda: slices().repeat(),
                                  lambda: ps_train.from_arrays((FEATURES, LABELS), 3, repeat=True)])
def test_a_set_that_repeats_needs_a_number_of_batches(make):
    """Keras' guide has .batch().repeat() on all three sets, with which the evaluation would not end."""
    plugin = dataset(lambda mode: make())
    for count in (inputs_of(plugin).counted_eval_batches, inputs_of(plugin).validation_steps):
        with raises("eval_data_without_end"):
            count()
    assert inputs_of(plugin, "--validation_steps=2").validation_steps() == 2
    assert num_evaluated(inputs_of(plugin, "--validation_steps=2")) == 6


def test_an_end_that_does_not_come_is_an_error(caplog):
    """If the dataset does not know that it repeats, and if it blocks; unless it has --validation_steps batches."""
    endless = dataset(lambda mode: unknown(slices().repeat()))
    with raises("eval_data_without_end"):
        inputs_of(endless, "--eval_timeout_secs=0.2").validation_steps()
    with raises("eval_data_without_end"):
        num_evaluated(inputs_of(endless, "--eval_timeout_secs=0.2"))
    assert num_evaluated(inputs_of(endless, "--validation_steps=2", "--eval_timeout_secs=1")) == 6
    assert "its first 2 batches" in caplog.text
    released = threading.Event()

    def wait(features, labels):
        released.wait()
        return features, labels

    blocked = dataset(lambda mode: unknown(
        slices().map(lambda *batch: tf.numpy_function(wait, batch, [tf.float32, tf.int32]))))
    try:
        with raises("eval_data_without_end"):
            inputs_of(blocked, "--eval_timeout_secs=0.2").validation_steps()
        with raises("eval_data_without_end"):
            num_evaluated(inputs_of(blocked, "--validation_steps=1", "--eval_timeout_secs=0.2"))
    finally:
        released.set()


@pytest.mark.parametrize("make", [lambda: slices().take(0), lambda: unknown(slices().take(0))])
def test_an_empty_set_is_an_error(make):
    """Without examples nothing can be evaluated."""
    with raises("eval_data_empty"):
        inputs_of(dataset(lambda mode: make())).validation_steps()


def test_training_data_without_a_whole_batch_are_an_error():
    """Keras would say that the logs of its train_function are empty."""
    plugin = Dataset("mine", lambda mode, params, shard: tf.data.Dataset.from_tensor_slices((FEATURES, LABELS)).batch(
        params["batch_size"], drop_remainder=mode == ps_train.TRAIN), lambda params: None, {})
    with raises("training_data_empty") as caught:
        inputs_of(plugin, "--batch_size=6", batch_size=6, seed=0).feed(
            SimpleNamespace(num_replicas_in_sync=2), fails_at_end=True)
    assert "12 examples" in str(caught.value)


@pytest.mark.parametrize("make", [lambda: slices().take(1), lambda: slices().take(0)])
def test_training_data_of_unknown_length_end_with_an_error_of_ps_train(make):
    """Also if there are none."""
    seen = 0
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        for _ in inputs._failing_at_end(unknown(make())):
            seen += 1
    assert inputs.is_end(caught.value) and seen == int(make().cardinality())


@pytest.mark.parametrize(("flags", "expected"), [([], 2), (["--validation_steps=3"], 2), (["--validation_steps=1"], 1)])
@pytest.mark.parametrize("form", [lambda batches: batches, unknown])
def test_a_validation_has_no_more_steps_than_batches_of_all_replicas(flags, expected, form):
    """Else Keras would report the metrics of the training data as those of the second and every later validation."""
    plugin = Dataset("mine", lambda mode, params, shard: form(
        tf.data.Dataset.from_tensor_slices((FEATURES, LABELS)).batch(params["batch_size"])), lambda params: None, {})
    feed = inputs_of(plugin, "--batch_size=3", *flags, batch_size=3, seed=0).feed(
        SimpleNamespace(num_replicas_in_sync=2), fails_at_end=False)
    assert feed.validation_steps == expected
    assert sum(1 for _ in feed.validation) == 2


def test_a_validation_set_of_its_own_is_asked_for():
    """If the dataset has a validation_size; the report is of the test set nevertheless."""
    plugin = dataset(lambda mode: slices().take(1 if mode == ps_train.VALIDATION else 2))
    assert inputs_of(plugin, validation_size=3).validation_steps() == 1
    assert inputs_of(plugin, validation_size=0).validation_steps() == 2
    assert num_evaluated(inputs_of(plugin, validation_size=3)) == 6


@pytest.mark.parametrize(("data_dir", "seen"), [("data", "{folder}/data"), ("/data", "/data"), ("s3://b/d", "s3://b/d"),
                                                ("", "")])
def test_the_workers_of_a_coordinator_get_an_absolute_folder(tmp_path, monkeypatch, data_dir, seen):
    """Issue: they read the data's relative path in the folder in which they serve, where it does not exist."""
    monkeypatch.chdir(tmp_path)
    folders = []

    def make(mode, params, shard):
        folders.append(params["data_dir"])
        return slices()

    feed = inputs_of(Dataset("mine", make, lambda params: None, {}), "--strategy=parameter_server",
                     data_dir=data_dir, seed=1).feed(None, fails_at_end=False)
    del folders[:]
    for creator in (feed.training, feed.validation):
        creator.dataset_fn(None)
    assert folders == [seen.format(folder=tmp_path)] * 2
