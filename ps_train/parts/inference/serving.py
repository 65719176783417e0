"""What a request to a model has: the serving input of a plug-in, else the features of the dataset.

    serving_input_fn() of the model, or of the dataset    ServingInputReceiver, tensors, or a dict of them
    none                                                  placeholders like the dataset's features, any batch size
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Mapping
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.errors import UserCodeError
from ps_train.graph.input.batches import INPUT_SCOPE, Batches
from ps_train.plugins.contracts import PREDICT, Dataset, Model
from ps_train.storage import checkpoints

INPUTS = "inputs"  # the name of features that have none
_SCOPE = "serving_input"
# The scopes that the input takes in training, before the model: its iterator and a mini-batch. A model with a scope of
# that name has them numbered, and needs the same numbers here.
_INPUT_SCOPES = 2


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


def serving_input_maker(
    model: Model, model_params: Mapping[str, Any], dataset: Dataset, dataset_params: Mapping[str, Any]
) -> Callable[[], ServingInput]:
    """Returns what adds the serving input to the current graph.

    Raises:
      UserCodeError: the input_fn does not yield features that a request can have.
      Exception: whatever input_fn raises.
    """
    for plugin, params in ((model, model_params), (dataset, dataset_params)):
        if plugin.serving_input_fn is not None:
            return lambda plugin=plugin, params=params: _as_serving_input(
                plugin.serving_input_fn(params=params), f"{plugin.name}.serving_input_fn")
    specs = feature_specs(dataset, dataset_params)
    return lambda: input_of_specs(specs)


def needs_dataset(model: Model, dataset: Dataset) -> bool:
    """Tells whether the dataset's features say what a request has."""
    return model.serving_input_fn is None and dataset.serving_input_fn is None


def feature_specs(dataset: Dataset, params: Mapping[str, Any]) -> Any:
    """Returns a `tf.TensorSpec` or `tf.SparseTensorSpec` for each feature, with any batch size.

    Raises:
      UserCodeError: a feature is of another kind.
    """
    with tf.Graph().as_default():
        batches = Batches(dataset, PREDICT, params, (0, 1), needs_labels=False)
        features, _ = batches.next()

    def spec(feature: Any) -> tf.TypeSpec:
        if isinstance(feature, tf.SparseTensor):
            return tf.SparseTensorSpec([None, *feature.shape.as_list()[1:]], feature.dtype)
        if not tf.is_tensor(feature) or not hasattr(feature, "shape") or feature.shape.rank in (None, 0):
            raise UserCodeError(f"{dataset.name}.input_fn: its features have {feature}, which a request cannot have; "
                                "define serving_input_fn in the module of the model or the dataset")
        return tf.TensorSpec([None, *feature.shape.as_list()[1:]], feature.dtype)

    return tf.nest.map_structure(spec, features)


def input_of_specs(specs: Any) -> ServingInput:
    """Adds placeholders of features to the current graph; a request gives each of them."""
    if isinstance(specs, Mapping):
        features: Any = {name: placeholder_of(spec, name) for name, spec in specs.items()}
    elif isinstance(specs, (tuple, list)):
        features = tuple(placeholder_of(spec, f"input_{number}") for number, spec in enumerate(specs))
    else:
        features = placeholder_of(specs, INPUTS)
    return ServingInput(features, named(features), {})


def add_input(make_input: Callable[[], ServingInput], path: str | None) -> ServingInput:
    """Adds the serving input to the current graph, under names that no variable of the model has.

    Placeholders have the names of the features. If a variable or its scope is called so, they are in a scope:
    TensorFlow would otherwise rename the variable, which comes later, and the checkpoint would lack it.

    Args:
      path: of the checkpoint, which has the names of the variables; None only checks the model.
    """
    taken = _names_and_scopes([] if path is None else checkpoints.variable_names(path))
    with tf.Graph().as_default() as scratch:
        make_input()
    own = _names_and_scopes(operation.name for operation in scratch.get_operations())
    with contextlib.ExitStack() as stack:
        if own & taken:
            numbered = (f"{_SCOPE}_{number}" for number in itertools.count(1))
            stack.enter_context(tf.name_scope(next(
                name for name in itertools.chain([_SCOPE], numbered) if name not in taken)))
        made = make_input()
    for _ in range(_INPUT_SCOPES):
        with tf.name_scope(INPUT_SCOPE):
            pass
    return made


def _names_and_scopes(names: Iterable[str]) -> set[str]:
    """Returns these names and the scopes that they are in, in lower case: TensorFlow's names differ in more."""
    found = set()
    for name in names:
        parts = name.lower().split("/")
        found.update("/".join(parts[:end]) for end in range(1, len(parts) + 1))
    return found


def named(features: Any) -> dict[str, Any]:
    """Returns name -> feature; features without names are numbered, and one alone is called `inputs`."""
    if isinstance(features, Mapping):
        return dict(features)
    if isinstance(features, (tuple, list)):
        return {str(number): one for number, one in enumerate(features)}
    return {INPUTS: features}


def placeholder_of(spec: tf.TypeSpec, name: str) -> Any:
    """Adds a placeholder of one feature to the current graph."""
    name = "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name).lstrip("_") or None
    if isinstance(spec, tf.SparseTensorSpec):
        return tf.sparse_placeholder(spec.dtype, spec.shape, name=name)
    return tf.placeholder(spec.dtype, spec.shape, name=name)


def _as_serving_input(made: Any, what: str) -> ServingInput:
    """Returns what a serving_input_fn made; its forms are those of Estimator, and tensors or a dict of them."""
    if hasattr(made, "receiver_tensors"):
        others = getattr(made, "receiver_tensors_alternatives", None) or {}
        return ServingInput(made.features, _named(made.receiver_tensors, INPUTS),
                            {name: _named(one, name) for name, one in others.items()})
    if isinstance(made, Mapping) or _is_tensor(made):
        return ServingInput(made, _named(made, INPUTS), {})
    if isinstance(made, tuple) and len(made) == 2:
        return ServingInput(made[0], _named(made[1], INPUTS), {})
    raise UserCodeError(f"{what} returned {type(made).__name__}; it must return a tensor, a dict of tensors, "
                        "(features, receiver_tensors), or Estimator's ServingInputReceiver")


def _named(tensors: Any, name: str) -> dict[str, Any]:
    return dict(tensors) if isinstance(tensors, Mapping) else {name: tensors}


def _is_tensor(value: Any) -> bool:
    return tf.is_tensor(value) or isinstance(value, tf.SparseTensor)
