"""Modules and names of the package `keras`, 2.0 to 2.3, that Keras 2 has elsewhere today, or under another name.

    from keras.engine.topology import Layer               a module that gathers the names of several (_GATHERED)
    K.set_image_dim_ordering("tf")                        a name that is set in its module (_names)
    Convolution2D(64, 3, 3, border_mode="same")           arguments of Keras 1: keras_arguments.py
"""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import logging
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.parts.legacy.names.arrays import set_missing
from ps_train.parts.legacy.names.moved import KERAS, OLD_KERAS
from ps_train.parts.legacy.names.script_modules import ScriptModule, replace_module

_PACKAGES = (".engine",)  # of these modules, those with modules below them
_log = logging.getLogger(__name__)

# Modules in `keras` -> where their names are: modules of KERAS, or "src.*" of the package itself.
_ENGINE = ("layers", "models", "utils", "src.engine.base_layer", "src.engine.functional", "src.engine.input_layer",
           "src.engine.input_spec", "src.engine.node", "src.engine.training_v1", "src.utils.layer_utils",
           "src.saving.legacy.hdf5_format")
_BACKEND = ("backend", "src.backend")
_LAYERS = ("layers", "src.engine.base_layer", "src.utils.generic_utils", "src.utils.conv_utils")
_GATHERED: dict[str, Sequence[str]] = {
    **{f"engine{module}": _ENGINE for module in (
        "", ".topology", ".training", ".base_layer", ".input_layer", ".network", ".sequential", ".saving",
        ".container")},
    "engine.input_spec": ("src.engine.input_spec",),
    "engine.training_utils": ("src.engine.training_utils_v1",),
    "engine.training_arrays": ("src.engine.training_arrays_v1",),
    "engine.training_generator": ("src.engine.training_generator_v1",),
    **{f"layers.{module}": _LAYERS for module in (
        "core", "convolutional", "pooling", "normalization", "recurrent", "embeddings", "merge", "noise", "wrappers",
        "advanced_activations", "local", "convolutional_recurrent", "cudnn_recurrent")},
    **{f"utils.{module}": ("utils", f"src.utils.{module}") for module in (
        "np_utils", "vis_utils", "generic_utils", "data_utils", "layer_utils", "conv_utils", "io_utils")},
    **{f"utils.{module}": ("utils",) for module in ("multi_gpu_utils", "training_utils")},
    "backend.tensorflow_backend": _BACKEND, "backend.common": _BACKEND,
    "objectives": ("losses", "metrics"), "initializations": ("initializers",),
}


class _Gathered(types.ModuleType):
    """A module whose names are those of several, the first that has one."""

    def __init__(self, name: str, sources: Sequence[str]) -> None:
        super().__init__(name)
        is_package = name.endswith(_PACKAGES)
        self.__dict__.update(__spec__=importlib.machinery.ModuleSpec(name, None, is_package=is_package),
                             _sources=sources, **({"__path__": []} if is_package else {}))

    def __getattr__(self, leaf: str) -> Any:
        if not leaf.startswith("__"):
            for source in map(importlib.import_module, self._sources):
                if hasattr(source, leaf):
                    return getattr(source, leaf)
        elif leaf == "__all__":
            return self._public_names()
        raise AttributeError(f"module {self.__name__!r} has no attribute {leaf!r}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(
            name for source in map(importlib.import_module, self._sources) for name in dir(source))})

    def _public_names(self) -> list[str]:
        """Returns what `import *` takes: no modules, which would replace the script's own of these names."""
        public = [importlib.import_module(source) for source in self._sources if source.startswith(KERAS)]
        return sorted({name for source in public for name in dir(source) if not name.startswith("_")
                       and not isinstance(getattr(source, name), types.ModuleType)})


class _Merge(_Gathered):
    """`keras.layers.merge`: a module of Keras 2, and a function of Keras 1."""

    def __call__(self, inputs: Sequence[Any], mode: Any = "sum", dot_axes: Any = -1, concat_axis: int = -1,
                 output_shape: Any = None, name: str | None = None) -> Any:
        """Returns one tensor made of several.

        Raises:
          ValueError: another mode than a function, sum, mul, concat, ave, max, dot and cos.
        """
        of_today = importlib.import_module(f"{KERAS}.layers")
        if callable(mode):
            return of_today.Lambda(mode, output_shape=output_shape, name=name)(inputs)
        merged = {"sum": of_today.add, "mul": of_today.multiply, "ave": of_today.average, "max": of_today.maximum,
                  "concat": functools.partial(of_today.concatenate, axis=concat_axis),
                  "dot": functools.partial(of_today.dot, axes=dot_axes),
                  "cos": functools.partial(of_today.dot, axes=dot_axes, normalize=True)}
        if mode not in merged:
            raise ValueError(f"keras.layers.merge: got mode {mode!r}; allowed: {', '.join(merged)}")
        return merged[mode](inputs, name=name)


