"""Calls the user's model_fn, checks what it returns, and runs its SessionRunHooks and its input queues.

    model_fn --> ModelSpec or EstimatorSpec --> ModelSpec
             --> the optimizers that it creates, in training --> ModelUpdate, or why its train_op cannot be separated

The hooks run around the steps of a session, as in TensorFlow's MonitoredSession:

    graph built      begin()
    session ready    after_create_session(session)        again after a lost session
    each step        before_run --> session.run(fetches of the step and of the hooks) --> after_run
    training ends    end(session)

The threads of TensorFlow 1's input queues run for as long as a session (docs/decisions/input.md):

    graph built      tf.train.batch, string_input_producer, ... add their QueueRunners to the graph
    session begins   drop the resources that the server kept by shared_name --> start a thread per enqueue operation
    session ends     tell the threads to stop --> (the session is closed) --> join them, in bounded time
"""

from __future__ import annotations

import contextlib
import functools
import logging
import re
import threading
import time
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.errors import UserCodeError
from ps_train.graph import devices, extensions, transfer
from ps_train.graph.extensions import ModelUpdate
from ps_train.plugins.contracts import PREDICT, TRAIN, Model, ModelSpec, RunConfig
from ps_train.runtime import tensorflow_errors

_ESTIMATOR_FIELDS = ("mode", "predictions", "loss", "train_op", "eval_metric_ops")
# ps_train saves by itself, and has no hook for synchronous updates.
_REPLACED = ("CheckpointSaverHook", "_SyncReplicasOptimizerHook", "SyncReplicasHook")
# They need tensors of the model, which a round of local steps computes only in its loop.
_LOGGING = ("LoggingTensorHook", "SummarySaverHook", "NanTensorHook", "ProfilerHook")
_WITHOUT_TENSORS = ("StopAtStepHook", "StepCounterHook")
_JOIN_SECS = 2.0  # for the threads of queues
_QUEUE_OR_READER = re.compile(r"(Queue|Reader)V2$")  # FIFOQueueV2, TextLineReaderV2, ...
_NODE = re.compile(r"\{\{node ([^}]+)\}\}")
_log = logging.getLogger(__name__)


class TrainModel(NamedTuple):
    """A model on a mini-batch, in training.

    Attributes:
      spec: what model_fn returned.
      captured: the calls of the optimizers that it created, as `TrainOps.recording` has them.
      model_update: the update of its train_op; None if it has no train_op, or one that cannot be separated.
      problem: why the train_op cannot be separated, or "".
    """

    spec: ModelSpec
    captured: Sequence[Any]
    model_update: ModelUpdate | None
    problem: str


def call_model_fn(
    model: Model, features: Any, labels: Any, mode: str, params: Mapping[str, Any], config: RunConfig | None = None
) -> ModelSpec:
    """Adds the model to the current graph and returns its ModelSpec.

    Raises:
      UserCodeError: model_fn returned no ModelSpec or EstimatorSpec with a scalar loss, or tf_keras is missing.
    """
    extensions.begin_build(features, labels)
    features, labels = tf.nest.map_structure(lambda part: part, (features, labels))  # models pop features from the dict
    arguments = {"features": features, "labels": labels, "mode": mode, "params": dict(params)}
    if model.takes_config:
        arguments["config"] = config or RunConfig(task_type="evaluator", is_chief=False)
    # Otherwise a second call in the graph would prefix the names of operations with "_1/".
    with tf.variable_scope(tf.get_variable_scope(), auxiliary_name_scope=False):
        try:
            spec = model.model_fn(**arguments)
        except (AttributeError, ImportError, TypeError, ValueError) as error:
            if advice := _keras_advice(error):
                raise UserCodeError("package_missing", f"{model.name}.model_fn: {advice}") from error
            _raise_if_labels(model.name, mode, error)
            raise
    spec = _as_model_spec(model.name, spec)
    if mode == PREDICT:
        return spec
    if not tf.is_tensor(spec.loss) or spec.loss.shape.rank not in (None, 0):
        raise UserCodeError("plugin_returned_wrong_type", f"{model.name}.model_fn returned the loss {spec.loss!r}; it "
                            "must be a scalar tensor")
    return spec


def _keras_advice(error: Exception) -> str | None:
    """Returns a line that says how to avoid an error that tf_keras would prevent, or None for any other error."""
    complaint = tensorflow_errors.reason(error)
    # From util/lazy_loader.py: without tf_keras; with the variable set but without tf_keras.
    if "is not available with Keras 3" not in complaint and "Keras cannot be imported" not in complaint:
        return None
    return (f"{complaint.rstrip('.')}; tf.layers and tf.nn.rnn_cell need tf_keras (pip install 'ps_train[keras]'), and "
            "TF_USE_LEGACY_KERAS not set to 0")


def _raise_if_labels(name: str, mode: str, error: Exception) -> None:
    """Raises UserCodeError if model_fn seems to use labels, which are None for predictions."""
    if mode == PREDICT and "None" in str(error):
        reason = str(error).splitlines()[0]
        raise UserCodeError("labels_missing", f"{name}.model_fn failed with the mode {PREDICT!r}, in which labels are "
                            f"None: {reason}; return ps_train.ModelSpec(predictions=...) before you use them"
                            ) from error


