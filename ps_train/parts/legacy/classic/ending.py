"""What happens when a script ends, fails, or receives a signal to stop.

    it ends, or calls sys.exit       ps_train waits for its threads, then leaves the cluster: no task waits for this one
    it calls os._exit                ps_train leaves the cluster, and waits for no thread of the script
    it raises                        one line for an error of ps_train, else its traceback; then the same
    SIGTERM, SIGINT                  a Supervisor's chief saves a checkpoint, then the script's loop is asked to end;
                                     if it has not after half of the grace period, the chief saves, of whatever kind
                                     its session is; the process ends with 143
    SIGINT, no such loop is known    the script gets a KeyboardInterrupt, and all the time that it takes to handle it;
                                     the process ends with 143
    SIGHUP, the terminal has closed  as SIGTERM, but never as a second signal; `nohup` lets the task ignore it
    another signal                   the process ends at once

`ps_train run` does this for a whole script. One that imports the classes gets it from `Server`, see imported_script.py.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import multiprocessing
import multiprocessing.util
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from typing import Callable, NamedTuple, NoReturn

from ps_train.errors import PsTrainError
from ps_train.parts.legacy import mode_advice, numpy_advice, pandas_advice, path_mapping
from ps_train.parts.legacy.classic import membership
from ps_train.runtime import logs, open_files, reports, signals, tensorflow_errors, tracebacks, waits
from ps_train.runtime.threads import Call

STOPPED_CODE = 143
LOST_CODE = 138
_CLEAN_UP_SECS = 10.0
_STOPPED_CLEAN_UP_SECS = 2.0
_POLL_SECS = 0.5
_STOPPED_MESSAGE = "stopped by a signal [stopped]"
_SCRIPT_SHARE = 0.5  # of the grace period, for the script to end by itself
_log = logging.getLogger(__name__)

_stop_requests: list[Callable[[], None]] = []  # SIGTERM calls them, for example a coordinator's `request_stop`
_savers: list[Callable[[], None]] = []
_last_savers: list[Callable[[], None]] = []
_python2_advice: list[str] = []
_stopping = threading.Event()  # the thread that ends the process has been started
_noted_signal = threading.Event()  # the same, in the main thread: the script may end before the other one is set
_said_stopped = threading.Lock()  # the thread that takes it prints the message; it is never released
_leaving = threading.Event()  # `leave` was called
_handles_interrupt = threading.Event()  # the script has got a KeyboardInterrupt, and its main thread goes on
script_ended = threading.Event()  # from then on SIGTERM waits for the rest only


def on_stop(request_stop: Callable[[], None], *saves: Callable[[], None], loop_saves: bool = False) -> None:
    """Registers how the script's loop is asked to end and, on the chief, what then saves checkpoints.

    Args:
      loop_saves: whether the end of the loop saves by itself; then `saves` are called only if the loop does not end
        well.
    """
    set_registered(Registered([request_stop], [] if loop_saves else [*saves], [*saves] if loop_saves else []))


class Registered(NamedTuple):
    """What a signal to stop calls.

    Attributes:
      stop_requests: they ask the script's loop to end.
      savers: they save a checkpoint, and again if the script has not ended by itself.
      last_savers: they save only if it has not.
    """

    stop_requests: list[Callable[[], None]]
    savers: list[Callable[[], None]]
    last_savers: list[Callable[[], None]]


def registered() -> Registered:
    """Returns what the last `on_stop` has registered."""
    return Registered([*_stop_requests], [*_savers], [*_last_savers])


def set_registered(functions: Registered) -> None:
    """Registers what `registered` has returned, in place of what is."""
    _stop_requests[:], _savers[:], _last_savers[:] = functions


def save_after_error() -> None:
    """Saves in place of a loop that fails after a signal, which may have ended the processes of its data, too."""
    if is_stopping():
        for save in _last_savers:
            _save(save, _CLEAN_UP_SECS)


def is_stopping() -> bool:
    """Returns whether this process has received a signal to stop."""
    return _stopping.is_set() or _noted_signal.is_set()


def exit_code_of(error: BaseException) -> int:
    """Returns the exit code of a script that ended with an error."""
    if isinstance(error, PsTrainError):
        return error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return STOPPED_CODE
    return LOST_CODE if is_lost_session(error) else 1


def is_lost_session(error: BaseException) -> bool:
    """Returns whether an error means that the session with the ps was lost.

    Without a cluster nothing can be lost: a script that reads a variable before it is initialised has an error.
    """
    from ps_train.coordination import sessions  # noqa: PLC0415 (TensorFlow takes seconds to import)

    is_of_tensorflow = any(kind.__name__ == "OpError" for kind in type(error).__mro__)
    return membership.can_lose() and is_of_tensorflow and sessions.is_lost(error)


def report_failure(error: BaseException) -> None:
    """Prints why the script failed, and reports it to the launcher."""
    try:
        _report(error)
    except Exception:  # noqa: BLE001 (after any error this process must still leave the cluster)
        logs.complain("".join(f"{line}\n" for line in tracebacks.whole(error)))


def _report(error: BaseException) -> None:
    if isinstance(error, PsTrainError):
        trace, message = [], error.lines()
    elif isinstance(error, KeyboardInterrupt):
        trace, message = [], [_STOPPED_MESSAGE]
    elif is_lost_session(error):
        trace, message = [], [f"lost the session: {tensorflow_errors.reason(error)}; run the same command again, or "
                              "give --max_restarts to `ps_train launch` [session_lost]"]
    else:
        trace, fault = tracebacks.report(error, *_python2_advice)
        hints = [path_mapping.path_hint(error), mode_advice.mode_hint(error), pandas_advice.read_only_hint(error),
                 numpy_advice.bounds_hint(error)]
        message = [*(fault.lines() if fault else []), *filter(None, hints)]
    failure = reports.Failure(message, is_in_user_code=bool(trace))
    lines = [*trace, *failure.lines()]
    reports.send(failure, lines)
    logs.complain("".join(f"{line}\n" for line in lines))


def set_python2_advice(advice: str) -> None:
    """Sets what a report says about code of Python 2; "" if the script is converted already."""
    _python2_advice[:] = [advice]


def end_process(error: BaseException) -> None:
    """Ends this process in the middle of its script, because of an error that the script cannot notice."""
    report_failure(error)
    code = exit_code_of(error)
    if member := membership.current():
        member.report_failure(code)
    leave(code)


def finish(code: int) -> int:
    """Leaves the cluster after the script; returns the exit code of the process."""
    member = membership.current()
    if is_stopping():
        code = STOPPED_CODE
        _say_stopped()
    if member is not None:
        member.finish(code)
    if code == 0 and is_stopping():  # while the chief, whose script had ended, made the updates of the others
        code = STOPPED_CODE
        _say_stopped()
    return code


def _say_stopped() -> None:
    """Prints the message once: the script may end while another thread ends it."""
    if _said_stopped.acquire(blocking=False):
        logs.complain(f"ps_train: {_STOPPED_MESSAGE}\n")


def report_hard_end(leave_cluster: Callable[[int], int], is_ps: Callable[[], bool]) -> None:
    """Lets `os._exit` leave the cluster first: scripts whose normal end would hang call it, and others wait for them.

    That has 10 s, as a thread of the script may hold what it needs; but a ps, or a chief that makes the updates of
    synchronous training, which ends with 0 is needed until the others have ended.

    Args:
      leave_cluster: takes the exit code of the script; returns that of the process.
      is_ps: returns whether the process is a ps.
    """
    end_now, own_process = os._exit, os.getpid()

    @functools.wraps(end_now)
    def leave_and_end(status: int) -> NoReturn:
        is_ended = is_stopping() or _leaving.is_set() or script_ended.is_set()
        try:
            if os.getpid() == own_process and not is_ended:
                script_ended.set()
                member = membership.current()
                is_needed = is_ps() or (member is not None and member.cluster.is_chief and member.is_sync)
                status = _left_within(None if status == 0 and is_needed else _CLEAN_UP_SECS, leave_cluster, status)
        finally:
            end_now(status)

    os._exit = leave_and_end  # type: ignore[assignment]


def _left_within(bound_secs: float | None, leave_cluster: Callable[[int], int], status: int) -> int:
    """Returns `leave_cluster(status)`, or `status` if that takes longer or fails, which is printed then."""
    leaving = Call(functools.partial(leave_cluster, status), "leave")  # a handler of a signal may hold its locks
    leaving.join(bound_secs)
    if leaving.is_alive():
        logs.complain(f"ps_train: this task could not leave the cluster within {bound_secs:g} s\n")
        return status
    try:
        return leaving.result()
    except Exception as error:  # noqa: BLE001 (the process ends in any case)
        report_failure(error)
        return status


def finish_with_child() -> None:
    """Lets a process of `multiprocessing`, whose end calls nothing of `atexit`, leave the cluster at its end."""
    multiprocessing.util.Finalize(None, _finish_child, exitpriority=_LAST)


_LAST = -100  # after the finalizers of queues and managers


def _finish_child() -> None:
    error = sys.exc_info()[1]  # what ends the function of the process
    script_ended.set()  # `multiprocessing` calls `os._exit` next
    if isinstance(error, SystemExit):
        finish(error.code if isinstance(error.code, int) else int(error.code is not None))
    else:
        finish(0 if error is None else exit_code_of(error))


def wait_for_threads() -> None:
    """Waits for the script's non-daemon threads and processes, as Python does; a signal ends the process meanwhile."""
    _handles_interrupt.clear()
    for executors in filter(None, map(sys.modules.get, _EXECUTORS)):
        # Python calls it when the main thread has ended; without it, idle threads of an executor never end.
        Call(executors._python_exit, "end of executors")  # noqa: SLF001 (no public name)
    with contextlib.suppress(KeyboardInterrupt):
        _wait_for(threading.enumerate)
        # Python does it between the two: a Manager's process ends by it, and a Pool.
        Call(functools.partial(multiprocessing.util._run_finalizers, 0), "end of managers")  # noqa: SLF001
        _wait_for(lambda: [*threading.enumerate(), *multiprocessing.active_children()])


