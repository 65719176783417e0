"""The step loop."""

from __future__ import annotations

import re

import numpy as np
import pytest

import models.mlp
from data import digits
from ps_train.graph import transfer
from ps_train.plugins import contracts
from ps_train.training.outcome import End
from ps_train.training.status.step_status import StepStatus
from tests import clusters
from tests.tensorflow_mode import tf


@pytest.mark.parametrize("is_fused", [True, False], ids=["fused", "not fused"])
def test_one_async_worker_equals_a_plain_single_session_run(tmp_path, start_servers, is_fused):
    """A hundred Adam steps of the mlp on 2 ps end at the parameters that a plain session comes to, to 1e-6."""
    params = {"batch_size": 20, "seed": 11, "hidden_units": 16, "data_dir": "", "learning_rate": 0.01}
    model = contracts.Model("models.mlp", models.mlp.model_fn, {})
    dataset = contracts.Dataset("data.digits", digits.input_fn, digits.prepare, {})
    worker = clusters.Worker(start_servers(2, 1), 0, tmp_path, 100, model=model, dataset=dataset,
                             optimizer_name="adam", learning_rate=0.01, params=params,
                             wire=transfer.Wire(is_fused=is_fused))
    initial = {}
    loop = worker.body

    def body(live, write_summary):
        variables = worker.graph.graph.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES)
        initial.update({variable.op.name: live.run(variable) for variable in variables})
        return loop(live, write_summary)

    worker.body = body
    worker.start()
    assert worker.result().local_steps == 100
    expected = _train_plainly(params, initial, 100)
    saved = clusters.read_checkpoint(tmp_path)
    assert set(expected) == {"hidden/weights", "hidden/biases", "softmax/weights", "softmax/biases"}
    for name, value in expected.items():
        np.testing.assert_allclose(saved[name], value, atol=1e-6, err_msg=name)
        assert not np.allclose(value, initial[name], atol=1e-3), f"{name} was not trained"


def _train_plainly(params, initial, num_steps):
    """Trains from the initial values with plain TensorFlow: no cluster, no device, no ps_train but the input."""
    with tf.Graph().as_default() as graph, tf.Session() as session:
        tf.set_random_seed(3)  # as clusters.build_graph does: tf.data mixes it into the seed of the shuffling
        dataset = digits.input_fn("train", params, (0, 1))
        iterator = tf.data.make_initializable_iterator(dataset)
        features, labels = iterator.get_next()
        loss = models.mlp.model_fn(features, labels, "train", params).loss
        train_op = tf.train.AdamOptimizer(0.01).minimize(loss)
        session.run(tf.global_variables_initializer())
        for variable in tf.trainable_variables():
            variable.load(initial[variable.op.name], session)
        session.run(iterator.initializer, feed_dict=clusters.ps_train.input_feed(graph))
        for _ in range(num_steps):
            session.run(train_op)
        return {variable.op.name: session.run(variable) for variable in tf.trainable_variables()}


def test_progress_lines_come_every_log_steps_with_the_loss_of_their_step(tmp_path, start_servers, caplog):
    """Twelve steps with a line every five: after five and ten."""
    worker = clusters.Worker(start_servers(1, 1), 0, tmp_path, 12)
    worker.schedule = worker.schedule._replace(log_steps=5)
    with caplog.at_level("INFO"):
        worker.start()
        worker.result()
    form = re.compile(r"step (\d+) of 12  loss (\S+)  (\S+) steps/s  (\S+) examples/s")
    (first, *one), (second, *other) = [map(float, found) for found in form.findall("\n".join(caplog.messages))]
    assert (first, second) == (5, 10)
    assert one[0] > other[0] > 0
    assert all(examples > steps > 0 for _, steps, examples in (one, other))


def test_a_set_stop_event_ends_the_loop_before_the_next_step(tmp_path, start_servers):
    """The end says that a signal came, and nothing more was trained."""
    worker = clusters.Worker(start_servers(1, 1), 0, tmp_path, 12)
    worker.body = lambda live, write_summary: _run_stopped(worker, live)
    worker.start()
    outcome = worker.result()
    assert (outcome.end, outcome.local_steps) == (End.SIGNAL, 0)


def _run_stopped(worker, live):
    worker.stop.set()
    return worker.loop(live).run()


def test_the_loop_fetches_operations_and_scalars_only(tmp_path, start_servers):
    """A step brings 48 bytes of progress and the loss to Python, no parameter, gradient or batch (tensorflow#6475)."""
    worker = clusters.Worker(start_servers(1, 1), 0, tmp_path, 3)
    fetched = []

    class Recording:
        def __init__(self, live):
            self.live = live

        def run(self, fetches, **kwargs):
            values = self.live.run(fetches, **kwargs)
            fetched.extend(value for value in tf.nest.flatten(values) if value is not None)
            return values

    worker.body = lambda live, write: worker.loop(Recording(live)).run()
    worker.start()
    assert worker.result().local_steps == 3
    num = len(StepStatus._fields)
    status, progress, loss = ((num,), np.int64), ((1, num), np.int64), ((), np.float32)
    assert [(value.shape, value.dtype) for value in fetched] == [status, *[progress, loss] * 3]
