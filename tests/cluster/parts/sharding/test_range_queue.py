"""The queue of input ranges on in-process servers, and what several workers at once make of it."""

from __future__ import annotations

import collections
import contextlib
import threading

import numpy as np
import pytest

from ps_train.coordination import blackboard, variables
from ps_train.errors import BlackboardError
from ps_train.parts.sharding import range_queue
from ps_train.parts.sharding.range_queue import Assignment, RangeQueue
from tests.tensorflow_mode import tf

GENERATION = 7
DEADLINE_SECS = 30.0
TIMEOUT_SECS = 1000.0  # the clock goes on while a test looks, by seconds on a busy machine


class Queues:
    """The workers' views of one queue."""

    def __init__(self, cluster, stack):
        self.cluster, self._stack = cluster, stack

    def begin(self, done, generation=GENERATION):
        """Begins the queue as the chief does: ranges that are done so often, and held by no worker."""
        with tf.Graph().as_default(), tf.device("/job:ps/task:0/cpu:0"):
            op = range_queue.begin(tf.constant(done, tf.int32), tf.constant(generation, tf.int64), "plan")
            with tf.Session(self.cluster.target("worker", 0)) as session:
                session.run(op)

    def let_time_pass(self, secs):
        """Advances the clock of ps 0."""
        with tf.Graph().as_default(), tf.device("/job:ps/task:0/cpu:0"):
            op = variables.add("clock", secs)
            with tf.Session(self.cluster.target("ps", 0)) as session:
                session.run(op)

    def of(self, worker, num_epochs=None, heartbeat_timeout_secs=TIMEOUT_SECS, seed=1):
        """Returns a worker's view."""
        return self._stack.enter_context(contextlib.closing(RangeQueue(
            self.cluster.target("worker", worker), self.cluster.view("worker", worker), num_epochs=num_epochs,
            seed=seed, heartbeat_timeout_secs=heartbeat_timeout_secs)))


@pytest.fixture
def queues(start_servers):
    """A queue of a cluster of 1 ps and 2 workers."""
    with contextlib.ExitStack() as stack:
        yield Queues(start_servers(1, 2), stack)


def take(queue, held=(), finished=(), generation=GENERATION):
    """Returns what a worker is given, None if nothing is free."""
    answer = queue.exchange(generation, finished, held, wants_another=True)
    return Assignment(int(answer.taken), int(answer.epoch)) if answer.taken >= 0 else None




def test_a_call_that_is_repeated_changes_nothing_more(queues):
    """The answer was lost: the same range is assigned again, and a finished one is not counted twice."""
    queues.begin([0] * 4)
    queue = queues.of(0)
    first = take(queue)
    answers = [queue.exchange(GENERATION, [first], [], wants_another=True) for _ in range(3)]
    assert [answer.accepted.tolist() for answer in answers] == [[True], [False], [False]]
    assert len({int(answer.taken) for answer in answers}) == 1
    assert [bool(answer.is_again) for answer in answers] == [False, True, True]
    state = queue.state()
    assert sorted(state.done.tolist()) == [0, 0, 0, 1] and state.holders() == {0: 1}


def test_a_range_that_is_done_and_given_for_the_next_epoch_was_twice_in_hand(queues):
    """Counted from a mark, as a save sets one; a call that is repeated counts once, and the next mark starts again."""
    queues.begin([0, 5])
    queue = queues.of(0)
    first = take(queue)
    with tf.Graph().as_default(), tf.device("/job:ps/task:0/cpu:0"):
        mark, given = range_queue.mark(), range_queue.read_queue("given")
        with tf.Session(queues.cluster.target("worker", 0)) as session:
            assert session.run(mark).tolist() == [0, 5]
            assert session.run(given).tolist() == [1, 0]
            second = [take(queue, finished=[first]) for _ in range(2)][-1]
            assert (second.number, second.epoch) == (0, 1)
            assert session.run(given).tolist() == [2, 0]
            session.run(mark)
            assert session.run(given).tolist() == [1, 0]



def test_a_range_that_another_worker_has_by_now_is_not_counted(queues):
    """A worker that was thought dead finishes its range after all: it stays in the hands of the other one."""
    queues.begin([0])
    frozen, other = queues.of(0), queues.of(1)
    held = take(frozen)
    assert frozen.give_back() == [0]
    assert take(other) == held
    assert not frozen.exchange(GENERATION, [held], [], wants_another=False).accepted[0]
    assert other.exchange(GENERATION, [held], [], wants_another=False).accepted[0]
    assert other.state().done.tolist() == [1]


def test_a_range_that_a_worker_has_twice_counts_once(queues):
    """It was silent, lost the range, and got it again behind the one that it had in hand."""
    queues.begin([0])
    queue = queues.of(0)
    held = take(queue)
    assert queue.give_back() == [0]
    assert queue.exchange(GENERATION, [], [held], wants_another=True).taken == 0
    queue.exchange(GENERATION, [held, held], [], wants_another=False)
    assert queue.state().done.tolist() == [1]


def test_a_process_that_was_replaced_gives_back_nothing(queues):
    """The ranges of its number belong to the process in its place."""
    queues.begin([0])
    old, new = queues.of(0), queues.of(0)
    view = queues.cluster.view("worker", 0)
    with contextlib.closing(blackboard.for_worker(queues.cluster.target("worker", 0), view)) as board:
        board.claim(0, 7)
    take(new)
    old.own_claim, new.own_claim = 6, 7
    assert (old.give_back(), new.give_back()) == ([], [0])


