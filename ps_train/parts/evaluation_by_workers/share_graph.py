"""The graph of a share of the evaluation: the model in mode "eval", with the variables that training has on the ps.

    a share of the held-out data --> model_fn --> metrics, on this worker
                                        ^
                                     variables on the ps: the same names, shapes and places as in training

The metrics of shares can be added, because the local variables behind them are sums over the examples:

    metric --> the local variables that its value reads --> each is changed only by adding to it, else refused
    share  --> the sum added to each of them --> the sum over all shares --> put into the variables --> value
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.coordination import sessions
from ps_train.errors import ConfigError, Problem, UserCodeError, refuse
from ps_train.graph import devices, placement, transfer
from ps_train.parts.evaluation_by_workers.exchange import ShareResult, Sums
from ps_train.tasks.worker import PreparedWorker
from ps_train.training.evaluation import EvalModel, scalars

_ADDING = ("AssignAddVariableOp", "AssignSubVariableOp", "ResourceScatterAdd", "ResourceScatterSub",
           "ResourceScatterNdAdd", "ResourceScatterNdSub", "AssignAdd", "AssignSub", "ScatterAdd", "ScatterSub",
           "ScatterNdAdd", "ScatterNdSub")
_READING = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp", "Identity",
            "IsVariableInitialized")
_NEXT_BATCH = ("IteratorGetNext", "QueueDequeueV2", "QueueDequeueManyV2", "QueueDequeueUpToV2")


class SamePlaces:
    """A `ps_strategy` for replica_device_setter, which puts each variable on the ps that has it in another graph."""

    def __init__(self, graph: tf.Graph) -> None:
        self._places = {op.name: index for op in graph.get_operations()
                        for job, index in [devices.task_of(op.device)] if job == "ps"}

    def __call__(self, op: tf.Operation) -> int:
        """Returns the index of the ps; 0 if the other graph has no such variable."""
        return self._places.get(op.name) or 0


class BoundedSession(tf.Session):
    """A session each of whose runs ends in bounded time, also if a ps is frozen, or its answer is lost."""

    def __init__(self, target: str, graph: tf.Graph, config: tf.ConfigProto, timeout_secs: float) -> None:
        """Opens it; `timeout_secs` is the bound of a run."""
        super().__init__(target, graph=graph, config=config)
        self._timeout_secs = timeout_secs

    def run(
        self, fetches: Any, feed_dict: Mapping[Any, Any] | None = None, options: tf.RunOptions | None = None,
        run_metadata: tf.RunMetadata | None = None,
    ) -> Any:
        """See `tf.compat.v1.Session.run`; raises tf.errors.DeadlineExceededError after the time-out, too."""
        bounded = tf.RunOptions(timeout_in_ms=int(self._timeout_secs * 1000))
        if options is not None:
            bounded.MergeFrom(options)
        run = functools.partial(super().run, fetches, feed_dict, bounded, run_metadata)
        return sessions.call_bounded(run, bounded)


class ShareGraph:
    """The finished graph of one share."""

    def __init__(self, task: PreparedWorker, shard: tuple[int, int]) -> None:
        """Builds it; nothing is sent yet.

        Args:
          shard: (index, count), the share of the held-out data.

        Raises:
          UserCodeError: a plug-in breaks its contract, or evaluates variables that training does not have.
          ConfigError: the model's metrics cannot be added, or it restores other values for evaluation.
        """
        cluster, trained, settings = task.cluster, task.graph, task.settings.graph
        self._options = sessions.options(cluster.peers, cluster.is_elastic)
        self._timeout_secs = task.settings.timeouts.step_secs
        with tf.Graph().as_default() as self._graph, placement.on_cluster(
                cluster, settings.device, settings.placement, strategy=SamePlaces(trained.graph)):
            with tf.device(trained.global_step.device):
                self._global_step = tf.train.create_global_step()
            trained.rows.renew()
            self._model = EvalModel(*task.plugins, shard, cluster.task.device + "/cpu:0")
            _check_tables(self._model.rows.specs, trained.rows.specs)
            _check_scaffold(self._model.spec.scaffold)
            _check_variables(tf.global_variables(), trained.savers.variables)
            devices.check_devices(self._graph, cluster)
            placement.remap_lookups(tf.global_variables())
            self._metrics = MetricSums(self._model.values)
            self._saver = _saver_of(trained.update.dense.packed.places())
            self._graph.finalize()

    @property
    def loss_name(self) -> str:
        """The name of the model's loss."""
        return self._model.spec.loss_name

    def restore_packed(self, target: str, path: str) -> None:
        """Reads the variables that training has packed, which are small, from a checkpoint; for the chief.

        While training runs, the small variables keep the values with which it began (parts/packing/).
        """
        if self._saver is not None:
            with self._session(target) as session:
                self._saver.restore(session, path)

    def evaluate(self, target: str) -> ShareResult:
        """Returns the result of the share, computed by the server at this address.

        Raises:
          UserCodeError: an input queue failed.
          tf.errors.OpError: a ps is lost or does not answer within --step_timeout_secs, or the user's code failed.
        """
        with self._session(target) as session:
            session.run(self._model.local_init_op)
            initial = self._metrics.read(session)
            loss_sum, num_examples = self._model.run_through(session)
            sums = added(initial, self._metrics.read(session))
            return ShareResult(int(session.run(self._global_step)), num_examples, loss_sum, sums)

    def metrics(self, target: str, shares: Sequence[ShareResult]) -> dict[str, float]:
        """Returns the metrics of all shares together."""
        with self._session(target) as session:
            session.run(self._model.local_init_op)
            self._metrics.set(session, merge([share.sums for share in shares], self._metrics.read(session)))
            return scalars(session.run(self._model.values))

    @contextlib.contextmanager
    def _session(self, target: str) -> Iterator[tf.Session]:
        session = BoundedSession(target, self._graph, self._options, self._timeout_secs)
        try:
            yield session
        finally:
            sessions.close_in_background(session)


