"""The staleness of updates, and its bound."""

from __future__ import annotations

import threading

import pytest

from ps_train.config import task
from ps_train.coordination import blackboard, variables
from ps_train.training.replica_graph import StepStatus
from ps_train.training.reporting import End
from ps_train.updates import local_steps, staleness
from ps_train.updates.update import Period
from tests import clusters
from tests.errors import raises
from tests.tensorflow_mode import tf


def bound_of(steps, round_steps=1, heartbeat_timeout_secs=1000.0):
    """Returns a bound for the workers of a local cluster, where no worker dies unless the test is about that."""
    return staleness.Bound(steps=steps, round_steps=round_steps, heartbeat_timeout_secs=heartbeat_timeout_secs,
                           names={0: "worker:0", 1: "worker:1 at b:1"})


class Recording:
    """A session that records the StepStatus of each step and each check."""

    def __init__(self, live, seen):
        self._live = live
        self._seen = seen

    def run(self, fetches, **kwargs):
        values = self._live.run(fetches, **kwargs)
        self._seen += [StepStatus(*value.tolist()) for value in tf.nest.flatten(values)
                       if getattr(value, "shape", None) == (len(StepStatus._fields),)]
        return values


class Pair:
    """A chief that trains, and a worker 1 whose steps the test takes, until it lets it train on."""

    def __init__(self, cluster, tmp_path, bound, train_steps, step_timeout_secs=60.0, **options):
        self.seen = []
        self.chief, self.other = (
            clusters.Worker(cluster, index, tmp_path, train_steps, bound=bound, **options) for index in range(2))
        self.chief.schedule = self.chief.schedule._replace(step_timeout_secs=step_timeout_secs)
        self._session, self._is_there, self._go_on = None, threading.Event(), threading.Event()
        chief_loop, other_body = self.chief.loop, self.other.body

        def trained(live, write_summary):
            assert self._is_there.wait(60)
            return chief_loop(Recording(live, self.seen), write_summary).run()

        def stepped(live, write_summary):
            self._session = live
            self._is_there.set()
            assert self._go_on.wait(60)
            return other_body(live, write_summary)

        self.chief.body, self.other.body = trained, stepped
        self.chief.start(), self.other.start()

    def wait_until_held(self, step):
        """Returns when the chief has asked again and again at that global step, which it does only while it waits."""
        never = threading.Event()
        for _ in range(6000):
            held = [one for one in self.seen[-5:] if one.num_taken == 0 and one.step == step]
            if len(held) == 5:
                return
            never.wait(0.01)
        raise AssertionError(f"the chief does not wait at step {step}: {self.seen[-5:]}")

    def step(self):
        """Takes one step of worker 1."""
        built = self.other.graph
        _, progress = self._session.run([built.update.train_op, built.steps.single.progress])
        return StepStatus(*progress[0].tolist())

    def finish(self):
        """Lets worker 1 train on; returns both outcomes."""
        self._go_on.set()
        return self.chief.result(), self.other.result()


def test_no_worker_runs_further_ahead_of_the_slowest_than_the_bound(tmp_path, start_servers):
    """The chief takes three steps and waits; each step of the other lets it take one more."""
    pair = Pair(start_servers(1, 2), tmp_path, bound_of(3), 60)
    pair.wait_until_held(3)
    for turn in range(3):
        assert pair.step().lead == 0  # it is the slowest itself
        pair.wait_until_held(3 + 2 * (turn + 1))
    outcomes = pair.finish()
    assert {outcome.end for outcome in outcomes} <= {End.STEPS, End.ANNOUNCED}
    assert max(one.lead for one in pair.seen) == 3


def test_rounds_are_held_back_as_a_whole(tmp_path, start_servers):
    """With rounds of four and a bound of six, a worker that is four ahead takes no further round."""
    pair = Pair(start_servers(1, 2), tmp_path, bound_of(6, 4), 60, period=Period(4, train_steps=60))
    pair.wait_until_held(4)
    pair.step()
    pair.wait_until_held(12)
    pair.finish()
    assert max(one.lead for one in pair.seen) == 4


def test_a_dead_worker_holds_nobody_up(tmp_path, start_servers):
    """When its heartbeats have stopped for the time-out, the chief trains to the end without it."""
    pair = Pair(start_servers(1, 2), tmp_path, bound_of(2, heartbeat_timeout_secs=5.0), 30, heartbeat_timeout_secs=5.0)
    pair.wait_until_held(2)
    pair.other.heartbeat._left.set()
    assert pair.chief.result().end is End.STEPS
    pair._go_on.set()
    pair.other.result()


