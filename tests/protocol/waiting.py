"""For what a task may wait and for how long, and for what an update has to wait; docs/faults.md has a line for each.

    updates      the workers that are alive, none that has died, and with --staleness_bound none runs too far ahead
    heartbeats   a worker that no fault concerns counts as alive
    the end      not for a worker that has ended; a worker that is back in time learns of it, and a ps ends with 0
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ps_train.coordination.state import State
from tests.protocol.processes import Process
from tests.protocol.sessions import Request
from tests.protocol.simulation import World
from tests.protocol.tasks import Training

HEARTBEAT_TIMEOUT_SECS = 10.0
_QUORUM_SECS = 5.0  # until the chief counts a worker that is back: a heartbeat, a check, and calls that fail before
_NOTICE_SECS = 4.0  # until updates go on without a worker whose heartbeat is too old, or which has left
_REJOIN_SECS = 1.0  # until a step is over that began while another worker counted as dead
_LONGEST_END_SECS = 20.0
_LATE_SECS = 3.0  # after the end; the ps stay longer for a worker that may come


class WaitingWatcher:
    """Looks at updates, heartbeats and the end."""

    def __init__(self, world: World, training: Training) -> None:
        self._world, self._training, self._setting = world, training, training.setting
        self._history = training.history
        self._ps = [f"ps:{index}" for index in range(self._setting.num_ps)]
        self._last_update_secs = 0.0
        self._seen: set[int] = set()  # workers that have taken a step since the parameters were prepared
        self._claimed_secs: dict[int, float] = {}
        self._done_secs: float | None = None
        self._heard_end: dict[str, int] = {}  # ps -> the incarnation that has heard it
        self._heard_secs: dict[int, float] = {}
        self._ahead = np.zeros([self._setting.num_workers] * 2)
        self._since_secs: dict[int, float] = {}
        self._old_rate_secs = 0.0
        world.on_write("ps_train/state", self._state)
        world.on_write("global_step", self._global_step)
        world.on_write("counts_0", self._counts)
        world.on_write("ps_train/claims", self._claims)
        world.on_write("ps_train/clock", self._clock)

    def fail(self, text: str) -> None:
        self._history.fail(text)

    @property
    def _is_simple(self) -> bool:
        """Whether there is one training, and one process for each task."""
        return not (self._training.has_two or self._world.replaced)

    def _worker(self, number: int) -> Process:
        return self._world.processes[f"worker:{number}"]

    def _in_loop_since(self, number: int) -> float | None:
        """Returns since when a worker takes steps, or None."""
        since, process = self._history.in_loop_since[number], self._worker(number)
        return since if process.is_alive and since is not None and since >= process.started_secs else None

    def _on_time_since(self, *names: str) -> float:
        """Returns since when no fault concerns these tasks, slow clocks included."""
        has_slow = any(self._world.processes[name].rate != 1.0 for name in names)
        return math.inf if has_slow else self._world.quiet_since(*names)

    def _state(self, ps: Process, request: Request, old: Any, new: Any) -> None:
        if ps.name == "ps:0" and new == State.RUNNING:
            self._seen = set()
            self._last_update_secs = self._world.now_secs
        if new == State.DONE:
            self._heard_end[ps.name] = ps.incarnation
        if new == State.DONE and self._done_secs is None:
            self._done_secs = self._world.now_secs
            self._check_end()

    # Updates

    def _global_step(self, ps: Process, request: Request, old: Any, new: Any) -> None:
        if old is None or new <= old:
            return
        now_secs, last_secs = self._world.now_secs, self._last_update_secs
        self._last_update_secs = now_secs
        seen_before = frozenset(self._seen)
        self._seen |= {number for number in range(self._setting.num_workers)
                       if self._in_loop_since(number) is not None}
        chief_secs = self._in_loop_since(0)
        if not (self._setting.is_sync and self._is_simple) or chief_secs is None or (
                len(self._seen) < self._setting.num_workers):
            return
        since = max(last_secs, chief_secs, self._on_time_since("worker:0", *self._ps),
                    self._world.delayed_until_secs)
        if now_secs - since > HEARTBEAT_TIMEOUT_SECS + _NOTICE_SECS:
            self.fail(f"updates wait for workers that are dead: {now_secs - since:.1f} s without one")
        self._check_stopped(since, seen_before)

    def _check_stopped(self, since_secs: float, seen_before: frozenset[int]) -> None:
        """An update that was due at a time does not wait for workers that SIGTERM has ended.

        One that was stopped before it took a step is awaited, as every worker is until the time of the start is over.
        """
        others = [self._worker(number) for number in range(1, self._setting.num_workers)]
        stopped = [process for process in others if process.exit_codes[-1:] == [143]]
        if any(self._world.quiet_since(process.name) for process in others if process not in stopped):
            return
        for process in stopped:
            if int(process.name.removeprefix("worker:")) not in seen_before:
                continue
            until_secs = process.started_secs if process.is_alive else self._world.now_secs
            waited_secs = until_secs - max([since_secs, *(process.ended_secs for process in stopped)])
            if waited_secs > _NOTICE_SECS:
                self.fail(f"updates wait for a worker that was stopped, for {waited_secs:.1f} s")

    def _counts(self, ps: Process, request: Request, old: Any, new: Any) -> None:
        if request.operation == "AssignVariableOp" or not self._is_simple:
            return
        if self._setting.is_sync:
            self._check_quorum(request)
        else:
            self._check_bound(int(request.session.client.name.removeprefix("worker:")))

    def _check_quorum(self, request: Request) -> None:
        """An update has a gradient of each worker that is alive and takes steps."""
        now_secs, setting = self._world.now_secs, self._setting
        gradients = request.taken_from("ps_train/gate")
        if setting.drops_late or gradients is None or self._in_loop_since(0) is None:
            return
        awaited = {0}
        for number in range(1, setting.num_workers):
            since = max(self._claimed_secs.get(number, 0.0), self._world.delayed_until_secs,
                        self._on_time_since(f"worker:{number}", "worker:0", *self._ps))
            if self._in_loop_since(number) is not None and now_secs - since >= _QUORUM_SECS:
                awaited.add(number)
        if len(gradients) < len(awaited):
            self.fail(f"an update does not wait for a worker that is alive: it has {len(gradients)} gradients, and "
                      f"these workers take steps: {sorted(awaited)}")

    def _check_bound(self, number: int) -> None:
        """No worker is more steps ahead of one that is alive than the bound.

        Who joins is level with the slowest, and who counted as dead need not catch up.
        """
        bound = dict(self._setting.flags).get("staleness_bound")
        if not bound:
            return
        for other in range(self._setting.num_workers):
            since = self._in_loop_since(other)
            if since is not None and since != self._since_secs.get(other):  # it has joined, here or in a new session
                self._since_secs[other] = since
                self._ahead[other, :] = self._ahead[:, other] = 0.0
            values = self._world.processes["ps:0"].store.values
            if values["ps_train/clock"] - values["ps_train/heartbeats"][other] >= HEARTBEAT_TIMEOUT_SECS:
                self._ahead[:, other] = 0.0
        self._ahead[number, :] += 1.0
        self._ahead[:, number] -= 1.0
        for other in range(self._setting.num_workers):
            quiet_since = max(self._world.quiet_since(f"worker:{other}", f"worker:{number}", "ps:0"),
                              self._world.delayed_until_secs)
            if (self._in_loop_since(other) is not None and self._ahead[number, other] > bound
                    and self._world.now_secs - quiet_since >= _REJOIN_SECS):
                self.fail(f"the staleness bound does not hold: worker:{number} is {self._ahead[number, other]:.0f} "
                          f"steps ahead of worker:{other}")

    # Heartbeats

    def _claims(self, ps: Process, request: Request, old: Any, new: Any) -> None:
        for number in range(self._setting.num_workers):
            if old is None or new[number] != old[number]:
                self._claimed_secs[number] = self._world.now_secs

    def _clock(self, ps: Process, request: Request, old: Any, new: Any) -> None:
        values = ps.store.values
        if ps.name != "ps:0" or "ps_train/incarnation" not in values or not self._is_simple:  # not created yet
            return
        for number in range(self._setting.num_workers):
            name, age_secs = f"worker:{number}", float(new - values["ps_train/heartbeats"][number])
            if not values["ps_train/claims"][number]:
                continue
            if age_secs < HEARTBEAT_TIMEOUT_SECS:
                self._heard_secs[number] = self._world.now_secs
                continue
            process = self._worker(number)
            since = max(self._claimed_secs.get(number, 0.0), process.started_secs,
                        self._on_time_since(name, *self._ps))
            if process.is_alive and self._world.now_secs - since > HEARTBEAT_TIMEOUT_SECS + _NOTICE_SECS:
                self.fail(f"{name} is alive, and counts as dead: no heartbeat for {age_secs:.1f} s")

    # The end

    def _check_end(self) -> None:
        """The chief does not wait for a worker that has ended."""
        others = [self._worker(number) for number in range(1, self._setting.num_workers)]
        first_ps = self._world.processes["ps:0"]
        if not self._is_simple or any(process.exit_code != 0 for process in others) or (
                others and first_ps.started_secs > min(process.ended_secs for process in others)):
            return
        since = max([self._last_update_secs, self._worker(0).started_secs,
                     self._on_time_since("worker:0", *self._ps), self._world.delayed_until_secs,
                     *(process.ended_secs for process in others)])
        if self._world.now_secs - since > _LONGEST_END_SECS:
            self.fail(f"the chief waits for workers that have ended, for {self._world.now_secs - since:.0f} s")

    def _check_ps(self, process: Process, code: int) -> None:
        """A ps that serves until the end has done its work, and one that is started after it has none."""
        last = self._training.journal[-1] if self._training.journal else {}
        if code == 138 and last.get("event") == "end" and "step" in last:
            self.fail(f"{process.name} comes back to a training that is over, and asks to be started again: "
                      f"{process.error}")
        if code == 143 and self._heard_end.get(process.name) == process.incarnation:
            self.fail(f"{process.name} has served until the end, and ends as if it had not: {process.error}")

    def exited(self, process: Process, code: int) -> None:
        """Checks how a worker or a ps ends."""
        if process in map(self._world.processes.get, self._ps):
            self._check_ps(process, code)
        if not process.name.startswith("worker:"):
            return
        number, now_secs = int(process.name.removeprefix("worker:")), self._world.now_secs
        if code == 2 and self._training.has_two and process.last_rate == self._training.rate:
            older_secs = [now_secs if other.is_alive else other.ended_secs for other in self._world.workers()
                          if other is not process and other.last_rate == self._training.first_rate]
            since = max([self._training.another_secs, *older_secs, self._world.delayed_until_secs,
                         *self._world.disturbed_until.values()])
            if now_secs - since > HEARTBEAT_TIMEOUT_SECS + 2.0:
                self.fail(f"{process.name} is refused, and the training before has ended: {process.error}")
        done_secs = self._done_secs
        if code != 138 or done_secs is None or not self._is_simple or number == 0:
            return
        is_heard = self._heard_secs.get(number, -100.0) > done_secs - 1.0 and number in self._claimed_secs
        is_in_time = process.started_secs < done_secs + _LATE_SECS
        ps_secs = self._world.quiet_since(*self._ps)
        is_quiet = ps_secs == 0.0 or ps_secs < done_secs - HEARTBEAT_TIMEOUT_SECS
        is_free = max(self._world.quiet_since(process.name), self._world.delayed_until_secs) <= done_secs + _LATE_SECS
        if is_heard and is_in_time and is_quiet and is_free:
            self.fail(f"{process.name} was there in time, and does not learn that training is over: {process.error}")
