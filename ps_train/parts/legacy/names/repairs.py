"""What changes in TensorFlow, numpy and absl themselves for TF1 code, for this whole process.

    names        that were removed, and those inside TensorFlow that moved or mean another object (tables.py, moved.py)
    functions    that stayed, but no longer take or do what TF1 code expects: each is replaced by a wrapper
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import operator
import pkgutil
import sys
from typing import Any, Callable

import numpy as np
import tensorflow as tf2
import tensorflow.compat.v1 as tf1
from tensorflow.python.client import session
from tensorflow.python.eager import context
from tensorflow.python.framework import dtypes, meta_graph, ops
from tensorflow.python.lib.io import file_io
from tensorflow.python.ops import (
    gen_resource_variable_ops,
    math_ops,
    ref_variable,
    resource_variable_ops,
    state_ops,
    variables,
)
from tensorflow.python.training import basic_session_run_hooks, saver, training_util
from tensorflow.python.training.saving import saveable_object_util

from ps_train.parts.legacy.classic import placement
from ps_train.parts.legacy.classic.sessions import note_global_step
from ps_train.parts.legacy.deeprec.installation import install_deeprec
from ps_train.parts.legacy.names import (
    arrays,
    channels_first,
    command_line,
    datasets,
    fed_variables,
    keras_nodes,
    library,
    more_functions,
    moved,
    private,
    tables,
)
from ps_train.parts.legacy.names.arrays import set_missing, wrap
from ps_train.parts.legacy.names.reference_code import repair_reference_code

# Names of BaseSaverBuilder until 1.13.
_SAVER_NAMES = {"OpListToDict": saveable_object_util.op_list_to_dict,
                "SaveableObjectsForOp": saveable_object_util.saveable_objects_for_op}


def repair() -> None:
    """Changes TensorFlow, numpy and absl for TF1 code."""
    for name, today in tables.NUMPY.items():
        if name not in np.__dict__:
            setattr(np, name, pkgutil.resolve_name(today))
    for module_name, names in moved.MOVED.items():
        module = importlib.import_module(module_name)
        for name, today in names.items():
            if not hasattr(module, name):
                setattr(module, name, pkgutil.resolve_name(today))
    for module_name, names in moved.REPLACED.items():
        for name, today in names.items():
            setattr(importlib.import_module(module_name), name, pkgutil.resolve_name(today))
    private.set_underscored()
    for name, today in _SAVER_NAMES.items():
        set_missing(saver.BaseSaverBuilder, name, staticmethod(today))
    private.set_attributes_of_operations()
    command_line.repair_flags()
    repair_reference_code()
    channels_first.take_channels_first()
    _repair_functions()
    _repair_variables()
    install_deeprec(wrap)


def _repair_functions() -> None:
    for name in ("sum", "mean", "prod", "max", "min", "all", "any", "logsumexp"):
        wrap(f"reduce_{name}", _reduce, math_ops)
    library.restore_python()
    arrays.show_numbers_as_before()
    for wrapper, names in arrays.WRAPPERS.items():
        for name in names:
            wrap(name, wrapper, np)
    if importlib.util.find_spec("tensorflow.python.util.numpy_compat"):  # it converts what is fed, in 2.18 and later
        wrap("np_asarray", arrays.ragged_array, importlib.import_module("tensorflow.python.util.numpy_compat"))
    set_missing(np.lib, "pad", arrays.pad)
    wrap("as_dtype", _as_dtype, dtypes, tf1, tf1.dtypes, tf2, tf2.dtypes, tf2.compat.v1, tf2.compat.v1.dtypes,
          tf2.compat.v2, tf2.compat.v2.dtypes)
    wrap("enable_eager_execution_internal", _enable_eager_execution, ops)
    if _refuses_float(np.ones(1)):
        wrap("_do_run", _with_numbers, session.BaseSession)
    wrap("string_input_producer", _string_input_producer, tf1.train)
    wrap("get_global_step", _get_global_step, training_util, tf1.train)
    wrap("get_collection", _get_collection, tf1.Graph)
    wrap("get_collection_ref", private.scopes_of_collection, tf1.Graph)
    wrap("constant", _constant, tf1)
    wrap("register_tensor_conversion_function", _convert_by, tf1, ops)
    wrap("map", _map_dataset, tf1.data.Dataset)
    datasets.repair_datasets(wrap)
    set_missing(tf1.TensorArray, "pack", tf1.TensorArray.stack)  # until 0.12
    set_missing(tf1.TensorArray, "unpack", tf1.TensorArray.unstack)
    tf1.distribute.cluster_resolver.TPUClusterResolver = more_functions.TPUClusterResolver
    wrap("read", _text_or_bytes, file_io.FileIO)
    wrap("device", placement.device, tf1.Graph)
    wrap("__init__", _sparse_tensor, tf1.SparseTensor)
    wrap("__init__", _dimension, tf1.Dimension)
    if importlib.util.find_spec("tf_keras"):
        from ps_train.parts.legacy.names.rnn import repair_cells  # noqa: PLC0415 (its cells need Keras 2)

        repair_cells(wrap)
        keras_nodes.repair_layers(wrap)
        backend = importlib.import_module("tf_keras.src.backend")
        wrap("softmax", _softmax, backend)
        wrap("_get_available_gpus", _gpus, backend)


def _enable_eager_execution(original: Callable, *args: Any, **kwargs: Any) -> None:
    # ps_train has made the context, in graph mode, and used it for nothing: let it be made with the script's options.
    # Without any, it keeps what the script has configured before.
    has_options = any(value is not None for value in (*args, *kwargs.values()))
    made = context._context  # noqa: SLF001 (it has no public name)
    if has_options and made is not None and not made._initialized:  # noqa: SLF001
        context._context = None  # noqa: SLF001
    original(*args, **kwargs)


def _repair_variables() -> None:
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
    wrap("restore", _restore, saveable_object_util.ResourceVariableSaveable)
    wrap("__init__", _saveable, saveable_object_util.ResourceVariableSaveable)
    wrap("after_run", _after_counted_run, basic_session_run_hooks.StepCounterHook)
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


def _refuses_float(array: np.ndarray) -> bool:
    try:
        float(array)
    except TypeError:
        return True
    return False


class OneNumber(np.ndarray):
    """An array of one number, which is also that number for Python, as all of them were before numpy 2.4."""

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __repr__(self) -> str:
        return repr(self.view(np.ndarray))

    def __reduce__(self) -> Any:
        return self.view(np.ndarray).__reduce__()  # so that a pickle can be read without ps_train


def _with_numbers(original: Callable, *args: Any, **kwargs: Any) -> list:
    # Scripts print a loss of the shape [1] with "%f".
    return [value.view(OneNumber) if type(value) is np.ndarray and value.size == 1 and value.ndim else value
            for value in original(*args, **kwargs)]


def _reduce(original: Callable, *args: Any, keep_dims: Any = None, reduction_indices: Any = None,
            **kwargs: Any) -> tf1.Tensor:
    # Until 1.12 the functions of this module took these names, too.
    for name, value in (("keepdims", keep_dims), ("axis", reduction_indices)):
        if value is not None:
            kwargs[name] = value
    return original(*args, **kwargs)


def _string_input_producer(original: Callable, string_tensor: Any, *args: Any, **kwargs: Any) -> Any:
    # It asks `not string_tensor`, which a resource variable refuses.
    if isinstance(string_tensor, variables.Variable):  # tf.Variable, of compat.v1, is no base of it
        string_tensor = tf1.convert_to_tensor(string_tensor)
    return original(string_tensor, *args, **kwargs)


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


def _constant(original: Callable, value: Any, *args: Any, **kwargs: Any) -> Any:
    # In Python 2, for which such code was written, `range` and `map` returned lists.
    is_lazy = isinstance(value, (range, *arrays.LAZY_TYPES))
    return original(list(value) if is_lazy else value, *args, **kwargs)


def _convert_by(original: Callable, base_type: Any, conversion_func: Callable, priority: int = 100) -> None:
    # The script's function may return a variable, or the value of `tf.assign`, which were tensors.
    def convert(value: Any, *args: Any, **kwargs: Any) -> Any:
        found = conversion_func(value, *args, **kwargs)
        return found.value() if isinstance(found, resource_variable_ops.BaseResourceVariable) else found

    original(base_type, convert, priority)


def _get_global_step(original: Callable, graph: tf1.Graph | None = None) -> Any:
    note_global_step(graph)
    return original(graph)


def _get_collection(original: Callable, graph: tf1.Graph, name: str, scope: str | None = None) -> list:
    # A wrapper replaces each regularizer's loss, and makes a new tensor whenever it is converted.
    if name == tf1.GraphKeys.REGULARIZATION_LOSSES:
        losses = graph.get_collection_ref(name)
        losses[:] = [getattr(loss, "_master_tensor", loss) for loss in losses]
    return original(graph, name, scope)


def _map_dataset(original: Callable, dataset: tf1.data.Dataset, map_func: Any, num_parallel_calls: Any = None,
                 *args: Any, num_threads: Any = None, output_buffer_size: Any = None, **kwargs: Any) -> Any:
    # The last two are those of tf.contrib.data in 1.2 and 1.3.
    mapped = original(dataset, map_func, num_parallel_calls or num_threads, *args, **kwargs)
    return mapped.prefetch(output_buffer_size) if output_buffer_size else mapped


@functools.cache  # TensorFlow asks for the dtype of every tensor
def _is_of_pandas(kind: type) -> bool:
    return any(base.__name__ == "ExtensionDtype" for base in kind.__mro__)


def _as_dtype(original: Callable, type_value: Any) -> Any:
    """Takes the dtype of a pandas column of strings or categories, or of numbers with gaps, too."""
    # pandas_input_fn and numpy_input_fn ask for the dtype of each array that they will feed.
    if _is_of_pandas(type(type_value)):
        if hasattr(type_value, "categories"):
            return _as_dtype(original, type_value.categories.dtype)
        if type_value.type is str:
            return tf1.string
        if issubclass(type_value.type, np.generic):
            return original(np.dtype(type_value.type))
    return original(type_value)


def _of_collections(original: Callable, variable: Any, *args: Any, collections: Any = None, **kwargs: Any) -> None:
    # Before 1.0 the name of one collection was taken, too.
    original(variable, *args, collections=[collections] if isinstance(collections, str) else collections, **kwargs)


def _of_open_shape(original: Callable, variable: Any, *args: Any, **kwargs: Any) -> None:
    # A variable without a check of its shape had no static shape, and took values of any.
    if kwargs.get("validate_shape") is False and kwargs.get("shape") is None:
        kwargs["shape"] = tf1.TensorShape(None)
    original(variable, *args, **kwargs)


def _text_or_bytes(original: Callable, file: file_io.FileIO, n: int = -1) -> str | bytes:
    # In Python 2, `tf.gfile.FastGFile("image.jpg", "r").read()` was right.
    if n != -1:
        return original(file, n)
    start = file.tell()
    try:
        return original(file)
    except UnicodeDecodeError:
        file.seek(start)
        return file._read_buf.read(file.size() - start)  # noqa: SLF001 (before it is decoded)


def _dimension(original: Callable, dimension: tf1.Dimension, value: Any) -> None:
    # In TF1 a float that is a whole number was one, too, and so was its text: scripts write `size / 2` in Python 2, or
    # `"64,32".split(",")`.
    is_whole = isinstance(value, (float, np.floating)) and float(value).is_integer()
    original(dimension, int(value) if is_whole or isinstance(value, (str, bytes)) else value)


def _softmax(original: Callable, x: Any, axis: int = -1) -> tf1.Tensor:
    # Keras 2 asks for the number of dimensions, which `InputLayer()` leaves open.
    return tf1.nn.softmax(x, axis) if x.shape.rank is None else original(x, axis)


def _gpus(original: Callable) -> list:
    # Keras 2 asks a session of its own, which initialises the variables; a task has no session before its cluster's.
    return tf2.config.list_physical_devices("GPU")


def _sparse_tensor(original: Callable, *args: Any, **kwargs: Any) -> None:
    # Before 1.0 the argument was called `shape`.
    if "shape" in kwargs:
        kwargs["dense_shape"] = kwargs.pop("shape")
    original(*args, **kwargs)
