"""contrib.learn on the Estimator: `fit`, arrays, MetricSpecs, Experiment, learn_runner and exports.

Features may be one array or tensor, without a name. Arguments without a counterpart have no effect.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

# Arguments that the Estimators no longer have, and that changed how they train.
_DROPPED = ("enable_centered_bias", "gradient_clip_norm", "feature_engineering_fn", "embedding_lr_multipliers",
            "input_layer_min_slice_size", "_joint_linear_weights", "_joint_weight",
            "dnn_linear_combined_feature_engineering_fn")
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

    takes_names = True  # whether the features must be a dictionary

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if dropped := [name for name in _DROPPED if kwargs.pop(name, None)]:
            _log.warning("tf.contrib.learn.%s: %s has no effect, because the Estimator has no such argument",
                         type(self).__name__.removeprefix("Learn"), ", ".join(dropped))
        kwargs.pop("fix_global_step_increment_bug", None)  # it always is
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
        x, input_fn = (None, x) if callable(x) else (x, input_fn)
        evaluate = with_metrics(self, metrics).evaluate if metrics else super().evaluate
        return evaluate(make_input_fn(input_fn, x, y, batch_size, is_named=self.takes_names),
                        steps=steps, hooks=hooks, checkpoint_path=checkpoint_path, name=name)

    def predict(self, x: Any = None, input_fn: Callable | None = None, batch_size: int | None = None,
                *args: Any, **kwargs: Any) -> Any:
        """Yields a dictionary of predictions for each example."""
        x, input_fn = (None, x) if callable(x) else (x, input_fn)
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
                 feature_engineering_fn: Callable | None = None, **others: Any) -> None:
        super().__init__(_with_labels(model_fn, feature_engineering_fn), model_dir=model_dir, config=config,
                         params=params, **others)


def _with_labels(model_fn: Callable, feature_engineering_fn: Callable | None = None) -> Callable:
    """Returns a model_fn(features, labels, mode, params, config) for one of contrib.learn, which took them in order.

    It returned (predictions, loss, train_op), or ModelFnOps.

    Args:
      feature_engineering_fn: returns the features and labels that it gets instead.
    """
    names = list(inspect.signature(model_fn).parameters)
    others = ["mode", *(name for name in ("params", "config") if name in names)]

    def call(features: Any, labels: Any, mode: str, **known: Any) -> Any:
        if feature_engineering_fn is not None:
            features, labels = feature_engineering_fn(features, labels)
        result = model_fn(features, labels, **({"mode": mode} if "mode" in names else {}), **known)
        return model_fn_ops(mode, *result) if type(result) is tuple else result
    # By it the Estimator knows what to pass; without params, it would warn of that argument.
    call.__signature__ = inspect.Signature([  # type: ignore[attr-defined]
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("features", "labels", *others)])
    return call


(LearnDNNClassifier, LearnDNNRegressor, LearnLinearClassifier, LearnLinearRegressor, LearnDNNLinearCombinedClassifier,
 LearnDNNLinearCombinedRegressor) = (
    type(f"Learn{name}", (_Fitting, getattr(tf.estimator, name)), {}) for name in (
        "DNNClassifier", "DNNRegressor", "LinearClassifier", "LinearRegressor", "DNNLinearCombinedClassifier",
        "DNNLinearCombinedRegressor"))


KEY = "x"  # the name of features that have none


def infer_real_valued_columns_from_input(x: Any) -> list:
    """Returns the columns of an array [n, ...] of numbers, or of a dictionary of such arrays."""
    return [tf.feature_column.numeric_column(name, np.shape(array)[1:] or (1,)) for name, array in _named(x)[0].items()]


def infer_real_valued_columns_from_input_fn(input_fn: Callable) -> list:
    """Returns the columns of the features that an input function makes."""
    with tf.Graph().as_default():
        batch = input_fn()
        if isinstance(batch, tf.data.Dataset):
            batch = tf.data.make_one_shot_iterator(batch).get_next()
        return [tf.feature_column.numeric_column(name, tensor.shape.as_list()[1:] or (1,))
                for name, tensor in _named(*batch)[0].items()]


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


def _with_names(data: Any) -> Any:
    """Returns a Dataset or (features, labels) whose features are a dictionary."""
    if isinstance(data, tf.data.Dataset):
        spec = data.element_spec
        is_named = isinstance(spec[0] if isinstance(spec, tuple) else spec, dict)
        return data if is_named else data.map(_named)
    return _named(*data) if isinstance(data, tuple) else _named(data)


def _named(features: Any, labels: Any = None) -> tuple[dict, Any]:
    return (features if isinstance(features, dict) else {KEY: features}), labels


def generator_input_fn(x: Callable, target_key: str | Iterable | None = None, batch_size: int = 128,
                       num_epochs: int | None = 1, shuffle: bool = True, queue_capacity: int = 1000,
                       num_threads: int = 1) -> Callable:
    """Returns an input function of what a generator function yields: dictionaries of name -> value or array."""
    targets = [target_key] if isinstance(target_key, str) else list(target_key or ())

    def split(example: Mapping) -> Any:
        features = {name: value for name, value in example.items() if name not in targets}
        if not targets:
            return features
        return features, example[target_key] if isinstance(target_key, str) else {t: example[t] for t in targets}

    def input_fn() -> Any:
        first = {name: np.asarray(value) for name, value in next(iter(x())).items()}
        dataset = tf.data.Dataset.from_generator(
            x, {name: tf.as_dtype(array.dtype) for name, array in first.items()},
            {name: array.shape for name, array in first.items()}).map(split)
        return (dataset.shuffle(queue_capacity) if shuffle else dataset).repeat(num_epochs).batch(batch_size)
    return input_fn


class SKCompat:
    """An Estimator with the methods of scikit-learn, over arrays."""

    def __init__(self, estimator: Any) -> None:
        self._estimator = estimator

    def fit(self, x: Any, y: Any, batch_size: int = 128, steps: int | None = None, max_steps: int | None = None,
            monitors: Iterable | None = None) -> SKCompat:
        """Trains by x [n, ...] and y [n]."""
        self._estimator.fit(x, y, batch_size=batch_size, steps=steps, max_steps=max_steps, monitors=monitors)
        return self

    def score(self, x: Any, y: Any, batch_size: int = 128, steps: int | None = None, metrics: Any = None,
              name: str | None = None) -> dict:
        """Returns the metrics."""
        return self._estimator.evaluate(x, y, batch_size=batch_size, steps=steps, metrics=metrics, name=name)

    def predict(self, x: Any, batch_size: int = 128, outputs: Any = None) -> Any:
        """Returns name -> array of the predictions [n, ...], or one array."""
        results = list(self._estimator.predict(x, batch_size=batch_size))
        if not results or not isinstance(results[0], dict):
            return np.array(results)
        names = [name for name in results[0] if outputs is None or name in outputs]
        return {name: np.array([result[name] for result in results]) for name in names}


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
        """Takes a function of `predictions`, `labels` and `weights`; a key of None is the only tensor."""
        self._metric_fn = metric_fn
        self._keys = (prediction_key, label_key, weight_key)

    def create_metric_ops(self, inputs: Mapping, labels: Any, predictions: Any) -> Any:
        """Returns the value and update op of the metric; labels and predictions are a tensor or a dictionary of some.

        Args:
          inputs: name -> feature, of which one may be the weight.

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


