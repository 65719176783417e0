"""Supervised sessions on in-process servers: starting, recovering, ending."""

from __future__ import annotations

import os
import shutil
import threading

import numpy as np
import pytest

from ps_train import errors
from ps_train.coordination import blackboard
from ps_train.coordination.state import State
from ps_train.runtime import waits
from ps_train.training import recovery
from ps_train.training.reporting import End
from tests import bare_training, clusters
from tests.children import wait_until
from tests.errors import raises
from tests.tensorflow_mode import tf

MODES = {"async": None, "sync": 2}


@pytest.fixture(scope="module")
def once_trained(tmp_path_factory):
    """A folder that one test of this module trains into, for all that continue there."""
    return tmp_path_factory.mktemp("trained") / "train"


@pytest.fixture
def trained_dir(tmp_path, start_servers, once_trained):
    """A folder with the checkpoints of steps 20 and 40 of one worker, on one ps."""
    if not once_trained.exists():
        for train_steps in (20, 40):
            bare_training.train(start_servers(1, 1), once_trained, train_steps, continues=True)
    return shutil.copytree(once_trained, tmp_path / "train")


@pytest.mark.parametrize("gradients", MODES.values(), ids=MODES)
def test_two_workers_train_to_the_last_step_in_two_runs(tmp_path, start_servers, gradients):
    """The second run continues from the checkpoint of the first. At the end the weights fit the data."""
    first, second = (clusters.train_together(start_servers(2, 2), tmp_path, train_steps, 2, gradients=gradients)
                     for train_steps in (30, 200))
    assert second[0].first_step >= first[0].global_step >= 30
    assert all(outcome.global_step >= 200 for outcome in second)
    saved = clusters.read_checkpoint(tmp_path)
    assert 200 <= saved["global_step"] <= 201
    np.testing.assert_allclose(saved["weights"], clusters.TRUE_WEIGHTS, atol=0.05)


def test_no_step_is_taken_when_the_checkpoint_is_at_train_steps_already(trained_dir, start_servers):
    """The global step stays what it was."""
    before = clusters.read_checkpoint(trained_dir)
    (outcome,) = clusters.train_together(start_servers(1, 1), trained_dir, 40, 1)
    assert outcome.local_steps == 0
    np.testing.assert_equal(clusters.read_checkpoint(trained_dir), before)


def test_a_worker_that_arrives_after_the_last_step_ends_at_once(tmp_path, start_servers):
    """The chief waits for it, and it takes no step: in sync it would wait for a token for ever."""
    cluster = start_servers(1, 2)
    chief = clusters.Worker(cluster, 0, tmp_path, 3, gradients=1)
    late = clusters.Worker(cluster, 1, tmp_path, 3, gradients=1)
    chief.start()
    while late.board.state() != State.STOPPING:
        assert chief.is_alive(), chief.error
    late.start()
    assert late.result().local_steps == 0
    assert chief.result().end is End.STEPS


def _wait_with_training_until_finished(worker, other_index):
    """Makes a worker begin its steps when the other one has reported that it finished."""
    loop = worker.body

    def body(live, write_summary):
        waits.until(lambda: worker.board.snapshot().finished[other_index], 30, "the other worker", worker.stop)
        return loop(live, write_summary)

    worker.body = body


@pytest.mark.parametrize("dry_index, gradients", [(1, None), (0, None), (0, 2)],
                         ids=["async", "the chief in async", "the chief in sync"])
