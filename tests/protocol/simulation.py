"""Processes, servers and a network on a virtual clock: the machines that the tasks of a cluster run on.

    Process     its threads (fibers), its server's variables, its own clock; can be killed, frozen, restarted
    Session     stands for tf.Session: a request travels to a server, which runs it op by op on the ps
    World       the queue of what happens next, one thing at a time; each of them is a point where a fault may come

A fiber is a thread that runs only while no other one does. It gives way where it waits: for an answer, an event, a
lock, or time. Between two such places nothing else happens in the world, so a run is determined by its schedule.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
import random
import threading
from collections.abc import Iterator
from typing import Any, Callable

import numpy as np

from ps_train.cluster import reachability
from ps_train.coordination import connection, state
from ps_train.errors import PsTrainError
from ps_train.runtime import clock
from tests.protocol.interpreter import AssertionFailedError, Caller, Execution, NotReadyError, Plan, Store
from tests.tensorflow_mode import tf

LATENCY_SECS = 0.001
_RETRY_SECS = 0.25
_GONE_SECS = 3.0  # a new session with a server that has ended takes so long to fail
_CONNECT_SECS = 2.0  # cluster/reachability.py
KILLED = 137


class Killed(BaseException):
    """Unwinds the threads of a process that was killed."""


class _Abandon(BaseException):
    def __init__(self, frame: _Frame) -> None:
        self.frame = frame


class _Frame:
    """A bounded call that a fiber is in."""

    def __init__(self, end_secs: float, stop: Event | None) -> None:
        self.end_secs, self.stop = end_secs, stop


class Fiber:
    """A thread of a process; has what production code uses of `runtime.clock.Call`."""

    def __init__(self, world: World, process: Process, function: Callable[[], Any], name: str) -> None:
        self.world, self.process, self.name, self._function = world, process, name, function
        self.resume = threading.Lock()
        self.resume.acquire()
        self.frames: list[_Frame] = []
        self.token = 0
        self.is_killed = self.is_done = False
        self.awaits = ""
        self.last_request: Request | None = None
        self.restored_step: int | None = None  # of the checkpoint that it restores
        self._value: Any = None
        self.error: BaseException | None = None
        self._joining: list[Fiber] = []
        process.fibers.append(self)
        threading.Thread(target=self._run, daemon=True, name=f"{process.name} {name}").start()
        world.wake(self)

    def _run(self) -> None:
        self.resume.acquire()
        try:
            if not self.is_killed:
                self._value = self._function()
        except Killed:
            self.is_killed = True
        except BaseException as error:  # noqa: BLE001 (as `Call` does)
            self.error = error
        self.is_done = True
        self.process.fibers.remove(self)
        for fiber in self._joining:
            self.world.wake(fiber)
        if self is self.process.main and not self.is_killed:
            self.process.ended(self.error)
        self.world.dispatch(None)

    def is_alive(self) -> bool:
        return not self.is_done

    def join(self, timeout_secs: float | None = None) -> None:
        fiber = self.world.current
        end_secs = math.inf if timeout_secs is None else fiber.process.now() + timeout_secs
        while not self.is_done and fiber.process.now() < end_secs:
            self._joining.append(fiber)
            self.world.park(end_secs, f"thread {self.name}")

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self._value


class Event:
    """Stands for threading.Event."""

    is_requested = False  # as that of `signals.StopEvent`

    def __init__(self, world: World) -> None:
        self._world, self._is_set = world, False
        self._waiting: dict[Fiber, None] = {}

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        waiting, self._waiting = self._waiting, {}
        for fiber in waiting:
            self._world.wake(fiber)

    def clear(self) -> None:
        self._is_set = False

    def add_waiter(self, fiber: Fiber) -> None:
        self._waiting[fiber] = None

    def wait(self, timeout_secs: float | None = None) -> bool:
        now_secs = self._world.current.process.now()
        end_secs = math.inf if timeout_secs is None else now_secs + timeout_secs
        while not self._is_set and self._world.current.process.now() < end_secs:
            self.add_waiter(self._world.current)
            self._world.park(end_secs, "an event")
        return self._is_set


class Lock:
    """Stands for threading.Lock."""

    def __init__(self, world: World) -> None:
        self._world, self._holder, self._waiting = world, None, []

    def __enter__(self) -> None:
        while self._holder is not None:
            self._waiting.append(self._world.current)
            self._world.park(math.inf, "a lock")
        self._holder = self._world.current

    def __exit__(self, *error: object) -> None:
        self._holder = None
        waiting, self._waiting = self._waiting, []
        for fiber in waiting:
            self._world.wake(fiber)


class VirtualClock:
    """What `runtime.clock.use` puts in the place of time and threads."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> float:
        return self._world.current.process.now()

    def sleep(self, secs: float) -> None:
        end_secs = self.now() + secs
        while self.now() < end_secs:
            self._world.park(end_secs, "time")

    def event(self) -> Event:
        return Event(self._world)

    def lock(self) -> Lock:
        return Lock(self._world)

    def start_call(self, function: Callable[[], Any], name: str) -> Fiber:
        self._world.check_alive()
        return Fiber(self._world, self._world.current.process, function, name)

    def call(
        self, function: Callable[[], Any], name: str, *, timeout_secs: float, stop: Any, remind: Callable[[], None],
    ) -> Any:
        # In the same fiber: what a thread that nobody waits for any more still does on a server goes on there.
        fiber = self._world.current
        frame = _Frame(self.now() + timeout_secs, stop)
        fiber.frames.append(frame)
        try:
            return function()
        except _Abandon as abandon:
            if abandon.frame is frame:
                raise clock.AbandonedError(name) from None
            raise
        finally:
            fiber.frames.remove(frame)


