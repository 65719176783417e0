"""`SyncReplicasOptimizer`: synchronous updates, with the name, constructor and methods of TensorFlow's class.

    apply_gradients --> updates/sync/aggregation.py: what runs on the ps --> updates.py: what runs it on the chief

With a `Server` of ps_train in this process, the updates follow the workers that are alive; see `updates.py`.
"""

from __future__ import annotations

import logging
import os
import threading
import types
from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import CHIEF_JOBS
from ps_train.cluster.tf_config import parse_tf_config
from ps_train.coordination import sessions
from ps_train.errors import ConfigError
from ps_train.graph.devices import task_of
from ps_train.parts.legacy.classic import membership
from ps_train.parts.legacy.classic.updates import StandaloneEngine, StandaloneRunner, make_runner
from ps_train.runtime import waits
from ps_train.updates.update import SyncSettings

_log = logging.getLogger(__name__)

_CHIEF_SECS = 300.0
_FEW = 3  # names of what is missing
_ANSWER_SECS = 60.0  # of the servers, to operations that wait for no other worker
_WORKER_JOBS = ("worker", *CHIEF_JOBS)
_NO_WORKERS = (None, "ps", "evaluator")  # scripts also call their workers "learner" or "trainer"


class SyncReplicasOptimizer(tf.train.Optimizer):
    """Averages the gradients of several workers into one update.

    It can replace `tf.compat.v1.train.SyncReplicasOptimizer` in a script: the numbers are the same. No tokens are
    needed, because a worker's step ends when the update with its gradient is made; `get_init_tokens_op` does nothing.

    Attributes, after `apply_gradients`:
      local_step_init_op: each worker runs it before its first step.
      chief_init_op: the chief, worker 0, runs it instead, after the variables are initialised.
      ready_for_local_init_op: string [n], what is missing before either of them may run.
      worker_number: the number of this worker; 0 is the chief.
      operations: all operations of the engine.
    """

    def __init__(
        self, opt: tf.train.Optimizer, replicas_to_aggregate: int, total_num_replicas: int | None = None,
        variable_averages: tf.train.ExponentialMovingAverage | None = None,
        variables_to_average: Sequence[tf.Variable] | None = None, use_locking: bool = False,
        name: str = "sync_replicas", *, worker: int | None = None, replica_id: int | None = None,
    ) -> None:
        """Creates the optimizer. The positional parameters are those of TensorFlow's class.

        Args:
          opt: computes the gradients and applies their mean.
          replicas_to_aggregate: gradients in one update.
          total_num_replicas: the number of workers; by default `replicas_to_aggregate`.
          variable_averages: is applied to `variables_to_average` after each update, or None.
          use_locking: see `tf.compat.v1.train.Optimizer`.
          name: see there.
          worker: the number of this worker; 0 is the chief. If it is None, the device under which `apply_gradients` is
            called gives the number ("/job:worker/task:1", as replica_device_setter sets it), or else TF_CONFIG. If
            TF_CONFIG has a chief or master task, the numbers of the workers begin at 1. A job may have any other name
            than "ps" and "evaluator". The only worker needs none of this.
          replica_id: an argument of TensorFlow before 1.0, which gave the number. It counts only if nothing else does.
        """
        super().__init__(use_locking, name)
        self._opt = opt
        self._settings = SyncSettings(
            replicas_to_aggregate, replicas_to_aggregate if total_num_replicas is None else total_num_replicas)
        self._needed_tokens = self._settings.replicas_to_aggregate - self._settings.num_workers
        self._variable_averages = variable_averages
        self._variables_to_average = variables_to_average
        self._worker, self._replica_id = worker, replica_id
        self._runner: Any = None

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list:
        """Returns this worker's gradients, as the wrapped optimizer computes them."""
        return self._opt.compute_gradients(*args, **kwargs)

    def apply_gradients(
        self, grads_and_vars: Sequence[tuple], global_step: tf.Variable | None = None, name: str | None = None
    ) -> tf.Operation:
        """Returns a worker's step: it pushes the gradients and ends when an update contains them or they are too late.

        Args:
          grads_and_vars: pairs of a gradient (dense, sparse or None) and its variable.
          global_step: the variable that each update raises by one, int32 or int64.

        Raises:
          ValueError: the pairs are empty, or the global step is None.
          ConfigError: the number of this worker is unknown or too large.
        """
        pairs = list(grads_and_vars)
        if not pairs:
            raise ValueError("Must supply at least one variable")
        if global_step is None:
            raise ValueError("Global step is required to check staleness")
        self._count_workers_of_cluster()
        self.worker_number = self._find_worker_number()
        optimizer: Any = self._opt if self._variable_averages is None else types.SimpleNamespace(
            apply_gradients=self._apply_and_average)
        # What the script lets the step wait for, UPDATE_OPS for example, belongs to the step of each worker. In the
        # operations of the chief it would need the values that a worker feeds, or take one batch more.
        before = tf.no_op(name="before_step")
        # TensorFlow's class also leaves the script's name scope: a checkpoint has Adam's "beta1_power" without it.
        with tf.control_dependencies(None), tf.name_scope(""):
            engine = self._make_engine(optimizer, pairs, global_step, [before])
            self.operations = engine.operations()
            self._runner = make_runner(self.operations, self._settings, engine)
            self.ready_for_local_init_op = tf.concat(
                [tf.report_uninitialized_variables(tf.global_variables()), engine.missing()], 0)
            if self.worker_number and membership.current() is None:  # for a script without ready_for_local_init_op
                _add_to_readiness(engine.missing())
        self.chief_init_op, self.local_step_init_op = self.operations.init.new_run, self.operations.init.every_worker
        train_op = self.operations.train_op
        return train_op if name is None else tf.group(train_op, name=name)

    def _make_engine(self, optimizer: Any, pairs: Sequence[tuple], global_step: tf.Variable,
                     before: Sequence[tf.Operation]) -> StandaloneEngine:
        return StandaloneEngine(optimizer, pairs, global_step, self._settings, worker=self.worker_number,
                                also_in_step=before)

    def _apply_and_average(self, grads_and_vars: Sequence[tuple], global_step: tf.Variable) -> tf.Operation:
        with tf.control_dependencies([self._opt.apply_gradients(grads_and_vars, global_step)]):
            return self._variable_averages.apply(self._variables_to_average)

    def _count_workers_of_cluster(self) -> None:
        """Sets the number of workers to that of the cluster, if this task knows all of them.

        The first update would wait for workers that are not there. With too few, TensorFlow lets all of them train.
        """
        member, settings = membership.current(), self._settings
        knows_all = member is not None and "worker" not in member.cluster.partial
        if knows_all and member.cluster.num_workers != settings.num_workers:
            self._settings = settings._replace(num_workers=member.cluster.num_workers)
            _log.info("SyncReplicasOptimizer: total_num_replicas=%d, but the cluster has %d workers; they compute the "
                      "%d gradients of each update", settings.num_workers, self._settings.num_workers,
                      settings.replicas_to_aggregate)

    def _find_worker_number(self) -> int:
        if self._worker is not None:
            number = self._worker
        elif member := membership.current():
            number = member.cluster.worker_number
        else:
            number = self._number_without_server()
        if not 0 <= number < self._settings.num_workers:
            raise ConfigError("worker_number_invalid", f"SyncReplicasOptimizer: this is worker {number}; allowed: "
                              f"0 to {self._settings.num_workers - 1}; give total_num_replicas, the number of workers")
        return number

    def _number_without_server(self) -> int:
        """Returns the number of a client of servers that run elsewhere, or of the only process there is."""
        number = _number_from(tf.no_op().device)
        if number is not None:
            return number
        if self._replica_id is not None:
            return int(self._replica_id)
        if self._settings.num_workers > 1:
            raise ConfigError(
                "worker_number_unknown", "SyncReplicasOptimizer: the number of this worker is unknown; call "
                "apply_gradients under the worker's device, as tf.train.replica_device_setter("
                "worker_device=\"/job:worker/task:1\") sets it, or give the number by worker=")
        return 0

    def get_chief_queue_runner(self) -> Any:
        """Returns what runs the updates on the chief; raises ValueError before `apply_gradients`."""
        if self._runner is None:
            raise ValueError("Should be called after apply_gradients().")
        return self._runner

    def get_init_tokens_op(self, num_tokens: int = -1) -> tf.Operation:
        """Returns a no-op: no worker waits for tokens.

        Raises:
          ValueError: apply_gradients was not called yet, or there are fewer tokens than TensorFlow's class accepts.
        """
        if self._runner is None:
            raise ValueError("get_init_tokens_op() should be called after apply_gradients().")
        if num_tokens != -1 and num_tokens < self._needed_tokens:
            raise ValueError(f"Too few tokens to finish the first step: {num_tokens} (given) vs "
                             f"{self._needed_tokens} (needed)")
        return tf.no_op(name="no_init_tokens")

    def get_clean_up_op(self) -> tf.Operation:
        """Returns a no-op; before TensorFlow 1.0 the op closed the queues that workers waited in."""
        return tf.no_op(name="no_clean_up")

    def make_session_run_hook(self, is_chief: bool, num_tokens: int = -1) -> tf.train.SessionRunHook:
        """Returns the hook that a MonitoredTrainingSession needs; on the chief it runs the updates."""
        return SyncReplicasHook(self, is_chief, num_tokens)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """Returns a slot of the wrapped optimizer."""
        return self._opt.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> list[str]:
        """Returns the names of the wrapped optimizer's slots."""
        return self._opt.get_slot_names(*args, **kwargs)

    def variables(self) -> list[tf.Variable]:
        """Returns the variables of the wrapped optimizer."""
        return self._opt.variables()


