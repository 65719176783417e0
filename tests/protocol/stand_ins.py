"""What the code of ps_train stands on in the twin: TensorFlow's Supervisor, files, evaluations, reports.

`installed` puts it in the place of the real one. Blackboards and other clients of ps 0 share their graphs here, since
to build one takes longer than a run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ps_train.coordination import blackboard, sessions
from ps_train.coordination.sessions import Connection
from ps_train.parts.control.requests import ControlBoard
from ps_train.parts.selection import part as selection
from ps_train.parts.selection import selector
from ps_train.parts.selection.evaluations import EvaluationSignals
from ps_train.parts.sharding import position
from ps_train.parts.sharding.range_queue import RangeQueue
from ps_train.plugins import contracts
from ps_train.runtime import clock, logs, threads
from ps_train.runtime.reports import Evaluation
from ps_train.storage import checkpoints, event_files, journal, run_record, saver
from ps_train.storage.saver import CheckpointSaver
from ps_train.tasks import evaluator, setup, worker
from ps_train.tasks.setup import LoadedPlugins
from ps_train.training import evaluation, recovery
from ps_train.training.opening import FencedSession
from ps_train.training.replica_graph import TrainGraph
from ps_train.training.reporting import Report
from tests import cached_boards
from tests.protocol.model import TRAIN_DIR, range_ops, saved_variables
from tests.tensorflow_mode import tf

EVALUATION_SECS = 1.0
_CALL = tf.RunOptions(timeout_in_ms=30_000)
PLUGINS = LoadedPlugins(
    contracts.Model("counts", lambda *args: None, {}), {},
    contracts.Dataset("none", lambda *args: None, lambda params: None, {}), {})


class Silent(Report):
    """A report that prints nothing."""

    def device(self, name: str) -> None:
        pass

    opening = training = step = trained = stage = ended = result = evaluated = lambda self, *args, **kwargs: None


class FinalEvaluation:
    """Stands for `tasks.worker.FinalEvaluation`."""

    evaluator = None

    def evaluate(self, connected: Any, path: str) -> Evaluation:
        return _evaluate(path)

    def assist(self, connected: Any) -> None:
        pass


def _evaluate(path: str) -> Evaluation:
    clock.sleep(EVALUATION_SECS)
    return Evaluation(checkpoints.step_in_name(path), 1, "loss", 0.0, {})


class _Evaluator:
    metric_names = ()

    def __init__(self, *plugins: Any) -> None:
        pass


class _Selector:
    """Stands for `Selector`: ends the training after some evaluations."""

    settings = selector.SelectionSettings()

    def __init__(self, training: Any) -> None:
        self._training = training

    def check(self, metrics: Any) -> None:
        pass

    def last_step(self) -> int:
        return -1

    def consider(self, evaluation: Any, path: str) -> None:
        self._training.evaluated.append(evaluation.global_step)

    def should_stop(self) -> str:
        return "enough" if len(self._training.evaluated) >= self._training.setting.evaluations else ""


class _Supervisor:
    class coord:  # noqa: N801 (as TensorFlow's)
        clear_stop = staticmethod(lambda: None)

    def request_stop(self) -> None:
        pass

    def stop(self, **kwargs: Any) -> None:
        pass


class _Opener:
    """Stands for `SessionOpener`, as TensorFlow's SessionManager does it."""

    def __init__(self, training: Any, cluster: Any, target: str, graph: TrainGraph, term: Any) -> None:
        self._training, self._cluster, self._target, self._graph = training, cluster, target, graph
        self._term = term
        self.supervisor = _Supervisor()

    def open(self, is_live: bool, lost_step: int) -> Any:
        if not is_live:
            preparing = self._connect()
            try:
                self._prepare(preparing)
                clock.sleep(self._training.setting.opening_secs)
            finally:
                sessions.close_in_background(preparing)
        session = self._connect()
        session.run(self._graph.update.init.every_worker)
        return session

    def _connect(self) -> Any:
        config = sessions.options(self._cluster.peers, self._cluster.is_elastic)
        return sessions.Session(self._target, graph=self._graph.graph, config=config)

    def term_feed(self) -> dict[Any, int]:
        return {saved_variables(self._graph.graph).fence.term: self._term()}

    def _prepare(self, session: Any) -> None:
        saved = saved_variables(self._graph.graph)
        step = max(self._training.checkpoints, default=None)
        values = [np.zeros(variable.shape.as_list(), variable.dtype.base_dtype.as_numpy_dtype)
                  for variable in saved.variables] if step is None else self._training.checkpoints[step]
        self._training.world.current.restored_step = step
        owner = self._training.world.current.process.learning_rate
        session.run(saved.own_op, {saved.training_id: owner, **self.term_feed()})
        session.run(saved.restore_op, {**dict(zip(saved.values, values)), **self.term_feed()})
        self._graph.parts.after_restore(
            FencedSession(session, self.term_feed()), "" if step is None else checkpoints.path_of(TRAIN_DIR, step))