class Process:
    """One task on its machine.

    Attributes:
      fibers: its threads.
      store: the variables of its server.
      incarnation: drawn at each start.
      stop: the event that SIGTERM sets.
      exit_code: None while it runs; of its last run.
      machine: where it runs; a claim knows a port of one machine.
      blocked_until_secs: its server runs no call before that time.
    """

    def __init__(self, world: World, name: str, address: str, main: Callable[[Process], Any]) -> None:
        self.world, self.name, self.address = world, name, address
        self._main = main
        self.fibers: list[Fiber] = []
        self.is_alive = False
        self.exit_codes: list[int] = []
        self.error: BaseException | None = None
        self.incarnation = 0
        self.machine = 0
        self.frozen_until_secs = self.blocked_until_secs = 0.0
        self.started_secs = self.ended_secs = 0.0
        self.rate, self._anchor = 1.0, (0.0, 100.0)
        self.learning_rate: float | None = None
        self.last_rate: float | None = None  # of its last run
        self.main: Fiber | None = None
        self.stop: Event | None = None
        self.store = Store(world.draw)

    @property
    def exit_code(self) -> int | None:
        return None if self.is_alive or not self.exit_codes else self.exit_codes[-1]

    def now(self) -> float:
        """Returns the seconds of its own clock."""
        begun_secs, own_secs = self._anchor
        return own_secs + (self.world.now_secs - begun_secs) * self.rate

    def set_rate(self, rate: float) -> None:
        self._anchor = (self.world.now_secs, self.now())
        self.rate = rate

    def global_secs(self, own_secs: float) -> float:
        """Returns the world's time at a time of its own clock."""
        begun_secs, then_secs = self._anchor
        return begun_secs + (own_secs - then_secs) / self.rate

    def start(self, machine: int | None = None) -> None:
        if self.is_alive or self.world.is_over:
            return
        self.machine = self.machine if machine is None else machine
        self.is_alive, self.error, self.frozen_until_secs, self.blocked_until_secs = True, None, 0.0, 0.0
        self.started_secs = self.world.now_secs
        self.incarnation = next(self.world.numbers)
        self.store = Store(self.world.draw)
        self.stop = Event(self.world)
        self.world.note(f"{self.name} starts")
        self.main = Fiber(self.world, self, lambda: self._main(self), "main")

    def ended(self, error: BaseException | None) -> None:
        """Its main thread has ended, and with it the process."""
        self.error = error
        code = 0 if error is None else getattr(error, "exit_code", 1) if isinstance(error, PsTrainError) else 1
        self._end(code)
        self.world.note(f"{self.name} exits with {code}{f': {error}' if error else ''}")
        self.world.on_exit(self, code)

    def kill(self) -> None:
        if self.is_alive:
            self._end(KILLED)

    def _end(self, code: int) -> None:
        self.is_alive, self.ended_secs = False, self.world.now_secs
        self.learning_rate = None  # what is started now has the flags of the newest training
        self.exit_codes.append(code)
        self.store = Store(self.world.draw)
        for fiber in self.fibers:
            fiber.is_killed = True
            self.world.wake(fiber)
        self.world.process_ended(self)


