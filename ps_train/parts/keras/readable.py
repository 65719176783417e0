"""Checks before training that a checkpoint will hold the model, and that Keras will read it.

    model --> its configuration --> a second model --> values of its variables --> a file --> the same values
"""

from __future__ import annotations

import logging
import os
import tempfile
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from ps_train.errors import UserCodeError
from ps_train.parts.keras import checkpoints
from ps_train.parts.keras.plugins import KerasModel
from ps_train.runtime import tensorflow_errors

_MAX_LISTED = 4
_NUM_VALUES = 100  # small whole numbers, which each dtype of weights has
_LOOKUPS = (tf_keras.layers.StringLookup, tf_keras.layers.IntegerLookup)  # the first is in each TextVectorization, too
_log = logging.getLogger(__name__)


def check_readable(model: tf_keras.Model, plugin: KerasModel) -> None:
    """Raises UserCodeError if a checkpoint of the model could not be read, or would lack weights.

    Call it before training, outside of the strategy's scope.
    """
    try:
        read = tf_keras.saving.deserialize_keras_object(tf_keras.saving.serialize_keras_object(model),
                                                        custom_objects=dict(plugin.objects))
    except Exception as error:  # any error of the user's get_config or from_config
        raise UserCodeError("unregistered_keras_object",
                            f"{plugin.name}.build_model: a checkpoint of this model could not be read: "
                            f"{type(error).__name__}: {checkpoints.first_line(error)}; {checkpoints.REGISTER}"
                            ) from error
    if read.optimizer is None:
        raise UserCodeError("model_not_compiled",
                            f"{plugin.name}.build_model: a checkpoint of this model would be read without its "
                            "optimizer and loss, as its class has its own compile; add get_compile_config and "
                            "compile_from_config to it")
    if lost := _lost_weights(read, model, plugin):
        more = f" and {len(lost) - _MAX_LISTED} more" if len(lost) > _MAX_LISTED else ""
        raise UserCodeError("weights_not_saved",
                            f"{plugin.name}.build_model: a checkpoint of this model would lack the values of "
                            f"{', '.join(lost[:_MAX_LISTED])}{more}; Keras saves a layer that is an attribute of "
                            "another one, or in a list or dict that is, but none in a list of lists, nor a variable of "
                            "a tf.Module: make it such an attribute, or give its layer save_own_variables and "
                            "load_own_variables")


def _lost_weights(read: tf_keras.Model, model: tf_keras.Model, plugin: KerasModel) -> list[str]:
    """Returns the names of the variables of `read` that Keras does not write to a file and read from it.

    It changes their values, except of those that the model in training has, too, such as a layer's of its module.
    """
    not_tried = {id(variable) for variable in [*model.weights, *model.optimizer.variables, *_counts(read)]}
    variables = [variable for variable in [*read.weights, *read.optimizer.variables]
                 if id(variable) not in not_tried and isinstance(variable, tf.Variable)
                 and (variable.dtype.is_floating or variable.dtype.is_integer) and variable.shape.is_fully_defined()]
    values = [number % _NUM_VALUES + 1 for number in range(len(variables))]
    _fill(variables, values)
    try:
        with tempfile.TemporaryDirectory(prefix="ps_train-") as folder:
            path = os.path.join(folder, "variables.weights.h5")  # written and read as the variables of a .keras file
            read.save_weights(path)
            _fill(variables, [0] * len(variables))
            read.load_weights(path)
    except OSError as error:
        _log.warning("whether a checkpoint has all weights was not tried: no file in the folder for temporary files: "
                     "%s", tensorflow_errors.reason(error))
        return []
    except Exception as error:  # any error of the user's save_own_variables or load_own_variables
        raise UserCodeError("weights_not_saved",
                            f"{plugin.name}.build_model: the variables of this model could not be saved and read: "
                            f"{type(error).__name__}: {checkpoints.first_line(error)}") from error
    return [variable.name.partition(":")[0] for variable, value in zip(variables, values)
            if not (variable.numpy() == value).all()]


def _counts(model: tf_keras.Model) -> list[Any]:
    """Returns the variables of layers that look words up, of which Keras saves only what a call of the layer reads."""
    return [variable for part in model.submodules if isinstance(part, _LOOKUPS) for variable in part.weights]


def _fill(variables: list[Any], values: list[int]) -> None:
    for variable, value in zip(variables, values):
        variable.assign(np.full(variable.shape, value, variable.dtype.as_numpy_dtype))