def _saver_of(names: Iterable[str]) -> tf.train.Saver | None:
    packed = [variable for variable in tf.global_variables() if variable.op.name in set(names)]
    return tf.train.Saver(packed) if packed else None


def _check_scaffold(scaffold: Any) -> None:
    """Raises ConfigError if the model evaluates other values than it trains, such as moving averages."""
    if getattr(scaffold, "saver", None) is not None:
        raise ConfigError("scaffold_with_saver",
                          "--evaluate_with=workers: the model's scaffold has a saver for evaluation, which reads a "
                          "checkpoint in another way, and the workers use the values on the ps; leave the flag out")


def _check_variables(evaluated: Sequence[tf.Variable], trained: Sequence[tf.Variable]) -> None:
    """Raises UserCodeError if a global variable is not on the ps as it is in training."""
    known = {variable.op.name: variable for variable in trained}
    for variable in evaluated:
        name, other = variable.op.name, known.get(variable.op.name)
        problem = None
        if other is None:
            problem = "which training does not have"
        elif (str(variable.shape), variable.dtype) != (str(other.shape), other.dtype):  # also of unknown rank
            problem = f"{variable.dtype.name} {variable.shape}, which is {other.dtype.name} {other.shape} in training"
        elif devices.task_of(variable.device) != devices.task_of(other.device):
            problem = f"on {variable.device}, which training has on {other.device}"
        if problem:
            raise UserCodeError("variable_only_in_evaluation", f'model_fn in mode "eval" makes the variable {name}, '
                                f"{problem}; the workers evaluate the variables on the ps: make the same ones in each "
                                "mode, or leave --evaluate_with=workers out")


def _check_tables(evaluated: Mapping[str, Any], trained: Mapping[str, Any]) -> None:
    """Raises UserCodeError if an embedding table is not on the ps as it is in training."""
    for name, spec in evaluated.items():
        if spec != trained.get(name):
            raise UserCodeError("table_only_in_evaluation",
                                f'model_fn in mode "eval" makes the table {name}, which training does not have, or has '
                                "with other arguments; the workers evaluate the rows on the ps: make the same tables "
                                "in each mode, or leave --evaluate_with=workers out")


