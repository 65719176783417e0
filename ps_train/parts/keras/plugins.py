"""The user's modules for `ps_train keras`: how they are found and checked.

    --model=models.keras_mlp      --> KerasModel(build_model, default_params), with its --dataset: KerasPlugins
    KERAS_TWIN of a graph model   --> KerasTwin, for `ps_train convert`

Nothing here imports TensorFlow.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple

from ps_train.errors import ConfigError
from ps_train.parts.keras.flags import KerasConfig
from ps_train.plugins import loader
from ps_train.plugins.contracts import Dataset
from ps_train.plugins.params import resolve_params

_HOOKS = {"train": ("strategy", "model", "run"), "train_step": ("model", "features", "labels"),
          "make_callbacks": ("params",)}


@dataclasses.dataclass(frozen=True)
class KerasModel:
    """A model plug-in of `ps_train keras`: `build_model(params) -> tf_keras.Model`, compiled.

    Attributes:
      objects: name -> each class and function of the module, with which a checkpoint that uses them can be read.
      train_step: `train_step(model, features, labels) -> loss`, a replica's part of a step, in place of Model.fit.
      train: `train(strategy, model, run)`, the whole loop, in place of Model.fit.
      make_callbacks: `make_callbacks(params) -> list`, further callbacks of Model.fit.
    """

    name: str
    build_model: Callable[..., Any]
    default_params: Mapping[str, Any]
    objects: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    train_step: Callable[..., Any] | None = None
    train: Callable[..., Any] | None = None
    make_callbacks: Callable[..., Any] | None = None

    @property
    def has_own_loop(self) -> bool:
        """Whether it trains without Model.fit."""
        return self.train is not None or self.train_step is not None


class KerasTwin(NamedTuple):
    """The Keras model that is the same network as a graph-mode one, which has this as its `KERAS_TWIN`.

    Attributes:
      model: dotted name of the plug-in with the twin's build_model.
      params: parameters with which the twin is the same network, in addition to those that both have.
      weights: name of each variable in the graph -> "layer/weight" in the twin, such as "hidden/kernel".
    """

    model: str
    params: Mapping[str, Any]
    weights: Mapping[str, str]


class KerasPlugins(NamedTuple):
    """The model and the dataset, each with its parameters."""

    model: KerasModel
    model_params: dict[str, Any]
    dataset: Dataset
    dataset_params: dict[str, Any]


def load_keras_plugins(config: KerasConfig) -> KerasPlugins:
    """Imports the plug-ins; raises ConfigError if one is missing or has another contract, or --params does not fit."""
    model, dataset = load_keras_model(config.model), loader.load_dataset(config.dataset)
    shared = {name: getattr(config, name) for name in (
        "batch_size", "data_dir", "hidden_units", "learning_rate", "on_bad_record", "seed", "steps_per_execution")}
    model_params, dataset_params = resolve_params(config.params, [model, dataset], shared)
    return KerasPlugins(model, model_params, dataset, dataset_params)


def load_keras_model(name: str) -> KerasModel:
    """Imports a Keras model plug-in; raises ConfigError if it is missing, or its functions break the contract."""
    module = loader.find_module("--model", name, function="build_model")
    build_model = loader.checked_function("--model", module, "build_model", ("params",))
    hooks = {hook: loader.checked_function("--model", module, hook, arguments)
             for hook, arguments in _HOOKS.items() if hasattr(module, hook)}
    if len(hooks) > 1:
        raise ConfigError("model_functions_conflict",
                          f"--model: module {module.__name__!r} ({module.__file__}) has {' and '.join(hooks)}; keep "
                          "one: train and train_step each replace Model.fit, and only Model.fit has callbacks")
    objects = {name: value for name, value in vars(module).items() if isinstance(value, (type, types.FunctionType))}
    return KerasModel(module.__name__, build_model, loader.checked_params("--model", module), objects, **hooks)


def load_twin(name: str) -> KerasTwin:
    """Returns the KERAS_TWIN of a graph-mode model plug-in; raises ConfigError if it has none."""
    module = loader.find_module("--model", name, function="model_fn")
    twin = getattr(module, "KERAS_TWIN", None)
    if not isinstance(twin, KerasTwin):
        raise ConfigError("no_keras_twin",
                          f"--model: module {module.__name__!r} ({module.__file__}) has no KERAS_TWIN, so it is not "
                          "known which Keras model is the same network; add a ps_train.KerasTwin")
    return twin