class Experiment:
    """An Estimator with the data to train and evaluate it."""

    def __init__(self, estimator: Any, train_input_fn: Callable, eval_input_fn: Callable, eval_metrics: Any = None,
                 train_steps: int | None = None, eval_steps: int | None = 100, train_monitors: Iterable | None = None,
                 eval_hooks: Iterable | None = None, local_eval_frequency: int | None = None,
                 eval_delay_secs: int = 120, continuous_eval_throttle_secs: int = 60,
                 min_eval_frequency: int | None = None, delay_workers_by_global_step: bool = False,
                 export_strategies: Any = None, **others: Any) -> None:
        """Takes contrib.learn's arguments."""
        is_named = getattr(estimator, "takes_names", False)
        self.estimator = with_metrics(estimator, eval_metrics)
        strategies = export_strategies if isinstance(export_strategies, (list, tuple)) else [export_strategies]
        self._train_spec = tf.estimator.TrainSpec(
            make_input_fn(train_input_fn, is_named=is_named), max_steps=train_steps, hooks=list(train_monitors or ()))
        self._eval_spec = tf.estimator.EvalSpec(
            make_input_fn(eval_input_fn, is_named=is_named), steps=eval_steps, hooks=list(eval_hooks or ()),
            exporters=[strategy for strategy in strategies if strategy is not None],
            start_delay_secs=eval_delay_secs, throttle_secs=continuous_eval_throttle_secs)

    def train_and_evaluate(self) -> Any:
        """Does what TF_CONFIG's task does: a chief or worker trains, an evaluator evaluates, a ps serves."""
        return tf.estimator.train_and_evaluate(self.estimator, self._train_spec, self._eval_spec)

    local_run = run_std_server = continuous_train_and_eval = train_and_evaluate

    def train(self, delay_secs: float | None = None) -> Any:
        """Does the same without a delay: no task needs one, since each waits for the chief."""
        return self.train_and_evaluate()

    def extend_train_hooks(self, additional_hooks: Iterable) -> None:
        """Adds hooks of the training."""
        self._train_spec = self._train_spec._replace(hooks=(*self._train_spec.hooks, *additional_hooks))

    def evaluate(self, delay_secs: float | None = None) -> dict:
        """Evaluates the last checkpoint once."""
        return self.estimator.evaluate(input_fn=self._eval_spec.input_fn, steps=self._eval_spec.steps)


