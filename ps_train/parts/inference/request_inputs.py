"""The inputs of a request that are like the features of a dataset: a placeholder for each, with its name.

    {"age": float32 [n], "user": {"id": int64 [n]}}    age, user/id
    (float32 [n, 3], int64 [n])                        0, 1
    float32 [n, 784]                                   inputs

model_fn gets them in the structure in which the dataset has its features.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.errors import UserCodeError
from ps_train.graph.batches import Batches
from ps_train.plugins.contracts import PREDICT, Dataset

INPUTS = "inputs"  # the name of features that have none


class ServingInput(NamedTuple):
    """The input of a model that is served.

    Attributes:
      features: a tensor, or a nested structure of tensors, for model_fn.
      receivers: name -> tensor that a request gives.
      alternatives: name of a further kind of request -> its receivers.
    """

    features: Any
    receivers: Mapping[str, Any]
    alternatives: Mapping[str, Mapping[str, Any]]


def feature_specs(dataset: Dataset, params: Mapping[str, Any]) -> Any:
    """Returns a `tf.TensorSpec`, `tf.SparseTensorSpec` or `tf.RaggedTensorSpec` for each feature, for any batch size.

    Raises:
      UserCodeError: a feature is of another kind.
    """
    with tf.Graph().as_default():
        batches = Batches(dataset, PREDICT, params, (0, 1), needs_labels=False)
        features, _ = batches.next()

    def spec(feature: Any, name: str) -> tf.TypeSpec:
        del name
        if isinstance(feature, tf.SparseTensor):
            return tf.SparseTensorSpec([None, *feature.shape.as_list()[1:]], feature.dtype)
        if isinstance(feature, tf.RaggedTensor):
            return tf.RaggedTensorSpec([None, *feature.shape.as_list()[1:]], feature.dtype, feature.ragged_rank)
        if not tf.is_tensor(feature) or not hasattr(feature, "shape") or feature.shape.rank in (None, 0):
            raise _not_servable(dataset, feature)
        return tf.TensorSpec([None, *feature.shape.as_list()[1:]], feature.dtype)

    return _mapped(features, spec)


def refuse_ragged(dataset: Dataset, specs: Any) -> None:
    """Raises UserCodeError if a feature is a RaggedTensor, which neither TensorFlow Serving nor a file has."""
    for spec in named(specs).values():
        if isinstance(spec, tf.RaggedTensorSpec):
            raise _not_servable(dataset, spec)


def _not_servable(dataset: Dataset, feature: Any) -> UserCodeError:
    return UserCodeError("feature_not_servable",
                         f"{dataset.name}.input_fn: its features have {feature}, which a request cannot have; define "
                         "serving_input_fn in the module of the model or the dataset")


def input_of_specs(specs: Any) -> ServingInput:
    """Adds placeholders of features to the current graph; a request gives each of them."""
    features = _mapped(specs, placeholder_of)
    return ServingInput(features, named(features), {})


def named(features: Any) -> dict[str, Any]:
    """Returns name -> feature, as above."""
    found: dict[str, Any] = {}
    _mapped(features, lambda feature, name: found.setdefault(name, feature))
    return found


def placeholder_of(spec: tf.TypeSpec, name: str) -> Any:
    """Adds a placeholder of one feature to the current graph."""
    name = f"input_{name}" if name.isdigit() else name
    name = "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name).lstrip("_") or None
    if isinstance(spec, tf.SparseTensorSpec):
        return tf.sparse_placeholder(spec.dtype, spec.shape, name=name)
    if isinstance(spec, tf.RaggedTensorSpec):
        return tf.ragged.placeholder(spec.dtype, spec.ragged_rank, spec.shape[spec.ragged_rank + 1:], name=name)
    return tf.placeholder(spec.dtype, spec.shape, name=name)


def _mapped(structure: Any, make: Callable[[Any, str], Any], path: str = "") -> Any:
    """Returns a structure of `make(leaf, name)` for each leaf."""
    def child(value: Any, name: Any) -> Any:
        return _mapped(value, make, f"{path}/{name}" if path else str(name))

    if hasattr(structure, "_asdict"):  # a NamedTuple
        return type(structure)(*(child(value, name) for name, value in structure._asdict().items()))
    if isinstance(structure, Mapping):
        return {name: child(value, name) for name, value in structure.items()}
    if isinstance(structure, (tuple, list)):
        return tuple(child(value, number) for number, value in enumerate(structure))
    return make(structure, path or INPUTS)
