"""contrib.learn on the Estimator: `fit`, arrays, and model functions of its form.

    learn             Estimator and SKCompat
    learn_inputs      input functions, from arrays too
    learn_models      DNNClassifier and the other models
    learn_metrics     MetricSpec
    learn_experiment  Experiment, learn_runner and exports

Features may be one array or tensor, without a name. Arguments without a counterpart have no effect.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.parts.legacy.names.learn_inputs import make_input_fn
from ps_train.parts.legacy.names.learn_metrics import argument_names, as_metric, with_metrics
from ps_train.parts.legacy.names.monitors import hooks_of


class LearnModeKeys:
    """What a model is built for."""

    TRAIN = "train"
    EVAL = "eval"
    INFER = "infer"
    PREDICT = "infer"


_DEFAULT = tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY


class ModelFnOps(tf.estimator.EstimatorSpec):
    """The EstimatorSpec of contrib.learn; each of `output_alternatives`, name -> (type, tensors), becomes an export.

    Of several, an export of contrib.learn must choose the default one; for one of tf.estimator it is the first.
    """

    def __new__(cls, mode: str, predictions: Any = None, loss: Any = None, train_op: Any = None,
                eval_metric_ops: dict | None = None, output_alternatives: dict | None = None,
                training_chief_hooks: Iterable | None = None, training_hooks: Iterable | None = None,
                scaffold: Any = None) -> ModelFnOps:
        """Makes one."""
        exports = {name or _DEFAULT: tf.estimator.export.PredictOutput(tensors)
                   for name, (_, tensors) in (output_alternatives or {}).items()}
        if len(exports) > 1:
            exports.setdefault(_DEFAULT, next(iter(exports.values())))
        metrics = {name: as_metric(value) for name, value in (eval_metric_ops or {}).items()}
        return super().__new__(
            cls, mode, predictions=predictions, loss=loss, train_op=train_op, eval_metric_ops=metrics or None,
            export_outputs=exports or None, training_chief_hooks=training_chief_hooks, training_hooks=training_hooks,
            scaffold=scaffold)


class Evaluable:
    """What an Experiment evaluates: a class of a script's own that has `evaluate` and `model_dir`."""


class Trainable:
    """What an Experiment trains: a class of a script's own that has `fit`."""


class NotFittedError(ValueError, AttributeError):
    """A model is used before it was trained."""


class _ForPipelines:
    """What scikit-learn 1.6 and later ask a step of a Pipeline."""

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags  # noqa: PLC0415 (scikit-learn asks, so it is there)

        return Tags(estimator_type=None, target_tags=TargetTags(required=False), transformer_tags=None,
                    classifier_tags=None, regressor_tags=None)


