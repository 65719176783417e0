"""TensorFlow's own `SyncReplicasOptimizer` as an update mode (--sync_engine=tensorflow), with bounds on its waits.

    worker   push each gradient --> take a token from the queue on ps 0 --> its next step begins
    chief    a queue runner: wait for R gradients of each variable --> apply --> a token for each worker

R is fixed in the graph, so an update cannot go on without a dead worker, as with ps_train's own engine. The chief waits
for who is missing no longer than --start_timeout_secs, and a step waits for its token no longer than
--step_timeout_secs; then they end, and name whom they waited for.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.errors import BlackboardError, ClusterLostError
from ps_train.updates.chief import Watch
from ps_train.updates.sync.accumulators import Accumulator
from ps_train.updates.sync.quorum import Need, Quorum
from ps_train.updates.sync.runner import UpdateRunner

_WATCH_SECS = 1.0
_SWITCH = "with --sync_engine=ps_train the others train on without a worker that is gone"


class Operations(NamedTuple):
    """What runs when.

    Attributes:
      train_op: one step of a worker.
      local_init_op: each worker runs it before its first step; initialises the local step, too.
      begin_op: the chief makes everything ready for the first update of new or restored parameters.
      resume_op: a new chief makes every gradient on its way stale, and lets everybody go.
      release_op: a token for each worker.
      runner: runs the updates.
    """

    train_op: tf.Operation
    local_init_op: tf.Operation
    begin_op: tf.Operation
    resume_op: tf.Operation
    release_op: tf.Operation
    runner: tf.train.QueueRunner


def build(
    optimizer: tf.train.Optimizer, gradients: list, global_step: tf.Variable, replicas_to_aggregate: int,
    num_workers: int,
) -> Operations:
    """Adds the operations to the current graph.

    Args:
      optimizer: applies the mean.
      gradients: pairs of a gradient, dense, sparse or None, and its variable.
      global_step: the variable, on ps 0.
    """
    classic = tf.train.SyncReplicasOptimizer(optimizer, replicas_to_aggregate, num_workers)
    train_op = classic.apply_gradients(gradients, global_step)
    classic.ready_for_local_init_op.mark_used()  # it complains at exit; ours also knows the slots
    queue = classic.get_chief_queue_runner().queue
    (local_step,) = [variable for variable in tf.local_variables() if variable.op.name.endswith("sync_rep_local_step")]
    with tf.control_dependencies([local_step.initializer]):  # else that may come second
        local_init_op = tf.group(tf.assign(local_step, global_step.read_value()))
    with tf.device(global_step.device):
        release_op = queue.enqueue_many([tf.fill([num_workers], global_step.read_value())])
        # As few as TensorFlow allows. Those that dist_mnist adds let each worker begin two mini-batches at first.
        num_tokens = max(0, replicas_to_aggregate - num_workers)
        with tf.control_dependencies([_begin_step(classic, global_step, 0)]), tf.control_dependencies([_drain(queue)]):
            begin_op = tf.group(classic.get_init_tokens_op(num_tokens))
        with tf.control_dependencies([_begin_step(classic, global_step, 1)]):
            resumed = classic.get_init_tokens_op(num_tokens + num_workers - 1)
            with tf.control_dependencies([resumed]):
                resume_op = tf.group(tf.assign(local_step, global_step.read_value()))
    return Operations(tf.group(train_op), local_init_op, begin_op, resume_op, release_op, _keeping_open(classic))


def _begin_step(classic: Any, global_step: tf.Variable, num_steps: int) -> tf.Operation:
    """Raises the global step by so many, with nothing accumulated: what an earlier session left is dropped."""
    step = global_step.read_value() + num_steps
    # TensorFlow has no public name for them.
    everything = [Accumulator(one, device) for one, device in classic._accumulator_list]  # noqa: SLF001
    # Set before, so that nothing old comes in any more, and after, as taking raises it.
    with tf.control_dependencies([one.set_step(step) for one in everything]):
        dropped = [one.drop() for one in everything]
    with tf.control_dependencies(dropped):
        ready = [one.set_step(step) for one in everything]
    with tf.control_dependencies(ready):
        return tf.group(global_step.assign(step))


def _drain(queue: tf.QueueBase) -> tf.Operation:
    """Takes out the tokens that an earlier session left."""
    def take(_: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([queue.dequeue()]):
            return queue.size()

    return tf.while_loop(lambda size: size > 0, take, [queue.size()], parallel_iterations=1, back_prop=False).op


def _keeping_open(classic: Any) -> tf.train.QueueRunner:
    """Returns the queue runner that does not close its queue at the end: the next session could not open it again."""
    runner = classic.get_chief_queue_runner()
    return tf.train.QueueRunner(runner.queue, runner.enqueue_ops, close_op=tf.no_op(), cancel_op=tf.no_op())


class QueueService(UpdateRunner):
    """Starts the queue runner of the updates, and bounds the wait for workers that are missing."""

    _need_told = "each update waits for {} gradients all the same"
    _advice = f"start them again; {_SWITCH}"

    def __init__(self, operations: Operations, replicas_to_aggregate: int, num_workers: int) -> None:
        """Prepares; nothing is started yet."""
        super().__init__(operations, Quorum(replicas_to_aggregate, replicas_to_aggregate, num_workers))
        self._coord = tf.train.Coordinator()

    def start(self, session: tf.Session, watch: Watch) -> None:
        """Starts the queue runner as a Supervisor does, for as long as the session lasts.

        With a coordinator of its own: the Supervisor's would raise the runner's errors a second time, in the thread
        that stops it; or in the runner's own thread, with a traceback, where the session is closed too late.
        """
        self._coord = tf.train.Coordinator()
        self._operations.runner.create_threads(session, self._coord, daemon=True, start=True)
        super().start(session, watch)

    def stop(self) -> None:
        """Ends the looks and the queue runner; the update that waits ends when the session is closed."""
        super().stop()
        self._coord.request_stop()

    def conclude(self, session: tf.Session) -> None:
        """Says nothing: nobody counts what TensorFlow's accumulators drop."""

    def check_lost(self, error: tf.errors.OpError, watch: Watch) -> None:
        """Raises ClusterLostError where a step waited in vain, and names whom it waited for.

        It is not tried again: its gradients are pushed already, and would count twice.
        """
        if not isinstance(error, tf.errors.DeadlineExceededError):
            return
        try:
            snapshot = watch.board.snapshot()
        except BlackboardError:
            return  # a ps is lost: then this is what is told
        missing = frozenset(worker for worker in watch.names if not snapshot.finished[worker]
                            and not snapshot.is_alive(worker))
        whom = f"{watch.name(missing)}, dead or never there" if missing else (
            f"an update of {watch.name(frozenset(watch.names))}, who all live, but a gradient or a token was lost")
        raise ClusterLostError(f"a step waited longer than --step_timeout_secs for {whom}; run the same command again, "
                               f"or {_SWITCH}") from error

    def _update(self, session: tf.Session, watch: Watch) -> None:
        """Waits for an error in the queue runner's thread, and raises it."""
        if self._coord.wait_for_stop(_WATCH_SECS):
            self._coord.raise_requested_exception()

    def _follow(self, session: tf.Session, watch: Watch, need: Need) -> None:
        self._tell(watch, need)
