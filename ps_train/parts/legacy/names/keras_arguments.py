"""Arguments of Keras 1, which Keras 2.0 to 2.3 still took: `Dense(output_dim=10, init="normal")`, `fit(nb_epoch=3)`.

An old name counts only where the layer has today's, and none of the old name itself: `Embedding(output_dim=8)` stays.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import linecache
import sys
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow.compat.v2 as tf

from ps_train.parts.legacy.names.moved import KERAS

# Old name -> today's names; the first one that a layer has.
_RENAMED = {
    "output_dim": "units", "init": "kernel_initializer embeddings_initializer", "inner_init": "recurrent_initializer",
    "inner_activation": "recurrent_activation", "bias": "use_bias", "nb_filter": "filters",
    "filter_length": "kernel_size", "border_mode": "padding", "subsample": "strides", "subsample_length": "strides",
    "dim_ordering": "data_format", "atrous_rate": "dilation_rate", "p": "rate", "pool_length": "pool_size",
    "stride": "strides", "length": "size", "sigma": "stddev", "dropout_W": "dropout", "dropout_U": "recurrent_dropout",
    "gamma_init": "gamma_initializer", "beta_init": "beta_initializer",
    "W_regularizer": "kernel_regularizer embeddings_regularizer", "U_regularizer": "recurrent_regularizer",
    "b_regularizer": "bias_regularizer", "W_constraint": "kernel_constraint embeddings_constraint",
    "U_constraint": "recurrent_constraint", "b_constraint": "bias_constraint",
}
# Old name that does nothing today -> an argument of the layers that had it.
_GONE = {"mode": "gamma_initializer", "consume_less": "recurrent_initializer",
         "forget_bias_init": "unit_forget_bias"}
_KERNEL = ("nb_row", "nb_col"), ("kernel_dim1", "kernel_dim2", "kernel_dim3")
_FORMATS = {"tf": "channels_last", "th": "channels_first", "default": None}
# Old name of a class -> today's.
_CONVOLUTIONS = {"Convolution2D": "Conv2D", "AtrousConvolution2D": "Conv2D", "Deconvolution2D": "Conv2DTranspose",
                 "Convolution3D": "Conv3D"}
# Optimizer -> its defaults in the package keras, up to 2.3; those of tf.keras are lower, as today's.
_OLD_RATES: dict[str, dict[str, float]] = {
    "Adadelta": {"learning_rate": 1.0}, "Adagrad": {"learning_rate": 0.01, "initial_accumulator_value": 0.0},
    "Adamax": {"learning_rate": 0.002}, "Nadam": {"learning_rate": 0.002}}
# Of a model's methods.
_TRAINING = {"nb_epoch": "epochs", "samples_per_epoch": "steps_per_epoch", "nb_val_samples": "validation_steps",
             "val_samples": "steps", "nb_worker": "workers", "max_q_size": "max_queue_size",
             "pickle_safe": "use_multiprocessing", "input": "inputs", "output": "outputs"}
_EXAMPLES = ("samples_per_epoch", "nb_val_samples", "val_samples")  # counted in examples, and today in batches


def take_old_arguments() -> None:
    """Lets all layers and models take them; call it once."""
    layers = importlib.import_module(f"{KERAS}.layers")
    base = layers.Layer
    kinds = {kind for layer in vars(layers).values() if inspect.isclass(layer) and issubclass(layer, base)
             for kind in layer.__mro__ if kind is not base and issubclass(kind, base)}
    for kind in kinds:
        if "__init__" in vars(kind):
            _wrap(kind, "__init__", _of_layer)
    for name in ("training.Model", "training_v1.Model", "functional.Functional", "sequential.Sequential"):
        module, _, leaf = name.partition(".")
        kind = getattr(importlib.import_module(f"tf_keras.src.engine.{module}"), leaf)
        for method in ("__new__", "__init__", "fit", "fit_generator", "evaluate_generator", "predict_generator"):
            if method in vars(kind):
                _wrap(kind, method, _of_model)


@functools.cache
def take_old_rates() -> None:
    """Gives optimizers the learning rates that they had by default in the package keras, once a script imports it."""
    for module in ("tf_keras.optimizers", "tf_keras.optimizers.legacy", f"{KERAS}.optimizers"):
        for name, defaults in _OLD_RATES.items():
            kind = getattr(importlib.import_module(module), name)
            if "ps_train_rates" not in vars(kind):  # two of the modules may have the same class
                kind.ps_train_rates = True
                _wrap(kind, "__init__", functools.partial(_with_rates, defaults=defaults))


def _with_rates(args: tuple, kwargs: dict[str, Any], known: frozenset[str], *,
                defaults: Mapping[str, float]) -> tuple[tuple, dict[str, Any]]:
    is_given = len(args) > 1 or "lr" in kwargs or "learning_rate" in kwargs
    missing = {name: value for name, value in defaults.items()
               if name in known and not (is_given and name == "learning_rate")}
    return args, {**missing, **kwargs}


def _wrap(kind: type, name: str, change: Callable) -> None:
    original = getattr(kind, name)
    known = frozenset(inspect.signature(original).parameters)

    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = change(args, kwargs, known)
        return original(*args, **kwargs)
    # Keras asks for the arguments of what it calls, by this decorator's rules.
    call = tf.__internal__.decorator.make_decorator(original, call)
    setattr(kind, name, staticmethod(call) if name == "__new__" else call)


def _of_layer(args: tuple, kwargs: dict[str, Any], known: frozenset[str]) -> tuple[tuple, dict[str, Any]]:
    old = {name: today for name in kwargs if name not in known and (today := _today(name, known)) is not None}
    if "kernel_size" in known and _has_kernel_by_position(args, kwargs, bool(old)):
        args, kwargs = args[:2], {**kwargs, "kernel_size": tuple(args[2:])}
    return (args, _renamed(type(args[0]).__name__, kwargs, old)) if old else (args, kwargs)


def _today(name: str, known: frozenset[str]) -> str | None:
    """Returns today's name of an old argument, "" for one that does nothing, or None for one that is none of them."""
    if any(name in names for names in _KERNEL) and "kernel_size" in known:
        return "kernel_size"
    if name in _GONE and _GONE[name] in known:
        return ""
    return next((today for today in _RENAMED.get(name, "").split() if today in known), None)