class _Interfaces(types.ModuleType):
    """`keras.legacy.interfaces`: its decorators took the arguments of Keras 1, as all layers do here."""

    def __getattr__(self, leaf: str) -> Any:
        if leaf.startswith("legacy_"):
            return lambda function: function
        raise AttributeError(leaf)


class _Lazy(types.ModuleType):
    """A module that stands for another one, which the first use of a name imports."""

    def __init__(self, name: str, target: str) -> None:
        super().__init__(name)
        self._target = target

    def __getattr__(self, leaf: str) -> Any:
        if leaf.startswith("__"):
            raise AttributeError(leaf)
        return getattr(importlib.import_module(self._target), leaf)


def offer_modules() -> None:
    """Lets scripts import the modules, from wherever Keras was; call it once."""
    public = importlib.import_module(KERAS)
    set_missing(public, "__version__", importlib.import_module("tf_keras").__version__)
    for module_name, names in _names().items():
        module = importlib.import_module(f"{KERAS}.{module_name}")
        for name, value in names.items():
            set_missing(module, name, value)
    for package in ("keras", *OLD_KERAS):
        for inner, sources in _GATHERED.items():
            kind = _Merge if inner == "layers.merge" else _Gathered
            module = kind(f"{package}.{inner}", [_full(source) for source in sources])
            sys.modules[module.__name__] = module
            _set_below(public if "." not in inner else _module_of(public, inner), module)
        for name in (f"{package}.legacy", f"{package}.legacy.interfaces"):
            sys.modules[name] = _Interfaces(name)
            vars(sys.modules[name])["__path__"] = []
        vars(sys.modules[f"{package}.legacy"])["interfaces"] = sys.modules[f"{package}.legacy.interfaces"]
    _offer_learners(public)
    _replace_deep_copies()
    sequential = importlib.import_module(f"{KERAS}.models").Sequential
    set_missing(sequential, "predict_classes", _predict_classes)
    set_missing(sequential, "predict_proba", lambda model, *args, **kwargs: model.predict(*args, **kwargs))


def _offer_learners(public: types.ModuleType) -> None:
    """Lets scripts import `keras.wrappers.scikit_learn`, whose import takes scikit-learn, when they do."""
    for package in ("keras", "tensorflow.keras", *OLD_KERAS):
        above = types.ModuleType(f"{package}.wrappers")
        above.__dict__["__path__"] = []
        learners = _Lazy(f"{package}.wrappers.scikit_learn", "ps_train.parts.legacy.names.keras_learners")
        above.__dict__["scikit_learn"] = learners
        sys.modules.update({above.__name__: above, learners.__name__: learners})
        set_missing(public, "wrappers", above)


def _full(source: str) -> str:
    return f"tf_keras.{source}" if source.startswith("src.") else f"{KERAS}.{source}"


def _module_of(public: types.ModuleType, inner: str) -> types.ModuleType:
    """Returns the module above an inner one: a public one, or a gathered one."""
    above = inner.rpartition(".")[0]
    return sys.modules.get(f"keras.{above}") or getattr(public, above)


def _set_below(above: types.ModuleType, module: types.ModuleType) -> None:
    set_missing(above, module.__name__.rpartition(".")[2], module)


def _replace_deep_copies() -> None:
    """Lets scripts find Keras 2's objects in modules inside TensorFlow's copy of an older one; see keras_copies.py."""
    for inner, sources in _GATHERED.items():
        name = f"tensorflow.python.keras.{inner}"
        module = _Gathered(name, [_full(source) for source in sources])
        try:
            original = importlib.import_module(name)
        except ImportError:  # it is not in this copy, which scripts of 1.4 to 1.13 had otherwise
            sys.modules[name] = module
            continue
        if inner != "engine":  # whose files TensorFlow imports all the time
            replace_module(name, ScriptModule(original, module))


