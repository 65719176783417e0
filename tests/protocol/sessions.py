"""Calls of `Session.run` in a simulated world: on their way, on the servers, and on their way back.

    Session    stands for tf.Session; its calls go through the server at `target`
    Request    one call: the server runs it operation by operation on the ps, as far as packets arrive
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.protocol.interpreter import Execution, Plan
from tests.protocol.operations import AssertionFailedError, Caller, NotReadyError, Store
from tests.tensorflow_mode import tf

if TYPE_CHECKING:
    from tests.protocol.simulation import World

LATENCY_SECS = 0.001
_RETRY_SECS = 0.25
_GONE_SECS = 3.0  # a new session with a server that has ended takes so long to fail


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
        self.requests: dict[Request, None] = {}  # in their order, which a set would not keep

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
    return [getattr(fetches, "_graph_element", fetches)]  # of a variable, its value


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
        self.has_written = False  # anything but the time
        self.seen: dict[str, Any] = {}  # what the watchers of reads have noted
        session.requests[self] = None
        world.in_flight[self] = None
        world.push(LATENCY_SECS, self._begin)

    def answer(self) -> tuple[Any, str]:
        """Returns what was asked by whom, and the answer without times."""
        values = [value for value in self._results if np.asarray(value).dtype != np.float64]
        return (self.session.client.name, self._plan), str(values)

    def tasks(self) -> frozenset[str]:
        """Returns the tasks that it concerns: its client, its server, and the ps whose variables it needs."""
        server = self._world.at(self.session.address)
        of_ps = {f"ps:{node.ps}" for node in self._plan.nodes if node.ps is not None}
        return frozenset([self.session.client.name, *([server.name] if server else []), *of_ps])

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
        self.session.requests.pop(self, None)
        self._world.in_flight.pop(self, None)
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
