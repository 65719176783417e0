"""Sessions that join the cluster first, wait for a bounded time, and never overwrite parameters that are in use.

    chief     parameters in use? --> give a value to those without one --> wait until they are ready
                  else           --> restore or initialise --> announce them --> local_init_op
    others    wait for the chief --> local_init_op --> wait until they are ready

TensorFlow's `Supervisor`, `MonitoredTrainingSession` and Estimator all make their sessions with a `SessionManager`, so
that is where this is done.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import re
import sys
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple, Protocol

import tensorflow.compat.v1 as tf
from tensorflow.python.client.session import BaseSession  # as below
from tensorflow.python.training import monitored_session, session_manager  # no public place to set these

from ps_train.cluster import reachability
from ps_train.errors import BlackboardError
from ps_train.graph import transfer
from ps_train.graph.devices import task_of
from ps_train.parts.legacy.classic import ending, membership, named_tasks, placement
from ps_train.parts.legacy.classic.membership import Membership
from ps_train.parts.legacy.classic.script_cluster import real_target
from ps_train.parts.legacy.classic.stop_hook import StopHook
from ps_train.parts.legacy.classic.trainings import ScriptTraining, variables_of
from ps_train.runtime import waits
from ps_train.runtime.threads import Call

_CLOSE_SECS = 1.0
_RECOVERY_WAIT_SECS = 1
# As pybind11 writes it; a traceback may follow.
_TOLD_EXIT = re.compile(r"error_already_set[^\n]* REPLACED BY SystemExit: (.*?)(?:\n\nAt:\n|\Z)", re.DOTALL)
_log = logging.getLogger(__name__)
_TensorFlowManager = session_manager.SessionManager
_PREPARE_SIGNATURE = inspect.signature(_TensorFlowManager.prepare_session)
_MONITORED_SIGNATURE = inspect.signature(tf.train.MonitoredTrainingSession)
_TensorFlowSession = tf.Session
_TensorFlowInteractiveSession = tf.InteractiveSession
_monitored_training_session = tf.train.MonitoredTrainingSession


class Route(NamedTuple):
    """Where a session goes.

    Attributes:
      target: the address of a server, "" for none.
      member: joins the cluster before the session; None for a session that is not one with the cluster.
      filters: the device filters of a session that does not join.
      waits: whether another process prepares the parameters, whatever the script says.
    """

    target: Any
    member: Membership | None = None
    filters: Sequence[str] = ()
    waits: bool = False


class Redirection(Protocol):
    """Sends sessions that name no target to the cluster, for scripts that know of none: Horovod's.

    Attributes:
      is_chief: whether this process prepares the shared parameters and saves them.
      device: the task of this process, such as "/job:worker/task:1".
    """

    is_chief: bool
    device: str

    def shares(self, graph: tf.Graph) -> bool:
        """Returns whether the parameters of a graph are shared; if not, each process has its own."""

    def route(self, graph: tf.Graph) -> Route:
        """Returns where a session without a target goes."""

    def opened(self, session: tf.Session) -> None:
        """Is called with each new `tf.Session` that was redirected and has joined the cluster."""

    def before_run(self, session: tf.Session, fetches: Any) -> None:
        """Is called before each `run`, of any session."""


_redirections: list[Redirection] = []


def set_redirection(redirection: Redirection | None) -> None:
    """Sets what decides where sessions without a target go; None leaves them in this process."""
    _redirections[:] = [redirection] if redirection else []


def _route(target: Any, graph: tf.Graph) -> Route:
    if not target and _redirections:
        return _redirections[-1].route(graph)
    is_remote = isinstance(target, (str, bytes)) and len(target) > 0
    return Route(target, membership.current() if is_remote else None)


class _ClusterSession(BaseSession):
    """Stands between TensorFlow's classes of sessions and their base: joins the cluster, and closes in bounded time."""

    # Of a redirected session. One that a SessionManager has made gets this class without `__init__`.
    _task: tuple[str | None, int | None] | None = None

    def __init__(self, target: str = "", graph: tf.Graph | None = None, config: tf.ConfigProto | None = None) -> None:
        self._session = None  # TensorFlow's `__del__` looks at it, also after an error here
        route = _route(target, graph or tf.get_default_graph())
        config = _joined_options(route, graph or tf.get_default_graph(), config)
        is_redirected = route.target != target
        if is_redirected:
            self._task = task_of(_redirections[-1].device)
        target = real_target(route.target) if isinstance(route.target, str) else route.target
        if target:
            membership.note_remote()
        super().__init__(target, graph, config)
        if is_redirected and route.member is not None:
            _redirections[-1].opened(self)

    def run(self, fetches: Any, *args: Any, **kwargs: Any) -> Any:
        """Runs operations and computes tensors; see TensorFlow's class."""
        if _redirections:
            _redirections[-1].before_run(self, fetches)
        with named_tasks.step():
            return repeated_if_dropped(functools.partial(super().run, fetches, *args, **kwargs))

    def list_devices(self) -> list[Any]:
        """Returns the devices of the session; of one that a script opened without a target, those of this process."""
        return [device for device in super().list_devices() if self._task in (None, task_of(device.name))]

    def make_callable(self, fetches: Any, *args: Any, **kwargs: Any) -> Callable[..., Any]:
        """Returns a function that does what `run` does; see TensorFlow's class. Queue runners use it."""
        return self._prepared(super().make_callable(fetches, *args, **kwargs), fetches)

    def _make_callable_from_options(self, callable_options: Any) -> Callable[..., Any]:
        """Does the same for options; models of Keras train so."""
        return self._prepared(super()._make_callable_from_options(callable_options),
                              [*callable_options.fetch, *callable_options.target])

    def _prepared(self, run: Callable[..., Any], fetches: Any) -> Callable[..., Any]:
        def call(*values: Any, **options: Any) -> Any:
            if _redirections:
                _redirections[-1].before_run(self, fetches)
            return repeated_if_dropped(functools.partial(run, *values, **options))
        return call

    def close(self) -> None:
        """Closes the session; if another task has died, TensorFlow's own `close` would block for 30 s."""
        if sys.is_finalizing():  # called by `__del__`: no thread can be started any more
            return
        closing = Call(functools.partial(BaseSession.close, self), "close session")
        closing.join(_CLOSE_SECS)
        if not closing.is_alive():
            with contextlib.suppress(tf.errors.OpError):  # another task has ended, and nothing is left to close
                closing.result()


