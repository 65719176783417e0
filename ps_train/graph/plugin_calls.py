"""Calls the user's model_fn and checks what it returns.

    model_fn --> ModelSpec or EstimatorSpec --> ModelSpec
             --> the optimizers that it creates, in training --> ModelUpdate, or why its train_op cannot be separated
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.errors import UserCodeError
from ps_train.graph import row_parameters, train_ops
from ps_train.graph.train_ops import ModelUpdate
from ps_train.plugins.contracts import PREDICT, TRAIN, Model, ModelSpec, RunConfig
from ps_train.runtime import tensorflow_errors

_ESTIMATOR_FIELDS = ("mode", "predictions", "loss", "train_op", "eval_metric_ops")


class TrainModel(NamedTuple):
    """A model on a mini-batch, in training.

    Attributes:
      spec: what model_fn returned.
      captured: what the optimizers that it created were told to apply.
      own: the update behind its train_op; None if it has no train_op, or one that cannot be separated.
      problem: why it cannot be separated, "" if it can or if there is none.
    """

    spec: ModelSpec
    captured: Sequence[Any]
    own: ModelUpdate | None
    problem: str


def call_model_fn(
    model: Model, features: Any, labels: Any, mode: str, params: Mapping[str, Any], config: RunConfig | None = None
) -> ModelSpec:
    """Adds the model to the current graph and returns its ModelSpec.

    Raises:
      UserCodeError: model_fn returned something other than a ModelSpec or an EstimatorSpec with a scalar loss, or needs
        tf_keras, which is not installed.
    """
    arguments = {"features": features, "labels": labels, "mode": mode, "params": params}
    if model.takes_config:
        arguments["config"] = config or RunConfig(task_type="evaluator", is_chief=False)
    row_parameters.begin_build(features, labels)
    # Without the auxiliary scope a second call in the graph would prefix the names of operations with "_1/".
    with tf.variable_scope(tf.get_variable_scope(), auxiliary_name_scope=False):
        try:
            spec = model.model_fn(**arguments)
        except (AttributeError, ImportError) as error:
            if advice := _keras_advice(error):
                raise UserCodeError(f"{model.name}.model_fn: {advice}") from error
            _raise_if_labels(model.name, mode, error)
            raise
        except (TypeError, ValueError) as error:
            _raise_if_labels(model.name, mode, error)
            raise
    spec = _as_model_spec(model.name, spec)
    if mode == PREDICT:  # its predictions are what counts
        return spec
    if not tf.is_tensor(spec.loss) or spec.loss.shape.rank not in (None, 0):
        raise UserCodeError(f"{model.name}.model_fn returned the loss {spec.loss!r}; it must be a scalar tensor")
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
    """Raises UserCodeError if model_fn seems to use labels where there are none."""
    if mode == PREDICT and "None" in str(error):
        reason = str(error).splitlines()[0]
        raise UserCodeError(f"{name}.model_fn failed with the mode {PREDICT!r}, in which labels are None: {reason}; "
                            "return ps_train.ModelSpec(predictions=...) before they are used") from error


def call_for_training(
    model: Model, features: Any, labels: Any, params: Mapping[str, Any], config: RunConfig | None = None
) -> TrainModel:
    """Adds the model to the current graph, without the updates that it would make by itself.

    Raises:
      UserCodeError: as `call_model_fn` does.
    """
    graph = tf.get_default_graph()
    num_before = len(graph.get_operations())
    apart = train_ops.train_ops_of_graph()
    with apart.recording() as captured:
        spec = call_model_fn(model, features, labels, TRAIN, params, config)
    if spec.train_op is None:
        return TrainModel(spec, captured, None, "")
    created = set(graph.get_operations()[num_before:])
    found = apart.separate(spec.train_op, spec.loss, captured, created)
    return TrainModel(spec, captured, *((None, found) if isinstance(found, str) else (found, "")))


def _as_model_spec(name: str, spec: Any) -> ModelSpec:
    """Returns a ModelSpec with the fields of what model_fn returned.

    Raises:
      UserCodeError: it has not the fields of an EstimatorSpec.
    """
    if isinstance(spec, ModelSpec):
        return spec
    if hasattr(spec, "as_estimator_spec"):  # of a TPUEstimator
        spec = spec.as_estimator_spec()
    if not all(hasattr(spec, field) for field in _ESTIMATOR_FIELDS):
        raise UserCodeError(f"{name}.model_fn returned {type(spec).__name__}; it must return a ps_train.ModelSpec, or "
                            "an EstimatorSpec, which has the same fields")
    metrics = {metric: _value_and_update(found) for metric, found in (spec.eval_metric_ops or {}).items()}
    others = {field: tuple(getattr(spec, field, None) or ())
              for field in ("training_hooks", "training_chief_hooks", "evaluation_hooks")}
    return ModelSpec(loss=spec.loss, predictions=spec.predictions, eval_metric_ops=metrics, train_op=spec.train_op,
                     scaffold=getattr(spec, "scaffold", None),
                     export_outputs=getattr(spec, "export_outputs", None), **others)


def _value_and_update(metric: Any) -> tuple[Any, Any]:
    """Returns the value and the update operation of a metric, which Estimator also takes as a Keras metric."""
    return (metric.result(), metric.updates) if hasattr(metric, "result") else metric
