"""contrib.learn's Estimators: those of tf.estimator with `fit`, and with arrays in place of input functions."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.parts.legacy.names.contrib.learn import inputs
from ps_train.parts.legacy.names.contrib.learn import metrics as metrics_module

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
        return self.train(inputs.make_input_fn(input_fn, x, y, batch_size, is_training=True, is_named=self.takes_names),
                          hooks=list(monitors or ()), steps=steps, max_steps=max_steps)

    def evaluate(self, x: Any = None, y: Any = None, input_fn: Callable | None = None,  # type: ignore[override]
                 batch_size: int | None = None, steps: int | None = None, hooks: Any = None,
                 checkpoint_path: str | None = None, name: str | None = None, metrics: Any = None,
                 **ignored: Any) -> dict:
        """Evaluates by an input function, also as the first argument, or by arrays; `metrics` are MetricSpecs."""
        del ignored
        if callable(x):
            x, input_fn = None, x
        evaluate = metrics_module.with_metrics(self, metrics).evaluate if metrics else super().evaluate
        return evaluate(inputs.make_input_fn(input_fn, x, y, batch_size, is_named=self.takes_names),
                        steps=steps, hooks=hooks, checkpoint_path=checkpoint_path, name=name)

    def predict(self, x: Any = None, input_fn: Callable | None = None, batch_size: int | None = None,
                *args: Any, **kwargs: Any) -> Any:
        """Yields a dictionary of predictions for each example."""
        if callable(x):
            x, input_fn = None, x
        for name in ("as_iterable", "outputs"):
            kwargs.pop(name, None)
        return super().predict(
            inputs.make_input_fn(input_fn, x, None, batch_size, is_named=self.takes_names), *args, **kwargs)

    def predict_classes(self, x: Any = None, input_fn: Callable | None = None, **kwargs: Any) -> Any:
        """Yields the class of each example."""
        return (found["class_ids"][0] for found in self.predict(x, input_fn, **kwargs))

    def predict_scores(self, x: Any = None, input_fn: Callable | None = None, **kwargs: Any) -> Any:
        """Yields the value of each example."""
        return (found["predictions"][0] for found in self.predict(x, input_fn, **kwargs))


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