class Fitting(_ForPipelines):
    """The methods of contrib.learn's Estimators."""

    takes_names = True  # whether the features must be a dictionary
    _is_exporting = False
    _default_output: str | None = None  # the alternative that is exported by default

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        config = kwargs.get("config")
        if config is not None and kwargs.get("model_dir") and config.model_dir != kwargs["model_dir"]:
            kwargs["config"] = config.replace(model_dir=kwargs["model_dir"])
        super().__init__(*args, **kwargs)

    def fit(self, x: Any = None, y: Any = None, input_fn: Callable | None = None, steps: int | None = None,
            batch_size: int | None = None, monitors: Iterable | None = None, max_steps: int | None = None) -> Any:
        """Trains by an input function, or by arrays x [n, ...] and y [n]; `monitors` may be hooks."""
        return self.train(make_input_fn(input_fn, x, y, batch_size, is_training=True, is_named=self.takes_names),
                          hooks=hooks_of(monitors, self), steps=steps, max_steps=max_steps)

    def partial_fit(self, x: Any = None, y: Any = None, input_fn: Callable | None = None, steps: int | None = 1,
                    batch_size: int | None = None, monitors: Iterable | None = None) -> Any:
        """Trains one more step, or so many."""
        return self.fit(x, y, input_fn, steps, batch_size, monitors)

    def evaluate(self, x: Any = None, y: Any = None, input_fn: Callable | None = None,  # type: ignore[override]
                 batch_size: int | None = None, steps: int | None = None, hooks: Any = None,
                 checkpoint_path: str | None = None, name: str | None = None, metrics: Any = None,
                 **ignored: Any) -> dict:
        """Evaluates by an input function, also as the first argument, or by arrays; `metrics` are MetricSpecs.

        Raises:
          NotFittedError: the model was not trained.
        """
        x, input_fn = (None, x) if callable(x) else (x, input_fn)
        self._refuse_untrained(checkpoint_path)
        evaluate = with_metrics(self, metrics).evaluate if metrics else super().evaluate
        return evaluate(make_input_fn(input_fn, x, y, batch_size, is_named=self.takes_names),
                        steps=steps, hooks=hooks, checkpoint_path=checkpoint_path, name=name)

    def predict(self, x: Any = None, input_fn: Callable | None = None, batch_size: int | None = None,
                outputs: Any = None, as_iterable: bool = True, **kwargs: Any) -> Any:
        """Yields the predictions of each example.

        Without `as_iterable`, returns arrays [n, ...]: of all of `x`, or of the first batch of an input function, which
        need not have an end.
        """
        found = self.predictions(x, input_fn, batch_size,
                                 is_one_batch=not as_iterable and (x is None or callable(x)), **kwargs)
        if outputs:
            found = ({name: each[name] for name in outputs if name in each} for each in found)
        return found if as_iterable else _joined(list(found))

    def predictions(self, x: Any = None, input_fn: Callable | None = None, batch_size: int | None = None,
                    is_one_batch: bool = False, **kwargs: Any) -> Iterator:
        """Yields all predictions of each example, a dictionary or one array.

        Those of the first batch only if `is_one_batch`, or if the input function makes tensors without a queue.

        Raises:
          NotFittedError: the model was not trained.
        """
        x, input_fn = (None, x) if callable(x) else (x, input_fn)
        self._refuse_untrained(kwargs.get("checkpoint_path"))
        constants: list[bool] = []
        noting_fn = _noting(make_input_fn(input_fn, x, None, batch_size, is_named=self.takes_names), constants.append)
        for batch in super().predict(noting_fn, yield_single_examples=False, **kwargs):
            yield from _examples(batch)
            if is_one_batch or any(constants):
                return

    def _refuse_untrained(self, checkpoint_path: str | None) -> None:
        """Raises NotFittedError if there is no checkpoint."""
        if not (checkpoint_path or self.__sklearn_is_fitted__()):
            raise NotFittedError(f"Couldn't find trained model at {self.model_dir}.")

    def __sklearn_is_fitted__(self) -> bool:
        return tf.train.latest_checkpoint(self.model_dir) is not None

    def export_savedmodel(self, export_dir_base: str, serving_input_fn: Callable | None = None,
                          default_output_alternative_key: str | None = None, assets_extra: dict | None = None,
                          as_text: bool = False, checkpoint_path: str | None = None, *,
                          serving_input_receiver_fn: Callable | None = None, **others: Any) -> Any:
        """Exports for requests that a serving input function makes features of; it may return InputFnOps.

        Args:
          default_output_alternative_key: of several outputs, such as those of heads, the name of the default one.

        Raises:
          ValueError: there are several outputs and no key, or none has that name.
        """
        receiver_fn = as_receiver_fn(serving_input_fn or serving_input_receiver_fn)
        with self.exporting(default_output_alternative_key):
            return super().export_savedmodel(
                export_dir_base, receiver_fn, assets_extra, as_text, checkpoint_path, **others)

    @contextlib.contextmanager
    def exporting(self, default_output: str | None) -> Iterator[None]:
        """Meanwhile the model is built for an export, whose default output has this name."""
        self._is_exporting, self._default_output = True, default_output
        try:
            yield
        finally:
            self._is_exporting, self._default_output = False, None

    def _call_model_fn(self, features: Any, labels: Any, mode: str, *others: Any, config: Any = None,
                       **ignored: Any) -> Any:
        # Estimator gives its options as the fourth argument; contrib.learn took metrics there, and needed neither.
        given = [other for other in (*others, config) if hasattr(other, "save_summary_steps")]
        spec = super()._call_model_fn(features, labels, mode, given[0] if given else self.config)
        if not given and isinstance(spec.predictions, dict):  # a script calls, such as an export of its own
            spec = spec._replace(predictions=self.with_old_names(spec.predictions))
        return with_default_output(spec, self._default_output) if self._is_exporting else spec

    def with_old_names(self, predictions: dict) -> dict:
        """Returns the predictions of a batch, tensors, by contrib.learn's names."""
        return predictions


def with_default_output(spec: Any, key: str | None) -> Any:
    """Returns a spec whose default output is the one of a name.

    Raises:
      ValueError: contrib.learn's has several outputs and there is no name, or no output has it.
    """
    outputs = spec.export_outputs or {}
    names = sorted(name for name in outputs if name != _DEFAULT)
    # The outputs of the Estimator's models are one, under several names.
    if isinstance(spec, ModelFnOps) and (len(names) > 1 if key is None else key not in outputs):
        raise ValueError(f"the key of the default output is {key!r}; the model's outputs are {names}")
    return spec if key not in outputs else spec._replace(export_outputs={**outputs, _DEFAULT: outputs[key]})


def _noting(input_fn: Callable, note: Callable[[bool], None]) -> Callable:
    """Returns an input function that also notes whether contrib.learn took what it makes for constants.

    That is tensors without a queue, also those of an iterator; of these a prediction has one batch.
    """
    def call(**known: Any) -> Any:
        found = input_fn(**known)
        has_queue = bool(tf.get_default_graph().get_collection(tf.GraphKeys.QUEUE_RUNNERS))
        note(not has_queue and not isinstance(found, tf.data.Dataset))
        return found
    call.__signature__ = inspect.signature(input_fn)  # type: ignore[attr-defined]  # so the Estimator knows what to pass
    return call