def _names() -> dict[str, dict[str, Any]]:
    """Returns module of KERAS -> its names that are missing -> what they are."""
    backend, layers, models, constraints, initializers, optimizers = (
        importlib.import_module(f"{KERAS}.{name}") for name in (
            "backend", "layers", "models", "constraints", "initializers", "optimizers"))
    applications = importlib.import_module("tf_keras.src.applications.imagenet_utils")
    private = importlib.import_module("tf_keras.src.backend")
    generic = importlib.import_module("tf_keras.src.utils.generic_utils")
    layer_utils = importlib.import_module("tf_keras.src.utils.layer_utils")
    native = importlib.import_module("tf_keras.src.optimizers.optimizer_v1")
    return {
        "backend": {
            "set_image_dim_ordering": lambda ordering: backend.set_image_data_format(_ORDERINGS[ordering]),
            "image_dim_ordering": lambda: next(
                old for old, today in _ORDERINGS.items() if today == backend.image_data_format()),
            "get_variable_shape": backend.int_shape, "identity": tf.identity, "is_tensor": tf.is_tensor,
            "slice": tf.slice, "has_arg": generic.has_arg,
            "logsumexp": lambda x, axis=None, keepdims=False: tf.reduce_logsumexp(x, axis, keepdims),
            **{name: getattr(private, name) for name in (
                "conv3d_transpose", "separable_conv1d", "is_placeholder", "_get_available_gpus")},
            "tf": sys.modules["tensorflow"],  # that of the script
        },
        "constraints": {"maxnorm": constraints.max_norm, "nonneg": constraints.non_neg,
                        "unitnorm": constraints.unit_norm},
        "initializers": {"one": initializers.ones, "zero": initializers.zeros},
        "layers": {"Deconvolution2D": layers.Conv2DTranspose, "Deconv2D": layers.Conv2DTranspose,
                   "Deconvolution3D": layers.Conv3DTranspose, "Deconv3D": layers.Conv3DTranspose,
                   "AtrousConvolution1D": layers.Conv1D, "AtrousConvolution2D": layers.Conv2D},
        "models": {"Input": layers.Input, "InputLayer": layers.InputLayer, "Network": models.Model,
                   "Container": models.Model},
        "applications.imagenet_utils": {"_obtain_input_shape": applications.obtain_input_shape},
        "optimizers": {"TFOptimizer": native.TFOptimizer, **{name.lower(): getattr(optimizers, name) for name in (
            "SGD", "RMSprop", "Adagrad", "Adadelta", "Adam", "Adamax", "Nadam")}},
        "utils": {"multi_gpu_model": _one_model, "HDF5Matrix": HDF5Matrix,
                  **{name: getattr(generic, name) for name in ("has_arg", "to_list", "func_dump", "func_load")},
                  **{name: getattr(layer_utils, name) for name in ("print_summary", "count_params")}},
    }


_ORDERINGS = {"tf": "channels_last", "th": "channels_first"}


def _one_model(model: Any, gpus: Any = None, cpu_merge: bool = True, cpu_relocation: bool = False) -> Any:
    """`multi_gpu_model`: returns the model itself, for one device; the workers of a cluster share the work."""
    _log.info("keras.utils.multi_gpu_model: the model trains on one device; start a worker for each GPU instead")
    return model


def _predict_classes(model: Any, x: Any, batch_size: int = 32, verbose: int = 0) -> np.ndarray:
    """Returns the class of each example, int64 [n], or int32 [n, 1] of a model with one output."""
    chances = model.predict(x, batch_size=batch_size, verbose=verbose)
    return chances.argmax(-1) if chances.shape[-1] > 1 else (chances > 0.5).astype("int32")


class HDF5Matrix:
    """Rows of a data set in an HDF5 file, which are read where they are indexed."""

    def __init__(self, datapath: str, dataset: str, start: int = 0, end: int | None = None,
                 normalizer: Callable[[np.ndarray], Any] | None = None) -> None:
        """Opens the file; `normalizer` changes the rows that are read."""
        import h5py  # noqa: PLC0415 (only these jobs need it)

        self.data = h5py.File(datapath, "r")[dataset]
        self.start, self.end, self.normalizer = start, self.data.shape[0] if end is None else end, normalizer

    def __len__(self) -> int:
        return self.end - self.start

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            first, last = key.start or 0, len(self) if key.stop is None else key.stop
            rows = self.data[first + self.start:min(last, len(self)) + self.start]
        elif isinstance(key, (int, np.integer)):
            rows = self.data[key + self.start]
        else:  # h5py wants the rows in their order, each once
            wanted = np.asarray(key) + self.start
            order, places = np.unique(wanted, return_inverse=True)
            rows = self.data[order.tolist()][places]
        return rows if self.normalizer is None else self.normalizer(rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the rows between `start` and `end`."""
        return (len(self), *self.data.shape[1:])

    dtype = property(lambda self: self.data.dtype)
    ndim = property(lambda self: self.data.ndim)
    size = property(lambda self: int(np.prod(self.shape)))
