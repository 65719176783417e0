"""TensorFlow 1's input queues: started with a session, stopped with it, and counted as input."""

from __future__ import annotations

import re
import shutil
import signal
import threading

import numpy as np
import pytest

from ps_train.errors import UserCodeError
from ps_train.graph import plugin_calls
from ps_train.plugins import contracts
from ps_train.training.reporting import End
from ps_train.updates.update import Period
from tests import bare_training, clusters
from tests.errors import raises
from tests.processes import REPO, TaskCluster
from tests.tensorflow_mode import tf

NUM_RECORDS = 320  # of tests/plugins/queued.py


@pytest.fixture
def train_queued(tmp_path, start_process):
    """A function that starts a cluster whose input comes from queues, and returns the processes."""
    def start(num_workers, *flags, params="", wait=True):
        shutil.copy(REPO / "tests/plugins/queued.py", tmp_path)
        TaskCluster(1, num_workers).start(
            start_process,
            ["--model=queued", "--dataset=queued", "--batch_size=16", "--log_steps=10",
             f"--train_dir={tmp_path}/train", f"--params=csv={tmp_path}/records.csv{params}", *flags], cwd=tmp_path)
        return start_process.wait() if wait else None

    return start


def queue_dataset(epochs=None, shared_name=None) -> contracts.Dataset:
    """Returns the linear data, 64 examples, by way of queues."""
    def input_fn(mode, params, shard):
        arrays = [tf.constant(array) for array in clusters.linear_data()]
        one = tf.train.slice_input_producer(arrays, num_epochs=epochs, shuffle=True, seed=1)
        return tf.train.batch(one, params["batch_size"], shared_name=shared_name)

    return contracts.Dataset("queue", input_fn, lambda params: None, {})


def test_a_training_on_queues_ends_well(train_queued, start_process):
    """Issue: six step time-outs of 300 s."""
    codes = train_queued(2, "--train_steps=60", "--sync_replicas")
    assert set(codes.values()) == {0}
    log = start_process.log("worker-0")
    assert "lost the session" not in log and "Traceback" not in log


def test_queues_that_run_out_end_the_data(train_queued, start_process, tmp_path):
    """Two epochs of 320 records in batches of 16 are 40 steps. The evaluation reads each once, from queues too."""
    assert set(train_queued(1, params=",num_epochs=2").values()) == {0}
    log = start_process.log("worker-0")
    assert "the data ran out; this worker did 40 steps" in log
    assert f"on {NUM_RECORDS} held-out examples" in log
    assert clusters.read_checkpoint(tmp_path / "train")["global_step"] == 40


def test_a_fault_in_a_queues_thread_is_the_inputs(train_queued, start_process):
    """A record that is no number: exit code 1 and one line, not the end of the data."""
    assert train_queued(1, params=",bad_record=true") == {"ps-0": 138, "worker-0": 1}
    log = start_process.log("worker-0")
    assert re.search(r"ps_train: an input queue of the model or dataset failed at \S*DecodeCSV: .*three", log)
    assert "Traceback" not in log and "the data ran out" not in log


def test_a_lost_ps_does_not_end_the_data(start_process, tmp_path):
    """The new session has new queues and threads. A signal ends them: they do not keep the process."""
    shutil.copy(REPO / "tests/plugins/queued.py", tmp_path)
    cluster = TaskCluster(1, 1)
    flags = ["--model=queued", "--dataset=queued", "--batch_size=16", "--log_steps=10", "--train_steps=1000000",
             "--save_model_steps=20", f"--train_dir={tmp_path}/train",
             f"--params=csv={tmp_path}/records.csv"]
    cluster.start(start_process, flags, cwd=tmp_path)
    start_process.wait_for_line("worker-0", "examples/s")
    start_process.kill("ps-0")
    start_process.start("again", [*cluster.flags("ps", 0), *flags], cwd=tmp_path)
    start_process.wait_for_line("worker-0", "a ps has lost its parameters")
    before = start_process.log("worker-0").count("examples/s")
    start_process.wait_for_line("worker-0", "examples/s", number=before + 3)
    start_process.signal("worker-0", signal.SIGTERM)
    assert start_process.exit_code("worker-0") == 143


