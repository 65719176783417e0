"""The hook that ends a monitored session after a signal to stop, and its last checkpoint.

    the loop ends                             its end saves
    an error ends it                          ending.save_after_error, before the session is closed
    it waits: for data, for an update         ending.py saves after half of the grace period, in another thread

A script may open a session inside another's loop, to evaluate for example. Then both save, and when the inner one is
closed, a signal finds what it would have found before.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from ps_train.parts.legacy.classic import ending, membership
from ps_train.parts.legacy.classic.trainings import ScriptTraining
from ps_train.runtime import signals

_open: list[StopHook] = []  # of the sessions that are open, the inner ones last
signals.restores_in_child.append(_open.clear)


class StopHook(tf.train.SessionRunHook):
    """Ends the loop of a monitored session after a signal to stop."""

    def __init__(self) -> None:
        """Knows of no hook that saves; see `save_by`."""
        self._saving: list[tf.train.CheckpointSaverHook] = []
        self._session: tf.Session | None = None
        self._training: ScriptTraining | None = None
        self._before = ending.Registered([], [], [])

    def begin(self) -> None:
        """Says that the loop can be ended."""
        if not _open:
            self._before = ending.registered()
        _open.append(self)
        _register()

    def after_create_session(self, session: tf.Session, coord: tf.train.Coordinator) -> None:
        """Takes the session for a save; after the loss of a ps there is another one."""
        self._session, self._training = session, membership.current_training()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Ends the loop."""
        if ending.is_stopping():
            run_context.request_stop()

    def end(self, session: tf.Session) -> None:
        """The hooks before this one have saved."""
        self.forget_session()

    def forget_session(self) -> None:
        """Saves nothing any more: the session is closed, or is about to be."""
        self._session = None
        if self not in _open:
            return
        _open.remove(self)
        if _open:
            _register()
        elif self._before.stop_requests:
            ending.set_registered(self._before)

    def save_by(self, hooks: Iterable[Any]) -> None:
        """Takes all hooks of the session; those that save do so, too, if the loop does not end."""
        self._saving = [hook for hook in hooks if isinstance(hook, tf.train.CheckpointSaverHook)]
        for hook in self._saving:
            if not isinstance(hook._save, _Saves):  # noqa: SLF001 (no public place)
                hook._save = _Saves(hook._save)  # noqa: SLF001
        if self in _open:
            _register()

    def saves(self) -> bool:
        """Returns whether its session saves."""
        return bool(self._saving)

    def save(self) -> None:
        """Saves a checkpoint, unless the end of the session has; callable from any thread."""
        session = self._session
        if session is None or membership.current_training() is not self._training:
            return  # in the latter case the script has left it open, and the parameters on the ps are another's
        with session.graph.as_default():
            for hook in self._saving:
                hook._save.unless_done(session, hook._global_step_tensor)  # noqa: SLF001 (no public place)


def _register() -> None:
    """Lets a signal find the sessions that are open."""
    ending.on_stop(lambda: None, *(hook.save for hook in _open if hook.saves()), loop_saves=True)


class _Saves:
    """A hook's saves, one at a time: two threads would write the same files."""

    def __init__(self, save: Callable[..., Any]) -> None:
        self._save_now, self._lock = save, threading.Lock()
        self._is_done = False  # it has saved since the signal to stop

    def __call__(self, session: tf.Session, step: int) -> Any:
        """Saves as the session asks for it, once a save in another thread has ended."""
        with self._lock:
            should_stop = self._save_now(session, step)
            self._is_done = ending.is_stopping()
            return should_stop

    def unless_done(self, session: tf.Session, global_step: tf.Tensor) -> None:
        """Saves after a signal to stop; a large checkpoint, which the end of the loop has begun, is not saved twice."""
        with self._lock:
            if not self._is_done:
                self._save_now(session, session.run(global_step))
