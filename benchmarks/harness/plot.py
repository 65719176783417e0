"""Accuracy over time, one line for each peer."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.harness.report import Result

_LOWEST_ACCURACY = 0.90  # what happens below takes tenths of a second


def accuracy_over_time(results: Iterable[Result], path: str, target: float) -> str | None:
    """Writes an SVG or PNG, by the ending of `path`; returns why it could not, or None."""
    try:
        import matplotlib  # noqa: PLC0415 (an extra: the figures are there without it)
    except ImportError as error:
        return str(error)
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "ps_train"  # the same figures give the same file
    from matplotlib import pyplot  # noqa: PLC0415 (after the choice of Agg, as a machine may have no screen)

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
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None)
    pyplot.close(figure)
    return None
