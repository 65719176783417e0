"""TensorFlow's own SyncReplicasOptimizer as an engine: the same numbers as ps_train's, and ends that are bounded."""

from __future__ import annotations

import threading

import numpy as np

from ps_train.coordination import sessions
from ps_train.training.reporting import End
from tests import bare_training, clusters
from tests.cluster.updates.test_build import gradients_of, train_in_turn
from tests.errors import raises
from tests.tensorflow_mode import tf

NUM_STEPS = 20
ENGINES = ["ps_train", "tensorflow"]


def by_numpy(num_steps):
    """Returns weights and bias after so many updates with the mean gradient of both workers."""
    features, labels = clusters.linear_data()
    weights, bias = np.zeros(4), 0.0
    for step in range(num_steps):
        rows = [index + 2 * ((8 * step + row) % 32) for index in range(2) for row in range(8)]
        for_weights, for_bias = gradients_of(weights, bias, features[rows], labels[rows])
        weights, bias = weights - 0.05 * for_weights, bias - 0.05 * for_bias
    return weights, bias


def train_in_lock_step(cluster, train_dir, num_steps, **options):
    """Returns the checkpoint of two workers that take each step together.

    With TensorFlow's class one worker may take the token of both, and then the gradients of an update are all its own.
    """
    if options.get("sync_engine") == "ps_train":
        return bare_training.checkpoint_of(cluster, train_dir, num_steps, num_workers=2, gradients=2, **options)
    workers = [clusters.Worker(cluster, index, train_dir, num_steps, gradients=2, **options) for index in range(2)]
    together = threading.Barrier(len(workers))

    def body_of(worker):
        def body(live, write_summary):
            together.wait(30)
            for _ in range(num_steps):
                live.run(worker.graph.update.train_op)
                together.wait(30)
            return type(worker).body(worker, live, write_summary)
        return body

    for worker in workers:
        worker.body = body_of(worker)
        worker.start()
    for worker in workers:
        worker.result()
    return clusters.read_checkpoint(train_dir)


def test_both_engines_make_the_same_variables(tmp_path, start_servers):
    """Two workers, the same batches, twenty updates of Adam: every variable and slot agrees."""
    ours, theirs = (train_in_lock_step(start_servers(2, 2), tmp_path / engine, NUM_STEPS, optimizer_name="adam",
                                       dataset=bare_training.IN_ORDER, sync_engine=engine) for engine in ENGINES)
    assert ours["global_step"] == theirs["global_step"] == NUM_STEPS
    assert set(ours) == set(theirs)
    for variable, value in ours.items():
        np.testing.assert_allclose(theirs[variable], value, rtol=1e-6, atol=1e-6, err_msg=variable)


def test_both_engines_update_the_same_rows_of_an_embedding(tmp_path, start_servers):
    """A sparse gradient changes the rows that were looked up, by the mean over the gradients that have the row."""
    def model_fn(features, labels, mode, params):
        table = tf.get_variable("table", [4, 2], initializer=tf.zeros_initializer())
        rows = tf.nn.embedding_lookup(table, tf.cast(features[:, 0], tf.int32))
        return clusters.ps_train.ModelSpec(loss=tf.reduce_mean(tf.reduce_sum(rows, axis=1) - labels))

    dataset = clusters.array_dataset(np.array([[1], [2]] * 8, np.float32), np.zeros(16, np.float32))
    expected = np.zeros([4, 2])
    expected[1:3] = -3.0
    for engine in ENGINES:
        saved = train_in_lock_step(
            start_servers(1, 2), tmp_path / engine, 3, dataset=dataset, learning_rate=1.0, sync_engine=engine,
            model=clusters.contracts.Model("lookup", model_fn, {}))
        np.testing.assert_allclose(saved["table"], expected, rtol=1e-6, err_msg=engine)


def test_training_ends_when_too_few_have_data_left_for_an_update(tmp_path, start_servers):
    """The other worker waits for a token; it gets one, and all end."""
    cluster = start_servers(1, 2)
    features, labels = clusters.linear_data()
    workers = [
        clusters.Worker(cluster, index, tmp_path, 60, gradients=2, sync_engine="tensorflow",
                        dataset=clusters.array_dataset(features, labels, repeat=index != 0))
        for index in range(2)]
    for worker in workers:
        worker.start()
    assert workers[0].result().end is End.DATA
    assert workers[1].result().end is End.ANNOUNCED


def test_several_batches_of_each_worker_make_an_update(tmp_path, start_servers):
    """With 4 gradients an update and 2 workers, the tokens that are put in advance let training begin."""
    outcomes = clusters.train_together(start_servers(1, 2), tmp_path, 10, 2, gradients=4, sync_engine="tensorflow")
    assert clusters.read_checkpoint(tmp_path)["global_step"] >= 10
    assert sum(outcome.local_steps for outcome in outcomes) >= 40 - 2


def test_a_second_run_on_the_same_servers_finds_no_old_tokens_or_gradients(tmp_path, start_servers):
    """The queue and the accumulators stay on the ps, with what was left in them."""
    cluster = start_servers(1, 2)
    for run in ("first", "second"):
        saved = train_in_lock_step(cluster, tmp_path / run, 5, dataset=bare_training.IN_ORDER, sync_engine="tensorflow")
        cluster.create_blackboard()
        np.testing.assert_allclose(saved["weights"], by_numpy(5)[0], rtol=1e-5, err_msg=run)


def test_the_next_training_on_the_same_servers_may_have_other_shapes(tmp_path, start_servers):
    """TensorFlow's accumulators have only the name of their variable, and stay on the ps."""
    train_in_turn(start_servers(1, 1), tmp_path, gradients=1, sync_engine="tensorflow")


def test_a_session_that_is_closed_late_leaves_no_traceback(tmp_path, start_servers, monkeypatch):
    """The update that waits ends when its session is closed: the Supervisor may have stopped long before."""
    failed, closing, is_over = [], [], threading.Event()
    earlier = threading.enumerate()  # a script's runner of another test in this process may wait for ever

    def close_late(session):
        def close():
            is_over.wait(60)
            session.close()

        closing.append(threading.Thread(target=close, daemon=True))
        closing[-1].start()
        return closing[-1]

    cluster = start_servers(1, 1)
    monkeypatch.setattr(sessions, "close_in_background", close_late)
    monkeypatch.setattr(threading, "excepthook", failed.append)
    worker = clusters.Worker(cluster, 0, tmp_path, 5, gradients=1, sync_engine="tensorflow")
    worker.start()
    assert worker.result().end is End.STEPS
    runners = [thread for thread in threading.enumerate()
               if thread.name.startswith("QueueRunnerThread") and thread not in earlier]
    assert runners
    is_over.set()
    for thread in [*closing, *runners]:
        thread.join(60)
        assert not thread.is_alive()
    assert [found.exc_value for found in failed] == []


def test_a_variable_of_bfloat16_is_refused():
    """TensorFlow's class has no accumulator for it; without the flag, it is averaged in float32."""
    model = clusters.model_of(lambda features: tf.reduce_sum(
        features * tf.cast(tf.get_variable("weights", [4], tf.bfloat16), tf.float32), axis=1))
    with raises("variable_not_averaged"):
        clusters.build_graph(clusters.GraphCluster(1, 1), 0, gradients=1, model=model, sync_engine="tensorflow")
