"""The clients `ps_train status`, `save`, `stop` and `resume`: they ask, wait in bounded time, and print the answer."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from ps_train.cluster import reachability
from ps_train.cluster.spec import Task
from ps_train.coordination.state import Snapshot, State
from ps_train.errors import ClusterLostError, ConfigError, SaveError
from ps_train.parts.control import ended
from ps_train.parts.control.flags import ControlConfig, StatusConfig
from ps_train.parts.control.looking import Look, TrainingPlace, ask_one, ask_training, find_place, in_parallel, look
from ps_train.parts.control.requests import ControlBoard
from ps_train.runtime import logs, waits
from ps_train.storage import run_record

_CLEAR = "\x1b[H\x1b[2J"  # the cursor home, and an empty screen
_STATES = {State.IDLE: "starting", State.RUNNING: "running", State.STOPPING: "ending", State.DONE: ended.FINISHED,
           State.FAILED: ended.FAILED}
UNREACHABLE = "unreachable"


def print_status(config: StatusConfig, stop: threading.Event) -> None:
    """Prints the state of a training, once or again and again.

    Raises:
      PsTrainError: the training has not ended as it should; with the exit code of how it ended.
      ClusterLostError: ps 0 does not answer, and the journal does not say that the training has ended.
    """
    place = find_place(config.train_dir, config.ps_hosts)
    while True:
        seen = look(place)
        output = as_text(as_json(seen), config.json)
        try:
            print(_CLEAR * (config.watch and sys.stdout.isatty()) + output, flush=True)
        except BrokenPipeError:  # for example of `| head`, which has ended
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
    end = ended.read_ended(place.train_dir)
    if end is None or (reachability.accepts(place.ps[0].address) and not _is_of_another(place)):
        return False
    if end.state != ended.STOPPED:  # which is what `stop` asks for
        ended.raise_if_failed(end, place.train_dir)
    logs.show(f"the training in {place.train_dir} does not run: {end}")
    return True


def _is_of_another(place: TrainingPlace) -> bool:
    """Returns whether ps 0 belongs to another training, which has the addresses now."""
    try:
        ask_training(place, lambda board: None)
    except ConfigError:
        return True
    except ClusterLostError:  # the next question fails for the same reason, and reports it
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
        if board.requests().num_saves < number:  # a new ps 0, which does not know of the request
            number = board.ask_to_save()
        elif answer := board.save_answer(number):
            answers.append(answer)

    def has_answered() -> bool:
        with contextlib.suppress(ClusterLostError):  # ps 0 may be busy; the wait is bounded
            ask_training(place, ask)
        return bool(answers)

    waits.until(has_answered, config.timeout_secs, "the chief's checkpoint", stop,
                "does the chief train? See `ps_train status`, and the chief's log")
    if answers[0]["problem"]:
        raise SaveError(f"the chief cannot save: {answers[0]['problem']}")
    logs.show(f"saved {answers[0]['path']}")


def stop_all(config: ControlConfig, stop: threading.Event) -> None:
    """Asks all tasks to stop, and waits until the ps have ended.

    Raises:
      ConfigError: another training runs at the addresses of this one.
      ClusterLostError: ps 0 does not answer, or a ps still runs after the time-out.
    """
    place = find_place(config.train_dir, config.ps_hosts)
    if _has_ended(place):
        return
    try:
        ask_training(place, lambda board: board.ask_to_stop())
    except ClusterLostError as error:  # the workers would never hear of it, so no other ps is asked
        raise ClusterLostError(f"{error}; no task was asked to stop. End its process, or the launcher, by a signal"
                               ) from error
    for problem in _ask_to_stop(place.ps[1:], place):
        logs.show(problem)
    logs.show(f"asked all tasks to save and stop; waiting for their end, at most {config.timeout_secs:g} s")
    left = list(place.ps)

    def have_ended() -> bool:
        left[:] = [task for task in left if reachability.accepts(task.address)]
        return not left

    waits.until(have_ended, config.timeout_secs, lambda: ", ".join(map(str, left)), stop,
                "still running; see its log. Servers of --existing_servers go on")
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
      ConfigError: the folder does not record how it was trained.
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
    if end := ended.read_ended(config.train_dir):
        logs.show(f"# {end}")
    if not run["is_launched"]:
        logs.show("# This is the chief's command; start the other tasks, too.")


def as_json(look: Look) -> dict[str, Any]:
    """Returns the state of a training, for JSON."""
    snapshot, about = look.snapshot, look.about
    step = int(snapshot.steps.max()) if snapshot is not None else look.ended.step if look.ended else None
    steps_per_sec = about.get("steps_per_sec") if snapshot is not None else None
    left = None if step is None or about.get("train_steps") is None else max(0, about["train_steps"] - step)
    return {
        "state": _STATES[snapshot.state] if snapshot is not None else look.ended.state if look.ended else UNREACHABLE,
        "why": look.ended.why if look.ended else "",
        "metrics": dict(look.ended.metrics) if look.ended else {},
        "step": step,
        "train_steps": about.get("train_steps"),
        "steps_per_sec": steps_per_sec,
        "eta_secs": left / steps_per_sec if left is not None and steps_per_sec else None,
        "workers": [] if snapshot is None else _workers(snapshot, about),
        "ps": [{"name": task.name, "address": task.address, "answers": task not in look.problems,
                "problem": look.problems.get(task, "")} for task in look.place.ps],
        "tables": about.get("tables", []) if snapshot is not None else [],
        "dropped_gradients": look.num_unused_gradients if about.get("is_sync") else None,
        "model": about.get("model"),
        "dataset": about.get("dataset"),
        "train_dir": about.get("train_dir") or look.place.train_dir,
        "checkpoint": look.checkpoint,
    }


def _workers(snapshot: Snapshot, about: Mapping[str, Any]) -> list[dict[str, Any]]:
    named = {int(number): name for number, name in about.get("workers", {}).items()}
    numbers = sorted({*named, *(number for number in range(len(snapshot.claims)) if snapshot.claims[number])})
    front = int(snapshot.local_steps.max())
    return [{
        "name": named.get(number, [f"worker {number}", ""])[0],
        "address": named.get(number, ["", ""])[1],
        "state": _worker_state(snapshot, number),
        "last_beat_secs": round(snapshot.age_secs(number), 1) if snapshot.claims[number] else None,
        "step": int(snapshot.steps[number]),
        "local_steps": int(snapshot.local_steps[number]),
        "steps_behind": front - int(snapshot.local_steps[number]),
        "staleness": None if snapshot.staleness is None else round(float(snapshot.staleness[number]), 3),
    } for number in numbers]


def _worker_state(snapshot: Snapshot, number: int) -> str:
    if snapshot.finished[number]:
        return "finished"
    if not snapshot.claims[number]:
        return "not there"
    return "alive" if snapshot.is_alive(number) else "silent"


def as_lines(status: Mapping[str, Any]) -> str:
    """Returns the value of `as_json` as lines."""
    step = "step unknown" if status["step"] is None else f"step {status['step']}"
    is_within = status["train_steps"] and (status["step"] or 0) <= status["train_steps"]
    of_all = f" of {status['train_steps']}" if is_within else ""
    rate = f", {status['steps_per_sec']:.1f} steps/s" if status["steps_per_sec"] is not None else ""
    eta = f", {_duration(status['eta_secs'])} left" if status["eta_secs"] is not None else ""
    lines = [f"{status['state']}: {step}{of_all}{rate}{eta}"]
    if status["why"]:
        lines.append("; ".join([status["why"], *(f"{name} {value:.4g}" for name, value in sorted(
            status["metrics"].items()))]))
    if status["model"]:
        lines.append(f"{status['model']} on {status['dataset']}, in {status['train_dir']}")
    for ps in status["ps"]:
        lines.append(f"{ps['name']:<10} {ps['address']:<22} {'answers' if ps['answers'] else ps['problem']}")
    for worker in status["workers"]:
        beat = "" if worker["last_beat_secs"] is None else f", last heartbeat {worker['last_beat_secs']:g} s ago"
        behind = f", {worker['steps_behind']} behind the leader" if worker["steps_behind"] else ""
        stale = f", staleness {worker['staleness']:.2f}" if worker["staleness"] else ""
        lines.append(f"{worker['name']:<10} {worker['address']:<22} {worker['state']}{beat}, at step {worker['step']}, "
                     f"{worker['local_steps']} local steps{behind}{stale}")
    lines += [_table_line(table) for table in status["tables"]]
    if status["dropped_gradients"]:
        lines.append(f"gradients in no update (too late, or waiting): {status['dropped_gradients']}")
    if status["checkpoint"]:
        lines.append(f"newest checkpoint: {status['checkpoint']}")
    return "\n".join(lines)


def as_text(status: Mapping[str, Any], is_json: bool) -> str:
    """Returns the output of `status`."""
    return json.dumps(status) if is_json else as_lines(status)


def _table_line(table: Mapping[str, Any]) -> str:
    from ps_train.parts.tables.files.upkeep import describe_share  # noqa: PLC0415 (there may be no such part)

    return f"table {table['name']}: {describe_share(table)}"


def _duration(secs: float) -> str:
    minutes, seconds = divmod(round(secs), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
