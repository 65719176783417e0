"""What chief and workers do while they wait for each other, on a blackboard that the test writes."""

from __future__ import annotations

import dataclasses
import functools
import threading
import types

import numpy as np
import pytest

from ps_train.cluster.spec import Cluster
from ps_train.coordination import sessions
from ps_train.coordination.state import Snapshot, State
from ps_train.errors import BlackboardError, ChiefFailedError, ClusterLostError, StoppedError, UserCodeError
from ps_train.parts.evaluation_by_workers import roles
from ps_train.parts.evaluation_by_workers.exchange import Plan, Share, ShareResult
from ps_train.parts.evaluation_by_workers.roles import EvaluationByWorkers, EvaluationLostError, Participation
from ps_train.parts.evaluation_by_workers.share_graph import ShareGraph
from ps_train.runtime import waits
from ps_train.runtime.waits import Timeouts
from tests.errors import raises
from tests.tensorflow_mode import tf

HOSTS = {"ps": {0: "ps:1"}, "worker": {0: "w:1", 1: "w:2", 2: "w:3"}}
TIMEOUTS = Timeouts(start_secs=0.5, eval_secs=0.5, heartbeat_secs=10.0)
CLAIMS = [100, 101, 102]


@dataclasses.dataclass
class Board:
    """What ps 0 knows; `is_lost` makes it silent."""

    state: State = State.STOPPING
    alive: tuple[int, ...] = (0, 1, 2)
    finished: tuple[int, ...] = (0, 1, 2)
    is_lost: bool = False
    first_ps: str = "ps:0"
    lives: tuple[int, ...] = (1, 1)

    def incarnations(self):
        """Returns those of the ps."""
        if self.is_lost:
            raise BlackboardError("ps_lost", "ps:0 is lost")
        return self.lives

    def snapshot(self):
        """Returns it as the blackboard does."""
        if self.is_lost:
            raise BlackboardError("ps_lost", "ps:0 is lost")
        heartbeats = np.array([100.0 if worker in self.alive else 0.0 for worker in range(3)])
        return Snapshot(self.state, 100.0, np.array(CLAIMS), heartbeats, *np.zeros([2, 3], int),
                        np.isin(range(3), self.finished), 10.0)

    def report_finished(self, worker):
        """Records it."""
        self.finished = (*self.finished, worker)


class Results:
    """An exchange without a ps."""

    def __init__(self, plan=None):
        self.opened, self.delivered = plan, {}

    def open(self, plan):
        """Keeps the plan."""
        self.opened = plan

    def plan(self):
        """Returns the plan."""
        return self.opened

    def deliver(self, plan, share, result):
        """Keeps the result."""
        self.delivered[share] = result

    def results(self, plan, shares):
        """Returns those that were delivered."""
        return {share: self.delivered[share] for share in shares if share in self.delivered}


def prepared(index, stop=None, ends_idle=False, is_eval_sharded=True, timeouts=TIMEOUTS):
    """Returns the attributes of a PreparedWorker that the roles read."""
    dataset = types.SimpleNamespace(name="mine", is_eval_sharded=is_eval_sharded)
    settings = types.SimpleNamespace(timeouts=timeouts, has_server=ends_idle)
    return types.SimpleNamespace(cluster=Cluster("worker", index, HOSTS), settings=settings,
                                 plugins=types.SimpleNamespace(dataset=dataset), stop=stop or threading.Event())


@pytest.fixture(autouse=True)
def result_of_share(monkeypatch):
    """Gives each share one more example than its number."""
    monkeypatch.setattr(roles._Role, "_evaluate", lambda self, plan, share: ShareResult(
        7, share + 1, float(share), {}))


def at_server(board):
    """Returns the attributes of a ConnectedWorker that the roles read."""
    return types.SimpleNamespace(target="", board=board)


def participate(board, results, stop=None, **options):
    """Plays the role of worker 1."""
    Participation(prepared(1, stop, **options), at_server(board), results).run()


