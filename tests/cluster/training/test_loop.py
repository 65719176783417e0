"""The step loop."""

from __future__ import annotations

import re
import threading
import types
from unittest import mock

import numpy as np
import pytest

from data import digits
from models import classifier
from ps_train.coordination import sessions
from ps_train.coordination.heartbeat import WorkerProgress
from ps_train.graph import transfer
from ps_train.graph.plugin_calls import Hooks
from ps_train.plugins import contracts
from ps_train.runtime import clock
from ps_train.training.loop import Due, Loop, LoopSettings, StepReports, plain_step
from ps_train.training.replica_graph import Steps, StepStatus
from ps_train.training.reporting import End
from tests import clusters
from tests.tensorflow_mode import tf


def two_layers(features, labels, mode, params):
    """As models.mlp, which names its Keras twin, and so needs that part."""
    logits = classifier.output_layer(classifier.hidden_layer(features, params["hidden_units"]))
    return classifier.spec_from_logits(logits, labels)


@pytest.mark.parametrize("is_fused", [True, False], ids=["fused", "not fused"])
def test_one_async_worker_equals_a_plain_single_session_run(tmp_path, start_servers, is_fused):
    """A hundred Adam steps of two layers on 2 ps end at the parameters that a plain session comes to, to 1e-6."""
    params = {"batch_size": 20, "seed": 11, "hidden_units": 16, "data_dir": "", "learning_rate": 0.01}
    model = contracts.Model("two_layers", two_layers, {})
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
        loss = two_layers(features, labels, "train", params).loss
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


def test_a_loop_that_runs_again_counts_what_is_new(monkeypatch):
    """As after a wait for ranges. Issue: the staleness so far counted again, and all steps so far made the speed."""
    now_secs, report, writes = 5.0, mock.Mock(), []
    monkeypatch.setattr(clock, "now", lambda: now_secs)
    settings = LoopSettings("worker:1", 10**6, 8, 10, 10, 60.0)
    reports = StepReports(settings, report, lambda summary, step: writes.append(summary))
    for local_steps, value in ((1000, 9), (1010, 0)):
        reports.start(local_steps - 10, local_steps - 10)
        for _ in range(10):
            reports.count_staleness(value)
        now_secs += 1.0
        reports.report(Due(True, False), step=local_steps, local_steps=local_steps, total_steps=local_steps, loss=0.5,
                       summary=b"" if value else None)
        assert reports.staleness_line().startswith(f"staleness {'9.00' if value else '4.50'} ")
    assert [call.args[0].examples_per_sec for call in report.step.mock_calls] == [80.0, 80.0]
    assert [one.histo.num for one in writes[1].value if one.tag == "staleness"] == [10.0]


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


class FrozenAtFirst:
    """Stands for a session with a ps that is frozen before the first step of a kind; RunOptions bound the others."""

    def __init__(self, num_steps):
        self.num_steps, self.never, self.graphs = num_steps, threading.Event(), []

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        """Returns the values of a step, for so many steps; then waits for the end of the test."""
        status = [len(self.graphs), 1, 1, 0, 0, 0]
        if fetches == "status":
            return status
        if len(self.graphs) == self.num_steps:
            self.never.wait(60)
        self.graphs.append(tf.get_default_graph())
        return ([status], 1.0, *[b"summary"] * (len(fetches) - 2))


@pytest.mark.parametrize("summaries_steps", [0, 3])
def test_the_first_step_of_a_kind_ends_though_a_ps_is_frozen(monkeypatch, summaries_steps):
    """Its fetches are new to the servers, and the time-out of RunOptions begins when they have them."""
    monkeypatch.setattr(sessions, "_ANSWER_SECS", 0.0)
    execution = types.SimpleNamespace(progress="progress", loss="loss", num_steps=1)
    built = types.SimpleNamespace(graph=tf.Graph(), hooks=Hooks(), summary_op="summary", update=None,
                                  steps=Steps(execution, execution, "status", join_op=None, bound=None))
    # With summaries, which the first step fetches, the second one is the first without.
    session = FrozenAtFirst(num_steps=1 if summaries_steps else 0)
    loop = Loop(session, built, LoopSettings("worker:0", 9, 1, 0, summaries_steps, 0.05), WorkerProgress(),
                stop=threading.Event(), write_summary=lambda *_: None)
    with pytest.raises(tf.errors.DeadlineExceededError, match="waited 0.05 s for the end of a first step"):
        loop.run()
    assert len(session.graphs) == session.num_steps
    session.never.set()


def test_hooks_of_the_first_step_find_the_graph_of_the_training(tmp_path, start_servers):
    """The first step runs in another thread, and a default graph belongs to a thread."""
    worker = clusters.Worker(start_servers(1, 1), 0, tmp_path, 3)
    graphs = []

    class Recording:
        def __init__(self, live):
            self.live = live

        def run(self, fetches, **kwargs):
            graphs.append(tf.get_default_graph())
            return self.live.run(fetches, **kwargs)

    worker.body = lambda live, write: worker.loop(Recording(live)).run()
    worker.start()
    worker.result()
    assert graphs[1] is worker.graph.graph


def test_what_was_trained_is_saved_when_the_input_ends_with_the_stop(tmp_path, start_servers, caplog):
    """As when a signal to a whole job ends the processes of the dataset, too."""
    features, labels = clusters.linear_data()

    def batches():
        for _ in range(5):
            yield features[:8], labels[:8]
        raise BrokenPipeError("the process that reads has ended")

    shapes = tuple(tf.TensorSpec((8, *array.shape[1:]), array.dtype) for array in (features, labels))
    dataset = contracts.Dataset("broken", lambda mode, params, shard: tf.data.Dataset.from_generator(
        batches, output_signature=shapes), None, {})
    worker = clusters.Worker(start_servers(1, 1), 0, tmp_path, 1000, dataset=dataset)

    def body(live, write_summary):
        step = plain_step(live)

        def run_step(*arguments):
            try:
                return step(*arguments)
            except tf.errors.OpError:
                worker.stop.set()  # just now
                raise

        return worker.loop(live, write_summary, run_step=run_step).run()

    worker.body = body
    worker.start()
    outcome = worker.result()
    assert (outcome.end, outcome.global_step) == (End.SIGNAL, 5)
    assert clusters.read_checkpoint(tmp_path)["global_step"] == 5
    assert any("asked to stop" in message and "reads has ended" in message for message in caplog.messages)
