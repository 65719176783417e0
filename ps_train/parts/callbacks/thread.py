"""Calls the callbacks of a training in a thread of their own, in the order of the events.

    make(RunningTraining) --> callback(CallbackEvent), callback(CallbackEvent), ...

A slow callback does not delay a step: events wait in a queue, and where that is full, progress is left out.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional

from ps_train.errors import StoppedError, UserCodeError
from ps_train.runtime import clock, waits

_PROGRESS = ("progress", "workers")
_POLL_SECS = 0.2  # how soon a signal ends the wait for those that make callbacks
_MOST_WAITING = 1000  # events, from which on progress is left out
CLOSE_SECS = 60.0  # for the events that wait when training has ended
_log = logging.getLogger(__name__)


class CallbackEvent(NamedTuple):
    """What happened in a training.

    Attributes:
      kind: "start", "progress", "workers", "evaluation", "checkpoint", "task", "lost" or "end".
      step: the global step, None where it is unknown.
      values: name -> value; docs/callbacks.md has those of each kind.
    """

    kind: str
    step: int | None
    values: Mapping[str, Any]


class RunningTraining:
    """The training whose callbacks these are.

    Attributes:
      train_dir: its folder.
      model: the name of the model's module.
      dataset: that of the dataset.
      params: those of the model and the dataset.
      flags: name -> value of the flags that were given.
    """

    def __init__(
        self, train_dir: str, model: str, dataset: str, params: Mapping[str, Any], flags: Mapping[str, Any]
    ) -> None:
        self.train_dir, self.model, self.dataset = train_dir, model, dataset
        self.params, self.flags = params, flags
        self.stop_reason = ""

    def stop(self, reason: Any = "") -> None:
        """Ends the training as early stopping does; any thread may call it.

        It ends after the next step of the chief, or at once if the chief only waits, for other workers or new data.

        Args:
          reason: the text for messages; an empty one says that a callback stopped it.
        """
        self.stop_reason = self.stop_reason or str("" if reason is None else reason) or "a callback stopped it"


Callback = Callable[[CallbackEvent], Any]
MakeCallbacks = Callable[[RunningTraining], Any]


class CallbackThread:
    """The thread in which the callbacks are made and called.

    Attributes:
      error: what a callback has raised; no callback is called after that.
    """

    def __init__(self, makers: Sequence[MakeCallbacks], training: RunningTraining) -> None:
        """Starts nothing yet."""
        self._makers, self._training = makers, training
        self._events: queue.Queue[Optional[CallbackEvent]] = queue.Queue()
        self._are_made = threading.Event()
        self._has_warned = False
        self._thread = threading.Thread(target=self._work, daemon=True, name="callbacks")
        self.error: BaseException | None = None

    def start(self, timeout_secs: float, stop: threading.Event | None = None) -> None:
        """Makes the callbacks.

        Args:
          stop: ends the wait for them.

        Raises:
          UserCodeError: that took too long, or a function made something else.
          StoppedError: `stop` was set first.
          Exception: of the user's code.
        """
        self._thread.start()
        reminder = waits.Reminder("the functions that make callbacks", timeout_secs)
        while not self._are_made.wait(min(timeout_secs, _POLL_SECS)):
            if stop is not None and stop.is_set():
                raise StoppedError("stopped", "stopped while the callbacks were made")
            if clock.now() - reminder.start_secs >= timeout_secs:
                raise UserCodeError("callbacks_slow", f"--callbacks: not made within {timeout_secs:g} s; make them "
                                    "faster, or raise --start_timeout_secs")
            reminder.remind()
        self.check()

    def check(self) -> None:
        """Raises what a callback has raised."""
        if (error := self.error) is None:
            return
        if any(kind.__name__ == "OpError" for kind in type(error).__mro__):  # it is not that of a lost session
            raise RuntimeError(f"a callback failed: {error}").with_traceback(error.__traceback__) from None
        raise error

    def put(self, event: CallbackEvent) -> None:
        """Lets the callbacks be called with an event; any thread may call this."""
        if event.kind in _PROGRESS and self._events.qsize() >= _MOST_WAITING:
            if not self._has_warned:
                _log.warning("the callbacks are slow: %d events wait, so progress is left out", _MOST_WAITING)
            self._has_warned = True
        else:
            self._events.put(event)

    def close(self, timeout_secs: float = CLOSE_SECS, *, leaves_out_progress: bool = False) -> None:
        """Waits until the callbacks were called with the events that wait, in bounded time.

        Args:
          leaves_out_progress: of a task that was asked to stop: what matters is the end.
        """
        if leaves_out_progress:
            waiting: list[CallbackEvent | None] = []
            with contextlib.suppress(queue.Empty):
                while True:
                    waiting.append(self._events.get_nowait())
            for event in waiting:
                if event is not None and event.kind not in _PROGRESS:
                    self._events.put(event)
        self._events.put(None)
        if not self._are_made.is_set():  # a function that makes them hangs, as `start` has said: no event waits for it
            return
        self._thread.join(timeout_secs)
        if self._thread.is_alive():
            _log.warning("the callbacks have not ended within %g s; leaving them", timeout_secs)

    def _work(self) -> None:
        try:
            callbacks = [callback for make in self._makers for callback in _made_by(make, self._training)]
            self._are_made.set()
            while (event := self._events.get()) is not None:
                for callback in callbacks:
                    callback(event)
        except BaseException as error:  # noqa: BLE001 (the chief raises it)
            self.error = error
        finally:
            self._are_made.set()


def _made_by(make: MakeCallbacks, training: RunningTraining) -> list[Callback]:
    made = make(training)
    callbacks = list(made) if isinstance(made, (list, tuple)) else [made]
    for callback in callbacks:
        if not callable(callback):
            raise UserCodeError("plugin_returned_wrong_type", f"{make.__module__}.{make.__name__} returned "
                                f"{callback!r}; it must return a function that takes an event, or a list of such")
    return callbacks
