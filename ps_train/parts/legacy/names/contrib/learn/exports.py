"""contrib.learn's export strategies, as the Estimator's exporters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf


class InputFnOps(NamedTuple):
    """What a serving input function returned: tensors of features, labels, and of the request."""

    features: Any
    labels: Any
    default_inputs: Any


def make_export_strategy(serving_input_fn: Callable, default_output_alternative_key: str | None = None,
                         assets_extra: dict | None = None, as_text: bool = False, exports_to_keep: int | None = 5,
                         **others: Any) -> Any:
    """Returns an exporter of each last evaluated checkpoint, to the folder export/Servo."""
    del default_output_alternative_key, others
    return tf.estimator.LatestExporter("Servo", lambda: _receiver(serving_input_fn()), assets_extra, as_text,
                                       exports_to_keep)


def _receiver(made: Any) -> Any:
    """Returns the ServingInputReceiver of InputFnOps; what is one already stays."""
    if isinstance(made, InputFnOps):
        return tf.estimator.export.ServingInputReceiver(made.features, made.default_inputs)
    return made


def build_parsing_serving_input_fn(feature_spec: dict, default_batch_size: int | None = None) -> Callable:
    """Returns a serving input function for requests of serialized tf.Example."""
    def serving_input_fn() -> InputFnOps:
        serialized = tf.placeholder(tf.string, [default_batch_size], "input_example_tensor")
        return InputFnOps(tf.io.parse_example(serialized, feature_spec), None, {"examples": serialized})
    return serving_input_fn


def build_default_serving_input_fn(features: dict, default_batch_size: int | None = None) -> Callable:
    """Returns a serving input function for requests of the features themselves, whose tensors give dtype and shape."""
    def serving_input_fn() -> InputFnOps:
        made = {name: tf.placeholder(tensor.dtype, [default_batch_size, *tensor.shape.as_list()[1:]], name)
                for name, tensor in features.items()}
        return InputFnOps(made, None, made)
    return serving_input_fn
