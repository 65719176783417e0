"""Draws charts as SVG, with matplotlib, and puts them and tables into one HTML file that needs no network."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable, NamedTuple

from ps_train.errors import ConfigError
from ps_train.parts.control.history import Sample
from ps_train.parts.report.curves import Point

_SIZE = (7.0, 3.2)  # inches; the page scales it
_MOST_NAMED = 10  # lines in a legend
_UNITS = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))
_LOSS_COLOR = "#c0392b"
_STYLE = {
    "svg.hashsalt": "ps_train",  # the same figures give the same file
    "font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3,
    "axes.formatter.useoffset": False, "lines.linewidth": 1.4,
}
_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; }}
body {{ margin: 0 auto; max-width: 1080px; padding: 1.5rem; }}
h1 {{ font-size: 1.6rem; margin: 0 0 .2rem; }}
h2 {{ font-size: 1.15rem; margin: 2rem 0 .6rem; border-bottom: 1px solid #ddd; padding-bottom: .2rem; }}
.figures {{ display: flex; flex-wrap: wrap; gap: .7rem; margin: 1rem 0; }}
.figures div {{ background: #f3f5f8; border-radius: 6px; padding: .5rem .9rem; min-width: 7rem; }}
.figures b {{ display: block; font-size: 1.2rem; }}
.figures span {{ color: #555; font-size: .85rem; }}
.charts {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(24rem, 1fr)); gap: 1.2rem; }}
figure {{ margin: 0; }}
figcaption {{ font-weight: 600; }}
img {{ width: 100%; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: .88rem; width: 100%; }}
th, td {{ text-align: left; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid #eee; vertical-align: top; }}
td.number, th.number {{ text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }}
tr.fault td {{ color: #a93226; }}
code {{ background: #f3f5f8; padding: .1rem .3rem; overflow-wrap: anywhere; }}
@media (prefers-color-scheme: dark) {{
  body {{ color: #ddd; background: #16181c; }}
  h2 {{ border-color: #444; }}
  th, td {{ border-color: #333; }}
  .figures div, code {{ background: #24272d; }}
  .figures span {{ color: #aaa; }}
  tr.fault td {{ color: #ff8a7a; }}
  img {{ filter: invert(1) hue-rotate(180deg); }}  /* the charts have no background: black text becomes white */
}}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{subtitle}</p>
{body}
</body>
</html>
"""


class TimeAxis(NamedTuple):
    """The time axis of a chart: its start, in seconds since the epoch, and its unit."""

    begin: float
    unit_secs: float
    unit: str

    @classmethod
    def over(cls, begin: float, end: float) -> TimeAxis:
        """Returns the axis with a suitable unit."""
        unit_secs, unit = next(((secs, name) for secs, name in _UNITS if end - begin > 3 * secs), _UNITS[-1])
        return cls(begin, unit_secs, unit)

    def place(self, time: float) -> float:
        """Returns the position of a time on this axis."""
        return (time - self.begin) / self.unit_secs


class Line(NamedTuple):
    """A line of a chart; `has_marks` shows each point, for lines with few."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    has_marks: bool = False


def check_matplotlib() -> None:
    """Raises ConfigError, with the command that helps, if matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401, PLC0415 (an extra: only this verb needs it)
    except ImportError as error:
        raise ConfigError("matplotlib_missing", f"the charts of `ps_train report` need matplotlib: {error}; install it "
                          "with `pip install 'ps_train[report]'`, or `pip install matplotlib`") from None


def lines_chart(
    lines: Sequence[Line], *, x_label: str, y_label: str, losses: Sequence[float] = (), is_from_zero: bool = False
) -> str:
    """Returns a line chart, with a dashed vertical line for each lost session."""

    def draw(axes: Any) -> None:
        for number, line in enumerate(lines):
            axes.plot(line.xs, line.ys, label=_plain(line.name), color=f"C{number % 10}",
                      marker="o" if line.has_marks else "", markersize=3.5)
        for index, place in enumerate(losses):
            axes.axvline(place, color=_LOSS_COLOR, linestyle="--", linewidth=0.9,
                         label="" if index else "session lost")
        if len(lines) + bool(losses) > 1 and len(lines) <= _MOST_NAMED:
            axes.legend(frameon=False)
        axes.set(xlabel=x_label, ylabel=_plain(y_label))
        if is_from_zero:
            axes.set_ylim(bottom=0)

    return _svg(draw)


