"""The tables: results of the runs as medians and spread, and ratios beside their targets, as Markdown and as JSON."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.harness import measures
from benchmarks.harness.evaluation import TARGET_ACCURACY, read_curve
from benchmarks.harness.measures import Point, Spread


class Column(NamedTuple):
    """A figure of a run: its key in JSON, its heading, and how it is written."""

    key: str
    heading: str
    form: str


COLUMNS = (
    Column("batches_per_sec", "batches/s", "{:.0f}"),
    Column("secs_to_97", "s to 97 %", "{:.2f}"),
    Column("accuracy", "accuracy at the end", "{:.4f}"),
    Column("bytes_per_step", "bytes per batch", "{:,.0f}"),
    Column("ps_cpu_ms", "CPU ms per batch, ps", "{:.2f}"),
    Column("worker_cpu_ms", "CPU ms per batch, others", "{:.2f}"),
    Column("peak_memory_mb", "peak memory, MB", "{:.0f}"),
    Column("start_secs", "s from start to first step", "{:.1f}"),
    Column("others_cores", "cores taken by others", "{:.2f}"),
)


class Result(NamedTuple):
    """The runs of one name.

    Attributes:
      figures: key of a Column -> its spread over the runs, None where a run has none.
      curve: of the run with the median speed, for the plot.
    """

    name: str
    figures: Mapping[str, Spread | None]
    curve: Sequence[Point] = ()


class Ratio(NamedTuple):
    """What is claimed: figure `key` of `name`, divided by that of `base`, is at least or at most `target`."""

    name: str
    base: str
    key: str
    sign: str
    target: float

    def holds(self, value: float) -> bool:
        """Tells whether a ratio is as claimed."""
        return value >= self.target if self.sign == ">=" else value <= self.target


def run_figures(folder: pathlib.Path) -> dict[str, float | None]:
    """Returns the figures of one run, from its folder."""
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    curve = read_curve(folder)
    samples = [json.loads(line) for line in (folder / "samples.jsonl").read_text(encoding="utf-8").splitlines()[1:]]
    times, batches = [sample["time"] for sample in samples], [point.batches for point in curve]
    num_bytes, others_secs = ([(sample["time"], sample[key]) for sample in run["samples"]]
                              for key in ("bytes", "others_cpu_secs"))
    taken = measures.per_second(others_secs, times[0], times[-1])
    ps_cpu_ms, worker_cpu_ms = (
        measures.per_batch([(sample["time"], _cpu_ms(sample["cpu_secs"], is_ps)) for sample in run["samples"]], times,
                           batches) for is_ps in (True, False))
    return {
        "batches_per_sec": measures.rate(times, batches),
        "secs_to_97": measures.secs_to(curve, TARGET_ACCURACY),
        "accuracy": curve[-1].accuracy,
        "bytes_per_step": measures.per_batch(num_bytes, times, batches),
        "ps_cpu_ms": ps_cpu_ms,
        "worker_cpu_ms": worker_cpu_ms,
        "peak_memory_mb": sum(run["peak_memory_mb"].values()) or None,
        "start_secs": times[0] - run["start_time"],
        "others_cores": None if taken is None else max(0.0, taken),  # ticks of two clocks: a rounding may be negative
    }


def _cpu_ms(cpu_secs: Mapping[str, float], is_ps: bool) -> float | None:
    """Returns the CPU time of the ps, or of all other tasks, in ms; None where there are none."""
    secs = [value for name, value in cpu_secs.items() if name.startswith("ps-") == is_ps]
    return 1000 * sum(secs) if secs else None


def summarise(name: str, folders: Sequence[pathlib.Path]) -> Result:
    """Returns the Result of the runs in these folders, of which there is at least one."""
    runs = [run_figures(folder) for folder in folders]
    order = sorted(range(len(runs)), key=lambda index: runs[index]["batches_per_sec"])
    middle = order[(len(order) - 1) // 2]
    figures = {column.key: measures.spread([run[column.key] for run in runs]) for column in COLUMNS}
    return Result(name, figures, read_curve(folders[middle]))


def results_table(results: Iterable[Result]) -> str:
    """Returns the Markdown table; a column that nobody has a figure for is left out."""
    results = list(results)
    columns = [column for column in COLUMNS if any(result.figures.get(column.key) for result in results)]
    rows = [f"| {result.name} | " + " | ".join(cell(result.figures.get(column.key), column.form) for column in columns)
            + " |" for result in results]
    return "\n".join(["| | " + " | ".join(column.heading for column in columns) + " |",
                      "|---" * (len(columns) + 1) + "|", *rows])


def cell(spread: Spread | None, form: str) -> str:
    """Returns the median, and behind it the least and the greatest where there are several runs."""
    if spread is None:
        return "-"
    low, median, high = (form.format(value) for value in (spread.low, spread.median, spread.high))
    return median if spread.runs == 1 or low == high else f"{median} ({low} to {high})"


def ratio_value(ratio: Ratio, results: Iterable[Result]) -> float | None:
    """Returns the ratio of the two medians, None where one of them is not known."""
    found = {result.name: result.figures.get(ratio.key) for result in results}
    above, below = found.get(ratio.name), found.get(ratio.base)
    return above.median / below.median if above and below and below.median else None


def ratios_table(ratios: Iterable[Ratio], results: Sequence[Result]) -> str:
    """Returns the ratios beside their targets as a Markdown table."""
    headings = {column.key: column.heading for column in COLUMNS}
    rows = []
    for ratio in ratios:
        value = ratio_value(ratio, results)
        verdict = "not measured" if value is None else "yes" if ratio.holds(value) else "**no**"
        shown = "-" if value is None else f"{value:.3g}"
        rows.append(f"| {ratio.name} / {ratio.base}, {headings[ratio.key]} | {shown} | {ratio.sign} {ratio.target:g} | "
                    f"{verdict} |")
    return "\n".join(["| ratio of medians | measured | wanted | holds |", "|---|---|---|---|", *rows])


def as_json(
    results: Sequence[Result], ratios: Iterable[Ratio], skipped: Mapping[str, str], machine: Mapping[str, Any]
) -> str:
    """Returns everything as JSON; each figure as {"median", "low", "high", "runs"} or null."""
    return json.dumps({
        "machine": machine,
        "results": [
            {"name": result.name, **{key: spread and spread._asdict() for key, spread in result.figures.items()}}
            for result in results],
        "ratios": [{**ratio._asdict(), "measured": ratio_value(ratio, results)} for ratio in ratios],
        "skipped": dict(skipped),
    }, indent=1)


def as_markdown(
    title: str, results: Sequence[Result], ratios: Sequence[Ratio], skipped: Mapping[str, str],
    machine: Mapping[str, Any],
) -> str:
    """Returns everything as Markdown."""
    parts = [f"# {title}", ", ".join(f"{key} {value}" for key, value in machine.items()) + ".", results_table(results)]
    if ratios:
        parts.append(ratios_table(ratios, results))
    if skipped:
        parts.append("\n".join(f"- {name}: skipped, {reason}" for name, reason in skipped.items()))
    return "\n\n".join(parts) + "\n"
