"""Evaluates a checkpoint on the held-out data, in a session that uses this process only."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.errors import (
    ClusterLostError,
    DataError,
    UserCodeError,
)
from ps_train.graph import devices
from ps_train.graph.hooks import Hooks
from ps_train.graph.input.arrays import input_feed
from ps_train.graph.input.batches import Batches
from ps_train.graph.plugin_calls import call_model_fn
from ps_train.plugins.contracts import EVAL, Dataset, Model
from ps_train.runtime import waits
from ps_train.runtime.reports import Evaluation
from ps_train.storage import checkpoints
from ps_train.storage.event_files import LOSS_TAG, Summaries
from ps_train.training import queues

_log = logging.getLogger(__name__)


class Evaluator:
    """Evaluates checkpoints of one model on one dataset."""

    def __init__(
        self, model: Model, model_params: Mapping[str, Any], dataset: Dataset, dataset_params: Mapping[str, Any]
    ) -> None:
        """Builds the graph, on this process's devices even where the model names others.

        Raises:
          UserCodeError: a plug-in breaks its contract.
        """
        self._dataset_name = dataset.name
        with tf.Graph().as_default() as self._graph, devices.ignoring_tasks():
            self._global_step = tf.train.create_global_step()
            self._batches = Batches(dataset, EVAL, dataset_params, shard=(0, 1))
            features, labels = self._batches.next()
            self._spec = call_model_fn(model, features, labels, EVAL, model_params)
            metrics = self._spec.eval_metric_ops or {}
            self._values = {name: value for name, (value, _) in metrics.items()}
            self._update_ops = [update_op for _, update_op in metrics.values()]
            self._batch_size = tf.shape(tf.nest.flatten(features)[0])[0]
            scaffold = self._spec.scaffold
            own = getattr(scaffold, "local_init_op", None)
            self._saver = getattr(scaffold, "saver", None) or tf.train.Saver(tf.global_variables())
            self._hooks = Hooks(self._spec.evaluation_hooks)
            self._local_init_op = tf.group(tf.local_variables_initializer(), tf.tables_initializer(),
                                           *([] if own is None else [own]))
            self._queues = queues.Queues()

    def evaluate(self, path: str) -> Evaluation:
        """Returns the metrics of a checkpoint.

        Raises:
          CheckpointError: the checkpoint is of another model.
          DataError: the held-out set is empty.
          UserCodeError: an input queue failed.
        """
        checkpoints.check_fits(path, self._graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES))
        # A worker may use the same GPU, so take only the memory that is needed.
        config = tf.ConfigProto(allow_soft_placement=True, gpu_options=tf.GPUOptions(allow_growth=True))
        with tf.Session(graph=self._graph, config=config) as session:
            session.run(self._local_init_op)
            self._saver.restore(session, path)
            session.run(self._batches.initializer, feed_dict=input_feed(self._graph))
            self._hooks.start(session)
            with self._queues.running(session):
                loss_sum, num_examples = self._run_through(self._hooks.around(session))
            self._hooks.end(session)
            if num_examples == 0:
                raise DataError(f"{self._dataset_name}.input_fn: the dataset of mode \"eval\" is empty; "
                                "there is nothing to evaluate on")
            global_step, metrics = session.run([self._global_step, self._values])
        return Evaluation(int(global_step), num_examples, self._spec.loss_name, loss_sum,
                          _scalars(metrics))

    def _run_through(self, session: tf.Session) -> tuple[float, int]:
        """Updates the metrics over the whole set; returns the sum of the losses and the number of examples."""
        loss_sum, num_examples = 0.0, 0
        while True:
            try:
                loss, batch_size, _ = session.run([self._spec.loss, self._batch_size, self._update_ops])
            except tf.errors.OutOfRangeError:
                return loss_sum, num_examples
            loss_sum += float(loss) * int(batch_size)
            num_examples += int(batch_size)


def _scalars(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Returns the metrics that are numbers: Estimators have others, such as the points of a curve."""
    return {name: float(value) for name, value in metrics.items()
            if np.ndim(value) == 0 and np.issubdtype(np.asarray(value).dtype, np.number)}


def evaluate_bounded(timeout_secs: float, evaluator: Evaluator, path: str, stop: threading.Event) -> Evaluation:
    """Returns `evaluator.evaluate(path)`, in bounded time.

    Raises:
      UserCodeError: the evaluation takes longer.
      StoppedError: `stop` was set first.
      PsTrainError: as `Evaluator.evaluate` does.
    """
    try:
        return waits.bounded(lambda: evaluator.evaluate(path), timeout_secs, f"the evaluation of {path}", stop)
    except ClusterLostError as error:
        raise UserCodeError(f"{error}; the checkpoint is sound. Does the dataset of mode \"eval\" end? If it does, "
                            "give a longer --eval_timeout_secs and run the same command again") from None


def write_summaries(evaluation: Evaluation, train_dir: str) -> None:
    """Writes the metrics for TensorBoard, to the folder `eval` in the train_dir."""
    # The loss has the same tag as in training, so that one chart shows both.
    values = {LOSS_TAG: evaluation.loss_mean, **evaluation.metrics}
    summary = tf.Summary(value=[tf.Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
    written = Summaries(os.path.join(train_dir, "eval"))
    written.write(summary, evaluation.global_step)
    written.close()