def test_a_worker_delivers_its_share(caplog):
    """The one of its claim; and it says again that it has finished, where a restarted ps has forgotten that."""
    board, results = Board(finished=(0,)), Results(Plan(5, [Share(0, 100), Share(2, 102), Share(1, 101)]))
    participate(board, results)
    assert results.delivered == {2: ShareResult(7, 3, 2.0, {})}
    assert 1 in board.finished


@pytest.mark.parametrize(("state", "ends_idle"), [(State.DONE, False), (State.IDLE, True)])
def test_a_worker_without_a_share_ends_when_all_is_done(state, ends_idle):
    """A plan of other processes, an earlier one with its number among them, is not its own."""
    results = Results(Plan(5, [Share(0, 100), Share(1, 55)]))
    participate(Board(state), results, ends_idle=ends_idle)
    assert results.delivered == {}


def test_a_worker_waits_for_the_chief_as_long_as_it_is_alive():
    """Without the chief's heartbeat it ends in time, and names the chief; else it waits for its share."""
    with raises("timed_out", kind=ClusterLostError) as caught:
        participate(Board(alive=(1, 2)), Results())
    assert "0.5 s for worker:0 w:1" in str(caught.value)
    results = Results()
    waiting = threading.Thread(target=participate, args=(Board(), results), daemon=True)
    waiting.start()
    waiting.join(3 * TIMEOUTS.start_secs)
    assert waiting.is_alive()
    results.open(Plan(5, [Share(1, 101)]))
    waiting.join(10)
    assert list(results.delivered) == [0]


def test_a_worker_ends_if_the_chief_has_failed():
    """It ends with 138, as in training."""
    with pytest.raises(ChiefFailedError):
        participate(Board(State.FAILED), Results())


def test_a_signal_ends_the_wait_for_the_chief(stop):
    """The message names the chief."""
    stop.set()
    with raises("stopped") as caught:
        participate(Board(), Results(), stop)
    assert "worker:0" in str(caught.value)


def test_a_worker_without_a_share_ends_when_ps_0_is_lost(monkeypatch, caplog):
    """Training is over, or the chief continues without it."""
    monkeypatch.setattr(roles, "_POLL_SECS", 0.01)
    seconds = iter(np.arange(0, 1000, 5.0))
    monkeypatch.setattr(roles, "time", types.SimpleNamespace(monotonic=lambda: next(seconds)))
    board = Board(is_lost=True)
    timeouts = dataclasses.replace(TIMEOUTS, start_secs=300.0)
    participate(board, Results(), timeouts=timeouts)
    assert "ps:0 is unreachable" in caplog.text


class AllShares:
    """The graph of all shares."""

    loss_name = "loss"

    def restore_packed(self, target, path):
        """Does nothing."""

    def metrics(self, target, shares):
        """Returns the number of shares as a metric."""
        return {"shares": float(len(shares))}


def evaluate(board, results, stop=None, **options):
    """Returns the chief's evaluation."""
    return EvaluationByWorkers(prepared(0, stop, **options), at_server(board), results, AllShares()).evaluate("path")


def test_the_chief_evaluates_the_shares_of_the_dead_itself(caplog):
    """Only workers that have finished and are alive get one; the chief evaluates those of workers that die then."""
    board, results = Board(), Results()
    original = results.open

    def open_plan(plan):
        original(plan)
        board.alive = (0,)

    results.open = open_plan
    evaluation = evaluate(board, results)
    assert (evaluation.global_step, evaluation.num_examples, evaluation.loss_sum) == (7, 1 + 2 + 3, 0.0 + 1.0 + 2.0)
    assert evaluation.metrics == {"shares": 3.0}
    assert "worker:1 has died or left" in caplog.text
    assert "worker:2 has died or left" in caplog.text


def test_a_worker_that_still_trains_or_is_dead_gets_no_share():
    """It would not deliver the result."""
    results = Results()
    assert evaluate(Board(alive=(0, 1), finished=(0, 2)), results).num_examples == 1
    assert results.opened.shares == [Share(0, 100)]


def test_data_without_shards_is_one_share():
    """Each worker would evaluate all of it."""
    assert evaluate(Board(), Results(), is_eval_sharded=False).metrics == {"shares": 1.0}


