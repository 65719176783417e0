"""Opens the sessions of a worker: it waits until it may train, then gets a session on ready parameters.

    chief    ps answer --> parameters prepared, and of this training? --> LIVE, else NEW; OVER if all is done
    others   wait for the chief to prepare them for this training    --> LIVE, or OVER

    NEW      the chief restores a checkpoint, or initialises the parameters, in a session for that

docs/decisions/sessions.md says which parts of the Supervisor are used, and why not the others.

The preparation of parameters is fenced: its writes fail on each ps that knows of a later chief. The operations that
prepare parameters write to all ps, and their values may come from the chief's own machine. A chief that freezes in the
middle of such a call still has values on their way when it wakes. So the check of a write comes after everything that
the write itself waits for:

    value arrives on the ps, control inputs are done --> is the term current? --> all writes of this ps
"""

from __future__ import annotations

import collections
import enum
import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from ps_train.cluster import reachability
from ps_train.cluster.spec import Cluster
from ps_train.coordination import agreement, sessions, variables
from ps_train.coordination.blackboard import Blackboard
from ps_train.coordination.sessions import if_answered
from ps_train.coordination.state import AdmissionView, State
from ps_train.errors import CheckpointError, ChiefFailedError, ConfigError, Problem, refuse
from ps_train.graph import devices, transfer
from ps_train.runtime import waits
from ps_train.storage import checkpoints
from ps_train.storage.journal import Journal
from ps_train.training.replica_graph import TrainGraph

_STOP_GRACE_SECS = 2
PREPARING = "ps_train/preparing"  # the collection of what else prepares parameters, in a FencedSession
_WRITES = ("Assign", "ResourceScatter", "ResourceAccumulatorSet", "AccumulatorSet", "LookupTableImport")  # or longer
_log = logging.getLogger(__name__)


class Parameters(enum.Enum):
    """What a worker finds on the parameter servers."""

    NEW = "no parameters of this training: the chief prepares them"
    LIVE = "parameters that are in use and must not be overwritten"
    OVER = "a training that has taken its last step"


