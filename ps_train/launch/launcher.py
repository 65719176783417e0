"""`ps_train launch`: a whole cluster as processes of this machine.

    prepare    one subprocess checks flags and plug-ins, fetches the data and builds the graph, before anything starts
    announce   the command of each task, as a person would type it in a terminal of its own
    start      the tasks of the crew, each with a port that is held for it, and a log file
    watch      until all have ended; start again what was lost (--max_restarts); the first that fails ends the others
    tell       each task's exit code, time and restarts; the worst exit code is the launcher's own
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence

from ps_train.cluster import ports
from ps_train.config.launch import LaunchConfig
from ps_train.config.task import Config
from ps_train.errors import ClusterLostError, ConfigError, LaunchError, StoppedError
from ps_train.launch import command_lines, supervision
from ps_train.launch.display import Display, on_stream
from ps_train.launch.process import Process
from ps_train.launch.restarts import FIRST_RETRYABLE_CODE, Restarts
from ps_train.launch.supervision import Tasks
from ps_train.launch.tmux import Panes
from ps_train.runtime import reports
from ps_train.storage import lock_file

_EMBEDDED_DATASET = "data.digits"
_ENDING_SECS = 5.0  # of a task, when it has taken all the time that it has to stop
_log = logging.getLogger(__name__)


def run(config: Config, launch_config: LaunchConfig, crew: command_lines.Crew | None = None) -> None:
    """Runs a cluster on this machine until its end.

    Args:
      config: what every task is told.
      launch_config: how many tasks there are, and how they are shown.
      crew: which tasks these are; None for the classic cluster of that size.

    Raises:
      ConfigError: refused before any task was started.
      LaunchError: a task failed, or this process was told to stop.
    """
    _refuse_tf_config(os.environ)
    crew = crew or command_lines.crew_of(launch_config)
    read = reports.reader_of(config.log_format, config.train_steps)
    show = Panes(sys.stdout) if launch_config.tmux else on_stream(sys.stdout, crew.names, crew.chief, read=read)
    with supervision.noted_signals() as signals:
        _refuse_folder_in_use(config, signals)
        config = _prepare(config, crew, show, signals)
        if config.download_only:
            return
        config, log_dir = _make_folders(config, launch_config)
        with _started(crew, config, log_dir, show) as tasks:
            failures = _see_through(tasks, show, signals, Restarts(launch_config.max_restarts, show.say),
                                    config.stop_timeout_secs + _ENDING_SECS)
        show.close(signals)
        show.say(_summary(tasks, config, log_dir))
        code = supervision.worst([*failures.values(), *(process.exit_code or 0 for process in tasks.everyone)])
        if code >= FIRST_RETRYABLE_CODE:
            show.say(command_lines.continuation(crew, config, launch_config))
    if signals and not failures:
        raise _stopped(signals[0])
    if failures:
        raise LaunchError(f"{' and '.join(failures)} failed", code)


def _refuse_tf_config(environ: Mapping[str, str]) -> None:
    if environ.get("TF_CONFIG", "").strip():
        raise ConfigError("TF_CONFIG is set, which places a single task; launch places all of them itself: unset it, "
                          "or run that task with `ps_train` alone")


def _refuse_folder_in_use(config: Config, signals: Sequence[int]) -> None:
    """Finds what the chief would find only after seconds.

    Raises:
      ConfigError: another training has the folder that was given.
      LaunchError: this process was told to stop.
    """
    def wait(secs: float) -> bool:
        time.sleep(secs)
        return bool(signals)

    if "train_dir" not in config.given or config.download_only:
        return
    try:
        lock_file.make_free(config.train_dir, config.beat_timeout_secs, wait)
    except StoppedError:
        raise _stopped(signals[0]) from None
    except OSError as error:  # it may be mended by then; the chief says so if not
        _log.debug("cannot read the lock in %s: %s", config.train_dir, error)


def _prepare(config: Config, crew: command_lines.Crew, show: Display | Panes, signals: Sequence[int]) -> Config:
    """Checks everything and fetches the data in one subprocess, and returns what the tasks are to be told.

    Raises:
      LaunchError: it failed, or this process was told to stop.
    """
    show.say(f"Loading TensorFlow, and preparing the data of {config.dataset}")
    code, errors = _run_preparation(config, crew, show, signals)
    has_choice = not config.given & {"dataset", "data_dir"} and not config.download_only
    is_offered = bool(errors) and f"--dataset={_EMBEDDED_DATASET}" in errors[-1]  # else it is no fault of the files
    if code == 1 and is_offered and has_choice and not signals:
        show.say(f"MNIST is not used (data_dir is {config.data_dir}): {_without_advice(errors[-1])}; training on the "
                 f"embedded digits instead (--dataset={_EMBEDDED_DATASET})")
        config = dataclasses.replace(config, dataset=_EMBEDDED_DATASET, given=config.given | {"dataset"})
        code, errors = _run_preparation(config, crew, show, signals)
    if signals:
        raise _stopped(signals[0])
    if code:
        raise LaunchError("\n".join(errors), code)
    return config


def _run_preparation(
    config: Config, crew: command_lines.Crew, show: Display | Panes, signals: Sequence[int]
) -> tuple[int, list[str]]:
    """Returns its exit code and the lines of its ps_train error; any other line is shown."""
    errors: list[str] = []

    def pass_on() -> None:
        for line in process.new_lines():
            if line.startswith("ps_train: "):
                errors.append(line.partition(": ")[2])
            else:
                show.say(line)

    with tempfile.TemporaryDirectory() as folder:
        command = command_lines.on_this_python(command_lines.preparation(crew, config))
        process = Process("preparation", command, os.path.join(folder, "log"), os.environ)
        alone = Tasks([], [process])
        supervision.watch(alone, pass_on, signals)
        supervision.end(alone, pass_on, signals)
    return process.exit_code or 0, errors


def _without_advice(error: str) -> str:
    """Leaves out of a dataset's error the advice to do what launch does anyway."""
    text, _, advice = error.rpartition(": ")
    return text if f"--dataset={_EMBEDDED_DATASET}" in advice else error


