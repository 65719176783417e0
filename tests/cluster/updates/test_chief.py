"""Sync follows the live workers: some die, come late or run out of data, and gradients are dropped."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from ps_train.runtime import waits as waiting
from ps_train.training.reporting import End
from ps_train.updates.sync import aggregation, runner
from ps_train.updates.sync.aggregation import SyncStatus
from ps_train.updates.sync.runner import QuorumStatus
from ps_train.updates.update import Period
from tests import bare_training, clusters
from tests.cluster.updates.test_build import gradients_of
from tests.errors import raises
from tests.tensorflow_mode import tf

DEADLINE_SECS = 60
BEAT_SECS = 5.0  # the heartbeat time-out where a worker dies


class Group:
    """Workers whose steps the test takes one by one, until it lets them train on."""

    def __init__(self, cluster, train_dir, num_workers, train_steps, **options):
        self.workers = [clusters.Worker(cluster, index, train_dir, train_steps, **options)
                        for index in range(num_workers)]
        self._go_on = threading.Event()
        ready = threading.Barrier(num_workers + 1)
        for worker in self.workers:
            worker.body = self._body_of(worker, ready)
            worker.start()
        ready.wait(DEADLINE_SECS)

    def _body_of(self, worker, ready):
        def body(live, write_summary):
            worker.session = live
            if not self._go_on.is_set():
                ready.wait(DEADLINE_SECS)
                self._go_on.wait(2 * DEADLINE_SECS)
            return worker.loop(live, write_summary).run()
        return body

    def begin(self, number):
        """Begins a step of a worker; returns its thread, which ends with the step."""
        worker = self.workers[number]
        thread = threading.Thread(
            target=lambda: worker.session.run(worker.graph.update.train_op), daemon=True)
        thread.start()
        return thread

    def steps(self, *numbers):
        """Takes one step of each of these workers."""
        for thread in [self.begin(number) for number in numbers]:
            thread.join(DEADLINE_SECS)
            assert not thread.is_alive(), "the step hangs"

    def die(self, number):
        """Ends a worker's heartbeats, as its death would; the test takes no further step of it."""
        self.workers[number].heartbeat._left.set()

    def status(self):
        """Returns the SyncStatus, as the chief sees it."""
        return self.workers[0].session.run(self.chief_service._operations.status)

    @property
    def chief_service(self):
        """The chief's."""
        return self.workers[0].supervised._chief_service

    def wait_for(self, condition, what):
        """Returns when `condition(status)` is true."""
        waiting.until(lambda: condition(self.status()), DEADLINE_SECS, what, threading.Event())

    def wait_for_counts(self, step, dropped):
        """Returns when so many gradients are dropped at this step: an update counts after it has let the workers go."""
        self.wait_for(lambda status: (status.step, status.dropped) == (step, dropped), f"{dropped} dropped at {step}")

    def finish(self, *numbers):
        """Lets all train on; returns the outcomes of these workers."""
        self._go_on.set()
        return [self.workers[number].result() for number in numbers]


def _averages(weights, bias, features, labels, rows_of_workers):
    pairs = [gradients_of(weights, bias, features[rows], labels[rows]) for rows in rows_of_workers]
    return [np.mean(part, axis=0) for part in zip(*pairs)]


def test_after_a_death_the_mean_is_over_the_living(tmp_path, start_servers):
    """Step 1 averages three gradients; step 2, after the heartbeat time-out, and step 3 average two."""
    features, labels = clusters.linear_data(num_examples=72)  # three batches for each of the workers
    dataset = clusters.array_dataset(features, labels, shuffle=False)
    group = Group(start_servers(2, 3), tmp_path, 3, 3, gradients=3, learning_rate=0.1, dataset=dataset,
                  heartbeat_timeout_secs=BEAT_SECS)
    group.steps(0, 1, 2)
    group.die(2)
    group.steps(0, 1)
    group.steps(0, 1)
    group.wait_for(lambda status: status.dropped == 0, "the update's own count of what it has used")
    group.finish(0, 1)
    weights, bias = np.zeros(4), 0.0
    for step, num_alive in enumerate([3, 2, 2]):
        averages = _averages(weights, bias, features, labels, [
            [index + 3 * (8 * step + row) for row in range(8)] for index in range(num_alive)])
        weights, bias = weights - 0.1 * averages[0], bias - 0.1 * averages[1]
    saved = clusters.read_checkpoint(tmp_path)
    assert saved["global_step"] == 3
    np.testing.assert_allclose(saved["weights"], weights, rtol=1e-5)
    np.testing.assert_allclose(saved["bias"], bias, rtol=1e-5, atol=1e-7)


