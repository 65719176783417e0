"""`ps_train convert`: a checkpoint of the graph road becomes one of the Keras road, and back.

    graph  train_dir/model.ckpt-N    hidden/weights   hidden/weights/Adam   hidden/weights/Adam_1   global_step
                                         |                  |                     |                    |
    Keras  train_dir/ckpt-N.keras    hidden/kernel    Adam's m              Adam's v                iterations

Which variable is which weight stands in the graph model's KERAS_TWIN. Both train on from what is made; with an
optimizer other than Adam on the graph road, or without its moments, the optimizer begins anew.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf
import tf_keras

from ps_train.config.groups import TrainingFlags
from ps_train.errors import CheckpointError, ConfigError, UserCodeError
from ps_train.graph import devices, optimizers
from ps_train.graph.plugin_calls import call_model_fn
from ps_train.keras import plugins
from ps_train.keras.convert_flags import ConvertConfig
from ps_train.keras.plugins import KerasModel, KerasTwin
from ps_train.keras.storage import checkpoints as saving
from ps_train.plugins import contracts
from ps_train.plugins.contracts import TRAIN, Model
from ps_train.storage import checkpoints as checkpoint

_BETAS = {"beta1_power": 0.9, "beta2_power": 0.999}  # the defaults of Adam on both roads
_log = logging.getLogger(__name__)


class Pair(NamedTuple):
    """A model plug-in of the graph road and its Keras twin, each with its parameters."""

    model: Model
    model_params: dict[str, Any]
    twin: KerasTwin
    keras_model: KerasModel
    keras_params: dict[str, Any]


def run(config: ConvertConfig) -> None:
    """Converts the newest checkpoint of --train_dir into --output_dir.

    Raises:
      ConfigError: there is no such checkpoint or no twin, or output_dir has checkpoints.
      CheckpointError: it is not of this model.
      UserCodeError: KERAS_TWIN does not fit the two models.
    """
    pair = load_pair(config)
    _check_output(config.output_dir)
    path = to_keras(config, pair) if config.to == "keras" else to_graph(config, pair)
    print(f"Made {path}", flush=True)


def load_pair(config: ConvertConfig) -> Pair:
    """Imports the plug-ins of both roads.

    Raises:
      ConfigError: one is missing, or --params does not fit them.
    """
    model, twin = contracts.load_model(config.model), plugins.load_twin(config.model)
    keras_model = plugins.load_keras_model(twin.model)
    defaults = TrainingFlags()  # convert has none of these flags, and plug-ins may read their values
    shared = {"batch_size": defaults.batch_size, "data_dir": defaults.data_dir, "hidden_units": config.hidden_units,
              "learning_rate": config.learning_rate, "seed": defaults.seed}
    model_params, keras_params = contracts.resolve_params(config.params, [model, keras_model], shared)
    return Pair(model, model_params, twin, keras_model, {**keras_params, "steps_per_execution": 1, **twin.params})


def _check_output(output_dir: str) -> None:
    checkpoint.check_writable(output_dir)
    if checkpoint.paths(output_dir) or saving.checkpoints(output_dir):
        raise ConfigError(f"--output_dir: {output_dir!r} has checkpoints, which might be taken for the new one; give "
                          "another folder")


def to_keras(config: ConvertConfig, pair: Pair) -> str:
    """Makes a Keras checkpoint of the newest one of the graph road, and returns its path."""
    source = checkpoint.newest_sound(config.train_dir)
    if source is None:
        raise ConfigError(f"--train_dir: there is no checkpoint model.ckpt-N in {config.train_dir!r}")
    reader = tf.train.load_checkpoint(source)
    model = saving.build_model(pair.keras_model, pair.keras_params)
    known = reader.get_variable_to_shape_map()
    for name, weight in _weights(pair, model):
        _check_shape(source, name, known.get(name), weight)
        weight.assign(reader.get_tensor(name))
    moments = dict(_moments(pair, model))
    if moments.keys() <= known.keys():
        for name, moment in moments.items():
            moment.assign(reader.get_tensor(name))
    else:
        _log.info("%s has no moments of Adam: the optimizer begins anew", source)
    step = int(reader.get_tensor("global_step"))
    model.optimizer.iterations.assign(step)
    path = saving.path_of(config.output_dir, step)
    model.save(path, save_format="keras_v3")
    return path


def to_graph(config: ConvertConfig, pair: Pair) -> str:
    """Makes a checkpoint of the graph road of the newest Keras one, and returns its path."""
    newest = saving.newest_sound(config.train_dir)
    if newest is None:
        raise ConfigError(f"--train_dir: there is no checkpoint ckpt-N.keras in {config.train_dir!r}")
    step, source = newest
    model = saving.load(source, pair.keras_model.objects)
    values = {name: weight.numpy() for name, weight in _weights(pair, model)}
    values["global_step"] = np.int64(step)
    if config.optimizer == "adam" and isinstance(model.optimizer, tf_keras.optimizers.Adam):
        values.update({name: moment.numpy() for name, moment in _moments(pair, model)})
        # TensorFlow 1 keeps beta^(updates + 1) in variables, where Keras computes it.
        values.update({name: np.float32(beta ** (step + 1)) for name, beta in _BETAS.items()})
    else:
        _log.info("%s and --optimizer=%s are not both Adam: the optimizer begins anew", source, config.optimizer)
    with tf.Graph().as_default(), devices.ignoring_tasks():
        _build_graph(config, pair, model)
        return _save_graph(config, source, values)


def _build_graph(config: ConvertConfig, pair: Pair, model: tf_keras.Model) -> None:
    """Adds the variables that the graph road has: those of the model, the optimizer's and the global step."""
    features = tf.placeholder(tf.float32, model.inputs[0].shape, name="features")
    labels = tf.placeholder(tf.int32, [None], name="labels")
    global_step = tf.train.create_global_step()
    spec = call_model_fn(pair.model, features, labels, TRAIN, pair.model_params)
    optimizers.make_optimizer(config.optimizer, config.learning_rate).minimize(spec.loss, global_step)


