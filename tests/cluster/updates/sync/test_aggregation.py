"""Synchronous updates on the ps: their numbers are those of TensorFlow's own optimizer, and nothing old gets in."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import ps_train
from ps_train.plugins import contracts
from tests import bare_training, clusters
from tests.tensorflow_mode import tf

NUM_STEPS = 12


def _classic(cluster, features, labels, make_optimizer):
    """Returns name -> value after so many steps of two workers with TensorFlow's SyncReplicasOptimizer."""
    begun = threading.Barrier(2)
    saved = {}

    def work(index):
        setter = tf.train.replica_device_setter(
            worker_device=f"/job:worker/task:{index}", cluster=tf.train.ClusterSpec(cluster.addresses))
        with tf.Graph().as_default(), tf.device(setter):
            step = tf.train.create_global_step()
            rows = [tf.data.Dataset.from_tensor_slices(part[index::2]).batch(8).repeat() for part in (features, labels)]
            batch = tf.data.make_initializable_iterator(tf.data.Dataset.zip(tuple(rows)))
            spec = clusters.linear_model().model_fn(*batch.get_next(), "train", {})
            optimizer = tf.train.SyncReplicasOptimizer(make_optimizer(), 2, 2)
            train_op = optimizer.minimize(spec.loss, step)
            optimizer.ready_for_local_init_op.mark_used()
            with tf.Session(cluster.target("worker", index)) as session:
                if index == 0:
                    session.run(tf.global_variables_initializer())
                begun.wait(30)
                session.run([tf.local_variables_initializer(), batch.initializer])
                session.run(optimizer.local_step_init_op)
                if index == 0:
                    session.run(optimizer.chief_init_op)
                    coordinator = tf.train.Coordinator()
                    optimizer.get_chief_queue_runner().create_threads(session, coordinator, daemon=True, start=True)
                begun.wait(30)
                for _ in range(NUM_STEPS):
                    session.run(train_op)
                    begun.wait(30)  # else one may take the token of both, and the other waits for ever
                if index == 0:
                    coordinator.request_stop()
                    saved.update(zip([variable.op.name for variable in tf.global_variables()],
                                     session.run(tf.global_variables())))

    threads = [threading.Thread(target=work, args=(index,), daemon=True) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert saved, "TensorFlow's optimizer did not come to the end"
    return saved


@pytest.mark.parametrize("name, make_optimizer", [
    ("adam", lambda: tf.train.AdamOptimizer(0.05)), ("momentum", lambda: tf.train.MomentumOptimizer(0.05, 0.9)),
], ids=["adam", "momentum"])
def test_the_numbers_are_those_of_the_classic_optimizer(tmp_path, start_servers, name, make_optimizer):
    """Two workers, two ps, the same batches: every variable and slot is the same after twelve updates."""
    expected = _classic(start_servers(2, 2), *clusters.linear_data(), make_optimizer)
    saved = bare_training.checkpoint_of(start_servers(2, 2), tmp_path, NUM_STEPS, num_workers=2, gradients=2,
                                        optimizer_name=name)
    assert saved["global_step"] == NUM_STEPS
    assert set(saved) == set(expected)
    for variable, value in expected.items():
        np.testing.assert_allclose(saved[variable], value, rtol=1e-6, atol=1e-7, err_msg=variable)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16], ids=["float16", "bfloat16"])
def test_gradients_of_16_bits_are_averaged_in_float32(tmp_path, start_servers, dtype):
    """A vector and a row, by the mean of 40,000 and 60,000: their sum is beyond float16, and bfloat16 has none."""
    def model_fn(features, labels, mode, params):
        vector = tf.get_variable("vector", [2], dtype, initializer=tf.zeros_initializer())
        table = tf.get_variable("table", [3, 2], dtype, initializer=tf.zeros_initializer())
        added = vector + tf.nn.embedding_lookup(table, tf.constant([1]))[0]
        return ps_train.ModelSpec(loss=tf.reduce_sum(tf.cast(added, tf.float32) * labels[0]))

    dataset = clusters.array_dataset(np.ones([2, 1], np.float32), np.array([40000, 60000], np.float32))
    saved = bare_training.checkpoint_of(
        start_servers(1, 2), tmp_path, 1, num_workers=2, gradients=2, learning_rate=0.5, dataset=dataset,
        model=contracts.Model("16 bits", model_fn, {}), params={"batch_size": 1, "seed": 7})
    np.testing.assert_allclose(saved["vector"].astype(np.float32), [-25000, -25000], rtol=2**-8)
    np.testing.assert_allclose(saved["table"].astype(np.float32), [[0, 0], [-25000, -25000], [0, 0]], rtol=2**-8)