def bars_chart(amounts: Mapping[str, float], label: str) -> str:
    """Returns a horizontal bar chart, the first bar at the top."""

    def draw(axes: Any) -> None:
        axes.barh(range(len(amounts)), list(amounts.values()), color="C0", height=0.6)
        axes.set(xlabel=label, yticks=range(len(amounts)), yticklabels=list(amounts))
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")

    return _svg(draw, height=0.8 + 0.32 * max(1, len(amounts)))


def by_step(name: str, points: Sequence[Point], *, has_marks: bool = False) -> Line:
    """Returns a line over global steps."""
    return Line(name, [point.step for point in points], [point.value for point in points], has_marks)


def rates(points: Sequence[Point] | Sequence[Sample], axis: TimeAxis) -> Line:
    """Returns global steps per second over time, from pairs of points that follow each other."""
    pairs = [(last, point) for last, point in zip(points, points[1:])
             if point.time > last.time and point.step >= last.step]
    return Line("global steps/s", [axis.place(point.time) for _, point in pairs],
                [(point.step - last.step) / (point.time - last.time) for last, point in pairs])


def by_worker(
    samples: Sequence[Sample], axis: TimeAxis, value_of: Callable[[Sample], Mapping[str, float]]
) -> list[Line]:
    """Returns a line for each worker over time."""
    names = sorted({name for sample in samples for name in value_of(sample)}, key=lambda name: (len(name), name))
    return [Line(name, *zip(*[(axis.place(sample.time), value_of(sample)[name])
                              for sample in samples if name in value_of(sample)])) for name in names]


def _plain(name: str) -> str:
    """Escapes a name for matplotlib, which reads text between two `$` as a formula."""
    return name.replace("$", r"\$")


def _svg(draw: Callable[[Any], None], height: float = _SIZE[1]) -> str:
    import matplotlib  # noqa: PLC0415 (see check_matplotlib)

    matplotlib.use("Agg")  # a machine may have no screen
    from matplotlib import pyplot  # noqa: PLC0415 (after the choice of Agg)

    with matplotlib.rc_context(_STYLE):
        figure, axes = pyplot.subplots(figsize=(_SIZE[0], height), layout="constrained")
        draw(axes)
        svg = io.StringIO()
        figure.savefig(svg, format="svg", metadata={"Date": None}, transparent=True)  # the page has a dark mode
        pyplot.close(figure)
    return svg.getvalue()


class Row(NamedTuple):
    """A row of a table; a fault is red."""

    cells: Sequence[object]
    is_fault: bool = False


def page(title: str, subtitle: str, sections: Iterable[str]) -> str:
    """Returns the file; each section is HTML of the other functions here."""
    return _PAGE.format(title=html.escape(title), subtitle=html.escape(subtitle), body="\n".join(sections))


def figures(values: Iterable[tuple[str, str]]) -> str:
    """Returns (value, name) pairs, in large type."""
    boxes = "".join(f"<div><b>{html.escape(value)}</b><span>{html.escape(name)}</span></div>" for value, name in values)
    return f'<div class="figures">{boxes}</div>'


def heading(title: str) -> str:
    """Returns the heading of a section."""
    return f"<h2>{html.escape(title)}</h2>"


def paragraph(line: str, *, is_code: bool = False) -> str:
    """Returns a paragraph."""
    escaped = html.escape(line)
    return f"<p><code>{escaped}</code></p>" if is_code else f"<p>{escaped}</p>"


def charts(drawn: Iterable[tuple[str, str]]) -> str:
    """Returns (caption, SVG) pairs side by side."""
    # As images, because the identifiers in several SVGs on one page would clash.
    return '<div class="charts">' + "".join(
        f'<figure><figcaption>{html.escape(caption)}</figcaption><img alt="{html.escape(caption)}" '
        f'src="data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"></figure>'
        for caption, svg in drawn) + "</div>"


def table(headings: Sequence[str], rows: Iterable[Row], numbers: Iterable[int] = ()) -> str:
    """Returns a table; `numbers` has the indexes of the columns of numbers, from 0."""
    kinds = [' class="number"' if column in set(numbers) else "" for column in range(len(headings))]
    head = "".join(f"<th{kind}>{html.escape(name)}</th>" for kind, name in zip(kinds, headings))
    body = "".join(
        f"<tr{' class=' + chr(34) + 'fault' + chr(34) if row.is_fault else ''}>"
        + "".join(f"<td{kind}>{html.escape(str(cell))}</td>" for kind, cell in zip(kinds, row.cells)) + "</tr>\n"
        for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>'
