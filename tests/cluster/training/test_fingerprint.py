"""What all workers of a training must have in common."""

from __future__ import annotations

import contextlib
import dataclasses
import threading

import pytest

from ps_train.cluster.spec import Cluster
from ps_train.coordination import agreement, blackboard
from ps_train.coordination.state import State
from ps_train.graph import batches, transfer
from ps_train.training.opening import Admission, Parameters
from tests import clusters
from tests.children import wait_until
from tests.errors import raises
from tests.tensorflow_mode import tf

CLUSTER = Cluster("worker", 0, {"ps": {0: "a:1", 1: "b:1"}, "worker": {0: "c:1"}})


def describe(options=None, shape=(2,), ps=1, cluster=CLUSTER, dim=4, dealt="mixed", folder="",
             takes_share=False):
    """Returns the fingerprint of a worker with one variable and one embedding table."""
    others = {"table items": f"of {dim}", "rows of tables on the ps": dealt}
    with tf.Graph().as_default(), tf.device(f"/job:ps/task:{ps}"):
        return agreement.fingerprint_of(
            cluster, options or {"optimizer": "adam"}, [tf.get_variable("w", list(shape))], others=others,
            train_dir=folder, takes_share=takes_share)


def test_equal_workers_do_not_differ():
    """Nor do their addresses count: a task may reach another through a tunnel."""
    tunnel = Cluster("worker", 0, {"ps": {0: "localhost:5", 1: "localhost:6"}, "worker": {0: "c:1"}})
    assert agreement.fingerprint_differences(describe(), describe(cluster=tunnel), their_name="the chief") == []


def test_what_one_of_them_cannot_know_is_not_compared():
    """In TF_CONFIG's sparse form a worker may know itself only, and so not how many workers there are."""
    sparse = Cluster("worker", 3, {"ps": CLUSTER.addresses["ps"], "worker": {3: "f:1"}}, partial=frozenset({"worker"}))
    assert agreement.fingerprint_differences(describe(), describe(cluster=sparse), their_name="the chief") == []


def _partial(index, **options):
    """Returns the cluster of a worker that was told of itself only, beside a chief and all ps."""
    addresses = {"ps": CLUSTER.addresses["ps"], "chief": {0: "c:1"}, "worker": {index: f"w:{index}"}}
    return Cluster("worker", index, addresses, partial=frozenset({"worker"}), **options)


def test_shares_of_the_data_that_overlap_are_a_difference():
    """A worker that knows too few workers takes too large a share; the last one knows how many there are."""
    whole = dataclasses.replace(_partial(0), job="chief", addresses={
        **_partial(0).addresses, "worker": {0: "w:0", 1: "w:1"}})
    chief, first, last = (describe(cluster=cluster, takes_share=True)
                          for cluster in (whole, _partial(0), _partial(1)))
    assert agreement.fingerprint_differences(chief, first, their_name="the chief") == [
        "number of workers: here 2, at the chief 3"]
    assert agreement.fingerprint_differences(chief, last, their_name="the chief") == []


def test_workers_that_read_all_of_the_data_may_know_only_themselves():
    """So do those of elastic clusters."""
    elastic = [describe(cluster=_partial(index, is_elastic=True), takes_share=True) for index in (0, 1)]
    for texts in (elastic, [describe(cluster=_partial(index)) for index in (0, 1)]):
        assert agreement.fingerprint_differences(*texts, their_name="the chief") == []


@pytest.mark.parametrize("is_dealt", [False, True])
def test_a_worker_compares_its_share_unless_ranges_are_dealt(start_servers, tmp_path, monkeypatch, is_dealt):
    """With --dynamic_sharding, ps 0 deals the ranges, whatever a worker knows of the others."""
    cluster, found, build = start_servers(1, 1), [], clusters.build_graph

    def build_with_source(*args, **options):
        graph = build(*args, **options)
        if is_dealt:
            with graph.graph.as_default():
                batches.set_source(object())
        return graph

    monkeypatch.setattr(clusters, "build_graph", build_with_source)
    monkeypatch.setattr(agreement, "fingerprint_of", lambda *_, takes_share: found.append(takes_share) or "")
    clusters.Worker(cluster, 0, tmp_path, 1)
    assert found == [not is_dealt]


