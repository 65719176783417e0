"""Private names of TensorFlow that code with copies of TensorFlow's own uses, where today's has nothing with the same.

`moved.py` names them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.ops import variable_scope
from tensorflow.python.platform import tf_logging

_logger = tf_logging.get_logger()
_VARSCOPE_KEY = ("__current_varscope",)  # the old key, ("__varscope",), is that of another object today
_GENERATED = "tensorflow.python.ops.gen_"


def in_graph_mode() -> bool:
    """Returns whether operations are added to a graph."""
    return not tf.executing_eagerly()


def scalar() -> tf.TensorShape:
    """Returns the shape of a number."""
    return tf.TensorShape([])


def vector(length: int | None) -> tf.TensorShape:
    """Returns the shape of a vector."""
    return tf.TensorShape([length])


def matrix(rows: int | None, columns: int | None) -> tf.TensorShape:
    """Returns the shape of a matrix."""
    return tf.TensorShape([rows, columns])


def _linear(args: Any, output_size: int, bias: bool, bias_initializer: Any = None, kernel_initializer: Any = None,
            bias_start: float = 0.0, scope: str | None = None) -> tf.Tensor:
    """Returns sum(argument * "kernel") + "bias", in the variable scope around; 1.0 took what the bias begins with."""
    from ps_train.parts.legacy.names.rnn import linear  # noqa: PLC0415 (its cells need Keras 2)

    if isinstance(bias_initializer, (int, float)):
        bias_initializer, bias_start = None, bias_initializer
    return linear(args, output_size, bias, bias_initializer, kernel_initializer, bias_start, scope)


class _Linear:
    """The same, whose variables are made once."""

    def __init__(self, args: Any, output_size: int, build_bias: bool, bias_initializer: Any = None,
                 kernel_initializer: Any = None) -> None:
        from ps_train.parts.legacy.names.rnn import whole_bias  # noqa: PLC0415 (its cells need Keras 2)

        args = list(args) if isinstance(args, (list, tuple)) else [args]
        size = sum(int(arg.shape[1]) for arg in args)
        dtype = args[0].dtype
        with tf.variable_scope(tf.get_variable_scope()):
            self._weights = tf.get_variable("kernel", [size, output_size], dtype, kernel_initializer)
            start = bias_initializer or tf.constant_initializer(0.0, dtype)
            self._biases = whole_bias(output_size, dtype, initializer=start) if build_bias else None

    def __call__(self, args: Any) -> tf.Tensor:
        """Returns float [batch, output_size] for one tensor or a list of them."""
        args = list(args) if isinstance(args, (list, tuple)) else [args]
        product = tf.matmul(args[0] if len(args) == 1 else tf.concat(args, 1), self._weights)
        return product if self._biases is None else tf.nn.bias_add(product, self._biases)


def _to_proto_fn(v: Any, export_scope: str | None = None) -> Any:
    """Returns the VariableDef of a variable; a script's copy of TensorFlow registers it for a collection."""
    return v.to_proto(export_scope=export_scope)


def _from_proto_fn(v: Any, import_scope: str | None = None) -> Any:
    """Returns the variable of a VariableDef."""
    return tf.Variable.from_proto(v, import_scope=import_scope)


def _safe_div(numerator: Any, denominator: Any, name: str | None = None) -> tf.Tensor:
    """Returns the quotient, and 0 where the denominator is not above 0."""
    with tf.name_scope(name, "safe_div"):
        quotient = tf.truediv(numerator, denominator)
        return tf.where(tf.greater(denominator, 0), quotient, tf.zeros_like(quotient))


def _like_rnncell(cell: Any) -> bool:
    """Returns whether an object has what `tf.nn.dynamic_rnn` needs of a cell."""
    return callable(cell) and all(hasattr(cell, name) for name in ("output_size", "state_size", "zero_state"))


def _state_size_with_prefix(state_size: Any, prefix: Sequence[int] | None = None) -> Any:
    """Returns the shapes of a state, as lists [*prefix, ...] in its structure."""
    return tf.nest.map_structure(
        lambda size: [*(prefix or ()), *(size.as_list() if isinstance(size, tf.TensorShape) else [size])], state_size)


class _CurrentScope(list):
    """The collection that had, until 1.5, the current variable scope alone; prettytensor sets it there."""

    def __getitem__(self, index: Any) -> Any:
        return [tf.get_variable_scope()][index]

    def __setitem__(self, index: Any, scope: Any) -> None:
        super().__setitem__(index, scope)
        variable_scope.get_variable_scope_store().current_scope = scope


def scopes_of_collection(original: Callable, graph: tf.Graph, name: Any) -> list:
    """Returns the list of a collection; that of the current variable scope is not kept in the graph any more."""
    return _CurrentScope([tf.get_variable_scope()]) if name == _VARSCOPE_KEY else original(graph, name)


def set_attributes_of_operations() -> None:
    """Lets operations have `_inputs` and `_outputs`, lists of tensors, and a `_traceback`, as in TF1.

    What a script sets as `_traceback` is for its error messages only, and is not kept.
    """
    if not hasattr(tf.Operation, "_traceback"):
        tf.Operation._traceback = property(lambda op: op.traceback, lambda *_: None)  # noqa: SLF001 (scripts use it)
    for name in ("inputs", "outputs"):
        if not hasattr(tf.Operation, f"_{name}"):
            setattr(tf.Operation, f"_{name}", property(lambda op, name=name: list(getattr(op, name))))


class _BetaPower:
    """`optimizer._beta1_power` of Adam until TensorFlow 1.4; a script's own class may set it for its objects."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __get__(self, optimizer: Any, kind: type | None = None) -> Any:
        return self if optimizer is None else optimizer._get_beta_accumulators()[self._number]  # noqa: SLF001


def set_attributes_of_optimizers() -> None:
    """Sets the powers of Adam's betas where they were."""
    for number, name in enumerate(("_beta1_power", "_beta2_power")):
        if not hasattr(tf.train.AdamOptimizer, name):
            setattr(tf.train.AdamOptimizer, name, _BetaPower(number))


def set_underscored() -> None:
    """Lets the modules of generated operations have them with an underscore, too, as before 1.7: `_concat_v2`."""
    for name, module in list(sys.modules.items()):
        if name.startswith(_GENERATED) and "__getattr__" not in vars(module):
            module.__getattr__ = _without_underscore(module)  # type: ignore[method-assign]


def _without_underscore(module: Any) -> Callable[[str], Any]:
    def find(name: str) -> Any:
        public = vars(module).get(name[1:]) if name.startswith("_") else None
        if public is None:
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        return public
    return find