def _renamed(owner: str, kwargs: Mapping[str, Any], old: Mapping[str, str]) -> dict[str, Any]:
    today = {name: value for name, value in kwargs.items() if name not in old}
    for name, new in old.items():
        is_part = any(name in names for names in _KERNEL)
        if new in today and not is_part:
            raise TypeError(f"{owner}: got {name} and {new}, which mean the same; allowed: one of them")
        if new and not is_part:
            today[new] = _FORMATS.get(kwargs[name], kwargs[name]) if new == "data_format" else kwargs[name]
    for names in _KERNEL:
        if names[0] in old:
            today["kernel_size"] = tuple(kwargs[name] for name in names if name in kwargs)
    return today


def _has_kernel_by_position(args: tuple, kwargs: Mapping[str, Any], is_old: bool) -> bool:
    """Returns whether a convolution is called as `Convolution2D(64, 3, 3)`, whose last numbers are a kernel's size.

    Today they would be its size and the stride. Where no other argument is of Keras 1, the name of the class tells, in
    the code of the script: the classes of both names are one.
    """
    layer, *numbers = args
    if len(numbers) not in (3, 4) or not all(isinstance(number, int) for number in numbers) or any(
            name in kwargs for name in ("padding", "strides", "data_format")):
        return False
    if is_old or len(numbers) == 4:
        return True
    caller = sys._getframe(3)  # noqa: SLF001 (the only way to the script: of `call`, this module's two, and the caller)
    line = linecache.getline(caller.f_code.co_filename, caller.f_lineno)
    names = caller.f_code.co_names
    return any(old in names and (today not in names or old in line) for old, today in _CONVOLUTIONS.items()
               if type(layer).__name__ == today)


def _of_model(args: tuple, kwargs: dict[str, Any], known: frozenset[str]) -> tuple[tuple, dict[str, Any]]:
    old = {name: _TRAINING[name] for name in kwargs if name in _TRAINING and name not in known
           and (_TRAINING[name] in known or name in ("input", "output"))}
    if not old:
        return args, kwargs
    today = _renamed(type(args[0]).__name__, kwargs, old)
    trained = next((arg for arg in (kwargs.get("generator"), *args[1:]) if hasattr(arg, "batch_size")), None)
    for name in set(_EXAMPLES).intersection(old):
        batches = kwargs.get("validation_data") if name == "nb_val_samples" else trained
        size = getattr(batches, "batch_size", None) or 1
        today[old[name]] = max(1, kwargs[name] // size)
    return args, today
