"""The callbacks of a training, in its chief: what happens there becomes events for them.

    journal (start, checkpoint, worker, lost, sample, evaluation, end) --+--> CallbackThread --> callback(event)
    steps of the chief (progress) ---------------------------------------+

An error of a callback ends the training, as one of the model does. Before each step the chief looks whether a callback
has failed or asks for the end; once its own steps are over and it waits for the other workers, a thread does.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Callable

from ps_train.coordination.state import State
from ps_train.errors import BlackboardError, ConfigError, StoppedError
from ps_train.part import Part
from ps_train.parts.callbacks.flags import NO_CALLBACKS, parse_callbacks
from ps_train.parts.callbacks.thread import CallbackEvent, CallbackThread, MakeCallbacks, RunningTraining
from ps_train.plugins.loader import checked_function
from ps_train.runtime import clock, threads
from ps_train.runtime.reports import last_step
from ps_train.training.loop import Periodic
from ps_train.training.replica_graph import StepStatus

_LOOK_PERIOD_SECS = 0.5
_QUIET_SECS = 0.5  # without a step: then the thread announces the end, which otherwise comes with the next step
_log = logging.getLogger(__name__)


class CallbacksPart(Part):
    """Lets the callbacks of --callbacks and of the model know what happens."""

    @classmethod
    def is_on(cls, config: Any, cluster: Any) -> bool:
        """Returns whether this is the chief, whose model may have callbacks without the flag."""
        return cluster.is_chief

    def __init__(self, config: Any, cluster: Any) -> None:
        """Has no callbacks yet."""
        self._config = config
        self._thread: CallbackThread | None = None
        self._training: RunningTraining | None = None
        self._stop: threading.Event | None = None  # none where no task runs
        self._announce: Callable[[str], None] = lambda reason: None
        self._is_running: Callable[[], bool] = lambda: False
        self._has_announced = False
        self._logs = Periodic(config.log_steps)
        self._train_steps = last_step(config.train_steps)
        self._local_steps, self._num_updates, self._sum_staleness = 0, 0, 0
        self._last: tuple[float, int] | None = None  # time and global step of the last progress in this session
        self._step_secs = clock.now()  # when the last step began or ended

    @contextlib.contextmanager
    def around_task(self, stop: threading.Event) -> Iterator[None]:
        """Waits at the end until all events have reached the callbacks.

        Raises:
          Exception: of a callback; if the task itself has failed, the error is only logged.
        """
        self._stop = stop
        try:
            yield
        except BaseException as error:
            if (thread := self._closed_thread(is_stopped=isinstance(error, StoppedError))) and (
                    thread.error not in (None, error)):
                _log.warning("a callback failed, too: %s: %s", type(thread.error).__name__, thread.error)
            raise
        if thread := self._closed_thread():
            thread.check()

    def _closed_thread(self, is_stopped: bool = False) -> CallbackThread | None:
        if self._thread is not None and is_stopped:  # most of that time was for the last step and the checkpoint
            self._thread.close(self._config.stop_timeout_secs / 4, leaves_out_progress=True)
        elif self._thread is not None:
            self._thread.close()
        return self._thread

    def before_server(self, task: Any) -> None:
        """Makes the callbacks; from now on the journal tells them what happens.

        Raises:
          ConfigError: a function does not exist, or has the wrong signature.
          StoppedError: the task was stopped meanwhile.
          Exception: of the user's code.
        """
        config, plugins = self._config, task.plugins
        makers = _makers_of(config.callbacks, plugins.model.name)
        if not makers:
            return
        self._training = RunningTraining(
            config.train_dir, config.model, config.dataset, {**plugins.dataset_params, **plugins.model_params},
            {name: getattr(config, name) for name in config.given})
        self._thread = CallbackThread(makers, self._training)
        self._thread.start(config.start_timeout_secs, self._stop)
        task.journal.listen(self._noted)

    def _noted(self, name: str, values: Mapping[str, Any]) -> None:
        if self._thread is not None and (event := event_of(name, values)) is not None:
            self._thread.put(event)

    @contextlib.contextmanager
    def training(self, connected: Any) -> Iterator[None]:
        """Takes the way to end the training, also while the chief waits for the others.

        Raises:
          Exception: of a callback.
        """
        board = connected.board
        self._announce, self._is_running = board.announce_stopping, lambda: board.state() == State.RUNNING
        if self._thread is None:
            yield
            return
        with threads.repeating(self._announce_in_quiet, period_secs=_LOOK_PERIOD_SECS, name="stop by callbacks"):
            yield
        self._thread.check()

    def around_step(self, session: Any, graph: Any, run_step: Callable) -> Callable:
        """Returns `run_step`, before which an error of a callback is raised, and after which there may be progress."""
        if self._thread is None:
            return run_step
        thread, training = self._thread, self._training
        assert training is not None
        # After a loss the chief may have restored all, and the state is "running" again, from an earlier global step.
        self._has_announced, self._last = False, None

        def run(step: int, held_secs: float, fetches: Any, options: Any) -> Any:
            self._step_secs = clock.now()
            self._last = self._last or (self._step_secs, step)
            thread.check()
            self._announce_end(training.stop_reason)
            values = run_step(step, held_secs, fetches, options)
            self._step_secs = clock.now()
            self._count([StepStatus(*map(int, row)) for row in values[0]], float(values[1]))
            return values

        return run

    def _announce_in_quiet(self) -> None:
        """Ends the training for a callback while the chief takes no step: it waits for other workers, or for new data.

        If the callback has failed, `training` then raises its error.
        """
        assert self._thread is not None and self._training is not None
        error = self._thread.error
        reason = f"a callback failed: {type(error).__name__}" if error else self._training.stop_reason
        if reason and clock.now() - self._step_secs >= _QUIET_SECS:
            with contextlib.suppress(BlackboardError):  # if ps 0 is lost, the step or the wait notices
                if self._is_running():
                    self._announce(reason)

    def _announce_end(self, reason: str) -> None:
        """Announces the end of the training, once in a session; an empty reason announces nothing."""
        if not reason or self._has_announced:
            return
        try:
            self._announce(reason)
            self._has_announced = True
        except BlackboardError as error:  # if ps 0 is lost, the step or the wait notices
            _log.warning("a callback ends the training, but %s; trying again", error)

    def _count(self, statuses: list[StepStatus], loss: float) -> None:
        for status in statuses:
            if status.num_taken:  # 0 in a round that began after the end
                self._local_steps += status.num_taken
                self._num_updates += 1
                self._sum_staleness += status.staleness
        if not self._logs.is_due(self._local_steps):
            return
        assert self._thread is not None and self._last is not None
        (last_secs, last_step), now_secs, step = self._last, clock.now(), statuses[-1].step
        self._last = (now_secs, step)
        self._thread.put(CallbackEvent("progress", step, {
            "loss": loss, "local_steps": self._local_steps, "train_steps": self._train_steps,
            "steps_per_sec": (step - last_step) / max(now_secs - last_secs, 1e-9),
            "staleness": self._sum_staleness / max(1, self._num_updates)}))


def event_of(name: str, values: Mapping[str, Any]) -> CallbackEvent | None:
    """Returns the event for the callbacks of an event of the journal, None if it is not one for them."""
    rest = {key: value for key, value in values.items() if key != "step"}
    step = values.get("step")
    if name == "start":
        run = values["run"]
        return CallbackEvent("start", step, {
            "num_ps": len(run["ps"]), "num_workers": len(run["workers"]), "train_steps": run["train_steps"]})
    if name == "sample":
        return CallbackEvent("workers", step, values["workers"])
    if name == "end":
        rest["is_error"] = step is None  # of a training that took its last step, the journal has it
    kind = {"worker": "task", "checkpoint": "checkpoint", "lost": "lost", "evaluation": "evaluation", "end": "end"}
    return CallbackEvent(kind[name], step, rest) if name in kind else None


def _makers_of(text: str, model: str) -> list[MakeCallbacks]:
    """Returns the functions that make callbacks: that of the model's module, if it has one, and those of the flag."""
    if text == NO_CALLBACKS:
        return []
    module = sys.modules.get(model)  # None if a program made the Model itself
    makers = []
    if module is not None and callable(getattr(module, "callbacks", None)):
        makers.append(checked_function("--model", module, "callbacks", ("training",)))
    return makers + [_find("--callbacks", *place) for place in parse_callbacks("--callbacks", text)]


def _find(flag: str, module: str, function: str) -> MakeCallbacks:
    try:
        is_there = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError as error:
        if not (error.name and f"{module}.".startswith(f"{error.name}.")):
            raise
        is_there = False
    if not is_there:
        raise ConfigError("plugin_not_found", f"{flag}: no module {module!r} in the working directory or among the "
                          f"installed ones; give one with a function {function}(training)")
    return checked_function(flag, importlib.import_module(module), function, ("training",))
