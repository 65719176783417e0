"""What matplotlib had when TF1 code was written, and no longer has.

    canvas.tostring_rgb()            until 3.9
    style.use("seaborn-darkgrid")    the styles of seaborn before 0.8 have longer names since 3.6
    fig.gca(projection="3d")         until 3.6
    plt.grid(b=True)                 `visible` since 3.5; "on" and "off" were values, too
    plt.hist(x, normed=True)         `density` since 3.1
    plt.subplot(111, axisbg="w")     `facecolor` since 2.2
    canvas.set_window_title("x")     of the canvas's manager since 3.6
    matplotlib.use("Agg", warn=False)
    plt.hold(True)                   until 2.2; today all is drawn into the same axes, as it was by default
    fig.add_subplot("211")           until 3.5; whole numbers as text or floats, as in plt.subplot(n / 2, 2, i), too
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from ps_train.parts.legacy.names.arrays import set_missing, wrap

_SEABORN_TODAY = "seaborn-v0_8"


def restore_colormaps(cm: types.ModuleType) -> None:
    """Sets `get_cmap`, which matplotlib 3.9 has removed."""
    def get_cmap(name: Any = None, lut: int | None = None) -> Any:
        if name is not None and not isinstance(name, str):
            return name
        colormap = sys.modules["matplotlib"].colormaps.get_cmap(name)
        return colormap if lut is None else colormap.resampled(lut)
    set_missing(cm, "get_cmap", get_cmap)


def restore_canvas(backend: types.ModuleType) -> None:
    """Sets `tostring_rgb` of a canvas and of what draws it: 3 bytes for each pixel."""
    for kind in (backend.FigureCanvasAgg, backend.RendererAgg):
        set_missing(kind, "tostring_rgb", lambda canvas: np.asarray(canvas.buffer_rgba())[..., :3].tobytes())


def restore_windows(backends: types.ModuleType) -> None:
    """Sets `set_window_title` of a canvas, which may have no window."""
    def set_window_title(canvas: Any, title: str) -> None:
        if canvas.manager is not None:
            canvas.manager.set_window_title(title)
    set_missing(backends.FigureCanvasBase, "set_window_title", set_window_title)


def restore_use(matplotlib: types.ModuleType) -> None:
    """Lets `use` take the argument `warn`."""
    wrap("use", lambda original, *args, warn=None, **kwargs: original(*args, **kwargs), matplotlib)


def restore_styles(style: types.ModuleType) -> None:
    """Sets the short names of the styles of seaborn."""
    for name in [name for name in style.library if name.startswith(_SEABORN_TODAY)]:
        style.library.setdefault(f"seaborn{name[len(_SEABORN_TODAY):]}", style.library[name])


def restore_axis(module: types.ModuleType) -> None:
    """Lets `grid` of one axis take the argument `b`."""
    wrap("grid", _grid, module.Axis)


def restore_axes(module: types.ModuleType) -> None:
    """Lets `grid` take the argument `b`, `hist` `normed`, and axes the colour `axisbg`; sets `hold`."""
    wrap("grid", _grid, module.Axes)
    wrap("hist", _histogram, module.Axes)
    wrap("__init__", _init_axes, module.Axes)
    _set_hold(module.Axes)


def _grid(original: Callable[..., None], axes: Any, visible: Any = None, *args: Any, **kwargs: Any) -> None:
    old = kwargs.pop("b", None)
    visible = old if visible is None else visible
    visible = visible == "on" if isinstance(visible, str) and visible in ("on", "off") else visible
    original(axes, visible, *args, **kwargs)


def _init_axes(original: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    if "axisbg" in kwargs:
        kwargs["facecolor"] = kwargs.pop("axisbg")
    original(*args, **kwargs)


def _set_hold(owner: Any) -> None:
    for name, function in (("hold", lambda *_, **__: None), ("ishold", lambda *_: True)):
        set_missing(owner, name, function)


def _histogram(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    normed = kwargs.pop("normed", None)
    if normed is not None:
        kwargs["density"] = kwargs.get("density") or bool(normed)
    return original(*args, **kwargs)


def restore_figures(figure: types.ModuleType) -> None:
    """Lets `gca` make axes of a projection, and `add_subplot` take other numbers than whole ones for a place."""
    wrap("gca", _current_axes, figure.Figure)
    wrap("add_subplot", _subplot, figure.FigureBase)


def _current_axes(original: Callable[..., Any], figure: Any, **kwargs: Any) -> Any:
    if not kwargs:
        return original(figure)
    kind = kwargs.get("projection") or ("polar" if kwargs.get("polar") else "rectilinear")
    is_there = bool(figure.axes) and original(figure).name == kind
    return original(figure) if is_there else figure.add_subplot(1, 1, 1, **kwargs)


def _subplot(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    is_number = [isinstance(part, float) or (isinstance(part, str) and part.isdigit()) for part in args]
    return original(*(int(part) if number else part for part, number in zip(args, is_number)), **kwargs)


def restore_pyplot(pyplot: types.ModuleType) -> None:
    """Sets the same for the functions of the current figure."""
    _set_hold(pyplot)
    wrap("subplot", _subplot, pyplot)
    wrap("gca", lambda _, **kwargs: pyplot.gcf().gca(**kwargs), pyplot)


# Module of matplotlib -> what sets the names that it has lost.
RESTORED = {
    "matplotlib": restore_use, "matplotlib.cm": restore_colormaps, "matplotlib.style": restore_styles,
    "matplotlib.backend_bases": restore_windows, "matplotlib.backends.backend_agg": restore_canvas,
    "matplotlib.axis": restore_axis, "matplotlib.axes._axes": restore_axes,
    "matplotlib.figure": restore_figures, "matplotlib.pyplot": restore_pyplot}
