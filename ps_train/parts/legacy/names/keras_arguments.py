"""Arguments of Keras 1, which Keras 2.0 to 2.3 still took: `Dense(output_dim=10, init="normal")`, `fit(nb_epoch=3)`.

An old name counts only where the layer has today's, and none of the old name itself: `Embedding(output_dim=8)` stays.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ps_train.parts.legacy.names.moved import KERAS

# Old name -> today's names; the first one that a layer has.
_RENAMED = {
    "output_dim": "units", "init": "kernel_initializer embeddings_initializer", "inner_init": "recurrent_initializer",
    "inner_activation": "recurrent_activation", "bias": "use_bias", "nb_filter": "filters",
    "filter_length": "kernel_size", "border_mode": "padding", "subsample": "strides", "subsample_length": "strides",
    "dim_ordering": "data_format", "atrous_rate": "dilation_rate", "p": "rate", "pool_length": "pool_size",
    "stride": "strides", "length": "size", "sigma": "stddev", "dropout_W": "dropout", "dropout_U": "recurrent_dropout",
    "gamma_init": "gamma_initializer", "beta_init": "beta_initializer", "input_dtype": "dtype",
    "W_regularizer": "kernel_regularizer embeddings_regularizer", "U_regularizer": "recurrent_regularizer",
    "b_regularizer": "bias_regularizer", "W_constraint": "kernel_constraint embeddings_constraint",
    "U_constraint": "recurrent_constraint", "b_constraint": "bias_constraint",
}
_GONE = ("consume_less", "forget_bias_init", "mode")  # where the layer has no such argument
_KERNEL = ("nb_row", "nb_col"), ("kernel_dim1", "kernel_dim2", "kernel_dim3")
_OLD_CONVOLUTIONS = ("Convolution2D", "Convolution3D", "Deconvolution2D", "AtrousConvolution2D")
_FORMATS = {"tf": "channels_last", "th": "channels_first", "default": None}
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


def _wrap(kind: type, name: str, change: Callable) -> None:
    original = getattr(kind, name)
    known = frozenset(inspect.signature(original).parameters)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = change(args, kwargs, known)
        return original(*args, **kwargs)
    setattr(kind, name, staticmethod(call) if name == "__new__" else call)


def _of_layer(args: tuple, kwargs: dict[str, Any], known: frozenset[str]) -> tuple[tuple, dict[str, Any]]:
    old = [name for name in kwargs if name not in known and (name in _RENAMED or name in _GONE or any(
        name in names for names in _KERNEL))]
    if "kernel_size" in known and _has_kernel_by_position(args, bool(old)):
        args, kwargs = args[:2], {**kwargs, "kernel_size": tuple(args[2:])}
    if not old:
        return args, kwargs
    return args, _today(kwargs, known)


def _today(kwargs: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    today: dict[str, Any] = {}
    for name, value in kwargs.items():
        names = _RENAMED.get(name, "").split()
        renamed = next((new for new in names if new in known), names[0] if names and "kwargs" in known else None)
        if name in known or renamed is None and name not in _GONE and not any(name in dims for dims in _KERNEL):
            today[name] = value
        elif renamed is not None:
            today[renamed] = _FORMATS.get(value, value) if renamed == "data_format" else value
    for names in _KERNEL:
        if "kernel_size" in known and names[0] in kwargs:
            today["kernel_size"] = tuple(kwargs[name] for name in names if name in kwargs)
    return today


def _has_kernel_by_position(args: tuple, is_old: bool) -> bool:
    """Returns whether a convolution is called as `Convolution2D(64, 3, 3)`, whose last numbers are a kernel's size.

    Today they would be its size and the stride. Where no other argument is of Keras 1, the name of the class tells.
    """
    layer, *numbers = args
    if len(numbers) not in (3, 4) or not all(isinstance(number, int) for number in numbers):
        return False
    caller = sys._getframe(3)  # noqa: SLF001 (the only way to the script: of `call`, this module's two, and the caller)
    return is_old or any(caller.f_globals.get(name) is type(layer) for name in _OLD_CONVOLUTIONS)


def _of_model(args: tuple, kwargs: dict[str, Any], known: frozenset[str]) -> tuple[tuple, dict[str, Any]]:
    old = [name for name in kwargs if name in _TRAINING and name not in known]
    if not old:
        return args, kwargs
    generator = next((arg for arg in args[1:] if hasattr(arg, "batch_size")), None)
    batch_size = getattr(generator, "batch_size", 1)
    return args, {_TRAINING[name] if name in old else name: (
        value // batch_size if name in old and name in _EXAMPLES else value) for name, value in kwargs.items()}
