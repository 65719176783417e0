"""What Python's own library and some packages had when TF1 code was written, and no longer have.

    Python        names that were removed from 3.0 to 3.13 (modules of Python 2: python2_library.py)
    pandas        methods (arrays.py), and calls (pandas_calls.py)
    h5py          `dataset.value`, and files that are made when they are opened
    PyYAML        `yaml.load(text)` without a loader
    Pillow        `Image.ANTIALIAS` and the like, `font.getsize(text)`, `draw.textsize(text)`
    SciPy         `scipy.misc` (images.py), numpy's functions in `scipy`, and names and methods that were removed
    scikit-learn  modules that were renamed (moved.py)
    matplotlib    plots.py
    NetworkX      names of before 2.0 and 3.0, where those of today do the same: `graph.node`, `from_numpy_matrix`
    TF-Slim       the gradient of `gdn`

Only what is missing is set, so a name that is there keeps its meaning.
"""

from __future__ import annotations

import base64
import collections
import collections.abc
import contextlib
import errno
import fractions
import html
import html.parser
import inspect
import itertools
import json
import logging
import math
import operator
import os
import platform
import random
import string
import sys
import threading
import time
import types
import unittest
import urllib
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ps_train.parts.legacy.division import divide
from ps_train.parts.legacy.names import pandas_calls, plots
from ps_train.parts.legacy.names.arrays import restore_pandas, set_missing, wrap

_log = logging.getLogger(__name__)


class ArgSpec(NamedTuple):
    """The arguments of a function, as `inspect.getargspec` returned them."""

    args: list[str]
    varargs: str | None
    keywords: str | None
    defaults: tuple[Any, ...] | None


def getargspec(function: Callable[..., Any]) -> ArgSpec:
    """Returns the arguments of a function; those that are given by name only are left out."""
    return ArgSpec(*inspect.getfullargspec(function)[:4])


def restore_python() -> None:
    """Sets the names that Python's library has lost."""
    for name in collections.abc.__all__:
        set_missing(collections, name, getattr(collections.abc, name))
    for owner, names in (
        (time, {"clock": time.process_time}),
        (inspect, {"getargspec": getargspec}),
        (fractions, {"gcd": math.gcd}),
        (base64, {"encodestring": base64.encodebytes, "decodestring": base64.decodebytes}),
        (platform, {"linux_distribution": _linux_distribution, "dist": _linux_distribution}),
        (threading.Thread, {"isAlive": threading.Thread.is_alive}),
        (logging, {"warn": logging.warning}),
        (logging.Logger, {"warn": logging.Logger.warning}),
        (os, {"errno": errno, "getcwdu": os.getcwd}),
        (sys, {"maxint": sys.maxsize, "setdefaultencoding": lambda _: None}),
        (itertools, {"izip": zip, "imap": map, "ifilter": filter, "izip_longest": itertools.zip_longest}),
        (string, _TEXT_FUNCTIONS),
        (types, _TYPES),
        (operator, {"div": divide, "idiv": divide}),
        (json.encoder, {"FLOAT_REPR": float.__repr__}),
        (contextlib, {"nested": nested}),
        (html.parser.HTMLParser, {"unescape": lambda self, text: html.unescape(text)}),
        (unittest.TestCase, {"assertItemsEqual": unittest.TestCase.assertCountEqual}),
    ):
        for name, value in names.items():
            set_missing(owner, name, value)
    for name in ("quote", "quote_plus", "unquote", "unquote_plus", "urlencode"):
        set_missing(urllib, name, getattr(urllib.parse, name))
    for name in ("urlopen", "urlretrieve", "URLopener", "urlcleanup"):
        if hasattr(urllib.request, name):  # URLopener is gone in 3.14
            set_missing(urllib, name, getattr(urllib.request, name))
    wrap("sample", _sample, random)
    wrap("shuffle", _shuffle, random)
    wrap("seed", _seed, random.Random)
    random.seed = random.seed.__self__.seed  # type: ignore[attr-defined]  # of the generator that all share
    for name in ("load", "loads", "dump", "dumps"):
        wrap(name, _without_encoding, json)


_TEXT_FUNCTIONS = {
    "letters": string.ascii_letters, "lowercase": string.ascii_lowercase, "uppercase": string.ascii_uppercase,
    "maketrans": str.maketrans, "join": lambda words, sep=" ": sep.join(words), "atoi": int, "atof": float,
    **{name: getattr(str, name) for name in ("split", "strip", "replace", "lower", "upper", "find")},
}
_TYPES = {
    "StringType": str, "UnicodeType": str, "StringTypes": (str,), "IntType": int, "LongType": int, "FloatType": float,
    "BooleanType": bool, "ListType": list, "TupleType": tuple, "DictType": dict, "ClassType": type,
}


def _linux_distribution(*_: Any, **__: Any) -> tuple[str, str, str]:
    # What it returned where it could not tell.
    return "", "", ""