def test_a_worker_that_runs_out_of_data_leaves_nobody_waiting(tmp_path, start_servers, gradients, dry_index):
    """The other one trains on to the last step, in sync with its own gradients only.

    The time of that counts for the chief. Issue: the report divided all steps by the time of the chief's own ones.
    """
    cluster = start_servers(1, 2)
    features, labels = clusters.linear_data()
    workers = [
        clusters.Worker(cluster, index, tmp_path, 60, gradients=gradients,
                        dataset=clusters.array_dataset(features, labels, repeat=index != dry_index))
        for index in range(2)]
    if gradients is None:
        _wait_with_training_until_finished(workers[1 - dry_index], dry_index)
    for worker in workers:
        worker.start()
    other, dry = workers[1 - dry_index].result(), workers[dry_index].result()
    assert dry.end is End.DATA
    assert dry.local_steps == 32 / 8  # its half of 64 examples, in batches of 8
    assert other.end is End.STEPS
    assert clusters.read_checkpoint(tmp_path)["global_step"] >= 60
    if gradients is None:  # then it trained only after the other one had finished
        assert dry.waiting_secs > other.elapsed_secs if dry_index == 0 else dry.waiting_secs == 0


def test_all_workers_running_out_of_data_ends_training_with_a_checkpoint(tmp_path, start_servers):
    """Every step that there was data for is in the checkpoint."""
    dataset = clusters.array_dataset(*clusters.linear_data(), repeat=False)
    clusters.train_together(start_servers(1, 2), tmp_path, 1000, 2, gradients=2, dataset=dataset)
    assert clusters.read_checkpoint(tmp_path)["global_step"] == 32 / 8  # of each worker


def test_a_checkpoint_restores_on_another_number_of_ps_and_of_parts(tmp_path, start_servers):
    """Saved on 2 ps in two parts, continued in another number of parts, with the optimizer's slots: value by value."""
    options = {"optimizer_name": "momentum", "learning_rate": 0.01}
    bare_training.train(start_servers(2, 1), tmp_path, 40, model=clusters.linear_model(parts=2), **options)
    saved = clusters.read_checkpoint(tmp_path)
    assert saved["weights"].shape == saved["weights/Momentum"].shape == (4,)
    for num_ps in (1, 3):
        training = bare_training.BareTraining(
            start_servers(num_ps, 1), checkpoint=tf.train.latest_checkpoint(str(tmp_path)),
            model=clusters.linear_model(parts=num_ps), **options)
        parts = {name: [variable for variable in training.graph.savers.variables
                        if variable.op.name.startswith("weights") and ("Momentum" in variable.op.name) == is_slot]
                 for name, is_slot in (("weights", False), ("weights/Momentum", True))}
        for name, found in parts.items():
            assert len(found) == num_ps
            np.testing.assert_array_equal(np.concatenate(training.session.run(found)), saved[name])
        assert training.train(50).first_step == 40


def test_a_damaged_newest_checkpoint_makes_the_one_before_it_count(trained_dir, start_servers):
    """Training continues from there, also where the file `checkpoint` names the damaged one."""
    os.truncate(trained_dir / "model.ckpt-40.data-00000-of-00001", 5)
    (outcome,) = clusters.train_together(start_servers(1, 1), trained_dir, 60, 1)
    assert outcome.first_step == 20
    assert clusters.read_checkpoint(trained_dir)["global_step"] == 60


def test_variables_that_a_server_lost_are_restored(trained_dir, start_servers):
    """`Session.reset` clears a server as a restart does. The session is lost, the next continues from the file."""
    cluster = start_servers(1, 1)
    worker = clusters.Worker(cluster, 0, trained_dir, 80)
    first_steps = []

    def body(live, write_summary):
        first_steps.append(int(live.run(worker.graph.steps.status)[0]))
        if len(first_steps) == 1:
            tf.Session.reset(cluster.target("ps", 0))
            cluster.create_blackboard()
        return worker.loop(live).run()

    worker.body = body
    worker.start()
    outcome = worker.result()
    assert first_steps == [40, 40]
    assert (outcome.first_step, outcome.local_steps) == (40, 40)