class SyncReplicasHook(tf.train.SessionRunHook):
    """Initialises synchronous training of one task in each new session of a MonitoredTrainingSession."""

    def __init__(self, optimizer: Any, is_chief: bool, num_tokens: int) -> None:
        """Takes a `SyncReplicasOptimizer`; `num_tokens` is only checked, see `get_init_tokens_op`."""
        self._optimizer = optimizer
        self._is_chief = is_chief
        self._num_tokens = num_tokens
        self._runner: StandaloneRunner | None = None

    def begin(self) -> None:
        """Finds the operations; raises ValueError before `apply_gradients`."""
        if self._is_chief:
            self._runner = self._optimizer.get_chief_queue_runner()
        self._optimizer.get_init_tokens_op(self._num_tokens)
        self._init_op = (self._optimizer.chief_init_op if self._is_chief else self._optimizer.local_step_init_op)
        self._ready_op = self._optimizer.ready_for_local_init_op

    def after_create_session(self, session: tf.Session, coord: tf.train.Coordinator) -> None:
        """Initialises this task. The chief starts the updates; the other workers wait for it, five minutes at most.

        Raises:
          ConfigError: this is the chief, and variables have no value.
        """
        options = tf.RunOptions(timeout_in_ms=int(_ANSWER_SECS * 1000))
        missing: list[str] = []

        def is_ready() -> bool:
            missing[:] = map(tf.compat.as_str, sessions.run_bounded(session, self._ready_op, options=options))
            return not missing

        if not self._is_chief:
            waits.until(is_ready, _CHIEF_SECS, lambda: f"the chief to prepare {_listed(missing)}", threading.Event())
        elif not is_ready():
            raise ConfigError("variables_uninitialized", f"{_listed(missing)} have no value when training begins; call "
                              "tf.global_variables_initializer() after minimize(), and run what it returns")
        sessions.run_bounded(session, self._init_op, options=options)
        if self._runner:
            self._runner.create_threads(session, coord, daemon=True, start=True)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_FEW]) + (f" and {len(names) - _FEW} more" if len(names) > _FEW else "")


def _add_to_readiness(missing: tf.Tensor) -> None:
    """Lets a Supervisor or a monitored session wait until nothing is missing, before the first step, too."""
    if not tf.get_collection(tf.GraphKeys.READY_OP):
        tf.add_to_collection(tf.GraphKeys.READY_OP, tf.concat([tf.report_uninitialized_variables(), missing], 0))


def _number_from(device: str) -> int | None:
    """Returns the number of the worker of a device, or of TF_CONFIG; None if neither names a worker."""
    tf_config = os.environ.get("TF_CONFIG", "")
    configured = parse_tf_config(tf_config, needs_ps=False) if tf_config else None
    job, index = task_of(device)
    if job not in _WORKER_JOBS and configured is not None:
        job, index = configured.job, configured.index
    if job in _NO_WORKERS or index is None:
        return None
    has_chief_job = configured is not None and any(configured.addresses.get(name) for name in CHIEF_JOBS)
    return index + (has_chief_job and job == "worker")
