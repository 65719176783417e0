"""The images of `scipy.misc`, which SciPy 1.3 has removed, by Pillow.

What else `scipy.misc` had is in scipy.special today, or still in SciPy's own module of that name, until 1.11.
"""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import importlib.util
import sys
import types
from typing import Any

import numpy as np

__path__: list[str] = []  # lets scripts import scipy.misc.pilutil, which is this module, too
_RESAMPLING = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "cubic": 3}  # Pillow's numbers
_SPECIAL = ("comb", "factorial", "factorial2", "factorialk", "logsumexp")


def __getattr__(name: str) -> Any:
    if name in _SPECIAL:
        return getattr(importlib.import_module("scipy.special"), name)
    own = None if name.startswith("__") else _module_of_scipy()
    if hasattr(own, name):
        return getattr(own, name)
    raise AttributeError(f"scipy.misc has no {name!r} any more; ps_train has its images only")


@functools.cache
def _module_of_scipy() -> types.ModuleType | None:
    """Returns SciPy's own `scipy.misc`, whose place this module has taken; None if it has none."""
    name = "scipy.misc"
    if importlib.util.find_spec("scipy") is None:
        return None
    spec = importlib.machinery.PathFinder.find_spec(name, importlib.import_module("scipy").__path__)
    if spec is None or spec.loader is None:
        return None
    module, ours = importlib.util.module_from_spec(spec), sys.modules.get(name)
    sys.modules[name] = module  # its files import each other
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[name]
        if ours is not None:
            sys.modules[name] = ours
    return module


def _pillow() -> Any:
    return importlib.import_module("PIL.Image")


def imread(name: Any, flatten: bool = False, mode: str | None = None) -> np.ndarray:
    """Reads an image file; flatten makes grey floats of the colours."""
    with _pillow().open(name) as image:
        return fromimage(image, flatten, mode)


def imsave(name: Any, arr: Any, format: str | None = None) -> None:  # noqa: A002 (as SciPy had it)
    """Writes an image; values of other types than uint8 are scaled to 0..255 from their least to their greatest."""
    toimage(arr).save(name, **({"format": format} if format else {}))


def imresize(arr: Any, size: Any, interp: str = "bilinear", mode: str | None = None) -> np.ndarray:
    """Returns an image of another size: a percentage (int), a fraction (float), or the rows and columns."""
    image = toimage(arr, mode=mode)
    if isinstance(size, (int, float, np.number)) and not isinstance(size, bool):
        factor = size / 100.0 if isinstance(size, (int, np.integer)) else size
        target = tuple((np.array(image.size) * factor).astype(int))
    else:
        target = (size[1], size[0])
    return fromimage(image.resize(target, _RESAMPLING[interp]))


def imrotate(arr: Any, angle: float, interp: str = "bilinear") -> np.ndarray:
    """Returns an image that is turned counterclockwise by an angle in degrees."""
    return fromimage(toimage(arr).rotate(angle, resample=_RESAMPLING[interp]))


def fromimage(im: Any, flatten: bool = False, mode: str | None = None) -> np.ndarray:
    """Returns the values of a Pillow image."""
    if mode is not None and mode != im.mode:
        im = im.convert(mode)
    elif mode is None and im.mode == "P":
        im = im.convert("RGBA" if "transparency" in im.info else "RGB")
    if flatten:
        im = im.convert("F")
    elif im.mode == "1":
        im = im.convert("L")
    return np.array(im)


def toimage(
    arr: Any, high: float = 255, low: float = 0, cmin: float | None = None, cmax: float | None = None,
    pal: Any = None, mode: str | None = None, channel_axis: int | None = None,
) -> Any:
    """Returns a Pillow image of rows and columns, or of those with 3 or 4 channels on an axis.

    Raises:
      ValueError: the array is complex, or its shape is no image's, or none of this mode.
    """
    data = np.asarray(arr)
    if np.iscomplexobj(data):
        raise ValueError("Cannot convert a complex-valued array.")
    if data.ndim == 2:
        return _grey_image(data, (high, low, cmin, cmax), pal, mode)
    if data.ndim != 3 or not {3, 4}.intersection(data.shape):
        raise ValueError("'arr' does not have a suitable array shape for any mode.")
    axis = data.shape.index(3 if 3 in data.shape else 4) if channel_axis is None else channel_axis
    modes = {3: ("RGB", "YCbCr"), 4: ("RGBA", "CMYK")}.get(data.shape[axis])
    if modes is None:
        raise ValueError("Channel axis dimension is not valid.")
    if mode not in (None, *modes):
        raise ValueError("Invalid array shape for mode.")
    values = np.moveaxis(bytescale(data, cmin, cmax, high, low), axis, 2)
    return _pillow().frombytes(mode or modes[0], values.shape[1::-1], values.tobytes())


def _grey_image(data: np.ndarray, scale: tuple[Any, ...], pal: Any, mode: str | None) -> Any:
    """Returns an image of one channel; the scale is high, low, cmin and cmax."""
    high, low, cmin, cmax = scale
    size = data.shape[::-1]
    if mode == "F":
        return _pillow().frombytes(mode, size, data.astype(np.float32).tobytes())
    if mode == "1":
        return _pillow().fromarray(data > high)
    if mode == "I":
        least = data.min() if cmin is None else cmin
        span = (data.max() if cmax is None else cmax) - least
        scaled = (data * 1.0 - least) * (high - low) / (span or 1) + low
        return _pillow().frombytes(mode, size, scaled.astype(np.int32).tobytes())
    if mode not in (None, "L", "P"):
        raise ValueError("Mode is unknown or incompatible with input array shape.")
    image = _pillow().frombytes("L", size, bytescale(data, cmin, cmax, high, low).tobytes())
    if pal is not None or mode == "P":
        palette = np.repeat(np.arange(256), 3) if pal is None else np.asarray(pal)
        image.putpalette(palette.astype(np.uint8).tobytes())
    return image


def bytescale(
    data: Any, cmin: float | None = None, cmax: float | None = None, high: float = 255, low: float = 0
) -> np.ndarray:
    """Returns values as uint8; cmin and cmax become low and high, by default the least and greatest value."""
    data = np.asarray(data)
    if data.dtype == np.uint8:
        return data
    least = data.min() if cmin is None else cmin
    span = (data.max() if cmax is None else cmax) - least
    scaled = (data - least) * ((high - low) / (span or 1)) + low
    return (np.clip(scaled, low, high) + 0.5).astype(np.uint8)
