"""Common to the models of clicks: their features, table, layers, loss, predictions and metrics.

    features["ids"]     int64   [batch, fields] --> one table, one lookup --> [batch, fields, width]
    features["numbers"] float32 [batch, numbers]                          --> layers --> logit [batch]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow.compat.v1 as tf

import ps_train
from ps_train import ModelSpec
from ps_train.errors import ConfigError
from ps_train.parts.tables.rules import Ftrl, RowRule

from . import classifier, click_metrics

# `num_rows`: rows of the table, for ids below it; 0 takes any id and makes a row when it first sees one.
# `dtype`: in which the ps store its values, float32 or bfloat16.
TABLE_PARAMS: dict[str, Any] = {"num_rows": 0, "dtype": "float32"}
# `weight`: the feature with how many examples each one counts as, "" for 1. `group_field`: the number of the field of
# `ids` by whose ids the AUC is also given by group, such as the user's; -1 for none. `num_groups`: several times as
# many as there are such ids, see `click_metrics.group_auc`.
EXAMPLE_PARAMS: dict[str, Any] = {"weight": "", "group_field": -1, "num_groups": 4096}
# Penalties of the weights of ids; l1 makes those of ids without influence exactly 0.
LINEAR_PARAMS: dict[str, Any] = {"l1": 0.0, "l2": 0.0}


def lookup(
    name: str, features: Mapping[str, tf.Tensor], width: int, params: Mapping[str, Any], rule: RowRule | None = None,
    may_vary: bool = False,
) -> tf.Tensor:
    """Returns the rows of all ids of each example, float32 [batch, fields, width], of the table with this name.

    Args:
      rule: updates the rows; None for --embedding_optimizer.
      may_vary: whether mini-batches may differ in their number of fields.

    Raises:
      ConfigError: the dataset has no ids, or of another shape.
    """
    if "ids" not in features:
        raise ConfigError("feature_missing", "--model: it looks up ids, and the dataset has only "
                          f"{', '.join(sorted(features))}; give the dataset categories, or take a model without ids")
    check_shape("ids", features["ids"], may_vary=may_vary)
    # One lookup for all fields: they share one transfer to and from each ps.
    table = ps_train.embedding_table(name, width, params["num_rows"] or None, optimizer=rule, dtype=params["dtype"])
    return table.lookup(features["ids"], "ids")


def lookup_weights(features: Mapping[str, tf.Tensor], params: Mapping[str, Any]) -> tf.Tensor:
    """Returns the sum of the weights of each example's ids, float32 [batch], from the table `wide`.

    FTRL updates them, as in McMahan et al. 2013 (doi.org/10.1145/2487575.2488200) and in Wide & Deep.
    """
    weights = lookup("wide", features, 1, params, Ftrl(l1=params["l1"], l2=params["l2"]), may_vary=True)
    return tf.reduce_sum(weights, axis=[1, 2])


def check_shape(name: str, feature: tf.Tensor, *, may_vary: bool = False) -> None:
    """Raises ConfigError unless a feature is [batch, n], with an n that is known or may vary."""
    sizes = feature.shape.as_list() if feature.shape.rank is not None else []
    if len(sizes) != 2 or (sizes[1] is None and not may_vary):
        raise ConfigError("feature_shape", f"--model: the feature {name!r} is {feature.dtype.name} {feature.shape}; "
                          "allowed: [batch, n], with a known n: let input_fn, or serving_input_fn, set that shape")


def flat(vectors: tf.Tensor) -> tf.Tensor:
    """Returns the vectors of each example side by side: float32 [batch, fields * dim] of [batch, fields, dim]."""
    fields, dim = int(vectors.shape[1]), int(vectors.shape[2])
    return tf.reshape(vectors, [-1, fields * dim])


def numbers_of(features: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Returns the numbers of each example, float32 [batch, numbers]; zeros [batch, 1] if the dataset has none.

    Raises:
      ConfigError: they have another shape.
    """
    if "numbers" not in features:
        return tf.zeros([tf.shape(features["ids"])[0], 1])
    check_shape("numbers", features["numbers"])
    return features["numbers"]


def linear(inputs: tf.Tensor, name: str) -> tf.Tensor:
    """Returns inputs @ weights + bias, float32 [batch], of a layer that starts at zero."""
    return tf.squeeze(classifier.dense(inputs, 1, name, stddev=0.0), axis=1)