@pytest.mark.parametrize(("own", "expected"), [
    ({"options": {"optimizer": "sgd"}}, "--optimizer: here sgd, at the chief adam"),
    ({"shape": (3,)}, "variable w: here float32[3] on ps:1, at the chief float32[2] on ps:1"),
    ({"ps": 0}, "variable w: here float32[2] on ps:0, at the chief float32[2] on ps:1"),
    ({"cluster": Cluster("worker", 0, {"ps": CLUSTER.addresses["ps"], "worker": {0: "c:1", 1: "d:1"}})},
     "number of workers: here 2, at the chief 1"),
    ({"cluster": Cluster("worker", 0, {"ps": {0: "a:1"}, "worker": {0: "c:1"}})},
     "number of ps: here 1, at the chief 2"),
    ({"dealt": "otherwise"}, "rows of tables on the ps: here otherwise, at the chief mixed"),
    ({"dim": 8}, "table items: here of 8, at the chief of 4"),
])
def test_what_differs_is_named(own, expected):
    """With both values."""
    assert agreement.fingerprint_differences(describe(), describe(**own), their_name="the chief") == [expected]


def test_many_differences_are_counted():
    """The message stays readable, and what one of them lacks is said to be missing."""
    own = describe({f"flag{index}": index for index in range(9)})
    lines = agreement.fingerprint_differences(describe(), own, their_name="the chief")
    assert lines[0] == "--flag0: here 0, at the chief missing"
    assert lines[-1] == "and 6 more"


def _worker(cluster, index, tmp_path, optimizer, steps):
    return clusters.Worker(cluster, index, tmp_path, steps, shared_flags={"optimizer": optimizer}, end_timeout_secs=0.5)


def test_a_worker_that_does_not_fit_is_refused_with_the_difference(start_servers, tmp_path):
    """It exits 2 before it has touched a parameter, and the chief trains on."""
    cluster = start_servers(1, 2)
    chief, other = (_worker(cluster, index, tmp_path, optimizer, 20)
                    for index, optimizer in enumerate(["adam", "sgd"]))
    train, is_refused = chief.body, threading.Event()
    chief.body = lambda live, write_summary: is_refused.wait(60) and train(live, write_summary)
    chief.start()
    other.start()
    with raises("worker_does_not_fit") as refused:
        other.result()
    assert "worker:1" in str(refused.value) and "--optimizer: here sgd" in str(refused.value)
    is_refused.set()
    assert chief.result().global_step == 20


def test_all_workers_of_another_training_begin_anew_where_nobody_trains(start_servers, tmp_path):
    """Also if the chief comes last: the ps are left from a training whose workers have ended."""
    cluster = start_servers(1, 2)
    first = _worker(cluster, 0, tmp_path / "first", "adam", 20)
    first.start()
    first.join()
    first.board.start_run(first.board.fingerprint())
    first.board.announce(State.STOPPING)  # as workers leave it that were killed at the end
    other, chief = (_worker(cluster, index, tmp_path / "second", "sgd", 200) for index in (1, 0))
    other.start()
    wait_until(lambda: first.board.snapshot().claims[1], "the claim of worker 1")
    chief.start()
    outcome = chief.result()
    assert outcome.first_step == 0
    assert chief.progress.local_steps == outcome.local_steps  # and not those of the first training as well
    other.result()


class _Interrupted:
    """A blackboard at which something else happens right after one of its methods was called."""

    def __init__(self, board, method, then):
        self._board, self._method, self._then = board, method, then

    def __getattr__(self, name):
        method = getattr(self._board, name)

        def call(*args):
            value = method(*args)
            if name == self._method:
                self._method = ""
                self._then()
            return value

        return call


