"""The blackboard: variables on the ps in which the tasks record the state of training and which workers are alive.

    every ps   its incarnation, a number drawn at start · a copy of the state of training · the address of ps 0
    ps 0       the incarnations for which the chief has prepared the parameters · the chief's fingerprint · a clock
               for each worker: its claim, last heartbeat and global step, its local steps, whether it has finished

Tasks reach it through the TensorFlow servers that run anyway (`sessions.py`). See docs/decisions/blackboard.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.cluster import reachability
from ps_train.cluster.spec import Cluster, Task
from ps_train.coordination import agreement, variables
from ps_train.coordination.sessions import Connection, run_on_ps
from ps_train.coordination.state import AdmissionView, Beat, Finished, Snapshot, State, new_claim
from ps_train.coordination.variables import write_if
from ps_train.errors import BlackboardError, ClusterLostError
from ps_train.runtime import clock, waits
from ps_train.runtime.waits import Timeouts

_LONGEST_TICK_SECS = 1.0
_DONE_SECS, _DONE_PAUSE_SECS = 30.0, 0.2


class Blackboard:
    """One task's view of the blackboard.

    Every method raises BlackboardError if a ps does not answer or has not created its part of the blackboard yet, or if
    a later chief has begun its term, and ConfigError if a ps is not what this task expects. Close it, for example with
    `contextlib.closing`: a session that Python's garbage collection closes waits forever if its server has ended.

    Attributes:
      first_ps: the ps that has the blackboard.
      own_claim: of the worker that this is, which writes nothing for a number that another process has;
        `variables.ANY_CLAIM` for other tasks, which nothing is refused.
      term: of the chief that this is (variables.py); `variables.NO_TERM` before `begin_term` and for other tasks.
    """

    def __init__(
        self, target: str, ps: Sequence[Task], own_task: Task | None, *, is_elastic: bool = False,
        cluster_description: str | None = None, heartbeat_timeout_secs: float = Timeouts.heartbeat_secs,
    ) -> None:
        """Builds the operations that the task can need; nothing is sent yet.

        Args:
          target: address of the server that runs the session, such as `grpc://localhost:2223`.
          ps: the parameter servers that this task uses; the first one has the variables that are on a single ps.
          own_task: the task behind `target`, or None if that is the first ps.
          is_elastic: see `Cluster`.
          cluster_description: the description that `create` records, see agreement.py; None for other tasks.
          heartbeat_timeout_secs: the bound of every snapshot.
        """
        self._heartbeat_timeout_secs = heartbeat_timeout_secs
        self._ps, self.first_ps = list(ps), ps[0]
        self._last_tick_secs = clock.now()
        self.term, self.own_claim = variables.NO_TERM, variables.ANY_CLAIM
        with tf.Graph().as_default() as graph:
            self._value, self._worker = tf.placeholder(tf.int64, []), tf.placeholder(tf.int64, [])
            self._claim, self._term = tf.placeholder(tf.int64, []), tf.placeholder(tf.int64, [])
            is_own = cluster_description is not None  # a ps makes and reads its part, which half of the operations do
            if not is_own:
                self._build_for_every_ps()
                self._begin_term = variables.begin_term_on(self._ps, self._worker, self._claim)
            with tf.device(self._ps[0].device):
                self._build_for_first_ps()
                self._build_creation(cluster_description) if is_own else self._build_for_workers()
            graph.finalize()
        self._connection = Connection(graph, target, self._ps, own_task, is_elastic=is_elastic)
        self._run = self._connection.run

    def _build_for_every_ps(self) -> None:
        self._write_states, self._raise_states, self._write_idle = [], [], []
        self._read_incarnations, self._write_first_ps = [], []
        for task in self._ps:
            with tf.device(task.device):
                self._write_states.append(variables.write_in(
                    self._term, lambda: variables.write("state", self._value), values=[self._value]))
                self._raise_states.append(variables.write_in(self._term, lambda: variables.write(
                    "state", tf.maximum(variables.read("state"), self._value)), values=[self._value]))
                # In one call: servers that become idle have not been asked to stop.
                self._write_idle.append(variables.write_in(self._term, lambda: [
                    variables.write("state", State.IDLE), variables.clear("stop_requested")]))
                self._read_incarnations.append(variables.read("incarnation"))
                self._write_first_ps.append(variables.write("first_ps", self._ps[0].address))

    def _build_creation(self, cluster_description: str) -> None:
        cleared = [*variables.clear_first_ps(), variables.clear("first_ps"), variables.clear("mismatch"),
                   variables.clear("stop_requested"), variables.clear("term")]
        written = [variables.write("state", 0), variables.write("cluster", cluster_description)]
        with tf.control_dependencies(cleared + written):
            self._create = variables.write("incarnation", self._value)

    def _build_for_first_ps(self) -> None:
        self._values = {name: variables.read(name) for name in (
            "state", "first_ps", "mismatch", "stop_requested", "prepared", "fingerprint", "chief_activity",
            "end_reason")}
        self._incarnations = tf.placeholder(tf.int64, [variables.MAX_PS])
        self._string = tf.placeholder(tf.string, [])
        self._write_prepared = variables.write_in(
            self._term, self._record_prepared, values=[self._string, self._incarnations])
        self._write_activity = variables.write("chief_activity", self._string)
        self._write_reason = variables.write("end_reason", self._string)
        self._secs = tf.placeholder(tf.float64, [])
        self._tick = variables.add("clock", self._secs)
        self._read_snapshot = [self._values["state"], *(
            variables.read(name)
            for name in ("clock", "claims", "heartbeats", "steps", "local_steps", "finished", "staleness"))]

    def _record_prepared(self) -> list[tf.Operation]:
        written = variables.write("fingerprint", self._string)
        with tf.control_dependencies([written]):  # see `_build_admission_view`
            return [variables.write("prepared", self._incarnations), variables.clear("end_reason")]

    def _build_for_workers(self) -> None:
        self._clear_workers = variables.write_in(self._term, lambda: [
            variables.clear(name) for name in ("steps", "local_steps", "staleness", "finished")])
        self._clear_finished_of_claimed = variables.write_in(self._term, lambda: [
            variables.clear("steps"),  # they may be beyond the checkpoint, and one that was killed reports no other
            variables.write("finished", tf.where(tf.not_equal(variables.read("claims"), 0), tf.zeros(
                [variables.MAX_WORKERS], tf.int64), variables.read("finished")))])
        claim = variables.read("claims")[self._worker]
        is_own = tf.equal(self._claim, variables.ANY_CLAIM) | tf.equal(claim, self._claim)
        is_free = is_own | tf.equal(claim, 0)  # ps 0 has restarted, and this process has not claimed again
        self._report = write_if(is_free, lambda: variables.write_element("finished", self._worker, self._value))
        is_returning = tf.equal(variables.read("finished")[self._worker], Finished.RETURNS)
        self._await = write_if(is_returning, lambda: variables.write_element("finished", self._worker, Finished.NO))
        self._admit = write_if(is_own, lambda: variables.write_element("admissions", self._worker, tf.identity(claim)))
        self._withdraw = write_if(is_own, lambda: variables.write_element("admissions", self._worker, 0))
        self._read_admission_view = self._build_admission_view()
        self._local_steps, self._staleness = tf.placeholder(tf.int64, []), tf.placeholder(tf.float64, [])
        # Only the process that holds the claim is accepted: a heartbeat never takes another process's number.
        holds_claim = tf.equal(variables.read("claims")[self._worker], self._claim)
        self._read_answer = [self._values[name] for name in ("state", "mismatch", "stop_requested")]
        self._heartbeat = tf.cond(holds_claim, self._record_steps, lambda: tf.constant(False))
        with tf.control_dependencies([variables.write_element("claims", self._worker, self._claim)]):
            self._write_claim = self._record_heartbeat(0)
        self._leave = write_if(is_own, self._record_leaving)

    def _build_admission_view(self) -> list[Any]:
        """Reads in the order in which a chief does not write: admissions, state, prepared, fingerprint.

        A chief that begins another training announces "idle", admits itself, and announces "running" after it has
        written its fingerprint. A task that sees it admitted thus also sees "idle", or "running" with its fingerprint.
        After the loss of a ps the state may still be "running", but then `prepared`, written after that, differs.
        """
        admissions = [variables.read(name) for name in ("admissions", "clock", "claims", "heartbeats")]
        with tf.control_dependencies(admissions):
            state = variables.read("state")
        with tf.control_dependencies([state]):
            prepared = variables.read("prepared")
        with tf.control_dependencies([prepared]):
            strings = [variables.read(name) for name in ("fingerprint", "mismatch")]
        return [admissions, state, strings, prepared, self._read_incarnations]

    def _record_leaving(self) -> tf.Tensor:
        with tf.control_dependencies([variables.write_element("claims", self._worker, 0)]):
            return self._record_heartbeat(0).op

    def _record_steps(self) -> tf.Tensor:
        """Returns true, after recording the worker's number of steps, its staleness, and that it is alive."""
        with tf.control_dependencies([variables.write_element("local_steps", self._worker, self._local_steps),
                                      variables.write_element("staleness", self._worker, self._staleness)]):
            return self._record_heartbeat(self._value)

    def _record_heartbeat(self, step: Any) -> tf.Tensor:
        """Returns true, after recording that the worker is alive now, at this global step."""
        with tf.control_dependencies([variables.write_element("heartbeats", self._worker, variables.read("clock")),
                                      variables.write_element("steps", self._worker, step)]):
            return tf.constant(True)

    def create(self) -> None:
        """Creates this ps's part of the blackboard, in the state "idle". Each ps does this before it serves."""
        self._run(self._create, {self._value: new_claim()})

    def tick(self) -> None:
        """Advances the clock of this ps by the time since the last tick. Each ps does this repeatedly."""
        # The time of day can jump, and then every worker would seem dead, or a dead one alive. Time for which the ps
        # did not run (SIGSTOP, a suspended machine) does not count either: it received no heartbeat then.
        last_secs, self._last_tick_secs = self._last_tick_secs, clock.now()
        self._run(self._tick, {self._secs: min(self._last_tick_secs - last_secs, _LONGEST_TICK_SECS)})

    def state(self) -> State:
        """Returns the state of training."""
        return State(int(self._run(self._values["state"])))

    def first_ps_address(self) -> str:
        """Returns the address of ps 0 that the chief has written to this ps, "" if it has written none."""
        return self._run(self._values["first_ps"]).decode()

    def mismatch(self) -> str:
        """Returns how the cluster descriptions of two tasks differ, as one line; "" if none was recorded."""
        return self._run(self._values["mismatch"]).decode()

    def is_stop_requested(self) -> bool:
        """Returns whether `ps_train stop` has asked all tasks to stop."""
        return bool(self._run(self._values["stop_requested"]))

    def snapshot(self) -> Snapshot:
        """Returns the current state of training and of the workers, as ps 0 has it."""
        state, now_secs, claims, heartbeats, steps, local_steps, finished, staleness = self._run(self._read_snapshot)
        return Snapshot(
            state=State(int(state)), now_secs=float(now_secs), claims=claims, heartbeats=heartbeats, steps=steps,
            local_steps=local_steps, finished=finished, staleness=staleness,
            heartbeat_timeout_secs=self._heartbeat_timeout_secs)

    def is_prepared(self) -> bool:
        """Returns whether a chief has prepared the parameters and no ps has restarted since."""
        state, prepared, *incarnations = self._run([
            self._values["state"], self._values["prepared"], *self._read_incarnations])
        return self._is_prepared(state, prepared, incarnations)

    def _is_prepared(self, state: int, prepared: np.ndarray, incarnations: Sequence[int]) -> bool:
        return state in (State.RUNNING, State.STOPPING) and list(prepared[:len(self._ps)]) == list(incarnations)

    def admission_view(self) -> AdmissionView:
        """Returns the values that decide whether a worker may train, read in one call and in a safe order."""
        (admissions, now_secs, claims, heartbeats), state, (fingerprint, mismatch), prepared, incarnations = self._run(
            self._read_admission_view)
        is_alive = (claims != 0) & (now_secs - heartbeats < self._heartbeat_timeout_secs)
        return AdmissionView(
            state=State(int(state)), is_prepared=self._is_prepared(state, prepared, incarnations),
            fingerprint=fingerprint.decode(), mismatch=mismatch.decode(),
            admitted=frozenset(np.flatnonzero(is_alive & (admissions == claims)).tolist()))

    def fingerprint(self) -> str:
        """Returns the chief's fingerprint, "" if the chief has not written one."""
        return self._run(self._values["fingerprint"]).decode()

    def note_activity(self, activity: str) -> None:
        """Records the activity of the chief before training begins, for the tasks that wait for it."""
        self._run(self._write_activity, {self._string: activity})

    def describe_joined(self, cluster: Cluster) -> str:
        """Returns which workers have joined and the chief's activity, for the messages of a worker that waits for it.

        For example "worker:0 (chief) has joined and restores /runs/7/model.ckpt-40; also here: worker:2". If ps 0 does
        not answer, it soon returns that: neither a signal nor the end of the wait may wait for a message.
        """
        try:
            return waits.bounded(lambda: self._describe_joined(cluster), waits.DESCRIBE_SECS, "who is here")
        except ClusterLostError:  # or BlackboardError, which is one
            return f"{self.first_ps} does not answer"

    def _describe_joined(self, cluster: Cluster) -> str:
        activity, snapshot = self._run(self._values["chief_activity"]).decode(), self.snapshot()
        chief, alive = cluster.number_of(cluster.chief), snapshot.alive()
        others = ", ".join(cluster.worker_name(number) for number in alive if number != chief)
        joined = f"{cluster.chief.name} (chief) has {'' if chief in alive else 'not '}joined"
        if chief in alive and activity:
            joined += f" and {activity}"
        return joined + (f"; also here: {others}" if others else "")

    def incarnations(self) -> tuple[int, ...]:
        """Returns the incarnation of each ps; the chief reads them before it prepares the parameters."""
        return tuple(int(number) for number in self._run(self._read_incarnations))

    def start_run(self, fingerprint: str = "", prepared: tuple[int, ...] | None = None) -> None:
        """Announces that the parameters on the ps are ready; for the chief.

        Args:
          fingerprint: that of the chief.
          prepared: the incarnations from before the parameters were prepared, None if no ps can have restarted.

        Raises:
          BlackboardError: a ps has restarted since then, so its parameters are lost.
        """
        current = self.incarnations()
        if prepared is not None and current != prepared:
            raise BlackboardError("ps_restarted", "a ps has restarted while the chief prepared the parameters")
        # If training continues after the loss of a ps, a worker that has finished and left does not come back.
        is_new = self.state() == State.IDLE
        self._write_in_term([self._clear_workers if is_new else self._clear_finished_of_claimed], {})
        incarnations = np.zeros([variables.MAX_PS], np.int64)
        incarnations[:len(self._ps)] = current
        self._run(self._write_first_ps)
        self._write_in_term([self._write_prepared], {self._incarnations: incarnations, self._string: fingerprint})
        self.announce(State.RUNNING)

    def begin_term(self, worker: int, claim: int) -> bool:
        """Lets no earlier chief write any more; returns false if another claim has this one's worker number."""
        term, is_accepted = self._run(self._begin_term, {self._worker: worker, self._claim: claim})
        if is_accepted:
            self.term = int(term)
        return bool(is_accepted)

    def _write_in_term(self, writes: list[tf.Tensor], feed: dict[tf.Tensor, Any]) -> None:
        if not all(self._run(writes, {**feed, self._term: self.term})):
            raise BlackboardError("chief_replaced", variables.REFUSED)

    def announce(self, state: State) -> None:
        """Writes the state of training to every ps; servers that become idle have not been asked to stop."""
        self._write_in_term(self._write_idle if state == State.IDLE else self._write_states, {self._value: state})

    def announce_stopping(self, reason: str = "") -> None:
        """Announces that no more steps are taken, unless training has ended already: the state never goes back.

        Args:
          reason: why, for the messages of the tasks; "" if all steps are taken.
        """
        if reason:
            self._run(self._write_reason, {self._string: reason})
        self._write_in_term(self._raise_states, {self._value: State.STOPPING})

    def end_reason(self) -> str:
        """Returns the reason given with the end of training, or ""."""
        return self._run(self._values["end_reason"]).decode()

    def announce_done(self) -> None:
        """Announces that all work is done, to each ps that is running.

        Raises:
          BlackboardError: a ps is frozen, and stays so.
        """
        # A ps that has received it ends, so a call to all of them is not repeated; each is told at its own server.
        with tf.Graph().as_default() as graph:
            write = variables.write_in(tf.constant(self.term, tf.int64), lambda: variables.write("state", State.DONE))
        end_secs = clock.now() + _DONE_SECS
        waiting = list(self._ps)
        while waiting:
            failed: list[tuple[Task, BlackboardError]] = []
            for ps in waiting:
                if reachability.accepts(ps.address):  # a call to a server that has ended takes seconds to fail
                    try:
                        is_written = run_on_ps(ps, graph, write)
                    except BlackboardError as error:
                        failed.append((ps, error))
                    else:
                        if not is_written:
                            raise BlackboardError("chief_replaced", variables.REFUSED)
            if failed and clock.now() >= end_secs:
                raise failed[-1][1]
            waiting = [ps for ps, _ in failed]
            if waiting:
                clock.sleep(_DONE_PAUSE_SECS)

    def claim(self, worker: int, claim: int) -> None:
        """Gives a worker's number to the process with this claim, even if another process had it before."""
        self._run(self._report, {self._worker: worker, self._claim: variables.ANY_CLAIM, self._value: Finished.NO})
        self._run(self._write_claim, {self._worker: worker, self._claim: claim})

    def admit(self, worker: int) -> bool:
        """Records that this process uses the parameters from now on; returns false if it does not have the number."""
        return bool(self._run(self._admit, self._of(worker)))

    def withdraw(self, worker: int) -> None:
        """Records that this process does not use the parameters after all."""
        self._run(self._withdraw, self._of(worker))

    def leave(self, worker: int) -> None:
        """Gives up a worker's number: no task waits for this worker any longer."""
        self._run(self._leave, self._of(worker))

    def beat(self, worker: int, *, claim: int, step: int, local_steps: int = 0, staleness: float = 0.0) -> Beat:
        """Records a heartbeat, and reads the answer in the same call: ps 0 has one of each worker every second."""
        values = {self._worker: worker, self._claim: claim, self._value: step, self._local_steps: local_steps,
                  self._staleness: staleness}
        is_accepted, *read = self._run([self._heartbeat, *self._read_answer], values)
        return Beat(bool(is_accepted), State(int(read[0])), read[1].decode(), bool(read[2]))

    def report_finished(self, worker: int, finished: Finished = Finished.ENDED) -> None:
        """Records whether a worker takes steps."""
        self._run(self._report, {**self._of(worker), self._value: finished})

    def await_again(self, worker: int) -> None:
        """Records that updates wait for a worker that returns."""
        self._run(self._await, {self._worker: worker})

    def _of(self, worker: int) -> dict[tf.Tensor, int]:
        return {self._worker: worker, self._claim: self.own_claim}

    def close(self) -> None:
        """Closes the session, without waiting for a lost ps or for a call that is under way."""
        self._connection.close()