def perceptron(inputs: tf.Tensor, layers: str, name: str) -> tf.Tensor:
    """Returns the last of several ReLU layers, float32 [batch, units].

    Args:
      inputs: float32 [batch, features].
      layers: the units of each, such as "128x64"; see `parse_layers`.
    """
    with tf.variable_scope(name):
        for number, units in enumerate(parse_layers(layers), start=1):
            stddev = classifier.he_stddev(int(inputs.shape[1]))
            inputs = tf.nn.relu(classifier.dense(inputs, units, f"layer_{number}", stddev))
    return inputs


def output(inputs: tf.Tensor, name: str) -> tf.Tensor:
    """Returns float32 [batch], a linear layer with one unit on float32 [batch, features]."""
    return tf.squeeze(classifier.dense(inputs, 1, name, int(inputs.shape[1]) ** -0.5), axis=1)


def parse_layers(text: str) -> list[int]:
    """Returns the units of hidden layers: [128, 64] for "128x64".

    Raises:
      ConfigError: the text has another form.
    """
    units = text.split("x")
    if not all(number.isascii() and number.isdigit() and int(number) for number in units):
        raise ConfigError("parameter_malformed", f"--params: got layers of {text!r}; allowed: the units of each "
                          "layer, as in 128x64")
    return [int(number) for number in units]


def weights_of(features: Mapping[str, tf.Tensor], params: Mapping[str, Any]) -> tf.Tensor | None:
    """Returns the weight of each example, float32 [batch], or None if all count as one.

    Raises:
      ConfigError: there is no such feature.
    """
    name = params["weight"]
    if not name:
        return None
    if name not in features:
        raise ConfigError("feature_missing", f"--params: weight={name}; the dataset has no such feature, it has "
                          f"{', '.join(sorted(features))}")
    return tf.reshape(tf.cast(features[name], tf.float32), [-1])


def groups_of(features: Mapping[str, tf.Tensor], params: Mapping[str, Any]) -> tf.Tensor | None:
    """Returns the ids int64 [batch] of the field by which the AUC is given by group, or None.

    Raises:
      ConfigError: there is no such field.
    """
    field, num_fields = params["group_field"], int(features["ids"].shape[1])
    if not -1 <= field < num_fields:
        raise ConfigError("parameter_out_of_range", f"--params: group_field={field}; allowed: 0 to {num_fields - 1}, "
                          "a field of the ids, or -1 for no AUC by group")
    return None if field < 0 else features["ids"][:, field]


def num_groups_of(params: Mapping[str, Any]) -> int:
    """Returns `num_groups`, its default for a model that has no such parameter.

    Raises:
      ConfigError: it is below 1.
    """
    num_groups = params.get("num_groups", EXAMPLE_PARAMS["num_groups"])
    if num_groups < 1:
        raise ConfigError("parameter_out_of_range", f"--params: num_groups={num_groups}; allowed: numbers above 0, "
                          "several times as many as the field has ids")
    return num_groups


def spec_from_logits(
    logits: tf.Tensor, labels: tf.Tensor | None, weights: tf.Tensor | None = None, groups: tf.Tensor | None = None,
    num_groups: int = EXAMPLE_PARAMS["num_groups"],
) -> ModelSpec:
    """Returns the ModelSpec of a binary model, whose loss is the log loss, with AUC, log loss and calibration.

    Args:
      logits: float32 [batch].
      labels: float32 [batch] in {0, 1}, or None for prediction only.
      weights: float32 [batch], which multiply the losses; the loss is still divided by the number of examples, so that
        a weight of 2 counts as the example twice. In the metrics, too. None for 1.
      groups: int64 [batch], for the metric `gauc`; None for none.
      num_groups: see `click_metrics.group_auc`.
    """
    predictions = {"logits": logits, "probabilities": tf.sigmoid(logits)}
    if labels is None:
        return ModelSpec(predictions=predictions)
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.cast(labels, tf.float32), logits=logits)
    metrics = click_metrics.binary_metrics(labels, logits, weights)
    if groups is not None:
        metrics["gauc"] = click_metrics.group_auc(labels, logits, groups, weights=weights, num_groups=num_groups)
    return ModelSpec(
        loss=tf.reduce_mean(losses if weights is None else weights * losses),
        predictions=predictions,
        eval_metric_ops=metrics,
        loss_name="log loss",
    )