def _save_graph(config: ConvertConfig, source: str, values: Mapping[str, np.ndarray]) -> str:
    variables = {variable.op.name: variable for variable in tf.global_variables()}
    missing = _differences(variables, values)
    if missing:
        raise CheckpointError(f"{source} is not of --model={config.model} with these parameters: {'; '.join(missing)}; "
                              "give the --hidden_units and --params that it was trained with")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for name, value in values.items():
            variables[name].load(value, session)
        saver = tf.train.Saver(tf.global_variables(), save_relative_paths=True)
        return saver.save(session, os.path.join(config.output_dir, checkpoint.BASENAME),
                          global_step=int(values["global_step"]), write_meta_graph=False)


def _differences(variables: Mapping[str, tf.Variable], values: Mapping[str, np.ndarray]) -> list[str]:
    """Returns a line for each value that no variable of the graph can take."""
    return [f"{name} has shape {list(value.shape)}, in the graph "
            + (f"{variables[name].shape.as_list()}" if name in variables else "there is none")
            for name, value in values.items()
            if name not in variables or variables[name].shape.as_list() != list(value.shape)]


def _weights(pair: Pair, model: tf_keras.Model) -> Iterator[tuple[str, Any]]:
    """Yields (name in the graph, weight of the Keras model) of all weights.

    Raises:
      UserCodeError: KERAS_TWIN names a weight that is not there, or leaves one out.
    """
    found = []
    for name, place in pair.twin.weights.items():
        layer, _, attribute = place.partition("/")
        try:
            found.append((name, getattr(model.get_layer(layer), attribute)))
        except (ValueError, AttributeError):
            raise UserCodeError(f"{pair.model.name}.KERAS_TWIN: {name!r} is {place!r}, which {pair.keras_model.name} "
                                "does not have") from None
    taken = {id(weight) for _, weight in found}
    left_out = [weight.name for weight in model.weights if id(weight) not in taken]
    if left_out:
        raise UserCodeError(f"{pair.model.name}.KERAS_TWIN leaves out weights of {pair.keras_model.name}: "
                            f"{', '.join(left_out)}")
    yield from found


def _moments(pair: Pair, model: tf_keras.Model) -> Iterator[tuple[str, Any]]:
    """Yields (name of Adam's slot in the graph, variable of Keras' Adam) of both moments of all weights."""
    variables = {variable.name: variable for variable in model.optimizer.variables}
    for name, weight in _weights(pair, model):
        for slot, moment in (("Adam", "m"), ("Adam_1", "v")):
            found = next((variable for known, variable in variables.items()
                          if f"/{known}".endswith(f"/{moment}/{weight.name}")), None)
            if found is not None:
                yield f"{name}/{slot}", found


def _check_shape(source: str, name: str, shape: list[int] | None, weight: Any) -> None:
    if shape != weight.shape.as_list():
        got = "is not there" if shape is None else f"has shape {shape} instead of {weight.shape.as_list()}"
        raise CheckpointError(f"checkpoint {source} is not of this model: {name} {got}; give the --model, "
                              "--hidden_units and --params that it was trained with")
