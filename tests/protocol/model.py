"""The trainings that the twin runs: their settings, and the graph of a worker.

The model counts: each update adds to element i of both vectors the number of gradients of worker i that it has. With
ranges, a step takes a batch of a range, which `ranges.py` counts.
"""

from __future__ import annotations

import dataclasses
import functools
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ps_train.cluster.spec import Cluster
from ps_train.config.task import Config
from ps_train.graph.extensions import RowParameters
from ps_train.graph.plugin_calls import Hooks, Queues
from ps_train.part import NO_PARTS
from ps_train.parts.readers.file_ranges import FileRange
from ps_train.parts.sharding.growth import GrowingFiles
from ps_train.parts.sharding.local_ranges import LocalRanges
from ps_train.parts.sharding.part import ShardingPart
from ps_train.tasks import setup
from ps_train.training import replica_graph
from ps_train.training.opening import PREPARING, Fence
from ps_train.training.replica_graph import Input, Savers, TrainGraph
from ps_train.updates import build
from ps_train.updates.update import InitOps, Update
from tests.tensorflow_mode import tf

DATA = "/data"
TRAIN_DIR = tempfile.gettempdir()  # exists; nothing is written there
_SAVED, _RANGES = "saved variables", "ranges"
_NO_LIMIT = 10**6
_IDLE_ARRIVALS = 4.0  # the clock of a chief may go twice as fast
RANGE_BYTES = 10


@dataclasses.dataclass(frozen=True)
class Setting:
    """A training, and the cluster that runs it.

    Attributes:
      flags: of all tasks, without those of the cluster.
      data_steps: worker -> the steps after which its data ends.
      opening_secs: what the chief needs for what is restored besides variables, and for the first summary.
      save_secs: the time between two checkpoints.
      num_ranges: of the input, with --dynamic_sharding; 0 without. Each has two batches.
      num_epochs: how often each range is trained on.
      arrival_secs: the time after which one more range is there, with --follow; 0 if all are there from the start.
      evaluations: after which an evaluator ends the training; 0 without an evaluator, `ONLY_EVALUATES` for one that
        does not.
      client: what a client asks of the training, in this order: "save", "status".
    """

    num_ps: int = 1
    num_workers: int = 2
    train_steps: int = 8
    is_sync: bool = False
    flags: tuple[tuple[str, Any], ...] = ()
    data_steps: tuple[tuple[int, int], ...] = ()
    opening_secs: float = 0.0
    save_secs: int = 2
    num_ranges: int = 0
    num_epochs: int = 1
    arrival_secs: float = 0.0
    evaluations: int = 0
    client: tuple[str, ...] = ()

    @property
    def drops_late(self) -> bool:
        """Whether updates leave out the gradients of the slowest workers."""
        return self.is_sync and dict(self.flags).get("replicas_to_aggregate", self.num_workers) < self.num_workers

    @property
    def ends_early(self) -> bool:
        """Whether training may end before its last step."""
        return bool(self.data_steps or self.num_ranges or 0 < self.evaluations < ONLY_EVALUATES)

    def addresses(self) -> dict[str, dict[int, str]]:
        return {"ps": {index: f"host:{2000 + index}" for index in range(self.num_ps)},
                "worker": {index: f"host:{3000 + index}" for index in range(self.num_workers)}}

    def cluster(self, job: str, index: int) -> Cluster:
        return Cluster(job, index, self.addresses())

    @functools.cache  # noqa: B019 (there are few)
    def config(self, learning_rate: float = 0.5) -> Config:
        of_ranges = {"dynamic_sharding": True, "num_epochs": self.num_epochs} if self.num_ranges else {}
        if self.arrival_secs:
            del of_ranges["num_epochs"]
            of_ranges.update(follow=True, follow_idle_secs=_IDLE_ARRIVALS * self.arrival_secs)
        return Config(**{
            "num_gpus": 0, "train_steps": _NO_LIMIT if self.num_ranges else self.train_steps,
            "sync_replicas": self.is_sync, "train_dir": TRAIN_DIR, "log_steps": 0, "save_summaries_steps": 0,
            "save_model_secs": self.save_secs, "start_timeout_secs": 60.0, "idle_timeout_secs": 90.0,
            "step_timeout_secs": 20.0, "learning_rate": learning_rate, **of_ranges, **dict(self.flags)})


ONLY_EVALUATES = 1000


class RangeOps(NamedTuple):
    """What a worker's graph has for ranges.

    Attributes:
      part: the part that has built it.
      next_range: the number of the next range, -1 at the end of the data, and its first byte.
      mark, note_op: notes that a step takes a batch of a range, and whether that is the last one.
    """

    part: ShardingPart
    next_range: tuple[tf.Tensor, tf.Tensor]
    mark: tf.Tensor
    note_op: tf.Operation


