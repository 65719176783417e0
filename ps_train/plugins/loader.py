"""Imports and checks the module that --model or --dataset names.

    load_model, load_dataset --> modules.find_module --> checked_function, checked_params --> Model, Dataset
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Mapping, Sequence
from typing import Any, Callable

from ps_train.errors import ConfigError
from ps_train.plugins.contracts import TRAIN, Dataset, Model
from ps_train.plugins.modules import find_module
from ps_train.plugins.params import can_be_set


def load_model(name: str) -> Model:
    """Imports the model plug-in of that name.

    Its model_fn may leave out arguments but `features`, and take `config`, as an Estimator's may.

    Raises:
      ConfigError: the module does not exist or has no model_fn, or its model_fn has the wrong signature.
    """
    module = find_module("--model", name, function="model_fn")
    arguments = ("features", "labels", "mode", "params")
    taken = _taken(module, "model_fn", (*arguments, "config"))
    if "features" not in taken:
        taken = ()
    function = checked_function("--model", module, "model_fn", tuple(taken) or arguments, wanted=arguments)
    return Model(module.__name__, _ignoring_others(function, taken), checked_params("--model", module),
                 takes_config="config" in taken, serving_input_fn=_serving_input_fn(module),
                 make_optimizer=_make_optimizer(module))


def load_dataset(name: str) -> Dataset:
    """Imports the dataset plug-in of that name.

    Its input_fn may leave out any argument. In place of it the module may have `train_input_fn` and `eval_input_fn`.

    Raises:
      ConfigError: the module does not exist or has no input_fn, or a function has the wrong signature.
    """
    module = find_module("--dataset", name, function="input_fn")
    pair = ("train_input_fn", "eval_input_fn")
    if not hasattr(module, "input_fn") and any(hasattr(module, one) for one in pair):
        (train, is_sharded), (evaluate, is_eval_sharded) = (_input_function(module, one) for one in pair)
        function = _by_mode(train, evaluate)
    else:
        function, is_sharded = _input_function(module, "input_fn")
        is_eval_sharded = is_sharded
    prepare = _nothing_to_prepare
    if hasattr(module, "prepare"):
        prepare = checked_function("--dataset", module, "prepare", ("params",))
    return Dataset(module.__name__, function, prepare, checked_params("--dataset", module), is_sharded,
                   is_eval_sharded, _serving_input_fn(module))


def _make_optimizer(module: types.ModuleType) -> Callable[..., Any] | None:
    """Returns the make_optimizer of a module, or None.

    Raises:
      ConfigError: it has the wrong signature.
    """
    if not hasattr(module, "make_optimizer"):
        return None
    return checked_function("--model", module, "make_optimizer", ("params", "global_step"))


def _serving_input_fn(module: types.ModuleType) -> Callable[..., Any] | None:
    """Returns the serving_input_fn of a module, called with params=..., or None."""
    function = getattr(module, "serving_input_fn", None)
    return _ignoring_others(function, _taken(module, "serving_input_fn", ("params",))) if callable(function) else None


def _input_function(module: types.ModuleType, name: str) -> tuple[Callable[..., Any], bool]:
    """Returns an input function that can be given all arguments, and whether it takes `shard`."""
    arguments = ("mode", "params", "shard")
    taken = _taken(module, name, arguments)
    function = checked_function("--dataset", module, name, taken, wanted=arguments)
    return _ignoring_others(function, taken), "shard" in taken


def _by_mode(train: Callable[..., Any], evaluate: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the input_fn of a module that has one function for training and one for evaluation."""
    def input_fn(mode: str, params: Mapping[str, Any], shard: tuple[int, int]) -> Any:
        return (train if mode == TRAIN else evaluate)(mode=mode, params=params, shard=shard)

    return input_fn


def _taken(module: types.ModuleType, name: str, offered: Sequence[str]) -> tuple[str, ...]:
    """Returns which of these arguments a function of the module takes."""
    function = getattr(module, name, None)
    if not callable(function):
        return ()
    parameters = inspect.signature(function).parameters.values()
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters):
        return tuple(argument for argument in offered if argument != "config")
    return tuple(argument for argument in offered if argument in {one.name for one in parameters})


def _ignoring_others(function: Callable[..., Any], taken: Sequence[str]) -> Callable[..., Any]:
    """Returns a function that passes on only the arguments that the user's takes."""
    @functools.wraps(function)
    def call(**arguments: Any) -> Any:
        return function(**{name: arguments[name] for name in taken if name in arguments})

    return call


def _nothing_to_prepare(params: Mapping[str, Any]) -> None:
    """The `prepare` of a dataset that defines none."""


def checked_function(
    flag: str, module: types.ModuleType, name: str, arguments: Sequence[str], *, wanted: Sequence[str] = (),
) -> Callable[..., Any]:
    """Returns the function `name` of a plug-in's module.

    Args:
      flag: the flag that named the module, for the error.
      arguments: the names of the arguments that ps_train will pass.
      wanted: the names that an error recommends, if not these.

    Raises:
      ConfigError: the module has no such function, or the function does not accept these arguments.
    """
    function = getattr(module, name, None)
    signature = f"{name}({', '.join(wanted or arguments)})"
    if not callable(function):
        raise ConfigError(f"{flag}: module {module.__name__!r} ({module.__file__}) has no function {signature}; add it")
    try:
        inspect.signature(function).bind(**dict.fromkeys(arguments))
    except TypeError:
        raise ConfigError(f"{flag}: {module.__name__}.{name} takes {inspect.signature(function)}; it must take "
                          f"{signature}") from None
    return function


def checked_params(flag: str, module: types.ModuleType) -> Mapping[str, Any]:
    """Returns a module's DEFAULT_PARAMS, or {} if it has none.

    Raises:
      ConfigError: DEFAULT_PARAMS is not a dict, or --params cannot set a value of one of its types.
    """
    params = getattr(module, "DEFAULT_PARAMS", {})
    if not isinstance(params, Mapping):
        raise ConfigError(f"{flag}: {module.__name__}.DEFAULT_PARAMS is {params!r}; allowed: a dict of name: value")
    wrong = [name for name, value in params.items() if not can_be_set(type(value))]
    if wrong:
        raise ConfigError(f"{flag}: {module.__name__}.DEFAULT_PARAMS[{wrong[0]!r}] is {params[wrong[0]]!r}; allowed: "
                          "bool, int, float and str, so that --params can set it")
    return params
