"""The end of synchronous updates in a script: the ps serve the chief to its end, and it waits for no lost ps."""

from __future__ import annotations

import threading
import types

import numpy as np
import pytest

from ps_train.cluster.spec import Cluster
from ps_train.coordination import sessions, variables
from ps_train.coordination.state import Snapshot, State
from ps_train.errors import BlackboardError, ClusterLostError
from ps_train.parts.legacy.classic import server, updates
from ps_train.parts.legacy.classic.membership import SERVES_ONLY, Membership
from ps_train.parts.legacy.classic.server import PsLife
from ps_train.parts.legacy.classic.updates import MemberRunner
from ps_train.runtime import waits
from ps_train.runtime.threads import Call
from ps_train.runtime.waits import Timeouts
from ps_train.updates.sync.aggregation import SyncOperations, SyncStatus
from ps_train.updates.sync.runner import Quorum
from ps_train.updates.update import SyncSettings
from tests.errors import raises
from tests.tensorflow_mode import tf

CLUSTER = Cluster("ps", 0, {"ps": {0: "localhost:1"}, "worker": {0: "localhost:2", 1: "localhost:3"}})
DEADLINE_SECS = 60


def snapshot_of(*, here, finished, serving=()):
    """Returns what ps 0 knows of two workers: which have a claim and a heartbeat, have finished, or only serve."""
    zeros = np.zeros([variables.MAX_WORKERS], np.int64)
    claims, ended = zeros.copy(), zeros.astype(bool)
    claims[here], ended[finished] = 7, True
    steps = zeros.copy()
    steps[list(serving)] = SERVES_ONLY
    return Snapshot(state=State.RUNNING, now_secs=1.0, claims=claims, heartbeats=zeros.astype(float), steps=zeros,
                    local_steps=steps, finished=ended)


@pytest.mark.parametrize(("here", "finished", "is_over"), [
    ([0], [0, 1], False),  # the chief makes its last calls
    ([], [0, 1], True),
    ([1], [0, 1], True),  # another worker leaves within a second
    ([1], [0], False),
], ids=["chief", "nobody", "other", "training"])
def test_a_ps_serves_until_the_chief_has_left(here, finished, is_over):
    """Issue: it ended with the last report, while the chief released the workers that still wait for an update."""
    life = PsLife(CLUSTER, "", Timeouts(), threading.Event())
    assert life._have_all_ended(snapshot_of(here=here, finished=finished)) is is_over


@pytest.mark.parametrize(("finished", "answering", "is_over"), [
    ([1], "localhost:2", False), ([1], "", True), ([0, 1], "localhost:2", True), ([0], "localhost:2", True),
], ids=["the chief is back", "the chief is lost", "the process of the chief ends", "another worker is lost"])
@pytest.mark.parametrize("claimed", [[0, 1], [1]], ids=["killed", "stopped"])
def test_a_ps_waits_for_a_chief_that_is_back_and_still_reads_its_data(
        monkeypatch, claimed, finished, answering, is_over):
    """Issue: its last heartbeat was too old, and the ps ended with 0, so that nothing of the last steps was saved."""
    monkeypatch.setattr(server.reachability, "accepts", lambda address: address == answering)
    life = PsLife(CLUSTER, "", Timeouts(), threading.Event())
    assert not life._have_all_ended(snapshot_of(here=[0, 1], finished=[]))
    life._begun_secs -= 2 * Timeouts.start_secs
    snapshot = snapshot_of(here=claimed, finished=finished)._replace(now_secs=1000.0)
    assert life._have_all_ended(snapshot) is is_over
    if not is_over:
        assert life._awaited == "worker:0 localhost:2"
        life._needed_secs -= 2 * Timeouts.idle_secs
        with raises("no_workers"):
            life._check_needed(has_workers=bool(snapshot.alive()))


def test_a_ps_does_not_wait_for_a_worker_that_has_only_a_server_for_longer_than_the_start_time_out(monkeypatch):
    """Its script may sleep for ever, as a server of the chief's."""
    monkeypatch.setattr(server.reachability, "accepts", lambda address: True)
    life = PsLife(CLUSTER, "", Timeouts(), threading.Event())
    snapshot = snapshot_of(here=[0], finished=[0])._replace(now_secs=1000.0)
    assert not life._have_all_ended(snapshot)
    life._begun_secs -= 2 * Timeouts.start_secs
    assert life._have_all_ended(snapshot)


