"""A script that runs without `ps_train run`, imports ps_train's classes and makes a `Server`: its end.

    sys.excepthook                   an error of ps_train is one line; the process leaves the cluster
    atexit                           the script has ended; the same
    os._exit                         leaves the cluster first
    sys.exit, exit, quit             note the exit code, which Python does not expose
    a signal                         as in ending.py
"""

from __future__ import annotations

import atexit
import builtins
import os
import sys
import threading
from typing import Callable, NoReturn

from ps_train.errors import PsTrainError
from ps_train.parts.legacy.classic import ending
from ps_train.runtime import open_files

_exit_codes = [0]  # the last one is that of `sys.exit`, `exit` or `quit`, which Python does not expose


def _noting_code(leave_python: Callable[..., NoReturn]) -> Callable[..., NoReturn]:
    def exit_and_note(status: object = None) -> NoReturn:
        _exit_codes.append(status if isinstance(status, int) else int(status is not None))
        leave_python(status)

    return exit_and_note


def watch_end(stop_timeout_secs: float) -> None:
    """Makes the end of this process finish the membership, for a script that runs without `ps_train run`."""
    previous = sys.excepthook

    def hook(kind: type, error: BaseException, trace: object) -> None:
        if isinstance(error, PsTrainError) or ending.is_lost_session(error):
            ending.report_failure(error)
        elif not (isinstance(error, KeyboardInterrupt) and ending.is_stopping()):
            previous(kind, error, trace)
        code = ending.exit_code_of(error)
        ending.script_ended.set()
        ending.leave(ending.finish(code))

    def at_exit() -> None:
        if not ending.script_ended.is_set():
            ending.script_ended.set()
            code = ending.finish(_exit_codes[-1])
            open_files.write_all()
            ending.flush()
            # Callbacks that were registered before the server was created do not run. But a thread that is inside
            # TensorFlow while the interpreter shuts down would abort the process.
            os._exit(code)

    sys.excepthook = hook
    for module, name in ((sys, "exit"), (builtins, "exit"), (builtins, "quit")):
        if hasattr(module, name):  # `python -S` has no `exit` and no `quit`
            setattr(module, name, _noting_code(getattr(module, name)))
    atexit.register(at_exit)
    ending.report_hard_end(ending.finish, is_ps=lambda: False)
    if threading.current_thread() is threading.main_thread():
        ending.SignalWatch(stop_timeout_secs)
