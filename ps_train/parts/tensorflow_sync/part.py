"""TensorFlow's own `SyncReplicasOptimizer` as an update mode (--sync_engine=tensorflow), with bounded waits.

    worker   push each gradient --> take a token from the queue on ps 0 --> its next step begins
    chief    a queue runner: wait for R gradients of each variable --> apply --> a token for each worker

R is fixed in the graph. Unlike with ps_train's own engine, an update therefore cannot continue without a dead worker.
The chief waits for missing workers for at most --start_timeout_secs, and a step waits for its token for at most
--step_timeout_secs. Then the task ends, and names the workers that it waited for. See docs/decisions/sync.md.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.errors import BlackboardError, ClusterLostError, UserCodeError
from ps_train.part import Part
from ps_train.updates import build
from ps_train.updates.sync import aggregation
from ps_train.updates.sync.runner import Quorum, QuorumStatus, UpdateRunner
from ps_train.updates.update import ChiefContext, ChiefService, InitOps, SyncSettings, Verdict

_WAIT_SECS = 1.0
_ALTERNATIVE = "with --sync_engine=ps_train the other workers continue without a lost one"


class TensorFlowSyncPart(Part):
    """Replaces the engine of the synchronous updates."""

    @classmethod
    def is_on(cls, config: Any, cluster: Any) -> bool:
        """Returns whether the flag asks for TensorFlow's class."""
        return config.sync_engine == "tensorflow"

    def adjust(self, settings: Any) -> Any:
        """Returns the settings with TensorFlow's class as the engine."""
        updates = settings.graph.updates
        updates = updates._replace(sync=updates.sync._replace(engine=tensorflow_engine))
        return settings._replace(graph=settings.graph._replace(updates=updates))


class TensorFlowOperations(NamedTuple):
    """The operations of one worker, and those of the chief.

    Attributes:
      train_op: one step of a worker.
      init: sets the local step of each worker; the chief prepares the first update of a new run. In a live run it makes
        every gradient on its way stale and releases all workers.
      release_op: adds a token for each worker to the queue.
      runner: runs the updates.
      verdict: None, as TensorFlow does not say which gradients are in an update.
    """

    train_op: tf.Operation
    init: InitOps
    release_op: tf.Operation
    runner: tf.train.QueueRunner
    verdict: Verdict | None = None


def tensorflow_engine(
    optimizer: tf.train.Optimizer, gradients: list, global_step: tf.Variable, settings: SyncSettings
) -> tuple[TensorFlowOperations, Callable[[], ChiefService]]:
    """Adds the operations to the current graph; see `SyncSettings.engine`."""
    operations = build_engine(optimizer, gradients, global_step, settings)
    return operations, lambda: QueueService(operations, settings)


def build_engine(
    optimizer: tf.train.Optimizer, gradients: list, global_step: tf.Variable, settings: SyncSettings
) -> TensorFlowOperations:
    """Adds the operations to the current graph.

    Args:
      optimizer: applies the mean.
      gradients: pairs of a gradient (dense, sparse or None) and its variable.
      global_step: the variable, on ps 0.

    Raises:
      UserCodeError: a gradient has a type that TensorFlow cannot average.
    """
    for gradient, variable in gradients:
        if gradient is not None and gradient.dtype == tf.bfloat16:
            raise UserCodeError("variable_not_averaged", f"--sync_engine=tensorflow: {variable.op.name} is bfloat16, "
                                "of which TensorFlow averages no gradients; leave the flag out, or make it float32")
    num_workers = settings.num_workers
    classic = tf.train.SyncReplicasOptimizer(optimizer, settings.replicas_to_aggregate, num_workers)
    train_op = classic.apply_gradients(gradients, global_step)
    _name_by_kind(classic)
    classic.ready_for_local_init_op.mark_used()  # it warns at exit if unused; the chief checks more variables
    queue = classic.get_chief_queue_runner().queue
    build.refuse_feeds(*classic.get_chief_queue_runner().enqueue_ops)
    (local_step,) = [variable for variable in tf.local_variables() if variable.op.name.endswith("sync_rep_local_step")]
    with tf.control_dependencies([local_step.initializer]):  # otherwise the initial value may be assigned last
        init_op = tf.group(tf.assign(local_step, global_step.read_value()))
    with tf.device(global_step.device):
        release_op = queue.enqueue_many([tf.fill([num_workers], global_step.read_value())])
        # As few as TensorFlow allows. With the additional ones of dist_mnist, each worker begins with two mini-batches.
        num_tokens = max(0, settings.replicas_to_aggregate - num_workers)
        with tf.control_dependencies([_begin_step(classic, global_step, 0)]), tf.control_dependencies([_drain(queue)]):
            new_run_op = tf.group(classic.get_init_tokens_op(num_tokens))
        with tf.control_dependencies([_begin_step(classic, global_step, 1)]):
            resumed = classic.get_init_tokens_op(num_tokens + num_workers - 1)
            with tf.control_dependencies([resumed]):
                live_run_op = tf.group(tf.assign(local_step, global_step.read_value()))
    return TensorFlowOperations(
        train_op=tf.group(train_op), init=InitOps(init_op, new_run_op, live_run_op), release_op=release_op,
        runner=_runner_that_keeps_the_queue_open(classic))