class _Disk:
    """Stands for the folder of checkpoints of one training; `CheckpointSaver` writes to it."""

    def __init__(self, training: Any) -> None:
        self._training = training

    def _is_of(self) -> bool:
        """Whether the process that asks belongs to the newest training; that of another has another folder."""
        return self._training.world.current.process.learning_rate == self._training.rate

    def newest_sound(self, train_dir: str, *, must_be_one: bool = False) -> str | None:
        steps = self._training.checkpoints
        return checkpoints.path_of(train_dir, max(steps)) if steps else None

    def is_sound(self, path: str) -> bool:
        return self._is_of() and checkpoints.step_in_name(path) in self._training.checkpoints

    def position(self, path: str) -> Any:
        return self._training.positions[checkpoints.step_in_name(path)]

    def save(self, graph: tf.Graph, session: Any, cut: Callable[[], str]) -> None:
        """Writes what `MergingSaver` does, in its order."""
        ranges, world = range_ops(graph), self._training.world
        step = checkpoints.step_in_name(cut())
        done = ranges.part._position.mark(session) if ranges else None
        values = session.run(saved_variables(graph).read, options=_CALL)
        request = world.current.last_request
        done, in_hand, plan = ranges.part._position.since(session, done) if ranges else (None, None, b"")
        world.check_alive()
        if self._is_of():
            self._training.positions[step] = done, in_hand, plan.decode()
            self._training.checkpoints[step] = values
            self._training.history.saves(step, request)


class _NoSummaries:
    opening_secs = 0.0

    def __init__(self, folder: str) -> None:
        pass

    def start(self, *args: Any) -> None:
        if self.opening_secs:
            clock.sleep(self.opening_secs)

    write = close = lambda self, *args: None


_prototypes: dict[Any, dict[str, Any]] = {}


def _cached_client_init(original: Any) -> Any:
    """The same for an object that has a connection to ps 0 and no state of its own."""
    def init(self: Any, *args: Any, **options: Any) -> None:
        key = (type(self), repr(args), repr(options))
        if key not in _prototypes:
            prototype = object.__new__(type(self))
            original(prototype, *args, **options)
            _prototypes[key] = vars(prototype), list(prototype._connection._routes)
        values, routes = _prototypes[key]
        self._connection = object.__new__(Connection)
        vars(self._connection).update(
            vars(values["_connection"]), _routes=list(routes), _session=None, _lock=clock.lock())
        vars(self).update(values, _connection=self._connection)
        if "_run" in values:
            self._run = self._connection.run

    return init


@contextlib.contextmanager
def cached_clients() -> Iterator[None]:
    """Lets equal clients of ps 0 share their graphs while its body runs."""
    classes = {blackboard.Blackboard: cached_boards.cached_init, ControlBoard: _cached_client_init,
               EvaluationSignals: _cached_client_init, RangeQueue: _cached_client_init}
    with contextlib.ExitStack() as stack:
        for cls, cached in classes.items():
            stack.callback(setattr, cls, "__init__", cls.__init__)
            cls.__init__ = cached(cls.__init__)
        yield


@contextlib.contextmanager
def installed(training: Any) -> Iterator[None]:
    """Lets the tasks of a training run on what is written here, while its body runs."""
    disk, setting = _Disk(training), training.setting

    def make_saver(savable: Any, *args: Any, **options: Any) -> CheckpointSaver:
        graph = savable.global_step.graph
        return CheckpointSaver(savable._replace(save=lambda session, path, cut: disk.save(graph, session, cut)),
                               *args[:3], **options)

    def make_opener(cluster: Any, target: str, graph: Any, *args: Any, term: Any, **kwargs: Any) -> _Opener:
        return _Opener(training, cluster, target, graph, term)

    def nothing(*args: Any, **options: Any) -> None:
        pass

    patches = [
        (setup, "start", lambda cluster, num_gpus: f"grpc://{cluster.task.address}"),
        (recovery, "SessionOpener", make_opener), (saver, "CheckpointSaver", make_saver),
        (event_files, "Summaries", _NoSummaries), (_NoSummaries, "opening_secs", setting.opening_secs),
        (checkpoints, "newest_sound", disk.newest_sound), (checkpoints, "is_sound", disk.is_sound),
        (checkpoints, "verify", nothing), (checkpoints, "record_and_prune", nothing),
        (checkpoints, "remove", nothing), (checkpoints, "remove_leftovers", nothing),
        (position, "_read", disk.position), (worker, "write_summaries", nothing), (threads, "join_named", nothing),
        (logs, "show", training.shown.append), (journal, "read_journal", lambda train_dir: list(training.journal)),
        (run_record, "read_run", lambda train_dir: training.run_record()),
        (evaluation, "Evaluator", _Evaluator), (evaluator, "write_summaries", nothing),
        (evaluator, "evaluate_bounded", lambda timeout_secs, model_evaluator, path, stop: _evaluate(path)),
        (selection, "Selector", lambda *args: _Selector(training)),
    ]
    with contextlib.ExitStack() as stack:
        stack.enter_context(cached_clients())
        for module, name, value in patches:
            stack.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, value)
        yield