def for_ps(target: str, cluster: Cluster, heartbeat_timeout_secs: float = Timeouts.heartbeat_secs) -> Blackboard:
    """Returns a ps's view of its part; it needs no other task."""
    return Blackboard(target, [cluster.task], None, is_elastic=cluster.is_elastic,
                      cluster_description=agreement.describe_cluster(cluster),
                      heartbeat_timeout_secs=heartbeat_timeout_secs)


def for_worker(target: str, cluster: Cluster, heartbeat_timeout_secs: float = Timeouts.heartbeat_secs) -> Blackboard:
    """Returns a worker's view: it reads ps 0, and the chief writes to every ps."""
    return Blackboard(target, cluster.ps, cluster.task, is_elastic=cluster.is_elastic,
                      heartbeat_timeout_secs=heartbeat_timeout_secs)


def for_client(cluster: Cluster, heartbeat_timeout_secs: float = Timeouts.heartbeat_secs) -> Blackboard:
    """Returns the view of a task without a server, such as an evaluator: a client of ps 0."""
    return _client_of(cluster.ps[0].address, cluster, heartbeat_timeout_secs)


def for_first_ps(
    own_board: Blackboard, cluster: Cluster, heartbeat_timeout_secs: float = Timeouts.heartbeat_secs
) -> Blackboard:
    """Returns ps 0 as another ps sees it.

    Args:
      own_board: its view of itself. If the cluster does not name ps 0, the chief writes the address of ps 0 there.

    Raises:
      BlackboardError: the chief has not written the address yet.
    """
    address = cluster.addresses["ps"].get(0) or own_board.first_ps_address()
    if not address:
        raise BlackboardError("ps_unknown", f"{cluster.task} does not know the address of ps:0 yet")
    return _client_of(address, cluster, heartbeat_timeout_secs)


def _client_of(address: str, cluster: Cluster, heartbeat_timeout_secs: float) -> Blackboard:
    return Blackboard(f"grpc://{address}", [Task("ps", 0, address)], None, is_elastic=cluster.is_elastic,
                      heartbeat_timeout_secs=heartbeat_timeout_secs)