def test_ranges_are_added_once_behind_the_others(queues):
    """Not when the call is repeated, nor for an earlier start of the queue; they are given in their order."""
    queues.begin([1])
    queue = queues.of(0, num_epochs=1, seed=None)
    assert take(queue) is None
    assert queue.add(GENERATION, first=1, num_ranges=3, plan="longer")
    assert not queue.add(GENERATION, first=1, num_ranges=3, plan="again")
    assert not queue.add(GENERATION - 1, first=4, num_ranges=1, plan="of another start")
    assert (queue.plan(), queue.state().done.tolist()) == ("longer", [1, 0, 0, 0])
    first = take(queue)
    second = take(queue, held=[first])
    assert queue.add(GENERATION, first=4, num_ranges=1, plan="longest")
    third = take(queue, held=[second], finished=[first])
    assert [first.number, second.number, third.number] == [1, 2, 3]
    assert (queue.plan(), queue.state().done.tolist()) == ("longest", [1, 1, 0, 0, 0])


def test_a_queue_that_has_started_again_with_fewer_ranges_answers(queues):
    """As with --follow, from a checkpoint before new files: the worker learns of it, and nothing is counted."""
    queues.begin([0] * 5)
    queue = queues.of(0, seed=None)
    held = [Assignment(3, 0), Assignment(4, 0)]
    queues.begin([0, 0], generation=GENERATION + 1)
    answer = queue.exchange(GENERATION, held[:1], held[1:], wants_another=True)
    assert (int(answer.generation), answer.accepted.tolist(), int(answer.taken)) == (GENERATION + 1, [False], -1)
    assert queue.state().done.tolist() == [0, 0] and not queue.state().holders()


def test_a_queue_that_has_started_again_ignores_earlier_calls(queues):
    """After the loss of a ps it continues from a checkpoint; then no worker holds a range."""
    queues.begin([2, 1, 1])
    queue = queues.of(0, num_epochs=9)
    held = take(queue)
    queues.begin([1, 1, 1], generation=GENERATION + 1)
    answer = queue.exchange(GENERATION, [held], [], wants_another=True)
    assert (answer.generation, answer.taken, answer.accepted.tolist()) == (GENERATION + 1, -1, [False])
    state = queue.state()
    assert state.done.tolist() == [1, 1, 1] and state.holders() == {}
    assert queue.plan() == "plan"


def test_a_silent_worker_loses_its_ranges_and_another_does_not(queues):
    """Its heartbeat counts, and so do its calls; only the first caller learns of its ranges."""
    queues.begin([0] * 4)
    silent, calling, asking = queues.of(1), queues.of(0), queues.of(0)
    lost, kept = take(silent), take(calling)
    queues.let_time_pass(0.6 * TIMEOUT_SECS)
    calling.exchange(GENERATION, [], [kept], wants_another=False)
    assert calling.release_silent() == {}
    queues.let_time_pass(0.6 * TIMEOUT_SECS)
    assert calling.release_silent() == {1: [lost.number]}
    assert calling.release_silent() == {}
    assert asking.state().holders() == {0: 1}


def test_a_heartbeat_keeps_a_workers_ranges(queues):
    """A range may take longer than the time-out, in which its worker does not call."""
    queues.begin([0] * 2)
    queue = queues.of(1)
    held = take(queue)
    with contextlib.closing(blackboard.for_worker(
            queues.cluster.target("worker", 1), queues.cluster.view("worker", 1))) as board:
        board.claim(1, 5)
        for _ in range(3):
            queues.let_time_pass(0.6 * TIMEOUT_SECS)
            assert board.beat(1, claim=5, step=0).is_accepted
            assert queue.release_silent() == {}
    queues.let_time_pass(1.1 * TIMEOUT_SECS)
    assert queue.release_silent() == {1: [held.number]}


def test_workers_that_call_at_once_never_get_the_same_range(queues):
    """Two threads take and finish 3 epochs of 40 ranges; each one is handed out once in each epoch."""
    queues.begin([0] * 40)
    seen, lock = collections.Counter(), threading.Lock()

    def work(worker):
        queue, finished = queues.of(worker, num_epochs=3), []
        while one := take(queue, finished=finished, held=[]):
            finished = [one]
            with lock:
                seen[one] += 1
        queue.exchange(GENERATION, finished, [], wants_another=False)

    threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_SECS)
    assert seen == collections.Counter([Assignment(number, epoch) for number in range(40) for epoch in range(3)])
    assert queues.of(0).state().done.tolist() == [3] * 40


def test_before_the_queue_has_begun_there_is_no_answer(queues):
    """Ps 0 has restarted, and the chief has not restored anything yet."""
    with pytest.raises(BlackboardError):
        queues.of(0).state()


def test_the_order_follows_from_the_seed(queues):
    """The same one for the same seed."""
    def order(seed):
        queues.begin([0] * 8)
        queue, held = queues.of(0, seed=seed), []
        while len(held) < 8:
            held.append(take(queue, held=held))
        return [one.number for one in held]

    assert order(1) == order(1) != order(2)
    np.testing.assert_array_equal(sorted(order(2)), range(8))
    assert order(2**40 + 1) == order(1) and sorted(order(2**31)) == list(range(8))  # the lowest 32 bits
