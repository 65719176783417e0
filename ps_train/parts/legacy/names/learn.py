"""contrib.learn's Estimators: those of tf.estimator with `fit`, with arrays for input functions, and with MetricSpecs.

Features may be one array or tensor, without a name.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

# Arguments that the Estimators do not have any more, and that changed how they train.
_GONE = ("enable_centered_bias", "gradient_clip_norm", "feature_engineering_fn", "embedding_lr_multipliers",
         "input_layer_min_slice_size", "_joint_linear_weights", "_joint_weight",
         "dnn_linear_combined_feature_engineering_fn")
_ALWAYS_SO = "fix_global_step_increment_bug"
_log = logging.getLogger(__name__)


class LearnModeKeys:
    """What a model is built for."""

    TRAIN = "train"
    EVAL = "eval"
    INFER = "infer"
    PREDICT = "infer"


def model_fn_ops(mode: str, predictions: Any = None, loss: Any = None, train_op: Any = None,
                 eval_metric_ops: dict | None = None, output_alternatives: dict | None = None,
                 training_chief_hooks: Iterable | None = None, training_hooks: Iterable | None = None,
                 scaffold: Any = None) -> Any:
    """Returns the EstimatorSpec of a ModelFnOps; each of `output_alternatives` becomes an export."""
    exports = {name or tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY:
               tf.estimator.export.PredictOutput(tensors) for name, (_, tensors) in (output_alternatives or {}).items()}
    return tf.estimator.EstimatorSpec(
        mode, predictions=predictions, loss=loss, train_op=train_op, eval_metric_ops=eval_metric_ops,
        export_outputs=exports or None, training_chief_hooks=training_chief_hooks, training_hooks=training_hooks,
        scaffold=scaffold)


class _Fitting:
    """The methods of contrib.learn's Estimators."""

    # Whether the features must be a dictionary.
    takes_names = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if dropped := [name for name in _GONE if kwargs.pop(name, None)]:
            _log.warning("tf.contrib.learn.%s: %s has no effect, because the Estimator has no such argument",
                         type(self).__name__.removeprefix("Learn"), ", ".join(dropped))
        kwargs.pop(_ALWAYS_SO, None)
        config = kwargs.get("config")
        if config is not None and kwargs.get("model_dir") and config.model_dir != kwargs["model_dir"]:
            kwargs["config"] = config.replace(model_dir=kwargs["model_dir"])
        super().__init__(*args, **kwargs)

    def fit(self, x: Any = None, y: Any = None, input_fn: Callable | None = None, steps: int | None = None,
            batch_size: int | None = None, monitors: Iterable | None = None, max_steps: int | None = None) -> Any:
        """Trains by an input function, or by arrays x [n, ...] and y [n]; `monitors` are hooks."""
        return self.train(make_input_fn(input_fn, x, y, batch_size, is_training=True, is_named=self.takes_names),
                          hooks=list(monitors or ()), steps=steps, max_steps=max_steps)

    def evaluate(self, x: Any = None, y: Any = None, input_fn: Callable | None = None,  # type: ignore[override]
                 batch_size: int | None = None, steps: int | None = None, hooks: Any = None,
                 checkpoint_path: str | None = None, name: str | None = None, metrics: Any = None,
                 **ignored: Any) -> dict:
        """Evaluates by an input function, also as the first argument, or by arrays; `metrics` are MetricSpecs."""
        del ignored
        if callable(x):
            x, input_fn = None, x
        evaluate = with_metrics(self, metrics).evaluate if metrics else super().evaluate
        return evaluate(make_input_fn(input_fn, x, y, batch_size, is_named=self.takes_names),
                        steps=steps, hooks=hooks, checkpoint_path=checkpoint_path, name=name)

    def predict(self, x: Any = None, input_fn: Callable | None = None, batch_size: int | None = None,
                *args: Any, **kwargs: Any) -> Any:
        """Yields a dictionary of predictions for each example."""
        if callable(x):
            x, input_fn = None, x
        for name in ("as_iterable", "outputs"):
            kwargs.pop(name, None)
        return super().predict(
            make_input_fn(input_fn, x, None, batch_size, is_named=self.takes_names), *args, **kwargs)

    def predict_classes(self, x: Any = None, input_fn: Callable | None = None, **kwargs: Any) -> Any:
        """Yields the class of each example."""
        return (prediction["class_ids"][0] for prediction in self.predict(x, input_fn, **kwargs))

    def predict_scores(self, x: Any = None, input_fn: Callable | None = None, **kwargs: Any) -> Any:
        """Yields the value of each example."""
        return (prediction["predictions"][0] for prediction in self.predict(x, input_fn, **kwargs))


