"""The other workers that a session needs, because its graph or its device filters name them.

    a session is created    each of them must be there  --> ClusterLostError after the start time-out
    a step runs             one of them is lost         --> the same; the process ends, as the step would not
                            it averages all workers     --> a warning with the names of those that are not there

TensorFlow waits without a bound in both cases, and does not say for which task. As long as steps end, it does not
matter whether a worker is lost: a graph may name workers that its steps do not use.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterable, Iterator

from ps_train.cluster import reachability
from ps_train.cluster.spec import Cluster, Task
from ps_train.errors import BlackboardError, ClusterLostError
from ps_train.graph.devices import task_of
from ps_train.parts.legacy.classic.membership import Membership, Outside, Serving, current

_log = logging.getLogger(__name__)
_running: dict[object, float] = {}  # each call of a session's `run` -> when it began


def others_in(filters: Iterable[str], cluster: Cluster) -> list[Task]:
    """Returns the tasks that device filters name, without the ps and this task."""
    named = {task_of(one) for one in filters}
    return [Task(job, index, address) for job, tasks in cluster.addresses.items() if job != "ps"
            for index, address in tasks.items()
            if address != cluster.task.address and {(job, index), (job, None)} & named]


def await_others(member: Membership | Serving, tasks: list[Task]) -> None:
    """Waits until the tasks are there, and from then on watches them during the steps of a worker.

    Raises:
      ClusterLostError: one of them did not come within the start time-out; the error names it.
      StoppedError: a signal asked this process to stop.
    """
    reachability.wait_for_tasks(tasks, member.timeouts.start_secs, member.stop)
    if not isinstance(member, Membership) or not tasks:
        return
    watch = next((service for service in member.update_services if isinstance(service, StepWatch)), None)
    if watch is None:
        watch = StepWatch(member.timeouts.heartbeat_secs, member.timeouts.start_secs)
        member.update_services.append(watch)
    watch.tasks = [*watch.tasks, *(task for task in tasks if task not in watch.tasks)]


def await_all(server: Outside, filters: Iterable[str]) -> None:
    """Waits until the tasks are there that a new session looks for: all of its cluster that its device filters show.

    Raises:
      ClusterLostError: one of them did not come within the start time-out; the error names it.
    """
    named = {task_of(one) for one in filters}
    shows_all = not named or (None, None) in named
    tasks = [Task(job, index, address) for job, tasks in server.cluster.addresses.items()
             for index, address in tasks.items()
             if address != server.cluster.task.address and (shows_all or {(job, index), (job, None)} & named)]
    reachability.wait_for_tasks(tasks, server.timeouts.start_secs, threading.Event())


def warn_of_missing(name: str) -> None:
    """Warns of missing workers while a step takes long: what has this name waits for all of them, without a bound."""
    member = current()
    if member is not None and not any(isinstance(service, MissingWarning) for service in member.update_services):
        member.update_services.append(MissingWarning(member, name))


@contextlib.contextmanager
def step() -> Iterator[None]:
    """Notes that a session runs a step while its body runs."""
    key = object()
    _running[key] = time.monotonic()
    try:
        yield
    finally:
        del _running[key]


class StepWatch:
    """Looks for lost workers while a step takes long. The membership calls `check` once a second.

    Attributes:
      tasks: the workers.
    """

    is_of_training = False  # the steps of the next training may need them, too

    def __init__(self, long_secs: float, lost_secs: float) -> None:
        """Takes when a step is long enough to look, and when a worker that does not answer is lost."""
        self.tasks: list[Task] = []
        self._long_secs, self._lost_secs = long_secs, lost_secs
        self._begun_secs = 0.0  # of the step that has taken longest
        self._silent: dict[Task, float] = {}  # since when one does not answer during this step

    def check(self) -> None:
        """Raises ClusterLostError if a worker has not answered for too long during one and the same step."""
        begun_secs, now_secs = min(list(_running.values()), default=None), time.monotonic()
        if begun_secs != self._begun_secs:
            self._begun_secs, self._silent = begun_secs, {}
        if begun_secs is None or now_secs - begun_secs < self._long_secs:
            return
        self._silent = {task: self._silent.get(task, now_secs) for task in self.tasks
                        if not reachability.accepts(task.address)}
        lost = [str(task) for task, secs in self._silent.items() if now_secs - secs > self._lost_secs]
        if lost:
            raise ClusterLostError("timed_out", f"waited {self._lost_secs:g} s for {', '.join(lost)}, which the graph "
                                   "of the script names, in the middle of a step")

    def conclude(self, *, waits_for_others: bool, is_final: bool) -> None:
        """Does nothing: no other task depends on it."""


class MissingWarning:
    """Warns of workers without a heartbeat while a step takes long. The membership calls `check` once a second."""

    is_of_training = False  # it is there before the training is

    def __init__(self, member: Membership, name: str) -> None:
        """Takes what waits for all workers, by its name."""
        self._member, self._name = member, name
        self._told: set[str] = set()  # those that the last warning named

    def check(self) -> None:
        """Warns if workers are missing that the last warning did not name."""
        begun_secs, cluster = min(list(_running.values()), default=None), self._member.cluster
        if begun_secs is None or time.monotonic() - begun_secs < self._member.timeouts.heartbeat_secs:
            return
        with contextlib.suppress(BlackboardError):  # the membership looks after lost ps
            snapshot = self._member.snapshot()
            missing = {task.name for task in cluster.workers if not snapshot.is_alive(cluster.number_of(task))}
            if missing - self._told:
                _log.warning("%s waits for all workers, and has nothing from %s: start those that did not end by "
                             "themselves again", self._name, ", ".join(sorted(missing)))
            self._told = missing

    def conclude(self, *, waits_for_others: bool, is_final: bool) -> None:
        """Does nothing: no other task depends on it."""
