"""The preparation of a launch: one subprocess checks everything and fetches the data before any task starts.

The subprocess checks flags and plug-ins, fetches the data and builds the chief's graph, so a fault is found once and
not by every task.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import tempfile
from collections.abc import Sequence
from typing import Callable

from ps_train.config.task import Config
from ps_train.errors import LaunchError, PsTrainError
from ps_train.launch import command_lines, supervision
from ps_train.launch.command_lines import TaskList
from ps_train.launch.display import Display
from ps_train.launch.process import Process, TaskCommand, error_of
from ps_train.launch.supervision import ClusterProcesses
from ps_train.runtime import logs
from ps_train.runtime.reports import Failure

_EMBEDDED_DATASET = "data.digits"


def prepare(
    config: Config, tasks: TaskList, display: Display, signals: Sequence[int],
    command: Callable[[str, Sequence[str]], TaskCommand],
) -> Config:
    """Checks everything, fetches the data, and returns the flags of the tasks.

    Args:
      command: returns how a process is started that runs a command line of ps_train for a task.

    If MNIST cannot be fetched and the user gave neither dataset nor data_dir, the dataset becomes the embedded one.

    Raises:
      LaunchError: the preparation failed, or this process was asked to stop.
    """
    display.write(f"Loading TensorFlow, {config.model} and {config.dataset}")
    code, failure, cause = _run(config, tasks, display, signals, command)
    is_default_dataset = fallback_dataset(config) is not None and not config.download_only
    if code and failure.missing_data and is_default_dataset and not signals:
        display.write(f"MNIST is not used (data_dir is {config.data_dir}): {failure.missing_data}; training on the "
                      f"synthetic digits instead (--dataset={_EMBEDDED_DATASET})")
        config = dataclasses.replace(config, dataset=_EMBEDDED_DATASET, given=config.given | {"dataset"})
        code, failure, cause = _run(config, tasks, display, signals, command)
    if signals:
        raise stopped(signals[0])
    if code and not failure.message:
        raise LaunchError("preparation_failed", "the preparation, which loads the model and the data, failed with exit "
                          f"code {code}{_signal_words(code)}; look at the lines above it, and whether its machine has "
                          "enough memory", code, cause=cause)
    if code:
        message = "" if logs.is_json() else "\n".join(failure.message)  # as JSON it is shown already
        raise LaunchError("", message, code, cause)
    return config


def _signal_words(code: int) -> str:
    """Returns the signal in brackets that an exit code stands for, or ""."""
    with contextlib.suppress(ValueError):
        return f" ({signal.Signals(code - 128).name})"
    return ""


def fallback_dataset(config: Config) -> str | None:
    """Returns the dataset that replaces files which cannot be fetched, or None if the user has chosen the data."""
    return None if config.given & {"dataset", "data_dir"} else _EMBEDDED_DATASET


def _run(
    config: Config, tasks: TaskList, display: Display, signals: Sequence[int],
    command: Callable[[str, Sequence[str]], TaskCommand],
) -> tuple[int, Failure, PsTrainError]:
    """Returns the exit code of the subprocess, its failure, whose message is not displayed, and the error of it."""
    failure = Failure([])

    def show_output() -> None:
        nonlocal failure
        for line, report in process.new_output():
            if isinstance(report, Failure):
                failure = report
            if line not in failure.lines():
                display.write(line)

    with tempfile.TemporaryDirectory() as folder:
        chief = command(tasks.chief, command_lines.preparation(tasks, config))
        process = Process("preparation", chief.command, os.path.join(folder, "log"), chief.environ, folder=chief.folder,
                          start=chief.start)
        alone = ClusterProcesses([], [process])
        supervision.watch(alone, show_output, signals)
        supervision.end(alone, show_output, signals)
    code = process.exit_code or 0
    return code, failure, error_of(process.failure_lines or process.last_lines, code)


def stopped(number: int) -> LaunchError:
    """Returns the error of a launcher that a signal asked to stop."""
    return LaunchError("stopped_by_signal", f"stopped by {signal.Signals(number).name}", 128 + number)
