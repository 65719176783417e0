"""Runs a function that yields batches in several processes, and yields the batches in order.

    process i of n --> batches i, i + n, ... --> its own file
    this process   <-- one batch of each file in turn
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import pickle
import signal
import tempfile
import threading
from collections.abc import Iterator
from multiprocessing import connection
from typing import IO, Any, Callable

from ps_train.errors import ConfigError, Problem, PsTrainError, StoppedError, UserCodeError
from ps_train.runtime import installed, logs, tracebacks

_POLL_SECS = 0.2
_END_SECS = 5.0

# Called with the configuration and (index, count) in its own process; a function at the top of its module.
YieldBatches = Callable[[Any, "tuple[int, int]"], Iterator[Any]]


def batches_in_order(
    function: YieldBatches, config: Any, num_processes: int, folder: str, stop: threading.Event
) -> Iterator[Any]:
    """Yields the batches of `function(config, (index, count))` in all processes: the first of each, the second ...

    Args:
      config: has `tf_log`.
      folder: has room for all batches; a temporary folder is made there.
      stop: ends the processes.

    Raises:
      PsTrainError: a process has raised it.
      StoppedError: `stop` was set.
    """
    if num_processes == 1:
        for batch in function(config, (0, 1)):
            if stop.is_set():
                raise StoppedError("stopped", "stopped while predicting; nothing was written")
            yield batch
        return
    with tempfile.TemporaryDirectory(prefix=".predictions-", dir=folder) as parts:
        files = [os.path.join(parts, str(index)) for index in range(num_processes)]
        _run_all(function, config, files, stop)
        yield from _in_turn(files)


def _run_all(function: YieldBatches, config: Any, files: list[str], stop: threading.Event) -> None:
    context = multiprocessing.get_context("spawn")  # a fork of a process that has used TensorFlow may hang
    place = (function.__module__, function.__name__)  # the function itself would import TensorFlow at once, and loudly
    running = []
    try:
        for index, file in enumerate(files):
            receiving, sending = context.Pipe(duplex=False)
            process = context.Process(target=_run_one, daemon=True, name=f"predict {index}",
                                      args=(place, config, (index, len(files)), file, sending))
            process.start()
            sending.close()
            running.append((process, receiving))
        for process, receiving in running:
            while not connection.wait([receiving], _POLL_SECS):
                if stop.is_set():
                    raise StoppedError("stopped", "stopped while predicting; nothing was written")
            _check(process, receiving)
    finally:
        for process, _ in running:
            process.terminate()
        for process, _ in running:
            process.join(_END_SECS)


def _check(process: Any, receiving: Any) -> None:
    """Raises the error that a process has raised."""
    try:
        exit_code, trace, problems = receiving.recv()
    except EOFError:
        process.join(_END_SECS)
        raise UserCodeError("process_died", f"the process `{process.name}` ended with {process.exitcode} without an "
                            "error; did the machine run out of memory? Use fewer --num_processes") from None
    if trace:
        logs.complain("".join(f"{line}\n" for line in trace))
    if exit_code:
        error = {ConfigError.exit_code: ConfigError, UserCodeError.exit_code: UserCodeError}.get(
            exit_code, PsTrainError)("", "\n".join(text for _, text in problems))
        error.problems = tuple(Problem(code, text) for code, text in problems)
        raise error


def _run_one(place: tuple[str, str], config: Any, share: tuple[int, int], file: str, sending: Any) -> None:
    """Runs one process; sends (exit code, lines of a traceback, (code, text) of each problem)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the first process ends the others
    threading.Thread(target=_end_with_parent, daemon=True).start()
    result: tuple[int, list[str], list[tuple[str, str]]] = (0, [], [])
    try:
        logs.setup()
        installed.import_tensorflow(needs_gpu=True, tf_log=config.tf_log)
        function = getattr(importlib.import_module(place[0]), place[1])
        write_batches(function(config, share), file)
    except PsTrainError as error:
        result = (error.exit_code, [], [(problem.code, str(problem)) for problem in error.problems])
    except Exception as error:  # noqa: BLE001 (from the user's code: its traceback helps)
        trace, fault = tracebacks.report(error)
        problems = fault.problems if fault else [Problem("", str(error))]
        result = (1, trace, [(problem.code, str(problem)) for problem in problems])
    sending.send(result)
    sending.close()


def write_batches(batches: Iterator[Any], file: str) -> None:
    """Writes batches to a file of this process; raises ConfigError if it cannot, as on a full disk."""
    with contextlib.ExitStack() as stack:
        with _writable(file):
            parts = open(file, "wb")  # noqa: SIM115 (closed below)
        stack.callback(_close, parts)
        for batch in batches:
            with _writable(file):
                pickle.dump(batch, parts, pickle.HIGHEST_PROTOCOL)
                parts.flush()


@contextlib.contextmanager
def _writable(file: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError("file_not_writable", f"--output: cannot write the predictions of a process in "
                          f"{os.path.dirname(file)!r}: {error.strerror}; give a file on a disk with room for all of "
                          "them twice") from None


def _close(parts: IO[bytes]) -> None:
    with contextlib.suppress(OSError):  # of a full disk once more; all that counts was flushed
        parts.close()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _in_turn(files: list[str]) -> Iterator[Any]:
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(open(file, "rb")) for file in files]
        while True:
            for parts in opened:
                try:
                    yield pickle.load(parts)
                except EOFError:
                    return  # the batches are dealt in turn, so no other process has a further one