@pytest.mark.parametrize(("finished", "is_over"), [([0, 1], True), ([], False), ([0], True)])
def test_workers_that_join_after_training_and_their_ps_do_not_wait_for_each_other(finished, is_over):
    """Issue: all tasks of a script whose last line is `server.join()` stood for ever. Servers of a client stay."""
    life = PsLife(CLUSTER, "", Timeouts(), threading.Event())
    assert life._have_all_ended(snapshot_of(here=[0, 1], finished=finished, serving=[0, 1])) is is_over


@pytest.mark.parametrize(("answering", "is_over"), [
    ([2], False), ([], True), ([3, 4], True),
], ids=["the chief", "nobody", "one that has finished and one that only serves"])
def test_a_ps_waits_for_ps_0_as_long_as_a_worker_does(monkeypatch, answering, is_over):
    """Issue: it ended with 0 after --beat_timeout_secs, so a ps 0 that Kubernetes started again found no other ps."""
    cluster = Cluster("ps", 1, {"ps": {0: "localhost:1", 1: "localhost:9"},
                                "worker": {number: f"localhost:{number + 2}" for number in range(3)}})
    known = {"localhost:1"}
    monkeypatch.setattr(server.reachability, "accepts", lambda address: address in known)
    life = PsLife(cluster, "", Timeouts(), threading.Event())
    first = types.SimpleNamespace(first_ps=cluster.ps[0], snapshot=lambda: snapshot_of(
        here=[0, 1, 2], finished=[1], serving=[2]))
    assert life._snapshot(lambda: first).alive() == [0, 1, 2]
    known = {f"localhost:{port}" for port in answering}
    with raises("ps_unreachable", kind=BlackboardError):
        life._snapshot(lambda: first)
    life._needed_secs -= 2 * Timeouts.heartbeat_secs
    if is_over:
        assert life._snapshot(lambda: first) is None
        return
    assert not life._is_over(types.SimpleNamespace(mismatch=lambda: ""), lambda: first)
    assert life._awaited == "ps:0 localhost:1"
    life._needed_secs -= Timeouts.idle_secs
    with raises("no_workers", kind=ClusterLostError) as caught:
        life._is_over(types.SimpleNamespace(mismatch=lambda: ""), lambda: first)
    assert "ps:0 localhost:1 does not answer" in str(caught.value)


@pytest.mark.parametrize(("here", "finished", "text"), [([], [0], "worker:1"), ([], [], "a worker")])
def test_a_ps_that_waits_for_workers_says_so(monkeypatch, here, finished, text):
    """Every ten seconds, with the names of those that have not come once the others have ended."""
    names = []
    monkeypatch.setattr(waits._log, "info", lambda form, name, *args: names.append(name))
    life = PsLife(Cluster("ps", 0, {**CLUSTER.addresses, "worker": {0: "localhost:2", 1: "localhost:3"}}), "",
                  Timeouts(), threading.Event())
    if finished:
        assert not life._have_all_ended(snapshot_of(here=here, finished=finished))
    life._reminder._next_secs = 0.0
    life._check_needed(has_workers=False)
    assert names == [text]


@pytest.mark.parametrize(("claimed", "finished", "answering", "is_needed"), [
    ([], [], "localhost:3", True), ([], [], "", False), ([1], [], "localhost:3", False),
    ([0], [], "localhost:3", False), ([], [1], "localhost:3", False),
], ids=["a worker without a session", "no worker", "a worker that has lost its session",
        "a worker without a session, whose chief is lost", "a worker that has finished"])
