"""Code that was written for reference variables, which it finds by their private names: optimizers of scripts.

    variable._ref()                                  the variable
    training_ops.apply_rms_prop(variable, rms, ...)  the operation for resource variables; the result is the new value
    class Own(tf.train.Optimizer):
        def _apply_dense(self, grad, var): ...       TensorFlow asks resource variables for `_resource_apply_dense`

A class that has both methods is left as it is.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.ops import gen_training_ops, resource_variable_ops  # the operations have no public names

from ps_train.parts.legacy.names.arrays import set_missing

# The variables among the parameters of those operations; the others are gradients and settings.
_STATE = {"var", "accum", "accum_update", "gradient_accumulator", "gradient_squared_accumulator", "linear", "m", "mg",
          "mom", "ms", "v"}
_Optimizer = tf.train.Optimizer


def repair_reference_code() -> None:
    """Changes TensorFlow for this whole process."""
    set_missing(resource_variable_ops.BaseResourceVariable, "_ref", lambda variable: variable)
    _repair_operations(gen_training_ops)
    _Optimizer.__init_subclass__ = classmethod(_note_subclass)  # type: ignore[assignment]


def _repair_operations(module: types.ModuleType) -> None:
    """Lets each `apply_...` and `sparse_apply_...` of a module take resource variables, too."""
    for name in list(vars(module)):
        if name.startswith(("apply_", "sparse_apply_")) and hasattr(module, f"resource_{name}"):
            setattr(module, name, of_either(name, module))


def of_either(name: str, module: types.ModuleType = gen_training_ops) -> Callable:
    """Returns the operation of a name such as "apply_adam", for variables of both kinds; it returns the new value."""
    of_references, of_resources = getattr(module, name), getattr(module, f"resource_{name}")
    signature = inspect.signature(of_references)

    @functools.wraps(of_references)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        if not _is_resource(given["var"]):
            return of_references(*args, **kwargs)
        variable = given["var"]
        update = of_resources(**{name: value.handle if name in _STATE and _is_resource(value) else value
                                 for name, value in given.items()})
        with tf.control_dependencies([update]):
            return variable.read_value()
    return call


def _is_resource(value: Any) -> bool:
    return isinstance(value, resource_variable_ops.BaseResourceVariable)


def _note_subclass(kind: type[tf.train.Optimizer], **options: Any) -> None:
    """Lets resource variables be updated by the methods that a class of optimizers has for reference variables."""
    super(_Optimizer, kind).__init_subclass__(**options)
    own = vars(kind)
    if "_apply_dense" in own and "_resource_apply_dense" not in own:
        kind._resource_apply_dense = _apply_dense  # noqa: SLF001 (TensorFlow's name)
    for name in ("_apply_sparse", "_apply_sparse_duplicate_indices"):
        if name in own and f"_resource{name}" not in own:
            setattr(kind, f"_resource{name}", _sparse_method(name))


def _apply_dense(optimizer: Any, grad: tf.Tensor, variable: tf.Variable) -> Any:
    return optimizer._apply_dense(grad, variable)  # noqa: SLF001


def _sparse_method(name: str) -> Callable:
    def apply(optimizer: Any, grad: tf.Tensor, variable: tf.Variable, indices: tf.Tensor) -> Any:
        return getattr(optimizer, name)(tf.IndexedSlices(grad, indices, tf.shape(variable)), variable)
    return apply
