"""What chief and workers do while they wait for each other, on a blackboard that the test writes."""

from __future__ import annotations

import dataclasses
import threading
import types

import numpy as np
import pytest

from ps_train.cluster.spec import Cluster
from ps_train.coordination.state import Snapshot, State
from ps_train.errors import BlackboardError, ChiefFailedError, ClusterLostError, StoppedError, UserCodeError
from ps_train.parts.evaluation_by_workers import roles
from ps_train.parts.evaluation_by_workers.exchange import Plan, Share, ShareResult
from ps_train.parts.evaluation_by_workers.roles import EvaluationByWorkers, Participation
from ps_train.runtime.waits import Timeouts

HOSTS = {"ps": {0: "ps:1"}, "worker": {0: "w:1", 1: "w:2", 2: "w:3"}}
TIMEOUTS = Timeouts(start_secs=0.5, eval_secs=0.5, heartbeat_secs=10.0)
CLAIMS = [100, 101, 102]


@dataclasses.dataclass
class Board:
    """What ps 0 knows; `gone` makes it silent."""

    state: State = State.STOPPING
    alive: tuple[int, ...] = (0, 1, 2)
    finished: tuple[int, ...] = (0, 1, 2)
    gone: bool = False
    first_ps: str = "ps:0"

    def snapshot(self):
        """Returns it as the blackboard does."""
        if self.gone:
            raise BlackboardError("gone")
        heartbeats = np.array([100.0 if worker in self.alive else 0.0 for worker in range(3)])
        return Snapshot(self.state, 100.0, np.array(CLAIMS), heartbeats, *np.zeros([2, 3], int),
                        np.isin(range(3), self.finished), 10.0)

    def report_finished(self, worker):
        """Records it."""
        self.finished = (*self.finished, worker)


class Results:
    """An exchange without a ps."""

    def __init__(self, plan=None):
        self.opened, self.results = plan, {}

    def open(self, plan):
        """Keeps the plan."""
        self.opened = plan

    def plan(self):
        """Returns the plan."""
        return self.opened

    def deliver(self, plan, share, result):
        """Keeps the result."""
        self.results[share] = result

    def delivered(self, plan):
        """Returns the shares that have a result."""
        return list(self.results)

    def result(self, plan, share):
        """Returns it."""
        return self.results[share]


def evaluated(index, is_eval_sharded=True):
    """Returns what a worker evaluates, with the parts that the roles look at."""
    dataset = types.SimpleNamespace(name="mine", is_eval_sharded=is_eval_sharded)
    return types.SimpleNamespace(cluster=Cluster("worker", index, HOSTS), plugins=(None, None, dataset, None))


@pytest.fixture(autouse=True)
def result_of_share(monkeypatch):
    """Lets a share come out as so many examples as its number, plus one."""
    def evaluate_share(of, target, share, plan, timeout_secs, stop):
        return ShareResult(7, share + 1, float(share), {})

    monkeypatch.setattr(roles, "evaluate_share", evaluate_share)


def take_part(board, results, stop=None, ends_idle=False):
    """Runs worker 1's part."""
    Participation(evaluated(1), "", board, results, TIMEOUTS, stop or threading.Event(), ends_idle=ends_idle).run()


def test_a_worker_delivers_its_share(caplog):
    """The one of its claim; and it says again that it has finished, where a restarted ps has forgotten that."""
    board, results = Board(finished=(0,)), Results(Plan(5, [Share(0, 100), Share(2, 102), Share(1, 101)]))
    take_part(board, results)
    assert results.results == {2: ShareResult(7, 3, 2.0, {})}
    assert 1 in board.finished


@pytest.mark.parametrize(("state", "ends_idle"), [(State.DONE, False), (State.IDLE, True)])
def test_a_worker_without_a_share_ends_when_all_is_done(state, ends_idle):
    """A plan of other processes, an earlier one with its number among them, is not its own."""
    results = Results(Plan(5, [Share(0, 100), Share(1, 55)]))
    take_part(Board(state), results, ends_idle=ends_idle)
    assert results.results == {}


