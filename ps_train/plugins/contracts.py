"""The contracts of plug-ins: the functions that a user writes, and the values that they exchange with ps_train.

    --model=models.mlp      --> Model    model_fn(features, labels, mode, params) -> ModelSpec
    --dataset=data.mnist    --> Dataset  input_fn(mode, params, shard) -> tf.data.Dataset; prepare(params)

The contract of Keras models is in `keras/plugins.py`. docs/plugins.md explains both to users.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple, Protocol

# Modes. The first three have the values of tf.estimator.ModeKeys, so that code written for Estimator works.
TRAIN, EVAL, PREDICT = "train", "eval", "infer"
VALIDATION = "validation"  # only for a dataset whose parameter `validation_size` is not 0


class Plugin(Protocol):
    """The attributes of every plug-in: the dotted name of its module, and the module's DEFAULT_PARAMS."""

    @property
    def name(self) -> str: ...

    @property
    def default_params(self) -> Mapping[str, Any]: ...


class ModelSpec(NamedTuple):
    """The result of a model_fn, with the field names of Estimator's EstimatorSpec.

    Attributes:
      loss: scalar float tensor, the mean over the mini-batch; required for "train" and "eval".
      predictions: tensor or dict of tensors, each [batch, ...]; required for "infer".
      eval_metric_ops: name -> (value tensor, update op), as `tf.compat.v1.metrics` returns them.
      train_op: an operation that applies one update and increments the global step, or None to let ps_train build
        it from `loss`, which makes every update mode available.
      loss_name: the name of the loss in the final report.
    """

    loss: Any = None
    predictions: Any = None
    eval_metric_ops: Mapping[str, tuple] | None = None
    train_op: Any = None
    loss_name: str = "loss"


@dataclasses.dataclass(frozen=True)
class Model:
    """A model plug-in: `model_fn(features, labels, mode, params) -> ModelSpec`."""

    name: str
    model_fn: Callable[..., ModelSpec]
    default_params: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A dataset plug-in: `input_fn(mode, params, shard) -> tf.data.Dataset` of (features, labels).

    Attributes:
      prepare: `prepare(params)`, which fetches and checks the files; does nothing if the module defines none.
    """

    name: str
    input_fn: Callable[..., Any]
    prepare: Callable[[Mapping[str, Any]], None]
    default_params: Mapping[str, Any]