def test_checkpoints_that_cannot_be_read_for_a_moment_cost_another_session(trained_dir, start_servers):
    """Parameters that a ps has lost are not made again beside them."""
    cluster = start_servers(1, 1)
    worker = clusters.Worker(cluster, 0, trained_dir, 80)
    away, first_steps = trained_dir.parent / "away", []

    def body(live, write_summary):
        first_steps.append(int(live.run(worker.graph.steps.status)[0]))
        if len(first_steps) == 1:
            shutil.copytree(trained_dir, away)
            for file in trained_dir.glob("*.data-*"):
                os.truncate(file, 5)
            cluster.create_blackboard()
            raise tf.errors.AbortedError(None, None, "the ps was restarted")
        return worker.loop(live).run()

    def wait(secs):
        if secs:
            shutil.copytree(away, trained_dir, dirs_exist_ok=True)

    worker.body = body
    worker.stop.wait = wait
    worker.start()
    assert worker.result().global_step == 80
    assert first_steps == [40, 40]


def test_a_checkpoint_that_takes_too_long_to_restore_names_its_folder_and_the_flag(trained_dir, start_servers):
    """The same command would wait as long again; what the ps do is not the reason."""
    worker = clusters.Worker(start_servers(1, 1), 0, trained_dir, 60)
    settings, is_over = worker.supervised._settings, threading.Event()
    worker.supervised._settings = settings._replace(timeouts=waits.Timeouts(start_secs=0.3))
    worker.supervised._opener.open = lambda *args: is_over.wait(60)
    worker.start()
    with raises("timed_out") as error:
        worker.result()
    is_over.set()
    assert f"from a checkpoint in {trained_dir}" in str(error.value) and "--start_timeout_secs" in str(error.value)


