"""The world of a simulated cluster: what happens next, one thing at a time, and the network.

    processes.py   the processes, their threads and clocks
    sessions.py    their calls to servers
    World          the queue of what happens; each of its things is a point where a fault may come

Between two places where a fiber gives way nothing else happens, so a run is determined by its schedule.
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

from ps_train.cluster import reachability
from ps_train.coordination import sessions, state
from ps_train.runtime import clock
from tests.protocol.interpreter import Execution, Plan
from tests.protocol.processes import Abandon, Fiber, Killed, Process, VirtualClock
from tests.protocol.sessions import LATENCY_SECS, Request, Session
from tests.tensorflow_mode import tf

_CONNECT_SECS = 2.0  # cluster/reachability.py
_TIMES = {"ps_train/clock", "ps_train/heartbeats", "ps_train/steps", ""}


class World:
    """All processes, and the queue of what happens next.

    Attributes:
      now_secs: the time.
      points: how many things have happened.
      trace: what happened at which point, if it is kept.
      coming: what happens at this point, a fiber that goes on or a function.
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
        self.in_flight: dict[Request, None] = {}  # in their order, which a set would not keep
        self._cuts: dict[frozenset[str], float] = {}
        self.current: Fiber | None = None
        self.failure: BaseException | None = None
        self.coming: Any = None
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
                raise Abandon(frame)

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
                self.coming = thing
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

    def concerned(self) -> frozenset[str]:
        """Returns the tasks that what comes concerns; none if that cannot be told."""
        if isinstance(self.coming, Fiber):
            return frozenset([self.coming.process.name])
        source = getattr(self.coming, "__self__", None)
        if isinstance(source, Process):
            return frozenset([source.name])
        return source.tasks() if isinstance(source, Request) else frozenset()

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
        request.has_written |= is_write and name not in _TIMES and not name.endswith("mutex")
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

    patches = [(sessions, "Session", session),
               (reachability, "connection_error", connection_error), (state, "_place", place)]
    with contextlib.ExitStack() as stack:
        stack.enter_context(clock.use(VirtualClock(world)))
        for module, name, value in patches:
            stack.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, value)
        yield