def _wait_for(find: Callable[[], Sequence[threading.Thread | multiprocessing.Process]]) -> None:
    """Waits until `find` returns nothing but this thread and what is a daemon."""
    named: set[str] = set()
    reminder = waits.Reminder(lambda: f"the script's {_named(waiting[0])}")
    while waiting := [one for one in find() if not one.daemon and one is not threading.current_thread()]:
        waiting[0].join(_POLL_SECS)
        if waiting[0].is_alive() and waiting[0].name not in named:
            named.add(waiting[0].name)
            _log.info("the script's main thread has ended; waiting for its %s", _named(waiting[0]))
        reminder.remind()


_EXECUTORS = ("concurrent.futures.thread", "concurrent.futures.process")


def _named(running: threading.Thread | multiprocessing.Process) -> str:
    return f"{'thread' if isinstance(running, threading.Thread) else 'process'} {running.name!r}"


def leave(code: int) -> None:
    """Ends this process; `atexit` callbacks run in bounded time."""
    _leaving.set()
    bound_secs = _STOPPED_CLEAN_UP_SECS if is_stopping() else _CLEAN_UP_SECS

    def end() -> None:
        flush()
        # Not `sys.exit`: a thread that a lost peer holds inside TensorFlow would keep the process alive.
        os._exit(code)

    def cut_off() -> None:
        logs.complain("ps_train: the script's `atexit` callbacks, or the last writes to its open files, did not end "
                      f"within {bound_secs:g} s\n")
        end()

    bound = threading.Timer(bound_secs, cut_off)
    bound.daemon = True
    bound.start()
    # In this thread, which usually is the main one: some libraries complain in any other.
    try:
        atexit._run_exitfuncs()  # noqa: SLF001 (no public name); Python 3.9 raises what one of them raises
    finally:
        try:
            open_files.write_all()
        finally:
            bound.cancel()  # a test replaces `os._exit`, and later this would end the process of the next one
            end()


