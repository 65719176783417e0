"""Faults planted in the code of ps_train, which the explorer must find: a table, and what plants them.

    python -m tests.protocol planted
"""

from __future__ import annotations

import contextlib
import inspect
import textwrap
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from ps_train.coordination import agreement, blackboard, connection, heartbeat
from ps_train.tasks import ps
from ps_train.training import opening, recovery
from ps_train.updates.sync import aggregation, runner
from tests.protocol import explorer, tasks
from tests.protocol.explorer import Schedule, Setting

ASYNC = Setting(num_ps=1, num_workers=2)
TWO_PS = Setting(num_ps=2, num_workers=2)
SYNC = Setting(num_ps=1, num_workers=2, is_sync=True)
BACKUP = Setting(num_ps=1, num_workers=3, is_sync=True, flags=(("replicas_to_aggregate", 2),))


class Planted(NamedTuple):
    """A fault in the code.

    Attributes:
      name: what is wrong.
      owner: the module or class of the function.
      function: its name.
      old, new: a piece of its source, and what replaces it.
      setting: the training that shows it.
      kinds: the faults that walks draw from; all if empty.
      why_not: why it is not found, "" if it is.
      last_point: walks place their faults before it; 0 for the end of the run.
    """

    name: str
    owner: Any
    function: str
    old: str
    new: str
    setting: Setting = ASYNC
    kinds: tuple[str, ...] = ()
    why_not: str = ""
    last_point: int = 0


PLANTED = [
    Planted("the chief prepares live parameters again", opening.Admission, "_ask_as_chief",
            "Parameters.LIVE if view.is_prepared else Parameters.NEW", "Parameters.NEW"),
    Planted("a worker does not look whether a ps has restarted", blackboard.Blackboard, "_is_prepared",
            " and list(prepared[:len(self._ps)]) == list(incarnations)", "", TWO_PS, ("kill", "move", "stall")),
    Planted("a worker begins before the chief has prepared the parameters", opening.Admission, "_parameters_of",
            "(view.state == State.STOPPING or view.is_prepared)", "True"),
    Planted("parameters of a ps that restarts in between are announced", blackboard.Blackboard, "start_run",
            "if prepared is not None and current != prepared:", "if False:", TWO_PS, ("kill", "stall"), last_point=260),
    Planted("the chief reads the incarnations after it has prepared the parameters", recovery.SupervisedTraining,
            "_start_run", "self._fingerprint, self._incarnations", "self._fingerprint, self._board.incarnations()",
            TWO_PS, ("kill", "stall"), last_point=260),
    Planted("RUNNING is announced before what was prepared is written", blackboard.Blackboard, "start_run",
            "incarnations = np.zeros", "self.announce(State.RUNNING); incarnations = np.zeros", TWO_PS,
            why_not="until the rest is written, no worker takes the parameters for prepared"),
    Planted("the end of training is written, not raised", blackboard.Blackboard, "announce_stopping",
            "self._raise_states", "self._write_states"),
    Planted("a worker that has finished is expected again after the loss of a ps", blackboard.Blackboard, "start_run",
            "self._run(self._clear_finished_of_claimed)", "self._run(self._clear_finished)",
            why_not="the chief waits --end_timeout_secs for it, which no invariant forbids after a fault"),
    Planted("finished is not cleared after the loss of a ps", blackboard.Blackboard, "start_run",
            "self._run(self._clear_finished_of_claimed)", "pass", SYNC,
            why_not="updates wait for fewer gradients, which no invariant forbids after a fault"),
    Planted("a worker does not report that it has finished", recovery.SupervisedTraining, "_report_finished",
            "self._board.report_finished(self._cluster.worker_number)", "pass"),
    Planted("workers that wait are not released at the end", recovery.SupervisedTraining, "_announce",
            "self._release(session)", "pass", SYNC,
            why_not="the chief releases them again while it waits for them"),
    Planted("a claim that a restarted ps forgot is not made again", heartbeat.Heartbeat, "_answer_refusal",
            "self._board.claim(self._number, self._claim)\n", "pass\n",
            why_not="a worker without a claim trains on; only the wait at the end leaves it out"),
    Planted("a heartbeat that ps 0 forgot counts as that of another process", heartbeat.Heartbeat, "_answer_refusal",
            "if not holder:", "if False:"),
    Planted("a worker does not leave", heartbeat.Heartbeat, "_leave", "self._board.leave(self._number)", "pass",
            why_not="its heartbeat expires after --beat_timeout_secs"),
    Planted("the connection keeps a session that has failed", connection.Connection, "run",
            "self._session = None\n", "pass\n"),
    Planted("the connection does not take the other route", connection.Connection, "run",
            "self._routes.reverse()", "pass", why_not="in the twin a server never blocks while it is alive"),
    Planted("a ps does not wait for late workers", ps.PsTask, "_serve_late_workers",
            "is_awaited = self._is_awaited()\n    self._stop", "is_awaited = False\n    self._stop",
            why_not="after the last step a worker may end with 138"),
    Planted("a ps is never needed", ps.PsTask, "_is_needed", "return snapshot is not None and bool(snapshot.alive())",
            "return False",
            why_not="no run is as long as --idle_timeout_secs"),
    Planted("the gate lets an update pass with one gradient less", aggregation.SyncEngine, "_update",
            'variables.read("required"))', 'variables.read("required") - 1)', SYNC),
    Planted("the gate waits for one gradient more", aggregation.SyncEngine, "_update",
            '< variables.read("required"))', '<= variables.read("required"))', SYNC),
    Planted("a worker does not wait for the update", aggregation.SyncEngine, "_awaited", "return step + 1",
            "return step", SYNC),
    Planted("a flush leaves the gradients", aggregation.SyncEngine, "_begin",
            "ready = accumulators.restart(self._all_accumulators(), step)", "ready = []", SYNC),
    Planted("an update notifies nobody", aggregation.SyncEngine, "_update",
            'self._notify_workers(), variables.add("unused", -num_taken)', 'variables.add("unused", -num_taken)', SYNC),
    Planted("who waits for an update is not noticed when a gradient was lost", runner.UpdateRunner, "_apply_quorum",
            "if self._is_stuck(quorum, status):", "if False:", SYNC,
            why_not="after --step_timeout_secs a new session drops it"),
    Planted("the quorum counts the dead", runner.Quorum, "check", "self._all & {chief_number, *snapshot.alive()}",
            "self._all", SYNC,
            why_not="each worker comes back, so an update that waits for it is only late"),
    Planted("the quorum counts those that have finished", runner.Quorum, "check", "(here | self._expected) - finished",
            "here | self._expected", Setting(num_ps=1, num_workers=2, is_sync=True, data_steps=((1, 3),))),
    Planted("the chief announces the end before it waits and saves", recovery.SupervisedTraining, "_end",
            "self._report_finished(outcome)",
            "self._report_finished(outcome); self._cluster.is_chief and self._board.announce_done()"),
    Planted("the chief does not wait for the others", recovery.SupervisedTraining, "_wait_for_others",
            "while names := unfinished_workers(self._cluster, snapshot := self._board.snapshot()):", "while False:",
            why_not="no invariant speaks of updates after the last save"),
]