class Session(_TensorFlowSession, _ClusterSession):
    """`tf.compat.v1.Session` that joins the cluster if it is remote, and does not block when it is closed."""


class InteractiveSession(_TensorFlowInteractiveSession, _ClusterSession):
    """`tf.compat.v1.InteractiveSession`, with the same differences."""


def repeated_if_dropped(run: Callable[[], Any]) -> Any:
    """Returns `run()`, or what it returns the second time if TensorFlow has dropped its request as a duplicate.

    A task refuses a request whose number it has seen. That has ended a script; the reason is not known. If the first
    request was carried out in part, the repeated step applies that part twice.
    """
    try:
        return _ending_as_told(run)
    except (tf.errors.AbortedError, tf.errors.CancelledError) as error:  # the latter if this task awaited a tensor
        if "request was received twice" not in error.message:
            raise
        _log.info("TensorFlow took a request for a duplicate and dropped it; running the step again")
        return _ending_as_told(run)


def _ending_as_told(run: Callable[[], Any]) -> Any:
    """Returns `run()`; raises SystemExit if a script's own handler of a signal did while TensorFlow made an error.

    As when all tasks of a job are stopped, and the ps is gone first. TensorFlow mixes both into a RuntimeError.
    """
    try:
        return run()
    except RuntimeError as error:
        told = _TOLD_EXIT.search(str(error))
        if told is None:
            raise
        raise SystemExit(_exit_code(told[1])) from error


def _exit_code(text: str) -> int | str:
    """Returns the code of a SystemExit by its text: a text ends a process with 1, and is shown."""
    if text in ("<EMPTY MESSAGE>", "None", "False"):  # the first is pybind11's for `sys.exit()`
        return 0
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def _share_parameters(route: Route, graph: tf.Graph, config: tf.ConfigProto | None) -> None:
    """Places the parameters of a graph for a session with a cluster, if the script has not.

    A SessionManager does so, and no other session: its graph may be used in one without a target, too.
    """
    filters = [] if config is None else config.device_filters
    if route.member is not None:
        placement.share_parameters(graph, route.member.cluster, filters)
    elif route.target and (outside := membership.outside()) is not None:
        placement.share_on_the_first_task(graph, outside.cluster, filters)