class Session:
    """Stands for tf.Session; its calls go through the server at `target`."""

    def __init__(self, world: World, target: str, graph: tf.Graph, config: tf.ConfigProto) -> None:
        self._world = world
        self.client = world.current.process
        self.graph = graph
        self.address = target.removeprefix("grpc://")
        specs = [tf.DeviceSpec.from_string(device) for device in config.device_filters]
        self.tasks = [f"{spec.job}:{spec.task}" for spec in specs if spec.task is not None]
        self.incarnations: dict[str, int] | None = None  # of the server and of the tasks, once it is open
        self.is_closed = False
        self.requests: set[Request] = set()

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None) -> Any:
        self._world.check_alive()
        if self.is_closed:
            raise RuntimeError("Attempted to use a closed Session.")
        flat = _flatten(fetches)
        feeds = {tensor: _as_fed(tensor, value) for tensor, value in (feed_dict or {}).items()}
        plan = self._world.plan(self.graph, flat, list(feeds))
        request = Request(self._world, self, plan, {tensor.name: value for tensor, value in feeds.items()})
        self._world.current.last_request = request
        timeout_secs = options.timeout_in_ms / 1000 if options is not None and options.timeout_in_ms else math.inf
        values = request.wait(timeout_secs)
        return _rebuild(fetches, iter(values))

    def close(self) -> None:
        self.is_closed = True
        for request in list(self.requests):
            request.fail(tf.errors.CancelledError(None, None, "the session was closed"))


def _as_fed(tensor: tf.Tensor, value: Any) -> Any:
    if tensor.dtype == tf.string:
        return value.encode() if isinstance(value, str) else value
    return np.asarray(value, tensor.dtype.as_numpy_dtype)


def _flatten(fetches: Any) -> list[Any]:
    if isinstance(fetches, (list, tuple)):
        return [each for fetch in fetches for each in _flatten(fetch)]
    return [fetches]


def _rebuild(fetches: Any, values: Iterator[Any]) -> Any:
    if isinstance(fetches, (list, tuple)):
        rebuilt = [_rebuild(fetch, values) for fetch in fetches]
        return type(fetches)(*rebuilt) if hasattr(fetches, "_fields") else type(fetches)(rebuilt)
    return next(values)


