"""Runs a training under a schedule of faults; makes schedules, and shrinks those that break an invariant.

    schedule   a seed of latencies, and some faults: at which point of the run, what, where, for how long
    run        the whole training under it; the result has what broke
    walk       schedules by seed                   every_schedule   all with one fault, or two, up to a point
    shrink     the shortest schedule that breaks the same invariant
"""

from __future__ import annotations

import collections
import dataclasses
import gc
import itertools
import logging
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.protocol import processes, simulation, stand_ins
from tests.protocol.history import Violation
from tests.protocol.invariants import Watcher
from tests.protocol.model import ONLY_EVALUATES, Setting
from tests.protocol.processes import Fiber
from tests.protocol.sessions import Request
from tests.protocol.simulation import World
from tests.protocol.tasks import Training

HORIZON_SECS = 900.0
# Trainings with the range queue, clients, and an evaluator, which here ends the training early, too.
PART_SETTINGS = {
    "ranges": Setting(num_ranges=6, num_epochs=2), "ranges_sync": Setting(num_ps=2, is_sync=True, num_ranges=6),
    "follow": Setting(num_ranges=5, arrival_secs=1.2),
    "follow_sync": Setting(is_sync=True, num_ranges=5, arrival_secs=1.2),
    "client": Setting(train_steps=24, client=("save", "status", "save", "save")),
    "evaluator": Setting(num_ps=2, train_steps=12, evaluations=ONLY_EVALUATES),
    "early_stop": Setting(train_steps=60, evaluations=2),
}
_RESTART_SECS = 1.5
_REFUSED_SECS = 20.0
_MOST_RESTARTS = 12
_NEAR_POINTS = 20
_GRACE_SECS = 25.0  # --stop_timeout_secs, and five more
_LOST_SECS = 6.0  # until a task has made a call again whose answer was lost
# What may go wrong, and for how many seconds. For "kill" that is the time until it is started again, for "move" on
# another machine; "replace" freezes a worker, and starts another process in its place meanwhile; "retrain" ends all
# workers, and starts those of another training, the chief last or first; "slow" takes a clock that goes so much faster;
# "stop" sends SIGTERM, and starts the task again after it has ended; in "block" the server of a worker runs no call.
KINDS = {
    "kill": (0.2, 3.0, 15.0), "move": (0.2, 3.0, 15.0), "freeze": (0.5, 6.0, 12.0, 25.0), "cut": (1.0, 6.0, 12.0, 25.0),
    "replace": (12.0, 25.0), "retrain": (0.1, 2.0), "lose": (0.0,), "stall": (0.02, 0.4, 2.0, 12.0), "slow": (0.5, 2.0),
    "stop": (0.5, 6.0), "block": (6.0, 20.0),
}


class Fault(NamedTuple):
    """A fault.

    Attributes:
      point: of the run, from which on it comes.
      kind: a key of KINDS.
      target: which task, for "cut" together with the one after it; by number, ps first.
      secs: see KINDS.
    """

    point: int
    kind: str
    target: int
    secs: float

    def __str__(self) -> str:
        return f"{self.kind}({self.target}, {self.secs:g}) at {self.point}"


@dataclasses.dataclass(frozen=True)
class Schedule:
    """All that determines a run.

    Attributes:
      setting: the training.
      seed: of latencies; 0 for fixed ones.
      is_fine: whether other things happen between two operations of one call.
      faults: by their points.
    """

    setting: Setting = Setting()
    seed: int = 0
    is_fine: bool = False
    faults: tuple[Fault, ...] = ()

    def __str__(self) -> str:
        faults = "; ".join(map(str, self.faults)) or "no fault"
        return f"seed {self.seed}{', fine' if self.is_fine else ''}: {faults}"


class Result(NamedTuple):
    """What a run has shown.

    Attributes:
      failure: what broke, "" if nothing did.
      points: of the run.
      trace: lines on what happened.
    """

    failure: str
    points: int
    trace: list[str]
    training: Any = None


