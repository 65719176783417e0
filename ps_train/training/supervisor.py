"""Opens sessions with TensorFlow's Supervisor: on live parameters, or on parameters that the chief prepares first.

docs/decisions/sessions.md says which parts of the Supervisor are used, and why not the others.
"""

from __future__ import annotations

import logging
from typing import Callable

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Cluster
from ps_train.coordination import sessions
from ps_train.storage import checkpoints
from ps_train.storage.journal import Journal
from ps_train.training.replica_graph import TrainGraph

_RECOVERY_WAIT_SECS = 1  # TensorFlow's default of 30 makes every worker wait that long (tensorflow/tensorflow#10679)
_STOP_GRACE_SECS = 2
_log = logging.getLogger(__name__)


class SessionOpener:
    """Opens the sessions of one worker.

    Attributes:
      supervisor: TensorFlow's own, with its saving and its summaries turned off.
    """

    def __init__(
        self, cluster: Cluster, target: str, graph: TrainGraph, train_dir: str, *, journal: Journal,
        note_activity: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Adds the Supervisor's operations to the graph and finalises it; nothing is sent yet.

        Args:
          target: address of the server whose sessions these are.
          journal: learns from what each session begins.
          note_activity: takes what the chief does meanwhile, for the workers that wait for it.
        """
        self._cluster = cluster
        self._target = target
        self._graph = graph
        self._train_dir = train_dir
        self._journal, self._note_activity = journal, note_activity
        self._logged_origin: tuple[str | None, int] | None = None
        with graph.graph.as_default():
            self.supervisor = self._make_supervisor()
        graph.graph.finalize()

    def _make_supervisor(self) -> tf.train.Supervisor:
        # The Supervisor's summary thread would take a mini-batch of its own; here summaries come from training steps.
        with tf.control_dependencies([tf.local_variables_initializer(), tf.tables_initializer()]):
            local_init_op = tf.group(self._graph.update.local_init_op)
        return tf.train.Supervisor(
            graph=self._graph.graph,
            is_chief=self._cluster.is_chief,
            logdir=self._train_dir if self._cluster.is_chief else None,
            ready_for_local_init_op=self._graph.update.ready_for_local_init_op,
            local_init_op=local_init_op,
            summary_op=None,
            summary_writer=None,  # its writer ends training if the folder fails; storage/event_files.py does not
            saver=self._graph.saver,
            global_step=self._graph.global_step,
            save_summaries_secs=0,
            save_model_secs=0,  # storage/saver.py does it
            recovery_wait_secs=_RECOVERY_WAIT_SECS,
            stop_grace_secs=_STOP_GRACE_SECS,
        )

    def open(self, is_live: bool, lost_step: int, timeout_secs: float) -> tf.Session:
        """Returns a session on ready parameters; if they are not ready, the chief prepares them.

        Args:
          is_live: whether the parameters are in use, so that even a restarted chief must not overwrite them.
          lost_step: the global step that was read last, 0 at the start.
          timeout_secs: how long to wait for live parameters.
        """
        config = sessions.options(self._cluster.peers, self._cluster.is_elastic)
        if is_live:
            session = self.supervisor.session_manager.wait_for_session(self._target, config, timeout_secs)
            self._journal.note("session", source="live parameters", step=lost_step)
            return session
        path = checkpoints.newest_sound(self._train_dir)
        if path is not None:
            self._graph.check_fits(path)
        newest = self._graph.rows.newest(path) if path else None
        if (newest, lost_step) != self._logged_origin:  # once, however many sessions it takes
            _log_origin(newest, lost_step)
            self._logged_origin = (newest, lost_step)
        self._note_activity(f"restores {newest}" if newest else "makes new parameters")
        # The Supervisor itself would restore what the file `checkpoint` names, sound or not.
        session = self.supervisor.session_manager.prepare_session(
            self._target, self.supervisor.init_op, self._graph.saver, checkpoint_filename_with_path=newest,
            config=config, init_fn=self._graph.init_fn)
        if path:
            self._graph.rows.restore(session, path, newest)
        else:
            self._graph.rows.reset(session)
        self._graph.parts.prepared(session, newest or "")
        self._journal.note("session", source=newest or "new parameters", step=lost_step)
        return session


def _log_origin(path: str | None, lost_step: int) -> None:
    """Logs where the parameters come from, as a warning if a ps has lost them."""
    if not lost_step:
        _log.info("continuing from %s" if path else "starting from new parameters%s", path or "")
    elif path:
        _log.warning("a ps has lost its parameters at about step %d: restoring all ps from %s", lost_step, path)
    else:
        _log.warning("a ps has lost its parameters at about step %d, and NO CHECKPOINT was saved before: STARTING "
                     "AGAIN from new parameters; a smaller --save_model_secs loses less", lost_step)
