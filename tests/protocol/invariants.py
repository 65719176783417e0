"""What must hold in each run; docs/faults.md has a line for each of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ps_train.coordination.state import State
from tests.protocol import asking
from tests.protocol.history import Violation
from tests.protocol.processes import Process
from tests.protocol.sessions import Request
from tests.protocol.simulation import World
from tests.protocol.tasks import Training
from tests.protocol.waiting import WaitingWatcher

_UNDISTURBED_SECS = 15.0
_ANNOUNCING_SECS = 30.0  # as long the chief goes on to tell each ps of the end
_ANSWERED_SECS = 12.0  # after a fault, until each task knows of the others again


class Watcher:
    """Looks at each write to a variable that an invariant is about, and at the end of a run."""

    def __init__(self, world: World, training: Training) -> None:
        self._world, self._training = world, training
        self.is_done = False
        self._is_last_step_taken = False
        self._prepared_for: dict[str, list[int]] = {}
        setting = training.setting
        world.on_write("ps_train/state", self._state)
        world.on_write("global_step", self._global_step)
        world.on_write("ps_train/ranges/done", self._ranges_done)
        for index in range(setting.num_ps):
            world.on_write(f"counts_{index}", self._counts)
        self._announced: tuple[Process, int, float] | None = None  # who has announced the end to a ps, and when
        self._waiting = WaitingWatcher(world, training)

    def fail(self, text: str) -> None:
        raise Violation(text)

    def _state(self, ps: Process, request: Request, old: Any, new: Any) -> None:
        client = request.session.client
        current = [self._world.processes[f"ps:{index}"].incarnation for index in range(self._training.setting.num_ps)]
        # Training goes on after the loss of a ps, even if its last step was taken.
        is_resumed = new == State.RUNNING and old == State.STOPPING and current != self._prepared_for.get(ps.name)
        may_go_back = client is ps or is_resumed or self._training.has_two
        if old is not None and new < old and not may_go_back:
            self.fail(f"the state of {ps.name} goes back from {State(int(old)).name} to {State(int(new)).name}")
        if new == State.RUNNING:
            values = self._world.processes["ps:0"].store.values
            self._is_last_step_taken = values.get("global_step", 0) >= self._training.setting.train_steps
            self._prepared_for[ps.name] = current
        if new == State.DONE and old != State.DONE:
            self.is_done = self._training.is_done = True
            if client.name != "worker:0":
                self.fail(f"{client.name} announces the end")
            self._announced = client, client.incarnation, self._world.now_secs
            if max(self._training.checkpoints, default=0) < self._training.setting.train_steps and not (
                    self._training.setting.ends_early):
                self.fail("the end is announced before the last step is saved")

    def _global_step(self, ps: Process, request: Request, old: Any, new: Any) -> None:
        self._is_last_step_taken |= bool(new >= self._training.setting.train_steps)
        if old is None or new >= old:
            return
        client = request.session.client
        if self._are_prepared(ps) and not self._training.has_two:
            self.fail(f"{client.name} sets live parameters back from step {old} to {new}")

    def _ranges_done(self, ps: Process, request: Request, old: Any, new: Any) -> None:
        setting = self._training.setting
        has_all = self._world.now_secs > setting.num_ranges * setting.arrival_secs  # that arrive
        self._is_last_step_taken = has_all and bool(np.min(new) >= setting.num_epochs)

    def _are_prepared(self, first: Process) -> bool:
        """Returns whether the parameters on all ps are those that a chief has prepared, and no ps has restarted."""
        values = first.store.values
        ps = [self._world.processes[f"ps:{index}"] for index in range(self._training.setting.num_ps)]
        current = [process.store.values.get("ps_train/incarnation") for process in ps]
        return (values.get("ps_train/state", 0) in (State.RUNNING, State.STOPPING)
                and list(values.get("ps_train/prepared", [0] * len(ps))[:len(ps)]) == current)

    def _counts(self, ps: Process, request: Request, old: Any, new: Any) -> None:
        """An update of parameters, or their preparation."""
        client = request.session.client
        owner = ps.store.values.get("training_id")
        if owner is not None and not np.isclose(owner, client.learning_rate):
            self.fail(f"{client.name} trains on parameters of another training")
        if np.any(np.asarray(new) > [self._training.issued[number] for number in range(len(new))]):
            self.fail(f"an update is applied twice: {ps.name} has {new}, the workers have made "
                      f"{self._training.issued}")

    def exited(self, process: Process, code: int) -> None:
        """Each fault is shorter than --start_timeout_secs, so no task gives up before the last step."""
        self._waiting.exited(process, code)
        if code == 138 and self._announced and (process, process.incarnation) == self._announced[:2] and (
                self._world.now_secs - self._announced[2] < _ANNOUNCING_SECS) and not self._world.replaced:
            self.fail(f"{process.name} gives up while it announces the end: {process.error}")
        # After it, a worker that loses ps 0 may end with 138; it comes back to a training that is over (row 51).
        if self._is_last_step_taken:
            return
        chief = self._world.processes["worker:0"]
        if code == 138 and chief.exit_code != 0 and not self.is_done and not (
                self._world.replaced or self._training.has_two):
            self.fail(f"a task gives up: {process.name}: {process.error}")

    def at_end(self) -> None:
        """Checks how the run has ended."""
        codes = {name: process.exit_code for name, process in self._world.processes.items()}
        may_be_refused = self._training.has_two or self._world.replaced
        for process in [*self._world.processes.values(), *self._world.replaced]:
            if 1 in process.exit_codes or (2 in process.exit_codes and not may_be_refused):
                self.fail(f"{process.name} has failed: {process.error!r}")
        for process in self._world.replaced:
            if process.is_alive:
                self.fail(f"{process.name} goes on although another process has taken its place")
        # A chief that is killed after it has announced the end finds no ps when it is started again.
        if codes["worker:0"] not in ((0, 137, 138, 143) if self.is_done else (0,)):
            waiting = [f"{process.name} {fiber.name}: {fiber.awaits}" for process in self._world.processes.values()
                       for fiber in process.fibers]
            self.fail(f"the training does not end: {codes}; {waiting}")
        allowed = {0, 2, 137, 138, 143} if may_be_refused else {0, 137, 138, 143}
        if not set(codes.values()) <= allowed:
            self.fail(f"tasks do not end: {codes}")
        if not self._training.had_fault and set(codes.values()) != {0}:
            self.fail(f"without a fault the tasks end with {codes}")
        self._check_counts()

    def _check_counts(self) -> None:
        training = self._training
        if not training.checkpoints:
            self.fail("nothing was saved")
        if text := (training.history.lost(_ANSWERED_SECS) or (training.setting.num_ranges and training.ranges.missing())
                    or asking.broken(self._world, training)):
            self.fail(text)
        *vectors, step = training.checkpoints[max(training.checkpoints)]
        if training.had_fault:
            return
        for vector in vectors[1:]:
            if not np.array_equal(vector, vectors[0]):
                self.fail(f"the ps differ: {vectors}")
        setting = training.setting
        if setting.is_sync and not setting.drops_late and not setting.ends_early:
            is_whole = bool(np.all(vectors[0] == step))  # each worker's gradient is in each update, once
        else:
            is_whole = setting.is_sync or vectors[0].sum() == step
        if not is_whole:
            self.fail(f"an update is lost or applied twice: step {step} has {vectors[0]}")
        if self._world.now_secs > _UNDISTURBED_SECS + setting.num_ranges * setting.arrival_secs:
            self.fail(f"tasks wait for nothing: an undisturbed training takes {self._world.now_secs:.0f} s")