class Request(Caller):
    """A call of `Session.run` on its way, on the servers, and on its way back."""

    def __init__(self, world: World, session: Session, plan: Plan, values: dict[str, Any]) -> None:
        super().__init__(next(world.numbers))
        self._world, self.session, self._plan, self._values = world, session, plan, values
        self._execution: Execution | None = None
        self.fiber = world.current
        self.is_done = False
        self.is_over = False  # nothing more happens on the servers
        self._results: list[Any] = []
        self._error: Exception | None = None
        self._began_secs = world.now_secs
        self._locks: list[tuple[Store, str]] = []
        self._contacted: set[int | None] = set()  # the ps that have the call and its own values
        self.operation = ""  # the type of the last one
        self.seen: dict[str, Any] = {}  # what the watchers of reads have noted
        session.requests.add(self)
        world.in_flight.add(self)
        world.push(LATENCY_SECS, self._begin)

    @property
    def is_local(self) -> bool:
        """Whether a ps calls itself."""
        client = self.session.client
        return client.address == self.session.address and client.name.startswith("ps:")

    def wait(self, timeout_secs: float) -> list[Any]:
        process = self.fiber.process
        end_secs = process.now() + timeout_secs
        while not self.is_done:
            if process.now() >= end_secs:
                self.fail(tf.errors.DeadlineExceededError(None, None, "Timed out waiting for notification"))
                break
            self._world.park(end_secs, f"an answer of {self.session.address}")
        if self._error is not None:
            raise self._error
        return self._results

    def fail(self, error: Exception) -> None:
        """Ends it with an error; nothing more of it runs on the servers."""
        if not self.is_done:
            self.is_done = True
            self._error = error
            self.abort()
            self._world.wake(self.fiber)

    def abort(self) -> None:
        """Runs nothing more of it on the servers."""
        self.is_over = True
        self.session.requests.discard(self)
        self._world.in_flight.discard(self)
        for store, name in self._locks:
            store.locks[name] = False
        if self._locks:
            self._world.unblock()

    def lose_answer(self) -> bool:
        """Lets its answer be lost, if it has one; returns whether it has."""
        if self.is_done or not self.is_over:
            return False
        self.fail(tf.errors.UnavailableError(None, None, "Socket closed"))
        return True

    def _begin(self) -> None:
        if self.is_over:
            return
        client = self.session.client
        server = client if client.address == self.session.address else self._world.at(self.session.address)
        is_new = self.session.incarnations is None
        if server is None or not server.is_alive:
            if not is_new or self._world.now_secs - self._began_secs >= _GONE_SECS:
                self.fail(tf.errors.UnavailableError(None, None, "failed to connect to all addresses"))
            else:
                self._world.push(_RETRY_SECS, self._begin)
            return
        if not self._world.reaches(self.session.client, server) or server.blocked_until_secs > self._world.now_secs:
            self._world.push(_RETRY_SECS, self._begin)
            return
        tasks = [server if name == server.name else self._world.processes[name]
                 for name in self.session.tasks if name in self._world.processes]
        if is_new:
            if not all(task.is_alive and self._world.reaches(server, task) for task in tasks):
                self._world.push(_RETRY_SECS, self._begin)
                return
            self.session.incarnations = {task.name: task.incarnation for task in [server, *tasks]}
        if self.session.incarnations[server.name] != server.incarnation:
            self.fail(tf.errors.AbortedError(None, None, "Session handle is not found"))
            return
        self._execution = Execution(self._plan, self._values)
        self._server = server
        self._progress()

    def _progress(self) -> None:
        """Runs the next operation, or in a coarse world all of them."""
        while not self.is_over:
            if self._execution.is_done:
                self.is_over = True
                self._world.push(LATENCY_SECS, self._answer, self)
                return
            pause_secs = self._run_one()
            if pause_secs is None:
                return
            if pause_secs or self._world.is_fine:
                self._world.push(pause_secs or LATENCY_SECS / 2, self._progress)
                return

    def _run_one(self) -> float | None:
        """Returns the seconds until the next operation; None if another request has to come first, or it has failed."""
        ready = list(self._execution.ready)
        self._world.shuffle(ready)
        for instance in ready:
            ps = instance.ps
            place = self._server if ps is None else self._world.processes.get(f"ps:{ps}")
            if not place.is_alive:
                self.fail(tf.errors.UnavailableError(None, None, f"{place.name} is gone"))
                return None
            if self.session.incarnations.setdefault(place.name, place.incarnation) != place.incarnation:
                self.fail(tf.errors.AbortedError(None, None, f"{place.name} has restarted"))
                return None
            # What follows operations of this ps only goes on while the server of the call is frozen.
            needs_packet = ps not in self._contacted or not instance.places <= {ps, None}
            if not self._world.reaches(self._server if needs_packet else place, place):
                return _RETRY_SECS
            self._contacted.add(ps)
            try:
                has_run = self._world.run_operation(place, self, self._execution, instance)
            except NotReadyError as error:
                self.fail(tf.errors.FailedPreconditionError(None, None, str(error)))
                return None
            except AssertionFailedError as error:
                self.fail(tf.errors.InvalidArgumentError(None, None, str(error)))
                return None
            if has_run:
                self._note_lock(place.store, instance)
                return 0.0
        self._world.blocked.append(self)
        return None

    def _note_lock(self, store: Store, instance: Any) -> None:
        if instance.node.type == "MutexLock":
            self._locks.append((store, instance.inputs[0][1]))
        elif instance.node.type == "ConsumeMutexLock":
            self._locks.remove((store, instance.inputs[0][1]))

    def unblock(self) -> None:
        self._progress()

    def _answer(self) -> None:
        if self.is_done:
            return
        server = self._server
        if not server.is_alive:
            self.fail(tf.errors.UnavailableError(None, None, "Socket closed"))
        elif not self._world.reaches(server, self.session.client):
            self._world.push(_RETRY_SECS, self._answer, self)
        else:
            self._results = self._execution.results()
            self.is_done = True
            self.abort()
            self._world.wake(self.fiber)


