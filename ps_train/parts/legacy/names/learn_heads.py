"""The heads of `tf.contrib.learn`: what they make of logits in a model_fn.

    multi_class_head(3).create_model_fn_ops(features, mode, labels, train_op_fn, logits)  ->  ModelFnOps

Those of `tf.contrib.estimator` (heads.py) are newer: they have other metrics, predictions and arguments.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf
from tensorflow.python.ops import lookup_ops  # tables of words; tf.lookup's need an initializer of their own

from ps_train.parts.legacy.names import learn_head_metrics as metrics
from ps_train.parts.legacy.names.learn import LearnModeKeys, ModelFnOps
from ps_train.parts.legacy.names.learn_head_losses import (
    as_loss,
    cross_entropy,
    hinge,
    log_loss,
    poisson,
    sigmoid_cross_entropy,
    squared,
)
from ps_train.parts.legacy.names.learn_metrics import PredictionKey, ProblemType

_NO_STEP = "training needs a train_op_fn; got None"


class Head(abc.ABC):
    """Makes predictions, loss, metrics and exports of logits."""

    @property
    @abc.abstractmethod
    def logits_dimension(self) -> int:
        """The size of the logits of one example."""

    @abc.abstractmethod
    def create_model_fn_ops(self, features: Any, mode: str, labels: Any = None, train_op_fn: Callable | None = None,
                            logits: Any = None, logits_input: Any = None, scope: Any = None) -> ModelFnOps:
        """Returns the result of a model_fn.

        Args:
          features: name -> tensor, of which one may be the weight of each example.
          mode: of LearnModeKeys.
          labels: a tensor, or name -> tensor.
          train_op_fn: takes the loss, float32 []; returns the operation of a step.
          logits: float32 [batch, logits_dimension].
          logits_input: float32 [batch, size] instead, of which a linear layer makes logits.
          scope: a variable scope.
        """


class _Labels(NamedTuple):
    """Labels as they were given, for metrics, and as the loss takes them."""

    given: Any
    ids: Any


class _SingleHead(Head):
    """A head of one kind of label."""

    scope_name: str
    problem_type = ProblemType.CLASSIFICATION
    loss_fn: Callable

    def __init__(self, size: int, label_name: str | None, weight_column_name: str | None, enable_centered_bias: bool,
                 head_name: str | None, loss_fn: Callable | None = None, thresholds: Sequence[float] | None = None,
                 metric_class_ids: Sequence[int] | None = None) -> None:
        """Takes the size of the logits, and what the functions below take.

        Raises:
          ValueError: the size is not positive, or a class is none of that number.
        """
        if size is None or size < 1:
            raise ValueError(f"the size of the logits must be at least 1; got {size}")
        self._size = size
        self.label_name, self.weight_column_name, self.head_name = label_name, weight_column_name, head_name
        self._has_bias = enable_centered_bias
        self._loss_fn = as_loss(loss_fn) if loss_fn else type(self).loss_fn
        self._thresholds = tuple(thresholds or (0.5,))
        self._class_ids = tuple(metric_class_ids or ())
        for class_id in self._class_ids:
            if not 0 <= class_id < size:
                raise ValueError(f"metric_class_ids has {class_id}; the classes are 0 to {size - 1}")

    @property
    def logits_dimension(self) -> int:
        """The size of the logits of one example."""
        return self._size

    def create_model_fn_ops(self, features: Any, mode: str, labels: Any = None, train_op_fn: Callable | None = None,
                            logits: Any = None, logits_input: Any = None, scope: Any = None) -> ModelFnOps:
        """Returns the result of a model_fn; the arguments are those of Head."""
        _check_mode(mode)
        with tf.variable_scope(scope, self.head_name or self.scope_name):
            has_labels = mode != LearnModeKeys.INFER and labels is not None
            taken = self._taken(labels[self.label_name] if isinstance(labels, dict) else labels) if has_labels else None
            logits = _logits(logits, logits_input, self._size)
            bias = _centered_bias(self._size, self.head_name) if self._has_bias else None
            if bias is not None:
                logits = tf.nn.bias_add(logits, bias)
            with tf.name_scope("predictions"):
                predictions = self._predictions(logits)
            exports = {self.head_name: (self.problem_type, self._exported(predictions))}
            if taken is None:
                return ModelFnOps(mode, predictions, output_alternatives=exports)
            weights = _weights(features, self.weight_column_name)
            loss, average = self._loss_fn(taken.ids, logits, weights)
            _summary("loss", self.head_name, average)
            train_op = None
            if mode == LearnModeKeys.TRAIN:
                train_op = self._train_op(loss, taken, train_op_fn, bias, weights, tf.shape(logits)[0])
            found = self._metrics(predictions, taken, weights)
            if self.head_name:
                found = {f"{name}/{self.head_name}": metric for name, metric in (
                    ("loss", tf.metrics.mean(average)), *found.items())}
            elif mode == LearnModeKeys.EVAL:
                loss = average  # whose mean is the Estimator's own metric "loss"
            return ModelFnOps(mode, predictions, loss, train_op, found, output_alternatives=exports)

    def _train_op(self, loss: tf.Tensor, labels: _Labels, train_op_fn: Callable | None, bias: Any, weights: Any,
                  count: tf.Tensor) -> Any:
        """Returns the operation of a step; a centered bias has one of its own."""
        if train_op_fn is None:
            raise ValueError(_NO_STEP)
        step = None
        if bias is not None:
            with tf.name_scope(None, "centered_bias_step") as name:
                alone = tf.reshape(tf.tile(bias, [count]), [count, self._size])
                losses = self._loss_fn(labels.ids, alone, weights)
                own_loss = tf.reduce_mean(tf.stack(losses))
                step = tf.train.AdagradOptimizer(0.1).minimize(own_loss, var_list=[bias], name=name)
        with tf.name_scope(None, "train_op"):
            train_op = train_op_fn(loss)
            return train_op if step is None else tf.group(train_op, step)

    def _taken(self, labels: Any) -> _Labels:
        """Returns the labels that the loss takes."""
        if isinstance(labels, tf.SparseTensor):
            raise ValueError("the labels of this head must be dense; got a SparseTensor")
        labels = tf.convert_to_tensor(labels)
        return _Labels(labels, labels)

    @abc.abstractmethod
    def _predictions(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the predictions by their names."""

    def _exported(self, predictions: dict) -> dict[str, tf.Tensor]:
        """Returns what a request of a model server gets: the probability and the name of each class."""
        probabilities = predictions[PredictionKey.PROBABILITIES]
        count, size = tf.unstack(tf.shape(probabilities))
        names = tf.tile(self._class_names(size)[tf.newaxis], [count, 1])
        return {PredictionKey.PROBABILITIES: probabilities, PredictionKey.CLASSES: names}

    def _class_names(self, size: tf.Tensor) -> tf.Tensor:
        return tf.as_string(tf.range(size))

    def _metrics(self, predictions: dict, labels: _Labels, weights: Any) -> dict:
        """Returns the metrics besides the loss."""
        return {"accuracy": tf.metrics.accuracy(labels.given, predictions[PredictionKey.CLASSES], weights)}