def _joined_options(route: Route, graph: tf.Graph, config: tf.ConfigProto | None) -> tf.ConfigProto | None:
    """Returns the options of a session, once its process has joined the cluster if the session is one with it."""
    if route.member is not None:
        route.member.join()
        config = _with_filters(route.member, graph, config)
    elif route.filters:
        config = membership.with_filters(config, route.filters)
    elif (ps := membership.serving_ps()) is not None and isinstance(route.target, (str, bytes)) and route.target:
        # Without filters its server would look for every task, and while one refuses the connection, it would fail to
        # fetch what that task computes, for seconds after it is there.
        config = _with_filters(ps, graph, config)
    elif (outside := membership.outside()) is not None and route.target == outside.target:
        named_tasks.await_all(outside, [] if config is None else config.device_filters)
    if config is not None and _redirections:  # such a script may name a GPU for a variable; a ps has none
        config.allow_soft_placement = True
    return config


def _with_filters(member: Membership | membership.Serving, graph: tf.Graph,
                  config: tf.ConfigProto | None) -> tf.ConfigProto:
    cluster, is_given = member.cluster, config is not None and bool(config.device_filters)
    device_filters = list(config.device_filters) if is_given else membership.filters_of(graph, cluster)
    if device_filters:
        named_tasks.await_others(member, named_tasks.others_in(device_filters, cluster))
    else:  # what the graph will name is unknown, so every task has to be there
        reachability.wait_for_tasks([*cluster.ps, *cluster.workers], member.timeouts.start_secs, member.stop)
    return config if is_given else membership.with_filters(config, device_filters)