def test_the_chief_names_the_workers_whose_shares_are_late():
    """After the time-out of the evaluation."""
    with pytest.raises(UserCodeError, match="0.5 s for the shares of worker:1, worker:2"):
        evaluate(Board(), Results())


LATE = tf.errors.DeadlineExceededError(None, None, "no answer")


def test_a_call_that_is_not_answered_is_a_lost_evaluation(monkeypatch):
    """Another one follows. Issue: all tasks ended with 1, and the data of the evaluation were to blame."""
    def fail(*_):
        raise LATE

    monkeypatch.setattr(AllShares, "metrics", fail)
    with raises("evaluation_lost", kind=EvaluationLostError):
        evaluate(Board(alive=(0,)), Results())


def test_an_evaluation_that_a_frozen_ps_holds_up_is_a_lost_one(monkeypatch):
    """It is not too long because of its data; while all ps answer, it is."""
    board, never = Board(), threading.Event()

    def freeze(*_):
        board.is_lost = True
        never.wait()

    monkeypatch.setattr(AllShares, "restore_packed", freeze)
    with raises("evaluation_lost", kind=EvaluationLostError):
        evaluate(board, Results())
    monkeypatch.setattr(AllShares, "restore_packed", lambda *_: never.wait())
    with raises("eval_timed_out"):
        evaluate(Board(), Results())
    never.set()


def test_the_chief_notices_a_ps_that_restarts_while_it_waits_for_others():
    """They have lost the evaluation and wait for another plan."""
    board, results = Board(), Results()

    def restart(plan, shares):
        board.lives = (1, 2)
        return {}

    results.results = restart
    with raises("evaluation_lost", kind=EvaluationLostError):
        evaluate(board, results, timeouts=dataclasses.replace(TIMEOUTS, eval_secs=10.0))


def test_a_worker_that_lost_an_answer_evaluates_its_share_again(monkeypatch, caplog):
    """Once, as the chief waits for it, unless there is another plan."""
    answers, plan = [LATE, ShareResult(7, 3, 2.0, {})], Plan(5, [Share(1, 101)])
    evaluated = []

    def evaluate_share(self, plan, share):
        evaluated.append(plan.round)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(roles._Role, "_evaluate", evaluate_share)
    results = Results(plan)
    participate(Board(alive=(1, 2)), results)  # so that a wait for another plan would end
    assert (evaluated, results.delivered) == ([5, 5], {0: ShareResult(7, 3, 2.0, {})})
    assert "begins again: no answer" in caplog.text


def test_each_call_of_a_share_is_bounded(monkeypatch):
    """As one of a frozen ps is never answered; a time-out of a hook counts if it is given."""
    monkeypatch.setattr(sessions, "_ANSWER_SECS", 60.0)
    with tf.Graph().as_default() as graph:
        never = tf.queue.FIFOQueue(1, tf.int32, []).dequeue()
    shares = object.__new__(ShareGraph)
    shares._graph, shares._options, shares._timeout_secs = graph, None, 0.1
    with shares._session("") as session:
        for options in (None, tf.RunOptions(trace_level=tf.RunOptions.NO_TRACE)):
            with pytest.raises(tf.errors.DeadlineExceededError):
                waits.bounded(functools.partial(session.run, never, options=options), 10.0, "the end of a call")


def test_a_signal_ends_the_wait_for_the_shares(stop):
    """The chief exits with 143."""
    results = Results()
    results.open = lambda plan: stop.set()  # it comes when the shares are given out
    with pytest.raises(StoppedError):
        evaluate(Board(), results, stop)


def test_parameters_that_change_meanwhile_cause_a_warning(caplog):
    """A worker for which the chief did not wait trains on."""
    results = Results()
    results.open = lambda plan: results.delivered.update({1: ShareResult(9, 5, 1.0, {}), 2: ShareResult(8, 5, 1.0, {})})
    assert evaluate(Board(), results).num_examples == 11
    assert "from step 7 to step 9" in caplog.text