class Admission:
    """Admits one worker to the training, at the start and after each lost session."""

    def __init__(
        self, cluster: Cluster, board: Blackboard, *, start_timeout_secs: float, stop: threading.Event,
        own_fingerprint: str, begin_term: Callable[[], bool] = lambda: True,
    ) -> None:
        """Prepares it.

        Args:
          start_timeout_secs: how long to wait for the other tasks.
          stop: ends every wait.
          own_fingerprint: what this worker must have in common with the others; "" compares nothing.
          begin_term: lets no earlier chief write any more; returns false if another process has this chief's number.
        """
        self._cluster = cluster
        self._board = board
        self._begin_term = begin_term
        self._start_timeout_secs = start_timeout_secs
        self._stop = stop
        self._fingerprint = own_fingerprint

    def wait(self) -> Parameters:
        """Waits until the parameters are ready, or until the chief has to prepare them; returns which is the case.

        Raises:
          ClusterLostError: the others did not answer within the time-out, or the chief has given up.
          ConfigError: this worker does not fit the running training, or two tasks have different clusters.
          StoppedError: stopped while waiting.
        """
        reachability.wait_for_tasks(self._cluster.ps, self._start_timeout_secs, self._stop)
        all_ps = ", ".join(map(str, self._cluster.ps))
        if self._cluster.is_chief:
            return self._until(self._ask_as_chief, lambda: f"an answer of {all_ps}")
        return self._until(self._ask_as_worker, lambda: f"{self._cluster.chief} (chief) to prepare {all_ps} "
                           f"({self._board.describe_joined(self._cluster)})")

    def _ask_as_chief(self) -> Parameters | None:
        """Returns None if a worker of the training that is to be replaced has joined in the meantime."""
        if not self._begin_term():  # then the heartbeat stops this process
            return None
        view = self._board.admission_view()
        if view.state == State.DONE:  # the chief before this one was killed after it had announced it; the ps end
            return None if self._differences(view) else Parameters.OVER
        parameters = Parameters.LIVE if view.is_prepared else Parameters.NEW
        if view.is_prepared and not self._belongs_here(view):
            _log.warning("the ps hold the parameters of another training, which has no workers: starting a new one")
            self._board.announce(State.IDLE)  # no worker joins the other training from now on
            if self._others_in(self._board.admission_view()):  # one has joined between the two calls above
                self._board.announce(view.state)
                return None
            parameters = Parameters.NEW
        return parameters if self._board.admit(self._cluster.worker_number) else None

    def _ask_as_worker(self) -> Parameters | None:
        """Returns None while this worker has to wait for the chief."""
        parameters = self._parameters_of(self._board.admission_view())
        if parameters is not Parameters.LIVE:
            return parameters
        if not self._board.admit(self._cluster.worker_number):  # ps 0 has forgotten its claim, or it was replaced
            return None
        # A chief that looked before may have begun another training meanwhile. Each of the two writes before it looks
        # again: at least one of them sees the other.
        parameters = self._parameters_of(self._board.admission_view())
        if parameters is not Parameters.LIVE:
            self._board.withdraw(self._cluster.worker_number)
        return parameters

    def _parameters_of(self, view: AdmissionView) -> Parameters | None:
        if view.mismatch:
            raise ConfigError("clusters_differ", view.mismatch)
        if view.state == State.FAILED:
            raise ChiefFailedError
        if view.state == State.DONE:
            return Parameters.OVER
        if not ((view.state == State.STOPPING or view.is_prepared) and self._belongs_here(view)):
            return None
        return Parameters.OVER if view.state == State.STOPPING else Parameters.LIVE

    def _until(self, ask: Callable[[], Parameters | None], awaited: Callable[[], str]) -> Parameters:
        """Returns the first answer of `ask()` that is not None; asks again if the blackboard does not answer."""
        return waits.until(lambda: if_answered(ask), self._start_timeout_secs, awaited, self._stop,
                           "is it started, and what does its log say?")

    def _belongs_here(self, view: AdmissionView) -> bool:
        """Returns whether this worker fits the prepared parameters; refuses it if others train on them."""
        differing = self._differences(view)
        if not differing:
            return True
        # A worker that is alive and not admitted may wait, as this one does, for the same new training.
        if self._others_in(view):
            refuse([Problem("worker_does_not_fit", f"{self._cluster.task} does not fit the training on "
                            f"{self._cluster.ps[0]}: {line}; start it with the same flags, TF_CONFIG and code")
                    for line in differing])
        return False

    def _differences(self, view: AdmissionView) -> list[str]:
        if not (view.fingerprint and self._fingerprint):
            return []
        return agreement.fingerprint_differences(view.fingerprint, self._fingerprint, their_name="the running training")

    def _others_in(self, view: AdmissionView) -> frozenset[int]:
        """Returns the other workers that use the parameters."""
        return view.admitted - {self._cluster.worker_number}