class SessionManager(_TensorFlowManager):
    """`tf.compat.v1.train.SessionManager` with the bounds, the admission and the filters of ps_train."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._recovery_wait_secs = min(self._recovery_wait_secs, _RECOVERY_WAIT_SECS)
        self._announcement: Callable[[], None] | None = None  # the chief's, until it is sent
        self._completion: Callable[[tf.Session], None] | None = None  # of a chief that found the parameters in use
        self._unready_op = self._make_unready_op()

    def prepare_session(self, master: str, *args: Any, **kwargs: Any) -> tf.Session:
        """Returns a session whose parameters are restored or initialised, unless they are in use already."""
        route = _route(master, self._graph)
        arguments = _PREPARE_SIGNATURE.bind(self, route.target, *args, **kwargs).arguments
        del arguments["self"]
        self._completion = None
        if route.waits:
            return self.wait_for_session(master, arguments.get("config"), arguments.get("max_wait_secs"))
        member = route.member
        if not arguments.get("checkpoint_filename_with_path"):  # as below
            _share_parameters(route, self._graph, arguments.get("config"))
        arguments["config"] = _joined_options(route, self._graph, arguments.get("config"))
        if member is None:
            return super().prepare_session(**arguments)
        arguments["master"] = real_target(route.target)
        prepare = functools.partial(super().prepare_session, **arguments)
        if arguments.get("checkpoint_filename_with_path"):  # Estimator.predict: these variables belong to no training
            return self._bounded(member, prepare)
        training = ScriptTraining(self, arguments.get("checkpoint_dir"), variables_of(self._graph))
        if member.find_parameters(training):
            _recover_checkpoints(arguments.get("saver"), arguments.get("checkpoint_dir"))
            self._completion = functools.partial(self._give_missing_values, arguments.get("checkpoint_dir"))
            return self._bounded(member, functools.partial(
                super().wait_for_session, arguments["master"], config=arguments["config"],
                max_wait_secs=member.timeouts.start_secs))
        self._announcement = functools.partial(member.announce_prepared, training)
        session = self._bounded(member, prepare)
        self._announce()
        return session

    def _announce(self) -> None:
        announce, self._announcement = self._announcement, None
        if announce is None:
            return
        try:
            announce()
        except BlackboardError as error:  # a ps is lost, and its parameters: MonitoredTrainingSession begins again
            raise tf.errors.UnavailableError(None, None, str(error)) from error

    def _try_run_local_init_op(self, sess: tf.Session) -> tuple[bool, str | None]:
        # TensorFlow calls it when the parameters are restored or initialised. A `local_init_op` may wait for all
        # workers, so the others may go as soon as `ready_for_local_init_op` holds. Without that op TensorFlow lets them
        # go at once; here they go when the parameters are ready.
        if self._announcement and self._local_init_op is not None and self._are_parameters_ready(sess):
            self._announce()
        if self._completion is not None:
            self._completion(sess)
        return super()._try_run_local_init_op(sess)

    def _give_missing_values(self, checkpoint_dir: str | None, session: tf.Session) -> None:
        """Restores or initialises the variables without a value: nobody else does, if they are this process's own.

        As of a script in which every worker says that it is the chief, or of a chief that was started again.
        """
        asks = (self._ready_for_local_init_op, self._unready_op, self._ready_op)
        ask = next((op for op in asks if op is not None), None)
        if getattr(ask, "dtype", None) != tf.string:  # a condition of the script's own
            return
        unready = {name.decode() for name in session.run(ask).flat}
        missing = [variable for variable in self._graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)
                   if variable.op.name in unready and variable.initializer is not None]
        if missing:
            _log.warning("the parameters are in use, so this process only gives values to the %d that have none, such "
                         "as %r", len(missing), missing[0].op.name)
            session.run([variable.initializer for variable in missing], _saved_values(missing, checkpoint_dir))

    def _are_parameters_ready(self, sess: tf.Session) -> bool:
        if self._ready_for_local_init_op is not None:
            return self._model_ready_for_local_init(sess)[0]
        return self._unready_op is not None and not len(sess.run(self._unready_op))

    def _make_unready_op(self) -> tf.Tensor | None:
        """Returns the names of the parameters without a value, for a script without a `ready_for_local_init_op`."""
        is_needed = self._local_init_op is not None and self._ready_for_local_init_op is None
        if not is_needed or membership.current() is None or self._graph.finalized:
            return None
        with self._graph.as_default(), tf.device(None), tf.control_dependencies(None):
            return tf.report_uninitialized_variables(tf.global_variables(), "ps_train_unready")

    def wait_for_session(self, master: str, config: Any = None, max_wait_secs: float | None = None) -> tf.Session:
        """Returns a session once the chief has prepared the parameters."""
        route = _route(master, self._graph)
        member = route.member
        _share_parameters(route, self._graph, config)
        config = _joined_options(route, self._graph, config)
        if member is None:
            return super().wait_for_session(
                route.target, config, float("inf") if max_wait_secs is None else max_wait_secs)
        member.wait_until_prepared()
        master, start_secs = real_target(route.target), member.timeouts.start_secs
        return self._bounded(member, functools.partial(
            super().wait_for_session, master, config=config,
            max_wait_secs=start_secs if max_wait_secs is None else min(max_wait_secs, start_secs)))

    def _bounded(self, member: Membership, make: Callable[[], tf.Session]) -> tf.Session:
        def make_in_graph() -> tf.Session:
            with self._graph.as_default():  # the default graph is one of the calling thread
                return make()

        session = waits.bounded(make_in_graph, member.timeouts.start_secs,
                                f"a session with {', '.join(map(str, member.cluster.ps))}", member.stop)
        session.__class__ = Session  # for its `close`; it has no other state
        return session


def _recover_checkpoints(saver: tf.train.Saver | None, checkpoint_dir: str | None) -> None:
    """Lets a saver know the checkpoints in a folder, as a restore does: it removes all but `max_to_keep` of them."""
    state = tf.train.get_checkpoint_state(checkpoint_dir) if saver and checkpoint_dir else None
    if state is not None:
        saver.recover_last_checkpoints(state.all_model_checkpoint_paths)


def _saved_values(variables: Sequence[tf.Variable], checkpoint_dir: str | None) -> dict[tf.Tensor, Any]:
    """Returns what to feed to the initializers of those variables that are in the last checkpoint of a folder."""
    path = tf.train.latest_checkpoint(checkpoint_dir) if checkpoint_dir else None
    if path is None:
        return {}
    saved = tf.train.load_checkpoint(path)
    # The inputs of an initializer are the variable and its value; that of a group of operations has none.
    return {variable.initializer.inputs[1]: saved.get_tensor(variable.op.name) for variable in variables
            if len(variable.initializer.inputs) == 2 and saved.has_tensor(variable.op.name)}


class Supervisor(tf.train.Supervisor):
    """`tf.compat.v1.train.Supervisor` that asks every second, not every 30 s, whether the parameters are ready."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        install_session_manager()
        note_global_step(kwargs.get("graph"))
        super().__init__(*args, **kwargs)
        self._before = ending.Registered([], [], [])
        self._register()

    def start_standard_services(self, sess: tf.Session) -> list:
        """Starts TensorFlow's threads, without the one for summaries that depend on placeholders: it would fail."""
        summary_op = self._summary_op
        needed = transfer.upstream([summary_op]) if summary_op is not None and self._save_summaries_secs else []
        fed = next((op.name for op in needed if op.type == "Placeholder"), None)
        if fed is None:
            return super().start_standard_services(sess)
        _log.warning("the summaries depend on the placeholder %r, so the Supervisor does not write them by itself", fed)
        self._summary_op = None
        try:
            return super().start_standard_services(sess)
        finally:
            self._summary_op = summary_op  # the script may run it

    def prepare_or_wait_for_session(self, *args: Any, **kwargs: Any) -> tf.Session:
        """Returns a session whose parameters are ready; see TensorFlow's class."""
        session = super().prepare_or_wait_for_session(*args, **kwargs)
        self._register()
        if self.is_chief and self.saver and self.save_path:
            training = membership.current_training()

            def save() -> None:
                if membership.current_training() is training:  # else the parameters on the ps are another's
                    self.saver.save(session, self.save_path, global_step=self.global_step)

            self._register(save)
        return session

    def _register(self, *saves: Callable[[], None]) -> None:
        """Lets a signal end this loop; an outer one, in which a script may evaluate, can still save."""
        found = ending.registered()
        if self.request_stop not in found.stop_requests:
            self._before = found
        ending.set_registered(ending.Registered([self.request_stop], [*saves], self._before.last_savers))

    def stop(self, *args: Any, **kwargs: Any) -> None:
        """See TensorFlow's class; a signal finds what it would have found before."""
        try:
            super().stop(*args, **kwargs)
        finally:
            if self._before.stop_requests and self.request_stop in ending.registered().stop_requests:
                ending.set_registered(self._before)

    # The names of before TensorFlow 1.0, which its class gives to its own methods.
    PrepareSession = prepare_or_wait_for_session
    StartStandardServices = start_standard_services
    Stop = stop


