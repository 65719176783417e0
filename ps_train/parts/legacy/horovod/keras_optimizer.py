"""`hvd.DistributedOptimizer` of Keras: each rank applies the mean of all ranks' gradients to its own variables.

    an optimizer --> the same class with another `get_gradients`, of the same configuration
    get_gradients: this rank's --> those of a dtype as one vector, sparse ones apart --> their means over all ranks

The class has the name of the original and is derived from it, so a saved model names an optimizer that Keras knows.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.errors import ConfigError
from ps_train.parts.legacy.horovod import module as hvd
from ps_train.parts.legacy.horovod.second_step import reduced_together

# Not the name of a variable: rank 0 may have built another model before, to read a checkpoint, so the names of its
# variables and operations differ. The ranks run their training steps in the same order.
_COMMON_NAME = "keras_gradients"


def distributed_keras_optimizer(
    optimizer: Any, name: str | None = None, device_dense: str = "", device_sparse: str = "",
    compression: Any = hvd.Compression.none, sparse_as_dense: bool = False, gradient_predivide_factor: float = 1.0,
    op: str = hvd.Average, backward_passes_per_step: int = 1, **kwargs: Any,
) -> Any:
    """Returns an optimizer of Keras that applies the mean, or with `op=hvd.Sum` the sum, of all ranks' gradients.

    The name, the devices, the compression and `gradient_predivide_factor` do nothing.

    Raises:
      ConfigError: it is none of Keras, or an argument asks for another kind of update.
    """
    if not isinstance(optimizer, tf.keras.optimizers.Optimizer):
        raise ConfigError("horovod_optimizer", f"hvd.DistributedOptimizer: got {type(optimizer).__name__}; allowed: an "
                          "optimizer of Keras. For one of tf.train write import horovod.tensorflow as hvd")
    hvd.check_update(op, backward_passes_per_step, compression)
    if hvd.size() == 1:
        return optimizer
    kind = distributed_class(type(optimizer), op, sparse_as_dense)
    return kind.from_config(optimizer.get_config())


def distributed_class(kind: type, op: str = hvd.Average, sparse_as_dense: bool = False) -> type:
    """Returns a class derived from that of an optimizer, which combines gradients."""
    def get_gradients(self: Any, loss: tf.Tensor, params: Sequence[Any]) -> list:
        return _reduced(kind.get_gradients(self, loss, params), op, sparse_as_dense)

    return type(kind.__name__, (kind,), {"get_gradients": get_gradients, "__module__": kind.__module__})


def _reduced(gradients: Sequence[Any], op: str, is_dense: bool) -> list:
    """Returns the gradients of all ranks together; None stays None."""
    reduce = functools.partial(_reduce, op)
    found = [tf.convert_to_tensor(each) if is_dense and isinstance(each, tf.IndexedSlices) else each
             for each in gradients]
    dense = [place for place, each in enumerate(found) if isinstance(each, tf.Tensor)]
    for place, each in enumerate(found):
        if isinstance(each, tf.IndexedSlices):
            found[place] = reduce(each, f"{_COMMON_NAME}/{place}")
    for place, each in zip(dense, reduced_together([found[place] for place in dense], _COMMON_NAME, reduce)):
        found[place] = each
    return found


def _reduce(op: str, tensor: Any, name: str) -> Any:
    return hvd.allreduce(tensor, op=op, name=name)


def load_horovod_model(
    filepath: Any, custom_optimizers: Sequence[type] | None = None, custom_objects: Any = None,
    compression: Any = hvd.Compression.none, **kwargs: Any,
) -> Any:
    """Returns a saved model of Keras, whose optimizer combines the gradients of all ranks, with its saved state.

    Args:
      filepath: the file.
      custom_optimizers: classes of optimizers that are not in Keras.
      custom_objects: name -> function or class, as Keras takes them; they come first.
      compression: without effect.
    """
    kinds = [*vars(tf.keras.optimizers).values(), *(custom_optimizers or ())]
    objects = {}
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, tf.keras.optimizers.Optimizer):
            chosen = kind if hvd.size() == 1 else distributed_class(kind)
            objects.update({kind.__name__: chosen, kind.__name__.lower(): chosen})  # Keras looks for either
    return tf.keras.models.load_model(filepath, custom_objects={**objects, **(custom_objects or {})})
