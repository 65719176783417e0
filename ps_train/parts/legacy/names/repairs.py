"""What changes in TensorFlow, numpy and absl themselves for TF1 code, for this whole process.

    names        that were removed, and those inside TensorFlow that moved or mean another object (tables.py, moved.py)
    functions    that stayed, but no longer take or do what TF1 code expects: each is replaced by a wrapper
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
from typing import Any, Callable

import numpy as np
import tensorflow as tf2
import tensorflow.compat.v1 as tf1
from tensorflow.python.client import session
from tensorflow.python.eager import context
from tensorflow.python.framework import dtypes, ops
from tensorflow.python.lib.io import file_io
from tensorflow.python.ops import math_ops, resource_variable_ops, script_ops, variables
from tensorflow.python.training import saver, training_util
from tensorflow.python.training.saving import saveable_object_util

from ps_train.parts.legacy.classic import placement
from ps_train.parts.legacy.classic.sessions import note_global_step
from ps_train.parts.legacy.deeprec.installation import install_deeprec
from ps_train.parts.legacy.names import (
    arrays,
    channels_first,
    command_line,
    datasets,
    keras_nodes,
    library,
    more_functions,
    moved,
    number_lists,
    private,
    py_functions,
    tables,
)
from ps_train.parts.legacy.names.arrays import set_missing, wrap
from ps_train.parts.legacy.names.reference_code import repair_reference_code
from ps_train.parts.legacy.names.variables import repair_variables

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
    private.set_attributes_of_optimizers()
    command_line.repair_flags()
    repair_reference_code()
    channels_first.take_channels_first()
    library.restore_python()
    _repair_arrays()
    _repair_functions()
    repair_variables()
    install_deeprec(wrap)


def _repair_arrays() -> None:
    arrays.show_numbers_as_before()
    for wrapper, names in arrays.WRAPPERS.items():
        for name in names:
            wrap(name, wrapper, np)
    if importlib.util.find_spec("tensorflow.python.util.numpy_compat"):  # it converts what is fed, in 2.18 and later
        wrap("np_asarray", arrays.ragged_array, importlib.import_module("tensorflow.python.util.numpy_compat"))
    set_missing(np.lib, "pad", arrays.pad)


def _repair_functions() -> None:
    for name in ("sum", "mean", "prod", "max", "min", "all", "any", "logsumexp"):
        wrap(f"reduce_{name}", _reduce, math_ops)
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
    number_lists.repair_messages(wrap)
    wrap("_internal_py_func", py_functions.cast_results, script_ops)
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
