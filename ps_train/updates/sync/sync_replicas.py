"""`SyncReplicasOptimizer`: synchronous updates under TensorFlow's name for them, with its constructor and methods.

    with ps_train's tasks    build.py makes one; the coordinator runs `operations`, and updates follow the living
    in a plain TF1 script    it stands in for TensorFlow's class; standalone.py has what the script needs besides

What happens on the ps is in aggregation.py.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.cluster.tf_config import CHIEF_JOBS, parse_tf_config
from ps_train.errors import ConfigError
from ps_train.graph.devices import task_of
from ps_train.updates.sync.aggregation import Synchronous
from ps_train.updates.sync.standalone import Hook, Standalone, UpdatesRunner

_WORKER_JOBS = ("worker", *CHIEF_JOBS)


class SyncReplicasOptimizer(tf.train.Optimizer):
    """Averages the gradients of several workers into one update.

    It can take the place of `tf.compat.v1.train.SyncReplicasOptimizer` in a script: the numbers are the same. No tokens
    are needed: a worker's step ends when its update is made, and each update has the gradients of all who are to
    contribute. `get_init_tokens_op` returns an operation that does nothing.

    Attributes, after `apply_gradients`:
      local_step_init_op: each worker runs it before its first step.
      chief_init_op: the chief, worker 0, runs it instead, when the variables are initialised.
      ready_for_local_init_op: string [n], what must be there before either of them may run.
      worker_number: this worker's, from 0, the chief.
      operations: what the engine runs when.
    """

    def __init__(
        self, opt: tf.train.Optimizer, replicas_to_aggregate: int, total_num_replicas: int | None = None,
        variable_averages: tf.train.ExponentialMovingAverage | None = None,
        variables_to_average: Sequence[tf.Variable] | None = None, use_locking: bool = False,
        name: str = "sync_replicas", *, worker: int | None = None, is_in_rounds: bool = False,
        has_blackboard: bool = False,
    ) -> None:
        """Takes what TensorFlow's class takes, and by keyword what that one need not know.

        Args:
          opt: computes the gradients and applies their mean.
          replicas_to_aggregate: gradients in one update.
          total_num_replicas: all workers; as many as gradients unless it is given.
          variable_averages: is applied to `variables_to_average` after each update, or None.
          use_locking, name: as TensorFlow has them.
          worker: the number of this worker, from 0, the chief. Where it is None, the device under which
            `apply_gradients` is called tells it ("/job:worker/task:1", as replica_device_setter has it), or else
            TF_CONFIG; behind a chief or master task in TF_CONFIG the workers' numbers begin at 1.
          is_in_rounds: whether an update raises the global step by more than one.
          has_blackboard: whether it runs in a task of ps_train, which has made the notes on ps 0, knows who lives and
            lets everybody go at the end.
        """
        super().__init__(use_locking, name)
        self._opt = opt
        self._replicas = replicas_to_aggregate
        self._num_workers = replicas_to_aggregate if total_num_replicas is None else total_num_replicas
        self._variable_averages = variable_averages
        self._variables_to_average = variables_to_average
        self._worker = worker
        self._is_in_rounds = is_in_rounds
        self._has_blackboard = has_blackboard
        self._runner: UpdatesRunner | None = None

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list:
        """Returns what the optimizer inside computes: this worker's gradients, to be clipped as one likes."""
        return self._opt.compute_gradients(*args, **kwargs)

    def apply_gradients(
        self, grads_and_vars: Sequence[tuple], global_step: tf.Variable | None = None, name: str | None = None
    ) -> tf.Operation:
        """Returns a worker's step: it pushes the gradients and ends when they are in an update, or are too late for it.

        Args:
          grads_and_vars: pairs of a gradient, dense, sparse or None, and its variable.
          global_step: the variable that each update raises by one, int32 or int64.

        Raises:
          ValueError: there are no pairs, or no global step.
          ConfigError: nothing tells which worker this is, or its number is too large.
        """
        pairs = list(grads_and_vars)
        if not pairs:
            raise ValueError("Must supply at least one variable")
        if global_step is None:
            raise ValueError("Global step is required to check staleness")
        self.worker_number = self._own_number()
        kind = Synchronous if self._has_blackboard else Standalone
        engine = kind(self._applying(), pairs, global_step, self._replicas, self._num_workers,
                      self.worker_number, self._is_in_rounds)
        train_op = self._offer(engine)
        return train_op if name is None else tf.group(train_op, name=name)

    def _applying(self) -> Any:
        """Returns what applies a mean, with the averages that follow it."""
        if self._variable_averages is None:
            return self._opt
        return _Averaging(self._opt, self._variable_averages, self._variables_to_average)

    def _offer(self, engine: Synchronous) -> tf.Operation:
        """Gives the operations the names of TensorFlow's class; returns a worker's step."""
        self.operations = engine.operations()
        self.chief_init_op, self.local_step_init_op = self.operations.begin_op, self.operations.local_init_op
        self._runner = UpdatesRunner(self.operations)
        missing = [tf.report_uninitialized_variables(tf.global_variables())]
        if isinstance(engine, Standalone):
            missing.append(engine.missing())
        self.ready_for_local_init_op = tf.concat(missing, 0)
        return self.operations.train_op

    def _own_number(self) -> int:
        number = _number_of(tf.no_op().device) if self._worker is None else self._worker
        if not 0 <= number < self._num_workers:
            raise ConfigError(f"SyncReplicasOptimizer: this is worker {number}; allowed: 0 to {self._num_workers - 1}, "
                              "as there are so many workers; give total_num_replicas, the number of all workers")
        return number

    def get_chief_queue_runner(self) -> UpdatesRunner:
        """Returns what runs the updates on the chief, for `Supervisor.start_queue_runners` say.

        Raises:
          ValueError: apply_gradients was not called yet.
        """
        if self._runner is None:
            raise ValueError("Should be called after apply_gradients().")
        return self._runner

    def get_init_tokens_op(self, num_tokens: int = -1) -> tf.Operation:
        """Returns an operation that does nothing: nobody waits for tokens.

        Raises:
          ValueError: apply_gradients was not called yet, or TensorFlow's class would refuse so few tokens.
        """
        if self._runner is None:
            raise ValueError("get_init_tokens_op() should be called after apply_gradients().")
        num_needed = self._replicas - self._num_workers
        if num_tokens != -1 and num_tokens < num_needed:
            raise ValueError(f"Too few tokens to finish the first step: {num_tokens} (given) vs {num_needed} (needed)")
        return tf.no_op(name="no_init_tokens")

    def make_session_run_hook(self, is_chief: bool, num_tokens: int = -1) -> tf.train.SessionRunHook:
        """Returns the hook that begins the steps in a MonitoredTrainingSession, and on the chief runs the updates."""
        return Hook(self, is_chief, num_tokens)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """Returns a slot of the optimizer inside."""
        return self._opt.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> list[str]:
        """Returns the names of the slots of the optimizer inside."""
        return self._opt.get_slot_names(*args, **kwargs)

    def variables(self) -> list[tf.Variable]:
        """Returns the variables of the optimizer inside."""
        return self._opt.variables()


