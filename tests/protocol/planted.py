"""Faults planted in the code of ps_train, which the explorer must find: a table, and what plants them.

    python -m tests.protocol planted
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import textwrap
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from ps_train.coordination import agreement, blackboard, heartbeat, sessions
from ps_train.parts.sharding import feeder, range_queue
from ps_train.storage import journal
from ps_train.tasks import ps
from ps_train.training import opening, recovery
from ps_train.updates import staleness
from ps_train.updates.sync import aggregation, runner
from tests import cached_boards
from tests.protocol import explorer, model, stand_ins, waiting
from tests.protocol.explorer import Schedule, Setting

ASYNC = Setting(num_ps=1, num_workers=2)
TWO_PS = Setting(num_ps=2, num_workers=2)
SYNC = Setting(num_ps=1, num_workers=2, is_sync=True)
SYNC_TWO_PS = Setting(num_ps=2, num_workers=2, is_sync=True)
SYNC_LATE_SAVE = Setting(num_ps=2, num_workers=2, is_sync=True, train_steps=24, save_secs=30)
SLOW_OPENING = Setting(num_workers=2, opening_secs=1.5)
BOUND = Setting(num_workers=2, train_steps=24, flags=(("staleness_bound", 2),))
DATA_OF_ONE = Setting(num_ps=2, num_workers=2, data_steps=((1, 2),))
DATA_OF_CHIEF = Setting(num_workers=2, is_sync=True, data_steps=((0, 3),))
SHORT_IDLE = Setting(num_workers=2, train_steps=16, flags=(("idle_timeout_secs", 2.0),))
RANGES = explorer.PART_SETTINGS["ranges"]
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


# Their functions build no graph, so the graphs of other runs serve: to build them takes ten times as long as a run.
_WITHOUT_GRAPHS = (heartbeat.Heartbeat, opening.Admission, ps.PsTask, recovery.SupervisedTraining, sessions.Connection,
                   journal, waiting.WaitingWatcher)
PLANTED = [
    Planted("the chief prepares live parameters again", opening.Admission, "_ask_as_chief",
            "Parameters.LIVE if view.is_prepared else Parameters.NEW", "Parameters.NEW"),
    Planted("a worker does not look whether a ps has restarted", blackboard.Blackboard, "_is_prepared",
            " and list(prepared[:len(self._ps)]) == list(incarnations)", "", TWO_PS, ("kill", "move", "stall")),
    Planted("a worker begins before the chief has prepared the parameters", opening.Admission, "_parameters_of",
            "(view.state == State.STOPPING or view.is_prepared)", "True"),
    Planted("parameters of a ps that restarts in between are announced", blackboard.Blackboard, "start_run",
            "if prepared is not None and current != prepared:", "if False:", SLOW_OPENING, ("kill", "move")),
    Planted("the chief reads the incarnations after it has prepared the parameters", recovery.SupervisedTraining,
            "_start_services", "self._fingerprint, self._incarnations", "self._fingerprint, self._board.incarnations()",
            SLOW_OPENING, ("kill", "move")),
    Planted("RUNNING is announced before what was prepared is written", blackboard.Blackboard, "start_run",
            "incarnations = np.zeros", "self.announce(State.RUNNING); incarnations = np.zeros", ASYNC,
            ("retrain", "stall")),
    Planted("what a replaced chief prepares is not checked", opening, "_is_write",
            "op.type.startswith(_WRITES)", "False", ASYNC, ("replace",)),
    Planted("a process without the number is admitted", blackboard.Blackboard, "_build_for_workers",
            "is_own, lambda: variables.write_element(\"admissions\", self._worker, tf.identity(claim))",
            "tf.constant(True), lambda: variables.write_element(\"admissions\", self._worker, tf.identity(claim))",
            TWO_PS, ("replace", "retrain", "kill"),
            why_not="a heartbeat claims again within a second, sooner than a chief of another training looks"),
    Planted("a chief whose data has ended lets others join while it saves", recovery.SupervisedTraining,
            "_end_with_others", "self._close_to_others(session, outcome)", "pass", DATA_OF_CHIEF, ("kill", "move"),
            why_not="a worker whose step waits for an update then learns of the end by its heartbeat"),
    Planted("the end of training is written, not raised", blackboard.Blackboard, "announce_stopping",
            "self._raise_states", "self._write_states"),
    Planted("a worker that has finished is expected again after the loss of a ps", blackboard.Blackboard, "start_run",
            "else self._clear_finished_of_claimed", "else self._clear_workers", DATA_OF_ONE,
            ("kill", "move")),
    Planted("finished is not cleared after the loss of a ps", blackboard.Blackboard, "start_run",
            "self._write_in_term([self._clear_workers if is_new else self._clear_finished_of_claimed], {})", "pass",
            SYNC_LATE_SAVE, ("kill", "move")),
    Planted("a worker does not report that it has finished", recovery.SupervisedTraining, "_report_finished",
            "self._board.report_finished(self._cluster.worker_number)", "pass"),
    Planted("workers that wait are not released at the end", recovery.SupervisedTraining, "_announce",
            "self._release(session)", "pass", SYNC,
            why_not="the chief releases them again while it waits for them"),
    Planted("a claim that a restarted ps forgot is not made again", heartbeat.Heartbeat, "_answer_refusal",
            "self._board.claim(self._number, self._claim)\n", "pass\n",
            BOUND, ("kill", "slow")),
    Planted("a heartbeat that ps 0 forgot counts as that of another process", heartbeat.Heartbeat, "_answer_refusal",
            "if not holder:", "if False:"),
    Planted("a worker does not leave", heartbeat.Heartbeat, "_leave", "self._board.leave(self._number)", "pass", SYNC,
            ("stop",)),
    Planted("the connection keeps a session that has failed", sessions.Connection, "run",
            "self._session = None\n", "pass\n"),
    Planted("the connection does not take the other route", sessions.Connection, "run",
            "self._routes.reverse()", "pass", ASYNC, ("block",)),
    Planted("a ps does not wait for late workers", ps.PsTask, "_serve_late_workers",
            "is_awaited = self._is_awaited()\n    self._stop", "is_awaited = False\n    self._stop",
            ASYNC, ("lose", "stall")),
    Planted("a ps is never needed", ps.PsTask, "_is_needed", "return snapshot is not None and bool(snapshot.alive())",
            "return False", SHORT_IDLE),
    Planted("the gate lets an update pass with one gradient less", aggregation.SyncEngine, "_update",
            'variables.read("required"))', 'variables.read("required") - 1)', SYNC),
    Planted("the gate waits for one gradient more", aggregation.SyncEngine, "_update",
            '< variables.read("required"))', '<= variables.read("required"))', SYNC),
    Planted("a worker does not wait for the update", aggregation.SyncEngine, "_awaited", "return step + 1",
            "return step", SYNC),
    Planted("a flush leaves the gradients", aggregation.SyncEngine, "_begin",
            "ready = restart(self._all_accumulators, step)", "ready = []", SYNC, ("kill", "move")),
    Planted("an update notifies nobody", aggregation.SyncEngine, "_update",
            'self._notify_workers(), variables.add("unused", -num_taken)', 'variables.add("unused", -num_taken)', SYNC),
    Planted("who waits for an update is not noticed when a gradient was lost", runner.UpdateRunner, "_apply_quorum",
            "if self._is_stuck(quorum, status):", "if False:", SYNC,
            why_not="after --step_timeout_secs a new session drops it"),
    Planted("the quorum counts the dead", runner.Quorum, "check", "self._all & {chief_number, *snapshot.alive()}",
            "self._all", SYNC, ("freeze", "kill")),
    Planted("the quorum counts those that have finished", runner.Quorum, "check", "(here | self._expected) - finished",
            "here | self._expected", DATA_OF_CHIEF),
    Planted("the chief announces the end before it waits and saves", recovery.SupervisedTraining, "_end_with_others",
            "self._report_finished(outcome)",
            "self._report_finished(outcome); self._cluster.is_chief and self._board.announce_done()"),
    Planted("the chief does not wait for the others", recovery.SupervisedTraining, "_wait_for_others",
            "while names := unfinished_workers(self._cluster, snapshot := self._board.snapshot(), is_alive_only):",
            "while False:"),
    Planted("the chief does not save at the end", recovery.SupervisedTraining, "_end",
            "self._saving.save_last(session)", "checkpoints.newest_sound(self._settings.train_dir)"),
    Planted("the end is announced to one ps only", blackboard.Blackboard, "announce_done",
            "waiting = list(self._ps)", "waiting = self._ps[:1]", TWO_PS),
    Planted("a new chief does not begin at the next step", recovery.SupervisedTraining, "_start_services",
            "init.live_run if is_live else init.new_run", "[] if is_live else init.new_run", SYNC_TWO_PS,
            ("kill", "move")),
    Planted("the staleness bound lets a worker take one step more", staleness.Bound, "holds_up",
            "lead + self.round_steps > self.steps", "lead > self.steps", BOUND, ("slow", "kill")),
    Planted("a step does not count for the staleness bound", staleness, "count_steps",
            'counts[worker] + num_taken', "counts[worker]", BOUND, ("slow", "kill")),
    Planted("the staleness bound waits for the dead", staleness, "alive_workers",
            "< heartbeat_timeout_secs", "< 1000.0", BOUND, ("freeze", "cut")),
    Planted("a worker takes a dropped gradient for applied", aggregation.Gate, "verdict",
            "tf.not_equal(included, marks) | ~is_later", "~is_later", SYNC, ("kill", "move")),
    Planted("a flush leaves the marks", aggregation.SyncEngine, "_begin", "self._gate.forget()", "tf.no_op()",
            SYNC_TWO_PS, ("kill", "cut")),
    Planted("an update does not record whose gradients it has", aggregation.Gate, "take",
            'variables.write("included", tf.concat([updated, included[self._num_workers:]], 0))', "tf.no_op()", SYNC),
    Planted("a worker enters the gate before it has pushed its gradients", aggregation.SyncEngine, "_step",
            "with tf.control_dependencies([*pushes, *self._also_in_step]):", "with tf.control_dependencies([]):", SYNC),
    Planted("a range whose assignment was not heard is not assigned again", range_queue, "exchange",
            "tf.where(is_again, unknown, is_free)", "is_free", RANGES, ("lose", "kill")),
    Planted("ranges of silent workers stay with them", range_queue, "release_silent", ">= timeout_secs", ">= 1e9",
            RANGES, ("kill", "move", "freeze"),
            why_not="each worker comes back, and takes its own ranges first"),
    Planted("a range counts as done when its last batch is taken", feeder.Accounts, "done",
            "num_steps > entry.last_taken", "num_steps >= entry.last_taken", RANGES, ("kill", "move")),
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
    setattr(fault.owner, fault.function, names[fault.function])
    try:
        with contextlib.nullcontext() if fault.owner in _WITHOUT_GRAPHS else _graphs_of(fault):
            yield
    finally:
        setattr(fault.owner, fault.function, original)


_own_graphs: dict[Planted, list[Any]] = {}  # of the fault that was planted last, what `_graphs_of` exchanges


@contextlib.contextmanager
def _graphs_of(fault: Planted) -> Iterator[None]:
    """Lets runs share other graphs while its body runs, as the code that builds them is another one."""
    caches = (stand_ins._prototypes, cached_boards.prototypes, model.graphs)

    def exchange(reading: Any, *contents: dict) -> list[Any]:
        kept = [agreement._reading, *map(dict, caches)]
        agreement._reading = reading
        for cache, content in zip(caches, contents):
            cache.clear()
            cache.update(content)
        return kept

    kept = exchange(*_own_graphs.get(fault, [functools.cache(agreement._reading.__wrapped__), *({} for _ in caches)]))
    try:
        yield
    finally:
        _own_graphs.clear()
        _own_graphs[fault] = exchange(*kept)


class Found(NamedTuple):
    """How a fault was found: after how many runs and seconds of CPU time, by which schedule, and what broke."""

    schedule: Schedule | None
    failure: str
    num_runs: int
    secs: float


def find(fault: Planted, most_secs: float = 60.0, first_seed: int = 1) -> Found:
    """Explores a training with a planted fault until an invariant breaks."""
    begin_secs = time.process_time()
    schedule, num_runs = Schedule(fault.setting), 1
    with planted(fault):
        result = begun = explorer.run(schedule)
    while True:
        if result.failure and not explorer.run(schedule).failure:  # else it is not the planted fault that breaks it
            return Found(schedule, result.failure, num_runs, time.process_time() - begin_secs)
        with planted(fault):
            while True:
                if time.process_time() - begin_secs > most_secs:
                    return Found(None, "", num_runs, time.process_time() - begin_secs)
                schedule = explorer.walk(
                    fault.setting, first_seed + num_runs - 1, fault.last_point or begun.points, kinds=fault.kinds)
                result, num_runs = explorer.run(schedule), num_runs + 1
                if result.failure:
                    break


def shrunk(fault: Planted, found: Found, most_runs: int = 60) -> Schedule:
    """Returns the shortest schedule that shows a fault."""
    with planted(fault):
        return explorer.shrink(found.schedule, found.failure, most_runs)