class SavedVariables:
    """The variables of a graph, and the operations that save, restore and initialise them."""

    def __init__(self, variables: list[tf.Variable]) -> None:
        self.variables = variables
        self.training_id = tf.placeholder(tf.float32, [])
        self.values = [tf.placeholder(variable.dtype.base_dtype, variable.shape) for variable in variables]
        self.restore_op = tf.group(*(variable.assign(value) for variable, value in zip(variables, self.values)))
        self.read = [variable.read_value() for variable in variables]

    def prepare_with(self, view: Cluster, init: InitOps) -> None:
        """Adds what notes whose parameters those of a ps are, and the fence around the preparation."""
        owned = []
        for task in view.ps:
            with tf.device(task.device + "/cpu:0"):
                handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="training_id", container="")
                owned.append(tf.raw_ops.AssignVariableOp(resource=handle, value=self.training_id))
        self.own_op = tf.group(*owned)
        self.fence = Fence([self.own_op, self.restore_op, init.new_run, init.live_run,
                            *tf.get_collection(PREPARING)])


class Arriving(GrowingFiles):
    """A file that grows by a range after the other, by the time of the world."""

    def __init__(self, setting: Setting) -> None:
        super().__init__([DATA], lambda path, start, size: range(start, size + 1, RANGE_BYTES))
        self._setting = setting
        self.now: Callable[[], float] = lambda: 0.0  # each run has a world of its own

    def _num_ranges(self) -> int:
        return min(self._setting.num_ranges, 1 + int(self.now() / self._setting.arrival_secs))

    def _sizes(self) -> dict[str, int]:
        return {DATA: RANGE_BYTES * self._num_ranges()}

    def _new_pieces(self, ends: dict[str, int]) -> list[tuple[str, float, list[int]]]:
        [size], end = self._sizes().values(), ends.get(DATA, 0)
        return [(DATA, 0.0, [*self._cut(DATA, end, size)])] if size > end else []


def saved_variables(graph: tf.Graph) -> SavedVariables:
    """Returns the variables of a worker's graph."""
    return graph.get_collection(_SAVED)[0]


def range_ops(graph: tf.Graph) -> RangeOps | None:
    """Returns what a worker's graph has for ranges, None without ranges."""
    return next(iter(graph.get_collection(_RANGES)), None)


graphs: dict[tuple[Setting, int], TrainGraph] = {}  # setting, number of a worker -> its graph


@functools.cache
def worker_settings(setting: Setting, index: int, learning_rate: float) -> setup.WorkerSettings:
    """Returns what the flags say to a worker."""
    return setup.worker_settings(setting.config(learning_rate), setting.cluster("worker", index))


def build_graph(setting: Setting, index: int) -> TrainGraph:
    """Returns the graph of a worker, which all runs share."""
    if (setting, index) not in graphs:
        graphs[setting, index] = _build_graph(setting, index)
    return graphs[setting, index]


def _build_graph(setting: Setting, index: int) -> TrainGraph:
    view = setting.cluster("worker", index)
    flags = worker_settings(setting, index, 0.5)
    with tf.Graph().as_default() as graph, tf.variable_scope("", use_resource=True):
        with tf.device(view.ps[0].device + "/cpu:0"):
            global_step = tf.train.create_global_step()
        vectors = []
        for task in view.ps:
            with tf.device(task.device + "/cpu:0"):
                vectors.append(tf.get_variable(f"counts_{task.index}", [setting.num_workers], tf.float32,
                                               initializer=tf.zeros_initializer()))
        gradient = tf.constant(np.eye(setting.num_workers, dtype=np.float32)[index])
        update = _build_update(flags, vectors, [(gradient, vector) for vector in vectors], global_step)
        if setting.num_ranges:
            update = _add_ranges(setting, view, update)
        saved = SavedVariables([*vectors, global_step])
        saved.prepare_with(view, update.init)
        graph.add_to_collection(_SAVED, saved)
        return TrainGraph(
            graph=graph, update=update, global_step=global_step,
            steps=replica_graph._make_steps(view, global_step, update, flags.graph.bound),
            summary_op=tf.constant(b""), input=Input(tf.no_op(), {}, Queues()),
            savers=Savers(saved.variables, saved.variables, None, None), rows=RowParameters(), hooks=Hooks(),
            parts=NO_PARTS, init_fn=None)


def _build_update(flags: Any, vectors: Any, gradients: Any, global_step: Any) -> Update:
    optimizer, loss = tf.train.GradientDescentOptimizer(-1.0), tf.constant(0.0)
    if flags.graph.updates.sync is None:
        return build.async_update(build.apply_on_ps(optimizer, gradients, global_step), loss)
    return build.sync_update(optimizer, gradients, loss, global_step, flags.graph.updates, _Summed(vectors))


class _Summed(RowParameters):
    """No rows, but variables whose gradients are summed."""

    def __init__(self, variables: Any) -> None:
        self._variables = variables

    def summed(self) -> Any:
        return self._variables


def _add_ranges(setting: Setting, view: Cluster, update: Update) -> Update:
    part = ShardingPart(setting.config(), view)
    plan = [FileRange(number, DATA, RANGE_BYTES * number, RANGE_BYTES * (number + 1), RANGE_BYTES)
            for number in range(setting.num_ranges)]
    part._source.local = local = LocalRanges(plan, [DATA], part._source.settings, is_text=False, growing=Arriving(
        setting) if setting.arrival_secs else None)
    mark = tf.placeholder(tf.int64, [2])
    number, _, start, *_ = local._waiting.dequeue()
    tf.add_to_collection(_RANGES, RangeOps(part, (number, start), mark, local.note(mark[0], mark[1])))
    return part.update(update)
