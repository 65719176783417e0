"""The contracts of model and dataset plug-ins, and how a plug-in is checked.

    --model=models.mlp     --> Model(model_fn, default_params)
    --dataset=data.mnist   --> Dataset(input_fn, prepare, default_params)
    --params=name=value,...--> what each of them gets as `params`

finder.py says where the module is looked for; the Keras models are in keras/plugins.py.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple, Protocol

from ps_train.errors import ConfigError
from ps_train.plugins import finder

TRAIN, EVAL, PREDICT = "train", "eval", "infer"  # the values of tf.estimator.ModeKeys, for code written to it
VALIDATION = "validation"  # a mode of a dataset that has a parameter `validation_size`, and only where that is not 0


class Plugin(Protocol):
    """What every plug-in has: the name of its module, and its DEFAULT_PARAMS."""

    @property
    def name(self) -> str: ...

    @property
    def default_params(self) -> Mapping[str, Any]: ...


class ModelSpec(NamedTuple):
    """What a model_fn returns; named as in Estimator's EstimatorSpec.

    Attributes:
      loss: scalar float tensor, the mean over the mini-batch; needed for "train" and "eval".
      predictions: tensor or dict of tensors, each [batch, ...]; needed for "infer".
      eval_metric_ops: name -> (value tensor, update op), as `tf.compat.v1.metrics` returns them.
      train_op: an operation that applies one update and increments the global step, or None: then the
        framework makes it from `loss`, so that every update mode works.
      loss_name: what the loss is, in the words of the final report.
    """

    loss: Any = None
    predictions: Any = None
    eval_metric_ops: Mapping[str, tuple] | None = None
    train_op: Any = None
    loss_name: str = "loss"


@dataclasses.dataclass(frozen=True)
class Model:
    """A model plug-in: `model_fn(features, labels, mode, params) -> ModelSpec`."""

    name: str
    model_fn: Callable[..., ModelSpec]
    default_params: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A dataset plug-in: `input_fn(mode, params, shard) -> tf.data.Dataset` of (features, labels).

    Attributes:
      prepare: `prepare(params)`, fetches and checks the files; does nothing where the module has none.
    """

    name: str
    input_fn: Callable[..., Any]
    prepare: Callable[[Mapping[str, Any]], None]
    default_params: Mapping[str, Any]


def load_model(name: str) -> Model:
    """Imports a model plug-in.

    Raises:
      ConfigError: there is no such module, it has no model_fn, or model_fn has another signature.
    """
    module = finder.find("--model", name, "model_fn")
    function = checked_function("--model", module, "model_fn", ("features", "labels", "mode", "params"))
    return Model(module.__name__, function, checked_params("--model", module))


def load_dataset(name: str) -> Dataset:
    """Imports a dataset plug-in.

    Raises:
      ConfigError: there is no such module, it has no input_fn, or a function has another signature.
    """
    module = finder.find("--dataset", name, "input_fn")
    function = checked_function("--dataset", module, "input_fn", ("mode", "params", "shard"))
    prepare = _nothing_to_prepare
    if hasattr(module, "prepare"):
        prepare = checked_function("--dataset", module, "prepare", ("params",))
    return Dataset(module.__name__, function, prepare, checked_params("--dataset", module))


def _nothing_to_prepare(params: Mapping[str, Any]) -> None:
    """Stands in for the `prepare` of a dataset that has no files."""


def checked_function(flag: str, module: types.ModuleType, name: str, arguments: Sequence[str]) -> Callable[..., Any]:
    """Returns a function of a plug-in.

    Raises:
      ConfigError: the module has no such function, or it does not take these arguments.
    """
    function = getattr(module, name, None)
    wanted = f"{name}({', '.join(arguments)})"
    if not callable(function):
        raise ConfigError(f"{flag}: module {module.__name__!r} ({module.__file__}) has no function {wanted}; add it")
    try:
        inspect.signature(function).bind(**dict.fromkeys(arguments))
    except TypeError:
        raise ConfigError(f"{flag}: {module.__name__}.{name} takes {inspect.signature(function)}; it must take "
                          f"{wanted}") from None
    return function


def checked_params(flag: str, module: types.ModuleType) -> Mapping[str, Any]:
    """Returns a module's DEFAULT_PARAMS, {} if it has none.

    Raises:
      ConfigError: they are no dict, or a value has a type that --params cannot set.
    """
    params = getattr(module, "DEFAULT_PARAMS", {})
    if not isinstance(params, Mapping):
        raise ConfigError(f"{flag}: {module.__name__}.DEFAULT_PARAMS is {params!r}; allowed: a dict of name: value")
    wrong = [name for name, value in params.items() if type(value) not in _READERS]
    if wrong:
        raise ConfigError(f"{flag}: {module.__name__}.DEFAULT_PARAMS[{wrong[0]!r}] is {params[wrong[0]]!r}; allowed: "
                          "bool, int, float and str, so that --params can set it")
    return params


def _read_bool(text: str) -> bool:
    return {"true": True, "1": True, "false": False, "0": False}[text.lower()]


_READERS: dict[type, Callable[[str], Any]] = {bool: _read_bool, int: int, float: float, str: str}


def resolve_params(
    text: str, plugins: Sequence[Plugin], shared: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Returns the `params` of each plug-in: the shared values, its own defaults, and over them what --params says.

    Args:
      text: "name=value,..." as given; "" for none.
      plugins: the plug-ins, whose DEFAULT_PARAMS say which names there are and of which type.
      shared: what every plug-in gets, from flags of their own.

    Raises:
      ConfigError: a name that no plug-in knows (the known ones are listed), or a value of another type.
    """
    given = split_params("--params", text)
    for plugin in plugins:
        for name in plugin.default_params.keys() & shared.keys():
            raise ConfigError(f"{plugin.name}.DEFAULT_PARAMS has {name!r}, which is a flag of its own; leave it out: "
                              f"params has the value of --{name}")
    known = sorted({name for plugin in plugins for name in plugin.default_params})
    for name in given:
        if name in shared:
            raise ConfigError(f"--params: {name!r} has a flag of its own; give --{name}={given[name]}")
        if name not in known:
            owners = " and ".join(plugin.name for plugin in plugins)
            raise ConfigError(f"--params: unknown parameter {name!r}; known to {owners}: {', '.join(known) or 'none'}")
    return [{**shared, **plugin.default_params, **_typed(given, plugin)} for plugin in plugins]


def split_params(what: str, text: str) -> dict[str, str]:
    """Returns name -> text of the value in "name=value,..."; `what` names it in errors.

    Raises:
      ConfigError: an item is not name=value, or a name is there twice.
    """
    given: dict[str, str] = {}
    for item in filter(None, text.split(",")):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not name:
            raise ConfigError(f"{what}: got {item!r}; allowed: name=value,name=value")
        if name in given:
            raise ConfigError(f"{what}: {name!r} is given twice; give it once")
        given[name] = value
    return given


def _typed(given: Mapping[str, str], plugin: Plugin) -> dict[str, Any]:
    """Reads each given value as the type that the plug-in's default has."""
    values = {}
    for name in given.keys() & plugin.default_params.keys():
        kind = type(plugin.default_params[name])
        try:
            values[name] = _READERS[kind](given[name])
        except (ValueError, KeyError):
            raise ConfigError(f"--params: {name}={given[name]!r}; allowed: {kind.__name__}, as in {plugin.name}'s "
                              f"default {plugin.default_params[name]!r}") from None
    return values