class MetricSums:
    """The sums of one graph's metrics."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        """Adds the operations that set the sums to the current graph.

        Args:
          values: name -> value of each metric, a tensor or a nested structure of tensors.

        Raises:
          ConfigError: a metric is certainly not a function of sums; the error has a line for each.
        """
        sums: dict[str, tf.Variable] = {}
        problems = []
        for name, value in values.items():
            variables, problem = _sums_of(value)
            sums.update((variable.op.name, variable) for variable in variables)
            if problem:
                problems.append(Problem("metric_not_additive",
                                        f"--evaluate_with=workers: the metric {name!r} {problem}, so the results of "
                                        "several workers cannot be added; leave the flag out, or the metric"))
        refuse(problems)
        self._reads = {name: sums[name].read_value() for name in sorted(sums)}
        self._values = {name: tf.placeholder(sums[name].dtype.base_dtype, sums[name].shape)
                        for name in sorted(sums)}
        self._set_op = tf.group(*[tf.assign(sums[name], self._values[name]) for name in sorted(sums)])

    def read(self, session: tf.Session) -> dict[str, np.ndarray]:
        """Returns name of the variable -> value."""
        return session.run(self._reads)

    def set(self, session: tf.Session, sums: Sums) -> None:
        """Sets the variables, each rounded to its type."""
        session.run(self._set_op, {self._values[name]: sums[name] for name in self._values})


def _sums_of(value: Any) -> tuple[list[tf.Variable], str]:
    """Returns the local variables that the value of a metric depends on, and why it is no function of sums, or ""."""
    needed = set(transfer.upstream([tf.convert_to_tensor(tensor) for tensor in tf.nest.flatten(value)]))
    if any(op.type in _NEXT_BATCH for op in needed):
        return [], "has a value that reads a mini-batch"
    variables = [variable for variable in tf.local_variables() if _handle(variable).op in needed]
    if not variables:
        return [], "has no local variables"
    for variable in variables:
        dtype = variable.dtype.base_dtype
        if not (dtype.is_integer or dtype.is_floating):
            return [], f"keeps {dtype.name} in {variable.op.name}, which is no sum"
        if devices.is_on_ps(variable.device):
            return [], f"keeps {variable.op.name} on {variable.device}, where all workers would change it"
        for op in _handle(variable).consumers():
            if op.type in _ADDING and (read := _read_by(op, variables)):
                return [], f"adds to {variable.op.name} what depends on {read}"
            if op.type not in (*_ADDING, *_READING) and op is not variable.initializer:
                return [], f"changes {variable.op.name} by {op.type}, which does not only add"
    return variables, ""


def _read_by(adding: tf.Operation, variables: Sequence[tf.Variable]) -> str:
    """Returns the name of a variable on which the amount depends that an operation adds to another one, or ""."""
    # A mean so far, say: the amounts of several workers would each be relative to its own one.
    amount = set(transfer.upstream(list(adding.inputs)[1:], is_by_data=True))
    return next((variable.op.name for variable in variables if _handle(variable).op in amount), "")


def _handle(variable: tf.Variable) -> tf.Tensor:
    return variable.handle if transfer.has_handle(variable) else variable.op.outputs[0]


def merge(shares: Sequence[Sums], begin: Sums) -> dict[str, np.ndarray]:
    """Returns `begin` and the sums added by each share, in the order of the shares; floats in float64.

    Args:
      shares: the sum that each share has added to each variable.
      begin: the variables before the first example.
    """
    return {name: sum((_wide(share[name]) for share in shares), _wide(value)) for name, value in begin.items()}


def added(initial: Sums, final: Sums) -> dict[str, np.ndarray]:
    """Returns the sum added to each variable."""
    return {name: _wide(final[name]) - _wide(initial[name]) for name in final}


def _wide(value: np.ndarray) -> np.ndarray:
    return np.asarray(value, np.int64 if np.issubdtype(np.asarray(value).dtype, np.integer) else np.float64)
