"""How an update reaches the parameters, checked against numpy."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from ps_train import testing
from ps_train.config import groups
from ps_train.graph import optimizers, transfer
from ps_train.updates import build, update
from ps_train.updates.variable_copies import StepSource
from tests import bare_training, clusters
from tests.errors import raises
from tests.tensorflow_mode import tf


def gradients_of(weights, bias, features, labels):
    """Returns d/dw and d/db of mean((x w + b - y)^2): 2/n x^T r and 2/n sum r."""
    residuals = features @ weights + bias - labels
    return 2 * features.T @ residuals / len(labels), 2 * residuals.mean()


def test_every_optimizer_of_the_flag_is_made_and_lowers_a_loss():
    """One step of each from 1.0 on x^2 ends nearer to zero."""
    assert set(optimizers._OPTIMIZERS) == set(groups.OPTIMIZERS)
    for name in groups.OPTIMIZERS:
        with tf.Graph().as_default(), tf.Session() as session:
            variable = tf.get_variable("x", initializer=1.0)
            train_op = optimizers.make_optimizer(name, 0.1).minimize(variable**2)
            session.run(tf.global_variables_initializer())
            session.run(train_op)
            assert abs(session.run(variable)) < 1.0, name


def test_momentum_and_sgd_follow_their_formula():
    """Two steps on x^2: v = 0.9 v + 2x, x = x - lr v; sgd is the same without v."""
    for name, factor in (("momentum", 0.9), ("sgd", 0.0)):
        x, velocity = 1.0, 0.0
        with tf.Graph().as_default(), tf.Session() as session:
            variable = tf.get_variable("x", initializer=1.0)
            train_op = optimizers.make_optimizer(name, 0.1).minimize(variable**2)
            session.run(tf.global_variables_initializer())
            for _ in range(2):
                session.run(train_op)
                velocity = factor * velocity + 2 * x
                x -= 0.1 * velocity
            np.testing.assert_allclose(session.run(variable), x, rtol=1e-6)


def test_a_loss_without_variables_is_refused():
    """The error says what a model needs."""
    settings = update.UpdateSettings(optimizers.OptimizerPlan("sgd", 0.1))
    with tf.Graph().as_default(), raises("loss_without_variables"):
        tf.get_variable("unused", [1])
        build.build_update(tf.constant(1.0), tf.train.create_global_step(), settings, StepSource(None, None))


def test_synchronous_updates_equal_gradient_descent_on_both_batches(tmp_path, start_servers):
    """Two workers with batches of 8 do what numpy does with their 16 examples at once, twenty times."""
    features, labels = clusters.linear_data()
    saved = bare_training.checkpoint_of(start_servers(2, 2), tmp_path, 20, num_workers=2, gradients=2)
    weights, bias = np.zeros(4), 0.0
    for step in range(20):
        rows = [index + 2 * ((8 * step + row) % 32) for index in range(2) for row in range(8)]
        for_weights, for_bias = gradients_of(weights, bias, features[rows], labels[rows])
        weights, bias = weights - 0.05 * for_weights, bias - 0.05 * for_bias
    assert saved["global_step"] == 20
    np.testing.assert_allclose(saved["weights"], weights, rtol=1e-4)
    np.testing.assert_allclose(saved["bias"], bias, rtol=1e-4, atol=1e-6)


def test_a_backup_worker_lets_training_go_on_with_the_gradients_of_the_others(tmp_path, start_servers):
    """With 1 gradient an update and 2 workers, one that takes no step delays no other."""
    cluster = start_servers(1, 2)
    idle = clusters.Worker(cluster, 1, tmp_path, 30, gradients=1)
    chief = clusters.Worker(cluster, 0, tmp_path, 30, gradients=1)
    loop = idle.body
    chief_is_over = threading.Event()

    def body(live, write_summary):
        chief_is_over.wait(30)
        return loop(live, write_summary)

    idle.body = body
    chief_loop = chief.body

    def chief_body(live, write_summary):
        outcome = chief_loop(live, write_summary)
        chief_is_over.set()
        return outcome

    chief.body = chief_body
    chief.start(), idle.start()
    assert chief.result().local_steps >= 30
    assert idle.result().local_steps == 0


def test_more_gradients_than_workers_make_each_compute_several_batches(tmp_path, start_servers):
    """With 4 gradients an update and 2 workers, 10 updates take 40 mini-batches."""
    outcomes = clusters.train_together(start_servers(1, 2), tmp_path, 10, 2, gradients=4)
    assert sum(outcome.local_steps for outcome in outcomes) >= 40 - 2
    assert clusters.read_checkpoint(tmp_path)["global_step"] in (10, 11)


def test_a_sparse_gradient_is_aggregated_and_touches_its_rows_only(tmp_path, start_servers):
    """Two workers look up row 1 and row 2 of a table: these two change, the others stay.

    TensorFlow averages each row over the gradients that have it (SparseConditionalAccumulator), so a row that one of
    two workers looked up gets that worker's gradient whole.
    """
    def model_fn(features, labels, mode, params):
        table = tf.get_variable("table", [4, 2], initializer=tf.zeros_initializer())
        rows = tf.nn.embedding_lookup(table, tf.cast(features[:, 0], tf.int32))
        return clusters.ps_train.ModelSpec(loss=tf.reduce_mean(tf.reduce_sum(rows, axis=1) - labels))

    dataset = clusters.array_dataset(np.array([[1], [2]] * 8, np.float32), np.zeros(16, np.float32))
    saved = bare_training.checkpoint_of(start_servers(1, 2), tmp_path, 1, num_workers=2, gradients=2, learning_rate=1.0,
                                        dataset=dataset, model=clusters.contracts.Model("lookup", model_fn, {}))
    expected = np.zeros([4, 2])
    expected[1:3] = -1.0
    np.testing.assert_allclose(saved["table"], expected, rtol=1e-6)


@pytest.mark.parametrize(("dtype", "is_fused"), [(tf.float64, True), (tf.float16, True), (tf.float32, False)],
                         ids=["float64", "float16", "unfused"])
def test_each_row_is_averaged_in_whatever_order_it_is_looked_up(tmp_path, start_servers, dtype, is_fused):
    """One worker looks up the rows 3, 1, 3 and the other 1, 2, 3: the mean of row 3 is 1.5, of each other row 1.

    TensorFlow's accumulators match rows of ascending number, each of which occurs once.
    """
    def model_fn(features, labels, mode, params):
        table = tf.get_variable("table", [4, 1], dtype, initializer=tf.zeros_initializer())
        rows = tf.nn.embedding_lookup(table, tf.cast(features, tf.int32))
        return clusters.ps_train.ModelSpec(loss=tf.cast(tf.reduce_sum(rows), tf.float32))

    ids = np.array([3, 1, 1, 2, 3, 3], np.float32)  # every second one is of the same worker
    saved = bare_training.checkpoint_of(
        start_servers(1, 2), tmp_path, 1, num_workers=2, gradients=2, learning_rate=1.0,
        dataset=clusters.array_dataset(ids, ids, shuffle=False), model=clusters.contracts.Model("lookup", model_fn, {}),
        params={"batch_size": 3, "seed": 7}, wire=transfer.Wire(is_fused=is_fused))
    np.testing.assert_array_equal(saved["table"][:, 0], [0, -1, -1, -1.5])


def train_in_turn(cluster, folder, kinds=((2, False), (3, False), (3, True)), **options):
    """Trains models one after the other, as new processes on the same servers.

    Args:
      kinds: of each model, the width of its table, and whether its gradient is sparse.
    """
    for number, (width, looks_up) in enumerate(kinds):
        def predict(features, width=width, looks_up=looks_up):
            table = tf.get_variable("table", [4, width], initializer=tf.ones_initializer())
            rows = tf.nn.embedding_lookup(table, tf.zeros([8], tf.int32)) if looks_up else features @ table
            return tf.reduce_sum(rows, 1)

        (folder / str(number)).mkdir()
        worker = clusters.Worker(cluster, 0, folder / str(number), 4, shared_flags={"number": number},
                                 model=clusters.model_of(predict), optimizer_name="momentum", **options)
        worker.start()
        assert worker.result().global_step == 4
        assert clusters.read_checkpoint(folder / str(number))["table"].shape == (4, width)


def test_the_next_training_on_the_same_servers_may_have_other_shapes(tmp_path, start_servers):
    """An accumulator stays on its server, with the shape that it was made with."""
    train_in_turn(start_servers(1, 1), tmp_path, gradients=1)


def test_the_chief_tells_once_which_tables_adam_updates_row_by_row(tmp_path, caplog):
    """With several steps in a session run, too: the critical section is copied with each step."""
    with caplog.at_level("INFO"):
        testing.run_in_threads("tests.plugins.looking_up", "tests.plugins.tiny", train_dir=tmp_path, num_workers=2,
                               train_steps=40, batch_size=16, steps_per_execution=4, num_gpus=0)
    assert caplog.text.count("Adam updates only the rows of table that have a gradient") == 1
