"""The figures of the recommender benchmarks, from the folders of the runs: ratios within each repeat, then medians.

Trials are run in turn, so a ratio within a repeat suffers less from whatever else the machine does than one of medians.
"""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks.harness import evaluation, measures, report, tool
from benchmarks.harness.measures import Spread
from benchmarks.harness.report import Column
from benchmarks.harness.tool import Trial
from benchmarks.recommender.work import Work

_CALL = re.compile(rb"^I\d{4} \d\d:\d\d:(\d+\.\d+) .*RecvTensorAsync req", re.MULTILINE)
Figures = dict[str, "float | None"]


class Ratio(NamedTuple):
    """What is claimed: figure `key` of `name`, divided by that of `base` in the same repeat, is at least or at most
    `target`."""

    name: str
    base: str
    key: str
    sign: str
    target: float


def of_trial(work_dir: pathlib.Path, trial: Trial) -> dict[int, Figures]:
    """Returns repeat -> figures of a trial's complete runs."""
    return of_runs(tool.finished(work_dir, trial))


def of_runs(folders: Sequence[pathlib.Path]) -> dict[int, Figures]:
    """Returns repeat -> figures of complete runs."""
    evaluation.complete(folders)
    return {int(folder.suffix[1:]): _of_run(folder) for folder in folders}


def _of_run(folder: pathlib.Path) -> Figures:
    found = report.run_figures(folder)
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    setting = run["setting"]
    cpu_ms = [found[key] for key in ("ps_cpu_ms", "worker_cpu_ms") if found[key] is not None]
    ps_mb = sum(value for name, value in run["peak_memory_mb"].items() if name.startswith("ps-"))
    return {
        **found,
        "examples_per_sec": found["batches_per_sec"] * setting["batch_size"],
        "cpu_ms": sum(cpu_ms) or None,
        "ps_memory_mb": ps_mb or None,
        "num_rows": Work.parse(setting["params"]).num_ids,
    }


def received_tensors(folder: pathlib.Path) -> float | None:
    """Returns the RecvTensor calls per mini-batch of a run of a `peers.counting` peer; None if none was logged."""
    samples = [json.loads(line) for line in (folder / "samples.jsonl").read_text(encoding="utf-8").splitlines()[1:]]
    ends = measures.second_half([(one["time"], one["batches"]) for one in samples], samples[0]["time"],
                                samples[-1]["time"])
    if ends is None or ends[1][1] == ends[0][1]:
        return None
    (start_secs, start), (end_secs, end) = ends
    times = [float(found) for path in folder.glob("*.log") for found in _CALL.findall(path.read_bytes())]
    return sum(start_secs <= secs < end_secs for secs in times) / (end - start) if times else None


def ratios(runs: Mapping[int, Figures], base: Mapping[int, Figures], key: str) -> list[float]:
    """Returns the ratio of a figure in each repeat in which both have it."""
    pairs = [(runs[repeat].get(key), base[repeat].get(key)) for repeat in sorted(runs.keys() & base.keys())]
    return [above / below for above, below in pairs if above is not None and below]


def spreads(runs: Mapping[int, Figures], columns: Sequence[Column]) -> dict[str, Spread | None]:
    """Returns the spread of each column over the repeats."""
    return {column.key: measures.spread([run.get(column.key) for run in runs.values()]) for column in columns}


def value_of(ratio: Ratio, runs: Mapping[str, Mapping[int, Figures]]) -> Spread | None:
    """Returns the spread of a claimed ratio over the repeats; None where it was not measured."""
    return measures.spread(ratios(runs.get(ratio.name, {}), runs.get(ratio.base, {}), ratio.key))


def table(columns: Sequence[Column], rows: Mapping[str, Mapping[str, Spread | None]]) -> str:
    """Returns a Markdown table; a column that no row has a figure for is left out."""
    shown = [column for column in columns if any(figures.get(column.key) for figures in rows.values())]
    lines = ["| | " + " | ".join(column.heading for column in shown) + " |", "|---" * (len(shown) + 1) + "|"]
    for name, figures in rows.items():
        lines.append(f"| {name} | " + " | ".join(report.cell(figures.get(one.key), one.form) for one in shown) + " |")
    return "\n".join(lines)


def claims_table(claims: Sequence[Ratio], runs: Mapping[str, Mapping[int, Figures]]) -> str:
    """Returns the claims beside what was measured as a Markdown table."""
    lines = ["| median of ratios | measured | wanted | holds |", "|---|---|---|---|"]
    for claim in claims:
        found = value_of(claim, runs)
        holds = found and (found.median >= claim.target if claim.sign == ">=" else found.median <= claim.target)
        verdict = "not measured" if found is None else "yes" if holds else "**no**"
        lines.append(f"| {claim.name} / {claim.base}, {claim.key.replace('_', ' ')} | {report.cell(found, '{:.3g}')} | "
                     f"{claim.sign} {claim.target:g} | {verdict} |")
    return "\n".join(lines)
