"""`ps_train convert`: converts a checkpoint of graph training into one of Keras training, and back.

    graph  train_dir/model.ckpt-N    hidden/weights   hidden/weights/Adam   hidden/weights/Adam_1   global_step
                                         |                  |                     |                    |
    Keras  train_dir/ckpt-N.keras    hidden/kernel    Adam's m              Adam's v                iterations

The graph model's KERAS_TWIN names the weight of each variable. Training continues from the new checkpoint. If
either optimizer is not Adam, or the checkpoint has no moments, the optimizer starts from its initial state.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf
import tf_keras

from ps_train.config.groups import TrainingFlags
from ps_train.errors import CheckpointError, ConfigError, UserCodeError
from ps_train.graph import devices, optimizers
from ps_train.graph.plugin_calls import call_model_fn
from ps_train.parts.keras import checkpoints as keras_checkpoints
from ps_train.parts.keras import plugins
from ps_train.parts.keras.flags import ConvertConfig
from ps_train.plugins import contracts, loader
from ps_train.plugins.params import resolve_params
from ps_train.runtime import logs
from ps_train.storage import checkpoints

_BETAS = {"beta1_power": 0.9, "beta2_power": 0.999}  # the defaults of Adam in TensorFlow 1 and in Keras
_log = logging.getLogger(__name__)


class _Twins(NamedTuple):
    model: contracts.Model
    model_params: dict[str, Any]
    twin: plugins.KerasTwin
    keras_model: plugins.KerasModel
    keras_params: dict[str, Any]


def convert_checkpoint(config: ConvertConfig) -> None:
    """Converts the newest checkpoint of --train_dir into --output_dir.

    Raises:
      ConfigError: no such checkpoint or no twin, output_dir has checkpoints, or --params does not fit.
      CheckpointError: the checkpoint is not of this model.
      UserCodeError: KERAS_TWIN does not fit the two models.
    """
    twins = _load_twins(config)
    checkpoints.check_writable(config.output_dir)
    if checkpoints.paths(config.output_dir) or keras_checkpoints.checkpoint_paths(config.output_dir):
        raise ConfigError("folder_has_checkpoints", f"--output_dir: {config.output_dir!r} has checkpoints, which might "
                          "be taken for the new one; give another folder")
    path = _to_keras(config, twins) if config.to == "keras" else _to_graph(config, twins)
    logs.show(f"Made {path}")


def _load_twins(config: ConvertConfig) -> _Twins:
    model, twin = loader.load_model(config.model), plugins.load_twin(config.model)
    keras_model = plugins.load_keras_model(twin.model)
    defaults = TrainingFlags()  # convert has none of these flags, but plug-ins may read their values
    shared = {"batch_size": defaults.batch_size, "data_dir": defaults.data_dir, "hidden_units": config.hidden_units,
              "learning_rate": config.learning_rate, "on_bad_record": defaults.on_bad_record, "seed": defaults.seed}
    model_params, keras_params = resolve_params(config.params, [model, keras_model], shared)
    return _Twins(model, model_params, twin, keras_model, {**keras_params, "steps_per_execution": 1, **twin.params})


def _to_keras(config: ConvertConfig, twins: _Twins) -> str:
    source = checkpoints.newest_sound(config.train_dir)
    if source is None:
        raise ConfigError("no_checkpoint", f"--train_dir: no checkpoint model.ckpt-N in {config.train_dir!r}")
    reader = tf.train.load_checkpoint(source)
    model = keras_checkpoints.build_model(twins.keras_model, twins.keras_params)
    shapes = reader.get_variable_to_shape_map()
    variables = _weights(twins, model)
    moments = _moments(variables, model)
    _check_shapes(source, {name: (shapes.get(name), weight.shape.as_list()) for name, weight in variables.items()})
    if moments.keys() <= shapes.keys():
        variables.update(moments)
    else:
        _log.info("%s has no moments of Adam: the optimizer starts from its initial state", source)
    for name, variable in variables.items():
        variable.assign(reader.get_tensor(name))
    step = int(reader.get_tensor("global_step"))
    model.optimizer.iterations.assign(step)
    path = keras_checkpoints.checkpoint_path(config.output_dir, step)
    keras_checkpoints.write_model(model, path)
    return path


def _to_graph(config: ConvertConfig, twins: _Twins) -> str:
    newest = keras_checkpoints.newest_readable(config.train_dir)
    if newest is None:
        raise ConfigError("no_checkpoint", f"--train_dir: no checkpoint ckpt-N.keras in {config.train_dir!r}")
    step, source = newest
    model = keras_checkpoints.load_model_file(source, twins.keras_model.objects)
    variables = _weights(twins, model)
    values = {"global_step": np.int64(step)}
    if config.optimizer == "adam" and isinstance(model.optimizer, tf_keras.optimizers.Adam):
        variables.update(_moments(variables, model))
        # TensorFlow 1 keeps beta^(updates + 1) in variables, where Keras computes it.
        updates = int(model.optimizer.iterations.numpy())  # a step may have several, or none
        values.update({name: np.float32(beta ** (updates + 1)) for name, beta in _BETAS.items()})
    else:
        _log.info("%s and --optimizer=%s are not both Adam: the optimizer starts from its initial state", source,
                  config.optimizer)
    values.update({name: variable.numpy() for name, variable in variables.items()})
    with tf.Graph().as_default(), devices.ignoring_tasks():
        features = tf.placeholder(tf.float32, model.inputs[0].shape, name="features")
        labels = tf.placeholder(tf.int32, [None], name="labels")
        global_step = tf.train.create_global_step()
        spec = call_model_fn(twins.model, features, labels, contracts.TRAIN, twins.model_params)
        optimizers.make_optimizer(config.optimizer, config.learning_rate).minimize(spec.loss, global_step)
        return _save_graph(config, source, values)


def _save_graph(config: ConvertConfig, source: str, values: Mapping[str, np.ndarray]) -> str:
    variables = {variable.op.name: variable for variable in tf.global_variables()}
    shapes = {name: variable.shape.as_list() for name, variable in variables.items()}
    _check_shapes(source, {name: (list(value.shape), shapes.get(name)) for name, value in values.items()})
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for name, value in values.items():
            variables[name].load(value, session)
        saver = tf.train.Saver(tf.global_variables(), save_relative_paths=True)
        return saver.save(session, os.path.join(config.output_dir, checkpoints.BASENAME),
                          global_step=int(values["global_step"]), write_meta_graph=False)


def _weights(twins: _Twins, model: tf_keras.Model) -> dict[str, Any]:
    """Returns name in the graph -> weight of the Keras model, of all weights."""
    weights = {}
    for name, place in twins.twin.weights.items():
        layer, _, attribute = place.partition("/")
        try:
            weights[name] = getattr(model.get_layer(layer), attribute)
        except (ValueError, AttributeError):
            raise UserCodeError("wrong_keras_twin",
                                f"{twins.model.name}.KERAS_TWIN: {name!r} is {place!r}, which {twins.keras_model.name} "
                                "does not have") from None
    named = {id(weight) for weight in weights.values()}
    left_out = [weight.name for weight in model.weights if id(weight) not in named]
    if left_out:
        raise UserCodeError("wrong_keras_twin",
                            f"{twins.model.name}.KERAS_TWIN leaves out weights of {twins.keras_model.name}: "
                            f"{', '.join(left_out)}")
    return weights


def _moments(weights: Mapping[str, Any], model: tf_keras.Model) -> dict[str, Any]:
    """Returns name of Adam's slot in the graph -> variable of Keras' Adam, of both moments of all weights."""
    return {f"{name}/{slot}": variable
            for name, weight in weights.items()
            for slot, moment in (("Adam", "m"), ("Adam_1", "v"))
            for variable in model.optimizer.variables
            if f"/{variable.name}".endswith(f"/{moment}/{weight.name}")}


def _check_shapes(source: str, shapes: Mapping[str, tuple[list[int] | None, list[int] | None]]) -> None:
    """Compares name -> (shape in the checkpoint, shape in the model), each None without such a variable."""
    differing = [f"{name} is missing" if shape is None
                 else f"{name} has shape {shape} instead of {'none' if wanted is None else wanted}"
                 for name, (shape, wanted) in shapes.items() if shape != wanted]
    if differing:
        raise CheckpointError("checkpoint_of_another_model", f"checkpoint {source} is not of this model: "
                              f"{'; '.join(differing)}; give the --model, --hidden_units and --params that it was "
                              "trained with")