class _Driver:
    """Brings the faults into a run, and starts tasks again, as `ps_train launch --max_restarts` does."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self._faults = sorted(schedule.faults)
        self._back_secs: dict[str, float] = {}
        self._starts: collections.Counter[str] = collections.Counter()
        self.training: Any = None

    def at_point(self, world: World, point: int, item: Any) -> float:
        delay_secs = 0.0
        while self._faults and self._faults[0].point <= point:
            fault = self._faults[0]
            if fault.kind == "stall":
                if not isinstance(item, (Fiber, Request)):
                    break
                process = item.process if isinstance(item, Fiber) else item.session.client
                delay_secs = fault.secs
                world.disturb(process.name, fault.secs)
                world.delay(fault.secs)
                world.note(f"stall {process.name} for {fault.secs:g} s: {getattr(item, 'awaits', 'a request')}")
            elif fault.kind == "lose":
                if not (isinstance(item, Request) and item.is_over and not item.is_done) or item.is_local:
                    break
                world.note(f"the answer to a call of {item.session.client.name} is lost")
                item.lose_answer()
                world.disturb(item.session.client.name, _LOST_SECS)
            else:
                self._begin(world, fault)
            self._faults.pop(0)
        return delay_secs

    def _begin(self, world: World, fault: Fault) -> None:
        candidates = world.workers() if fault.kind in ("replace", "block") else list(world.processes.values())
        process = candidates[fault.target % len(candidates)]
        begin = {"kill": self._kill, "move": self._kill, "freeze": self._freeze, "cut": self._cut,
                 "replace": self._replace, "retrain": self._retrain, "slow": self._slow, "stop": self._stop,
                 "block": self._block}[fault.kind]
        begin(world, process, fault)

    def _kill(self, world: World, process: processes.Process, fault: Fault) -> None:
        machine = process.machine + (fault.kind == "move")
        if process.is_alive:
            world.note(f"{fault.kind} {process.name}, back after {fault.secs:g} s")
            process.kill()
            self._start_again(world, process, fault.secs, machine)
            world.disturb(process.name, fault.secs)

    def _start_again(
        self, world: World, process: processes.Process, secs: float, machine: int | None = None
    ) -> None:
        """Starts a task after a time, unless something else starts it before or after: it has one supervisor."""
        self._starts[process.name] += 1
        number = self._starts[process.name]
        world.push(secs, lambda: process.start(machine) if self._starts[process.name] == number else None)

    def _freeze(self, world: World, process: processes.Process, fault: Fault) -> None:
        world.note(f"freeze {process.name} for {fault.secs:g} s")
        process.frozen_until_secs = world.now_secs + fault.secs
        world.disturb(process.name, fault.secs)

    def _cut(self, world: World, process: processes.Process, fault: Fault) -> None:
        processes = list(world.processes.values())
        other = processes[(fault.target + 1 + fault.target // len(processes)) % len(processes)]
        world.note(f"cut {process.name} from {other.name} for {fault.secs:g} s")
        world.cut(process.name, other.name, fault.secs)
        for each in (process, other):
            world.disturb(each.name, fault.secs)

    def _replace(self, world: World, process: processes.Process, fault: Fault) -> None:
        if process.is_alive:
            world.note(f"freeze {process.name} for {fault.secs:g} s, and start another process in its place")
            process.frozen_until_secs = world.now_secs + fault.secs
            world.replace(process).start(process.machine + 1)
            world.disturb(process.name, fault.secs)

    def _slow(self, world: World, process: processes.Process, fault: Fault) -> None:
        world.note(f"the clock of {process.name} goes {fault.secs:g} times as fast")
        process.set_rate(fault.secs)

    def _block(self, world: World, process: processes.Process, fault: Fault) -> None:
        world.note(f"the server of {process.name} runs no call for {fault.secs:g} s")
        process.blocked_until_secs = world.now_secs + fault.secs
        world.delay(fault.secs)

    def _stop(self, world: World, process: processes.Process, fault: Fault) -> None:
        """Ends a task with SIGTERM, or by force after its grace period, and starts it again."""
        if not process.is_alive or process.stop.is_set():
            return
        world.note(f"SIGTERM to {process.name}, back {fault.secs:g} s after its end")
        incarnation, secs = process.incarnation, fault.secs
        self._back_secs[process.name] = secs
        world.disturb(process.name, 0.0)
        process.stop.set()

        def end() -> None:
            if process.is_alive and process.incarnation == incarnation:
                world.note(f"{process.name} has not ended in time")
                process.kill()
                self._start_again(world, process, secs)
                world.disturb(process.name, secs)

        world.push(_GRACE_SECS, end)

    def _retrain(self, world: World, process: processes.Process, fault: Fault) -> None:
        if self.training.is_done:
            return
        world.note("all workers are ended, and those of another training are started")
        self.training.begin_another()
        for replaced in world.replaced:
            replaced.kill()
        workers = world.workers()
        for number, worker in enumerate(workers):
            worker.kill()
            late = fault.target % len(workers) == number  # still has the flags of the training before
            if late and number:
                worker.learning_rate = self.training.first_rate
            is_chief_first = fault.target // len(workers) % 2
            self._start_again(world, worker, fault.secs * (number if is_chief_first else len(workers) - number))

    def on_exit(self, world: World, process: processes.Process, code: int) -> None:
        chief = world.processes["worker:0"]
        is_refused = code == 2 and (self.training.has_two or bool(world.replaced))
        if process is not world.processes[process.name]:
            return
        if code == 143:
            self._start_again(world, process, self._back_secs[process.name])
            world.disturb(process.name, self._back_secs[process.name])
            return
        if code != 0:
            world.disturb(process.name, _REFUSED_SECS if is_refused else _RESTART_SECS)
        # Whoever starts another training beside one that runs tries again until that has ended.
        may_start = is_refused or (code == 138 and len(process.exit_codes) < _MOST_RESTARTS)
        if may_start and chief.exit_code != 0:
            self._start_again(world, process, _REFUSED_SECS if is_refused else _RESTART_SECS)


def run(schedule: Schedule, *, keeps_trace: bool = False) -> Result:
    """Runs a training under a schedule."""
    driver = _Driver(schedule)
    world = _run(driver, keeps_trace=keeps_trace)
    return Result(str(world.failure or ""), world.points, world.trace or [], driver.training)


def _run(driver: _Driver, *, keeps_trace: bool = False) -> World:
    """Runs a training with a driver; returns its world, whose `failure` is what broke."""
    schedule = driver.schedule
    world = World(seed=schedule.seed, is_fine=schedule.is_fine, horizon_secs=HORIZON_SECS, keeps_trace=keeps_trace,
                  at_point=driver.at_point)
    training = Training(world, schedule.setting)
    training.had_fault = training.history.had_fault = bool(schedule.faults)
    driver.training = training
    watcher = Watcher(world, training)

    def on_exit(process: processes.Process, code: int) -> None:
        try:
            watcher.exited(process, code)
        except Violation as error:
            world.failure = error
        driver.on_exit(world, process, code)

    world.on_exit = on_exit
    with stand_ins.installed(training), simulation.installed(world), _quiet():
        for process in world.processes.values():
            process.start()
        try:
            world.run()
            watcher.at_end()
        except Violation as error:
            world.failure = error
            world.note(f"BROKEN: {error}")
    return world


class _quiet:  # noqa: N801 (used as a context manager)
    def __enter__(self) -> None:
        logging.disable(logging.CRITICAL)
        gc.disable()

    def __exit__(self, *error: object) -> None:
        logging.disable(logging.NOTSET)
        gc.enable()


def walk(
    setting: Setting, seed: int, num_points: int, *, most_faults: int = 3, kinds: tuple[str, ...] = ()
) -> Schedule:
    """Returns a schedule drawn from a seed."""
    draw = random.Random(seed)
    faults = []
    for _ in range(draw.randint(1, most_faults)):
        kind = draw.choice(kinds or tuple(KINDS))
        if kind == "retrain" and any(fault.kind == kind for fault in faults):  # there is one other training only
            continue
        point = draw.randrange(1, num_points)
        if faults and draw.random() < 0.5:  # two faults at about the same time show more
            point = max(1, faults[-1].point + draw.randrange(-_NEAR_POINTS, _NEAR_POINTS))
        faults.append(Fault(point, kind, draw.randrange(8), draw.choice(KINDS[kind])))
    return Schedule(setting, seed=seed if draw.random() < 0.7 else 0, is_fine=draw.random() < 0.3,
                    faults=tuple(sorted(faults)))


class _Point(NamedTuple):
    """What a point of a run concerns: tasks, and calls that are sent, under way or answered there."""

    tasks: frozenset[str]
    is_answer: bool
    is_movable: bool
    requests: list[Request]


class _Recorder(_Driver):
    """Notes what each point of a run without a fault concerns."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        self.points: list[_Point] = []
        self._last: Any = None

    def at_point(self, world: World, point: int, item: Any) -> float:
        if isinstance(self._last, Fiber) and self._last.last_request is not None:
            self.points[-1].requests.append(self._last.last_request)
        self._last = world.coming
        source = getattr(world.coming, "__self__", None)
        sent = world.coming.last_request if isinstance(world.coming, Fiber) else source
        self.points.append(_Point(
            world.concerned(),
            isinstance(item, Request) and item.is_over and not item.is_done and not item.is_local,
            isinstance(item, (Fiber, Request)), [sent] if isinstance(sent, Request) else []))
        return 0.0

    def numbered(self) -> Iterator[tuple[int, _Point]]:
        """Yields the points with their numbers, without those of calls that have changed and learnt nothing new."""
        answers: dict[Any, str] = {}
        is_new: dict[Request, bool] = {}
        for request in dict.fromkeys(request for point in self.points for request in point.requests):
            question, answer = request.answer()
            is_new[request] = request.has_written or answers.get(question) != answer
            answers[question] = answer
        for number, point in enumerate(self.points, start=1):
            if not point.requests or any(is_new[request] for request in point.requests):
                yield number, point


