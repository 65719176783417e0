"""Gives Estimator other servers and sessions, and an evaluator that ends when training is over.

    train_and_evaluate   ps, chief, worker --> Server --> MonitoredTrainingSession     those that `replace` is given
                         evaluator         --> evaluate each new checkpoint --> training is over: the last one, too
    Estimator.train      called directly in a cluster, as scripts do that were made for one process: the original
                         expects a server that nobody has started, `start_servers` lets it start one

The original evaluator ends only once it has evaluated a checkpoint of `TrainSpec.max_steps`. It therefore waits for
ever if training ends earlier (early stopping, the end of the data, a chief that died), sleeps through the end of
training for up to `throttle_secs`, and misses the checkpoint that the chief saves after the last worker went past
`max_steps`. An `Observer` says when training is over.
"""

from __future__ import annotations

import functools
import logging
import os
import time
import types
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from ps_train.cluster import reachability, resolve
from ps_train.cluster.spec import Cluster
from ps_train.coordination import blackboard
from ps_train.coordination.blackboard import Blackboard
from ps_train.coordination.state import State
from ps_train.errors import BlackboardError, ClusterLostError
from ps_train.parts.legacy.estimator import install_estimator
from ps_train.runtime.waits import Timeouts

_POLL_SECS = 1.0
_ASK_PERIOD_SECS = 1.0
_log = logging.getLogger(__name__)


def replace(
    server_class: Any = None, monitored_training_session: Any = None,
    find_end: Callable[[], Callable[[], bool] | None] | None = None,
) -> None:
    """Replaces what `tf.estimator.train_and_evaluate` uses in its tasks; None leaves the original.

    Args:
      server_class: replaces `tf.train.Server`.
      monitored_training_session: replaces `tf.train.MonitoredTrainingSession`, with the same arguments.
      find_end: called when an evaluator starts; returns a function that returns whether training is over, after
        which no checkpoint comes, or None if nobody knows: then the original decides. The function is asked before
        each look at the folder, and about once a second while the evaluator waits. It raises ClusterLostError if the
        cluster was never there.

    Raises:
      ConfigError: the Estimator is not installed, see `install_estimator`.
    """
    install_estimator()
    # Not the public modules: only they hold the names that the package calls.
    from tensorflow_estimator.python.estimator import estimator, training  # noqa: PLC0415 (after `install_estimator`)

    if server_class is not None:
        training.server_lib = _Overlay(training.server_lib, Server=server_class)
    if monitored_training_session is not None:
        estimator.training = _Overlay(estimator.training, MonitoredTrainingSession=monitored_training_session)
    if find_end is not None:
        original = training._TrainingExecutor.run_evaluator  # noqa: SLF001 (train_and_evaluate calls it)

        def run_evaluator(executor: Any) -> None:
            should_end = find_end()
            if should_end is None:
                original(executor)
            else:
                _Evaluation(training, executor, should_end).run()

        training._TrainingExecutor.run_evaluator = run_evaluator  # noqa: SLF001


class _Overlay(types.ModuleType):
    """A module with some names replaced."""

    def __init__(self, module: types.ModuleType, **names: Any) -> None:
        super().__init__(module.__name__)
        self._module = module
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class _Evaluation:
    """The evaluator's task: evaluates each new checkpoint until training is over, and always the last one."""

    def __init__(self, training: types.ModuleType, executor: Any, should_end: Callable[[], bool]) -> None:
        # The names with an underscore are those of the package, whose last release has them.
        self._spec = executor._eval_spec  # noqa: SLF001
        self._listener = executor._continuous_eval_listener  # noqa: SLF001
        self._estimator = executor.estimator
        self._evaluated = training._EvalStatus.EVALUATED  # noqa: SLF001
        self._evaluator = executor._Evaluator(  # noqa: SLF001
            self._estimator, self._spec, executor._train_spec.max_steps)  # noqa: SLF001
        self._should_end = should_end
        self._is_over = False
        self._last_result: Any = None

    def run(self) -> None:
        """Evaluates until training is over, or until the executor's listener ends the evaluation.

        Raises:
          ClusterLostError: the cluster was never there, and the folder has no checkpoint.
        """
        self._wait(self._spec.start_delay_secs)
        is_over = False
        while not is_over:
            is_over = self._is_training_over()  # before the look at the folder, not to miss the last checkpoint
            start_secs = time.monotonic()
            if not self._listener.before_eval():
                return
            result = self._evaluate()
            if not self._listener.after_eval(result):
                return
            if not is_over:
                self._wait(self._spec.throttle_secs - (time.monotonic() - start_secs))
        self._finish()

    def _is_training_over(self) -> bool:
        """Returns whether training is over: a cluster that was never there has ended if it left a checkpoint."""
        if not self._is_over:
            try:
                self._is_over = self._should_end()
            except ClusterLostError as error:
                if self._estimator.latest_checkpoint() is None:
                    raise
                _log.warning("%s; there is a checkpoint, so training is taken to be over", error)
                self._is_over = True
        return self._is_over

    def _evaluate(self) -> Any:
        """Returns the result for the newest checkpoint; one without metrics if it was evaluated before or removed."""
        path = self._estimator.latest_checkpoint()
        try:
            result, _ = self._evaluator.evaluate_and_export()
        except (tf.errors.OpError, ValueError):
            if path is None or tf.train.checkpoint_exists(path):
                raise
            _log.info("%s was removed before it was evaluated: there are newer ones", path)
            return None
        if result.status == self._evaluated:
            self._last_result = result
        return result

    def _finish(self) -> None:
        """Makes the final export if the last checkpoint is of another step than `max_steps`."""
        if self._last_result is None:
            _log.warning("training is over, and there is no checkpoint in %s to evaluate", self._estimator.model_dir)
        elif not self._evaluator.is_final_export_triggered:
            _log.info("training has ended before max_steps; exporting %s", self._last_result.checkpoint_path)
            self._export_last()

    def _export_last(self) -> None:
        # The other exporters have exported this checkpoint already.
        from tensorflow_estimator.python.estimator import exporter  # noqa: PLC0415 (after `install_estimator`)

        final = [one for one in self._spec.exporters if isinstance(one, exporter.FinalExporter)]
        self._evaluator._eval_spec = self._spec._replace(exporters=final)  # noqa: SLF001
        self._evaluator._export_eval_result(self._last_result, is_the_final_export=True)  # noqa: SLF001

    def _wait(self, secs: float) -> None:
        end_secs = time.monotonic() + secs
        while (left_secs := end_secs - time.monotonic()) > 0 and not self._is_training_over():
            time.sleep(min(left_secs, _POLL_SECS))


