"""Puts charts and tables into one HTML file that needs no other file and no network."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence
from typing import NamedTuple

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


class Row(NamedTuple):
    """A row of a table; one that says that something went wrong is red."""

    cells: Sequence[object]
    is_fault: bool = False


def page(title: str, subtitle: str, sections: Iterable[str]) -> str:
    """Returns the file; each section is HTML, made by the other functions here."""
    return _PAGE.format(title=html.escape(title), subtitle=html.escape(subtitle), body="\n".join(sections))


def figures(values: Iterable[tuple[str, str]]) -> str:
    """Returns (value, what it is) pairs, in large type."""
    boxes = "".join(f"<div><b>{html.escape(value)}</b><span>{html.escape(name)}</span></div>" for value, name in values)
    return f'<div class="figures">{boxes}</div>'


def heading(text: str) -> str:
    """Returns the heading of a section."""
    return f"<h2>{html.escape(text)}</h2>"


def text(line: str, *, is_code: bool = False) -> str:
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
    """Returns a table; the columns of these numbers, from 0, have numbers in them."""
    kinds = [' class="number"' if column in set(numbers) else "" for column in range(len(headings))]
    head = "".join(f"<th{kind}>{html.escape(name)}</th>" for kind, name in zip(kinds, headings))
    body = "".join(
        f"<tr{' class=' + chr(34) + 'fault' + chr(34) if row.is_fault else ''}>"
        + "".join(f"<td{kind}>{html.escape(str(cell))}</td>" for kind, cell in zip(kinds, row.cells)) + "</tr>\n"
        for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>'
