"""Who has applied which step of which worker: in the parameters, in the checkpoints, and by what the workers know.

    a worker's step     its gradient is pushed --> an update has it, on each ps --> the worker learns that it is applied
    a save              the checkpoint has the steps that each ps had when its variables were read
    a restore           each ps has the steps of the checkpoint again

A step is known by the number of the call that pushed its gradient. The interpreter knows which calls' gradients an
update has taken from an accumulator, so this is a record of what was done, not of sums.
"""

from __future__ import annotations

from typing import Any

from tests.protocol.processes import Process
from tests.protocol.sessions import Request
from tests.protocol.simulation import World


class Violation(AssertionError):  # noqa: N818 (a finding)
    """An invariant does not hold."""


class History:
    """The record of one training.

    Attributes:
      had_fault: whether the schedule of this run has faults.
      issued: worker -> the steps that it has begun.
      in_loop_since: worker -> since when it takes steps in a session, None if it does not.
      saved: step -> for each ps the steps in the checkpoint.
    """

    def __init__(self, world: World, num_ps: int, num_workers: int) -> None:
        self._world, self.had_fault = world, False
        self._ps = [f"ps:{index}" for index in range(num_ps)]
        self.issued = [0] * num_workers
        self.in_loop_since: list[float | None] = [None] * num_workers
        self.saved: dict[int, list[frozenset[int]]] = {}
        self._applied: dict[str, set[int]] = {name: set() for name in self._ps}
        self._ever: dict[str, set[int]] = {name: set() for name in self._ps}
        self._discarded: set[int] = set()
        self._known: dict[int, tuple[int, float]] = {}
        self._last_save_secs = 0.0
        for index in range(num_ps):
            world.on_write(f"counts_{index}", self._write)
            world.on_read(f"counts_{index}", lambda ps, request: request.seen.__setitem__(
                ps.name, frozenset(self._applied[ps.name])))

    def fail(self, text: str) -> None:
        self._world.failure = self._world.failure or Violation(text)

    # What tasks do

    def issues(self, worker: int) -> None:
        """A worker begins a step."""
        if self.in_loop_since[worker] is None:
            self.in_loop_since[worker] = self._world.now_secs
        self.issued[worker] += 1

    def leaves_loop(self, worker: int) -> None:
        """A worker's session is lost, or it takes no more steps."""
        self.in_loop_since[worker] = None

    def learns(self, worker: int, steps: list[int]) -> None:
        """A worker learns that these steps are in an update."""
        for step in steps:
            self._known[step] = worker, self._world.now_secs
            for ps in self._ps:
                if step not in self._ever[ps]:
                    self.fail(f"worker:{worker} takes a step for applied that {ps} has never had")

    def learns_lost(self, worker: int) -> None:
        """A worker learns that steps may be in no update."""
        if not self.had_fault:
            self.fail(f"without a fault worker:{worker} takes a step for lost")

    def saves(self, global_step: int, request: Request) -> None:
        """A checkpoint has the values that a request has read."""
        self._last_save_secs = self._world.now_secs
        self.saved[global_step] = [request.seen.get(ps, frozenset()) for ps in self._ps]

    def _write(self, ps: Process, request: Request, old: Any, new: Any) -> None:
        if request.operation == "AssignVariableOp":
            restored = request.fiber.restored_step
            at_ps = self.saved[restored][self._ps.index(ps.name)] if restored in self.saved else frozenset()
            self._discarded |= self._ever[ps.name] - at_ps
            self._applied[ps.name] = set(at_ps)
            return
        pushed = request.taken_from(f"counts_{ps.name.removeprefix('ps:')}/gradients")
        for caller, computed_for in pushed if pushed is not None else [(request, None)]:
            step = caller.number
            if step in self._applied[ps.name]:
                self.fail(f"a step of {caller.session.client.name} is applied twice on {ps.name}")
            self._applied[ps.name].add(step)
            self._ever[ps.name].add(step)
            self._discarded.discard(step)
            current = self._world.processes["ps:0"].store.values.get("global_step", 0)
            if computed_for is not None and computed_for < current:
                self.fail(f"a stale gradient is applied: that of {caller.session.client.name} for step "
                          f"{computed_for} at {current}")

    # What must hold

    def lost(self, quiet_secs: float) -> str:
        """Returns which step is not in the last checkpoint although its worker took it for applied, or "".

        Args:
          quiet_secs: for so long no fault has concerned the worker, the chief and all ps before the last save: the
            chief waits for such a worker.
        """
        last = self.saved[max(self.saved)] if self.saved else []
        for step, (worker, known_secs) in self._known.items():
            missing = [ps for ps, saved in zip(self._ps, last) if step not in saved]
            quiet_since = max(self._world.quiet_since(f"worker:{worker}", "worker:0", *self._ps),
                              self._world.delayed_until_secs)
            is_promised = quiet_since == 0.0 or quiet_since + quiet_secs < self._last_save_secs
            if missing and step not in self._discarded and (is_promised or known_secs < self._last_save_secs - 1.0):
                return f"a step of worker:{worker} is lost: it took it for applied, and {missing[0]} has not saved it"
        return ""
