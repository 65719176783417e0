"""Ends training in a worker so that no other worker is left waiting.

    the last step taken --> announce "stopping", release the workers that wait for an update
    every worker   report "finished"
    chief          wait until all have, or until nothing moves any more --> save (storage/saver.py)
"""

from __future__ import annotations

import logging
import threading
import time

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Cluster
from ps_train.coordination import sessions
from ps_train.coordination.blackboard import Blackboard
from ps_train.coordination.state import Snapshot, State
from ps_train.runtime import waits
from ps_train.training.replica_graph import TrainGraph
from ps_train.training.reporting import End, Outcome

_POLL_SECS = 0.1
_CALL = tf.RunOptions(timeout_in_ms=30_000)  # bounds operations that wait for no other worker, in case a ps is frozen
_log = logging.getLogger(__name__)


def announce(session: tf.Session, graph: TrainGraph, board: Blackboard, outcome: Outcome) -> None:
    """Announces the end of training if this worker took the last step, and releases the workers that wait."""
    if outcome.end is End.STEPS:
        board.announce_stopping()
    if outcome.end in (End.STEPS, End.ANNOUNCED):  # early stopping announces it while others wait for an update
        sessions.run_bounded(session, graph.update.release_op, options=_CALL)


def report_finished(cluster: Cluster, board: Blackboard, outcome: Outcome) -> None:
    """Reports that this worker takes no further step; not if a signal ended it, since it may come back."""
    if outcome.end is not End.SIGNAL:
        board.report_finished(cluster.worker_number)


def wait_for_others(
    session: tf.Session,
    graph: TrainGraph,
    cluster: Cluster,
    board: Blackboard,
    *,
    timeout_secs: float,
    stop: threading.Event,
) -> None:
    """Waits until every worker has finished or died, `stop` is set, or nothing has moved for `timeout_secs`.

    Once training is over, waiting workers are released again and again, since one may have come late or pushed a
    gradient that no update takes. If only this worker's data has ended, the others continue.
    """
    moved_secs, last = time.monotonic(), None
    reminder = waits.Reminder(lambda: f"{', '.join(unfinished)} to finish")
    while unfinished := _unfinished(cluster, (snapshot := board.snapshot())):
        if snapshot.state >= State.STOPPING:
            sessions.run_bounded(session, graph.update.release_op, options=_CALL)
        step = int(sessions.run_bounded(session, graph.status, options=_CALL)[0])
        if (step, unfinished) != last:
            moved_secs, last = time.monotonic(), (step, unfinished)
        if time.monotonic() - moved_secs > timeout_secs:
            _log.warning("ending without %s: not finished, and no step for %g s", ", ".join(unfinished), timeout_secs)
            return
        reminder.remind()
        if stop.wait(_POLL_SECS):
            return


def steps_table(cluster: Cluster, snapshot: Snapshot) -> str:
    """Returns the lines on how many steps each worker took, including those that left; "" if there were no steps."""
    numbers = [int(number) for number in np.flatnonzero(snapshot.local_steps)]
    names = [cluster.worker_name(number) for number in numbers]
    titles = [f"{name} (chief)" if name == cluster.chief.name else name for name in names]
    steps = [int(snapshot.local_steps[number]) for number in numbers]
    endings = ["" if snapshot.finished[number] else "  left before the end" for number in numbers]
    if not steps:
        return ""
    width, digits = max(map(len, titles)), len(str(max(steps)))
    lines = [f"  {title:<{width}}  {count:>{digits}}  {count / sum(steps):6.1%}{ending}"
             for title, count, ending in zip(titles, steps, endings)]
    return "\n".join([f"Steps of each worker, {sum(steps)} in all:", *lines])


def _unfinished(cluster: Cluster, snapshot: Snapshot) -> list[str]:
    """Returns the workers that may still take a step: not finished, and alive or not here yet."""
    numbers = {cluster.number_of(task): str(task) for task in cluster.workers}
    numbers.update((number, cluster.worker_name(number)) for number in snapshot.alive()
                   if number not in numbers)
    return [name for number, name in numbers.items() if not snapshot.finished[number]
            and (not snapshot.claims[number] or snapshot.is_alive(number))]
