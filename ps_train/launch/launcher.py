"""The steps of a launch: what is refused, the folders, the tasks from start to end, and the summary.

    start      start the tasks, each with a reserved port and a log file
    watch      wait until all have ended; restart lost tasks (--max_restarts); the first failure ends the others
    summarize  each task's exit code, time and restarts; the worst exit code is that of the launcher

`training.py` runs them all, and `ps_train launch run` some.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

from ps_train.config.folders import local_folder
from ps_train.config.launch import LaunchConfig
from ps_train.config.task import Config
from ps_train.errors import ClusterLostError, ConfigError, LaunchError, StoppedError
from ps_train.launch import command_lines, preparation, supervision
from ps_train.launch.command_lines import TaskList
from ps_train.launch.display import JSON_NAME, Display, JsonDisplay, on_stream
from ps_train.launch.part import make_launch_parts
from ps_train.launch.process import Process, TaskCommand, error_of
from ps_train.launch.supervision import ClusterProcesses, Restarts
from ps_train.runtime import logs
from ps_train.storage import folder_lock

KILL_SECS = 5.0  # for a task to end after all the time that it has to stop, before SIGKILL
_log = logging.getLogger(__name__)


def display_of(config: Config, launch_config: LaunchConfig, tasks: TaskList) -> Display:
    """Returns the display of a part, or one that shows all tasks in one output; as JSON if the log is to be that."""
    if config.log_format == "json":
        logs.setup_json(JSON_NAME)
    shown = (part.display(launch_config, sys.stdout) for part in make_launch_parts())
    return next(filter(None, shown), None) or (
        JsonDisplay(sys.stdout) if logs.is_json() else on_stream(sys.stdout, tasks.names, tasks.chief))


def refuse_tf_config(environ: Mapping[str, str]) -> None:
    """Raises ConfigError if the environment places a single task."""
    if environ.get("TF_CONFIG", "").strip():
        raise ConfigError("tf_config_set", "TF_CONFIG is set, which places a single task; launch places all of them "
                          "itself: unset it, or run that task with `ps_train` alone")


def refuse_folder_in_use(config: Config, signals: Sequence[int], working_dir: str = "") -> None:
    """Checks the lock of the --train_dir, which the chief would check only after seconds.

    Args:
      signals: see `noted_signals`.
      working_dir: where relative paths begin; "" for the folder of this process.

    Raises:
      ConfigError: another training uses the folder.
      LaunchError: this process was asked to stop.
    """
    def wait(secs: float) -> bool:
        time.sleep(secs)
        return bool(signals)

    if "train_dir" not in config.given or config.download_only:
        return
    try:
        folder_lock.make_free(
            os.path.join(working_dir, local_folder(config.train_dir)), config.beat_timeout_secs, wait)
    except StoppedError:
        raise preparation.stopped(signals[0]) from None
    except OSError as error:  # the chief checks it again
        _log.debug("cannot read the lock in %s: %s", config.train_dir, error)


def make_folders(config: Config, launch_config: LaunchConfig, working_dir: str = "") -> tuple[Config, str]:
    """Creates train_dir (a new one without --train_dir, not to continue an old training) and log_dir.

    Args:
      working_dir: where relative paths begin; "" for the folder of this process.

    Returns:
      The Config with that train_dir, and log_dir.

    Raises:
      ConfigError: one of them cannot be created.
    """
    try:
        if "train_dir" not in config.given:
            train_dir = _new_folder(f"{config.train_dir}-{time.strftime('%Y%m%d-%H%M%S')}")
            config = dataclasses.replace(config, train_dir=train_dir, given=config.given | {"train_dir"})
        folder = os.path.join(working_dir, local_folder(config.train_dir))
        log_dir = os.path.join(working_dir, launch_config.log_dir or os.path.join(folder, "logs"))
        os.makedirs(log_dir, exist_ok=True)
        if "://" in config.train_dir:  # the chief makes one that is a path
            os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise ConfigError("folder_not_writable", f"cannot create the folder {error.filename!r}: {error.strerror}; give "
                          "others with --train_dir and --log_dir, or a temporary folder with TMPDIR") from None
    return config, log_dir


def _new_folder(path: str) -> str:
    """Creates a folder, with a number after its name if one of that name exists, and returns its path."""
    number, candidate = 1, path
    while True:
        try:
            os.makedirs(candidate)
            return candidate
        except FileExistsError:
            number += 1
            candidate = f"{path}-{number}"


@contextlib.contextmanager
def started(
    commands: Sequence[TaskCommand], held_ports: Sequence[socket.socket | None], log_dir: str, display: Display
) -> Iterator[ClusterProcesses]:
    """Starts the tasks; at the end kills those that still run, which happens only after a bug here.

    Args:
      held_ports: the socket that reserves the port of each task; None where it does not run here.

    Raises:
      ConfigError: another launch writes its logs into that folder.
    """
    cluster = ClusterProcesses([], [])
    try:
        with _locked(log_dir):
            for task, port in zip(commands, held_ports):
                log_path = os.path.join(log_dir, f"{task.name.replace(':', '-')}.log")
                group = cluster.ps if task.name.startswith("ps:") else cluster.workers
                group.append(display.start(task, log_path, port))
            display.attach()
            yield cluster
    finally:
        for port in filter(None, held_ports):
            port.close()
        for process in cluster.all:
            process.kill()
            process.close()


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Lets no other launch write its logs into a folder, where each would take the lines of both for its own."""
    with contextlib.ExitStack() as stack:
        try:
            # Not a file in it: on SMB nobody else could write to that then.
            descriptor = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            stack.callback(fcntl.flock, descriptor, fcntl.LOCK_UN)  # a child of the program may have it open, too
        except BlockingIOError:
            raise ConfigError("log_dir_in_use", f"another launch writes its logs into {folder!r}; give another folder "
                              "with --log_dir, or wait until that launch has ended") from None
        except OSError as error:  # as on NFS
            _log.debug("cannot lock %s: %s", folder, error)
        yield


