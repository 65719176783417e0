"""The command line, `python -m ps_train [verb] --flags`: runs a verb and turns its errors into lines and exit codes.

    argv --> verbs/table.py --> a verb --> Config --> the cluster --> tasks/run.py, launch/launcher.py ... --> exit code

Nothing here imports TensorFlow before the flags are checked.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Sequence

from ps_train import __version__
from ps_train.config import flag_help
from ps_train.errors import ConfigError, MissingDataError, Problem, PsTrainError, StoppedError, StopRequestedError
from ps_train.runtime import installed, logs, open_files, reports, tracebacks
from ps_train.verbs import table
from ps_train.verbs.verb import Verb

_CLEAN_UP_SECS = 8.0  # less than what a launch gives a ps after the last worker
_STOPPED_CLEAN_UP_SECS = 2.0
_WRITE_SECS = 2.0
_HELP = {"help", "h", "help_all", "helpfull", "helpshort"}


def main(argv: Sequence[str]) -> int:
    """Runs one command line, without the program's name, and returns the exit code."""
    logs.setup()
    try:
        name, arguments = table.split_argv(argv)
        verb = table.find_verb(name)
        own_arguments = verb.own_arguments(arguments)
        if help_flags := _HELP & {argument.lstrip("-") for argument in own_arguments if argument.startswith("-")}:
            with contextlib.suppress(BrokenPipeError):  # a pager that was closed
                print(_help(argv, name, arguments, is_all=bool(help_flags - {"help", "h"})), flush=True)
        elif "--version" in own_arguments:
            print(__version__)
        else:
            _run(verb, arguments, own_arguments)
    except PsTrainError as error:
        missing_data = error.fault if isinstance(error, MissingDataError) else ""
        _print_failure([], reports.Failure(error.lines(), missing_data,
                                           is_requested=isinstance(error, StopRequestedError)), error)
        return error.exit_code
    except KeyboardInterrupt:  # before a task or a launcher handles signals itself
        return 128 + signal.SIGINT
    except (Exception, SystemExit) as error:  # noqa: BLE001 (from the user's code: its traceback helps)
        trace, fault = (tracebacks.whole(error), None) if installed.is_verbose else tracebacks.report(error)
        _print_failure(trace, reports.Failure(fault.lines() if fault else [], is_in_user_code=bool(trace and fault)),
                       fault)
        return 1
    return 0


def _help(argv: Sequence[str], name: str, arguments: Sequence[str], *, is_all: bool) -> str:
    if list(argv[:1]) == [name]:
        return table.help_of(name, arguments)
    return table.help_all(arguments) if is_all else table.help_screen()


def _run(verb: Verb, arguments: Sequence[str], own_arguments: Sequence[str]) -> None:
    try:
        with flag_help.completed_words(arguments, own_arguments) as words:
            if verb.asks_for_json(words):  # before its flags are checked: their errors are lines of the log, too
                logs.setup_json()
            verb.run(words)
    except FileNotFoundError as error:
        if "No usable temporary directory" not in str(error):  # tempfile's words, also with a full disk
            raise
        raise ConfigError("folder_not_writable", f"{error.strerror}; make room, or let TMPDIR name a folder that this "
                          "user may write to") from None


def _print_failure(trace: list[str], failure: reports.Failure, error: PsTrainError | None) -> None:
    """Prints why this process fails, and reports it to the launcher, if one has started this process.

    Args:
      error: what the message of the failure is of; None if there is only a traceback.
    """
    if logs.is_json():
        problems = [problem for problem in error.problems if problem] if error else [Problem("", trace[-1])]
        reports.send(failure, list(problems))
        level = "warning" if error and error.exit_code == StoppedError.exit_code else "error"
        lines = [logs.json_line(
            problem, level=level, code=problem.code or None, exit_code=error.exit_code if error else 1,
            traceback="\n".join(trace) or None) for problem in problems]
    else:
        lines = [*trace, *failure.lines()]
        reports.send(failure, lines)
    if lines:  # a launch may have shown all
        logs.complain("".join(f"{line}\n" for line in lines))


def _open_closed_streams() -> None:
    """Opens /dev/null for those of stdin, stdout and stderr that are closed, as they may be in a daemon."""
    # Otherwise a file that is opened later, such as a server's socket, would get such a number and receive the prints.
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(opened)
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (it lasts as long as the process)
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def _clean_up(code: int) -> None:
    """Does what the interpreter does at its end, in bounded time: exit functions, then what is left in open files."""
    is_stopped = code in (128 + signal.SIGINT, 128 + signal.SIGTERM)
    for work, what, bound_secs in (
        # TensorFlow removes temporary files there; there is no public name.
        (atexit._run_exitfuncs, "functions of `atexit`, or child processes",  # noqa: SLF001
         _STOPPED_CLEAN_UP_SECS if is_stopped else _CLEAN_UP_SECS),
        (open_files.write_all, "last writes to open files", _WRITE_SECS),
    ):
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(bound_secs)
        if thread.is_alive():
            logs.complain(f"ps_train: the {what} did not end within {bound_secs:g} s, and are cut off\n")


def console() -> None:
    """Runs the command line of this process, and ends the process with its exit code."""
    if os.getpid() == 1:  # in a container: the kernel drops a signal for which process 1 has no handler
        signal.signal(signal.SIGTERM, lambda number, frame: os._exit(128 + number))
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # inherited: the exit codes of tasks would be lost
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    reports.connect()
    _open_closed_streams()
    code = main(sys.argv[1:])
    _clean_up(code)
    if "multiprocessing.process" in sys.modules:  # the user's: they would keep this task's port
        for child in sys.modules["multiprocessing.process"].active_children():
            child.kill()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # a closed pipe or a full disk: the exit code still counts
            stream.flush()
    # Not `sys.exit`: threads that a lost peer holds inside TensorFlow would keep the process alive, or write warnings
    # while the interpreter shuts down.
    os._exit(code)


if __name__ == "__main__":
    console()
