"""The state of a training as a client sees it: from ps 0, from each ps, and from the train_dir, in bounded time.

    --train_dir --> cluster.json --> the ps --> ps 0: snapshot, the chief's description
                                            --> each ps: does it answer?
                --> the newest checkpoint
                --> without cluster.json, as of `ps_train keras`: training.json, training.lock
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from ps_train.cluster import reachability
from ps_train.cluster.spec import Task
from ps_train.coordination import variables
from ps_train.coordination.blackboard import Blackboard
from ps_train.coordination.sessions import run_on_ps
from ps_train.coordination.state import Snapshot
from ps_train.errors import ClusterLostError, ConfigError, Problem
from ps_train.launch import launching
from ps_train.parts.control.history import (
    ENDED,
    LOST,
    RUNNING,
    STARTING,
    UNKNOWN,
    Ending,
    read_ending,
    read_published,
)
from ps_train.parts.control.requests import ControlBoard
from ps_train.runtime import clock, waits
from ps_train.storage import folder_lock, folder_record, run_record

ANSWER_SECS = 2.5  # of one ps, including the creation of a session
# A checkpoint of `ps_train keras`; of one in a store only the manifest was fetched.
_KERAS_CHECKPOINT = re.compile(r"ckpt-(\d{8,})\.(?:keras|manifest\.json)")


@dataclasses.dataclass(frozen=True)
class TrainingPlace:
    """Where a training is.

    Attributes:
      ps: its parameter servers by index, ps 0 first.
      train_dir: its folder, "" if it is not known.
      is_elastic: see `Cluster`.
      run: the chief's record in cluster.json, {} if the folder is not known.
    """

    ps: Sequence[Task]
    train_dir: str
    is_elastic: bool
    run: Mapping[str, Any]


def find_place(train_dir: str, ps_hosts: str) -> TrainingPlace:
    """Returns where the training is.

    Raises:
      ConfigError: the folder has no cluster.json, and --ps_hosts is not given.
    """
    if ps_hosts:
        tasks = [Task("ps", index, address) for index, address in enumerate(ps_hosts.split(","))]
        return TrainingPlace(tasks, train_dir, _is_elastic(tasks[0]), {})
    if folder := look_at_folder(train_dir):
        advice = "" if folder.ending.state in (ENDED, LOST) else "; it saves and ends at SIGTERM"
        raise ConfigError("training_takes_no_requests", f"--train_dir: the training in {train_dir} has no "
                          f"{run_record.RUN_NAME}, which `ps_train keras` does not write, so it takes no requests: "
                          f"{folder.ending.why}{advice}")
    run = run_record.read_run(train_dir)
    tasks = [Task("ps", int(index), address) for index, address in run["ps"].items()]
    return TrainingPlace(sorted(tasks, key=lambda task: task.index), train_dir, run["is_elastic"], run)


def _is_elastic(first: Task) -> bool:
    """Returns whether ps 0 is of an elastic cluster; false if it does not say so within ANSWER_SECS."""
    if not reachability.accepts(first.address):
        return False
    with tf.Graph().as_default() as graph:
        description = variables.read("cluster")
    try:
        # Of a session that names no task, which the server takes in any cluster.
        text = waits.bounded(lambda: run_on_ps(first, graph, description), ANSWER_SECS, f"an answer of {first}")
    except ClusterLostError:  # the question itself fails for the same reason, and reports it
        return False
    return bool(json.loads(text or "{}").get("elastic"))


def ask_training(place: TrainingPlace, question: Callable[[ControlBoard], Any]) -> Any:
    """Returns the answer of ps 0, if it serves the training in the folder.

    Raises:
      ConfigError: another training runs at its address; then the question is not asked.
      ClusterLostError: it does not answer within ANSWER_SECS.
    """
    def ask(board: ControlBoard) -> Any:
        _refuse_other(place, board.read().about)
        return question(board)

    return ask_one(place.ps[0], place, ask)


def ask_one(task: Task, place: TrainingPlace, question: Callable[[ControlBoard], Any]) -> Any:
    """Returns the answer of one ps; raises ClusterLostError if it does not answer within ANSWER_SECS."""
    return _bounded(task, lambda: ControlBoard(task, is_elastic=place.is_elastic), question)


def in_parallel(calls: Sequence[Callable[[], None]]) -> None:
    """Makes the calls in threads, each of which must be bounded, and waits for all; raises an error of a call."""
    started = [clock.start_call(call, "ask") for call in calls]
    for call in started:
        call.join()
    for call in started:
        call.result()


def _refuse_other(place: TrainingPlace, about: Mapping[str, Any]) -> None:
    # cluster.json stays when a training has ended, and the next one on this machine gets the same ports.
    if place.run and not about and (ending := read_ending(place.train_dir)) is not None and ending.state != LOST:
        raise ConfigError("another_training", f"--train_dir={place.train_dir}: that training has ended; at "
                          f"{place.ps[0].address} another one starts, whose folder is not known yet: ask again when "
                          "its chief has started")
    if place.run and about.get("train_dir", place.run["train_dir"]) != place.run["train_dir"]:
        raise ConfigError("another_training", f"--train_dir={place.train_dir}: that training has ended; "
                          f"{place.ps[0].address} now serves the one in {about['train_dir']}: give that folder")


@dataclasses.dataclass(frozen=True)
class Look:
    """The state of a training.

    Attributes:
      place: its addresses and its folder.
      snapshot: of ps 0; None if ps 0 does not answer.
      about: the chief's description of the training.
      num_unused_gradients: gradients of sync training that are in no update.
      problems: ps -> why it does not answer, for those that do not.
      checkpoint: path of the newest sound checkpoint, "" if none is known.
      ending: how the training ended, by its journal, if ps 0 does not run; else None.
      published: see `read_published`.
    """

    place: TrainingPlace
    snapshot: Snapshot | None
    about: Mapping[str, Any]
    num_unused_gradients: int
    problems: Mapping[Task, Problem]
    checkpoint: str
    ending: Ending | None = None
    published: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def look_at_folder(train_dir: str) -> Look | None:
    """Returns what a folder without cluster.json says of its training; None if it has one, or says nothing.

    Raises:
      ConfigError: the folder, or a file in it, cannot be read.
    """
    if os.path.exists(os.path.join(train_dir, run_record.RUN_NAME)):
        return None
    try:
        lock = folder_lock.read_lock(os.path.join(train_dir, folder_lock.LOCK_NAME))
        record = folder_record.read_record(train_dir)
        if not record and lock is None:
            return None
        steps = [int(match[1]) for match in map(_KERAS_CHECKPOINT.fullmatch, os.listdir(train_dir)) if match]
    except OSError as error:
        raise ConfigError("run_record_unreadable", f"--train_dir: cannot read {error.filename}: {error.strerror}; ask "
                          "as a user who may read it, or give --ps_hosts") from None
    checkpoint = os.path.join(train_dir, f"ckpt-{max(steps):08d}.keras") if steps else ""
    state, why = _lock_state(lock)
    about = {"model": record.get("model"), "dataset": record.get("dataset")}
    return Look(place=TrainingPlace([], train_dir, False, {}), snapshot=None, about=about, num_unused_gradients=0,
                problems={}, checkpoint=checkpoint, ending=Ending(state, why, max(steps, default=None), {}))


def _lock_state(content: bytes | None) -> tuple[str, str]:
    """Returns the state of a training, and the reason, by its lock."""
    if content is None:
        return ENDED, "no process trains in the folder"
    holder, has_ended = folder_lock.describe_holder(content), folder_lock.has_ended_here(content)
    if has_ended is None:
        return UNKNOWN, f"{holder} trains in the folder, unless it was killed: it is on another machine"
    return (LOST, f"{holder} was killed") if has_ended else (RUNNING, f"{holder} trains in the folder")


def look(place: TrainingPlace) -> Look:
    """Asks all ps at once; returns the state after about ANSWER_SECS.

    Raises:
      ConfigError: another training runs at the addresses of this one.
    """
    problems: dict[Task, Problem] = {}
    state: dict[str, Any] = {"snapshot": None, "about": place.run, "num_unused_gradients": 0}

    def ask(task: Task) -> None:
        try:
            if task == place.ps[0]:
                state.update(_ask_first(place))
            else:
                ask_one(task, place, lambda board: board.is_stop_requested())
        except ClusterLostError as error:
            problems[task] = error.problems[0]
        except ConfigError as error:  # another training runs there
            if (ending := read_ending(place.train_dir)) is None:
                raise
            state["ending"] = ending
            problems[task] = error.problems[0]

    in_parallel([lambda task=task: ask(task) for task in place.ps])
    # The one that the chief has read back and recorded: reading it again takes minutes if it has large tables.
    path = tf.train.latest_checkpoint(place.train_dir) if place.train_dir else None
    if state["snapshot"] is None and "ending" not in state:
        ending = read_ending(place.train_dir)
        # Once the end is noted, a server there that does not answer is that of another training, which begins.
        has_noted_end = ending is not None and ending.state != LOST
        if has_noted_end or not reachability.accepts(place.ps[0].address):
            state["ending"] = ending
    if state["snapshot"] is None and launching.is_launching(place.train_dir):
        place, problems = dataclasses.replace(place, ps=[], run={}), {}  # those are of the run before
        state |= {"about": {}, "ending": Ending(STARTING, f"{launching.REASON}; its chief has not started", None, {})}
    return Look(place=place, problems=problems, checkpoint=path or "",
                published=read_published(place.train_dir) if place.train_dir else {}, **state)


def _ask_first(place: TrainingPlace) -> dict[str, Any]:
    first = place.ps[0]
    values = ask_training(place, lambda board: board.read())
    about = values.about or place.run
    heartbeat_secs = about.get("heartbeat_secs")
    bound = {} if heartbeat_secs is None else {"heartbeat_timeout_secs": heartbeat_secs}
    snapshot = _bounded(first, lambda: Blackboard(f"grpc://{first.address}", [first], None,
                                                  is_elastic=place.is_elastic, **bound), lambda board: board.snapshot())
    return {"snapshot": snapshot, "about": about, "num_unused_gradients": values.num_unused_gradients}


def _bounded(task: Task, make_board: Callable[[], Any], question: Callable[[Any], Any]) -> Any:
    if not reachability.accepts(task.address):  # a call to a server that has ended takes seconds to fail
        raise ClusterLostError("ps_not_running", f"{task} is not running")

    # Its graph is made before the time begins: on a busy machine that may take longer than the ps has to answer, and
    # a caller that asks again meanwhile would have a second thread that makes graphs, and then a third.
    with contextlib.closing(make_board()) as board:
        return waits.bounded(lambda: question(board), ANSWER_SECS, f"an answer of {task}")
