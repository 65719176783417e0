"""Variables as in TF1: instances of tf.Variable, found by their names as tensors, of any shape if so asked."""

from __future__ import annotations

import functools
import operator
import sys
from typing import Any, Callable

import numpy as np
import tensorflow.compat.v1 as tf1
from tensorflow.python.client import session
from tensorflow.python.framework import meta_graph
from tensorflow.python.ops import (
    gen_resource_variable_ops,
    gradients_impl,
    ref_variable,
    resource_variable_ops,
    state_ops,
)
from tensorflow.python.training import basic_session_run_hooks
from tensorflow.python.training.saving import saveable_object_util

from ps_train.parts.legacy.names import fed_variables
from ps_train.parts.legacy.names.arrays import wrap


def repair_variables() -> None:
    """Changes the classes and functions of variables, and how they are found, for TF1 code."""
    # In TF1 every variable was an instance of tf.Variable.
    tf1.Variable.register(resource_variable_ops.BaseResourceVariable)
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):  # `variable -= 1` made a tensor
        method = functools.partialmethod(_in_place, getattr(operator, name))
        setattr(resource_variable_ops.BaseResourceVariable, f"__i{name}__", method)
    wrap("__bool__", _is_true, resource_variable_ops.BaseResourceVariable)
    wrap("initialized_value", _initialized_value, resource_variable_ops.BaseResourceVariable)
    wrap("eval", _assigned, resource_variable_ops._UnreadVariable)  # noqa: SLF001 (what `assign` returns)
    for kind in (resource_variable_ops.ResourceVariable, ref_variable.RefVariable):
        wrap("_init_from_args", _of_collections, kind)
    wrap("_init_from_args", _of_open_shape, resource_variable_ops.ResourceVariable)
    wrap("_run", fed_variables.feed_variables, session.BaseSession)
    wrap("gradients", fed_variables.gradients, gradients_impl, tf1)
    wrap("restore", _restore, saveable_object_util.ResourceVariableSaveable)
    wrap("__init__", _saveable, saveable_object_util.ResourceVariableSaveable)
    wrap("after_run", _after_counted_run, basic_session_run_hooks.StepCounterHook)
    wrap("assign", _assign_of_other_shape, state_ops, tf1)
    for name in ("assign", "assign_add", "assign_sub"):
        wrap(name, _assign, state_ops, tf1)
    wrap("get_tensor_by_name", _tensor_by_name, tf1.Graph)
    wrap("as_graph_element", _fetched_by_name, tf1.Graph)
    wrap("import_scoped_meta_graph_with_return_elements", _import_meta_graph, meta_graph)


def _is_true(original: Callable, variable: Any) -> bool:
    # `if global_step:` asked whether there is one.
    return original(variable) if tf1.executing_eagerly() else True


def _initialized_value(_: Callable, variable: Any) -> tf1.Tensor:
    # For `tf.Variable(other.initialized_value())`: TensorFlow has it for variables that are no resources only.
    with tf1.init_scope():
        return tf1.cond(variable.is_initialized(), variable.read_value, lambda: variable.initial_value)


def _in_place(variable: Any, operation: Callable, other: Any) -> tf1.Tensor:
    return operation(variable, other)


def _assigned(_: Callable, assigned: Any, feed_dict: Any = None, run_in: Any = None, **kwargs: Any) -> np.ndarray:
    # In TF1 `variable.assign(placeholder)` was a tensor, whose `eval` takes what to feed first.
    if feed_dict is not None and not isinstance(feed_dict, dict):  # a session, as for any variable
        feed_dict, run_in = None, feed_dict
    return assigned._graph_element.eval(feed_dict, kwargs.get("session", run_in))  # noqa: SLF001


def _restore(original: Callable, saveable: Any, restored_tensors: list, restored_shapes: list | None) -> Any:
    # A variable took only values of its own shape. A resource variable takes what a checkpoint of another model has.
    if restored_shapes is None:
        with tf1.colocate_with(restored_tensors[0]):
            of_shape = tf1.ensure_shape(restored_tensors[0], saveable._var_shape)  # noqa: SLF001 (no public name)
        restored_tensors = [of_shape, *restored_tensors[1:]]
    return original(saveable, restored_tensors, restored_shapes)


def _saveable(original: Callable, saveable: Any, var: Any, *args: Any, **kwargs: Any) -> None:
    # `freeze_graph` gives a Saver tensors by the names of variables, which are their handles.
    if isinstance(var, tf1.Tensor) and var.op.type == "VarHandleOp":
        with tf1.colocate_with(var.op):
            var = gen_resource_variable_ops.read_variable_op(var, var.op.get_attr("dtype"))
    original(saveable, var, *args, **kwargs)