def call_for_training(
    model: Model, features: Any, labels: Any, params: Mapping[str, Any], config: RunConfig | None = None
) -> TrainModel:
    """Adds the model to the current graph, without the updates of its own optimizers; raises as `call_model_fn`."""
    graph = tf.get_default_graph()
    num_earlier_ops = len(graph.get_operations())
    train_ops = extensions.train_ops()
    with train_ops.recording() as captured:
        spec = call_model_fn(model, features, labels, TRAIN, params, config)
    update = train_ops.separate(spec, captured, created=set(graph.get_operations()[num_earlier_ops:]))
    return TrainModel(spec, captured, *((None, update) if isinstance(update, str) else (update, "")))


def _as_model_spec(name: str, spec: Any) -> ModelSpec:
    """Returns a ModelSpec with the fields of what model_fn returned, if it has those of an EstimatorSpec."""
    if isinstance(spec, ModelSpec):
        return spec
    if hasattr(spec, "as_estimator_spec"):  # of a TPUEstimator
        spec = spec.as_estimator_spec()
    if not all(hasattr(spec, field) for field in _ESTIMATOR_FIELDS):
        raise UserCodeError("plugin_returned_wrong_type", f"{name}.model_fn returned {type(spec).__name__}; it must "
                            "return a ps_train.ModelSpec, or an EstimatorSpec, which has the same fields")
    metrics = {name: (metric.result(), metric.updates) if hasattr(metric, "result") else metric  # a Keras metric
               for name, metric in (spec.eval_metric_ops or {}).items()}
    hooks = {field: tuple(getattr(spec, field, None) or ())
             for field in ("training_hooks", "training_chief_hooks", "evaluation_hooks")}
    return ModelSpec(loss=spec.loss, predictions=spec.predictions, eval_metric_ops=metrics, train_op=spec.train_op,
                     scaffold=getattr(spec, "scaffold", None),
                     export_outputs=getattr(spec, "export_outputs", None), **hooks)


class Hooks:
    """The hooks of one graph.

    Attributes:
      should_stop: whether a hook has asked for the end of training.
    """

    def __init__(self, hooks: Sequence[tf.train.SessionRunHook] = ()) -> None:
        """Calls `begin` of the hooks, which may add to the current graph."""
        self._hooks = list(hooks)
        self.should_stop = False
        for hook in self._hooks:
            hook.begin()

    def start(self, session: tf.Session) -> None:
        """Calls `after_create_session` of the hooks, in a new session whose variables are initialised."""
        for hook in self._hooks:
            hook.after_create_session(session, tf.train.Coordinator())

    def end(self, session: tf.Session) -> None:
        """Calls `end` of the hooks, after training or evaluation without an error."""
        for hook in self._hooks:
            try:
                hook.end(session)
            except tf.errors.OutOfRangeError:
                _log.warning("the data has ended, and %s needs a mini-batch at the end: left out", type(hook).__name__)

    def around(self, session: tf.Session) -> Any:
        """Returns an object with the session's `run`, around which the hooks run."""
        return types.SimpleNamespace(run=functools.partial(self.run, session)) if self._hooks else session

    def run(
        self, session: tf.Session, fetches: Any, options: tf.RunOptions | None = None,
        run_metadata: tf.RunMetadata | None = None,
    ) -> Any:
        """Runs a step with the hooks; returns the values of `fetches`."""
        context = tf.train.SessionRunContext(tf.train.SessionRunArgs(fetches), session)
        requests = [hook.before_run(context) or tf.train.SessionRunArgs(None) for hook in self._hooks]
        feed = {tensor: value for request in requests for tensor, value in (request.feed_dict or {}).items()}
        options = tf.RunOptions.FromString(options.SerializeToString()) if options else tf.RunOptions()
        for request in requests:
            if request.options is not None:
                options.MergeFrom(request.options)
                run_metadata = run_metadata or tf.RunMetadata()
        hook_fetches = {number: request.fetches for number, request in enumerate(requests)
                        if request.fetches is not None}
        feed = transfer.complete_feed(session.graph, feed)
        values = session.run({"step": fetches, **hook_fetches}, feed, options, run_metadata)
        for number, hook in enumerate(self._hooks):
            hook.after_run(context, tf.train.SessionRunValues(values.get(number), options, run_metadata))
        self.should_stop = self.should_stop or context.stop_requested
        return values["step"]


def training_hooks(spec: ModelSpec, *, is_chief: bool, is_in_rounds: bool) -> Hooks:
    """Returns the hooks of a model's training that run here; see `usable`."""
    hooks = [*spec.training_hooks, *(spec.training_chief_hooks if is_chief else ())]
    return Hooks(usable(hooks, is_in_rounds=is_in_rounds))


