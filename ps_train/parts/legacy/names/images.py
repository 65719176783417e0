"""The images of `scipy.misc`, which SciPy 1.3 has removed, by Pillow; the rest of it is in scipy.special."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

_RESAMPLING = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "cubic": 3}  # Pillow's numbers
_SPECIAL = ("comb", "factorial", "factorial2", "factorialk", "logsumexp")


def __getattr__(name: str) -> Any:
    if name in _SPECIAL:
        return getattr(importlib.import_module("scipy.special"), name)
    raise AttributeError(f"scipy.misc has no {name!r} any more; ps_train has its images only")


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
    """Returns a Pillow image of rows and columns, or of those with 3 or 4 channels."""
    data = np.asarray(arr)
    if data.ndim == 2:
        if mode == "F":
            return _pillow().fromarray(data.astype(np.float32))
        if mode == "I":
            return _pillow().fromarray(data.astype(np.int32))
        image = _pillow().fromarray(bytescale(data, cmin, cmax, high, low))
        if pal is not None:
            image.putpalette(np.asarray(pal, np.uint8).tobytes())
        return image.convert(mode) if mode not in (None, image.mode) else image
    axis = channel_axis
    if axis is None:
        axis = next((place for place in range(data.ndim - 1, -1, -1) if data.shape[place] in (3, 4)), None)
    if data.ndim != 3 or axis is None:
        raise ValueError("'arr' does not have a suitable array shape for any mode.")
    image = _pillow().fromarray(np.ascontiguousarray(np.moveaxis(bytescale(data, cmin, cmax, high, low), axis, 2)))
    return image.convert(mode) if mode not in (None, image.mode) else image


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