def _after_counted_run(original: Callable, hook: Any, run_context: Any, run_values: Any) -> None:
    # A step reads a resource variable before or after it updates it, so the hook may get a number twice, and would warn
    # that it has not been increased. It does if it gets it three times.
    is_same = run_values.results == hook._last_global_step  # noqa: SLF001 (no public name)
    if is_same and not getattr(hook, "was_same", False):
        hook._last_global_step = None  # noqa: SLF001
    hook.was_same = is_same
    original(hook, run_context, run_values)


def _assign(original: Callable, ref: Any, *args: Any, **kwargs: Any) -> Any:
    # The tensor that a graph had by the name of a variable was the variable.
    handle = fed_variables.variable_handle(ref.graph, ref) if isinstance(ref, tf1.Tensor) else None
    if handle is not None:
        known = ref.graph.get_collection("variables") + ref.graph.get_collection("local_variables")
        ref = next((variable for variable in known if variable.op.name == handle.op.name), ref)
    return original(ref, *args, **kwargs)


def _assign_of_other_shape(original: Callable, ref: Any, value: Any, validate_shape: bool | None = None, *args: Any,
                           **kwargs: Any) -> Any:
    # A resource variable refuses a value that is known to have another shape.
    is_resource = isinstance(ref, resource_variable_ops.BaseResourceVariable)
    if validate_shape is not False or not is_resource or tf1.executing_eagerly():
        return original(ref, value, validate_shape, *args, **kwargs)
    value = tf1.placeholder_with_default(tf1.convert_to_tensor(value, ref.dtype.base_dtype), None)
    with tf1.control_dependencies([gen_resource_variable_ops.assign_variable_op(ref.handle, value)]):
        return tf1.placeholder_with_default(ref.read_value(), None)


def _tensor_by_name(original: Callable, graph: tf1.Graph, name: str) -> tf1.Tensor:
    found = original(graph, _name_today(graph, name))
    return found if _caller().startswith("tensorflow.") else _value_of(graph, found)


def _fetched_by_name(original: Callable, graph: tf1.Graph, element: Any, *args: Any, **kwargs: Any) -> Any:
    found = original(graph, _name_today(graph, element), *args, **kwargs)
    # `session.run("weights:0")`, LoggingTensorHook(["weights"])
    is_fetched = isinstance(element, str) and _caller() in (session.__name__, basic_session_run_hooks.__name__)
    return _value_of(graph, found) if is_fetched else found


def _name_today(graph: tf1.Graph, name: Any) -> Any:
    """Returns the name of a variable for that of its value: "weights:0" for "weights/read:0"; others as they are."""
    variable = name.removesuffix("/read:0") if isinstance(name, str) else name
    if variable == name:
        return name
    try:
        return f"{variable}:0" if graph.get_operation_by_name(variable).type == "VarHandleOp" else name
    except KeyError:
        return name


def _caller() -> str:
    """Returns the name of the module that has called a function which `wrap` has replaced."""
    return sys._getframe(3).f_globals.get("__name__", "")  # noqa: SLF001 (the only way)


def _value_of(graph: tf1.Graph, found: Any) -> Any:
    """Returns the value of a variable, whose name was that of its value in TF1, for its handle; else what was found."""
    if getattr(found, "dtype", None) != tf1.resource or found.op.type != "VarHandleOp":
        return found
    try:
        return graph.get_operation_by_name(f"{found.op.name}/Read/ReadVariableOp").outputs[0]
    except KeyError:
        return found


def _import_meta_graph(original: Callable, *args: Any, **kwargs: Any) -> Any:
    """Imports a graph; in its collections, a variable is what was exported by the name of a variable's tensor."""
    result = original(*args, **kwargs)
    graph = tf1.get_default_graph()
    collections = [graph.get_collection_ref(name) for name in graph.get_all_collection_keys()]
    variables = {item.handle.op.name: item for items in collections for item in items
                 if isinstance(item, resource_variable_ops.BaseResourceVariable)}
    for items in collections:
        items[:] = [variables.get(item.op.name, item) if getattr(item, "dtype", None) == tf1.resource else item
                    for item in items]
    return result


def _of_collections(original: Callable, variable: Any, *args: Any, collections: Any = None, **kwargs: Any) -> None:
    # Before 1.0 the name of one collection was taken, too.
    original(variable, *args, collections=[collections] if isinstance(collections, str) else collections, **kwargs)


def _of_open_shape(original: Callable, variable: Any, *args: Any, **kwargs: Any) -> None:
    # A variable without a check of its shape had no static shape, and took values of any.
    if kwargs.get("validate_shape") is False and kwargs.get("shape") is None:
        kwargs["shape"] = tf1.TensorShape(None)
    original(variable, *args, **kwargs)
