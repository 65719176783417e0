"""How do tasks that do not train learn that training under a strategy has ended well? The chief says so.

    a worker that only serves    a mark in its server    --> its process ends with 0; if the chief is gone without, 138
    a ps, which does nothing     a mark in its server    --> as above
    a server of TensorFlow 2     a mark in its server    --> its `join` ends the process with 0
    an evaluator                 a file in model_dir     --> the last evaluation, and the final export

The servers of TensorFlow 2 are those of ParameterServerStrategy, whose chief has no other way to tell them; without the
mark they go on serving, since a chief that was lost may come back.

A ps stays until then, because `ps_train launch` takes the end of a ps for that of training, and restarts no task.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Sequence
from typing import Any, NoReturn

import tensorflow.compat.v1 as tf

from ps_train.cluster import reachability
from ps_train.cluster.spec import Cluster, Task
from ps_train.cluster.tf_config import parse_tf_config
from ps_train.errors import ChiefFailedError, ClusterLostError, StoppedError
from ps_train.parts.legacy.classic import clients, ending, script_cluster
from ps_train.runtime.waits import Reminder, Timeouts

FILE = "training_ended"  # in model_dir
_MARK = "ps_train/training_ended"
_POLL_SECS = 0.5
_log = logging.getLogger(__name__)


def announce(tasks: Sequence[Task], model_dir: str, timeouts: Timeouts) -> None:
    """Says that training has ended well; a task that has not come within the heartbeat time-out does not hear it."""
    with contextlib.suppress(ClusterLostError):
        reachability.wait_for_tasks(tasks, timeouts.heartbeat_secs, threading.Event())
    for task in filter(_answers, tasks):
        clients.set_mark(task, _MARK)
    try:
        tf.gfile.MakeDirs(model_dir)
        with tf.gfile.Open(os.path.join(model_dir, FILE), "w") as file:
            file.write("An evaluator reads from this file that training has ended.\n")
    except tf.errors.OpError as error:
        _log.warning("an evaluator is not told that training has ended: %s", error.message)


def withdraw(tasks: Sequence[Task], model_dir: str) -> None:
    """Takes back what an earlier training has said."""
    for task in filter(_answers, tasks):
        clients.set_mark(task, _MARK, is_set=False)
    with contextlib.suppress(tf.errors.NotFoundError):
        tf.gfile.Remove(os.path.join(model_dir, FILE))


def _answers(task: Task) -> bool:
    return reachability.accepts(task.address)


def end_as_server(cluster: Cluster) -> NoReturn:
    """Ends a worker that has served the chief, which is gone.

    Raises:
      ClusterLostError: the chief has not said that training has ended.
      SystemExit: it has.
    """
    if not clients.has_mark(cluster.task, _MARK):
        raise ClusterLostError(
            "task_lost", f"{cluster.task.name} has had no answer of {cluster.chief} (chief), which has not said that "
            "training has ended; start all tasks again: they continue from the last checkpoint")
    raise SystemExit(0)


def wait_as_ps(task: Task, workers: Sequence[Task], server_class: Any, timeouts: Timeouts) -> NoReturn:
    """Waits on a ps, which has nothing to do, until the workers have ended, and ends the process.

    Raises:
      ClusterLostError: no worker has answered for the start time-out, and the chief had not said that training ended.
      StoppedError: a signal asked this process to stop.
      SystemExit: training has ended.
    """
    server = server_class(tf.train.ClusterSpec({task.job: {task.index: task.address}}), job_name=task.job,
                          task_index=task.index)
    _log.info("no variable is on a ps under this strategy; this one waits for the end of training")
    stop, reminder = threading.Event(), Reminder("a worker", timeouts.start_secs)
    ending.on_stop(stop.set)
    seen_secs = time.monotonic()
    while not stop.wait(_POLL_SECS):
        if any(map(_answers, workers)):
            seen_secs, reminder = time.monotonic(), Reminder("a worker", timeouts.start_secs)
        elif clients.has_mark(task, _MARK):
            del server  # it has served until here
            raise SystemExit(0)
        elif time.monotonic() - seen_secs > timeouts.start_secs:
            raise ClusterLostError("no_workers", f"no worker was there for {timeouts.start_secs:g} s; were they ended, "
                                   "or never started?")
        reminder.remind()
    raise StoppedError("stopped", "stopped while the workers trained")


def announce_to_servers(server_def: Any) -> None:
    """Says to the other servers of a cluster of TensorFlow 2 that its coordinator, this process, has ended well."""
    for task in _tasks_of(server_def):
        if task.job != server_def.job_name and _answers(task):
            clients.set_mark(task, _MARK)


def join_server(server_def: Any) -> NoReturn:
    """Serves until the coordinator has ended well, and is gone; then ends the process.

    Raises:
      StoppedError: a signal asked this process to stop.
      SystemExit: it has ended.
    """
    tasks = _tasks_of(server_def)
    own = next(task for task in tasks if (task.job, task.index) == (server_def.job_name, server_def.task_index))
    coordinators = [task for task in tasks if task.job not in ("ps", "worker")]
    stop, has_come = threading.Event(), False
    ending.on_stop(stop.set)
    reminder = Reminder("a coordinator, such as chief:0 (ps_train launch run --chief_job=chief)")
    while not stop.wait(_POLL_SECS):
        is_there = any(map(_answers, coordinators))
        if not is_there and clients.has_mark(own, _MARK):
            raise SystemExit(0)
        has_come = has_come or is_there
        if not has_come:
            reminder.remind()
    raise StoppedError("stopped", "stopped while serving")


def _tasks_of(server_def: Any) -> list[Task]:
    return [Task(job.name, index, address) for job in server_def.cluster.job
            for index, address in sorted(job.tasks.items())]


class ChiefWatch:
    """Tells an evaluator when training is over: the chief is gone, and has said so."""

    def __init__(self, chief: Task, model_dir: str, timeouts: Timeouts) -> None:
        self._chief, self._model_dir, self._timeouts = chief, model_dir, timeouts
        self._seen_secs = time.monotonic()
        self._was_there = False

    def is_over(self, has_max_steps: bool) -> bool:
        """Returns whether training is over; see `Observer.is_over`.

        Raises:
          ClusterLostError: the chief did not come within the start time-out, and there is no checkpoint.
          ChiefFailedError: it has been gone for the start time-out, and has not said that training has ended.
        """
        if reachability.accepts(self._chief.address):
            self._was_there, self._seen_secs = True, time.monotonic()
            return has_max_steps
        start_secs, gone_secs = self._timeouts.start_secs, time.monotonic() - self._seen_secs
        # A file that is there before the chief may be of an earlier training.
        bound_secs = self._timeouts.heartbeat_secs if self._was_there else start_secs
        if has_max_steps or gone_secs > bound_secs and tf.gfile.Exists(os.path.join(self._model_dir, FILE)):
            return True
        if gone_secs <= start_secs:
            return False
        if not self._was_there and tf.train.latest_checkpoint(self._model_dir) is None:
            raise ClusterLostError("timed_out", f"waited {start_secs:g} s for {self._chief} (chief)")
        _log.warning("waited %g s for %s (chief), which has not said that training has ended; no final export is made",
                     start_secs, self._chief)
        raise ChiefFailedError


def chief_watch(config: Any, timeouts: Timeouts) -> ChiefWatch | None:
    """Returns how the evaluator of a cluster that trains under a strategy knows its end; None for any other."""
    tf_config = os.environ.get("TF_CONFIG", "").strip()
    if config.train_distribute is None or not tf_config:
        return None
    parsed = parse_tf_config(tf_config, needs_ps=False)
    addresses = script_cluster.launched_addresses(parsed.addresses, parsed.sparse_jobs)
    return ChiefWatch(Cluster(parsed.job, parsed.index, addresses).chief, config.model_dir, timeouts)
