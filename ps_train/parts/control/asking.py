"""The clients `ps_train status`, `save`, `stop` and `resume`: they ask, wait in bounded time, and print the answer."""

from __future__ import annotations

import contextlib
import shlex
import sys
import threading
from collections.abc import Sequence

from ps_train.cluster import reachability
from ps_train.cluster.spec import Task
from ps_train.errors import ClusterLostError, ConfigError, SaveError
from ps_train.parts.control import ended, wording
from ps_train.parts.control.control_board import ControlBoard
from ps_train.parts.control.flags import ControlConfig, StatusConfig
from ps_train.parts.control.looking import TrainingPlace, ask_one, ask_training, find_place, in_parallel, look
from ps_train.runtime import logs, waits
from ps_train.storage import run_record

_CLEAR = "\x1b[H\x1b[2J"  # the cursor home, and an empty screen


def print_status(config: StatusConfig, stop: threading.Event) -> None:
    """Prints what is known of a training, once or again and again.

    Raises:
      PsTrainError: the training has not ended as it should; with the exit code of how it ended.
      ClusterLostError: ps 0 does not answer, and nothing says that the training has ended.
    """
    place = find_place(config.train_dir, config.ps_hosts)
    while True:
        seen = look(place)
        text = wording.as_text(wording.as_json(seen), config.json)
        try:
            print(_CLEAR * (config.watch and sys.stdout.isatty()) + text, flush=True)
        except BrokenPipeError:  # of `| head`, say: nobody reads on
            return
        if not config.watch or stop.wait(config.watch_secs):
            break
    if seen.ended:
        ended.raise_if_failed(seen.ended, place.train_dir)
    elif seen.snapshot is None:
        raise ClusterLostError(f"the training does not answer: {seen.problems[place.ps[0]]}")


def _has_ended(place: TrainingPlace) -> bool:
    """Returns whether the training has ended, and then prints how.

    Raises:
      PsTrainError: it has not ended as it should; with the exit code of how it ended.
    """
    found = ended.read_ended(place.train_dir)
    if found is None or (reachability.accepts(place.ps[0].address) and not _is_of_another(place)):
        return False
    if found.state != ended.STOPPED:  # what `stop` asks for
        ended.raise_if_failed(found, place.train_dir)
    logs.show(f"the training in {place.train_dir} does not run: {found}")
    return True


def _is_of_another(place: TrainingPlace) -> bool:
    """Returns whether ps 0 is known to be that of another training, which has the addresses now."""
    try:
        ask_training(place, lambda board: None)
    except ConfigError:
        return True
    except ClusterLostError:  # what is asked next fails for the same reason, and says so
        return False
    return False


def save_now(config: ControlConfig, stop: threading.Event) -> None:
    """Lets the chief save, and prints the path of the checkpoint.

    Raises:
      ConfigError: another training runs at the addresses of this one.
      ClusterLostError: ps 0 or the chief does not answer.
      SaveError: the chief could not save.
    """
    place = find_place(config.train_dir, config.ps_hosts)
    if _has_ended(place):
        return
    number = ask_training(place, lambda board: board.ask_to_save())
    logs.show(f"asked the chief for a checkpoint; waiting for it, at most {config.timeout_secs:g} s")
    answers: list = []

    def ask(board: ControlBoard) -> None:
        nonlocal number
        if board.asked().num_saves < number:  # a new ps 0, which does not know of the request
            number = board.ask_to_save()
        elif answer := board.save_answer(number):
            answers.append(answer)

    def has_answered() -> bool:
        with contextlib.suppress(ClusterLostError):  # ps 0 may be busy; the wait is bounded
            ask_training(place, ask)
        return bool(answers)

    waits.until(has_answered, config.timeout_secs, "the chief's checkpoint", stop,
                "does the chief train? `ps_train status` tells, and the chief's log")
    if answers[0]["problem"]:
        raise SaveError(f"the chief cannot save: {answers[0]['problem']}")
    logs.show(f"saved {answers[0]['path']}")


def stop_all(config: ControlConfig, stop: threading.Event) -> None:
    """Asks all tasks to stop, and waits until the ps are gone.

    Raises:
      ConfigError: another training runs at the addresses of this one.
      ClusterLostError: ps 0 does not answer, or a ps is still there after the time-out.
    """
    place = find_place(config.train_dir, config.ps_hosts)
    if _has_ended(place):
        return
    try:
        ask_training(place, lambda board: board.ask_to_stop())
    except ClusterLostError as error:  # the workers would never hear of it, so no other ps may
        raise ClusterLostError(f"{error}; nothing was asked to stop. End its process, or the launcher, by a signal"
                               ) from error
    for problem in _ask_to_stop(place.ps[1:], place):
        logs.show(problem)
    logs.show(f"asked all tasks to save and stop; waiting for their end, at most {config.timeout_secs:g} s")
    left = list(place.ps)

    def have_ended() -> bool:
        left[:] = [task for task in left if reachability.accepts(task.address)]
        return not left

    waits.until(have_ended, config.timeout_secs, lambda: ", ".join(map(str, left)), stop,
                "still there; see its log. Servers of --existing_servers go on")
    logs.show("all parameter servers have ended")


def _ask_to_stop(tasks: Sequence[Task], place: TrainingPlace) -> list[str]:
    """Asks each ps; returns why some do not answer."""
    problems: list[str] = []

    def ask(task: Task) -> None:
        try:
            ask_one(task, place, lambda board: board.ask_to_stop())
        except ClusterLostError as error:
            problems.append(str(error))

    in_parallel([lambda task=task: ask(task) for task in tasks])
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
    logs.show(f"cd {shlex.quote(folder)}\n{shlex.join(['ps_train', *command])}")
    if found := ended.read_ended(config.train_dir):
        logs.show(f"# {found}")
    if not run["is_launched"]:
        logs.show("# This is the chief's command; start the other tasks, too.")