class _RegressionHead(_SingleHead):
    """Numbers."""

    scope_name, problem_type = "regression_head", ProblemType.LINEAR_REGRESSION
    loss_fn = staticmethod(squared)
    link_fn: Callable = staticmethod(tf.identity)

    def _predictions(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        logits = tf.squeeze(logits, 1) if self._size == 1 else logits
        return {PredictionKey.SCORES: self.link_fn(logits)}

    def _exported(self, predictions: dict) -> dict[str, tf.Tensor]:
        return predictions

    def _metrics(self, predictions: dict, labels: _Labels, weights: Any) -> dict:
        return {}


class _PoissonHead(_RegressionHead):
    """Counts, whose logarithms are the logits."""

    loss_fn, link_fn = staticmethod(poisson), staticmethod(tf.exp)


class _BinaryLogisticHead(_SingleHead):
    """One of two classes."""

    scope_name, problem_type = "binary_logistic_head", ProblemType.LOGISTIC_REGRESSION
    loss_fn = staticmethod(log_loss)

    def _predictions(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        both = _both(logits)
        return {PredictionKey.LOGITS: logits, PredictionKey.LOGISTIC: tf.sigmoid(logits),
                PredictionKey.PROBABILITIES: tf.nn.softmax(both), PredictionKey.CLASSES: tf.argmax(both, 1)}

    def _metrics(self, predictions: dict, labels: _Labels, weights: Any) -> dict:
        return {**super()._metrics(predictions, labels, weights), **metrics.of_two_classes(
            predictions[PredictionKey.LOGISTIC], labels.given, weights, self._thresholds)}


class _BinarySvmHead(_SingleHead):
    """One of two classes, by the hinge loss."""

    scope_name, problem_type = "binary_svm_head", ProblemType.LOGISTIC_REGRESSION
    loss_fn = staticmethod(hinge)

    def _predictions(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        return {PredictionKey.LOGITS: logits, PredictionKey.CLASSES: tf.argmax(_both(logits), 1)}

    def _exported(self, predictions: dict) -> dict[str, tf.Tensor]:
        return predictions


class _MultiClassHead(_SingleHead):
    """One of several classes."""

    scope_name = "multi_class_head"
    loss_fn = staticmethod(cross_entropy)

    def __init__(self, *args: Any, label_keys: Sequence[str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if label_keys and len(label_keys) != self._size:
            raise ValueError(f"label_keys has {len(label_keys)} words for {self._size} classes")
        self._words = list(label_keys or ())

    def _taken(self, labels: Any) -> _Labels:
        given = super()._taken(labels).given
        return _Labels(given, lookup_ops.index_table_from_tensor(self._words).lookup(given) if self._words else given)

    def _class_names(self, size: tf.Tensor) -> tf.Tensor:
        return tf.constant(self._words) if self._words else super()._class_names(size)

    def _predictions(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        classes = tf.argmax(logits, 1)
        if self._words:
            classes = lookup_ops.index_to_string_table_from_tensor(self._words).lookup(classes)
        return {PredictionKey.LOGITS: logits, PredictionKey.PROBABILITIES: tf.nn.softmax(logits),
                PredictionKey.CLASSES: classes}

    def _metrics(self, predictions: dict, labels: _Labels, weights: Any) -> dict:
        found = super()._metrics(predictions, labels, weights)
        for class_id in () if self._words else self._class_ids:
            found.update(metrics.of_class(predictions, labels.given, weights, class_id))
        return found


class _MultiLabelHead(_SingleHead):
    """Any of several classes."""

    scope_name = "multi_label_head"
    loss_fn = staticmethod(sigmoid_cross_entropy)

    def _taken(self, labels: Any) -> _Labels:
        if isinstance(labels, tf.SparseTensor):
            labels = tf.cast(tf.sparse.to_indicator(labels, self._size), tf.int64)
        return super()._taken(labels)

    def _predictions(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        return {PredictionKey.LOGITS: logits, PredictionKey.PROBABILITIES: tf.sigmoid(logits),
                PredictionKey.CLASSES: tf.cast(logits > 0, tf.int64)}

    def _metrics(self, predictions: dict, labels: _Labels, weights: Any) -> dict:
        found = {**super()._metrics(predictions, labels, weights), **metrics.areas(
            predictions[PredictionKey.PROBABILITIES], labels.given, weights)}
        for class_id in self._class_ids:
            found.update(metrics.of_label(predictions, labels.given, weights, class_id))
        return found


class _LossOnlyHead(Head):
    """A loss that other heads are trained with, such as a regularization."""

    logits_dimension = 0  # type: ignore[assignment]

    def __init__(self, loss_fn: Callable, head_name: str | None) -> None:
        self._loss_fn, self.head_name = loss_fn, head_name or "loss_only_head"

    def create_model_fn_ops(self, features: Any, mode: str, labels: Any = None, train_op_fn: Callable | None = None,
                            logits: Any = None, logits_input: Any = None, scope: Any = None) -> ModelFnOps:
        """Returns the result of a model_fn, which has no predictions."""
        _check_mode(mode)
        if mode == LearnModeKeys.INFER:
            return ModelFnOps(mode, predictions={})
        with tf.variable_scope(scope, self.head_name):
            loss = self._loss_fn()
            loss = tf.add_n(loss) if isinstance(loss, list) else loss
            _summary("loss", self.head_name, loss)
            if mode == LearnModeKeys.TRAIN and train_op_fn is None:
                raise ValueError(_NO_STEP)
            return ModelFnOps(mode, {}, loss, train_op_fn(loss) if mode == LearnModeKeys.TRAIN else None)


class _MultiHead(Head):
    """Several heads of the same logits, or of logits by their names."""

    def __init__(self, heads: Sequence[Any], loss_weights: Sequence[float] | None) -> None:
        if not all(head.head_name for head in heads):
            raise ValueError("each head of multi_head needs a head_name")
        if loss_weights and len(loss_weights) != len(heads):
            raise ValueError(f"multi_head got {len(loss_weights)} loss_weights for {len(heads)} heads")
        self._heads, self._weights = heads, loss_weights

    @property
    def logits_dimension(self) -> int:
        """The size of the logits of all heads together."""
        return sum(head.logits_dimension for head in self._heads)

    def create_model_fn_ops(self, features: Any, mode: str, labels: Any = None, train_op_fn: Callable | None = None,
                            logits: Any = None, logits_input: Any = None, scope: Any = None) -> ModelFnOps:
        """Returns the result of a model_fn; predictions have the names (head, name)."""
        _check_mode(mode)
        parts = [head.create_model_fn_ops(
            features=features, mode=mode, labels=labels, train_op_fn=no_op_train_fn, logits=own,
            logits_input=logits_input if logits is None else None, scope=scope)
            for head, own in zip(self._heads, self._own_logits(logits))]
        named = [(head.head_name, part) for head, part in zip(self._heads, parts)]
        predictions = {(name, key): value for name, part in named for key, value in part.predictions.items()}
        if mode == LearnModeKeys.INFER:
            outputs = {name: part.export_outputs[name].outputs for name, part in named if part.predictions}
            return ModelFnOps(mode, predictions, output_alternatives={
                name: (None, tensors) for name, tensors in outputs.items()})
        losses = [part.loss for part in parts]
        loss = tf.add_n([loss * weight for loss, weight in zip(losses, self._weights)] if self._weights else losses)
        found = {name: metric for part in parts for name, metric in part.eval_metric_ops.items()}
        if mode == LearnModeKeys.EVAL:
            return ModelFnOps(mode, predictions, loss, eval_metric_ops=found)
        if train_op_fn is None:
            raise ValueError(_NO_STEP)
        train_op = tf.group(train_op_fn(loss), *(part.train_op for part in parts))
        return ModelFnOps(mode, loss=loss, train_op=train_op, eval_metric_ops=found)

    def _own_logits(self, logits: Any) -> list:
        """Returns the logits of each head."""
        if logits is None:
            return [None] * len(self._heads)
        if isinstance(logits, dict):
            return [None if isinstance(head, _LossOnlyHead) else logits[head.head_name] for head in self._heads]
        return tf.split(logits, [head.logits_dimension for head in self._heads], axis=1)


def learn_regression_head(label_name: str | None = None, weight_column_name: str | None = None,
                          label_dimension: int = 1, enable_centered_bias: bool = False, head_name: str | None = None,
                          link_fn: Callable | None = None) -> Head:
    """Returns a head of numbers, by the mean squared error; `link_fn` makes the predictions of the logits.

    Args:
      label_name: of the labels, if they are a dictionary.
      weight_column_name: the feature that is the weight of each example.
      label_dimension: numbers of an example.
      enable_centered_bias: whether a bias is added that learns from the labels alone.
      head_name: of the scope, and the end of the names of the metrics.
      link_fn: takes the logits; they are the predictions by default.
    """
    head = _RegressionHead(label_dimension, label_name, weight_column_name, enable_centered_bias, head_name)
    head.link_fn = link_fn or head.link_fn  # type: ignore[method-assign]
    return head


def learn_poisson_head(label_name: str | None = None, weight_column_name: str | None = None, label_dimension: int = 1,
                       enable_centered_bias: bool = False, head_name: str | None = None) -> Head:
    """Returns a head of counts."""
    return _PoissonHead(label_dimension, label_name, weight_column_name, enable_centered_bias, head_name)


def multi_class_head(n_classes: int, label_name: str | None = None, weight_column_name: str | None = None,
                     enable_centered_bias: bool = False, head_name: str | None = None,
                     thresholds: Sequence[float] | None = None, metric_class_ids: Sequence[int] | None = None,
                     loss_fn: Callable | None = None, label_keys: Sequence[str] | None = None) -> Head:
    """Returns a head of one of several classes; of two by one logit.

    Args:
      n_classes: at least 2.
      label_name, weight_column_name, enable_centered_bias, head_name: as of `learn_regression_head`.
      thresholds: of further metrics of two classes.
      metric_class_ids: of three or more classes, those that have metrics of their own.
      loss_fn: takes labels, logits and weights; returns float32 [].
      label_keys: the labels of three or more classes, if they are words.
    """
    if n_classes is None or n_classes < 2:
        raise ValueError(f"n_classes must be at least 2; got {n_classes}")
    common = (label_name, weight_column_name, enable_centered_bias, head_name, loss_fn, thresholds)
    if n_classes > 2:
        return _MultiClassHead(n_classes, *common, metric_class_ids, label_keys=label_keys)
    if metric_class_ids:
        raise ValueError("metric_class_ids needs three or more classes; n_classes is 2")
    if label_keys:
        raise ValueError("label_keys needs three or more classes; n_classes is 2")
    return _BinaryLogisticHead(1, *common)


def binary_svm_head(label_name: str | None = None, weight_column_name: str | None = None,
                    enable_centered_bias: bool = False, head_name: str | None = None,
                    thresholds: Sequence[float] | None = None) -> Head:
    """Returns a head of two classes, by the hinge loss."""
    return _BinarySvmHead(1, label_name, weight_column_name, enable_centered_bias, head_name, None, thresholds)


def multi_label_head(n_classes: int, label_name: str | None = None, weight_column_name: str | None = None,
                     enable_centered_bias: bool = False, head_name: str | None = None,
                     thresholds: Sequence[float] | None = None, metric_class_ids: Sequence[int] | None = None,
                     loss_fn: Callable | None = None) -> Head:
    """Returns a head of any of several classes; the labels are [batch, n_classes] of 0 and 1, or sparse ids."""
    if n_classes < 2:
        raise ValueError(f"n_classes must be at least 2; got {n_classes}")
    return _MultiLabelHead(n_classes, label_name, weight_column_name, enable_centered_bias, head_name, loss_fn,
                           thresholds, metric_class_ids)


def loss_only_head(loss_fn: Callable, head_name: str | None = None) -> Head:
    """Returns a head of a loss, of a list of some, that `loss_fn()` returns."""
    return _LossOnlyHead(loss_fn, head_name)


def multi_head(heads: Sequence[Any], loss_weights: Sequence[float] | None = None) -> Head:
    """Returns a head of several with names, whose losses are added."""
    return _MultiHead(heads, loss_weights)


def no_op_train_fn(loss: Any) -> tf.Operation:
    """Returns an operation that trains nothing."""
    del loss
    return tf.no_op()


def _check_mode(mode: str) -> None:
    if mode not in (LearnModeKeys.TRAIN, LearnModeKeys.EVAL, LearnModeKeys.INFER):
        raise ValueError(f"mode is {mode!r}; allowed: train, eval, infer")


def _both(logits: tf.Tensor) -> tf.Tensor:
    """Returns the logits of two classes for those of the second one, [batch, 1]."""
    return tf.concat([tf.zeros_like(logits), logits], 1)


def _summary(name: str, head_name: str | None, value: Any) -> None:
    with tf.name_scope(""):
        tf.summary.scalar(f"{name}/{head_name}" if head_name else name, value)


def _logits(logits: Any, logits_input: Any, size: int) -> tf.Tensor:
    """Returns logits [batch, size]; those of a linear layer if there are none.

    Raises:
      ValueError: both or none are given, or the logits have another size.
    """
    if (logits is None) == (logits_input is None):
        raise ValueError(f"a head takes one of logits and logits_input; got {'both' if logits is not None else 'none'}")
    if logits is None:
        return linear_layer(tf.convert_to_tensor(logits_input), size, "logits")
    logits = tf.convert_to_tensor(logits)
    if logits.shape.rank is not None:
        logits.shape[-1:].assert_is_compatible_with([size])
    return logits


def linear_layer(inputs: tf.Tensor, size: int, scope: Any, collections: Sequence[str] = ()) -> tf.Tensor:
    """Returns a linear layer [batch, size], with the names of contrib.layers for its variables."""
    with tf.variable_scope(scope):
        keys = [tf.GraphKeys.GLOBAL_VARIABLES, *collections]
        weights = tf.get_variable("weights", [int(inputs.shape[-1]), size], inputs.dtype,
                                  initializer=tf.glorot_uniform_initializer(), collections=keys)
        biases = tf.get_variable("biases", [size], inputs.dtype, initializer=tf.zeros_initializer(), collections=keys)
        return tf.nn.bias_add(tf.matmul(inputs, weights), biases)


def _centered_bias(size: int, head_name: str | None) -> tf.Variable:
    bias = tf.Variable(tf.zeros([size]), name="centered_bias_weight")
    for index in range(size):
        name = f"centered_bias/bias_{index}"
        tf.summary.scalar(f"{name}/{head_name}" if head_name else name, bias[index])
    return bias


def _weights(features: Any, name: str | None) -> Any:
    """Returns the weights of the examples, float32 [batch, 1] or of more dimensions, or None."""
    if not name:
        return None
    if name not in features:
        raise ValueError(f"weight_column_name is {name!r}; the features are {sorted(features)}")
    weights = tf.cast(features[name], tf.float32)
    return tf.reshape(weights, [-1, 1]) if weights.shape.rank == 1 else weights