@contextlib.contextmanager
def planted(fault: Planted) -> Iterator[None]:
    """Plants a fault while its body runs."""
    original = inspect.getattr_static(fault.owner, fault.function)
    function = getattr(fault.owner, fault.function)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(fault.old) >= 1, f"{fault.name}: {fault.function} has no {fault.old!r}"
    module = inspect.getmodule(function)
    names: dict[str, Any] = {}
    exec(compile(source.replace(fault.old, fault.new), f"planted in {module.__name__}", "exec"), vars(module), names)
    forget_graphs()
    setattr(fault.owner, fault.function, names[fault.function])
    try:
        yield
    finally:
        setattr(fault.owner, fault.function, original)
        forget_graphs()


def forget_graphs() -> None:
    """Forgets the graphs that runs share, as the code that builds them changes."""
    tasks._prototypes.clear()
    tasks.build_graph.cache_clear()
    agreement._reading.cache_clear()


class Found(NamedTuple):
    """How a fault was found: after how many runs and seconds, by which schedule, and what broke."""

    schedule: Schedule | None
    failure: str
    num_runs: int
    secs: float


def find(fault: Planted, most_secs: float = 60.0, first_seed: int = 1) -> Found:
    """Explores a training with a planted fault until an invariant breaks."""
    begin_secs = time.perf_counter()
    with planted(fault):
        begun = explorer.run(Schedule(fault.setting))
        if begun.failure:
            return Found(Schedule(fault.setting), begun.failure, 1, time.perf_counter() - begin_secs)
        num_runs, seed = 1, first_seed
        while time.perf_counter() - begin_secs < most_secs:
            schedule = explorer.walk(fault.setting, seed, fault.last_point or begun.points, kinds=fault.kinds)
            result = explorer.run(schedule)
            num_runs, seed = num_runs + 1, seed + 1
            if result.failure:
                return Found(schedule, result.failure, num_runs, time.perf_counter() - begin_secs)
    return Found(None, "", num_runs, time.perf_counter() - begin_secs)


def shrunk(fault: Planted, found: Found, most_runs: int = 60) -> Schedule:
    """Returns the shortest schedule that shows a fault."""
    with planted(fault):
        return explorer.shrink(found.schedule, found.failure, most_runs)