def test_a_ps_serves_as_long_as_a_worker_reads_its_data(monkeypatch, claimed, finished, answering, is_needed):
    """Issue: it ended with 138 after --idle_timeout_secs, as a worker joins with its first session."""
    monkeypatch.setattr(server.reachability, "accepts", lambda address: address in ("localhost:1", answering))
    life = PsLife(CLUSTER, "", Timeouts(), threading.Event())
    snapshot = snapshot_of(here=claimed, finished=finished)._replace(now_secs=1000.0)
    first = types.SimpleNamespace(first_ps=CLUSTER.ps[0], snapshot=lambda: snapshot)
    life._needed_secs -= 2 * Timeouts.idle_secs
    if is_needed:
        assert not life._is_over(types.SimpleNamespace(mismatch=lambda: ""), lambda: first)
        return
    with raises("no_workers") as caught:
        life._is_over(types.SimpleNamespace(mismatch=lambda: ""), lambda: first)
    assert "--idle_timeout_secs" in str(caught.value)


def test_a_ps_whose_own_server_is_slow_once_at_the_start_serves(monkeypatch):
    """Issue: it ended with 138 after one call without an answer."""
    calls = []

    def create():
        calls.append(len(calls))
        if len(calls) < 3:
            raise BlackboardError("ps_unreachable", "too busy")

    board = types.SimpleNamespace(create=create, tick=lambda: None, close=lambda: None)
    monkeypatch.setattr(server.blackboard, "for_ps", lambda *args: board)
    monkeypatch.setattr(server, "_LINGER_SECS", 0.0)
    life = PsLife(CLUSTER, "", Timeouts(), threading.Event())
    monkeypatch.setattr(life, "_is_over", lambda board, find_first: True)
    life.run()
    assert len(calls) == 3


class SilentSession:
    """Stands for a session with a ps that has ended: no call is answered, and no time-out ends one."""

    def __init__(self):
        self.is_closed = threading.Event()

    def run(self, fetches, feed_dict=None, options=None):
        """Waits for the end of the test."""
        assert options.timeout_in_ms
        self.is_closed.wait()

    def close(self):
        """Ends all calls."""
        self.is_closed.set()


@pytest.fixture
def silent(monkeypatch):
    """A session that never answers, and time limits that the test need not wait for."""
    monkeypatch.setattr(sessions, "_ANSWER_SECS", 0.0)
    session = SilentSession()
    yield session
    session.close()


def test_a_call_of_a_session_is_bounded_though_its_own_time_out_never_begins(silent):
    """The caller sees what it sees of a frozen ps."""
    with pytest.raises(tf.errors.DeadlineExceededError, match="waited 0.01 s for an answer of the servers"):
        sessions.run_bounded(silent, None, options=tf.RunOptions(timeout_in_ms=10))


def runner_of(member, session):
    """Returns the updates of a chief in such a session; the operations are their names."""
    operations = SyncOperations(*[None] * len(SyncOperations._fields))
    operations = operations._replace(status=SyncStatus(*[None] * len(SyncStatus._fields)), release_op="for good",
                                     flush_op="flush")
    runner = MemberRunner(member, operations, Quorum(SyncSettings(2, 2)), "once")
    runner._session = session
    return runner


def test_the_chief_ends_though_the_ps_has_ended_before_it_concludes(silent, monkeypatch):
    """Issue: it waited without a bound, in `release_op` or for the number of dropped gradients."""
    monkeypatch.setattr("ps_train.parts.legacy.classic.updates._RELEASE_OPTIONS", tf.RunOptions(timeout_in_ms=10))
    monkeypatch.setattr("ps_train.updates.sync.runner.RUN_OPTIONS", tf.RunOptions(timeout_in_ms=10))
    runner = runner_of(None, silent)
    end = Call(lambda: runner.conclude(waits_for_others=False, is_final=True), "end of updates")
    end.join(DEADLINE_SECS)
    assert not end.is_alive()
    end.result()
    assert silent.is_closed.wait(DEADLINE_SECS)


class AnsweringSession:
    """Stands for a session whose calls are answered; `released` has the operations that release workers."""

    def __init__(self):
        self.released = []

    def run(self, fetches, feed_dict=None, options=None):
        """Returns the number of dropped gradients."""
        if fetches in ("once", "for good"):
            self.released.append(fetches)
        return 0

    def close(self):
        """There is nothing to close."""