def test_a_ps_0_that_is_lost_again_while_the_chief_prepares_costs_another_session(trained_dir, start_servers):
    """The chief has restored the parameters, and cannot say so: it begins once more, and does not end."""
    worker = clusters.Worker(start_servers(1, 1), 0, trained_dir, 80)
    start_run, calls = worker.board.start_run, []

    def fail_once(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise errors.BlackboardError("ps_unreachable", "ps:0 does not answer")
        start_run(*arguments)

    worker.board.start_run = fail_once
    worker.start()
    outcome = worker.result()
    assert len(calls) == 2
    assert (outcome.first_step, outcome.global_step) == (40, 80)


def test_a_session_that_is_lost_again_and_again_is_given_up(tmp_path, start_servers, monkeypatch):
    """The error says how often it was lost and why."""
    monkeypatch.setattr(recovery, "_PAUSES_SECS", (0.0,) * 2)
    worker = clusters.Worker(start_servers(1, 1), 0, tmp_path, 10)

    def body(live, write_summary):
        raise tf.errors.AbortedError(None, None, "gone again")

    worker.body = body
    worker.start()
    with raises("session_lost") as lost:
        worker.result()
    assert "gone again" in str(lost.value)


def test_a_session_in_which_steps_were_taken_is_no_failure_in_a_row(trained_dir, start_servers, monkeypatch):
    """Also if the ps dies each time after fewer steps, and the global step never rises."""
    monkeypatch.setattr(recovery, "_PAUSES_SECS", (0.0,))
    cluster = start_servers(1, 1)
    worker = clusters.Worker(cluster, 0, trained_dir, 50)
    ends = iter([48, 47, 46])

    def body(live, write_summary):
        end = next(ends, None)
        outcome = worker.loop(live, train_steps=end).run()
        if end is not None:
            cluster.create_blackboard()  # as a restarted ps would
            raise tf.errors.AbortedError(None, None, "the ps was restarted")
        return outcome

    worker.body = body
    worker.start()
    assert worker.result().global_step == 50


# In async: tests/cluster/parts/packing/test_part.py.
def test_a_restarted_chief_continues_on_the_live_parameters(tmp_path, start_servers):
    """It neither initialises nor restores: the step continues from what is on the ps, not from the checkpoint.

    In sync it begins with one more: gradients on their way to the old chief are stale.
    """
    cluster = start_servers(1, 1)
    stop = threading.Event()
    first = clusters.Worker(cluster, 0, tmp_path, 20, stop=stop, gradients=1)
    loop = first.body

    def body(live, write_summary):
        loop(live, write_summary)
        stop.set()  # as SIGTERM would: training is not over, so the state stays "running"
        return first.loop(live, train_steps=30).run()

    first.body = body
    first.start()
    assert first.result().end is End.SIGNAL
    clusters.remove_checkpoints(tmp_path)
    second = clusters.Worker(cluster, 0, tmp_path, 40, gradients=1)
    second.start()
    outcome = second.result()
    assert (outcome.first_step, outcome.global_step) == (21, 40)


def test_a_worker_waits_for_the_chief_and_names_it(tmp_path, start_servers):
    """Without a chief the wait ends, and the message has the chief's name and address."""
    cluster = start_servers(1, 2)
    worker = clusters.Worker(cluster, 1, tmp_path, 10, start_timeout_secs=0.5)
    worker.start()
    with raises("timed_out") as error:
        worker.result()
    assert f"worker:0 {cluster.addresses['worker'][0]} (chief)" in str(error.value)


def test_no_worker_waits_for_tensorflows_thirty_seconds(tmp_path, start_servers, monkeypatch):
    """Matrix row 4: one that waits for parameters asks the blackboard, not TensorFlow (tensorflow/tensorflow#10679)."""
    def wait_for_session(*args, **options):
        raise AssertionError("between two looks it waits for 30 s")

    monkeypatch.setattr(tf.train.SessionManager, "wait_for_session", wait_for_session)
    cluster = start_servers(1, 2)
    early, chief = (clusters.Worker(cluster, number, tmp_path, 10) for number in (1, 0))
    early.start()
    wait_until(lambda: early.board.snapshot().claims[1], "the claim of a worker that waits for the chief")
    chief.start()
    assert (early.result().end in (End.STEPS, End.ANNOUNCED), chief.result().global_step) == (True, 10)


def test_a_stop_signal_ends_the_wait_for_the_chief(tmp_path, start_servers):
    """SIGTERM while waiting ends the worker at once."""
    stop = threading.Event()
    worker = clusters.Worker(start_servers(1, 2), 1, tmp_path, 10, stop=stop)
    worker.start()
    stop.set()
    with raises("stopped"):
        worker.result()  # the wait itself would end with another error


def test_the_chief_ends_without_a_worker_that_never_came(tmp_path, start_servers, caplog):
    """It waits for its time-out, names the worker, and saves."""
    chief = clusters.Worker(start_servers(1, 2), 0, tmp_path, 10, end_timeout_secs=0.3)
    with caplog.at_level("WARNING"):
        chief.start()
        assert chief.result().end is End.STEPS
    assert "ending without worker:1" in caplog.text
    assert clusters.read_checkpoint(tmp_path)["global_step"] == 10


def test_a_checkpoint_of_another_model_is_refused_before_anything_is_restored(trained_dir, start_servers):
    """The error lists the variables, and the state stays idle."""
    cluster = start_servers(1, 1)
    worker = clusters.Worker(cluster, 0, trained_dir, 60, optimizer_name="momentum")
    worker.start()
    with raises("checkpoint_of_another_model") as refused:
        worker.result()
    assert "bias/Momentum" in str(refused.value)
    board = blackboard.for_worker(cluster.target("worker", 0), cluster.view("worker", 0))
    assert board.state() == State.IDLE
    board.close()


def test_the_chief_writes_summaries_of_its_steps(tmp_path, start_servers):
    """Loss and both rates are there, at the steps asked for."""
    worker = clusters.Worker(start_servers(1, 1), 0, tmp_path, 20)
    worker.schedule = worker.schedule._replace(save_summaries_steps=10)
    worker.start()
    worker.result()
    (path,) = tmp_path.glob("events.*")
    found = {(value.tag, event.step) for event in tf.train.summary_iterator(str(path))
             for value in event.summary.value}
    assert {("loss", 1), ("loss", 11), ("global_step/sec", 11), ("examples/sec", 11)} <= found
