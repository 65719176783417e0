"""The tasks of a cluster, as `ps_train` runs them, in the processes of a simulated world.

Everything that decides is the code of ps_train: the blackboard with its operations and its connection, heartbeat,
admission, agreement, the life of a ps, recovery, step loop, synchronous updates and their runner, the queue of ranges
and its feeder, the saver, clients and their service, the evaluator, shutdown, the end. `stand_ins.py` has what it
stands on, `model.py` the model.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ps_train.errors import ClusterLostError, PsTrainError, StoppedError
from ps_train.part import Part, Parts
from ps_train.parts.control import asking, looking, requests
from ps_train.parts.selection.part import SelectionPart
from ps_train.parts.sharding.part import ShardingPart
from ps_train.runtime import clock
from ps_train.storage.journal import Journal, noted_end
from ps_train.tasks import run as task_runner
from ps_train.tasks import worker
from ps_train.training.reporting import End
from tests.protocol.history import History
from tests.protocol.model import TRAIN_DIR, Setting, build_graph, range_ops, worker_settings
from tests.protocol.processes import Process
from tests.protocol.ranges import Batches, RangeHistory
from tests.protocol.simulation import World
from tests.protocol.stand_ins import PLUGINS, FinalEvaluation, Silent
from tests.tensorflow_mode import tf

STEP_SECS = 0.3
CLIENT_SECS = 30.0  # --timeout_secs of a client
_CLIENT_PAUSE_SECS = 1.5  # before each of its requests


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
        ops = range_ops(graph)
        session_number = next(self._training.world.numbers)
        batches = Batches(number, session, ops, self._training.ranges, session_number) if ops else None

        def step(begun: int, held_secs: float, fetches: Any, options: Any) -> Any:
            if self._left == 0:
                raise tf.errors.OutOfRangeError(None, None, "End of sequence")
            batch = batches.take(options) if batches else None
            clock.sleep(STEP_SECS)
            history.issues(number)
            try:
                *values, (is_settled, is_lost) = [
                    *run_step(begun, held_secs, [*fetches, verdict] if verdict else fetches, options),
                    *([] if verdict else [(True, False)])]
            finally:
                request = self._training.world.current.last_request.number
                self._training.ranges.batch_of[request] = batch
            pending.append(request)
            if is_settled and is_judged:
                if is_lost:
                    history.learns_lost(number)
                    self._training.ranges.loses(number)
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
      positions: step -> the position in the ranges.
      evaluated: the steps of the checkpoints that the evaluator has evaluated.
      journal: the events of the chief.
      answers: what clients have asked, and got.
      shown: the lines that clients have printed.
    """

    def __init__(self, world: World, setting: Setting) -> None:
        self.world, self.setting = world, setting
        self.checkpoints: dict[int, list[np.ndarray]] = {}
        addresses = setting.addresses()
        self.rate = self.first_rate = 0.5
        self.had_fault = self.is_done = False
        self.another_secs = 0.0
        self.history = History(world, setting.num_ps, setting.num_workers)
        self.ranges = RangeHistory(world, setting, self.history)
        self.positions: dict[int, Any] = {}
        self.evaluated: list[int] = []
        self.journal: list[dict[str, Any]] = []
        self.answers: list[Answer] = []
        self.shown: list[str] = []
        for index, address in addresses["ps"].items():
            world.add(f"ps:{index}", address, functools.partial(self._run_ps, index))
        for index, address in addresses["worker"].items():
            world.add(f"worker:{index}", address, functools.partial(self._run_worker, index))
        if setting.evaluations:
            world.add("evaluator:0", "host:4000", self._run_evaluator)
        if setting.client:
            world.add("client:0", "host:5000", self._run_client)

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
            self.checkpoints, self.positions, self.journal = {}, {}, []
            self.history.saved = {}
            self.another_secs = self.world.now_secs

    def run_record(self) -> dict[str, Any]:
        """Returns what the chief writes to cluster.json."""
        return {"ps": {str(index): address for index, address in self.setting.addresses()["ps"].items()},
                "is_elastic": False, "train_dir": f"{TRAIN_DIR}/{self.rate}", "train_steps": None}

    def _run_ps(self, index: int, process: Process) -> None:
        task_runner._serve_until_done(self.setting.config(), self.setting.cluster("ps", index), process.stop)

    def _run_worker(self, index: int, process: Process) -> None:
        view = self.setting.cluster("worker", index)
        if process.learning_rate is None:
            process.learning_rate = self.rate
        process.last_rate = process.learning_rate
        settings = worker_settings(self.setting, index, process.learning_rate)
        graph = build_graph(self.setting, index)
        parts = Parts([*self._range_part(graph.graph, view), _Control(self, view), Pace(self, index)])
        task = worker.WorkerTask(settings, view, PLUGINS, Silent(), process.stop, parts)
        if view.is_chief:
            task._earlier_end = noted_end(settings.train_dir)
        with self._noting(index) as journal:
            task._journal = journal
            prepared = worker.PreparedWorker(
                settings, view, PLUGINS, graph._replace(parts=parts), journal, process.stop)
            try:  # as `WorkerTask.run`
                result = task._train_and_finish(prepared, FinalEvaluation())
            except ClusterLostError as error:
                task._result_after_end(error)
                return
            if result.outcome.end is End.SIGNAL:
                raise StoppedError("stopped", "stopped")
            journal.note("end", why=result.outcome.why, step=result.outcome.global_step,
                         train_steps=settings.loop.train_steps,
                         ps=[ps.address for ps in view.ps])

    def _range_part(self, graph: tf.Graph, view: Any) -> Iterator[Part]:
        """Yields the part of ranges, on what it has added to the graph that all runs share."""
        if ops := range_ops(graph):
            part = ShardingPart(self.setting.config(), view)
            part._source, part._position = ops.part._source, ops.part._position
            part._rejoin_op = ops.part._rejoin_op
            if growing := part._source.local.growing:
                growing.now = lambda: self.world.now_secs
            yield part

    @contextlib.contextmanager
    def _noting(self, index: int) -> Iterator[Journal]:
        """Yields the journal of the chief, or that of another worker, which keeps nothing."""
        journal = Journal("")
        if index == 0:
            events = self.journal  # a chief that was replaced by another training's has another folder
            journal.listen(lambda event, values: events.append({"event": event, **values}))
            journal.note("start", run=self.run_record())
        try:
            yield journal
        except Exception as error:
            journal.note("end", why=f"{type(error).__name__}: {error}")
            raise

    def _run_evaluator(self, process: Process) -> None:
        view = self.setting.cluster("evaluator", 0)
        config = self.setting.config()
        parts = Parts([SelectionPart(config, view)])
        task_runner._evaluate_until_done(config, view, PLUGINS, Silent(), parts, process.stop)

    def _run_client(self, process: Process) -> None:
        config = types.SimpleNamespace(train_dir=TRAIN_DIR, ps_hosts="", timeout_secs=CLIENT_SECS)
        asks = {"save": lambda: asking.save_now(config, process.stop) or self.shown[-1],
                "status": lambda: asking.as_json(looking.look(looking.find_place(config.train_dir, "")))}
        for verb in self.setting.client:
            clock.sleep(_CLIENT_PAUSE_SECS)
            values = self.world.processes["ps:0"].store.values
            answer = Answer(verb, self.world.now_secs, int(values.get("ps_train/state", 0)),
                            int(values.get("global_step", 0)))
            try:
                value, problem = asks[verb](), ""
            except PsTrainError as error:
                value, problem = None, f"{type(error).__name__}: {error}"
            self.answers.append(answer._replace(value=value, problem=problem, ended_secs=self.world.now_secs))


class Answer(NamedTuple):
    """What a client has asked, and got.

    Attributes:
      verb: "save" or "status".
      begun_secs, ended_secs: when.
      state, step: of the training when it asked, as ps 0 had it.
      value: the answer; None with a problem.
      problem: the error, "" without one.
    """

    verb: str
    begun_secs: float
    state: int
    step: int
    ended_secs: float = 0.0
    value: Any = None
    problem: str = ""


class _Control(Part):
    """The chief's service for clients, as `ControlPart` has it, without its files."""

    def __init__(self, training: Training, cluster: Any) -> None:
        self._training, self._cluster = training, cluster

    def at_server(self, connected: Any) -> Any:
        if not (self._cluster.is_chief and self._training.setting.client):
            return contextlib.nullcontext()
        return requests.answering_clients(
            self._cluster, connected.target, self._training.run_record(), connected.supervised.request_save,
            lambda: connected.progress.step, connected.graph.parts.status)
