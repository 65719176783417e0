"""Names of `horovod.keras` in a script that runs alone, and what needs no second rank."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from ps_train.parts.legacy.horovod import imports, ranks
from ps_train.parts.legacy.horovod import module as hvd_module
from tests.errors import raises
from tests.tensorflow_mode import tf

if importlib.util.find_spec("tf_keras") is None:
    pytest.skip("Keras 2 is not installed", allow_module_level=True)

from ps_train.parts.legacy.horovod import keras_names, keras_optimizer

hvd = keras_names.stand_in_of_keras()


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    monkeypatch.setattr(hvd_module._State, "ranks", ranks.ALONE)


def test_alone_a_model_trains_with_all_callbacks():
    """Rank 0 of 1 averages nothing, and has its whole learning rate at once."""
    callbacks = hvd.callbacks
    with tf.Graph().as_default(), tf.Session().as_default():
        model = tf.keras.models.Sequential([tf.keras.layers.Dense(1, kernel_initializer="ones", use_bias=False)])
        optimizer = tf.keras.optimizers.SGD(0.1)
        assert hvd.DistributedOptimizer(optimizer) is optimizer
        model.compile(loss="mse", optimizer=optimizer)
        history = model.fit(np.ones([4, 1]), np.zeros([4, 1]), 2, 2, 0, callbacks=[
            callbacks.BroadcastGlobalVariablesCallback(0), callbacks.MetricAverageCallback(),
            callbacks.LearningRateWarmupCallback(warmup_epochs=1),
            callbacks.LearningRateScheduleCallback(0.5, start_epoch=1)]).history
        np.testing.assert_allclose(history["lr"], [0.1, 0.05])
        np.testing.assert_allclose(model.get_weights()[0].item(), 0.8 ** 2 * 0.9 ** 2, rtol=1e-6)


def test_numbers_come_back_at_once():
    """As numbers and arrays of numpy; a tensor is computed."""
    assert hvd.allreduce(2.5) == 2.5 and hvd.allreduce([1, 3], op=hvd.Sum, postscale_factor=2).tolist() == [2, 6]
    assert hvd.broadcast(7, 0, name="epoch") == 7 and hvd.allgather([[1, 2]]).tolist() == [[1, 2]]
    with tf.Graph().as_default(), tf.Session().as_default():
        assert hvd.allreduce(tf.constant(3.0) * 2) == 6
    with raises("horovod_root"):
        hvd.broadcast(7, 1)


@pytest.mark.parametrize(("args", "kwargs", "expected"), [
    ((0.1,), {"start_epoch": 30, "end_epoch": 60, "initial_lr": 2.0}, (0.1, 30, 60, True, 2.0)),
    ((0.1, 30, 60, False), {}, (0.1, 30, 60, False, None)),
    ((2.0, 0.1, 30), {}, (0.1, 30, None, True, 2.0)),
    ((2.0, 1), {"start_epoch": 30}, (1, 30, None, True, 2.0)),
    ((2.0, lambda epoch: 0.1), {}, (0.1, 0, None, True, 2.0)),
    ((lambda epoch: 0.1, 30), {}, (0.1, 30, None, True, None)),
    ((), {"initial_lr": 2.0, "multiplier": 0.1, "staircase": False}, (0.1, 0, None, False, 2.0)),
    ((2.0,), {"multiplier": 0.1}, (0.1, 0, None, True, 2.0)),
])
def test_the_schedule_takes_the_arguments_of_all_versions(args, kwargs, expected):
    """The initial learning rate became the first argument in 0.21."""
    schedule = hvd.callbacks.LearningRateScheduleCallback(*args, **kwargs)
    assert (schedule.multiplier(1), schedule.start_epoch, schedule.end_epoch, schedule.staircase,
            schedule.initial_lr) == expected


@pytest.mark.parametrize(("args", "kwargs", "expected"), [
    ((), {}, (5, None)),
    ((3,), {"verbose": 1}, (3, None)),
    ((3, True, 10), {"initial_lr": 0.1}, (3, 0.1)),
    ((0.1, 3), {}, (3, 0.1)),
    ((0.1,), {"warmup_epochs": 3}, (3, 0.1)),
])
def test_the_warm_up_takes_the_arguments_of_all_versions(args, kwargs, expected):
    """It ends after its epochs."""
    warmup = hvd.callbacks.LearningRateWarmupCallback(*args, **kwargs)
    assert (warmup.end_epoch, warmup.initial_lr) == expected and not warmup.staircase


def test_wrong_arguments_are_one_line():
    """Those of callbacks, an optimizer of another kind or update, and a missing name."""
    with raises("horovod_argument"):
        hvd.callbacks.LearningRateScheduleCallback(start_epoch=3)
    with raises("horovod_argument"):
        hvd.callbacks.LearningRateWarmupCallback(epochs=3)
    with raises("horovod_optimizer"):
        hvd.DistributedOptimizer(tf.train.AdamOptimizer())
    with raises("horovod_optimizer"):
        hvd.DistributedOptimizer(tf.keras.optimizers.Adam(), backward_passes_per_step=2)
    with raises("horovod_name_missing"):
        hvd.elastic.run(None)


def test_gradients_of_a_dtype_are_reduced_as_one_and_sparse_ones_as_rows(monkeypatch):
    """In the optimizer's class, whose name a saved model has; None stays None, and `sparse_as_dense` fuses all."""
    reduced = []

    def double(tensor, op, name):
        reduced.append(name)
        if isinstance(tensor, tf.IndexedSlices):
            return tf.IndexedSlices(tensor.values * 2, tensor.indices, tensor.dense_shape)
        return tensor * 2

    monkeypatch.setattr(hvd_module, "allreduce", double)
    with tf.Graph().as_default(), tf.Session() as session:
        dense = [tf.get_variable(name, shape, dtype) for name, shape, dtype in (
            ("a", [2], tf.float32), ("b", [], tf.float64), ("c", [1, 3], tf.float32))]
        table = tf.get_variable("table", [4, 1])
        loss = sum(tf.cast(tf.reduce_sum(3 * each), tf.float32) for each in dense) + tf.reduce_sum(
            tf.gather(table, [1, 3]))
        for is_dense in (False, True):
            kind = keras_optimizer.distributed_class(tf.keras.optimizers.Adam, sparse_as_dense=is_dense)
            assert kind.__name__ == "Adam" and issubclass(kind, tf.keras.optimizers.Adam)
            *found, rows = kind().get_gradients(loss, [*dense, table])
            assert isinstance(rows, tf.IndexedSlices) is not is_dense
            assert [value.tolist() for value in session.run(found)] == [[6, 6], 6, [[6, 6, 6]]]
            assert session.run(tf.convert_to_tensor(rows)).ravel().tolist() == [0, 2, 0, 2]
    common = ["keras_gradients/float32", "keras_gradients/float64"]
    assert reduced == ["keras_gradients/3", *common, *common]


def test_an_import_after_init_in_a_cluster_is_one_line(monkeypatch):
    """`hvd.init()` of horovod.tensorflow has placed the variables on the ps."""
    monkeypatch.setattr(hvd_module._State, "exchange", object())
    monkeypatch.setattr(hvd_module._State, "keeps_variables", False)
    with raises("horovod_import_too_late"):
        imports._keras_module("horovod.keras")