def every_schedule(setting: Setting, *, step: int = 1, kinds: tuple[str, ...] = tuple(KINDS)) -> Iterator[Schedule]:
    """Yields all schedules with one fault: before each thing that concerns its task, or each n-th, for `step`.

    Faults between two such things come to the same. A fault takes the shortest time, and the longest.
    """
    recorder = _Recorder(Schedule(setting))
    names = list(_run(recorder).processes)
    workers = [name for name in names if name.startswith("worker:")]
    for kind in kinds:
        points: dict[int, list[int]] = collections.defaultdict(list)
        for number, point in recorder.numbered():
            if {"lose": point.is_answer, "stall": point.is_movable}.get(kind, True):
                for target in _targets(kind, names, workers, point.tasks):
                    points[target].append(number)
        for target, secs in itertools.product(points, sorted({KINDS[kind][0], KINDS[kind][-1]})):
            for number in points[target][::step]:
                yield Schedule(setting, faults=(Fault(number, kind, target, secs),))


def _targets(kind: str, names: list[str], workers: list[str], concerned: frozenset[str]) -> Iterator[int]:
    """Yields the targets of a kind of fault that something concerns; all if it is not known whom it concerns."""
    if kind in ("lose", "stall"):
        yield 0
    elif kind == "retrain":
        yield from range(2 * len(workers))
    elif kind == "cut":
        for target, name in enumerate(names):
            if not concerned or {name, names[(target + 1) % len(names)]} <= concerned:
                yield target
    else:
        among = workers if kind in ("replace", "block") else names
        yield from (target for target, name in enumerate(among) if not concerned or name in concerned)