class LearnEstimator(_Fitting, tf.estimator.Estimator):
    """An Estimator whose `model_fn` may call the labels `targets`."""

    takes_names = False

    def __init__(self, model_fn: Callable, model_dir: str | None = None, config: Any = None, params: Any = None,
                 **others: Any) -> None:
        super().__init__(_with_labels(model_fn), model_dir=model_dir, config=config, params=params, **others)


def _with_labels(model_fn: Callable) -> Callable:
    """Returns a model_fn(features, labels, mode, params, config) for one of contrib.learn, which took them in order."""
    names = list(inspect.signature(model_fn).parameters)
    if "features" in names and "labels" in names:
        return model_fn

    def call(features: Any, labels: Any, mode: str, params: Any = None, config: Any = None) -> Any:
        known = {"mode": mode, "params": params, "config": config}
        return model_fn(features, labels, **{name: known[name] for name in names[2:] if name in known})
    return call


class LearnDNNClassifier(_Fitting, tf.estimator.DNNClassifier):
    """A DNNClassifier with `fit`."""


class LearnDNNRegressor(_Fitting, tf.estimator.DNNRegressor):
    """A DNNRegressor with `fit`."""


class LearnLinearClassifier(_Fitting, tf.estimator.LinearClassifier):
    """A LinearClassifier with `fit`."""


class LearnLinearRegressor(_Fitting, tf.estimator.LinearRegressor):
    """A LinearRegressor with `fit`."""


class LearnDNNLinearCombinedClassifier(_Fitting, tf.estimator.DNNLinearCombinedClassifier):
    """A DNNLinearCombinedClassifier with `fit`."""


class LearnDNNLinearCombinedRegressor(_Fitting, tf.estimator.DNNLinearCombinedRegressor):
    """A DNNLinearCombinedRegressor with `fit`."""


# The name of the features that have none.
KEY = "x"


def infer_real_valued_columns_from_input(x: Any) -> list:
    """Returns the columns of an array [n, ...] of numbers, or of a dictionary of such arrays."""
    arrays = x if isinstance(x, dict) else {KEY: x}
    return [tf.feature_column.numeric_column(name, np.shape(array)[1:] or (1,)) for name, array in arrays.items()]


def infer_real_valued_columns_from_input_fn(input_fn: Callable) -> list:
    """Returns the columns of the features that an input function makes."""
    with tf.Graph().as_default():
        made = input_fn()
        if isinstance(made, tf.data.Dataset):
            made = tf.data.make_one_shot_iterator(made).get_next()
        features = _named(*made)[0]
        return [tf.feature_column.numeric_column(name, tensor.shape.as_list()[1:] or (1,))
                for name, tensor in features.items()]


def make_input_fn(input_fn: Callable | None, x: Any = None, y: Any = None, batch_size: int | None = None,
                  is_training: bool = False, is_named: bool = True) -> Callable:
    """Returns an input function of the Estimator, from one of contrib.learn or from arrays.

    Args:
      input_fn: returns (features, labels); features may be one tensor.
      x: instead of it, an array [n, ...] or a dictionary of arrays.
      y: the labels, [n].
      batch_size: number of examples in a batch of the arrays; all by default.
      is_training: whether the arrays are shuffled and repeated.
      is_named: whether features that are one array or tensor become a dictionary.

    Raises:
      ValueError: neither is given.
    """
    if input_fn is not None:
        return (lambda: _with_names(input_fn())) if is_named else input_fn
    if x is None:
        raise ValueError("input_fn or x must be given")
    if isinstance(x, dict):
        arrays = {name: np.asarray(array) for name, array in x.items()}
    else:
        arrays = {KEY: np.asarray(x)} if is_named else np.asarray(x)
    size = len(next(iter(arrays.values())) if isinstance(arrays, dict) else arrays)
    return tf.estimator.inputs.numpy_input_fn(
        arrays, None if y is None else np.asarray(y), batch_size=batch_size or size,
        num_epochs=None if is_training else 1, shuffle=is_training)