def run_to_end(
    cluster: ClusterProcesses, display: Display, signals: Sequence[int], restarts: Restarts, grace_secs: float
) -> LaunchError | None:
    """Waits until all tasks have ended; returns the error if some have failed, which ends the others."""
    def show_output() -> None:
        display.write_output(cluster.all)

    failed = supervision.watch(cluster, show_output, signals, restarts.restart_due)
    # A ps that does not end counts as lost, with any exit code when it is killed.
    codes = [process.exit_code or ClusterLostError.exit_code for process in failed]
    names = " and ".join(process.name for process in failed)
    if signals:
        display.write(f"{signal.Signals(signals[0]).name}: stopping the tasks; once more ends them at once")
    for process in failed:
        display.write(_failure_report(process, has_shown_lines=display.shows_lines))

    # Further output of the others is a consequence, and in their logs; the chief still saves.
    causes = [process for process in cluster.all if process in failed or process is cluster.workers[0]]
    supervision.end(cluster, (lambda: display.write_output(causes)) if failed else show_output, signals, grace_secs)
    followers = [process.name for process in cluster.all if process.exit_code and process not in failed]
    if failed and followers:
        display.write(f"{', '.join(followers)}: ended because {names} failed")
    if not failed:
        return None
    first = next((process for process in failed if process.failure_lines), failed[0])
    cause = error_of(first.failure_lines or first.last_lines, codes[failed.index(first)], first.name)
    return LaunchError("task_failed", f"{names} failed", supervision.worst([*codes, worst_code(cluster)]), cause)


def worst_code(cluster: ClusterProcesses) -> int:
    """Returns the worst exit code of the tasks, see `supervision.worst`."""
    return supervision.worst([process.exit_code or 0 for process in cluster.all])


def _failure_report(process: Process, has_shown_lines: bool) -> str:
    ending = (f"does not end, {supervision.GRACE_SECS:g} s after the last worker" if process.exit_code is None
              else f"failed with exit code {process.exit_code}{_after_restarts(process, ' after ')}")
    if has_shown_lines:
        return f"{process.name} {ending}; ending the other tasks. Its log: {process.log_path}"
    return "\n".join([f"{process.name} {ending}; ending the other tasks. The last lines of {process.log_path}:",
                      *(f"  {line}" for line in process.last_lines)])


def exit_codes(cluster: ClusterProcesses) -> str:
    """Returns the line with each task's exit code, time and restarts."""
    ends = ", ".join(f"{process.name} {process.exit_code} ({process.secs:.1f} s{_after_restarts(process, ', ')})"
                     for process in cluster.all)
    return f"Exit codes: {ends}"


def end_summary(cluster: ClusterProcesses, config: Config, log_dir: str) -> str:
    """Returns the lines with the exit codes, the folders, and the command that shows the curves."""
    lines = [exit_codes(cluster), f"Checkpoints: {config.train_dir}  logs: {log_dir}"]
    if config.save_summaries_steps:
        lines.append(f"TensorBoard: {command_lines.tensorboard(local_folder(config.train_dir))}")
    return "\n".join(lines)


def _after_restarts(process: Process, words: str) -> str:
    return f"{words}{process.restarts} restart{'s' * (process.restarts > 1)}" if process.restarts else ""