@functools.wraps(_monitored_training_session)
def MonitoredTrainingSession(*args: Any, **kwargs: Any) -> Any:  # noqa: N802 (TensorFlow's name)
    """`tf.compat.v1.train.MonitoredTrainingSession` that joins the cluster, and recovers as a task of ps_train does."""
    install_session_manager()
    note_global_step()
    arguments = _MONITORED_SIGNATURE.bind(*args, **kwargs).arguments
    stop_hook = StopHook()
    arguments["hooks"] = [*(arguments.get("hooks") or []), stop_hook]
    if _redirections and not arguments.get("master") and _redirections[-1].shares(tf.get_default_graph()):
        arguments["is_chief"] = arguments.get("is_chief", True) and _redirections[-1].is_chief
    session = _monitored_training_session(**arguments)
    stop_hook.save_by(session._hooks)  # noqa: SLF001 (TensorFlow adds the one that saves)
    return session


def note_global_step(graph: tf.Graph | None = None) -> None:
    """Adds a variable named "global_step" to the collection GLOBAL_STEP, unless that has one already.

    `tf.Variable(0, name="global_step")` is in no such collection. TF1's hooks and its Supervisor found it by the name
    of its tensor, which is that of a handle now. Call this before a session is created.

    Args:
      graph: the default graph if None.
    """
    graph = graph or tf.get_default_graph()
    if graph.get_collection(tf.GraphKeys.GLOBAL_STEP):
        return
    for variable in graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES):
        if variable.op.name == "global_step" and variable.dtype.is_integer and variable.shape in ([], [1]):
            graph.add_to_collection(tf.GraphKeys.GLOBAL_STEP, variable)
            return


def install_session_manager() -> None:
    """Replaces the `SessionManager` that TensorFlow's classes use."""
    session_manager.SessionManager = SessionManager
    monitored_session.sm.SessionManager = SessionManager