def _with_names(made: Any) -> Any:
    """Returns what an input function made, a Dataset or (features, labels), with features that are a dictionary."""
    if isinstance(made, tf.data.Dataset):
        spec = made.element_spec
        is_named = isinstance(spec[0] if isinstance(spec, tuple) else spec, dict)
        return made if is_named else made.map(_named)
    return _named(*made) if isinstance(made, tuple) else _named(made)


def _named(features: Any, labels: Any = None) -> tuple[dict, Any]:
    return (features if isinstance(features, dict) else {KEY: features}), labels


class PredictionKey:
    """The names of a model's predictions."""

    CLASSES = "classes"
    PROBABILITIES = "probabilities"
    LOGITS = "logits"
    LOGISTIC = "logistic"
    SCORES = "predictions"


class ProblemType:
    """The kind of what a model predicts."""

    UNSPECIFIED = 0
    CLASSIFICATION = 1
    LINEAR_REGRESSION = 2
    LOGISTIC_REGRESSION = 3


class MetricSpec:
    """A metric function, and which prediction, label and weight it takes."""

    def __init__(self, metric_fn: Callable, prediction_key: str | None = None, label_key: str | None = None,
                 weight_key: str | None = None) -> None:
        """Takes a function of `predictions`, `labels` and `weights`; a key of None is the only tensor that there is."""
        self._metric_fn = metric_fn
        self._keys = (prediction_key, label_key, weight_key)

    def create_metric_ops(self, inputs: Mapping, labels: Any, predictions: Any) -> Any:
        """Returns the value and update op of the metric.

        Args:
          inputs: name -> feature, of which one may be the weight.
          labels: a tensor, or a dictionary of tensors.
          predictions: the same.

        Raises:
          ValueError: a key is needed to choose a tensor.
        """
        prediction_key, label_key, weight_key = self._keys
        if prediction_key == PredictionKey.CLASSES and "class_ids" in predictions:
            predictions, prediction_key = tf.squeeze(predictions["class_ids"], axis=1), None
        weights = {} if weight_key is None else {"weights": inputs[weight_key]}
        return self._metric_fn(predictions=_choose(predictions, prediction_key, "prediction_key"),
                               labels=_choose(labels, label_key, "label_key"), **weights)


def _choose(tensors: Any, key: str | None, name: str) -> Any:
    if not isinstance(tensors, dict):
        return tensors
    if key is None and len(tensors) > 1:
        raise ValueError(f"MetricSpec: {name} must be one of {', '.join(sorted(tensors))}")
    return tensors[key] if key is not None else next(iter(tensors.values()))


def with_metrics(estimator: Any, metrics: Mapping[Any, Any] | None) -> Any:
    """Returns an Estimator that evaluates further metrics.

    Args:
      estimator: the Estimator.
      metrics: name -> MetricSpec; or (name, name of the prediction) -> function of predictions and labels.
    """
    if not metrics:
        return estimator
    specs = {name if isinstance(name, str) else name[0]:
             spec if isinstance(spec, MetricSpec) else MetricSpec(spec, None if isinstance(name, str) else name[1])
             for name, spec in metrics.items()}

    def metric_fn(features: Mapping, labels: Any, predictions: Any) -> dict:
        return {name: spec.create_metric_ops(features, labels, predictions) for name, spec in specs.items()}
    return tf.estimator.add_metrics(estimator, metric_fn)
