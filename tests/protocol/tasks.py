"""The tasks of a cluster, as `ps_train` runs them, in the processes of a simulated world.

Everything that decides is the code of ps_train: the blackboard with its operations and its connection, heartbeat,
admission, agreement, the life of a ps, recovery, step loop, synchronous updates and their runner, shutdown, the end.
Written here is what it stands on: a model of two small vectors, the Supervisor's waits, a folder of checkpoints, an
evaluation that takes a second.

The model counts: each update adds to element i of both vectors the number of gradients of worker i that it has.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from ps_train.cluster.spec import Cluster
from ps_train.config.task import Config
from ps_train.coordination import blackboard, sessions
from ps_train.coordination.sessions import Connection
from ps_train.errors import StoppedError
from ps_train.graph.extensions import RowParameters
from ps_train.graph.plugin_calls import Hooks, Queues
from ps_train.part import NO_PARTS, Part, Parts
from ps_train.plugins import contracts
from ps_train.runtime import clock, threads
from ps_train.runtime.reports import Evaluation
from ps_train.storage import checkpoints, event_files, saver
from ps_train.storage.journal import Journal
from ps_train.tasks import run as task_runner
from ps_train.tasks import setup, worker
from ps_train.tasks.setup import LoadedPlugins
from ps_train.training import recovery, replica_graph
from ps_train.training.opening import Fence
from ps_train.training.replica_graph import Input, Savers, TrainGraph
from ps_train.training.reporting import End, Report
from ps_train.updates import build
from ps_train.updates.update import InitOps, Update
from tests.protocol.history import History
from tests.protocol.processes import Process
from tests.protocol.simulation import World
from tests.tensorflow_mode import tf

STEP_SECS = 0.3
EVALUATION_SECS = 1.0
_SAVED = "saved variables"


@dataclasses.dataclass(frozen=True)
class Setting:
    """A training, and the cluster that runs it.

    Attributes:
      flags: of all tasks, without those of the cluster.
      data_steps: worker -> the steps after which its data ends.
      opening_secs: what the chief needs for what is restored besides variables, and for the first summary.
      save_secs: the time between two checkpoints.
    """

    num_ps: int = 1
    num_workers: int = 2
    train_steps: int = 8
    is_sync: bool = False
    flags: tuple[tuple[str, Any], ...] = ()
    data_steps: tuple[tuple[int, int], ...] = ()
    opening_secs: float = 0.0
    save_secs: float = 2.0

    @property
    def drops_late(self) -> bool:
        """Whether updates leave out the gradients of the slowest workers."""
        return self.is_sync and dict(self.flags).get("replicas_to_aggregate", self.num_workers) < self.num_workers

    def addresses(self) -> dict[str, dict[int, str]]:
        return {"ps": {index: f"host:{2000 + index}" for index in range(self.num_ps)},
                "worker": {index: f"host:{3000 + index}" for index in range(self.num_workers)}}

    @functools.cache  # noqa: B019 (there are few)
    def config(self, learning_rate: float = 0.5) -> Config:
        return Config(**{
            "num_gpus": 0, "train_steps": self.train_steps, "sync_replicas": self.is_sync, "train_dir": "/train",
            "log_steps": 0, "save_summaries_steps": 0, "start_timeout_secs": 60.0, "idle_timeout_secs": 90.0,
            "step_timeout_secs": 20.0, "learning_rate": learning_rate, **dict(self.flags)})


class Pace(Part):
    """Lets each step take its time, and the data end."""

    def __init__(self, training: Training, number: int) -> None:
        self._training, self._number = training, number
        self._left = dict(training.setting.data_steps).get(number)

    def around_step(self, session: Any, graph: Any, run_step: Any) -> Any:
        number, history, setting = self._number, self._training.history, self._training.setting
        verdict = list(build_graph(setting, number).update.verdict or ())
        is_judged = not setting.drops_late  # by design some gradients of a backup worker are in no update
        pending: list[int] = []

        def step(begun: int, held_secs: float, fetches: Any, options: Any) -> Any:
            if self._left == 0:
                raise tf.errors.OutOfRangeError(None, None, "End of sequence")
            clock.sleep(STEP_SECS)
            history.issues(number)
            *values, (is_settled, is_lost) = [
                *run_step(begun, held_secs, [*fetches, verdict] if verdict else fetches, options),
                *([] if verdict else [(True, False)])]
            pending.append(self._training.world.current.last_request.number)
            if is_settled and is_judged:
                if is_lost:
                    history.learns_lost(number)
                else:
                    history.learns(number, pending)
            if is_settled:
                pending.clear()
            if self._left is not None:
                self._left -= 1
            return values

        def noted_step(*args: Any) -> Any:
            try:
                return step(*args)
            except BaseException:
                history.leaves_loop(number)
                raise

        return noted_step

    def ended_loop(self) -> None:
        self._training.history.leaves_loop(self._number)


class Training:
    """One training in a world: its processes, its folder of checkpoints, and what its run has shown.

    Attributes:
      checkpoints: step -> the values of the variables.
      begun: for each time that the chief has prepared parameters, the step from which.
    """

    def __init__(self, world: World, setting: Setting) -> None:
        self.world, self.setting = world, setting
        self.checkpoints: dict[int, list[np.ndarray]] = {}
        self.begun: list[int] = []
        self.restored: list[int] = []
        addresses = setting.addresses()
        self.rate = self.first_rate = 0.5
        self.had_fault = self.is_done = False
        self.another_secs = 0.0
        self.history = History(world, setting.num_ps, setting.num_workers)
        for index, address in addresses["ps"].items():
            world.add(f"ps:{index}", address, functools.partial(self._run_ps, index))
        for index, address in addresses["worker"].items():
            world.add(f"worker:{index}", address, functools.partial(self._run_worker, index))

    @property
    def issued(self) -> list[int]:
        return self.history.issued

    @property
    def has_two(self) -> bool:
        return self.rate != self.first_rate

    def begin_another(self) -> None:
        """Lets workers that are started from now on belong to another training, in a folder of its own."""
        if not self.has_two:
            self.rate = self.first_rate / 2
            self.checkpoints = {}
            self.history.saved = {}
            self.another_secs = self.world.now_secs

    def _run_ps(self, index: int, process: Process) -> None:
        view = Cluster("ps", index, self.setting.addresses())
        task_runner._serve_until_done(self.setting.config(), view, process.stop)

    def _run_worker(self, index: int, process: Process) -> None:
        view = Cluster("worker", index, self.setting.addresses())
        if process.learning_rate is None:
            process.learning_rate = self.rate
        process.last_rate = process.learning_rate
        own = _worker_settings(self.setting, index, process.learning_rate)
        parts = Parts([Pace(self, index)])
        task = worker.WorkerTask(own, view, _PLUGINS, _Silent(), process.stop, parts)
        prepared = worker.PreparedWorker(
            own, view, _PLUGINS, build_graph(self.setting, index), Journal(""), process.stop)
        result = task._train_and_finish(prepared, _FinalEvaluation())
        if result.outcome.end is End.SIGNAL:  # as `WorkerTask.run`
            raise StoppedError("stopped", "stopped")


class _Silent(Report):
    def device(self, name: str) -> None:
        pass

    opening = training = step = trained = stage = ended = result = evaluated = lambda self, *args, **kwargs: None


class _FinalEvaluation:
    evaluator = None

    def evaluate(self, connected: Any, path: str) -> Evaluation:
        clock.sleep(EVALUATION_SECS)
        return Evaluation(checkpoints.step_in_name(path), 1, "loss", 0.0, {})

    def assist(self, connected: Any) -> None:
        pass


_PLUGINS = LoadedPlugins(
    contracts.Model("counts", lambda *args: None, {}), {}, contracts.Dataset("none", lambda *args: None, None, {}), {})


# The graph of a worker -----------------------------------------------------------------------------------------------

class SavedVariables:
    """The variables of a graph, and the operations that save, restore and initialise them."""

    def __init__(self, variables: list[tf.Variable]) -> None:
        self.variables = variables
        self.training_id = tf.placeholder(tf.float32, [])
        self.values = [tf.placeholder(variable.dtype.base_dtype, variable.shape) for variable in variables]
        self.restore_op = tf.group(*(variable.assign(value) for variable, value in zip(variables, self.values)))
        self.read = [variable.read_value() for variable in variables]
        self.are_initialized = []
        for variable in variables:
            with tf.device(variable.device):
                self.are_initialized.append(tf.raw_ops.VarIsInitializedOp(resource=variable.handle))

    def prepare_with(self, view: Cluster, init: InitOps) -> None:
        """Adds what notes whose parameters those of a ps are, and the fence around the preparation."""
        owned = []
        for task in view.ps:
            with tf.device(task.device + "/cpu:0"):
                handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="training_id", container="")
                owned.append(tf.raw_ops.AssignVariableOp(resource=handle, value=self.training_id))
        self.own_op = tf.group(*owned)
        self.fence = Fence([self.own_op, self.restore_op, init.new_run, init.live_run])


def saved_variables(graph: tf.Graph) -> SavedVariables:
    """Returns the variables of a worker's graph."""
    return graph.get_collection(_SAVED)[0]


