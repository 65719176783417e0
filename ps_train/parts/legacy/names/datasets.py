"""What tf.contrib.data had, and tf.data has in another form."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Container
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.data.ops.dataset_ops import DatasetV1Adapter  # no public way to a dataset with iterators
from tensorflow.python.framework.func_graph import FuncGraph  # the graph of a dataset's function has no public name

_NEW = tf.data.Dataset.__base__  # TensorFlow 2's class


def repair_datasets(wrap: Callable) -> None:
    """Changes TensorFlow's datasets for scripts, by all functions below that take `wrap`."""
    for repair in (let_datasets_change_graphs, let_functions_take_constants, let_datasets_be_empty,
                   let_methods_return_old_datasets, let_options_have_old_names):
        repair(wrap)


def batch_and_drop_remainder(batch_size: Any) -> Callable:
    """For `Dataset.apply`: `batch` without the last, smaller batch."""
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


def padded_batch_and_drop_remainder(batch_size: Any, padded_shapes: Any, padding_values: Any = None) -> Callable:
    """For `Dataset.apply`: `padded_batch` without the last, smaller batch."""
    return lambda dataset: dataset.padded_batch(batch_size, padded_shapes, padding_values, drop_remainder=True)


def private_thread_pool(
    num_threads: int, display_name: str | None = None, max_intra_op_parallelism: int = 1
) -> tf.data.Options:
    """Returns what `override_threadpool` gives a dataset; the threads have no name."""
    del display_name
    options = tf.data.Options()
    options.threading.private_threadpool_size = num_threads
    options.threading.max_intra_op_parallelism = max_intra_op_parallelism
    return options


def override_threadpool(dataset: tf.data.Dataset, thread_pool: tf.data.Options) -> tf.data.Dataset:
    """Returns a dataset that runs in threads of its own."""
    return dataset.with_options(thread_pool)


