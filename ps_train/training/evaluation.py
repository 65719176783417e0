"""Evaluates a checkpoint on the held-out data, in a session that uses this process only."""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.coordination import sessions
from ps_train.errors import ClusterLostError, ConfigError, DataError, UserCodeError
from ps_train.graph import devices, extensions
from ps_train.graph.batches import Batches, input_feed, single_pass
from ps_train.graph.plugin_calls import Hooks, Queues, call_model_fn
from ps_train.plugins.contracts import EVAL, TRAIN, Dataset, Model
from ps_train.runtime import waits
from ps_train.runtime.reports import Evaluation
from ps_train.storage import checkpoints
from ps_train.storage.event_files import LOSS_TAG, Summaries

_log = logging.getLogger(__name__)


class EvalData(NamedTuple):
    """The examples to evaluate on.

    Attributes:
      mode: the mode of input_fn; the model's is "eval".
      num_batches: how many mini-batches, or None for all.
    """

    mode: str = EVAL
    num_batches: int | None = None


class EvalModel:
    """A model on a share of the held-out data, in the graph that is current when it is made.

    Attributes:
      spec: what model_fn returned.
      values: name -> value of each metric.
      rows: the parameters that are no variables, on the ps or in this process.
      local_init_op: initialises the metrics and the lookup tables of TensorFlow; run it before `run_through`.
    """

    def __init__(
        self, model: Model, model_params: Mapping[str, Any], dataset: Dataset, dataset_params: Mapping[str, Any],
        shard: tuple[int, int] = (0, 1), input_device: str = "",
        data: EvalData = EvalData(),  # noqa: B008 (a constant)
    ) -> None:
        """Adds input and model to the graph, which has its global step already; refuses faulty plug-ins.

        Args:
          shard: (index, count), the share of the held-out data.
          input_device: the device of the input, "" to leave that open.
        """
        self._graph = tf.get_default_graph()
        with single_pass():
            self._batches = Batches(dataset, data.mode, dataset_params, shard, input_device)
        self._num_batches = data.num_batches
        may_repeat = data.mode == TRAIN and data.num_batches is None
        self._cardinality = self._batches.cardinality() if may_repeat else None  # needs a feed, and so a session
        features, labels = self._batches.next()
        self.spec = call_model_fn(model, features, labels, EVAL, model_params)
        self.rows = extensions.row_parameters()
        self.rows.connect()
        metrics = self.spec.eval_metric_ops or {}
        self.values = {name: value for name, (value, _) in metrics.items()}
        self._update_ops = [update_op for _, update_op in metrics.values()]
        self._batch_size = _batch_size(features, labels)
        self._hooks = Hooks(self.spec.evaluation_hooks)
        scaffold_init_op = getattr(self.spec.scaffold, "local_init_op", None)
        self.local_init_op = tf.group(tf.local_variables_initializer(), tf.tables_initializer(),
                                      *([] if scaffold_init_op is None else [scaffold_init_op]))
        self._queues = Queues(sessions.is_lost)

    def check_ends(self, session: tf.Session) -> None:
        """Raises ConfigError if all mini-batches are to be evaluated, and TensorFlow knows that they repeat."""
        if self._cardinality is None:
            return
        cardinality = session.run(self._cardinality, feed_dict=input_feed(self._graph))
        if cardinality == tf.data.experimental.INFINITE_CARDINALITY:
            raise ConfigError("eval_data_without_end", "--num_batches: not given, and the examples repeat "
                              "without end; give the number of mini-batches to evaluate")
        if cardinality == tf.data.experimental.UNKNOWN_CARDINALITY:
            _log.info("evaluating until the examples end; --num_batches ends it earlier")

    def run_through(self, session: tf.Session) -> tuple[float, int]:
        """Updates the metrics over all examples; returns the sum of their losses and their number.

        Raises:
          UserCodeError: an input queue failed, or an id has no row.
          DataError: a record is malformed.
        """
        session.run(self._batches.initializer, feed_dict=input_feed(self._graph))
        self._hooks.start(session)
        with self._queues.running(session):
            loss_sum, num_examples = self._run_all(self._hooks.around(session))
        self._hooks.end(session)
        extensions.report_counts(session, "evaluation")
        return loss_sum, num_examples

    def _run_all(self, session: Any) -> tuple[float, int]:
        """Runs the metrics' updates until the data ends; returns what `run_through` does."""
        loss_sum, num_examples, self._hooks.should_stop = 0.0, 0, False  # a hook may have ended the evaluation before
        runs = itertools.count() if self._num_batches is None else range(self._num_batches)
        for _ in itertools.takewhile(lambda _: not self._hooks.should_stop, runs):
            try:
                loss, batch_size, _ = session.run([self.spec.loss, self._batch_size, self._update_ops])
            except tf.errors.OutOfRangeError:
                break
            except tf.errors.InvalidArgumentError as error:
                extensions.explain_error(self._graph, error, "evaluation")
                raise
            loss_sum += float(loss) * int(batch_size) if batch_size else 0.0  # the mean of no examples is NaN
            num_examples += int(batch_size)
        return loss_sum, num_examples