def test_the_floor_keeps_an_update_waiting_until_a_worker_comes_back(tmp_path, start_servers):
    """With a floor of 2, one worker alone waits; the other's new life brings the second gradient."""
    cluster = start_servers(1, 2)
    group = Group(cluster, tmp_path, 2, 6, gradients=2, floor=2, heartbeat_timeout_secs=BEAT_SECS)
    group.steps(0, 1)
    group.die(1)
    waits = group.begin(0)
    waiting.until(lambda: (last := group.chief_service._last_quorum) and last.short_secs > 0, DEADLINE_SECS,
                  "the death to be noticed", threading.Event())
    assert (group.chief_service._last_quorum.members, group.chief_service._last_quorum.required) == ({0}, 2)
    assert waits.is_alive() and group.status().step == 1
    again = clusters.Worker(cluster, 1, tmp_path, 6, gradients=2, floor=2, heartbeat_timeout_secs=BEAT_SECS)
    again.start()
    waits.join(DEADLINE_SECS)
    assert not waits.is_alive()
    (outcome,) = group.finish(0)
    assert (outcome.end, again.result().end) == (End.STEPS, End.STEPS)


def wait_for_workers(chief, secs):
    """Lets a chief wait for the others for so long only; its own start may take longer on a busy machine."""
    context_of = chief.supervised._context
    chief.supervised._context = lambda is_live: context_of(is_live)._replace(start_timeout_secs=secs)


def test_below_the_floor_for_too_long_ends_the_chief_and_names_who_is_missing(tmp_path, start_servers):
    """It is bounded by the start time-out, and another attempt may succeed: exit code 138."""
    cluster = start_servers(1, 2)
    chief = clusters.Worker(cluster, 0, tmp_path, 6, gradients=2, floor=2)
    wait_for_workers(chief, 2.0)
    chief.start()
    with raises("workers_missing") as error:
        chief.result()
    assert f"worker:1 {cluster.addresses['worker'][1]}" in str(error.value)


def test_a_worker_that_never_comes_is_named_and_then_trained_without(tmp_path, start_servers, caplog):
    """Matrix row 3: after the start time-out, with a warning that has its address."""
    cluster = start_servers(1, 2)
    chief = clusters.Worker(cluster, 0, tmp_path, 6, gradients=2, end_timeout_secs=0.3)
    wait_for_workers(chief, 2.0)
    with caplog.at_level("WARNING"):
        chief.start()
        assert chief.result().end is End.STEPS
    assert ("gradients per update from now on: 1; dead or never started: "
            f"worker:1 {cluster.addresses['worker'][1]}") in caplog.text


# Where the chief's data is out, see TensorFlow's engine.
def test_training_ends_where_those_whose_data_is_out_leave_too_few_for_the_floor(tmp_path, start_servers):
    """The worker that has data left would wait for ever, as a finished one does not come back."""
    cluster = start_servers(1, 2)
    features, labels = clusters.linear_data()
    workers = [
        clusters.Worker(cluster, index, tmp_path, 60, gradients=2, floor=2,
                        dataset=clusters.array_dataset(features, labels, repeat=index == 0))
        for index in range(2)]
    for worker in workers:
        worker.start()
    assert workers[1].result().end is End.DATA
    assert workers[0].result().end is End.ANNOUNCED
    assert clusters.read_checkpoint(tmp_path)["global_step"] == 32 / 8


@pytest.mark.parametrize("period", [1, 5], ids=["single steps", "rounds"])
def test_gradients_that_come_too_late_are_dropped_counted_and_told(tmp_path, start_servers, caplog, period):
    """Worker 1 pushes for step 0 after two updates without it, and continues at once."""
    group = Group(start_servers(2, 2), tmp_path, 2, 6 * period, gradients=1, period=Period(period))
    group.steps(0)
    group.steps(0)
    group.steps(1)  # its own step is still 0
    group.wait_for_counts(2 * period, 1)
    group.steps(0)
    group.wait_for_counts(3 * period, 1)
    group.steps(1)  # and now 2: one update less is late enough, too
    group.wait_for_counts(3 * period, 2)
    group.steps(1)
    group.wait_for_counts(4 * period, 2)
    with caplog.at_level("INFO"):
        group.finish(0, 1)
    assert "gradients came too late for their update and were dropped" in caplog.text


def test_the_dropped_gradients_are_a_summary(start_servers):
    """Under the tag `dropped_gradients`."""
    tags = set()

    def note(summary, step):
        parsed = summary if isinstance(summary, tf.Summary) else tf.Summary.FromString(summary)
        tags.update(value.tag for value in parsed.value)

    bare_training.BareTraining(start_servers(1, 1), gradients=1).train(2, note, save_summaries_steps=1)
    assert "dropped_gradients" in tags