def in_default_graph(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset, or its copy in the default graph if it is in another.

    Until TensorFlow 1.12 the operations of a dataset were made with its iterator, in the iterator's graph. A copy can
    do what a one-shot iterator can: tensors that are fed, and tables, are left behind.
    """
    if tf.executing_eagerly():
        return dataset
    variant, graph = tf.data.experimental.to_variant(dataset), tf.get_default_graph()
    if variant.graph is graph or hasattr(graph, "outer_graph"):  # that of a function, which captures the dataset
        return dataset
    return DatasetV1Adapter(tf.data.experimental.from_variant(_copied(variant), dataset.element_spec))


def _copied(tensor: tf.Tensor, kinds: Container[str] | None = None) -> tf.Tensor:
    """Returns a copy of a tensor, with all that it is made of, in the default graph.

    Args:
      kinds: only if there are no operations of other types; else the tensor is returned as it is.
    """
    graph_def = tf.graph_util.extract_sub_graph(tensor.graph.as_graph_def(), [tensor.op.name])
    if kinds is not None and any(node.op not in kinds for node in graph_def.node):
        return tensor
    for node in graph_def.node:
        node.device = ""  # of a task of the other graph's cluster, which may not be there
    (copied,) = tf.import_graph_def(graph_def, return_elements=[tensor.name], name="dataset")
    # The other graph owns the functions of `tf.py_func`.
    graph = tf.get_default_graph()
    graph.ps_train_sources = [*getattr(graph, "ps_train_sources", ()), tensor.graph]
    return copied


# What makes a dataset of a dataset, and a tensor of a graph for it, such as a buffer's size.
_TRANSFORMATIONS = ("apply", "batch", "cache", "concatenate", "enumerate", "filter", "flat_map", "interleave", "map",
                    "padded_batch", "prefetch", "repeat", "shard", "shuffle", "skip", "take", "unbatch", "window",
                    "with_options")


def let_datasets_change_graphs(wrap: Callable) -> None:
    """Lets scripts make a dataset in one graph and go on with it in another, such as that of an Estimator's input."""
    for name in _TRANSFORMATIONS:
        wrap(name, _in_default_graph, tf.data.Dataset)
    zip_them = tf.data.Dataset.zip
    tf.data.Dataset.zip = staticmethod(lambda *args, **kwargs: zip_them(
        *tf.nest.map_structure(_moved, args), **tf.nest.map_structure(_moved, kwargs)))


def let_methods_return_old_datasets(wrap: Callable) -> None:
    """Lets iterators be made of what every method returns: those that `tf.contrib.data.Dataset` had, and new ones.

    Such a method, as `ignore_errors`, is one of TensorFlow 2's class, whose datasets are iterated over in Python.
    """
    kind = tf.data.Dataset
    for name in dir(kind):
        is_new = not name.startswith("_") and inspect.isfunction(vars(_NEW).get(name))
        if is_new and name not in vars(kind):
            wrap(name, _as_old, kind)
    kind.dense_to_sparse_batch = lambda dataset, batch_size, row_shape: dataset.apply(
        tf.data.experimental.dense_to_sparse_batch(batch_size, row_shape))


def _as_old(original: Callable, *args: Any, **kwargs: Any) -> Any:
    result = original(*args, **kwargs)
    is_new = isinstance(result, _NEW) and not isinstance(result, tf.data.Dataset)
    return DatasetV1Adapter(result) if is_new else result


# Settings of a dataset that TensorFlow has renamed -> its path today, and what the value means; those without one
# chose rewrites that are gone.
_OLD_OPTIONS = {
    "autotune": ("autotune.enabled", bool), "experimental_autotune": ("autotune.enabled", bool),
    "autotune_cpu_budget": ("autotune.cpu_budget", int), "autotune_buffers": None, "autotune_algorithm": None,
    "filter_with_random_uniform_fusion": None, "hoist_random_uniform": None, "map_vectorization": None,
    "experimental_hoist_random_uniform": None, "experimental_latency_all_edges": None, "experimental_stats": None,
    "experimental_numa_aware": None, "experimental_map_vectorization": None,
    "experimental_stateful_whitelist": None,
    **{f"experimental_{name}": (f"experimental_optimization.{name}", bool) for name in (
        "filter_fusion", "map_and_batch_fusion", "map_and_filter_fusion", "map_fusion", "map_parallelization",
        "noop_elimination", "shuffle_and_repeat_fusion")},
}


def let_options_have_old_names(wrap: Callable) -> None:
    """Lets scripts set and read the options of 1.12 to 1.15; one whose rewrite is gone has no effect."""
    options = tf.data.Options()
    for kind in (type(options), type(options.experimental_optimization), type(options.experimental_distribute)):
        wrap("__setattr__", _set_option, kind)
        kind.__getattr__ = _old_option


def _set_option(original: Callable, options: Any, name: str, value: Any) -> None:
    if name == "auto_shard" and hasattr(options, "auto_shard_policy"):
        policies = tf.data.experimental.AutoShardPolicy
        name, value = "auto_shard_policy", policies.AUTO if value else policies.OFF
    known = _OLD_OPTIONS.get(name, ())
    if known == () or hasattr(type(options), name):
        original(options, name, value)
    elif known is not None:
        owner, leaf = _of_today(options, known[0])
        if owner is not None:
            setattr(owner, leaf, known[1](value))


def _of_today(options: Any, path: str) -> tuple[Any, str]:
    """Returns the options that have one today, None if these have no such part, and its name."""
    *above, leaf = path.split(".")
    for part in above:
        options = getattr(options, part) if hasattr(type(options), part) else None
    return options if hasattr(type(options), leaf) else None, leaf


def _old_option(options: Any, name: str) -> Any:
    """Returns the value of an option by its old name, or an object that takes any settings of a group that is gone."""
    known = _OLD_OPTIONS.get(name, ())
    if known == ():
        raise AttributeError(name)
    if known is None:
        return types.SimpleNamespace() if name.endswith(("map_vectorization", "experimental_stats")) else None
    owner, leaf = _of_today(options, known[0])
    return None if owner is None else getattr(owner, leaf)


def let_datasets_be_empty(wrap: Callable) -> None:
    """Lets scripts call the functions of the class by an object: `tf.data.Dataset().from_generator(...)`.

    Until 1.12 Python 3 made such an object, as the class was abstract for Python 2 only.
    """
    kind = tf.data.Dataset
    kind.__abstractmethods__ = frozenset()
    wrap("__init__", lambda original, dataset, *args: None if type(dataset) is kind else original(dataset, *args), kind)


# A constant, and what is made of some where a module begins.
_CONSTANT = ("Const", "Identity", "Cast", "Pack", "Reshape", "ExpandDims", "Mul", "Sub", "AddV2", "RealDiv", "Range",
             "Fill", "StridedSlice")


def let_functions_take_constants(wrap: Callable) -> None:
    """Lets the function of a dataset use a constant of another graph, such as the mean pixel at the top of a module.

    Until TensorFlow 1.13 the function of a one-shot iterator took such values with it.
    """
    wrap("capture", _capture, FuncGraph)


def _capture(original: Callable, function: FuncGraph, tensor: Any, *args: Any, **kwargs: Any) -> Any:
    graph = function
    while isinstance(graph, FuncGraph) and graph is not getattr(tensor, "graph", graph):
        graph = graph.outer_graph
    if type(graph) is tf.Graph and graph is not tensor.graph and type(tensor.graph) is tf.Graph:
        with graph.as_default():
            tensor = _copied(tensor, _CONSTANT)
    return original(function, tensor, *args, **kwargs)


def _in_default_graph(original: Callable, *args: Any, **kwargs: Any) -> Any:
    return original(*map(_moved, args), **{name: _moved(value) for name, value in kwargs.items()})


def _moved(value: Any) -> Any:
    return in_default_graph(value) if isinstance(value, tf.data.Dataset) else value
