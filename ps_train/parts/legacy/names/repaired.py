"""Functions that stayed, but no longer do what TF1 code expects; they are changed in place, for compat.v1 as well."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.framework import device
from tensorflow.python.ops import resource_variable_ops, variables
from tensorflow.python.training import training_util

from ps_train.parts.legacy.global_step import note_global_step
from ps_train.parts.legacy.names import renamed
from ps_train.parts.legacy.names.libraries import flags_of_absl, numpy_calls, pandas_calls


def repair() -> None:
    """Changes TensorFlow, numpy and absl for TF1 code. Call it once."""
    numpy_calls.restore_numpy(renamed.NUMPY)
    pandas_calls.take_column_types()
    flags_of_absl.restore_flags()
    device.DeviceSpec = tf.DeviceSpec  # the one of TensorFlow 2 has no merge_from
    # In TF1 every variable was an instance of tf.Variable.
    tf.Variable.register(resource_variable_ops.BaseResourceVariable)
    tf.train.string_input_producer = _takes_variables(tf.train.string_input_producer)
    tf.train.get_global_step = training_util.get_global_step = _notes_global_step(training_util.get_global_step)
    tf.Graph.get_collection = _evaluates_losses(tf.Graph.get_collection)
    tf.constant = _takes_ranges(tf.constant)
    tf.data.Dataset.map = _takes_old_map_arguments(tf.data.Dataset.map)


def _takes_variables(function: Any) -> Any:
    @functools.wraps(function)
    def string_input_producer(string_tensor: Any, *args: Any, **kwargs: Any) -> Any:
        # It asks `not string_tensor`, which a resource variable refuses.
        if isinstance(string_tensor, variables.Variable):  # tf.Variable, of compat.v1, is no base of it
            string_tensor = tf.convert_to_tensor(string_tensor)
        return function(string_tensor, *args, **kwargs)
    return string_input_producer


def _takes_ranges(function: Any) -> Any:
    @functools.wraps(function)
    def constant(value: Any, *args: Any, **kwargs: Any) -> Any:
        # In Python 2, for which such code was written, `range` returned a list.
        return function(list(value) if isinstance(value, range) else value, *args, **kwargs)
    return constant


def _notes_global_step(function: Any) -> Any:
    @functools.wraps(function)
    def get_global_step(graph: tf.Graph | None = None) -> Any:
        note_global_step(graph)
        return function(graph)
    return get_global_step


def _evaluates_losses(function: Any) -> Any:
    @functools.wraps(function)
    def get_collection(self: tf.Graph, name: str, scope: str | None = None) -> list:
        # A wrapper stands in place of each regularizer's loss, and makes a new tensor whenever it is converted.
        if name == tf.GraphKeys.REGULARIZATION_LOSSES:
            losses = self.get_collection_ref(name)
            losses[:] = [getattr(loss, "_master_tensor", loss) for loss in losses]
        return function(self, name, scope)
    return get_collection


def _takes_old_map_arguments(function: Any) -> Any:
    @functools.wraps(function)
    def map_dataset(self: tf.data.Dataset, map_func: Any, num_parallel_calls: Any = None, *args: Any,
                    num_threads: Any = None, output_buffer_size: Any = None, **kwargs: Any) -> tf.data.Dataset:
        # The last two are those of tf.contrib.data in 1.2 and 1.3.
        mapped = function(self, map_func, num_parallel_calls or num_threads, *args, **kwargs)
        return mapped.prefetch(output_buffer_size) if output_buffer_size else mapped
    return map_dataset