def usable(hooks: Sequence[tf.train.SessionRunHook], *, is_in_rounds: bool = False) -> list[tf.train.SessionRunHook]:
    """Returns the hooks that ps_train runs, and logs which it does not.

    Args:
      is_in_rounds: whether a session run is a round of local steps.

    Raises:
      UserCodeError: a hook may need each step, and a session run is a round of several.
    """
    kept = [hook for hook in hooks if not _is_a(hook, _REPLACED)]
    if any(_is_a(hook, _REPLACED[:1]) for hook in hooks):
        _log.info("the model's CheckpointSaverHook is not used: ps_train saves, see --save_model_secs")
    if not is_in_rounds:
        return kept
    dropped = [hook for hook in kept if _is_a(hook, _LOGGING)]
    if dropped:
        _log.warning("--communication_period: the model's %s is not used, because the tensors of a step stay in its "
                     "round", ", ".join(sorted({type(hook).__name__ for hook in dropped})))
    kept = [hook for hook in kept if hook not in dropped]
    for hook in kept:
        if not _is_a(hook, _WITHOUT_TENSORS):
            raise UserCodeError("hook_needs_each_step", "--communication_period: the model's hook "
                                f"{type(hook).__name__} may need each step, and a session run makes a round of "
                                "several; leave the flag or the hook out")
    return kept


def _is_a(hook: tf.train.SessionRunHook, names: Sequence[str]) -> bool:
    return any(cls.__name__ in names for cls in type(hook).__mro__)


def local_init_ops(scaffold: Any) -> list[tf.Operation]:
    """Returns the local_init_op of a Scaffold, or []; raises UserCodeError for an init_op, a ready_op or a feed."""
    for name in ("init_op", "init_feed_dict", "ready_op", "ready_for_local_init_op", "local_init_feed_dict"):
        if getattr(scaffold, name, None) is not None:
            raise UserCodeError("scaffold_unsupported", f"model_fn returned a scaffold with {name}; ps_train "
                                "initialises all global variables by itself, and runs init_fn and local_init_op of a "
                                "scaffold: use these")
    local_init_op = getattr(scaffold, "local_init_op", None)
    return [] if local_init_op is None else [local_init_op]


class Queues:
    """The input queues of one graph.

    A closed and empty queue ends the data just as the end of a tf.data.Dataset does: both raise OutOfRangeError. A
    thread that fails also closes the queues; `check` tells the two cases apart.

    Attributes:
      forget_op: removes the queues and readers of an earlier session from this worker's server; run it before `start`.
    """

    def __init__(self, is_lost: Callable[[tf.errors.OpError], bool] = lambda error: False) -> None:
        """Takes the queue runners of the current graph, which must be complete except for `forget_op`.

        Args:
          is_lost: returns whether an error means that the session is lost, which the session's owner handles.
        """
        graph = tf.get_default_graph()
        self._is_lost = is_lost
        self._runners = graph.get_collection(tf.GraphKeys.QUEUE_RUNNERS)
        self._coordinator = tf.train.Coordinator()
        self._threads: list[threading.Thread] = []
        self.forget_op = _forget(graph)

    def start(self, session: tf.Session) -> None:
        """Starts the threads, once the session's local variables are initialised."""
        self._coordinator = tf.train.Coordinator()
        self._threads = [thread for runner in self._runners
                         for thread in runner.create_threads(session, self._coordinator, daemon=True, start=True)]

    def check(self) -> None:
        """Raises the error of a thread, if one has failed; call it when the data has ended.

        Raises:
          UserCodeError: the input is at fault.
          tf.errors.OpError: the session was lost.
        """
        try:
            self._coordinator.raise_requested_exception()
        except tf.errors.OpError as error:
            if self._is_lost(error):
                raise
            node = _NODE.search(error.message)
            where = f" at {node[1]}" if node else ""
            raise UserCodeError("input_queue_failed", f"an input queue of the model or dataset failed{where}: "
                                f"{tensorflow_errors.reason(error)}") from error

    def request_stop(self) -> None:
        """Closes the queues; a thread that stays blocked ends when its session is closed."""
        self._coordinator.request_stop()

    def join(self) -> None:
        """Waits a short time for the threads to end; a thread that is left ends with the process."""
        end_secs = time.monotonic() + _JOIN_SECS
        for thread in self._threads:
            thread.join(max(0.0, end_secs - time.monotonic()))
            if thread.is_alive():
                _log.debug("%s has not ended", thread.name)

    @contextlib.contextmanager
    def running(self, session: tf.Session) -> Iterator[None]:
        """Runs the threads while its body reads all of the data; raises as `check` does."""
        self.start(session)
        try:
            yield
            self.check()
        finally:
            self.request_stop()
            self.join()


def _forget(graph: tf.Graph) -> tf.Operation:
    """Returns an operation that removes the queues and readers with a shared_name, which outlive their session."""
    # The next session would otherwise find a queue closed, as the session before has left it.
    removed = []
    for op in graph.get_operations():
        is_kept = _QUEUE_OR_READER.search(op.type) and op.get_attr("shared_name")
        if is_kept and not devices.is_on_ps(op.device):  # a queue on a ps is shared by all workers
            with tf.device(None), tf.device(op.device):
                removed.append(tf.raw_ops.DestroyResourceOp(resource=op.outputs[0], ignore_lookup_error=True))
    return tf.group(*removed)
