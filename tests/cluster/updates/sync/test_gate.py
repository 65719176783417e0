"""What a worker learns of its gradients: whether an update had them, or they were lost with a task."""

from __future__ import annotations

import re
import threading

import pytest

from ps_train.coordination import variables
from ps_train.graph import transfer
from ps_train.runtime import waits
from ps_train.updates.sync.aggregation import SyncEngine
from ps_train.updates.update import SyncSettings
from tests.tensorflow_mode import tf

DEADLINE_SECS = 60


class Workers:
    """Two workers that count in one variable; worker 0 is the chief. All is in one session."""

    def __init__(self, replicas):
        with tf.Graph().as_default() as graph:
            step = tf.get_variable("global_step", [], tf.int64, tf.zeros_initializer(), trainable=False,
                                   use_resource=True)
            self.counts = tf.get_variable("counts", [], initializer=tf.zeros_initializer(), use_resource=True)
            engines = [SyncEngine(
                tf.train.GradientDescentOptimizer(1.0), [(tf.constant(-1.0), self.counts)], step,
                SyncSettings(replicas, 2), worker=worker) for worker in range(2)]
            self.operations = [engine.operations() for engine in engines]
            self.begin_update_op = engines[0]._gate.take()[1]
            clear = variables.clear_first_ps()
            self.session = tf.Session(graph=graph)
            self.session.run([clear, tf.global_variables_initializer()])
        self.session.run(self.operations[0].init.new_run)
        for operations in self.operations:
            self.session.run(operations.init.every_worker)

    def begin(self, worker):
        """Begins a step; returns what waits for its end and gives the verdict: is it lost?"""
        found = []
        gathered = self.session.run(self.operations[0].status.gathered)
        operations = self.operations[worker]
        thread = threading.Thread(
            target=lambda: found.append(self.session.run([operations.train_op, operations.verdict])[1]), daemon=True)
        thread.start()

        def end():
            thread.join(DEADLINE_SECS)
            assert found, "the step hangs"
            assert found[0].is_settled
            return bool(found[0].is_lost)

        waits.until(lambda: found or self.session.run(self.operations[0].status.gathered) > gathered, DEADLINE_SECS,
                    "a gradient", threading.Event())
        return end

    def update(self, required=None):
        """Makes an update with the gradients in the gate."""
        chief = self.operations[0]
        if required:
            self.session.run(chief.require_op, {chief.required: required})
        self.session.run(chief.update_op, options=tf.RunOptions(timeout_in_ms=DEADLINE_SECS * 1000))


@pytest.fixture
def make_workers():
    """A function that makes Workers, of so many gradients in an update."""
    made = []

    def make(replicas):
        made.append(Workers(replicas))
        return made[-1]

    yield make
    for one in made:
        one.session.close()


def test_what_an_update_had_is_not_lost(make_workers):
    """With any workers in it, and however many updates follow before the worker looks."""
    workers = make_workers(2)
    ends = [workers.begin(0), workers.begin(1)]
    workers.update()
    assert [end() for end in ends] == [False, False]
    ends = [workers.begin(0)]
    workers.update(required=1)
    assert not ends[0]()


@pytest.mark.parametrize("replicas", [2, 1], ids=["all", "backup workers"])
def test_a_new_chief_drops_what_waits_and_its_worker_knows(make_workers, replicas):
    """Once only: the next gradient of the worker is in an update, or comes late by design."""
    workers = make_workers(replicas)
    end = workers.begin(1)
    workers.session.run(workers.operations[0].init.live_run)
    assert end()
    ends = [workers.begin(1), workers.begin(0)]
    workers.update()
    assert [end() for end in ends] == [False, False]
    assert workers.session.run(workers.counts) == 1.0


def test_a_flush_while_the_worker_computes_loses_its_gradient(make_workers):
    """It was pushed for a step that is over, and waits for nothing."""
    workers = make_workers(2)
    workers.session.run(workers.operations[0].flush_op)
    assert workers.begin(1)()


def test_what_a_chief_has_taken_before_it_died_is_lost(make_workers):
    """The update was not finished: the step stayed."""
    workers = make_workers(2)
    ends = [workers.begin(0), workers.begin(1)]
    workers.session.run([workers.begin_update_op])
    workers.session.run(workers.operations[0].init.live_run)
    assert [end() for end in ends] == [True, True]


def test_at_the_end_a_gradient_without_an_update_is_lost(make_workers):
    """The workers are released, and the step stays."""
    workers = make_workers(2)
    end = workers.begin(1)
    workers.session.run(workers.operations[0].release_op)
    assert end()


def test_a_gradient_that_comes_late_is_lost_only_without_backup_workers(make_workers):
    """With them, an update leaves out the slowest by design."""
    for replicas, is_lost in ((2, True), (1, False)):
        workers = make_workers(replicas)
        first = workers.begin(0)
        workers.update(required=1)
        assert not first()
        assert workers.begin(1)() is is_lost


def test_the_gradient_of_a_dead_process_does_not_stand_for_that_of_the_next(make_workers):
    """Both have the same number and were pushed for the same step."""
    workers = make_workers(2)
    end = workers.begin(1)
    workers.session.run(workers.operations[0].release_op)
    assert end()
    workers.session.run(workers.operations[1].init.every_worker)  # the next process; the gradient is still in the gate
    workers.update(required=1)
    assert workers.session.run(workers.counts) == 1.0
    assert workers.begin(1)()


@pytest.mark.parametrize("is_sparse", [True, False])
def test_an_update_writes_nothing_before_its_gradients_are_there(is_sparse):
    """Issue: sparse Adam scaled its slots while the update still waited, so that a checkpoint had half an update."""
    with tf.Graph().as_default():
        step = tf.get_variable("global_step", [], tf.int64, tf.zeros_initializer(), trainable=False, use_resource=True)
        table = tf.get_variable("table", [4, 2], use_resource=True)
        gradient = tf.ones([1 if is_sparse else 4, 2])
        gradient = tf.IndexedSlices(gradient, tf.constant([0]), tf.constant([4, 2])) if is_sparse else gradient
        engine = SyncEngine(tf.train.AdamOptimizer(0.1), [(gradient, table)], step, SyncSettings(1, 1), worker=0)
        writes = [op for op in transfer.upstream([engine.operations().update_op])
                  if re.search("Assign|Scatter|Apply", op.type) and op.inputs[0].dtype == tf.resource]
    assert len(writes) > 3
    early = [op.name for op in writes
             if not any(other.type.endswith("TakeGradient") for other in transfer.upstream([op]))]
    assert early == []