@contextlib.contextmanager
def _left_over_training(start_servers):
    """Yields worker views (chief, worker 1) of ps that hold the parameters of a training without workers."""
    cluster = start_servers(1, 2)
    with contextlib.ExitStack() as stack:
        boards = [stack.enter_context(contextlib.closing(blackboard.for_worker(
            cluster.target("worker", index), cluster.view("worker", index)))) for index in (0, 1)]
        _leave_over(boards, 17)
        yield cluster, boards


def _leave_over(boards, claim):
    for number, board in enumerate(boards):
        board.claim(number, claim + number)
    boards[0].start_run(describe({"optimizer": "adam"}))


def _admission(cluster, index, board, optimizer, folder=""):
    return Admission(cluster.view("worker", index), board, start_timeout_secs=60, stop=threading.Event(),
                     own_fingerprint=describe({"optimizer": optimizer}, folder=folder))


def test_a_chief_with_another_training_begins_anew_where_nobody_trains(start_servers):
    """Parameters that an interrupted client left on the ps are not taken for its own, nor for those of a new folder."""
    with _left_over_training(start_servers) as (cluster, (board, _)):
        assert _admission(cluster, 0, board, "adam")._ask_as_chief() is Parameters.LIVE
        assert _admission(cluster, 0, board, "sgd")._ask_as_chief() is Parameters.NEW
        assert board.state() is State.IDLE
        board.start_run(describe({"optimizer": "adam"}, folder="first"))
        assert _admission(cluster, 0, board, "adam", folder="second")._ask_as_chief() is Parameters.NEW


def test_a_worker_waits_for_its_chief_that_begins_anew_between_two_looks(start_servers):
    """An earlier reading does not matter: the admitted chief is of the same training, so the worker is not refused."""
    with _left_over_training(start_servers) as (cluster, (chief_board, board)):
        for number, method in enumerate(["admission_view", "fingerprint", "is_prepared", "state", "mismatch"]):
            _leave_over((chief_board, board), 100 + 2 * number)
            chief = _admission(cluster, 0, chief_board, "sgd")
            other = _admission(cluster, 1, _Interrupted(board, method, chief._ask_as_chief), "sgd")
            assert other._ask_as_worker() is None, method
            assert other._ask_as_worker() is None, method
            chief_board.start_run(describe({"optimizer": "sgd"}))
            assert other._ask_as_worker() is Parameters.LIVE, method


def test_a_worker_that_was_admitted_while_its_training_was_replaced_withdraws(start_servers):
    """It must not train on the parameters of the training that begins: it looks again after it was admitted."""
    with _left_over_training(start_servers) as (cluster, (chief_board, board)):
        old_worker = _admission(
            cluster, 1, _Interrupted(board, "admission_view", lambda: chief_board.announce(State.IDLE)), "adam")
        assert old_worker._ask_as_worker() is None
        assert not board.admission_view().admitted


def test_a_chief_does_not_replace_a_training_that_a_worker_joins_meanwhile(start_servers):
    """The worker trains on; the chief is refused when it asks again."""
    with _left_over_training(start_servers) as (cluster, (chief_board, board)):
        old_worker = _admission(cluster, 1, board, "adam")
        chief = _admission(
            cluster, 0, _Interrupted(chief_board, "admission_view", old_worker._ask_as_worker), "sgd")
        assert chief._ask_as_chief() is None
        assert board.state() is State.RUNNING
        with raises("worker_does_not_fit"):
            chief._ask_as_chief()


def test_what_belongs_together_is_read_in_the_order_in_which_no_chief_writes(start_servers):
    """A worker that sees new parameters as prepared sees their fingerprint, also after the loss of a ps."""
    with _left_over_training(start_servers) as (_, (board, _)):
        admissions, state, texts, prepared, _ = board._read_admission_view
        for earlier, later in ((admissions, [state]), ([state], [prepared]), ([prepared], texts)):
            assert all({read.op for read in earlier} <= set(transfer.upstream([tensor])) for tensor in later)
        writes = {op.inputs[0].op.get_attr("shared_name"): op for op in transfer.upstream([board._write_prepared])
                  if op.type == "AssignVariableOp"}
        assert writes[b"ps_train/fingerprint"] in transfer.upstream([writes[b"ps_train/prepared"]])


