"""`ps_train.Training`: a training as one object, which `ps_train launch` and `ps_train.testing` run, too.

    Training(model=..., dataset=..., train_dir=..., **flags)
        launch, wait       a process per task, in a thread here      prepare --> announce --> start --> watch --> Result
        run                the same in this thread, with the output of all tasks: `ps_train launch`
        run_in_threads     all tasks in this process, for tests: in_threads.py

What is asked of a running training, `status` and `save`, its verb asks in another process: this one needs no
TensorFlow.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ps_train.config import flag_help
from ps_train.config.folders import check_data_dir, local_folder
from ps_train.config.launch import LaunchConfig, parse_launch
from ps_train.config.task import Config
from ps_train.errors import ClusterLostError, ConfigError, LaunchError, StoppedError, TrainingEndedError
from ps_train.launch import command_lines, in_threads, launcher, launching, preparation, supervision
from ps_train.launch.command_lines import TaskList
from ps_train.launch.display import Display, StatusLine
from ps_train.launch.fork_server import ForkServer
from ps_train.launch.machines import ThisMachine, machines_of
from ps_train.launch.process import Started, TaskCommand, error_of, killed_with_parent
from ps_train.launch.result import Result, events_of, make_result
from ps_train.launch.supervision import FIRST_RETRYABLE_CODE, Restarts
from ps_train.plugins.functions import ProgramCode, import_path, plugin_name
from ps_train.runtime import reports
from ps_train.runtime.reports import Progress, Stage
from ps_train.storage import run_record

_POLL_SECS = 0.1
_ASK_SECS = 90.0  # for a verb, with the import of TensorFlow
_launched: dict[threading.Event, list[int]] = {}  # of the trainings that have not ended: end -> signals


class Training:
    """A training of a model on a dataset with parameter servers and workers.

    Any thread may use it, any number may run at once, and one may be launched again, which continues it. A process that
    ends, in whatever way, ends the tasks that it has launched.
    """

    _code: Sequence[ProgramCode] = ()
    _folder = ""  # the working directory at the launch; the program may change to another one meanwhile
    _import_path = ""
    _fork_server: ForkServer | None = None  # while it runs

    def __init__(
        self, model: str | types.ModuleType | Callable | None = None,
        dataset: str | types.ModuleType | Callable | None = None, *, num_ps: int | None = None,
        num_workers: int | None = None, train_dir: str | os.PathLike | None = None, **flags: Any,
    ) -> None:
        """Checks the flags; nothing is started, and no file is touched.

        Args:
          model: as --model; or the module, or a model_fn, which may be defined in a notebook.
          dataset: as --dataset; or the module, or an input_fn.
          num_ps: parameter servers, 2 by default.
          num_workers: workers, including the chief, 2 by default.
          train_dir: folder of checkpoints, or its URL, from which training continues; a new one by default.
          flags: any flag of `ps_train launch` by name, such as `train_steps=200`. `None` stands for the default, a dict
            for `name=value,...`, a list for `value,...`.

        Raises:
          ConfigError: a flag does not exist, or its value is not allowed.
        """
        plugins = {"model": plugin_name("model", model), "dataset": plugin_name("dataset", dataset)}
        named = {**{flag: getattr(plugin, "name", plugin) for flag, plugin in plugins.items()}, "num_ps": num_ps,
                 "num_workers": num_workers, "train_dir": train_dir, **flags}
        words = [f"--{name}={command_lines.flag_text(value)}" for name, value in named.items() if value is not None]
        with flag_help.completed_words(words, words) as completed:  # with the flags of a file
            self._take(*parse_launch(completed))
        self._code = [plugin for plugin in plugins.values() if isinstance(plugin, ProgramCode)]
        self._import_path = import_path()
        if self._code and "://" in self._config.train_dir:
            raise ConfigError("plugin_not_importable", f"--train_dir: got {self._config.train_dir}, where no module "
                              "can be written for the tasks; put the functions into a module, or give a local folder")

    def _take(self, config: Config, launch_config: LaunchConfig, tasks: TaskList | None = None) -> None:
        self._config, self._launch_config = config, launch_config
        self._tasks = tasks or command_lines.task_list(launch_config)
        self._signals: list[int] = []
        self._ended: threading.Event | None = None  # not the thread: KeyboardInterrupt in its join calls it dead
        self._display = self._recorder()
        self._result: Result | None = None
        self._log_dir = ""
        self._exit_codes: Mapping[str, int] = {}

    @property
    def train_dir(self) -> str:
        """Its folder; "" before a training without a train_dir has made one."""
        return self._config.train_dir if "train_dir" in self._config.given else ""

    @property
    def is_running(self) -> bool:
        """Whether it was launched and has not ended."""
        return self._ended is not None and not self._ended.is_set()

    @property
    def progress(self) -> Progress | Stage | None:
        """The newest progress that the chief has reported, with step, train_steps, loss and rates; None before it."""
        return self._display.progress

    @property
    def result(self) -> Result | None:
        """How it has ended; None before."""
        return self._result

    def command(self) -> str:
        """Returns the command line that does the same in a shell, in the working directory.

        The module with a function of this program is there after the launch.
        """
        variables = "".join(f"{name}={shlex.quote(value)} " for name, value in self._variables().items())
        return variables + command_lines.typed(
            command_lines.launch_line(self._tasks, self._config, self._launch_config))

    def launch(self) -> Training:
        """Starts the cluster, as processes on this machine or on those of `hosts`, and returns this training at once.

        Raises:
          ConfigError: it runs already, or this process is itself a task.
        """
        if self.is_running:
            raise ConfigError("training_runs", f"the training in {self.train_dir or 'a new folder'} runs already; "
                              "wait() for its end, or stop() it")
        if reports.is_launched():
            raise ConfigError("launch_in_task", "this process is a task of a training, and imports the module that "
                              "launches it; put the launch behind `if __name__ == \"__main__\":`")
        self._folder = os.getcwd()
        self._signals, self._display, self._result = [], self._recorder(), None
        self._ended = threading.Event()
        _launched[self._ended] = self._signals
        threading.Thread(target=self._work, args=[self._ended], daemon=True, name="ps_train launcher").start()
        return self

    def wait(self, timeout_secs: float = math.inf, *, shows_progress: bool = True) -> Result:
        """Returns the result when the training has ended; KeyboardInterrupt, which is Ctrl-C, ends it.

        Args:
          timeout_secs: how long to wait; the training goes on after that.
          shows_progress: draws a bar, if stdout is a terminal or the output of a notebook.

        Raises:
          ClusterLostError: a task was lost, or the time is over.
          PsTrainError: a task failed, with the code and the traceback of its error, or the training was stopped by
            others.
        """
        if self._ended is None:
            raise ConfigError("not_launched", "wait: the training was not launched; launch() it first")
        end_secs = time.monotonic() + timeout_secs
        try:
            with StatusLine(sys.stdout if shows_progress else None) as status_line:
                while not self._ended.wait(_POLL_SECS):
                    if time.monotonic() > end_secs:
                        raise ClusterLostError("timed_out", f"waited {timeout_secs:g} s for the training in "
                                               f"{self.train_dir}, which goes on; wait() longer, or stop() it")
                    status_line.show(self._display)
                assert self._result is not None
                status_line.write(str(self._result))
        except KeyboardInterrupt:
            self._end(signal.SIGINT)
            raise
        error = self._result.error
        if error is not None and getattr(error, "code", "") != "stopped_by_signal":
            raise error
        return self._result

    def run(self) -> None:
        """Launches it in this thread, with the output of all tasks, until it ends: what `ps_train launch` does.

        Raises:
          ConfigError: refused before any task was started.
          LaunchError: a task failed, or this process was asked to stop.
        """
        self._display = launcher.display_of(self._config, self._launch_config, self._tasks)
        with supervision.noted_signals() as self._signals:
            self._run()

    def run_in_threads(self, timeout_secs: float = 300.0) -> in_threads.ClusterResult:
        """Trains to the end with all tasks in threads of this process, for tests, and returns what the workers did.

        TensorFlow is imported, and put into TF1 mode for the whole process.

        Args:
          timeout_secs: time for all of it.

        Raises:
          ClusterLostError: the tasks did not end in time; the message names those that still ran.
          Exception: that of the first task at fault; a PsTrainError has the exit code.
        """
        self._folder = os.getcwd()
        self._config, _ = launcher.make_folders(self._config, self._launch_config)
        if self._code:
            sys.path.insert(0, os.path.abspath(self._write_code().train_dir))
            for code in self._code:
                sys.modules.pop(code.name, None)
        return in_threads.run_tasks(self._config, self._launch_config, timeout_secs)

    def status(self) -> Mapping[str, Any]:
        """Returns what `ps_train status --json` prints: the state, step, workers, ps and more. It takes seconds."""
        try:
            return json.loads(self._ask("status", "--json"))
        except ConfigError as error:
            if self.is_running and error.code == "no_training_in_folder":
                return {"state": "starting", "step": None}
            raise

    def save(self) -> str:
        """Lets the chief save now, and returns the path of the checkpoint.

        Raises:
          PsTrainError: it cannot save, or the training does not run.
        """
        answer = self._ask("save").splitlines()[-1]
        if not answer.startswith("saved "):
            raise TrainingEndedError("training_ended", answer, 1)
        return answer.removeprefix("saved ")

    def stop(self) -> Result | None:
        """Lets all tasks save and end, and returns the result; None if another process has launched the training.

        Raises:
          PsTrainError: another process has launched it, and it does not answer.
        """
        if self._ended is None:
            self._ask("stop")
        elif self.is_running:
            self._end(signal.SIGTERM)
        return self._result

    def __enter__(self) -> Training:
        return self

    def __exit__(self, *_: object) -> None:
        """Stops it, if it still runs."""
        if self.is_running:
            self.stop()

    def _recorder(self) -> Display:
        return Display(None, self._tasks.names, self._tasks.chief, is_terminal=True, has_colours=False)

    def _ask(self, verb: str, *flags: str) -> str:
        """Returns what a verb prints about this training; raises its error."""
        if not self.train_dir:
            raise ConfigError("no_training_in_folder", f"`{verb}`: the training has no folder yet; launch() it first, "
                              "or give its --train_dir")
        command = command_lines.on_this_python([verb, f"--train_dir={self.train_dir}", *flags])
        try:
            ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                                   timeout=_ASK_SECS, preexec_fn=killed_with_parent(),
                                   env={**os.environ, **self._variables()}, cwd=self._folder or None)
        except subprocess.TimeoutExpired:
            raise ClusterLostError("timed_out", f"no answer to `ps_train {verb}` within {_ASK_SECS:g} s") from None
        if ended.returncode and not ended.stdout.startswith("{"):
            raise error_of(ended.stderr.splitlines(), ended.returncode)
        return ended.stdout

    def _work(self, ended: threading.Event) -> None:
        """Runs it in the thread of `launch`."""
        try:
            self._result = self._run_to_result()
        finally:
            del _launched[ended]
            ended.set()

    def _run_to_result(self) -> Result:
        error: BaseException | None = None
        start_secs, num_events = time.monotonic(), len(events_of(self._train_path()))
        try:
            self._run()
        except LaunchError as launch_error:
            error = launch_error.cause or launch_error
        except BaseException as other_error:  # noqa: BLE001 (raised by wait)
            error = other_error
        return make_result(
            events_of(self._train_path())[num_events:], error, secs=time.monotonic() - start_secs,
            exit_codes=self._exit_codes, train_dir=self._train_path(), log_dir=self._log_dir)

    def _train_path(self) -> str:
        """Returns the train_dir as it is found from any working directory."""
        is_path = self.train_dir and "://" not in self.train_dir
        return os.path.join(self._folder, self.train_dir) if is_path else self.train_dir

    def _end(self, number: int) -> None:
        """Ends it as a signal would; KeyboardInterrupt while it waits kills the tasks."""
        self._signals.append(number)
        assert self._ended is not None
        try:
            self._ended.wait()  # the launcher ends in bounded time
        except KeyboardInterrupt:
            self._signals.append(number)
            self._ended.wait()
            raise

    def _run(self) -> None:
        """Runs it from start to end; raises a LaunchError with the exit code, unless it has ended by itself."""
        self._log_dir, self._exit_codes = "", {}
        config, signals = self._config, self._signals
        launcher.refuse_tf_config(os.environ)
        grace_secs = config.stop_timeout_secs + launcher.KILL_SECS
        with machines_of(self._launch_config, self._tasks, signals, grace_secs, working_dir=self._folder) as machines:
            if machines.is_here:  # otherwise the preparation checks it, on the chief's machine
                check_data_dir(config, self._folder)
            launcher.refuse_folder_in_use(config, signals, self._folder)
            folder = os.path.join(self._folder, local_folder(self.train_dir)) if self.train_dir else ""
            with launching.marked("" if config.download_only else folder):
                self._prepare_and_run(config, machines, grace_secs)

    def _prepare_and_run(self, config: Config, machines: ThisMachine, grace_secs: float) -> None:
        if self._code:
            config = self._write_code()
        with contextlib.closing(ForkServer({**os.environ, **self._variables()}, folder=self._folder)) as fork_server:
            self._fork_server = fork_server if machines.is_here and not config.tf_log else None
            config = self._prepare(config, machines)
            if config.download_only:
                return
            self._config, self._log_dir = launcher.make_folders(config, self._launch_config, self._folder)
            self._run_tasks(machines, grace_secs)

    def _prepare(self, config: Config, machines: ThisMachine) -> Config:
        def start(command: Sequence[str], environ: Mapping[str, str], *files: Any) -> Started | None:
            self._begin_forks(command, environ)
            return self._fork_server.start(command, environ, *files) if self._fork_server else None

        return preparation.prepare(config, self._tasks, self._display, self._signals,
                                   lambda name, line: self._command(machines, name, line)._replace(start=start))

    def _begin_forks(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        if self._fork_server and not self._tasks.verb:  # another verb imports more than a plain task
            self._fork_server.begin(command, environ, self._signals)

    def _run_tasks(self, machines: ThisMachine, grace_secs: float) -> None:
        config, display, signals = self._config, self._display, self._signals
        line = command_lines.launch_line(self._tasks, config, self._launch_config)
        run_record.write_launch(local_folder(config.train_dir), line, folder=self._folder)
        addresses, ports, holders = zip(*machines.reserve())
        lines = command_lines.command_lines(self._tasks, ports, config, addresses)
        display.write(machines.announcement(lines, self._log_dir))
        commands = [self._command(machines, name, line) for name, line in zip(self._tasks.names, lines)]
        self._begin_forks(commands[0].command, commands[0].environ)  # it is ready, but in a trial of `tune`
        with launcher.started(commands, holders, self._log_dir, display) as cluster:
            max_restarts = self._launch_config.max_restarts
            if self._fork_server and not max_restarts:
                self._fork_server.close()
            restarts = Restarts(
                max_restarts, display.write, fork_server=self._fork_server if max_restarts else None)
            error = launcher.run_to_end(cluster, display, signals, restarts, grace_secs)
        self._exit_codes = {process.name: process.exit_code or 0 for process in cluster.all}
        display.close(signals)
        display.write(launcher.end_summary(cluster, config, self._log_dir))
        code = error.exit_code if error else launcher.worst_code(cluster)
        if code >= FIRST_RETRYABLE_CODE:
            display.write(command_lines.continuation(self._tasks, config, self._launch_config))
        if error:
            raise error
        if signals:
            raise preparation.stopped(signals[0])
        if code:
            message = "the training was stopped by `ps_train stop`"
            raise LaunchError("stop_requested", message, code, StoppedError("stop_requested", message))

    def _command(self, machines: ThisMachine, name: str, line: Sequence[str]) -> TaskCommand:
        # Other machines have their own folders; a PYTHONPATH for them is in the flag --env.
        variables = self._variables() if machines.is_here or self._code else {}
        start = self._fork_server.start if self._fork_server else None
        return TaskCommand(
            name, machines.command(name, line, variables), {**os.environ, **variables}, self._folder, start)

    def _variables(self) -> dict[str, str]:
        """Returns the variables by which the tasks import what this program can import."""
        code_dir = os.path.abspath(self._train_path()) if self._code and self.train_dir else ""
        folders = os.pathsep.join(filter(None, [code_dir, self._import_path]))
        return {"PYTHONPATH": folders} if folders else {}

    def _write_code(self) -> Config:
        """Writes the modules of functions into the train_dir, and returns the flags with that folder."""
        self._config, _ = launcher.make_folders(self._config, self._launch_config, self._folder)
        os.makedirs(self._train_path(), exist_ok=True)
        for code in self._code:
            code.write(self._train_path())
        return self._config


class ParsedTraining(Training):
    """The training of a command line."""

    def __init__(self, config: Config, launch_config: LaunchConfig, tasks: TaskList | None = None) -> None:
        """Takes the flags; `tasks` are those of another verb than `train`."""
        self._take(config, launch_config, tasks)


@atexit.register
def _end_all() -> None:
    """Ends what still runs when the process ends, all at once; when it is killed, the kernel does."""
    running = dict(_launched)
    for signals in running.values():
        signals.append(signal.SIGTERM)
    for ended in running:
        ended.wait()


os.register_at_fork(after_in_child=_launched.clear)  # a child that the program forks has launched nothing
