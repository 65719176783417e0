"""`tf.contrib.learn`'s models of a head: DNNEstimator, LinearEstimator, DNNLinearCombinedEstimator and others.

    features --columns--> hidden layers --> logits --head--> predictions, loss
             --columns--> linear model  -/

Layers have the names of contrib.layers for their variables; those of columns have the names of tf.feature_column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.parts.legacy.names.feature_columns import input_from_feature_columns, weighted_sum_from_feature_columns
from ps_train.parts.legacy.names.functions import optimize_loss
from ps_train.parts.legacy.names.kernel_methods import DenseKernelMapper
from ps_train.parts.legacy.names.learn import LearnEstimator, ModelFnOps
from ps_train.parts.legacy.names.learn_head_metrics import of_probabilities
from ps_train.parts.legacy.names.learn_heads import linear_layer, multi_class_head
from ps_train.parts.legacy.names.learn_inputs import KEY
from ps_train.parts.legacy.names.learn_metrics import ProblemType
from ps_train.parts.legacy.names.learn_models import OPTIMIZERS, OldNames

_DNN_RATE, _LINEAR_RATE = 0.05, 0.2
_MIN_SLICE_BYTES = 64 << 20
_ACTIVATIONS = {"relu": tf.nn.relu, "tanh": tf.nn.tanh, "sigmoid": tf.nn.sigmoid}


class DNNEstimator(LearnEstimator):
    """Hidden layers under a head."""

    def __init__(self, head: Any, hidden_units: Sequence[int], feature_columns: Sequence, model_dir: str | None = None,
                 optimizer: Any = None, activation_fn: Callable | None = tf.nn.relu, dropout: float | None = None,
                 gradient_clip_norm: float | None = None, config: Any = None,
                 feature_engineering_fn: Callable | None = None, embedding_lr_multipliers: Mapping | None = None,
                 input_layer_min_slice_size: int | None = None) -> None:
        """Takes a head of `tf.contrib.learn`, and what DNNClassifier takes."""
        super().__init__(_dnn_model_fn, model_dir, config, {
            "head": head, "hidden_units": hidden_units, "feature_columns": list(feature_columns),
            "optimizer": optimizer, "activation_fn": activation_fn, "dropout": dropout,
            "gradient_clip_norm": gradient_clip_norm, "embedding_lr_multipliers": embedding_lr_multipliers,
            "input_layer_min_slice_size": input_layer_min_slice_size}, feature_engineering_fn)


class LinearEstimator(OldNames, LearnEstimator):
    """A linear model under a head."""

    def __init__(self, feature_columns: Sequence, head: Any, model_dir: str | None = None,
                 weight_column_name: str | None = None, optimizer: Any = None, gradient_clip_norm: float | None = None,
                 _joint_weights: bool = False, config: Any = None,
                 feature_engineering_fn: Callable | None = None) -> None:
        """Takes a head of `tf.contrib.learn`, which has the weights, and what LinearClassifier takes."""
        del weight_column_name, _joint_weights  # the first had no effect; the second has none on numbers
        super().__init__(_linear_model_fn, model_dir, config, {
            "head": head, "feature_columns": list(feature_columns), "optimizer": optimizer,
            "gradient_clip_norm": gradient_clip_norm}, feature_engineering_fn)


class DNNLinearCombinedEstimator(OldNames, LearnEstimator):
    """A linear model and hidden layers, whose logits are added, under a head."""

    def __init__(self, head: Any, model_dir: str | None = None, linear_feature_columns: Sequence | None = None,
                 linear_optimizer: Any = None, _joint_linear_weights: bool = False,
                 dnn_feature_columns: Sequence | None = None, dnn_optimizer: Any = None,
                 dnn_hidden_units: Sequence[int] | None = None, dnn_activation_fn: Callable | None = None,
                 dnn_dropout: float | None = None, gradient_clip_norm: float | None = None, config: Any = None,
                 feature_engineering_fn: Callable | None = None, embedding_lr_multipliers: Mapping | None = None,
                 fix_global_step_increment_bug: bool = False, input_layer_partitioner: Any = None) -> None:
        """Takes a head of `tf.contrib.learn`, and what DNNLinearCombinedClassifier takes.

        By default each step of both parts counts two global steps, as it did.

        Raises:
          ValueError: there are no columns, or no hidden units for those of the hidden layers.
        """
        if not linear_feature_columns and not dnn_feature_columns:
            raise ValueError("linear_feature_columns and dnn_feature_columns are both empty; a model needs columns")
        if dnn_feature_columns and not dnn_hidden_units:
            raise ValueError(f"dnn_feature_columns need dnn_hidden_units; got {dnn_hidden_units}")
        super().__init__(_combined_model_fn, model_dir, config, {
            "head": head, "linear_feature_columns": list(linear_feature_columns or ()),
            "linear_optimizer": linear_optimizer, "feature_columns": list(dnn_feature_columns or ()),
            "optimizer": dnn_optimizer, "hidden_units": dnn_hidden_units,
            "activation_fn": dnn_activation_fn or tf.nn.relu, "dropout": dnn_dropout,
            "gradient_clip_norm": gradient_clip_norm, "embedding_lr_multipliers": embedding_lr_multipliers,
            "counts_once": fix_global_step_increment_bug, "input_layer_partitioner": input_layer_partitioner,
        }, feature_engineering_fn)


def LogisticRegressor(model_fn: Callable, thresholds: Sequence[float] | None = None,  # noqa: N802 (it was a function)
                      model_dir: str | None = None, config: Any = None,
                      feature_engineering_fn: Callable | None = None) -> LearnEstimator:
    """Returns an Estimator of a model_fn(features, labels, mode), with the metrics of two classes.

    Args:
      model_fn: returns probabilities of the second class, loss and train_op.
      thresholds: of the metrics; 0.5 by default.
    """
    def with_metrics(features: Any, labels: Any, mode: str, params: dict) -> ModelFnOps:
        predictions, loss, train_op = model_fn(features, labels, mode)
        metrics = None
        if mode == tf.estimator.ModeKeys.EVAL:
            only = next(iter(labels.values())) if isinstance(labels, dict) and len(labels) == 1 else labels
            metrics = of_probabilities(predictions, only, params["thresholds"] or [0.5])
        return ModelFnOps(mode, predictions, loss, train_op, metrics, output_alternatives={
            "head": (ProblemType.LOGISTIC_REGRESSION, {"predictions": predictions})})
    return LearnEstimator(with_metrics, model_dir, config, {"thresholds": thresholds}, feature_engineering_fn)


def _dnn_model_fn(features: Any, labels: Any, mode: str, params: dict, config: Any) -> ModelFnOps:
    features = _named(features)
    params = {**params, "input_layer_partitioner": _partitioner(config, params["input_layer_min_slice_size"])}
    with tf.variable_scope("dnn", partitioner=tf.min_max_variable_partitioner(config.num_ps_replicas)):
        logits = _dnn_logits(features, mode, params, config)
        # In the scope as well, as the names of the head's variables were.
        return params["head"].create_model_fn_ops(
            features=features, mode=mode, labels=labels, logits=logits,
            train_op_fn=lambda loss: _dnn_step(loss, params, variables=None))


def _partitioner(config: Any, min_slice_bytes: int | None = None) -> Callable:
    """Returns what divides large tables among the ps."""
    return tf.min_max_variable_partitioner(config.num_ps_replicas, min_slice_size=min_slice_bytes or _MIN_SLICE_BYTES)


def _dnn_logits(features: dict, mode: str, params: dict, config: Any) -> tf.Tensor:
    """Returns the logits of hidden layers, in the scope "dnn"; their variables are in the collection "dnn"."""
    given = params["activation_fn"]
    activation_fn = _ACTIVATIONS[given] if isinstance(given, str) else given
    partitioner = params["input_layer_partitioner"] or _partitioner(config)
    with tf.variable_scope("input_from_feature_columns", partitioner=partitioner) as scope:
        net = input_from_feature_columns(features, params["feature_columns"], ["dnn"], scope=scope)
    for index, size in enumerate(params["hidden_units"]):
        net = linear_layer(net, size, f"hiddenlayer_{index}", ["dnn"])
        if activation_fn is not None:
            net = activation_fn(net)
        if params["dropout"] is not None and mode == tf.estimator.ModeKeys.TRAIN:
            net = tf.nn.dropout(net, rate=params["dropout"])
        _summarize(f"dnn/hiddenlayer_{index}", net)
    logits = linear_layer(net, params["head"].logits_dimension, "logits", ["dnn"])
    _summarize("dnn/logits", logits)
    return logits


def _summarize(name: str, values: tf.Tensor) -> None:
    with tf.name_scope(""):
        tf.summary.scalar(f"{name}/fraction_of_zero_values", tf.nn.zero_fraction(values))
        tf.summary.histogram(f"{name}/activation", values)


def _dnn_step(loss: tf.Tensor, params: dict, variables: Any, **options: Any) -> tf.Tensor:
    """Returns the operation of a step of hidden layers."""
    return optimize_loss(
        loss, tf.train.get_global_step(), _DNN_RATE, _called(params["optimizer"] or "Adagrad"), name="dnn",
        variables=variables, summaries=[],
        gradient_multipliers=_multipliers(params["embedding_lr_multipliers"]),
        clip_gradients=params["gradient_clip_norm"], **options)


def _multipliers(by_column: Mapping | None) -> dict | None:
    """Returns name of a variable -> factor of its gradient, for embedding column -> factor.

    Raises:
      ValueError: a column has no variable.
    """
    found = {}
    for column, factor in (by_column or {}).items():
        own = [variable for variable in tf.get_collection("dnn")
               if variable.op.name.startswith(f"dnn/input_from_feature_columns/input_layer/{column.name}/")]
        if not own:
            raise ValueError(f"embedding_lr_multipliers: column {column.name} has no embedding of its own")
        found.update({variable.name: factor for variable in own})
    return found or None


def _linear_model_fn(features: Any, labels: Any, mode: str, params: dict, config: Any) -> ModelFnOps:
    features = _named(features)
    columns = params["feature_columns"]

    def train_op_fn(loss: tf.Tensor) -> tf.Operation:
        variables = tf.get_collection("linear")
        gradients = tf.gradients(loss, variables)
        if params["gradient_clip_norm"]:
            gradients, _ = tf.clip_by_global_norm(gradients, params["gradient_clip_norm"])
        made = _called(params["optimizer"]) or tf.train.FtrlOptimizer(_linear_rate(columns))
        if isinstance(made, str):
            made = OPTIMIZERS[made](learning_rate=_LINEAR_RATE)
        return made.apply_gradients(zip(gradients, variables), global_step=tf.train.get_global_step())
    with tf.variable_scope("linear", partitioner=_partitioner(config)) as scope:
        logits = _linear_logits(features, columns, params["head"], scope)
        return params["head"].create_model_fn_ops(
            features=features, mode=mode, labels=labels, train_op_fn=train_op_fn, logits=logits)


def _linear_logits(features: dict, columns: list, head: Any, scope: Any) -> tf.Tensor:
    """Returns the logits of a linear model; its variables are in the collection "linear"."""
    return weighted_sum_from_feature_columns(features, columns, head.logits_dimension, ["linear"], scope=scope)[0]


def _called(optimizer: Any) -> Any:
    """Returns an optimizer, or its name, for one or for a function that makes it."""
    return optimizer() if callable(optimizer) else optimizer


def _linear_rate(columns: list) -> float:
    return min(_LINEAR_RATE, 1 / math.sqrt(len(columns)))


def _combined_model_fn(features: Any, labels: Any, mode: str, params: dict, config: Any) -> ModelFnOps:
    features, head = _named(features), params["head"]
    # Once and before the layers, so that what a function makes, such as a variable, has its name of TensorFlow 1.
    optimizers = {name: _called(params[name]) for name in ("linear_optimizer", "optimizer")}
    params = {**params, **optimizers}
    if any(isinstance(optimizer, tf.train.SyncReplicasOptimizer) for optimizer in optimizers.values()):
        raise ValueError("a model of two parts takes no SyncReplicasOptimizer; DNNEstimator and LinearEstimator do")
    linear_columns, parts = params["linear_feature_columns"], []
    if params["feature_columns"]:
        with tf.variable_scope("dnn", partitioner=tf.min_max_variable_partitioner(config.num_ps_replicas)):
            parts.append(_dnn_logits(features, mode, params, config))
    if linear_columns:
        with tf.variable_scope("linear", partitioner=_partitioner(config)) as scope:
            parts.append(_linear_logits(features, linear_columns, head, scope))
        _summarize("linear", parts[-1])
    options = {"increment_global_step": not params["counts_once"]}

    def train_op_fn(loss: tf.Tensor) -> tf.Operation:
        steps, global_step = [], tf.train.get_global_step()
        if params["feature_columns"]:
            steps.append(_dnn_step(loss, params, tf.get_collection("dnn"), **options))
        if linear_columns:
            steps.append(optimize_loss(
                loss, global_step, _linear_rate(linear_columns), params["linear_optimizer"] or "Ftrl",
                name="linear", clip_gradients=params["gradient_clip_norm"], variables=tf.get_collection("linear"),
                summaries=[], **options))
        if not params["counts_once"]:
            return tf.group(*steps)
        with tf.control_dependencies(steps):
            return tf.assign_add(global_step, 1).op
    return head.create_model_fn_ops(
        features=features, mode=mode, labels=labels, train_op_fn=train_op_fn, logits=tf.add_n(parts))


def _named(features: Any) -> dict:
    return features if isinstance(features, dict) else {KEY: features}


class KernelLinearClassifier(OldNames, LearnEstimator):
    """A linear classifier of columns, and of features that mappers make of some (`tf.contrib.kernel_methods`)."""

    def __init__(self, feature_columns: Sequence | None = None, model_dir: str | None = None, n_classes: int = 2,
                 weight_column_name: str | None = None, optimizer: Any = None, kernel_mappers: Mapping | None = None,
                 config: Any = None) -> None:
        """Takes what LinearClassifier takes, and real valued column -> list of mappers."""
        if not feature_columns and not kernel_mappers:
            raise ValueError("feature_columns and kernel_mappers are both empty; a model needs some")
        if not all(isinstance(mapper, DenseKernelMapper) for mappers in (kernel_mappers or {}).values()
                   for mapper in mappers):
            raise ValueError(f"kernel_mappers must be column -> list of DenseKernelMapper; got {kernel_mappers}")
        super().__init__(_kernel_model_fn, model_dir, config, {
            "head": multi_class_head(n_classes, weight_column_name=weight_column_name), "gradient_clip_norm": None,
            "feature_columns": list(feature_columns or ()), "optimizer": optimizer, "kernel_mappers": kernel_mappers})

    def predict_classes(self, input_fn: Callable | None = None) -> Any:
        """Yields the class of each example."""
        return (each["classes"] for each in self.predict(input_fn=input_fn, outputs=["classes"]))

    def predict_proba(self, input_fn: Callable | None = None) -> Any:
        """Yields the probability of each class, [classes], for each example."""
        return (each["probabilities"] for each in self.predict(input_fn=input_fn, outputs=["probabilities"]))


def _kernel_model_fn(features: Any, labels: Any, mode: str, params: dict, config: Any) -> ModelFnOps:
    features, columns = dict(_named(features)), list(params["feature_columns"])
    for column, mappers in (params["kernel_mappers"] or {}).items():
        name = f"{column.name}_MAPPED"
        features[name] = tf.concat([mapper.map(features[column.name]) for mapper in mappers], 1)
        columns.append(tf.feature_column.numeric_column(name, (sum(mapper.output_dim for mapper in mappers),)))
    return _linear_model_fn(features, labels, mode, {**params, "feature_columns": columns}, config)
