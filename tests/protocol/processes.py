"""Processes, their threads and their clocks, in a simulated world.

    Process       a task on its machine: its fibers, its server's variables, its clock; is killed, frozen, restarted
    Fiber         a thread of it, which runs only while no other one does
    VirtualClock  what `runtime.clock.use` puts in the place of time, events, locks and threads

A fiber gives way where it waits: for an answer, an event, a lock, or time.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any, Callable

from ps_train.errors import PsTrainError
from ps_train.runtime import clock
from tests.protocol.operations import Store

if TYPE_CHECKING:
    from tests.protocol.sessions import Request
    from tests.protocol.simulation import World

KILLED = 137


class Killed(BaseException):
    """Unwinds the threads of a process that was killed."""


class Abandon(BaseException):
    """Unwinds a fiber out of a bounded call."""

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

    is_requested = False  # as that of `waits.StopEvent`

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
        except Abandon as abandon:
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
