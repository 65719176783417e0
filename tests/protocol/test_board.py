"""What each method of the blackboard promises: on the ps of a real cluster, and on their twin in a simulated world."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from ps_train.cluster.spec import Cluster
from ps_train.coordination import blackboard, sessions, variables
from ps_train.coordination.blackboard import Blackboard
from ps_train.coordination.state import Finished, State
from ps_train.errors import BlackboardError
from tests import clusters
from tests.errors import raises
from tests.protocol import model, processes, stand_ins
from tests.protocol.simulation import World
from tests.tensorflow_mode import tf

LONG_SECS = 1000.0
_under_contract: set[str] = set()


class Boards(NamedTuple):
    """The views of two ps, of worker 0, which is the chief, of another process of worker 0, and of a client."""

    ps: list[Blackboard]
    chief: Blackboard
    other: Blackboard
    client: Blackboard
    cluster: Cluster

    @classmethod
    def of(cls, view: Callable[[str, int], Cluster]) -> Boards:
        cluster = view("worker", 0)
        targets = {job: {index: f"grpc://{address}" for index, address in tasks.items()}
                   for job, tasks in cluster.addresses.items()}
        return cls([blackboard.for_ps(targets["ps"][index], view("ps", index)) for index in range(2)],
                   blackboard.for_worker(targets["worker"][0], cluster),
                   blackboard.for_worker(targets["worker"][0], cluster), blackboard.for_client(cluster), cluster)

    def close(self) -> None:
        for board in (*self.ps, self.chief, self.other, self.client):
            board.close()


@functools.cache
def _servers() -> Boards:
    cluster = clusters.LocalCluster(2, 1)
    return Boards.of(cluster.view)


def _on_servers(body: Callable[[Boards], None]) -> None:
    boards = _servers()
    for ps in boards.ps:
        ps.create()
    for board in (boards.chief, boards.other):
        board.term, board.own_claim = variables.NO_TERM, variables.ANY_CLAIM
    body(boards)


def _on_twin(body: Callable[[Boards], None]) -> None:
    addresses = model.Setting(num_ps=2, num_workers=1).addresses()
    world = World()
    for index, address in addresses["ps"].items():
        world.add(f"ps:{index}", address, lambda process: process.stop.wait())

    def run_body(process: processes.Process) -> None:
        with contextlib.closing(Boards.of(lambda job, index: Cluster(job, index, addresses))) as boards:
            for ps in boards.ps:
                ps.create()
            body(boards)

    worker = world.add("worker:0", addresses["worker"][0], run_body)
    for process in world.processes.values():
        process.start()
    with stand_ins.cached_clients():
        world.run()
    if worker.error is not None:
        raise worker.error
    assert worker.exit_code == 0, "the test waits for ever"


def contract(*methods: str) -> Callable[[Callable[[Boards], None]], Callable[[str], None]]:
    """Makes a test of a function of `Boards`, which are those of new ps, for the servers and for the twin."""
    _under_contract.update(methods)

    def decorate(body: Callable[[Boards], None]) -> Callable[[str], None]:
        def test(run: Callable[[Callable[[Boards], None]], None]) -> None:
            run(body)

        test.__doc__ = body.__doc__
        return pytest.mark.parametrize("run", [_on_servers, _on_twin], ids=["servers", "twin"])(test)

    return decorate


def _write(boards: Boards, index: int, name: str, value: object) -> None:
    with tf.Graph().as_default() as graph:
        sessions.run_on_ps(boards.cluster.ps[index], graph, variables.write(name, value))


@contract("create", "incarnations", "state")
def test_a_ps_that_creates_its_part_has_forgotten_everything(boards):
    """It draws another incarnation."""
    before = boards.chief.incarnations()
    boards.chief.claim(0, 17)
    boards.chief.begin_term(0, 17)
    boards.chief.start_run("print")
    boards.ps[0].create()
    after = boards.chief.incarnations()
    assert len(set(before + after)) == 3 and before[1] == after[1]
    assert boards.ps[0].state() is State.IDLE and boards.ps[1].state() is State.RUNNING
    assert boards.client.fingerprint() == "" and not boards.client.snapshot().claims.any()


@contract("state", "announce")
def test_what_is_announced_is_on_each_ps(boards):
    """A ps reads its own copy, a client that of ps 0."""
    for state in (State.RUNNING, State.STOPPING, State.DONE, State.FAILED, State.IDLE):
        boards.chief.announce(state)
        assert [board.state() for board in (*boards.ps, boards.other, boards.client)] == [state] * 4


@contract("is_stop_requested", "announce")
def test_servers_that_become_idle_are_not_asked_to_stop(boards):
    """A request is for one training."""
    for index in range(2):
        _write(boards, index, "stop_requested", 1)
    assert all(board.is_stop_requested() for board in (*boards.ps, boards.client))
    boards.chief.announce(State.RUNNING)
    assert boards.client.is_stop_requested()
    assert boards.chief.beat(3, claim=77, step=0) == (False, State.RUNNING, "", True)
    boards.chief.announce(State.IDLE)
    assert not any(board.is_stop_requested() for board in (*boards.ps, boards.client))


@contract("announce_stopping", "end_reason")
def test_the_end_never_goes_back(boards):
    """The first reason stays if a later announcement has none, and the next run begins without one."""
    boards.other.announce_stopping("early stopping")
    boards.chief.announce_stopping()
    assert (boards.client.state(), boards.client.end_reason()) == (State.STOPPING, "early stopping")
    boards.chief.announce(State.DONE)
    boards.chief.announce_stopping()
    assert [ps.state() for ps in boards.ps] == [State.DONE] * 2
    boards.chief.start_run()
    assert boards.client.end_reason() == ""


@contract("announce_done")
def test_that_all_is_done_is_announced_to_each_ps(boards):
    """At its own server, so that one that has ended does not matter."""
    boards.chief.announce_done()
    assert [ps.state() for ps in boards.ps] == [State.DONE] * 2


@contract("tick", "snapshot")
def test_the_clock_counts_the_time_for_which_ps_0_has_served(boards):
    """At most a second for each tick; heartbeats are stamped with it."""
    before_secs = boards.client.snapshot().now_secs
    boards.ps[0].tick()
    passed_secs = boards.client.snapshot().now_secs - before_secs
    assert 0 <= passed_secs <= 1
    boards.chief.claim(0, 17)
    assert boards.client.snapshot().age_secs(0) == 0


@contract("mismatch")
def test_a_mismatch_is_recorded_on_a_ps(boards):
    """Each task reads that of its ps."""
    assert boards.client.mismatch() == ""
    _write(boards, 0, "mismatch", "they differ")
    assert boards.client.mismatch() == "they differ" and boards.ps[1].mismatch() == ""
    assert boards.other.beat(3, claim=77, step=0) == (False, State.IDLE, "they differ", False)


@contract("start_run", "is_prepared", "incarnations", "fingerprint", "first_ps_address")
def test_parameters_are_prepared_until_a_ps_restarts(boards):
    """A chief that prepared them before that must do so again."""
    incarnations = boards.chief.incarnations()
    assert not boards.chief.is_prepared()
    boards.chief.start_run("print", incarnations)
    assert boards.chief.is_prepared() and boards.client.fingerprint() == "print"
    assert [ps.first_ps_address() for ps in boards.ps] == [boards.cluster.ps[0].address] * 2
    boards.ps[1].create()
    assert not boards.chief.is_prepared()
    with raises("ps_restarted", kind=BlackboardError):
        boards.chief.start_run("print", incarnations)
    boards.chief.start_run("print", boards.chief.incarnations())
    assert boards.chief.is_prepared()
    boards.chief.announce(State.DONE)
    assert not boards.chief.is_prepared()


@contract("start_run", "report_finished", "await_again", "leave")
def test_who_has_finished_and_left_is_not_waited_for_again(boards):
    """After the loss of a ps, workers that are still there train on; a new run begins with all workers."""
    boards.chief.start_run()
    last = variables.MAX_WORKERS - 1
    for worker in (0, 1, last):
        boards.chief.claim(worker, 7)
        boards.chief.report_finished(worker)
    boards.chief.leave(1)
    boards.chief.report_finished(last, Finished.RETURNS)
    for worker in (1, last):  # one that does not return stays as it is
        boards.chief.await_again(worker)
    assert list(np.flatnonzero(boards.client.snapshot().finished)) == [0, 1]
    boards.chief.start_run()
    assert list(np.flatnonzero(boards.client.snapshot().finished)) == [1]
    boards.chief.announce(State.IDLE)
    boards.chief.start_run()
    assert not boards.client.snapshot().finished.any()


@contract("start_run", "beat", "snapshot")
def test_the_step_of_a_killed_worker_is_not_that_of_later_parameters(boards):
    """Nor are its steps and its staleness in another training on the same servers; it has not left."""
    boards.chief.start_run()
    boards.chief.claim(1, 7)

    def after_restart():
        boards.chief.beat(1, claim=7, step=90_000, local_steps=40_000, staleness=2.5)
        boards.chief.start_run()
        snapshot = boards.client.snapshot()
        return snapshot.steps.max(), snapshot.local_steps[1], snapshot.staleness[1]

    assert after_restart() == (0, 40_000, 2.5)  # from a checkpoint, after the loss of a ps
    boards.chief.announce(State.IDLE)
    assert after_restart() == (0, 0, 0)


@contract("claim", "beat", "leave", "snapshot")
def test_a_heartbeat_counts_for_the_process_that_holds_the_number(boards):
    """After another claim, or after leaving, it is refused."""
    boards.chief.report_finished(3)
    boards.chief.claim(3, 77)
    assert boards.chief.beat(3, claim=77, step=12, local_steps=5, staleness=0.5).is_accepted
    snapshot = boards.client.snapshot()
    assert (snapshot.claims[3], snapshot.steps[3], snapshot.local_steps[3]) == (77, 12, 5)
    assert snapshot.staleness[3] == 0.5 and not snapshot.finished[3]
    assert snapshot.alive(within_secs=LONG_SECS) == [3] and snapshot.alive(within_secs=0) == []
    boards.other.claim(3, 78)
    assert not boards.chief.beat(3, claim=77, step=13).is_accepted
    assert boards.client.snapshot().steps[3] == 0
    boards.other.leave(3)
    assert not boards.other.beat(3, claim=78, step=14).is_accepted
    assert boards.client.snapshot().alive(within_secs=LONG_SECS) == []


@contract("admission_view", "admit", "withdraw")
def test_a_process_is_admitted_until_another_one_has_its_number(boards):
    """And only while it is alive."""
    boards.chief.claim(0, 17)
    boards.chief.claim(1, 18)
    boards.chief.admit(0)
    boards.chief.admit(1)
    boards.chief.start_run("print")
    view = boards.other.admission_view()
    assert (view.state, view.is_prepared, view.fingerprint, view.mismatch) == (State.RUNNING, True, "print", "")
    assert view.admitted == {0, 1}
    boards.chief.withdraw(0)
    boards.other.claim(1, 19)
    assert not boards.chief.admission_view().admitted


@contract("admit", "withdraw", "leave", "report_finished")
def test_a_process_that_was_replaced_writes_nothing_for_its_number(boards):
    """As one that was frozen: it neither admits the new one, nor finishes or leaves in its place."""
    old, new = boards.chief, boards.other
    old.claim(0, 17)
    new.claim(0, 18)
    old.own_claim, new.own_claim = 17, 18
    old.report_finished(0)
    assert not old.admit(0) and not boards.client.admission_view().admitted
    assert new.admit(0)
    old.withdraw(0)
    old.leave(0)
    assert boards.client.admission_view().admitted == {0} and not boards.client.snapshot().finished[0]
    new.report_finished(0)
    new.leave(0)
    assert boards.client.snapshot().finished[0] and not boards.client.snapshot().claims[0]


@contract("admit", "report_finished", "create")
def test_a_process_whose_claim_was_forgotten_is_not_admitted_but_may_finish(boards):
    """Its heartbeat claims again; until then nobody would see that it uses the parameters."""
    boards.chief.own_claim = 17
    assert not boards.chief.admit(0)
    boards.chief.report_finished(0)
    assert boards.client.snapshot().finished[0]
    boards.chief.claim(0, 17)
    assert boards.chief.admit(0) and boards.client.admission_view().admitted == {0}


@contract("note_activity", "describe_joined")
def test_who_waits_reads_who_is_here_and_what_the_chief_does(boards):
    """As text."""
    assert boards.client.describe_joined(boards.cluster) == "worker:0 (chief) has not joined"
    boards.chief.claim(0, 17)
    boards.chief.claim(2, 18)
    boards.chief.note_activity("makes new parameters")
    assert boards.client.describe_joined(boards.cluster) == (
        "worker:0 (chief) has joined and makes new parameters; also here: worker:2")


@contract("begin_term", "announce", "announce_stopping", "announce_done", "start_run")
def test_a_chief_that_was_replaced_writes_nothing_any_more(boards):
    """Not on any ps; only the process that holds the number can begin a term."""
    old, new = boards.chief, boards.other
    old.claim(0, 17)
    assert old.begin_term(0, 17)
    old.announce(State.RUNNING)
    new.claim(0, 18)
    assert new.begin_term(0, 18)
    new.start_run("new")
    new.report_finished(1)
    for write in (old.start_run, old.announce_stopping, functools.partial(old.announce, State.IDLE)):
        with raises("chief_replaced", kind=BlackboardError):
            write()
    assert not old.begin_term(0, 17)
    assert [ps.state() for ps in boards.ps] == [State.RUNNING] * 2
    assert boards.client.fingerprint() == "new" and boards.client.snapshot().finished[1]
    new.announce_stopping()
    new.announce_done()
    assert [ps.state() for ps in boards.ps] == [State.DONE] * 2


@contract("begin_term")
def test_a_term_is_later_than_that_of_a_ps_that_has_not_restarted(boards):
    """Else the chief before could write there."""
    boards.chief.claim(0, 17)
    for _ in range(3):
        boards.chief.begin_term(0, 17)
    boards.ps[0].create()
    boards.other.claim(0, 18)
    assert boards.other.begin_term(0, 18)
    assert boards.other.term > boards.chief.term


@contract("close")
def test_a_board_that_was_closed_opens_again(boards):
    """`close` waits for nothing."""
    boards.chief.announce(State.RUNNING)
    boards.chief.close()
    assert boards.chief.state() is State.RUNNING


def test_each_method_has_its_contract():
    """So a method that is added is tested on both."""
    assert {name for name, _ in inspect.getmembers(Blackboard, inspect.isfunction)
            if not name.startswith("_")} == _under_contract