def _name_by_kind(classic: Any) -> None:
    """Adds to the name of each accumulator what it accumulates.

    TensorFlow names it by the variable only, and the next training on the same servers may have other shapes.
    """
    for accumulator, _ in classic._accumulator_list:  # noqa: SLF001 (no public name)
        op = accumulator.accumulator_ref.op
        kind = "_".join([op.type, *(str(op.get_attr(name)) for name in ("dtype", "shape"))])
        name = op.get_attr("shared_name") + f"_{kind}".encode()
        op._set_attr("shared_name", tf.AttrValue(s=name))  # noqa: SLF001 (no public name)


def _begin_step(classic: Any, global_step: tf.Variable, num_steps: int) -> tf.Operation:
    """Raises the global step by `num_steps`, and drops the gradients that an earlier session left."""
    step = global_step.read_value() + num_steps
    # TensorFlow has no public name for its accumulators.
    wrapped = [aggregation.Accumulator(*pair) for pair in classic._accumulator_list]  # noqa: SLF001
    with tf.control_dependencies(aggregation.restart(wrapped, step)):
        return tf.group(global_step.assign(step))


def _drain(queue: tf.QueueBase) -> tf.Operation:
    """Removes the tokens that an earlier session left."""
    def take(_: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([queue.dequeue()]):
            return queue.size()

    return tf.while_loop(lambda size: size > 0, take, [queue.size()], parallel_iterations=1, back_prop=False).op


def _runner_that_keeps_the_queue_open(classic: Any) -> tf.train.QueueRunner:
    # No later session could open a closed queue again.
    runner = classic.get_chief_queue_runner()
    return tf.train.QueueRunner(runner.queue, runner.enqueue_ops, close_op=tf.no_op(), cancel_op=tf.no_op())


class QueueService(UpdateRunner):
    """Starts the queue runner of the updates, and bounds the wait for missing workers."""

    _required_text = "each update waits for {} gradients all the same"
    _advice = f"start them again; {_ALTERNATIVE}"

    def __init__(self, operations: TensorFlowOperations, settings: SyncSettings) -> None:
        fixed = settings._replace(min_replicas_to_aggregate=settings.replicas_to_aggregate)
        super().__init__(operations, Quorum(fixed))
        self._coord = tf.train.Coordinator()

    def start(self, session: tf.Session, context: ChiefContext) -> None:
        """Starts the queue runner, which runs as long as the session."""
        # Not the Supervisor's coordinator: that would raise the runner's errors a second time in the thread
        # that stops it, or with a traceback in the runner's own thread if the session is closed late.
        self._coord = tf.train.Coordinator()
        self._operations.runner.create_threads(session, self._coord, daemon=True, start=True)
        super().start(session, context)

    def stop(self) -> None:
        """Stops the checks and the queue runner. An update that waits ends when the session is closed."""
        super().stop()
        self._coord.request_stop()

    def conclude(self, session: tf.Session) -> None:
        """Logs nothing: what TensorFlow's accumulators drop is not counted."""

    def check_lost(self, error: tf.errors.OpError, context: ChiefContext) -> None:
        """Raises ClusterLostError if a step waited too long for its token, and names the workers that it waited for."""
        # The step is not repeated: its gradients are pushed already, and would count twice.
        if not isinstance(error, tf.errors.DeadlineExceededError):
            return
        try:
            snapshot = context.board.snapshot()
        except BlackboardError:
            return  # a ps is lost, and that error is reported instead
        missing = frozenset(worker for worker in context.worker_names
                            if not snapshot.finished[worker] and not snapshot.is_alive(worker))
        awaited = f"{context.names_of(missing)}, which died or never started" if missing else (
            f"an update of {context.names_of(frozenset(context.worker_names))}, which are alive, but a gradient or a "
            "token was lost")
        raise ClusterLostError("workers_missing", f"a step waited longer than --step_timeout_secs for {awaited}; run "
                               f"the same command again; {_ALTERNATIVE}") from error

    def _update(self, session: tf.Session, context: ChiefContext) -> None:
        """Waits for an error in the queue runner's thread, and raises it."""
        if self._coord.wait_for_stop(_WAIT_SECS):
            self._coord.raise_requested_exception()

    def _apply_quorum(self, session: tf.Session, context: ChiefContext, quorum: QuorumStatus) -> None:
        self._log_change(context, quorum)  # R is fixed in the graph