def test_local_steps_on_queues_are_refused():
    """They would take the same mini-batch again and again."""
    with raises("input_gives_single_batches"):
        clusters.build_graph(clusters.GraphCluster(1, 1), 0, dataset=queue_dataset(), period=Period(4))


def test_queues_of_a_model_count_too(start_servers):
    """A model_fn that shuffles its features by a queue trains, and its queue is on the worker."""
    def model_fn(features, labels, mode, params):
        features, labels = tf.train.shuffle_batch([features, labels], 8, 64, 16, enqueue_many=True)
        features.set_shape([8, 4])
        return clusters.linear_model().model_fn(features=features, labels=labels, mode=mode, params=params)

    training = bare_training.BareTraining(start_servers(1, 1), model=contracts.Model("m", model_fn, {}))
    with training.graph.input.queues.running(training.session):
        assert training.train(30).end is End.STEPS
    places = {tf.DeviceSpec.from_string(op.device).job for op in training.graph.graph.get_operations()
              if op.type == "RandomShuffleQueueV2"}
    assert places == {"worker"}


def test_each_step_of_several_at_once_takes_its_own_mini_batch(start_servers):
    """64 examples, once, in batches of 8: eight steps, though four are in one session run."""
    training = bare_training.BareTraining(start_servers(1, 1), dataset=queue_dataset(epochs=1), steps_per_execution=4)
    with training.graph.input.queues.running(training.session):
        outcome = training.train(100)
    assert (outcome.end, outcome.local_steps) == (End.DATA, 8)


def test_a_queue_that_a_server_has_kept_closed_is_made_anew(start_servers, tmp_path):
    """One with a shared_name outlives its session: the next training on these servers would find no data."""
    cluster = start_servers(1, 1)
    for name in ("first", "second"):
        worker = clusters.Worker(cluster, 0, tmp_path / name, 100,
                                 dataset=queue_dataset(epochs=1, shared_name="examples"))
        worker.start()
        outcome = worker.result()
        assert (outcome.end, outcome.local_steps) == (End.DATA, 8)


def names_of_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("QueueRunner")]


def test_no_thread_is_left_behind():
    """They end with the body, also where the queue is full and nobody takes from it."""
    with tf.Graph().as_default():
        one = tf.train.slice_input_producer([tf.range(10)], capacity=2)
        batch = tf.train.batch(one, 2, capacity=2)
        found = plugin_calls.Queues()
        with tf.Session() as session:
            session.run(tf.local_variables_initializer())
            with found.running(session):
                assert names_of_threads()
                assert session.run(batch).shape == (2,)
            assert names_of_threads() == []


def test_a_fault_in_the_users_python_is_told():
    """The line of the exception itself."""
    def fail(number):
        raise ValueError(f"no picture {number}")

    with tf.Graph().as_default():
        (number,) = tf.train.slice_input_producer([tf.range(4)], shuffle=False)
        picture = tf.ensure_shape(tf.numpy_function(fail, [number], tf.float32), [])
        batch = tf.train.batch([picture], 2)
        found = plugin_calls.Queues()
        with tf.Session() as session:
            session.run(tf.local_variables_initializer())
            with pytest.raises(UserCodeError, match="an input queue .* failed at .*: .*ValueError: no picture 0"), \
                    found.running(session), pytest.raises(tf.errors.OutOfRangeError):
                session.run(batch)


def test_a_graph_without_queues_has_nothing_to_start():
    """Nor to forget."""
    with tf.Graph().as_default(), tf.Session() as session:
        found = plugin_calls.Queues()
        session.run(found.forget_op)
        with found.running(session):
            assert names_of_threads() == []


def test_values_of_the_queue_are_those_of_the_data(tmp_path, start_servers):
    """Trained on queues, the weights become those of the data."""
    training = bare_training.BareTraining(start_servers(1, 1), dataset=queue_dataset())
    with training.graph.input.queues.running(training.session):
        training.train(300)
    training.save(tmp_path)
    np.testing.assert_allclose(clusters.read_checkpoint(tmp_path)["weights"], clusters.TRUE_WEIGHTS, atol=0.05)