def test_with_several_batches_an_update_those_of_the_live_workers_are_left(tmp_path, start_servers):
    """With 4 gradients an update and 2 workers, of which one dies, each further update averages 2."""
    group = Group(start_servers(1, 2), tmp_path, 2, 5, gradients=4, heartbeat_timeout_secs=BEAT_SECS)
    group.die(1)
    (outcome,) = group.finish(0)
    assert (outcome.end, outcome.local_steps) == (End.STEPS, 10)
    assert clusters.read_checkpoint(tmp_path)["global_step"] == 5


def test_a_fault_in_the_update_ends_training_with_that_error(tmp_path, start_servers):
    """It happens in a thread of the chief; otherwise it would be lost, and the steps would wait forever."""
    worker = clusters.Worker(start_servers(1, 1), 0, tmp_path, 5, gradients=1)

    def fail(session, watch):
        raise tf.errors.InvalidArgumentError(None, None, "a fault in the update")

    worker.supervised._chief_service._update = fail
    worker.start()
    with pytest.raises(tf.errors.InvalidArgumentError, match="a fault in the update"):
        worker.result()


def test_an_update_that_was_lost_half_way_stops_nobody(tmp_path, start_servers):
    """A chief that was cut off has emptied the gate, and applied nothing: all continue with the next step."""
    cluster = start_servers(1, 2)
    group = Group(cluster, tmp_path, 2, 4, gradients=2)
    waits = [group.begin(0)]
    group.wait_for(lambda status: status.gathered == 1, "the chief's gradient")
    with tf.Graph().as_default(), tf.Session(cluster.target("ps", 0)) as lost:
        assert lost.run(aggregation.summing("ps_train/gate", 3, "").take())[-1] == 1
    waits.append(group.begin(1))
    for thread in waits:
        thread.join(DEADLINE_SECS)
        assert not thread.is_alive()
    assert (group.status().step, group.status().dropped) == (1, 2)
    assert [outcome.global_step for outcome in group.finish(0, 1)] == [4, 4]


def test_an_update_under_way_is_noted(tmp_path, start_servers):
    """From when it has taken the gate; here it waits for a gradient, as it would take long to apply a large one."""
    cluster = start_servers(1, 1)
    group = Group(cluster, tmp_path, 1, 4, gradients=1)
    with tf.Graph().as_default(), tf.Session(cluster.target("ps", 0)) as other:
        other.run(aggregation.summing("ps_train/gate", 2, "").push(tf.ones([2], tf.float64), 0))
    group.wait_for(lambda status: status.is_updating == 1, "an update without a gradient")
    group.steps(0)  # its gradient is what the update waited for
    group.wait_for(lambda status: (status.step, status.is_updating) == (1, 0), "the end of the update")
    assert [outcome.global_step for outcome in group.finish(0)] == [4]


@pytest.mark.parametrize("is_updating, expected", [(0, True), (1, False)])
def test_when_all_workers_are_stuck(is_updating, expected):
    """All live workers wait, and nothing has changed between two checks."""
    updates = runner.UpdateRunner(None, None)
    quorum = QuorumStatus(members=frozenset({0, 1}), missing=frozenset(), finished=frozenset(), returning=frozenset(),
                          required=2, short_secs=0, is_hopeless=False)
    status = SyncStatus(step=3, gathered=0, awaited=[4, 4], dropped=0, is_updating=is_updating)
    assert [updates._is_stuck(quorum, status) for _ in range(3)] == [False, expected, expected]
    assert not updates._is_stuck(quorum, status._replace(awaited=[4, 3]))
    assert not updates._is_stuck(quorum, status), "the last one has come, and an update may have just begun"


def test_a_new_chief_lets_those_go_who_wait_since_the_old_one(tmp_path, start_servers):
    """The other worker has pushed, and waits, when the old one stops; the new one trains on with it."""
    cluster = start_servers(1, 2)
    group = Group(cluster, tmp_path, 2, 40, gradients=2)
    group.steps(0, 1)
    waits = group.begin(1)
    group.wait_for(lambda status: status.gathered == 1, "the other worker's gradient")
    group.workers[0].stop.set()
    (outcome,) = group.finish(0)
    assert outcome.end is End.SIGNAL
    clusters.remove_checkpoints(tmp_path)
    second = clusters.Worker(cluster, 0, tmp_path, 40, gradients=2)
    second.start()
    waits.join(DEADLINE_SECS)
    assert not waits.is_alive()
    assert second.result().global_step == 40
    assert group.workers[1].result().global_step == 40