class Evaluator:
    """Evaluates checkpoints of one model on one dataset."""

    def __init__(
        self, model: Model, model_params: Mapping[str, Any], dataset: Dataset, dataset_params: Mapping[str, Any],
        data: EvalData = EvalData(),  # noqa: B008 (a constant)
    ) -> None:
        """Builds the graph, on this process's devices even where the model names others; refuses faulty plug-ins."""
        self._dataset, self._data = dataset, data
        with tf.Graph().as_default() as self._graph, devices.ignoring_tasks():
            self._global_step = tf.train.create_global_step()
            self._model = EvalModel(model, model_params, dataset, dataset_params, data=data)
            self._model.rows.add_saving()
        self._savers: list[tf.train.Saver] = []

    @property
    def metric_names(self) -> list[str]:
        """The names of the model's metrics that are one number, also if that is not known yet; see `scalars`."""
        return sorted(name for name, value in self._model.values.items() if tf.is_tensor(value)
                      and value.shape.rank in (0, None) and value.dtype not in (tf.bool, tf.string))

    def evaluate(self, path: str) -> Evaluation:
        """Returns the metrics of a checkpoint.

        Raises:
          CheckpointError: the checkpoint is of another model.
          DataError: the held-out set is empty, or has a malformed record.
          UserCodeError: an input queue failed.
        """
        checkpoints.check_fits(path, self._graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES))
        self._model.rows.check_fits(path)
        with tf.Session(graph=self._graph, config=tf.ConfigProto(allow_soft_placement=True)) as session:
            self._model.check_ends(session)
            session.run(self._model.local_init_op)
            with self._graph.as_default():
                self._savers = self._savers or checkpoints.restoring_savers(path, self._model.spec.scaffold)
            for saver in self._savers:
                saver.restore(session, path)
            self._model.rows.restore(session, path)
            loss_sum, num_examples = self._model.run_through(session)
            refuse_empty(self._dataset, num_examples, self._data.mode)
            global_step, metrics = session.run([self._global_step, self._model.values])
        return Evaluation(int(global_step), num_examples, self._model.spec.loss_name, loss_sum, scalars(metrics))


def _batch_size(features: Any, labels: Any) -> tf.Tensor:
    """Returns how many examples a mini-batch has: by its labels, as features may be scalars, or time first."""
    for value in tf.nest.flatten([labels, features]):
        if value is not None and value.shape.rank != 0:
            return tf.shape(value)[0]
    raise UserCodeError("eval_batch_unknown", "input_fn: its features and labels are scalars, or there are none; an "
                        "evaluation counts the examples by their first dimension, so return labels [batch, ...]")


def refuse_empty(dataset: Dataset, num_examples: int, mode: str = EVAL) -> None:
    """Raises DataError if the held-out set is empty."""
    if num_examples == 0:
        raise DataError("eval_data_empty", f"{dataset.name}.input_fn: the dataset of mode \"{mode}\" is empty; the "
                        "evaluation needs examples")


def scalars(metrics: Mapping[str, Any]) -> dict[str, float]:
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
        raise too_long(str(error)) from None


def too_long(waited: str) -> UserCodeError:
    """Returns the error of an evaluation that takes too long; `waited` says for how long and for what."""
    return UserCodeError("eval_timed_out", f"{waited}; the checkpoint is sound. Does the dataset of mode \"eval\" end? "
                         "If it does, give a longer --eval_timeout_secs and run the same command again")


def write_summaries(evaluation: Evaluation, train_dir: str) -> None:
    """Writes the metrics for TensorBoard, to the folder `eval` in the train_dir."""
    # The loss has the same tag as in training: one chart shows both.
    values = {LOSS_TAG: evaluation.loss_mean, **evaluation.metrics}
    summary = tf.Summary(value=[tf.Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
    written = Summaries(os.path.join(train_dir, "eval"))
    written.write(summary, evaluation.global_step)
    written.close()