def test_a_worker_waits_for_the_chief_as_long_as_it_is_alive():
    """Without the chief's heartbeat it ends in time, and names the chief; else it takes a share whenever that comes."""
    with pytest.raises(ClusterLostError, match=r"waited 0.5 s for worker:0 w:1 \(chief\) to begin the evaluation"):
        take_part(Board(alive=(1, 2)), Results())
    results = Results()
    waiting = threading.Thread(target=take_part, args=(Board(), results), daemon=True)
    waiting.start()
    waiting.join(3 * TIMEOUTS.start_secs)
    assert waiting.is_alive()
    results.open(Plan(5, [Share(1, 101)]))
    waiting.join(10)
    assert list(results.results) == [0]


def test_a_worker_hears_that_the_chief_has_failed():
    """It ends with 138, as in training."""
    with pytest.raises(ChiefFailedError):
        take_part(Board(State.FAILED), Results())


def test_a_signal_ends_the_wait_for_the_chief(stop):
    """The message says what it waited for."""
    stop.set()
    with pytest.raises(StoppedError, match="while waiting for worker:0"):
        take_part(Board(), Results(), stop)


def test_a_worker_without_a_share_ends_when_ps_0_is_gone(monkeypatch, caplog):
    """Training is over, or the chief goes on without it."""
    monkeypatch.setattr(roles, "_POLL_SECS", 0.01)
    seconds = iter(np.arange(0, 1000, 5.0))
    monkeypatch.setattr(roles, "time", types.SimpleNamespace(monotonic=lambda: next(seconds)))
    board = Board(gone=True)
    timeouts = dataclasses.replace(TIMEOUTS, start_secs=300.0)
    Participation(evaluated(1), "", board, Results(), timeouts, threading.Event(), ends_idle=False).run()
    assert "ps:0 is unreachable" in caplog.text


class Whole:
    """The graph of all shares."""

    loss_name = "loss"

    def restore_packed(self, target, path):
        """Does nothing."""

    def metrics(self, target, shares):
        """Returns the number of shares as a metric."""
        return {"shares": float(len(shares))}


def evaluate(board, results, stop=None, **options):
    """Returns what the chief finds."""
    return EvaluationByWorkers(evaluated(0, **options), Whole(), "", board, results, TIMEOUTS,
                               stop or threading.Event()).evaluate("path")


def test_the_chief_evaluates_the_shares_of_the_dead_itself(caplog):
    """Only workers that have finished and are alive get one; of those that die then, it does theirs."""
    board, results = Board(), Results()
    original = results.open

    def open_plan(plan):
        original(plan)
        board.alive = (0,)

    results.open = open_plan
    found = evaluate(board, results)
    assert (found.global_step, found.num_examples, found.loss_sum) == (7, 1 + 2 + 3, 0.0 + 1.0 + 2.0)
    assert found.metrics == {"shares": 3.0}
    assert "worker:1 has died or left" in caplog.text
    assert "worker:2 has died or left" in caplog.text


def test_a_worker_that_still_trains_or_is_dead_gets_no_share():
    """Nobody would deliver it."""
    results = Results()
    assert evaluate(Board(alive=(0, 1), finished=(0, 2)), results).num_examples == 1
    assert results.opened.shares == [Share(0, 100)]


def test_data_without_shards_is_one_share():
    """Each worker would evaluate all of it."""
    assert evaluate(Board(), Results(), is_eval_sharded=False).metrics == {"shares": 1.0}


def test_the_chief_names_the_workers_whose_shares_do_not_come():
    """After the evaluation's time-out, with what the user can do."""
    with pytest.raises(UserCodeError, match="waited 0.5 s for the shares of worker:1, worker:2; .*--eval_timeout_secs"):
        evaluate(Board(), Results())


def test_a_signal_ends_the_wait_for_the_shares(stop):
    """The chief exits with 143."""
    results = Results()
    results.open = lambda plan: stop.set()  # it comes when the shares are given out
    with pytest.raises(StoppedError):
        evaluate(Board(), results, stop)


def test_parameters_that_change_meanwhile_are_told(caplog):
    """A worker for which the chief did not wait trains on."""
    results = Results()
    results.open = lambda plan: results.results.update({1: ShareResult(9, 5, 1.0, {}), 2: ShareResult(8, 5, 1.0, {})})
    assert evaluate(Board(), results).num_examples == 11
    assert "from step 7 to step 9" in caplog.text