class World:
    """All processes, and the queue of what happens next.

    Attributes:
      now_secs: the time.
      points: how many things have happened.
      trace: what happened at which point, if it is kept.
      disturbed_until: task -> the time from which on no fault concerns it; see `disturb`.
      delayed_until_secs: the same for a fault by which a task is late, and which others do not see.
    """

    def __init__(
        self, *, seed: int = 0, is_fine: bool = False, horizon_secs: float = 4000.0, keeps_trace: bool = False,
        at_point: Callable[[World, int, Any], float] = lambda world, point, item: 0.0,
    ) -> None:
        """Creates an empty world.

        Args:
          seed: of latencies and of the order of operations that may run in any; 0 for fixed ones.
          is_fine: whether other things happen between two operations of one call.
          horizon_secs: when the run ends, whatever still waits.
          at_point: called before each thing that happens; returns the seconds by which it is delayed.
        """
        self.now_secs, self.points = 0.0, 0
        self.is_fine, self._horizon_secs, self._at_point = is_fine, horizon_secs, at_point
        self._random = random.Random(seed) if seed else None
        self._draws = random.Random(seed + 1)
        self.numbers = itertools.count(1)
        self._order = itertools.count()
        self._queue: list[tuple[float, int, Any, Any]] = []
        self.processes: dict[str, Process] = {}
        self.replaced: list[Process] = []
        self._addresses: dict[str, Process] = {}
        self.blocked: list[Request] = []
        self.in_flight: set[Request] = set()
        self._cuts: dict[frozenset[str], float] = {}
        self.current: Fiber | None = None
        self.failure: BaseException | None = None
        self.is_over = False
        self.trace: list[str] | None = [] if keeps_trace else None
        self._main = threading.Lock()
        self._main.acquire()
        self._on_write: dict[str, list[Callable[[Process, Request, Any, Any], None]]] = {}
        self._on_read: dict[str, Callable[[Process, Request], None]] = {}
        self.disturbed_until: dict[str, float] = {}
        self.delayed_until_secs = 0.0
        self.on_exit: Callable[[Process, int], None] = lambda process, code: None

    # What tests set up

    def add(self, name: str, address: str, main: Callable[[Process], Any]) -> Process:
        """Adds a task, which is not started yet."""
        process = Process(self, name, address, main)
        self.processes[name] = self._addresses[address] = process
        return process

    def replace(self, process: Process) -> Process:
        """Returns another process for the same task, which has its address from now on."""
        other = Process(self, process.name, process.address, process._main)
        self.replaced.append(process)
        self.processes[process.name] = self._addresses[process.address] = other
        return other

    def on_write(self, name: str, call: Callable[[Process, Request, Any, Any], None]) -> None:
        """Calls `call(process that has the variable, request that has written it, old value, new value)`."""
        self._on_write.setdefault(name, []).append(call)

    def on_read(self, name: str, call: Callable[[Process, Request], None]) -> None:
        """Calls `call(process that has the variable, request that reads it)`, before it is read."""
        self._on_read[name] = call

    def disturb(self, name: str, secs: float) -> None:
        """Notes that a fault concerns a task for this long."""
        self.disturbed_until[name] = max(self.disturbed_until.get(name, 0.0), self.now_secs + secs)

    def delay(self, secs: float) -> None:
        """Notes that a task is late for this long, which others do not see."""
        self.delayed_until_secs = max(self.delayed_until_secs, self.now_secs + secs)

    def quiet_since(self, *names: str) -> float:
        """Returns the time from which on no fault concerned any of these tasks."""
        return max(self.disturbed_until.get(name, 0.0) for name in names)

    def workers(self) -> list[Process]:
        return [process for name, process in self.processes.items() if name.startswith("worker:")]

    def run(self) -> None:
        """Runs until all processes have ended or the horizon is reached; raises the failure of an invariant."""
        threads_before = threading.active_count()
        with installed(self):
            self.dispatch(None)
            self._main.acquire()
            self._close()
        assert threading.active_count() <= threads_before + 3, threading.enumerate()
        if self.failure is not None:
            raise self.failure

    def _close(self) -> None:
        self.is_over = True
        for process in [*self.processes.values(), *self.replaced]:
            for fiber in list(process.fibers):
                fiber.is_killed = True
                self.current = fiber
                fiber.resume.release()
                self._main.acquire()

    # Time

    def draw(self, most: int) -> int:
        return self._draws.randrange(1, most)

    def shuffle(self, items: list[Any]) -> None:
        if self._random and len(items) > 1:
            self._random.shuffle(items)

    def push(self, secs: float, function: Callable[[], None], item: Any = None) -> None:
        """Lets something happen later."""
        if self._random and secs <= LATENCY_SECS:
            secs *= self._random.choice((1, 1, 1, 3, 10))
        heapq.heappush(self._queue, (self.now_secs + secs, next(self._order), function, item))

    def wake(self, fiber: Fiber, secs: float = 0.0) -> None:
        """Lets a fiber go on."""
        heapq.heappush(self._queue, (self.now_secs + secs, next(self._order), fiber, fiber.token))

    def park(self, end_secs: float, awaits: str) -> None:
        """Lets others run until the current fiber is woken, or its own clock shows `end_secs`."""
        fiber = self.current
        self._check(fiber)
        fiber.awaits = awaits
        ends = [end_secs, *(frame.end_secs for frame in fiber.frames)]
        least_secs = min(ends)
        for frame in fiber.frames:
            if frame.stop is not None:
                frame.stop.add_waiter(fiber)
        if least_secs < math.inf:
            self.wake(fiber, max(0.0, fiber.process.global_secs(least_secs) - self.now_secs) + 1e-9)
        self.dispatch(fiber)
        self._check(fiber)

    def check_alive(self) -> None:
        if self.current.is_killed or self.is_over:
            raise Killed

    def _check(self, fiber: Fiber) -> None:
        if fiber.is_killed or self.is_over:
            raise Killed
        for frame in fiber.frames:
            if fiber.process.now() >= frame.end_secs or (frame.stop is not None and frame.stop.is_set()):
                raise _Abandon(frame)

    def dispatch(self, fiber: Fiber | None) -> None:
        """Lets things happen until it is the turn of a fiber; returns when it is that of this one."""
        following = None if self.is_over else self._next()
        if following is fiber and fiber is not None:
            self.current = fiber
            return
        if following is None:
            self._main.release()
        else:
            self.current = following
            following.resume.release()
        if fiber is not None:
            fiber.resume.acquire()
            self.current = fiber

    def _next(self) -> Fiber | None:
        try:
            while self._queue and self.failure is None:
                secs, order, thing, item = heapq.heappop(self._queue)
                is_fiber = isinstance(thing, Fiber)
                if is_fiber and (thing.is_done or thing.token != item):
                    continue
                if secs > self._horizon_secs:
                    return None
                self.now_secs = max(self.now_secs, secs)
                if is_fiber and not thing.is_killed and thing.process.frozen_until_secs > self.now_secs:
                    heapq.heappush(self._queue, (thing.process.frozen_until_secs, order, thing, item))
                    continue
                self.points += 1
                delay_secs = self._at_point(self, self.points, thing if is_fiber else item)
                if delay_secs:
                    heapq.heappush(self._queue, (self.now_secs + delay_secs, order, thing, item))
                elif not is_fiber:
                    thing()
                elif not thing.is_done and thing.token == item:
                    thing.token += 1
                    return thing
        except BaseException as error:  # noqa: BLE001 (raised again by `run`)
            self.failure = error
        return None

    # The network

    def at(self, address: str) -> Process | None:
        return self._addresses.get(address)

    def cut(self, one: str, other: str, secs: float) -> None:
        """Drops all packets between two tasks for a time."""
        self._cuts[frozenset((one, other))] = self.now_secs + secs

    def reaches(self, one: Process, other: Process) -> bool:
        """Returns whether a packet between two processes arrives and is answered now."""
        if self._cuts.get(frozenset((one.name, other.name)), 0.0) > self.now_secs:
            return False
        return max(one.frozen_until_secs, other.frozen_until_secs) <= self.now_secs

    def process_ended(self, process: Process) -> None:
        """Ends the requests of a process, and those of others that its server has begun."""
        for request in [request for request in self.in_flight if request.session.client is process]:
            request.abort()
        self.unblock()

    def unblock(self) -> None:
        """Lets the requests go on that waited for another one."""
        blocked, self.blocked = self.blocked, []
        for request in sorted(blocked, key=lambda request: request.number):
            self.push(0.0, request.unblock)

    def run_operation(self, process: Process, request: Request, execution: Execution, instance: Any) -> bool:
        """Runs an operation of a request on the variables of a process; returns false if it has to wait."""
        node = instance.node
        name = instance.inputs[0][1] if instance.inputs and isinstance(instance.inputs[0], tuple) else ""
        is_write = not node.type.startswith(("Read", "ResourceGather", "VarIs"))
        watching = self._on_write.get(name, ()) if is_write else ()
        old = process.store.values.get(name) if watching else None
        if not is_write and name in self._on_read:
            self._on_read[name](process, request)
        process.store.caller, request.operation = request, node.type
        if not execution.step(instance, process.store):
            return False
        for watch in watching:
            watch(process, request, old, process.store.values.get(name))
        if is_write and self.blocked:
            self.unblock()
        return True

    def plan(self, graph: tf.Graph, fetches: list[Any], fed: list[tf.Tensor]) -> Plan:
        kept = graph.get_collection_ref("plans of the twin")  # a graph takes no further attributes
        if not kept:
            kept.append({})
        plans = kept[0]
        key = (tuple(fetch.name for fetch in fetches), tuple(sorted(tensor.name for tensor in fed)))
        if key not in plans:
            plans[key] = Plan(graph, fetches, fed)
        return plans[key]

    def note(self, text: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.points:>6}  {self.now_secs:9.3f} s  {text}")


@contextlib.contextmanager
def installed(world: World) -> Iterator[None]:
    """Lets the code of ps_train run in a world while its body runs."""
    def session(target: str = "", graph: Any = None, config: Any = None) -> Session:
        return Session(world, target, graph, config)

    def connection_error(address: str) -> OSError | None:
        process = world.at(address)
        here = world.current.process
        end_secs = here.now() + _CONNECT_SECS
        is_cut = process is not None and world._cuts.get(
            frozenset((here.name, process.name)), 0.0) > world.now_secs
        world.park(end_secs if is_cut else here.now() + LATENCY_SECS, f"a connection to {address}")
        if is_cut:
            return TimeoutError("timed out")
        return None if process is not None and process.is_alive else ConnectionRefusedError("refused")

    def place(port: int) -> int:
        return (world.current.process.machine * 65536 + port) % 2**31

    patches = [(connection, "_Session", session),
               (reachability, "_connection_error", connection_error), (state, "_place", place)]
    with contextlib.ExitStack() as stack:
        stack.enter_context(clock.use(VirtualClock(world)))
        for module, name, value in patches:
            stack.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, value)
        yield