@functools.cache
def _worker_settings(setting: Setting, index: int, learning_rate: float) -> setup.WorkerSettings:
    view = Cluster("worker", index, setting.addresses())
    return setup.worker_settings(setting.config(learning_rate), view)


@functools.cache
def build_graph(setting: Setting, index: int) -> TrainGraph:
    """Returns the graph of a worker, which all runs share."""
    view = Cluster("worker", index, setting.addresses())
    own = _worker_settings(setting, index, 0.5)
    with tf.Graph().as_default() as graph, tf.variable_scope("", use_resource=True):
        with tf.device(view.ps[0].device + "/cpu:0"):
            global_step = tf.train.create_global_step()
        vectors = []
        for task in view.ps:
            with tf.device(task.device + "/cpu:0"):
                vectors.append(tf.get_variable(f"counts_{task.index}", [setting.num_workers], tf.float32,
                                               initializer=tf.zeros_initializer()))
        gradient = tf.constant(np.eye(setting.num_workers, dtype=np.float32)[index])
        update = _build_update(own, vectors, [(gradient, vector) for vector in vectors], global_step)
        saved = SavedVariables([*vectors, global_step])
        saved.prepare_with(view, update.init)
        graph.add_to_collection(_SAVED, saved)
        return TrainGraph(
            graph=graph, update=update, global_step=global_step,
            steps=replica_graph._make_steps(view, global_step, update, own.graph.bound), summary_op=tf.constant(b""),
            input=Input(tf.no_op(), {}, Queues()), savers=Savers(saved.variables, None, None), rows=RowParameters(),
            hooks=Hooks(), parts=NO_PARTS, init_fn=None)


