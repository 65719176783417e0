"""Plots: accuracy over time, a line for each peer; the AUC of a live and of a fixed model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.harness.report import Result

_LOWEST_ACCURACY = 0.90  # what happens below takes tenths of a second


def accuracy_over_time(results: Iterable[Result], path: str, target: float) -> str | None:
    """Writes an SVG or PNG, by the ending of `path`; returns why it could not, or None."""
    try:
        pyplot = _pyplot()
    except ImportError as error:
        return str(error)
    figure, axes = pyplot.subplots(figsize=(9, 5.5))
    drawn = 0
    for number, result in enumerate(results):
        points = [point for point in result.curve if point.accuracy is not None and point.secs > 0]
        if points:
            drawn += 1
            axes.plot([point.secs for point in points], [point.accuracy for point in points], label=result.name,
                      color=f"C{number % 10}", linestyle=("-", "--", ":")[number // 10 % 3], linewidth=1.4)
    axes.axhline(target, color="grey", linewidth=0.8)
    axes.set(xscale="log", xlabel="seconds since the first step", ylabel="accuracy on the test set",
             ylim=(_LOWEST_ACCURACY, 0.985))
    if drawn:
        axes.legend(fontsize=8, loc="lower right")
    _save(figure, path, pyplot)
    return None


def auc_over_time(windows: Sequence[Any], drift_secs: float, path: str) -> str | None:
    """Does the same with the AUC of windows of time that have `secs`, `live`, `fixed` and `best`."""
    try:
        pyplot = _pyplot()
    except ImportError as error:
        return str(error)
    figure, axes = pyplot.subplots(figsize=(9, 4.5))
    secs = [window.secs - drift_secs for window in windows]
    for name, label in (("best", "best possible"), ("live", "live model"), ("fixed", "fixed export")):
        axes.plot(secs, [getattr(window, name) for window in windows], label=label, linewidth=1.4)
    axes.axvline(0.0, color="grey", linewidth=0.8, linestyle="--")
    axes.set(xlabel="seconds since all ids changed their meaning", ylabel="AUC")
    axes.legend(fontsize=8, loc="center right")  # between the best possible and the others
    _save(figure, path, pyplot)
    return None


def _pyplot() -> Any:
    import matplotlib  # noqa: PLC0415 (an extra: the figures are there without it)

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "ps_train"  # the same figures give the same file
    from matplotlib import pyplot  # noqa: PLC0415 (after the choice of Agg, as a machine may have no screen)

    return pyplot


def _save(figure: Any, path: str, pyplot: Any) -> None:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None)
    pyplot.close(figure)
