"""The clients `ps_train status`, `save`, `stop` and `resume`: they ask, wait in bounded time, and print the answer."""

from __future__ import annotations

import contextlib
import shlex
import sys
import threading

from ps_train.cluster import reachability
from ps_train.cluster.spec import Task
from ps_train.config.control.running import ControlConfig, StatusConfig
from ps_train.control import wording
from ps_train.control.looking import TrainingPlace, ask_one, find_place, in_parallel, look
from ps_train.errors import ClusterLostError, ConfigError, SaveError
from ps_train.runtime import waits
from ps_train.storage.history import run_record

_CLEAR = "\x1b[H\x1b[2J"  # the cursor home, and an empty screen


def print_status(config: StatusConfig, stop: threading.Event) -> None:
    """Prints what is known of a training, once or again and again."""
    place = find_place(config.train_dir, config.ps_hosts)
    while True:
        text = wording.as_text(wording.as_json(look(place)), config.json)
        print(_CLEAR * (config.watch and sys.stdout.isatty()) + text, flush=True)
        if not config.watch or stop.wait(config.watch_secs):
            return


def save_now(config: ControlConfig, stop: threading.Event) -> None:
    """Lets the chief save, and prints the path of the checkpoint.

    Raises:
      ClusterLostError: ps 0 or the chief does not answer.
      SaveError: the chief could not save.
    """
    place = find_place(config.train_dir, config.ps_hosts)
    first = place.ps[0]
    number = ask_one(first, place, lambda board: board.ask_to_save())
    print(f"asked the chief for a checkpoint; waiting for it, at most {config.timeout_secs:g} s", flush=True)
    answers: list = []

    def has_answered() -> bool:
        with contextlib.suppress(ClusterLostError):  # ps 0 may be busy; the wait is bounded
            if answer := ask_one(first, place, lambda board: board.save_answer(number)):
                answers.append(answer)
        return bool(answers)

    waits.until(has_answered, config.timeout_secs, "the chief's checkpoint", stop,
                "does the chief train? `ps_train status` tells, and the chief's log")
    if answers[0]["problem"]:
        raise SaveError(f"the chief cannot save: {answers[0]['problem']}")
    print(f"saved {answers[0]['path']}", flush=True)


def stop_all(config: ControlConfig, stop: threading.Event) -> None:
    """Asks all tasks to stop, and waits until the ps are gone.

    Raises:
      ClusterLostError: ps 0 does not answer, or a ps is still there after the time-out.
    """
    place = find_place(config.train_dir, config.ps_hosts)
    problems = _ask_all_to_stop(place)
    if place.ps[0] in problems:
        raise ClusterLostError(f"{problems[place.ps[0]]}; nothing was asked to stop. End its process, or the launcher, "
                               "by a signal")
    for problem in problems.values():
        print(problem, flush=True)
    print(f"asked all tasks to save and stop; waiting for their end, at most {config.timeout_secs:g} s", flush=True)
    left = list(place.ps)

    def have_ended() -> bool:
        left[:] = [task for task in left if reachability.accepts(task.address)]
        return not left

    waits.until(have_ended, config.timeout_secs, lambda: ", ".join(map(str, left)), stop,
                "still there; see its log. Servers of --existing_servers go on")
    print("all parameter servers have ended", flush=True)


def _ask_all_to_stop(place: TrainingPlace) -> dict[Task, str]:
    """Asks each ps; returns why some do not answer."""
    problems: dict[Task, str] = {}

    def ask(task: Task) -> None:
        try:
            ask_one(task, place, lambda board: board.ask_to_stop())
        except ClusterLostError as error:
            problems[task] = str(error)

    in_parallel([lambda task=task: ask(task) for task in place.ps])
    return problems


def print_resume(config: ControlConfig) -> None:
    """Prints the command that continues a training.

    Raises:
      ConfigError: the folder does not say how it was trained.
    """
    if not config.train_dir:
        raise ConfigError("--train_dir: not given; it is the folder of the training to continue")
    run = run_record.read_run(config.train_dir)
    if run["is_launched"]:
        launch = run_record.read_launch(config.train_dir)
        folder, command = launch["folder"], launch["command"]
    else:
        folder, command = run["folder"], run["command"]
    print(f"cd {shlex.quote(folder)}\n{shlex.join(['ps_train', *command])}", flush=True)
    if not run["is_launched"]:
        print("# This is the chief's command; start the other tasks, too.", flush=True)