def run_experiment(experiment_fn: Callable, output_dir: str | None = None, schedule: str | None = None,
                   run_config: Any = None, hparams: Any = None) -> Any:
    """Creates an Experiment and runs it as TF_CONFIG's task demands, or by the method that `schedule` names.

    Args:
      experiment_fn: takes the output_dir (of the checkpoints) or, with a run_config, that and hparams.
    """
    experiment = experiment_fn(output_dir) if run_config is None else experiment_fn(run_config, hparams)
    return getattr(experiment, schedule or "train_and_evaluate")()


class InputFnOps(NamedTuple):
    """What a serving input function returned: tensors of features, labels, and of the request."""

    features: Any
    labels: Any
    default_inputs: Any


def make_export_strategy(serving_input_fn: Callable, default_output_alternative_key: str | None = None,
                         assets_extra: dict | None = None, as_text: bool = False, exports_to_keep: int | None = 5,
                         **others: Any) -> Any:
    """Returns an exporter of each last evaluated checkpoint, to the folder export/Servo."""

    def receiver_fn() -> Any:
        inputs = serving_input_fn()
        if isinstance(inputs, InputFnOps):
            return tf.estimator.export.ServingInputReceiver(inputs.features, inputs.default_inputs)
        return inputs
    return tf.estimator.LatestExporter("Servo", receiver_fn, assets_extra, as_text, exports_to_keep)


def build_parsing_serving_input_fn(feature_spec: dict, default_batch_size: int | None = None) -> Callable:
    """Returns a serving input function for requests of serialized tf.Example."""
    def serving_input_fn() -> InputFnOps:
        serialized = tf.placeholder(tf.string, [default_batch_size], "input_example_tensor")
        return InputFnOps(tf.io.parse_example(serialized, feature_spec), None, {"examples": serialized})
    return serving_input_fn


def build_default_serving_input_fn(features: dict, default_batch_size: int | None = None) -> Callable:
    """Returns a serving input function for requests of the features themselves, whose tensors give dtype and shape."""
    def serving_input_fn() -> InputFnOps:
        inputs = {name: tf.placeholder(tensor.dtype, [default_batch_size, *tensor.shape.as_list()[1:]], name)
                  for name, tensor in features.items()}
        return InputFnOps(inputs, None, inputs)
    return serving_input_fn