def shrink(schedule: Schedule, failure: str, most_runs: int = 150) -> Schedule:
    """Returns the shortest schedule found that breaks the same invariant."""
    kept, left = schedule, most_runs
    progress = True
    while progress and left > 0:
        progress = False
        for candidate in _smaller(kept):
            left -= 1
            if kind_of(run(candidate).failure) == kind_of(failure):
                kept, progress = candidate, True
                break
            if left <= 0:
                break
    return kept


def kind_of(failure: str) -> str:
    """Returns a failure without its names and numbers."""
    return "".join(each for each in failure.partition(":")[0].partition("{")[0] if each.isalpha())


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    faults = schedule.faults
    for number in range(len(faults)):
        yield dataclasses.replace(schedule, faults=faults[:number] + faults[number + 1:])
    if schedule.is_fine:
        yield dataclasses.replace(schedule, is_fine=False)
    if schedule.seed:
        yield dataclasses.replace(schedule, seed=0)
    if schedule.setting.num_workers > 1:
        yield dataclasses.replace(schedule, setting=dataclasses.replace(
            schedule.setting, num_workers=schedule.setting.num_workers - 1))
    if schedule.setting.num_ps > 1:
        yield dataclasses.replace(schedule, setting=dataclasses.replace(
            schedule.setting, num_ps=schedule.setting.num_ps - 1))
    for number, fault in enumerate(faults):
        smaller = [fault._replace(secs=secs) for secs in KINDS[fault.kind] if secs < fault.secs]
        points = (1, fault.point // 2, fault.point * 3 // 4, fault.point - 1)
        smaller += [fault._replace(point=point) for point in points if 0 < point < fault.point]
        smaller += [fault._replace(target=fault.target % 4)] if fault.target >= 4 else []
        for each in smaller:
            yield dataclasses.replace(schedule, faults=tuple(sorted(faults[:number] + (each,) + faults[number + 1:])))