def _build_update(own: Any, vectors: Any, gradients: Any, global_step: Any) -> Update:
    optimizer, loss = tf.train.GradientDescentOptimizer(-1.0), tf.constant(0.0)
    if own.graph.updates.sync is None:
        return build.async_update(build.apply_on_ps(optimizer, gradients, global_step), loss)
    return build.sync_update(optimizer, gradients, loss, global_step, own.graph.updates, vectors)


# What the code of ps_train stands on ---------------------------------------------------------------------------------

class _Supervisor:
    class coord:  # noqa: N801 (as TensorFlow's)
        clear_stop = staticmethod(lambda: None)

    def request_stop(self) -> None:
        pass

    def stop(self, **kwargs: Any) -> None:
        pass


class _Opener:
    """Stands for `SessionOpener`, as TensorFlow's SessionManager does it."""

    def __init__(self, training: Training, cluster: Any, target: str, graph: TrainGraph, term: Any) -> None:
        self._training, self._cluster, self._target, self._graph = training, cluster, target, graph
        self._term = term
        self.supervisor = _Supervisor()

    def open(self, is_live: bool, lost_step: int, timeout_secs: float) -> Any:
        saved = saved_variables(self._graph.graph)
        config = sessions.options(self._cluster.peers, self._cluster.is_elastic)
        end_secs = clock.now() + timeout_secs
        while True:
            session = recovery_session(self._target, self._graph.graph, config)
            if not is_live:
                self._prepare(session, saved)
            if all(session.run(saved.are_initialized)):
                session.run(self._graph.update.init.every_worker)
                if not is_live:
                    clock.sleep(self._training.setting.opening_secs)
                return session
            session.close()
            if clock.now() > end_secs:
                raise tf.errors.DeadlineExceededError(None, None, "Session was not ready")
            clock.sleep(1.0)

    def term_feed(self) -> dict[Any, int]:
        return {saved_variables(self._graph.graph).fence.term: self._term()}

    def _prepare(self, session: Any, saved: SavedVariables) -> None:
        step = max(self._training.checkpoints, default=None)
        values = [np.zeros(variable.shape.as_list(), variable.dtype.base_dtype.as_numpy_dtype)
                  for variable in saved.variables] if step is None else self._training.checkpoints[step]
        self._training.restored.append(step or 0)
        self._training.world.current.restored_step = step
        owner = self._training.world.current.process.learning_rate
        session.run(saved.own_op, {saved.training_id: owner, **self.term_feed()})
        session.run(saved.restore_op, {**dict(zip(saved.values, values)), **self.term_feed()})


