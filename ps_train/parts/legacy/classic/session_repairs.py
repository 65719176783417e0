"""What is changed in place in TensorFlow's own sessions and Coordinator, whichever of its classes uses them."""

from __future__ import annotations

import functools
import logging
import time
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.client.session import BaseSession  # as below
from tensorflow.python.training import monitored_session  # no public place to set these

from ps_train.parts.legacy.classic import ending
from ps_train.parts.legacy.classic.stop_hook import StopHook

_QUEUE_RUNNERS_SECS = 5.0
_log = logging.getLogger(__name__)


class LateRunError(tf.errors.OutOfRangeError, RuntimeError):
    """Ends the block of a monitored session, and is the RuntimeError of TensorFlow, with its text, for the script."""

    def __init__(self) -> None:
        super().__init__(None, None, "Run called even after should_stop requested.")
        self.args = (self.message,)


def end_blocks_at_a_late_run() -> None:
    """Lets a step after the end of training end the block of a monitored session, as the end of the data does.

    Scripts run two steps in one round of `while not session.should_stop()`. The first reaches the last step; for the
    second TensorFlow raises RuntimeError, and the script would fail though its training is complete. A script that has
    `except RuntimeError` for it gets it.
    """
    original = monitored_session._HookedSession.run  # noqa: SLF001 (no public place)
    leave = monitored_session._MonitoredSession.__exit__  # noqa: SLF001 (as above)

    @functools.wraps(leave)
    def exit_block(session: Any, kind: Any, value: Any, traceback: Any) -> Any:
        return leave(session, tf.errors.OutOfRangeError if kind is LateRunError else kind, value, traceback)

    @functools.wraps(original)
    def run(session: Any, *args: Any, **kwargs: Any) -> Any:
        if session.should_stop():
            _log.warning("the script runs a step after the last one, so its `with` block ends here: ask "
                         "session.should_stop() before each step")
            raise LateRunError
        return original(session, *args, **kwargs)
    monitored_session._HookedSession.run = run  # noqa: SLF001
    monitored_session._MonitoredSession.__exit__ = exit_block  # noqa: SLF001


def stop_sessions_that_save() -> None:
    """Ends the loop of a `MonitoredSession` with a CheckpointSaverHook, too, after a signal to stop; its end saves.

    So does its end by an error then: the signal may have ended the processes of its data.
    """
    original = monitored_session._MonitoredSession.__init__  # noqa: SLF001 (no public place)
    close = monitored_session._MonitoredSession._close_internal  # noqa: SLF001 (as above)

    @functools.wraps(original)
    def init(session: Any, session_creator: Any, hooks: Any, *args: Any, **kwargs: Any) -> None:
        all_hooks = list(hooks or ())
        if any(isinstance(hook, tf.train.CheckpointSaverHook) for hook in all_hooks) and not any(
                isinstance(hook, StopHook) for hook in all_hooks):
            all_hooks.append(StopHook())
        original(session, session_creator, all_hooks, *args, **kwargs)
        for hook in all_hooks:
            if isinstance(hook, StopHook):
                hook.save_by(all_hooks)

    @functools.wraps(close)
    def close_internal(session: Any, exception_type: Any = None) -> None:
        if exception_type is not None:
            ending.save_after_error()
        try:
            close(session, exception_type)
        finally:
            for hook in session._hooks:  # noqa: SLF001 (as above)
                if isinstance(hook, StopHook):
                    hook.forget_session()
    monitored_session._MonitoredSession.__init__ = init  # noqa: SLF001
    monitored_session._MonitoredSession._close_internal = close_internal  # noqa: SLF001


def leave_waiting_queue_runners() -> None:
    """Lets `Coordinator.join` return although a thread of a queue runner waits for something.

    Monitored sessions, Supervisors and scripts close the queues, join the threads, and then close the session.
    TensorFlow joins for up to 120 s, after which all but a monitored session raise RuntimeError. A thread that waits
    for something else than its queue ends only with the session: in a script's own copy of `SyncReplicasOptimizer`, for
    example, one waits for gradients after the last step. Here `join` leaves such threads after a few seconds.
    """
    original = tf.train.Coordinator.join

    @functools.wraps(original)
    def join(coordinator: Any, threads: Any = None, *args: Any, **kwargs: Any) -> None:
        joined = coordinator._registered_threads | set(threads or ())  # noqa: SLF001 (no public name)
        while any(thread.is_alive() for thread in joined) and not coordinator.wait_for_stop(1.0):
            pass
        deadline_secs = time.monotonic() + _QUEUE_RUNNERS_SECS
        runners = [thread for thread in joined if thread.name.startswith("QueueRunnerThread-")]
        for thread in runners:
            thread.join(max(0.0, deadline_secs - time.monotonic()))
        waiting = {thread for thread in runners if thread.is_alive()}
        coordinator._registered_threads = joined - waiting  # noqa: SLF001
        try:
            original(coordinator, None, *args, **kwargs)
        finally:
            if waiting:
                # Otherwise the error with which they end is raised in their threads, and printed.
                coordinator._joined = False  # noqa: SLF001
    tf.train.Coordinator.join = join


def place_softly_without_gpus() -> None:
    """Runs operations that a script puts on a GPU on the CPU, if this machine has no GPU."""
    if tf.config.list_physical_devices("GPU"):
        return
    original = BaseSession.__init__

    @functools.wraps(original)
    def init(session: Any, target: str = "", graph: Any = None, config: tf.ConfigProto | None = None) -> None:
        softly = tf.ConfigProto()
        softly.CopyFrom(config or softly)
        softly.allow_soft_placement = True
        original(session, target, graph, softly)
    BaseSession.__init__ = init