def _make_folders(config: Config, launch_config: LaunchConfig) -> tuple[Config, str]:
    """Makes train_dir, a new one where none was given so that nothing is continued by surprise, and log_dir.

    Returns:
      The Config with that train_dir, and log_dir.

    Raises:
      ConfigError: one of them cannot be made.
    """
    try:
        if "train_dir" not in config.given:
            train_dir = _new_folder(f"{config.train_dir}-{time.strftime('%Y%m%d-%H%M%S')}")
            config = dataclasses.replace(config, train_dir=train_dir, given=config.given | {"train_dir"})
        log_dir = launch_config.log_dir or os.path.join(config.train_dir, "logs")
        os.makedirs(log_dir, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the folder {error.filename!r}: {error.strerror}; give other folders with "
                          "--train_dir and --log_dir") from None
    return config, log_dir


def _new_folder(path: str) -> str:
    """Makes the folder, or where it exists one with a number behind its name, and returns its path."""
    number, candidate = 1, path
    while True:
        try:
            os.makedirs(candidate)
            return candidate
        except FileExistsError:
            number += 1
            candidate = f"{path}-{number}"


@contextlib.contextmanager
def _started(crew: command_lines.Crew, config: Config, log_dir: str, show: Display | Panes) -> Iterator[Tasks]:
    """Announces and starts the tasks; kills those that still run at the end, which only a fault of ours leaves."""
    held_ports = ports.hold_ports(len(crew.names))
    lines = command_lines.command_lines(crew, [port.getsockname()[1] for port in held_ports], config)
    show.say(command_lines.announcement(lines, log_dir))
    tasks = Tasks([], [])
    try:
        for name, line, port in zip(crew.names, lines, held_ports):
            log_path = os.path.join(log_dir, f"{name.replace(':', '-')}.log")
            group = tasks.ps if name.startswith("ps:") else tasks.workers
            group.append(show.start(name, command_lines.on_this_python(line), log_path, os.environ, port))
        show.begin()
        yield tasks
    finally:
        for port in held_ports:
            port.close()
        for process in tasks.everyone:
            process.kill()


def _see_through(
    tasks: Tasks, show: Display | Panes, signals: Sequence[int], restarts: Restarts, grace_secs: float
) -> dict[str, int]:
    """Returns when all tasks have ended: name -> exit code of those for whose failure the others were ended."""
    def show_all() -> None:
        show.show(tasks.everyone)

    failed = supervision.watch(tasks, show_all, signals, restarts.revive)
    # A ps that does not end is as good as lost, whatever its exit code becomes when it is ended.
    failures = {process.name: process.exit_code or ClusterLostError.exit_code for process in failed}
    if signals:
        show.say(f"{signal.Signals(signals[0]).name}: stopping the tasks; once more ends them at once")
    for process in failed:
        show.say(_obituary(process, has_shown_lines=not isinstance(show, Panes)))

    def show_cause() -> None:  # what the others say now follows from it, and their logs have it; the chief still saves
        show.show([process for process in tasks.everyone if process in failed or process is tasks.workers[0]])

    supervision.end(tasks, show_cause if failed else show_all, signals, grace_secs)
    followers = [process.name for process in tasks.everyone if process.exit_code and process not in failed]
    if failed and followers:
        show.say(f"{', '.join(followers)}: ended because {' and '.join(failures)} failed")
    return failures


def _obituary(process: Process, has_shown_lines: bool) -> str:
    what = (f"does not end, {supervision.GRACE_SECS:g} s after the last worker" if process.exit_code is None
            else f"failed with exit code {process.exit_code}{_after_restarts(process, ' after ')}")
    if has_shown_lines:
        return f"{process.name} {what}; ending the other tasks. Its log: {process.log_path}"
    return "\n".join([f"{process.name} {what}; ending the other tasks. The last lines of {process.log_path}:",
                      *(f"  {line}" for line in process.last_lines)])


def _summary(tasks: Tasks, config: Config, log_dir: str) -> str:
    ends = ", ".join(f"{process.name} {process.exit_code} ({process.secs:.1f} s{_after_restarts(process, ', ')})"
                     for process in tasks.everyone)
    lines = [f"Exit codes: {ends}", f"Checkpoints: {config.train_dir}  logs: {log_dir}"]
    if config.save_summaries_steps:
        lines.append(f"TensorBoard: {command_lines.tensorboard(config.train_dir)}")
    return "\n".join(lines)


def _after_restarts(process: Process, words: str) -> str:
    return f"{words}{process.restarts} restart{'s' * (process.restarts > 1)}" if process.restarts else ""


def _stopped(number: int) -> LaunchError:
    return LaunchError(f"stopped by {signal.Signals(number).name}", 128 + number)