def _sample(original: Callable[..., list], population: Any, *args: Any, **kwargs: Any) -> list:
    """Takes a set or the keys of a dictionary, too, as before 3.11."""
    is_ordered = not isinstance(population, (collections.abc.Set, collections.abc.ValuesView))
    return original(population if is_ordered else list(population), *args, **kwargs)


def _shuffle(original: Callable[..., None], x: Any, random: Callable[[], float] | None = None) -> None:
    """Takes the source of the random numbers, from 0 to 1, as until 3.10."""
    if random is None:
        return original(x)
    for last in range(len(x) - 1, 0, -1):
        place = int(random() * (last + 1))
        x[last], x[place] = x[place], x[last]
    return None


def _seed(original: Callable[..., None], generator: random.Random, a: Any = None, version: int = 2) -> None:
    """Takes any value with a hash, such as a date or numpy's numbers, as until 3.10."""
    is_taken = a is None or isinstance(a, (int, float, str, bytes, bytearray))
    original(generator, a if is_taken else hash(a) % 2**64, version)


@contextlib.contextmanager
def nested(*managers: Any) -> Iterator[tuple]:
    """Enters all of them, and yields what they gave, as until Python 2.7."""
    with contextlib.ExitStack() as stack:
        yield tuple(stack.enter_context(manager) for manager in managers)