class SessionOpener:
    """Opens the sessions of one worker.

    Attributes:
      supervisor: TensorFlow's own, with its saving and its summaries turned off.
    """

    def __init__(
        self, cluster: Cluster, target: str, graph: TrainGraph, train_dir: str, *, journal: Journal,
        term: Callable[[], int] = lambda: variables.NO_TERM, note_activity: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Adds the Supervisor's operations to the graph and finalises it; nothing is sent yet.

        Args:
          target: address of the server whose sessions these are.
          journal: learns from what each session begins.
          term: returns the chief's term.
          note_activity: takes what the chief does meanwhile, for the workers that wait for it.
        """
        self._cluster = cluster
        self._target = target
        self._graph = graph
        self._train_dir = train_dir
        self._journal, self._term, self._note_activity = journal, term, note_activity
        self._logged_origin: tuple[str | None, int] | None = None
        with graph.graph.as_default():
            own_init_ops = tf.get_collection(tf.GraphKeys.INIT_OP)  # of the model; the Supervisor looks there, too
            init_op = own_init_ops[0] if own_init_ops else tf.global_variables_initializer()
            self._fence = Fence(self._preparing_ops(init_op) if cluster.is_chief else [])
            with tf.control_dependencies([tf.local_variables_initializer(), tf.tables_initializer()]):
                self._local_init_op = tf.group(graph.update.init.every_worker)
            self.supervisor = self._make_supervisor(init_op)  # finalises the graph
        graph.graph.finalize()

    def _make_supervisor(self, init_op: tf.Operation) -> tf.train.Supervisor:
        ready_op = tf.report_uninitialized_variables(tf.global_variables())
        ready_op.mark_used()  # it warns at the end if no session has asked: this one may not prepare the parameters
        return tf.train.Supervisor(
            graph=self._graph.graph,
            is_chief=self._cluster.is_chief,
            logdir=self._train_dir if self._cluster.is_chief else None,
            ready_op=ready_op,
            init_op=init_op,
            local_init_op=None,  # `open` runs it
            # Its thread would take a mini-batch; here summaries come from training steps.
            summary_op=None,
            summary_writer=None,  # its writer ends training if the folder fails; storage/event_files.py does not
            saver=self._graph.savers.saver,
            global_step=self._graph.global_step,
            save_summaries_secs=0,
            save_model_secs=0,  # storage/saver.py does it
            stop_grace_secs=_STOP_GRACE_SECS,
        )

    def _preparing_ops(self, init_op: tf.Operation) -> list[tf.Operation]:
        restore_op = self._graph.graph.get_operation_by_name(self._graph.savers.saver.saver_def.restore_op_name)
        init = self._graph.update.init
        return [init_op, restore_op, init.new_run, init.live_run, *self._graph.graph.get_collection(PREPARING)]

    def term_feed(self) -> dict[tf.Tensor, int]:
        """Returns the feed with which the chief prepares parameters: its writes fail after a later chief has begun."""
        return {self._fence.term: self._term()}

    def open(self, is_live: bool, lost_step: int) -> tf.Session:
        """Returns a session on ready parameters; if they are not ready, the chief prepares them.

        Args:
          is_live: whether the parameters are in use; then even a restarted chief must not overwrite them.
          lost_step: the global step that was read last, 0 at the start.
        """
        source = "live parameters" if is_live else self._prepare(lost_step)
        config = sessions.options(self._cluster.peers, self._cluster.is_elastic)
        session = sessions.Session(self._target, graph=self._graph.graph, config=config)
        try:
            session.run(self._local_init_op)  # what it initialises may belong to the session, as an iterator
        except BaseException:
            sessions.close_in_background(session)
            raise
        self._journal.note("session", source=source, step=lost_step)
        return session

    def _prepare(self, lost_step: int) -> str:
        """Restores a checkpoint, or initialises the parameters; returns where they come from."""
        try:
            path = checkpoints.newest_sound(self._train_dir, must_be_one=True)
        except CheckpointError as error:  # it could be read at the start; a mount may come back, as a ps does
            raise tf.errors.UnavailableError(None, None, str(error)) from error
        self._graph.check_origin(path)
        newest = self._graph.rows.newest(path) if path else None
        if (newest, lost_step) != self._logged_origin:  # once, however many sessions it takes
            _log_origin(newest, lost_step)
            self._logged_origin = (newest, lost_step)
        self._note_activity(f"restores {newest}" if newest else "makes new parameters")
        config = sessions.options(self._cluster.peers, self._cluster.is_elastic)
        # Each operation runs once: to optimise its graph takes longer than to run it.
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        # The Supervisor itself would restore what the file `checkpoint` names, sound or not.
        session = self.supervisor.session_manager.prepare_session(
            self._target, self.supervisor.init_op, FencedSaver(self._graph.savers.saver, self.term_feed()),
            checkpoint_filename_with_path=newest, config=config, init_feed_dict=self.term_feed(), init_fn=self._init)
        try:
            fenced = FencedSession(session, self.term_feed())
            if path:
                self._graph.rows.restore(fenced, path, newest)
            else:
                self._graph.rows.reset(fenced)
            self._graph.parts.after_restore(fenced, newest or "")
        finally:
            sessions.close_in_background(session)
        return newest or "new parameters"

    def _init(self, session: tf.Session) -> None:
        """Changes new variables, before local ones are initialised, which may depend on them."""
        if self._graph.init_fn is not None:
            self._graph.init_fn(session)
        self._graph.parts.after_init(session)


def _log_origin(path: str | None, lost_step: int) -> None:
    """Logs where the parameters come from, as a warning if a ps has lost them."""
    if not lost_step:
        _log.info("continuing from %s" if path else "starting from new parameters%s", path or "")
    elif path:
        _log.warning("a ps has lost its parameters at about step %d: restoring all ps from %s", lost_step, path)
    else:
        _log.warning("a ps has lost its parameters at about step %d, and NO CHECKPOINT was saved before: STARTING "
                     "AGAIN from new parameters; a smaller --save_model_secs loses less", lost_step)


class Fence:
    """Checks the term of a chief before the writes of some operations.

    Attributes:
      term: placeholder, int64 scalar; if it is not fed, nothing is checked.
    """

    def __init__(self, operations: Sequence[tf.Operation]) -> None:
        """Adds the checks to the current graph, for all writes to a ps that the operations need."""
        self.term = tf.placeholder_with_default(tf.constant(variables.NO_TERM, tf.int64), [])
        checked: set[tf.Operation] = set()
        for operation in operations:
            # One by one: a check waits for nothing that another operation computes.
            groups = collections.defaultdict(list)
            for op in transfer.upstream([operation]):
                is_new = op not in checked and not transfer.is_enclosed(op)
                if is_new and _is_write(op) and devices.is_on_ps(_place(op)):
                    groups[devices.task_of(_place(op)), frozenset(op.control_inputs)].append(op)
            for (_, control_inputs), writes in groups.items():
                self._check_before(writes, control_inputs)
                checked.update(writes)

    def _check_before(self, writes: list[tf.Operation], control_inputs: Iterable[tf.Operation]) -> None:
        device = _place(writes[0])
        with tf.device(None), tf.device(device):
            arrived = [_arrival(tensor, device) for op in writes for tensor in op.inputs
                       if tensor.op.inputs and not _needs_write(tensor)]
            with tf.control_dependencies(None), tf.control_dependencies([*control_inputs, *arrived]):
                check = tf.raw_ops.Assert(
                    condition=variables.is_current(self.term), data=[tf.constant(variables.REFUSED)], summarize=1)
        for op in writes:
            transfer.add_control_input(op, check)


def _arrival(tensor: tf.Tensor, device: str) -> tf.Operation:
    """Returns an operation on a device that runs when a tensor is there."""
    return tensor.op if devices.task_of(tensor.op.device) == devices.task_of(device) else tf.identity(tensor).op


def _is_write(op: tf.Operation) -> bool:
    return op.type.startswith(_WRITES)


def _place(write: tf.Operation) -> str:
    """Returns the device of a write: that of its variable, where TensorFlow puts it if it has none of its own."""
    variable = write.inputs[0]
    return variable.op.device if variable.dtype == tf.resource else write.device


def _needs_write(tensor: tf.Tensor) -> bool:
    """Returns whether a tensor is computed after a write; that one is checked, too."""
    return any(map(_is_write, transfer.upstream([tensor])))


class FencedSession:
    """A session whose calls feed the term of a chief."""

    def __init__(self, session: tf.Session, feed: dict[tf.Tensor, int]) -> None:
        self._session, self._feed = session, feed
        self.graph = session.graph

    def run(
        self, fetches: Any, feed_dict: Mapping[Any, Any] | None = None, options: tf.RunOptions | None = None
    ) -> Any:
        """See `tf.compat.v1.Session.run`."""
        return self._session.run(fetches, {**(feed_dict or {}), **self._feed}, options)


class FencedSaver:
    """A Saver that restores in a FencedSession."""

    def __init__(self, saver: tf.train.Saver, feed: dict[tf.Tensor, int]) -> None:
        self._saver, self._feed = saver, feed

    def restore(self, session: tf.Session, path: str) -> None:
        """Restores a checkpoint; see `tf.compat.v1.train.Saver.restore`."""
        self._saver.restore(FencedSession(session, self._feed), path)