def _examples(batch: Any) -> Iterator:
    """Yields the predictions of each example of a batch: arrays [n, ...] by names, or one array."""
    if not isinstance(batch, Mapping):
        yield from batch
        return
    for values in zip(*batch.values()):
        yield dict(zip(batch, values))


def _joined(predictions: list) -> Any:
    """Returns name -> array of the predictions of all examples [n, ...]; one array if they have no names."""
    if not predictions or not isinstance(predictions[0], dict):
        return np.array(predictions)
    return {name: np.array([each[name] for each in predictions]) for name in predictions[0]}


class _OwnParams:
    """What an Estimator gives to its model_fn: the object itself, of which tf.estimator gives a copy.

    Only so a script can ask the optimizer that trains for something, as the hooks of a SyncReplicasOptimizer.
    """

    _params: Any

    @property
    def params(self) -> Any:
        """What the Estimator was made with."""
        return self._params


class LearnEstimator(_OwnParams, Fitting, tf.estimator.Estimator):
    """An Estimator whose `model_fn` may call the labels `targets`."""

    takes_names = False

    def __init__(self, model_fn: Callable, model_dir: str | None = None, config: Any = None, params: Any = None,
                 feature_engineering_fn: Callable | None = None, **others: Any) -> None:
        super().__init__(_with_labels(model_fn, feature_engineering_fn), model_dir=model_dir, config=config,
                         params=None if params is None else {}, **others)  # it would copy them
        if params is not None:
            self._params = params


def _with_labels(model_fn: Callable, feature_engineering_fn: Callable | None = None) -> Callable:
    """Returns a model_fn(features, labels, mode, params, config) for one of contrib.learn, which took them in order.

    It returned (predictions, loss, train_op), or ModelFnOps, and could also take the model_dir. When it predicted after
    a training, it got placeholders for labels, so that it need not ask for the mode.

    Args:
      feature_engineering_fn: returns the features and labels that it gets instead.
    """
    wanted = [name for name in ("mode", "params", "config", "model_dir") if name in argument_names(model_fn)]
    taken = ["mode", *(["params"] if "params" in wanted else []),
             *(["config"] if {"config", "model_dir"} & set(wanted) else [])]

    trained_labels: Any = None  # types and shapes

    def call(features: Any, labels: Any, **known: Any) -> Any:
        nonlocal trained_labels
        if labels is not None:
            trained_labels = ({name: (tensor.dtype, tensor.shape) for name, tensor in labels.items()}
                              if isinstance(labels, dict) else (labels.dtype, labels.shape))
        elif trained_labels is not None:
            labels = _placeholders(trained_labels)
        if feature_engineering_fn is not None:
            features, labels = feature_engineering_fn(features, labels)
        if "model_dir" in wanted:
            known["model_dir"] = known["config"].model_dir
        result = model_fn(features, labels, **{name: known[name] for name in wanted})
        return ModelFnOps(known["mode"], *result) if type(result) is tuple else result
    # By it the Estimator knows what to pass; without params, it would warn of that argument.
    call.__signature__ = inspect.Signature([  # type: ignore[attr-defined]
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("features", "labels", *taken)])
    return call


def _placeholders(labels: Any) -> Any:
    """Returns placeholders for labels of these (type, shape)."""
    if isinstance(labels, dict):
        return {name: _placeholder(*label) for name, label in labels.items()}
    return _placeholder(*labels)


def _placeholder(dtype: tf.DType, shape: tf.TensorShape) -> tf.Tensor:
    """Returns a placeholder for a batch of any size."""
    return tf.placeholder(dtype, [None, *shape[1:]] if shape.rank else shape)


class SKCompat(_ForPipelines):
    """An Estimator with the methods of scikit-learn, over arrays."""

    def __init__(self, estimator: Any) -> None:
        self._estimator = estimator

    def __sklearn_is_fitted__(self) -> bool:
        return self._estimator.__sklearn_is_fitted__()

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
        results = list(self._estimator.predictions(x, batch_size=batch_size))
        if outputs and results and isinstance(results[0], dict):
            results = [{name: each[name] for name in outputs if name in each} for each in results]
        return _joined(results)


class InputFnOps(NamedTuple):
    """What a serving input function returned: tensors of features, labels, and of the request."""

    features: Any
    labels: Any
    default_inputs: Any


def as_receiver_fn(serving_input_fn: Callable) -> Callable:
    """Returns a serving input function of the Estimator for one that may return InputFnOps."""
    def receiver_fn() -> Any:
        inputs = serving_input_fn()
        if isinstance(inputs, InputFnOps):
            return tf.estimator.export.ServingInputReceiver(inputs.features, inputs.default_inputs)
        return inputs
    return receiver_fn


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