def test_a_worker_that_is_alive_and_takes_no_step_is_named(tmp_path, start_servers):
    """The wait is bounded by the time-out of a step."""
    pair = Pair(start_servers(1, 2), tmp_path, bound_of(2), 30, step_timeout_secs=1.0)
    with raises("worker_stalled") as stalled:
        pair.chief.result()
    assert "worker:1 at b:1" in str(stalled.value) and "--staleness_bound=2" in str(stalled.value)
    pair._go_on.set()


def test_who_comes_begins_at_the_pace_of_the_slowest(start_servers):
    """Neither is everybody held up until a newcomer has caught up, nor may it run ahead of them; nor by who ends."""
    cluster = start_servers(1, 3)
    built = [clusters.build_graph(cluster, index, bound=bound_of(100)) for index in range(3)]
    sessions = [tf.Session(cluster.target("worker", index), graph=one.graph) for index, one in enumerate(built)]
    with built[0].graph.as_default():
        sessions[0].run([tf.global_variables_initializer(), tf.local_variables_initializer()])
    board = blackboard.for_worker(cluster.target("worker", 0), cluster.view("worker", 0))

    def come(index):
        board.claim(index, index + 1)
        sessions[index].run(built[index].input.init_op, built[index].input.feed)
        sessions[index].run(built[index].steps.join_op)

    def step(index, count):
        for _ in range(count):
            sessions[index].run(built[index].update.train_op)
            sessions[index].run(built[index].steps.single.progress)

    def lead(index):
        return StepStatus(*sessions[index].run(built[index].steps.status).tolist()).lead

    come(0), come(1)
    step(0, 7), step(1, 4)
    assert (lead(0), lead(1)) == (3, 0)
    come(2)
    assert [lead(index) for index in range(3)] == [3, 0, 0]
    step(1, 2)
    come(1)  # again: where worker 2 is
    assert [lead(index) for index in range(3)] == [3, 0, 0]
    step(1, 10)
    assert lead(1) == 10
    board.report_finished(0), board.report_finished(2)
    assert lead(1) == 0  # those that have finished stay behind, and no worker waits for them
    board.close()


def test_who_has_claimed_its_number_and_still_starts_holds_nobody_up(start_servers):
    """It may take long, or never come: its step count, 0 or that of an earlier process, counts once it has joined."""
    cluster = start_servers(1, 2)
    built = clusters.build_graph(cluster, 0, bound=bound_of(2))
    board = blackboard.for_worker(cluster.target("worker", 0), cluster.view("worker", 0))
    with built.graph.as_default(), tf.Session(cluster.target("worker", 0)) as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        session.run(built.input.init_op, built.input.feed)
        board.claim(0, 1)
        session.run(built.steps.join_op)
        for _ in range(5):
            session.run(built.steps.single.progress)
        board.claim(1, 2)
        assert StepStatus(*session.run(built.steps.status).tolist()).lead == 0
    board.close()


def test_the_others_wait_for_two_steps_of_who_was_frozen():
    """Its count is far below theirs: with its first step it is as far behind as the bound allows; then they go on."""
    bound = bound_of(4)
    with tf.Graph().as_default(), tf.Session() as session:
        session.run(variables.clear_first_ps())
        for worker in range(3):
            session.run(variables.write_element("claims", worker, worker + 1))
            session.run(staleness.join_at_slowest(worker, bound))

        def lead():
            return session.run(staleness.lead(0, bound)[0])

        def step(worker, count):
            counted = session.run(staleness.count_steps(worker, tf.constant(count, tf.int64), bound))
            assert counted == session.run(staleness.lead(worker, bound))

        frozen = [variables.write_element("heartbeats", worker, -2000.0) for worker in (1, 2)]
        awake = [variables.write_element("heartbeats", worker, 0.0) for worker in (1, 2)]
        step(1, 3), step(2, 1)
        session.run(frozen)
        step(0, 100)
        assert lead() == 0
        session.run(awake)
        assert lead() == 99
        step(1, 1)
        assert lead() == 99
        step(2, 1)
        assert lead() == 4 and bound.holds_up(4)
        step(1, 1), step(2, 1)
        assert lead() == 3 and not bound.holds_up(3)


def test_the_staleness_is_what_others_did_between_pull_and_push():
    """From step 10 to 14, of which 3 are its own: 1. Its own steps are none of it."""
    with tf.Graph().as_default(), tf.Session() as session:
        for begun, reached, num_taken, expected in ((10, 14, 3, 1), (10, 11, 1, 0), (10, 10, 1, 0)):
            assert session.run(staleness.measure(
                begun=tf.constant(begun), reached=tf.constant(reached), num_taken=tf.constant(num_taken))) == expected


