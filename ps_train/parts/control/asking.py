"""The clients `ps_train status`, `save`, `stop` and `resume`: they ask, wait in bounded time, and print the answer.

Each takes the flags of its verb, a `ControlConfig` or `StatusConfig`.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ps_train.cluster import reachability
from ps_train.cluster.spec import Task
from ps_train.config.folders import local_folder
from ps_train.coordination.state import Snapshot, State
from ps_train.errors import ClusterLostError, ConfigError, SaveError
from ps_train.launch import launching
from ps_train.parts.control import history
from ps_train.parts.control.looking import (
    Look,
    TrainingPlace,
    ask_one,
    ask_training,
    find_place,
    in_parallel,
    look,
    look_at_folder,
)
from ps_train.parts.control.requests import ControlBoard
from ps_train.runtime import logs, waits
from ps_train.storage import run_record
from ps_train.verbs.verb import json_answer

_CLEAR = "\x1b[H\x1b[2J"  # the cursor home, and an empty screen
_STATES = {State.IDLE: "starting", State.RUNNING: "running", State.STOPPING: "ending", State.DONE: history.FINISHED,
           State.FAILED: history.FAILED}


def print_status(config: Any, stop: threading.Event) -> None:
    """Prints the state of a training, once or again and again.

    Raises:
      PsTrainError: the training has not ended as it should; with the exit code of its end.
      ClusterLostError: ps 0 does not answer, and the journal does not say that the training has ended.
    """
    while True:
        current = None if config.ps_hosts else look_at_folder(config.train_dir)
        if current is None:
            current = look(find_place(config.train_dir, config.ps_hosts))
        status = as_json(current)
        output = json_answer(status) if config.json else as_text(status)
        is_shown = logs.show(_CLEAR * (config.watch and sys.stdout.isatty()) + output)
        if config.watch and not is_shown:  # for example because `| head` has ended
            return
        if not config.watch or stop.wait(config.watch_secs):
            break
    place = current.place
    if current.ending:
        current.ending.raise_if_failed(place.train_dir, has_command=bool(place.run))
    elif current.snapshot is None:
        problem = current.problems[place.ps[0]]
        raise ClusterLostError(problem.code, f"the training does not answer: {problem}")


def _has_ended(place: TrainingPlace) -> bool:
    """Returns whether the training has ended, and then prints how.

    Raises:
      PsTrainError: it has not ended as it should; with the exit code of its end.
      ClusterLostError: a launch begins another one there.
    """
    if launching.is_launching(place.train_dir):
        raise ClusterLostError("training_starting", f"--train_dir={place.train_dir}: {launching.REASON}, and its chief "
                               "has not started; ask again when it has, or end the launcher by a signal")
    ending = history.read_ending(place.train_dir)
    if ending is None or _may_run(place, ending):
        return False
    if ending.state != history.STOPPED:  # the end that `stop` asks for
        ending.raise_if_failed(place.train_dir)
    logs.show(f"the training in {place.train_dir} does not run: {ending}")
    return True


def _may_run(place: TrainingPlace, ending: history.Ending) -> bool:
    """Returns whether ps 0 is there, and of no other training; `ending` is in the journal."""
    return reachability.accepts(place.ps[0].address) and not _serves_another(place, ending)


def _serves_another(place: TrainingPlace, ending: history.Ending) -> bool:
    """Returns whether ps 0 belongs to another training, which has the addresses now; `ending` is in the journal."""
    try:
        ask_training(place, lambda board: None)
    except ConfigError:
        return True
    except ClusterLostError:  # another one begins; if no end was noted, the next request fails, and reports it
        return ending.state != history.LOST
    return False


def save_now(config: Any, stop: threading.Event) -> None:
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
    answer: Mapping[str, str] | None = None

    def ask(board: ControlBoard) -> None:
        nonlocal number, answer
        values = board.read()
        if values.num_saves < number:  # a new ps 0, which does not know of the request
            number = board.ask_to_save()
        elif values.answer["number"] >= number:
            answer = values.answer

    def has_answered() -> bool:
        with contextlib.suppress(ClusterLostError):  # ps 0 may be busy; the wait is bounded
            ask_training(place, ask)
        return answer is not None or _is_over(place)

    waits.until(has_answered, config.timeout_secs, "the chief's checkpoint", stop,
                "does the chief train? See `ps_train status`, and the chief's log")
    if answer is None:  # the request came after the last save; the last checkpoint has it all
        _has_ended(place)
    elif answer["problem"]:
        raise SaveError("save_failed", f"the chief cannot save: {answer['problem']}")
    else:
        logs.show(f"saved {answer['path']}")


def _is_over(place: TrainingPlace) -> bool:
    """Returns whether ps 0 does not run any more, and the chief has noted the end; else it may come back."""
    ending = history.read_ending(place.train_dir)
    return ending is not None and ending.state != history.LOST and not reachability.accepts(place.ps[0].address)


def stop_all(config: Any, stop: threading.Event) -> None:
    """Asks all tasks to stop, and waits until the ps have ended.

    Raises:
      ConfigError: another training runs at the addresses of this one.
      ClusterLostError: ps 0 does not answer, or a ps still runs after the time-out.
    """
    place = find_place(config.train_dir, config.ps_hosts)
    if _has_ended(place):
        return

    def ask(board: ControlBoard) -> Mapping[str, str]:
        addresses = board.read().about.get("ps", {})
        board.ask_to_stop()
        return addresses

    try:
        addresses = ask_training(place, ask)
    except ClusterLostError as error:  # no request would reach the workers, so no other ps is asked
        raise ClusterLostError(error.code, f"{error}; no task was asked to stop. End its process, or the launcher, by "
                               "a signal") from error
    # --ps_hosts may name some only; a ps that is not asked would wait for a worker, and be restarted in the end.
    known = {task.index for task in place.ps}
    running = [*place.ps, *(Task("ps", int(index), address) for index, address in addresses.items()
                            if int(index) not in known)]
    _ask_to_stop(running[1:], place)
    logs.show(f"asked all tasks to save and stop; waiting for their end, at most {config.timeout_secs:g} s")

    def have_ended() -> bool:
        running[:] = [task for task in running if reachability.accepts(task.address)]
        return not running

    waits.until(have_ended, config.timeout_secs, lambda: ", ".join(map(str, running)), stop,
                "still running; see its log. Servers of --existing_servers go on")
    logs.show("all parameter servers have ended")


def _ask_to_stop(tasks: Sequence[Task], place: TrainingPlace) -> None:
    """Asks each ps, and prints why some do not answer."""

    def ask(task: Task) -> None:
        try:
            ask_one(task, place, lambda board: board.ask_to_stop())
        except ClusterLostError as error:
            logs.show(str(error))

    in_parallel([lambda task=task: ask(task) for task in tasks])


def print_resume(config: Any) -> None:
    """Prints the command that continues a training.

    Raises:
      ConfigError: the folder does not record how it was trained.
    """
    if not config.train_dir:
        raise ConfigError("flag_missing", "--train_dir: not given; it is the folder of the training to continue")
    train_dir = config.train_dir
    folder = look_at_folder(train_dir)
    has_launch, has_run = (os.path.exists(os.path.join(train_dir, name))
                           for name in (run_record.LAUNCH_NAME, run_record.RUN_NAME))
    if folder and not has_launch:
        raise ConfigError("command_unknown", f"--train_dir: {train_dir} does not have the command of its training, "
                          f"as `ps_train launch` did not start it: {folder.ending}")
    # The chief may not have begun yet, or be on another machine that does not share the folder (--hosts).
    is_launched = folder is not None or (has_launch and not has_run) or run_record.read_run(train_dir)["is_launched"]
    record = run_record.read_launch(train_dir) if is_launched else run_record.read_run(train_dir)
    command, earlier_dir = _command_for(train_dir, record)
    logs.show(f"cd {shlex.quote(record['folder'])}\n{shlex.join(['ps_train', *command])}")
    if earlier_dir:
        logs.show(f"# The training was in {earlier_dir}; --train_dir is where its folder is now.")
    ending = folder.ending if folder else history.read_ending(train_dir)
    may_run = ending and ending.state == history.LOST and has_run and _may_run(
        place := find_place(train_dir, ""), ending)
    if ending and not (may_run and ending.why == history.NO_END):
        logs.show(f"# {ending}")
    if may_run:
        logs.show(f"# {place.ps[0]} accepts connections, so the training may still run: see `ps_train status`.")
    if not is_launched:
        logs.show("# This is the chief's command; start the other tasks, too.")


def _command_for(train_dir: str, record: Mapping[str, Any]) -> tuple[list[str], str]:
    """Returns the recorded command with this folder, and the recorded one, "" if the folder was not moved or copied."""
    command, default = record["command"], f"--train_dir={record.get('train_dir', '')}"
    flag = next((word for word in command if word.startswith("--train_dir=")), default)
    recorded, here = flag.partition("=")[2], os.path.abspath(train_dir)
    # That of a URL is the folder that was fetched, or the one in which the training worked on this machine.
    is_fetched = logs.with_names(here).rstrip("/") == recorded.rstrip("/")
    worked_in = os.path.join(record["folder"], local_folder(recorded))
    if not recorded or is_fetched or os.path.realpath(worked_in) == os.path.realpath(here):
        return command, ""
    return [*(word for word in command if word != flag), f"--train_dir={here}"], recorded


def as_json(look: Look) -> dict[str, Any]:
    """Returns the state of a training, for JSON."""
    snapshot, about, ending = look.snapshot, look.about, look.ending
    step, steps_per_sec, state = None, None, "unreachable"
    if snapshot is not None:
        step, steps_per_sec, state = int(snapshot.steps.max()), about.get("steps_per_sec"), _STATES[snapshot.state]
    elif ending:
        step, state = ending.step, ending.state
    train_steps = about.get("train_steps")
    remaining_steps = None if step is None or train_steps is None else max(0, train_steps - step)
    return {
        "state": state,
        "why": ending.why if ending else "",
        "metrics": dict(ending.metrics) if ending else {},
        "step": step,
        "train_steps": train_steps,
        "steps_per_sec": steps_per_sec,
        "eta_secs": remaining_steps / steps_per_sec if remaining_steps is not None and steps_per_sec else None,
        "workers": [] if snapshot is None else _workers(snapshot, about),
        "ps": [{"name": task.name, "address": task.address, "answers": task not in look.problems,
                "problem": look.problems.get(task, "")} for task in look.place.ps],
        "tables": about.get("tables", []) if snapshot is not None else [],
        "uploads": about.get("uploads") if snapshot is not None else None,
        "freshness": about.get("freshness") if snapshot is not None else None,
        "dropped_gradients": look.num_unused_gradients if about.get("is_sync") else None,
        "model": about.get("model"),
        "dataset": about.get("dataset"),
        "train_dir": _train_dir(look),
        "checkpoint": os.path.abspath(look.checkpoint) if look.checkpoint else "",
        "published": dict(look.published) or None,
    }


def _train_dir(look: Look) -> str:
    """Returns the folder of a training: of one that has ended where it is now, as it may have been moved or copied."""
    own = os.path.abspath(look.place.train_dir) if look.place.train_dir else ""
    return (own if look.snapshot is None else "") or look.about.get("train_dir") or own


def _workers(snapshot: Snapshot, about: Mapping[str, Any]) -> list[dict[str, Any]]:
    known = {int(number): task for number, task in about.get("workers", {}).items()}
    numbers = sorted({*known, *(number for number in range(len(snapshot.claims)) if snapshot.claims[number])})
    most_steps = int(snapshot.local_steps.max())
    return [{
        "name": known.get(number, [f"worker {number}", ""])[0],
        "address": known.get(number, ["", ""])[1],
        "state": _worker_state(snapshot, number),
        "last_beat_secs": round(snapshot.age_secs(number), 1) if snapshot.claims[number] else None,
        "step": int(snapshot.steps[number]),
        "local_steps": int(snapshot.local_steps[number]),
        "steps_behind": most_steps - int(snapshot.local_steps[number]),
        "staleness": None if snapshot.staleness is None else round(float(snapshot.staleness[number]), 3),
    } for number in numbers]


def _worker_state(snapshot: Snapshot, number: int) -> str:
    if history.has_finished(snapshot, number):
        return "finished"
    if not snapshot.claims[number]:
        return "not there"
    return "alive" if snapshot.is_alive(number) else "silent"


def as_text(status: Mapping[str, Any]) -> str:
    """Returns the value of `as_json` as lines."""
    step = "step unknown" if status["step"] is None else f"step {status['step']}"
    is_within = status["train_steps"] and (status["step"] or 0) <= status["train_steps"]
    limit = f" of {status['train_steps']}" if is_within else ""
    rate = f", {status['steps_per_sec']:.1f} steps/s" if status["steps_per_sec"] is not None else ""
    eta = f", {_duration(status['eta_secs'])} left" if status["eta_secs"] is not None else ""
    lines = [f"{status['state']}: {step}{limit}{rate}{eta}"]
    if status["why"]:
        metrics = (f"{name} {value:.4g}" for name, value in sorted(status["metrics"].items()))
        lines.append("; ".join([status["why"], *metrics]))
    if status["model"]:
        lines.append(f"{status['model']} on {status['dataset']}, in {status['train_dir']}")
    lines += [f"{ps['name']:<10} {ps['address']:<22} {'answers' if ps['answers'] else ps['problem']}"
              for ps in status["ps"]]
    lines += [_worker_line(worker) for worker in status["workers"]]
    lines += [_table_line(table) for table in status["tables"]]
    if status["dropped_gradients"]:
        lines.append(f"gradients in no update (too late, or waiting): {status['dropped_gradients']}")
    if status["uploads"] and status["uploads"]["behind_steps"]:
        reason = f": {status['uploads']['reason']}" if status["uploads"]["reason"] else ""
        lines.append(f"the store is {status['uploads']['behind_steps']} steps behind the newest checkpoint{reason}")
    if status["freshness"]:
        lines.append(_freshness_line(status["freshness"]))
    if status["checkpoint"]:
        lines.append(f"newest checkpoint: {status['checkpoint']}")
    if status["published"]:
        lines += history.describe_published(status["published"])
    return "\n".join(lines)


def _freshness_line(freshness: Mapping[str, Any]) -> str:
    mark, median_secs = freshness["watermark"], freshness["trained_secs_p50"]
    until = f", all data until {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(mark))} is trained" if mark else ""
    lags = "" if median_secs is None else (f"; from event to trained {median_secs:.1f} s in the median, "
                                           f"{freshness['trained_secs_p99']:.1f} s at 99 %")
    return f"data: {freshness['ranges_waiting']} ranges wait{until}{lags}"


def _worker_line(worker: Mapping[str, Any]) -> str:
    beat = "" if worker["last_beat_secs"] is None else f", last heartbeat {worker['last_beat_secs']:g} s ago"
    behind = f", {worker['steps_behind']} behind the leader" if worker["steps_behind"] else ""
    staleness = f", staleness {worker['staleness']:.2f}" if worker["staleness"] else ""
    return (f"{worker['name']:<10} {worker['address']:<22} {worker['state']}{beat}, at step {worker['step']}, "
            f"{worker['local_steps']} local steps{behind}{staleness}")


def _table_line(table: Mapping[str, Any]) -> str:
    from ps_train.parts.tables.upkeep import describe_share  # noqa: PLC0415 (the part may be missing)

    return f"table {table['name']}: {describe_share(table)}"


def _duration(secs: float) -> str:
    minutes, seconds = divmod(round(secs), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