def _without_encoding(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Takes the encoding of bytes, which Python detects since 3.6, and refuses since 3.9."""
    kwargs.pop("encoding", None)
    return original(*args, **kwargs)


def restore_yaml(yaml: types.ModuleType) -> None:
    """Lets `yaml.load` choose a loader, as before PyYAML 6: the one that makes no objects but Python's own."""
    for name in ("load", "load_all"):
        wrap(name, _with_loader, yaml)


def _with_loader(original: Callable[..., Any], stream: Any, Loader: Any = None) -> Any:  # noqa: N803 (as PyYAML has it)
    return original(stream, Loader or sys.modules["yaml"].FullLoader)


def restore_pillow(image: types.ModuleType) -> None:
    """Sets the names of `PIL.Image` that Pillow 10 has removed."""
    for name, today in (("ANTIALIAS", "LANCZOS"), ("LINEAR", "BILINEAR"), ("CUBIC", "BICUBIC")):
        set_missing(image, name, getattr(image, today))


def restore_fonts(fonts: types.ModuleType) -> None:
    """Sets the methods of fonts that Pillow 10 has removed; sizes are (width, height) in pixels."""
    for kind in (fonts.FreeTypeFont, fonts.ImageFont):
        set_missing(kind, "getsize", _size_of_text)
    set_missing(fonts.FreeTypeFont, "getoffset", lambda font, text: font.getbbox(text)[:2])


def _size_of_text(font: Any, text: Any, direction: Any = None, features: Any = None, language: Any = None,
                  stroke_width: float = 0) -> tuple[int, int]:
    options = {"direction": direction, "features": features, "language": language, "stroke_width": stroke_width}
    return _size(font.getbbox(text, **{name: value for name, value in options.items() if value}))


def restore_drawing(drawing: types.ModuleType) -> None:
    """Sets the methods of `ImageDraw` that Pillow 10 has removed."""
    for name, today in (("textsize", "textbbox"), ("multiline_textsize", "multiline_textbbox")):
        set_missing(drawing.ImageDraw, name, _size_by(today))


def _size_by(bounds: str) -> Callable[..., tuple[int, int]]:
    def size(draw: Any, text: Any, font: Any = None, spacing: float = 4, *args: Any, **kwargs: Any) -> tuple[int, int]:
        kwargs.update(zip(("direction", "features", "language", "stroke_width"), args))
        return _size(getattr(draw, bounds)((0, 0), text, font=font, spacing=spacing, **kwargs))
    return size


def _size(box: Sequence[float]) -> tuple[int, int]:
    left, _, right, bottom = box
    return int(right - left), int(bottom)  # with the room above low letters


def restore_all_of_pandas(pandas: types.ModuleType) -> None:
    """Sets what pandas has lost, and lets it take the calls of before."""
    restore_pandas(pandas)
    pandas_calls.restore_calls(pandas)


def restore_h5py(h5py: types.ModuleType) -> None:
    """Sets what h5py 3 has removed; a file that is not there is made again, if no mode is given."""
    set_missing(h5py.Dataset, "value", property(lambda dataset: dataset[()]))
    wrap("__init__", _open_hdf5, h5py.File)


def _open_hdf5(original: Callable[..., None], file: Any, name: Any, *args: Any, **kwargs: Any) -> None:
    is_path = isinstance(name, (str, bytes, os.PathLike))
    if not args and kwargs.get("mode") is None and is_path and not os.path.exists(name):
        kwargs["mode"] = "w"
    original(file, name, *args, **kwargs)


def restore_scipy(scipy: types.ModuleType) -> None:
    """Sets numpy's functions, which SciPy 1.12 has removed; `scipy.log(-1)` and the like are complex numbers."""
    for name in set(np.__all__) - set(scipy.__all__) - set(vars(scipy)):
        value = getattr(np.emath if name in np.emath.__all__ else np, name)
        if name == "random" or not isinstance(value, types.ModuleType):  # `scipy.lib` and the like are no modules of it
            setattr(scipy, name, value)
    for name in ("rand", "randn"):
        set_missing(scipy, name, getattr(np.random, name))


def restore_sparse(sparse: types.ModuleType) -> None:
    """Sets the attributes of matrices that SciPy 1.14 has removed."""
    set_missing(sparse.spmatrix, "A", property(lambda matrix: matrix.toarray()))
    set_missing(sparse.spmatrix, "H", property(lambda matrix: matrix.getH()))


def restore_integrals(integrate: types.ModuleType) -> None:
    """Sets the names that SciPy 1.14 has removed."""
    for name, today in (("trapz", "trapezoid"), ("simps", "simpson"), ("cumtrapz", "cumulative_trapezoid")):
        set_missing(integrate, name, _of_samples(getattr(integrate, today)))


def _of_samples(function: Callable[..., Any]) -> Callable[..., Any]:
    def integral(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1, **kwargs: Any) -> Any:
        return function(y, x=x, dx=dx, axis=axis, **kwargs)  # whose arguments are given by name only today
    return integral


def restore_signal(signal: types.ModuleType) -> None:
    """Sets the windows where they were before SciPy 1.13.

    `lfilter` takes an array of objects: numbers, or arrays of one number each.
    """
    wrap("lfilter", _filtered, signal)
    for name in signal.windows.__all__:
        set_missing(signal, name, getattr(signal.windows, name))
    set_missing(signal, "hanning", signal.windows.hann)


def _filtered(original: Callable[..., Any], b: Any, a: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    if isinstance(x, np.ndarray) and x.dtype == object:
        x = np.asarray(x, dtype=float)  # which takes arrays of one number, too: arrays.py
    return original(b, a, x, *args, **kwargs)


def restore_networkx(nx: types.ModuleType) -> None:
    """Sets names of before NetworkX 2 and 3; `graph.nodes()` is no list today, so `graph.nodes()[0]` is not there."""
    set_missing(nx.Graph, "node", property(lambda graph: graph.nodes))
    for name in ("nodes", "edges"):
        set_missing(nx.Graph, f"{name}_iter", lambda graph, *args, name=name, **kwargs: iter(
            getattr(graph, name)(*args, **kwargs)))
    for owner, name, today in (
        *((nx.Graph, name, name) for name in ("add_path", "add_cycle", "add_star", "selfloop_edges")),
        (nx, "from_numpy_matrix", "from_numpy_array"), (nx, "from_scipy_sparse_matrix", "from_scipy_sparse_array"),
        (nx, "to_scipy_sparse_matrix", "to_scipy_sparse_array"),
    ):
        if hasattr(nx, today):  # not before 2.0, or 2.7
            set_missing(owner, name, getattr(nx, today))
    set_missing(nx, "connected_component_subgraphs", lambda graph: (
        graph.subgraph(nodes).copy() for nodes in nx.connected_components(graph)))
    if hasattr(nx, "to_numpy_array"):
        set_missing(nx, "to_numpy_matrix", lambda *args, **kwargs: np.asmatrix(nx.to_numpy_array(*args, **kwargs)))


def restore_slim(layers: types.ModuleType) -> None:
    """Registers the gradient of the lower bound in `gdn`, which contrib.layers did and TF-Slim does not."""
    from tensorflow.python.framework import ops  # noqa: PLC0415 (TF-Slim has imported it)

    if "GDNLowerBound" not in ops.gradient_registry.list():
        ops.RegisterGradient("GDNLowerBound")(layers.GDN._lower_bound_grad)  # noqa: SLF001 (it has no public name)


# Package -> what sets the names that it has lost, once it is loaded.
RESTORED = {"pandas": restore_all_of_pandas, "yaml": restore_yaml, "PIL.Image": restore_pillow, "h5py": restore_h5py,
            "PIL.ImageFont": restore_fonts, "PIL.ImageDraw": restore_drawing, "scipy": restore_scipy,
            "scipy.sparse": restore_sparse, "scipy.integrate": restore_integrals, "scipy.signal": restore_signal,
            **plots.RESTORED, "networkx": restore_networkx,
            "tf_slim.layers.layers": restore_slim}


def restore_package(module: types.ModuleType) -> None:
    """Sets the names that a package has lost; leaves another module alone that has its name."""
    try:
        RESTORED[module.__name__](module)
    except AttributeError as error:
        _log.warning("%s is not the package that ps_train knows (%s): what it had before is not set in it",
                     module.__name__, error)