def test_the_histogram_counts():
    """Of 0 nineteen times and 20 once: the mean is 1, at 95 % there is 0, and the largest is 20."""
    histogram = staleness.Histogram()
    assert histogram.line() == ""
    for value in [0] * 19 + [20]:
        histogram.add(value)
    assert histogram.line() == "staleness 1.00 global steps in the mean, 0 at 95 %, 20 at most"
    for value in [0] * 19 + [20]:
        histogram.add(value)
    (value,) = histogram.summary().value
    assert value.tag == "staleness"
    assert list(value.histo.bucket_limit) == [0, 20]
    assert list(value.histo.bucket) == [38, 2]
    assert (value.histo.num, value.histo.sum, value.histo.sum_squares) == (40, 40, 800)


@pytest.mark.parametrize("flags, code", [
    (["--staleness_bound=3", "--sync_replicas"], "flags_conflict"),
    (["--staleness_bound=3", "--communication_period=4"], "flags_conflict"),
    (["--staleness_bound=0"], "flag_out_of_range"),
])
def test_a_bound_that_cannot_hold_is_refused(flags, code):
    """Before anything starts."""
    with raises(code):
        task.parse_task(flags, {})


CLOCK_SECS = 10000.0
LIVENESS_SECS = 1000.0  # the clock runs while a test looks, by seconds on a busy machine


class Variables:
    """The variables of the blackboard on one server."""

    def __init__(self, server):
        self._server = server
        self.run(variables.clear_first_ps)
        self.run(lambda: [variables.write("clock", CLOCK_SECS)])

    def run(self, make):
        """Returns the values of what that function adds to an empty graph."""
        with tf.Graph().as_default(), tf.Session(self._server) as session:
            return session.run(make())

    def write(self, worker, **values):
        """Writes a worker's elements."""
        self.run(lambda: [variables.write_element(name, worker, value) for name, value in values.items()])


@pytest.fixture
def board(start_servers):
    """A blackboard on which worker 0 trains and has just sent a heartbeat."""
    found = Variables(start_servers(1, 1).target("ps", 0))
    found.write(0, claims=5, heartbeats=CLOCK_SECS, joined=5)
    return found


@pytest.mark.parametrize("other, is_alive, expected", [
    ({"claims": 6, "heartbeats": CLOCK_SECS - 900, "joined": 6}, True, 2),
    ({"claims": 6, "heartbeats": CLOCK_SECS}, True, 1),
    ({"claims": 6, "heartbeats": CLOCK_SECS, "joined": 5}, True, 1),
    ({"claims": 6, "heartbeats": CLOCK_SECS - 1100, "joined": 6}, False, 1),
    ({"claims": 6, "heartbeats": CLOCK_SECS, "joined": 6, "finished": 1}, False, 1),
    ({"heartbeats": CLOCK_SECS}, False, 1),
], ids=["trains", "has not trained yet", "its predecessor trained", "silent", "finished", "never came"])
def test_which_workers_are_alive_and_which_train(board, other, is_alive, expected):
    """A worker is alive from its claim on, and trains from when its first round has begun."""
    board.write(3, **other)
    found, num_training = board.run(
        lambda: [staleness.alive_workers(LIVENESS_SECS), local_steps.count_training(0, LIVENESS_SECS)])
    assert [*found.nonzero()[0]] == ([0, 3] if is_alive else [0])
    assert num_training == expected


def test_a_worker_always_counts_itself(board):
    """Even if its heartbeat is overdue: its change is there."""
    assert board.run(lambda: local_steps.count_training(7, LIVENESS_SECS)) == 2


def test_a_worker_that_begins_counts_those_that_may_begin_too(board):
    """Two that begin at the same time count each other, though neither has joined; one that trains does not."""
    def seen_by_each():
        return board.run(lambda: [local_steps.count_training(worker, LIVENESS_SECS) for worker in (2, 3, 0)])

    for worker in (2, 3):
        board.write(worker, claims=6 + worker, heartbeats=CLOCK_SECS)
    assert seen_by_each() == [3, 3, 1]
    board.run(lambda: staleness.join_training(2))
    assert seen_by_each() == [2, 3, 2]


def test_joining_is_recorded_with_the_claim(board):
    """The next process with the same number is not counted before it trains."""
    board.write(3, claims=6, heartbeats=CLOCK_SECS)
    board.run(lambda: staleness.join_training(3))
    assert board.run(lambda: local_steps.count_training(0, LIVENESS_SECS)) == 2
    board.write(3, claims=8)
    assert board.run(lambda: local_steps.count_training(0, LIVENESS_SECS)) == 1