def flush() -> None:
    """Writes what the standard streams hold, as far as that is possible."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        # A script may put an object in the place of a stream that can do no more than `write`, which sufficed Python 2.
        write_out = getattr(stream, "flush", None)
        with contextlib.suppress(OSError, ValueError):  # a full disk, a closed stream: the exit code still counts
            if write_out is not None:
                write_out()


class SignalWatch:
    """Ends the script on SIGTERM, SIGINT and SIGHUP, also while its main thread is inside TensorFlow."""

    # Python calls signal handlers in the main thread only, and not before TensorFlow returns. The C part of the
    # handler writes to the wake-up descriptor at once, and a thread reads it.

    def __init__(self, stop_timeout_secs: float) -> None:
        """Installs the handlers; must be called in the main thread. A handler that the script sets replaces ours."""
        self._stop_timeout_secs = stop_timeout_secs
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        for number in _STOP_SIGNALS:
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, _note_signal)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        signals.restores_in_child.append(_forget_parent)
        threading.Thread(target=self._watch, daemon=True, name="signals").start()

    def _watch(self) -> None:
        noted = signals.NotedSignals()
        while True:
            for number in self._reader.recv(16):
                if number not in _STOP_SIGNALS or signal.getsignal(number) is not _note_signal:
                    continue
                if not noted.note(number):
                    continue
                if len(noted) > 1:
                    os._exit(128 + number)
                _stopping.set()
                threading.Thread(target=self._end, args=(number,), daemon=True, name="stop").start()

    def _end(self, number: int) -> None:
        member, share_secs = membership.current(), self._stop_timeout_secs * _SCRIPT_SHARE
        if member is not None:
            member.stop.set()  # a wait for another task must not take the script's time
        if (_stop_requests or number == signal.SIGINT) and not script_ended.is_set():
            _log.info("stopping: the script has %g s to %s; another signal ends it at once", share_secs,
                      "end" if _stop_requests else "notice the KeyboardInterrupt")
            end_secs = time.monotonic() + share_secs
            for save in _savers:  # while the session is open: a Supervisor's end saves nothing
                _save(save, share_secs)
            for request_stop in _stop_requests:
                request_stop()
            _wait_for_script(share_secs, end_secs)
        if script_ended.is_set():
            time.sleep(share_secs)
        else:
            for save in [*(_savers if member is not None else ()), *_last_savers]:
                _save(save, share_secs)
            if member is not None:
                with contextlib.suppress(Exception):
                    member.finish(STOPPED_CODE)
        _say_stopped()
        leave(STOPPED_CODE)


def _wait_for_script(share_secs: float, end_secs: float) -> None:
    """Waits until the script has ended, or for its share of time, which begins when it has handled an interrupt."""
    while not script_ended.wait(min(_POLL_SECS, max(0.0, end_secs - time.monotonic()))):
        if _handles_interrupt.is_set():
            end_secs = time.monotonic() + share_secs
        elif time.monotonic() >= end_secs:
            return


_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def _forget_parent() -> None:
    """Makes a child process of the script a plain one, which is no task of the cluster.

    Its signals mean what they mean in Python; the script's thread would read them, too.
    """
    signal.set_wakeup_fd(-1)
    for number in _STOP_SIGNALS:
        if signal.getsignal(number) is _note_signal:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    membership.set_current(None)
    _stop_requests.clear()
    _savers.clear()
    _last_savers.clear()


def _note_signal(number: int, frame: object) -> None:
    """Leaves the signal to the thread that reads the wake-up descriptor, unless only Ctrl-C can reach the script."""
    _noted_signal.set()
    if number == signal.SIGINT and not _stop_requests and not script_ended.is_set():
        _handles_interrupt.set()
        raise KeyboardInterrupt


def _save(save: Callable[[], None], timeout_secs: float) -> None:
    try:
        waits.bounded(save, timeout_secs, "the last checkpoint")
    except Exception as error:  # noqa: BLE001 (any error: this process ends now)
        _log.warning("no checkpoint was saved: %s", tensorflow_errors.reason(error))
