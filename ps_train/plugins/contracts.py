"""The contracts of plug-ins: the functions that a user writes, and the values that they exchange with ps_train.

    --model=models.mlp      --> Model    model_fn(features, labels, mode, params) -> ModelSpec
    --dataset=data.mnist    --> Dataset  input_fn(mode, params, shard) -> tf.data.Dataset; prepare(params)

The contract of Keras models is in `parts/keras/plugins.py`. docs/plugins.md explains both to users.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple, Protocol

# Modes. The first three have the values of tf.estimator.ModeKeys, as code written for Estimator expects.
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
        it from `loss`. One that a tf.compat.v1.train.Optimizer has made trains in every update mode, too.
      loss_name: the name of the loss in the final report.
      training_hooks: `tf.compat.v1.train.SessionRunHook`s of every worker.
      training_chief_hooks: hooks of the chief only.
      evaluation_hooks: hooks of each evaluation.
      scaffold: a `tf.compat.v1.train.Scaffold`, of which `init_fn`, `local_init_op` and, in "eval" and "infer",
        `saver` are used.
      export_outputs: name of a signature of the SavedModel -> a tensor, a dict of tensors, or an ExportOutput of
        Estimator; None for one signature with the predictions.
    """

    loss: Any = None
    predictions: Any = None
    eval_metric_ops: Mapping[str, tuple] | None = None
    train_op: Any = None
    loss_name: str = "loss"
    training_hooks: Sequence[Any] = ()
    training_chief_hooks: Sequence[Any] = ()
    evaluation_hooks: Sequence[Any] = ()
    scaffold: Any = None
    export_outputs: Mapping[str, Any] | None = None


class RunConfig(NamedTuple):
    """The `config` of a model_fn that takes it: the fields of Estimator's RunConfig that name this task.

    Attributes:
      task_type: "chief", "master", "worker" or "evaluator".
      task_id: the index of the task in its job.
      is_chief: whether this task saves the parameters.
      num_ps_replicas: the number of parameter servers.
      num_worker_replicas: the number of workers, chief included.
      tf_random_seed: the seed of the graph, or None.
    """

    task_type: str = "worker"
    task_id: int = 0
    is_chief: bool = True
    num_ps_replicas: int = 0
    num_worker_replicas: int = 1
    tf_random_seed: int | None = None


@dataclasses.dataclass(frozen=True)
class Model:
    """A model plug-in: `model_fn(features, labels, mode, params) -> ModelSpec`.

    Attributes:
      takes_config: whether it takes the argument `config` too, a `RunConfig`, as an Estimator's model_fn may.
      serving_input_fn: makes the features of a request to the exported model; None if the module defines none.
      make_optimizer: `make_optimizer(params, global_step)`, a tf.compat.v1.train.Optimizer; None to go by the flags.
    """

    name: str
    model_fn: Callable[..., Any]
    default_params: Mapping[str, Any]
    takes_config: bool = False
    serving_input_fn: Callable[..., Any] | None = None
    make_optimizer: Callable[..., Any] | None = None


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A dataset plug-in: `input_fn(mode, params, shard) -> tf.data.Dataset` of (features, labels).

    Attributes:
      prepare: `prepare(params)`, which fetches and checks the files; does nothing if the module defines none.
      is_sharded: whether input_fn takes `shard`; if not, every worker reads all of the data, as under Estimator.
      is_eval_sharded: the same for held-out data, for which a module may have another function.
      serving_input_fn: as that of a model.
      data_identity: `data_identity(params)`, name -> what else must be the same in a training that goes on, or None.
    """

    name: str
    input_fn: Callable[..., Any]
    prepare: Callable[[Mapping[str, Any]], None]
    default_params: Mapping[str, Any]
    is_sharded: bool = True
    is_eval_sharded: bool = True
    serving_input_fn: Callable[..., Any] | None = None
    data_identity: Callable[[Mapping[str, Any]], Mapping[str, Any] | None] = lambda params: None
