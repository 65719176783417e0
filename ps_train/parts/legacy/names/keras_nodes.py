"""Layers and models of Keras as TF1 had them: nodes, updates with inputs, and shapes that only a step finds wrong.

`model.get_input_at(0)` and the like: a model's own graph was its first node in TF1, and its calls came after it.

    model = tf.keras.Sequential([...])      node 0: the model's own inputs and outputs
    y = model(x)                            node 1: x and y; today's Keras counts it as node 0
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf


def repair_layers(wrap: Callable[..., None]) -> None:
    """Changes layers and models by all functions below."""
    for repair in (let_models_be_nodes, let_updates_have_inputs, let_shapes_be_reshaped):
        repair(wrap)


def let_models_be_nodes(wrap: Callable[..., None]) -> None:
    """Changes Keras 2, in whose models of today only calls are nodes."""
    wrap("_get_node_attribute_at_index", _attribute_at,
         importlib.import_module("tf_keras.src.engine.functional").Functional)


def _attribute_at(original: Callable, model: Any, node_index: int, attr: str, attr_name: str) -> Any:
    """Returns the inputs or outputs, or their shapes, of one node of a model."""
    if not model._is_graph_network:  # noqa: SLF001 (no public name); it has no inputs of its own
        return original(model, node_index, attr, attr_name)
    index = node_index + len(model._inbound_nodes) + 1 if node_index < 0 else node_index  # noqa: SLF001
    if index:
        return original(model, index - 1, attr, attr_name)
    values = model._nested_inputs if attr.startswith("input") else model._nested_outputs  # noqa: SLF001
    if attr.endswith("shapes"):
        values = tf.nest.map_structure(lambda tensor: tuple(tensor.shape.as_list()), values)
    return values[0] if isinstance(values, list) and len(values) == 1 else values


def let_updates_have_inputs(wrap: Callable[..., None]) -> None:
    """Lets layers say of an update which inputs it needs, as until 1.15; all updates count for all inputs."""
    for module in ("base_layer", "base_layer_v1"):
        layer = importlib.import_module(f"tf_keras.src.engine.{module}").Layer
        wrap("add_update", lambda original, self, updates, inputs=None: original(self, updates), layer)
        if not hasattr(layer, "get_updates_for"):
            layer.get_updates_for = lambda self, inputs: self.updates
            layer.get_losses_for = lambda self, inputs: self.losses


def let_shapes_be_reshaped(wrap: Callable[..., None]) -> None:
    """Lets models, and `Reshape`, take inputs of another shape than they declare, which only a step finds wrong in TF1.

    What a script sets as `input_spec` counts.
    """
    wrap("call", _reshape, importlib.import_module("tf_keras.layers").Reshape)
    for name in ("functional.Functional", "sequential.Sequential"):
        module, _, leaf = name.partition(".")
        model = getattr(importlib.import_module(f"tf_keras.src.engine.{module}"), leaf)
        model.input_spec = property(lambda self: getattr(self, "_manual_input_spec", None), model.input_spec.fset)


def _reshape(original: Callable, layer: Any, inputs: tf.Tensor, **_: Any) -> tf.Tensor:
    try:
        return original(layer, inputs)
    except ValueError:
        if -1 in layer.target_shape:
            raise
        return tf.reshape(inputs, (tf.shape(inputs)[0], *layer.target_shape))