def start_servers(server_class: Any, has_server: Callable[[], bool]) -> None:
    """Lets `Estimator.train` start the server of its task, if the cluster has several and none is started yet.

    Args:
      server_class: called as `tf.train.Server` is; its `join` ends the process of a ps when training is over.
      has_server: returns whether this process has made a server.
    """
    install_estimator()
    from tensorflow_estimator.python.estimator import estimator  # noqa: PLC0415 (after `install_estimator`)

    train = estimator.Estimator.train

    @functools.wraps(train)
    def train_with_server(self: Any, *args: Any, **kwargs: Any) -> Any:
        config = self.config
        jobs = set(config.cluster_spec.jobs) if config.cluster_spec else set()
        if "ps" in jobs and config.task_type in jobs and not has_server():
            server = server_class(config.cluster_spec, job_name=config.task_type, task_index=config.task_id,
                                  config=config.session_config)
            if config.task_type == "ps":
                server.join()
        return train(self, *args, **kwargs)

    estimator.Estimator.train = train_with_server


class Observer:
    """Asks ps 0 about the chief: once its script has ended, no further checkpoint is to come."""

    def __init__(self, cluster: Cluster, timeouts: Timeouts) -> None:
        """Prepares it; nothing is sent yet."""
        self._cluster, self._timeouts = cluster, timeouts
        self._board: Blackboard | None = None
        self._begun_secs = self._asked_secs = time.monotonic()
        self._answered_secs: float | None = None
        self._is_over = False

    def is_over(self) -> bool:
        """Returns whether training is over; asks at most once a second.

        Raises:
          ClusterLostError: ps 0 was not there within the start time-out.
        """
        now_secs = time.monotonic()
        if not self._is_over and now_secs - self._asked_secs >= _ASK_PERIOD_SECS:
            self._asked_secs = now_secs
            self._is_over = self._ask(now_secs)
        return self._is_over

    def _ask(self, now_secs: float) -> bool:
        first = self._cluster.ps[0]
        try:
            if not reachability.accepts(first.address):
                raise BlackboardError(f"{first} is not there")
            if self._board is None:
                self._board = blackboard.for_client(self._cluster, self._timeouts.heartbeat_secs)
            snapshot = self._board.snapshot()
        except BlackboardError as error:
            return self._is_gone(now_secs, error)
        self._answered_secs = now_secs
        return snapshot.state == State.FAILED or bool(snapshot.finished[self._cluster.number_of(self._cluster.chief)])

    def _is_gone(self, now_secs: float, error: BlackboardError) -> bool:
        """Returns whether ps 0 has ended; one that was killed may come back within the heartbeat time-out."""
        if self._answered_secs is not None:
            return now_secs - self._answered_secs > self._timeouts.heartbeat_secs
        if now_secs - self._begun_secs > self._timeouts.start_secs:
            raise ClusterLostError(f"waited {self._timeouts.start_secs:g} s for {self._cluster.ps[0]}: {error}")
        return False


def observer_from_environment(timeouts: Timeouts) -> Observer | None:
    """Returns the observer of the cluster in TF_CONFIG if this task is its evaluator and the cluster has a ps."""
    text = os.environ.get("TF_CONFIG", "").strip()
    if not text or '"evaluator"' not in text or '"ps"' not in text:
        return None
    cluster = resolve.find_cluster(tf_config=text)
    return Observer(cluster, timeouts) if cluster.job == "evaluator" else None