def recovery_session(target: str, graph: Any, config: Any) -> Any:
    """Returns a training session."""
    return sessions._Session(target, graph=graph, config=config)


class _Saver:
    """Stands for `CheckpointSaver`: a save every two seconds, and the last one."""

    def __init__(self, training: Training, savable: Any, is_lost: Any) -> None:
        self._training, self._graph, self._is_lost = training, savable.global_step.graph, is_lost
        self._stop = clock.event()

    def request(self, answer: Any) -> None:
        answer("", "not in a test")

    def start(self, session: Any) -> None:
        self._stop = stop = clock.event()

        def keep_saving() -> None:
            while not stop.wait(self._training.setting.save_secs):
                try:
                    self._save(session)
                except (tf.errors.OpError, RuntimeError):
                    return

        clock.start_call(keep_saving, "saver")

    def stop(self) -> None:
        self._stop.set()

    def save_last(self, session: Any) -> str:
        self._stop.set()
        return f"/train/model.ckpt-{self._save(session)}"

    def _save(self, session: Any) -> int:
        options = tf.RunOptions(timeout_in_ms=30_000)
        values = sessions.run_bounded(session, saved_variables(self._graph).read, options=options)
        self._training.world.check_alive()
        if self._training.world.current.process.learning_rate == self._training.rate:
            self._training.checkpoints[int(values[-1])] = values
            self._training.history.saves(int(values[-1]), self._training.world.current.last_request)
        return int(values[-1])


class _NoSummaries:
    opening_secs = 0.0

    def __init__(self, folder: str) -> None:
        pass

    def start(self, *args: Any) -> None:
        if self.opening_secs:
            clock.sleep(self.opening_secs)

    write = close = lambda self, *args: None


_prototypes: dict[Any, dict[str, Any]] = {}


def _cached_init(original: Any) -> Any:
    """Returns a `Blackboard.__init__` that builds equal graphs once."""
    def init(self: Any, target: str, ps: Any, own_task: Any, **options: Any) -> None:
        key = (tuple(ps), options.get("cluster_description"), options.get("is_elastic", False))
        if key not in _prototypes:
            prototype = object.__new__(blackboard.Blackboard)
            original(prototype, target, ps, own_task, **options)
            _prototypes[key] = vars(prototype)
        vars(self).update(_prototypes[key])
        self._heartbeat_timeout_secs = options.get("heartbeat_timeout_secs", 10.0)
        self._last_tick_secs = clock.now()
        self._connection = Connection(
            _prototypes[key]["_connection"]._graph, target, self._ps, own_task,
            is_elastic=options.get("is_elastic", False))
        self._run = self._connection.run

    return init


@contextlib.contextmanager
def cached_boards() -> Iterator[None]:
    """Lets equal blackboards share their graphs while its body runs."""
    original = blackboard.Blackboard.__init__
    blackboard.Blackboard.__init__ = _cached_init(original)
    try:
        yield
    finally:
        blackboard.Blackboard.__init__ = original


@contextlib.contextmanager
def installed(training: Training) -> Iterator[None]:
    """Lets the tasks of a training run on what is written here, while its body runs."""
    def newest_sound(train_dir: str) -> str | None:
        return f"/train/model.ckpt-{max(training.checkpoints)}" if training.checkpoints else None

    def make_saver(savable: Any, train_dir: str, schedule: Any, is_lost: Any, *args: Any, **kwargs: Any) -> _Saver:
        return _Saver(training, savable, is_lost)

    def make_opener(cluster: Any, target: str, graph: Any, *args: Any, term: Any, **kwargs: Any) -> _Opener:
        return _Opener(training, cluster, target, graph, term)

    patches = [
        (setup, "start", lambda cluster, num_gpus: f"grpc://{cluster.task.address}"),
        (recovery, "SessionOpener", make_opener), (saver, "CheckpointSaver", make_saver),
        (event_files, "Summaries", _NoSummaries),
        (_NoSummaries, "opening_secs", training.setting.opening_secs), (checkpoints, "newest_sound", newest_sound),
        (worker, "write_summaries", lambda *args: None),
        (threads, "join_named", lambda *args, **kwargs: None),
    ]
    with contextlib.ExitStack() as stack:
        stack.enter_context(cached_boards())
        for module, name, value in patches:
            stack.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, value)
        yield