def test_a_chief_whose_ps_restarts_before_it_announces_prepares_again(start_servers, tmp_path):
    """Else the lost parameters would count as prepared, and everybody would wait for them."""
    cluster = start_servers(2, 1)
    worker = _worker(cluster, 0, tmp_path, "adam", 5)
    noted, start_run = [], worker.board.start_run

    def lose_a_ps(fingerprint, prepared):
        noted.append(prepared)
        if len(noted) == 1:
            with contextlib.closing(blackboard.for_ps(cluster.target("ps", 1), cluster.view("ps", 1))) as own:
                own.create()
        start_run(fingerprint, prepared)

    worker.board.start_run = lose_a_ps
    worker.start()
    assert worker.result().global_step == 5
    assert len(noted) == 2 and noted[0][1] != noted[1][1]


def test_the_end_of_training_is_announced_once(start_servers):
    """A worker that has slept through the end does not bring the state back."""
    with _left_over_training(start_servers) as (_, (chief_board, board)):
        board.announce_stopping()
        assert board.state() is State.STOPPING
        chief_board.announce(State.DONE)
        board.announce_stopping()
        assert board.state() is State.DONE
        chief_board.announce(State.IDLE)


def test_the_reason_for_the_end_is_announced_until_the_next_run(start_servers):
    """Such as early stopping; the last step needs none, and takes none away."""
    with _left_over_training(start_servers) as (_, (chief_board, board)):
        assert board.end_reason() == ""
        board.announce_stopping("early stopping: x")
        assert (board.state(), board.end_reason()) == (State.STOPPING, "early stopping: x")
        chief_board.announce_stopping()
        assert board.end_reason() == "early stopping: x"
        chief_board.announce_stopping("the data ran out for worker:1")
        assert board.end_reason() == "the data ran out for worker:1"
        chief_board.announce(State.IDLE)
        chief_board.start_run("")
        assert board.end_reason() == ""
        chief_board.announce(State.IDLE)


def test_a_message_about_who_is_here_does_not_wait_for_a_silent_ps(start_servers, monkeypatch):
    """A signal would not be heard meanwhile; a call to a frozen ps takes ten seconds and more."""
    monkeypatch.setattr("ps_train.runtime.waits.DESCRIBE_SECS", 0.05)
    cluster, never = start_servers(1, 2), threading.Event()
    with contextlib.closing(blackboard.for_worker(cluster.target("worker", 1), cluster.view("worker", 1))) as board:
        board._run = lambda *_: never.wait(60)
        assert board.describe_joined(cluster.view("worker", 1)) == f"{board.first_ps} does not answer"
        never.set()


def test_a_worker_that_waits_for_its_chief_says_who_is_here_and_what_the_chief_does(start_servers):
    """In its reminders and in the error at the end of the wait."""
    cluster = start_servers(1, 3)
    with contextlib.ExitStack() as stack:
        boards = [stack.enter_context(contextlib.closing(blackboard.for_worker(
            cluster.target("worker", index), cluster.view("worker", index)))) for index in (0, 1)]
        boards[0].announce(State.IDLE)
        for number in range(3):
            boards[0].leave(number)

        def error_of_a_wait():
            with raises("timed_out") as caught:
                Admission(cluster.view("worker", 1), boards[1], start_timeout_secs=0.1, stop=threading.Event(),
                          own_fingerprint="").wait()
            return str(caught.value)

        boards[1].claim(1, 18)
        assert "(worker:0 (chief) has not joined; also here: worker:1)" in error_of_a_wait()
        boards[0].claim(0, 17)
        boards[0].note_activity("restores /runs/7/model.ckpt-40")
        assert "(worker:0 (chief) has joined and restores /runs/7/model.ckpt-40; also here: worker:1)" \
            in error_of_a_wait()