class _Averaging:
    """Applies gradients, then brings moving averages up to date."""

    def __init__(
        self, optimizer: tf.train.Optimizer, averages: tf.train.ExponentialMovingAverage,
        variables: Sequence[tf.Variable] | None,
    ) -> None:
        self._optimizer = optimizer
        self._averages = averages
        self._variables = variables

    def apply_gradients(self, grads_and_vars: Sequence[tuple], global_step: tf.Variable) -> tf.Operation:
        """Applies them; see `tf.compat.v1.train.Optimizer`."""
        with tf.control_dependencies([self._optimizer.apply_gradients(grads_and_vars, global_step)]):
            return self._averages.apply(self._variables)


def _number_of(device: str) -> int:
    """Returns the number of the worker on whose device an operation is, or else of the one that TF_CONFIG names.

    Raises:
      ConfigError: neither names a worker.
    """
    text = os.environ.get("TF_CONFIG", "")
    told = parse_tf_config(text, needs_ps=False) if text else None
    job, index = task_of(device)
    if job not in _WORKER_JOBS and told is not None:
        job, index = told.job, told.index
    if job not in _WORKER_JOBS or index is None:
        raise ConfigError("SyncReplicasOptimizer: nothing tells which worker this is; call apply_gradients under the "
                          "worker's device, as tf.train.replica_device_setter(worker_device=\"/job:worker/task:1\") "
                          "sets it, or give the number by worker=")
    has_chief_job = told is not None and any(told.addresses.get(name) for name in CHIEF_JOBS)
    return index + (has_chief_job and job == "worker")