def chief_of(snapshot, stop=None):
    """Returns what stands for the membership of the chief."""
    return types.SimpleNamespace(cluster=Cluster("worker", 0, CLUSTER.addresses), snapshot=lambda: snapshot,
                                 stop=stop or threading.Event())


@pytest.mark.parametrize(("code", "released"), [(0, "for good"), (1, "once"), (138, "once"), (143, "once")])
def test_the_others_wait_for_a_chief_that_was_stopped_or_has_failed(code, released):
    """Issue: after SIGTERM to the chief alone they went through their data without an update, and ended with 0."""
    session = AnsweringSession()
    member = Membership(Cluster("worker", 0, CLUSTER.addresses), "", Timeouts(), None)
    member.board = types.SimpleNamespace(
        snapshot=lambda: snapshot_of(here=[0], finished=[]), announce=lambda state: None, close=lambda: None,
        report_finished=lambda worker: None)
    member._has_joined = True
    member.update_services.append(runner_of(member, session))
    member.finish(code)
    assert session.released == [released]


def test_the_others_wait_for_a_chief_that_is_stopped_while_it_makes_their_updates():
    """Its own script had ended."""
    stop, session = threading.Event(), AnsweringSession()
    stop.set()
    runner_of(chief_of(snapshot_of(here=[0, 1], finished=[0]), stop), session).conclude(
        waits_for_others=True, is_final=True)
    assert session.released == ["once"]


@pytest.mark.parametrize("has_ended", [False, True])
def test_one_call_without_an_answer_does_not_end_the_updates_of_the_others(monkeypatch, has_ended):
    """Issue: the chief took it for the end of ps 0, and released them for good."""
    monkeypatch.setattr(updates.reachability, "accepts", lambda address: not has_ended)
    session, answers = AnsweringSession(), []

    def snapshot():
        answers.append(BlackboardError("ps_unreachable", "too busy"))
        if len(answers) == 1:
            raise answers[0]
        return snapshot_of(here=[0, 1], finished=[0, 1])

    member = chief_of(snapshot_of(here=[], finished=[]))
    member.snapshot = snapshot
    runner_of(member, session).conclude(waits_for_others=True, is_final=True)
    assert session.released == ["for good"] and len(answers) == (1 if has_ended else 2)


@pytest.fixture
def lost(monkeypatch):
    """The updates of a chief whose session was lost, what says whether the parameters are there, and how often they
    were begun again."""
    board, begun = types.SimpleNamespace(is_prepared=lambda: True), []
    member = chief_of(None)
    member.join, member.timeouts = lambda: board, Timeouts(start_secs=300.0, heartbeat_secs=10.0)
    runner = runner_of(member, AnsweringSession())
    runner._service.error = tf.errors.UnavailableError(None, None, "the connection was closed")
    monkeypatch.setattr(runner, "_begin_again", begun.append)
    now = [100.0]
    monkeypatch.setattr(updates.time, "monotonic", lambda: now[0])

    def check_after(secs):
        now[0] += secs
        runner.check()
        return len(begun)

    return runner, board, check_after


def test_updates_whose_session_was_lost_are_begun_again_if_the_script_does_not(lost):
    """Issue: the script's own session was not lost, and all workers waited for an update for ever."""
    runner, board, check_after = lost
    assert check_after(0) == 0 and check_after(9) == 0
    board.is_prepared = lambda: False  # a ps has lost them
    assert check_after(5) == 0
    board.is_prepared = fail_to_answer
    assert check_after(5) == 0
    board.is_prepared = lambda: True
    assert check_after(1) == 1 and check_after(280) == 2
    with raises("timed_out") as caught:
        check_after(300)
    assert "the connection was closed" in str(caught.value)
    runner._service.error = None
    assert check_after(1) == 2


def test_updates_that_were_stopped_are_not_begun_again(lost):
    """Their session is lost with the process."""
    runner, _, check_after = lost
    runner._stop()
    assert check_after(0) == check_after(100) == 0
    runner._service.error = tf.errors.InvalidArgumentError(None, None, "of the optimizer")
    with pytest.raises(tf.errors.InvalidArgumentError):
        check_after(0)


def fail_to_answer():
    """Stands for a call to a ps that is too busy."""
    raise BlackboardError("ps_unreachable", "too busy")
