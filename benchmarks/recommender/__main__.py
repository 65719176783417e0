"""A recommender model, side by side: ps_train in its modes, and its peers.

DeepFM on 26 fields and 13 numbers, 512 examples in a mini-batch of each worker, vectors of 16 floats, Adagrad, 1 ps
and 2 workers; ids follow a Zipf law. Every peer trains on the same mini-batches from memory. Then the same step on
tables of growing size: rows of 8 floats, uniform ids, 1 worker.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import sys
from collections.abc import Mapping, Sequence

from benchmarks.harness import machine, tool
from benchmarks.harness.measures import Spread, spread
from benchmarks.harness.report import Column
from benchmarks.harness.tool import Trial
from benchmarks.harness.wires import Link
from benchmarks.recommender import examples, figures, trials
from benchmarks.recommender.figures import Figures
from benchmarks.recommender.work import Work

_NUM_EXAMPLES = 400 * 512
COLUMNS = (
    Column("examples_per_sec", "examples/s", "{:,.0f}"),
    Column("of_classic_26", "times classic, 26 tables", "{:.2f}"),
    Column("of_classic_1", "times classic, 1 table", "{:.2f}"),
    Column("ps_cpu_ms", "CPU ms per batch, ps", "{:.2f}"),
    Column("worker_cpu_ms", "CPU ms per batch, others", "{:.2f}"),
    Column("cpu_of_classic_26", "CPU, times classic, 26 tables", "{:.2f}"),
    Column("bytes_per_step", "bytes per batch", "{:,.0f}"),
    Column("received_tensors", "RecvTensors per batch", "{:.1f}"),
    Column("ps_memory_mb", "peak memory of the ps, MB", "{:,.0f}"),
    Column("others_cores", "cores taken by others", "{:.2f}"),
)
SWEEP_COLUMNS = (
    Column("batches_per_sec", "batches/s", "{:.1f}"),
    Column("cpu_ms", "CPU ms per batch", "{:.2f}"),
    Column("ps_cpu_ms", "of it the ps", "{:.2f}"),
    Column("cpu_of_base", "CPU, times that at 10^6 rows", "{:.2f}"),
    Column("ps_memory_mb", "peak memory of the ps, MB", "{:,.0f}"),
    Column("bytes_per_row", "bytes per row", "{:.0f}"),
    Column("others_cores", "cores taken by others", "{:.2f}"),
)
Rows = Mapping[str, Mapping[str, "Spread | None"]]


def main() -> int:
    """Runs the tool."""
    arguments = _parser().parse_args()
    work_dir = pathlib.Path(arguments.work_dir)
    data_dir = (work_dir / f"examples-{arguments.num_ids}").resolve()
    examples.write(data_dir, _NUM_EXAMPLES, arguments.num_ids)
    base = tool.setting(argparse.Namespace(**{**vars(arguments), "data_dir": str(data_dir)}), has_accuracy=False,
                        num_ps=arguments.num_ps, num_workers=arguments.num_workers,
                        link=Link(delay_secs=arguments.delay_ms / 1000) if arguments.delay_ms else None)
    compared = trials.compared(base, arguments.num_ids, arguments.layers)
    swept, left_out = trials.swept(base, [int(float(text)) for text in arguments.rows.split(",") if text])
    wanted = tool.wanted([*compared, *(trial for group in swept.values() for trial in group)], arguments.only)
    skipped, failed = tool.run_missing(wanted, arguments)
    counted = trials.counting([one for one in wanted if one in compared and one.name not in {**skipped, **failed}])
    once = argparse.Namespace(**{**vars(arguments), "repeats": min(1, arguments.repeats), "only": ""})
    failed.update(tool.run_missing(counted, once)[1])
    _write(arguments, compared, swept, {**skipped, **left_out})
    for name, reason in failed.items():
        print(f"{name} failed: {reason}", file=sys.stderr)
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = tool.parser(__doc__, "recommender")
    parser.set_defaults(batches=200, min_secs=8.0)
    parser.add_argument("--num_ids", type=int, default=10_000_000, help="ids of all fields together, in DeepFM")
    parser.add_argument("--num_ps", type=int, default=1)
    parser.add_argument("--num_workers", type=int, default=2)
    parser.add_argument("--layers", default="256x128", help="units of DeepFM's hidden layers")
    parser.add_argument("--delay_ms", type=float, default=0.0, help="delay between each worker and the ps, in each "
                        "direction, by a proxy")
    parser.add_argument("--rows", default="1e5,1e6,1e7,5e7", help="sizes of the table in the second part; '' for none")
    return parser


def _write(
    arguments: argparse.Namespace, compared: Sequence[Trial], swept: Mapping[str, Sequence[Trial]],
    skipped: Mapping[str, str],
) -> None:
    work_dir, out = pathlib.Path(arguments.work_dir), pathlib.Path(arguments.out or arguments.work_dir)
    runs = {trial.name: figures.of_trial(work_dir, trial)
            for trial in [*compared, *(trial for group in swept.values() for trial in group)]}
    first, second = compared_rows(runs, work_dir, compared), swept_rows(runs, swept)
    about = machine.describe()
    text = "\n\n".join([
        "# A recommender model", ", ".join(f"{key} {value}" for key, value in about.items()) + ".",
        figures.table(COLUMNS, first), figures.claims_table(trials.CLAIMS, runs), figures.table(SWEEP_COLUMNS, second),
        *["\n".join(f"- {name}: left out, {reason}" for name, reason in skipped.items())]]) + "\n"
    out.mkdir(parents=True, exist_ok=True)
    (out / "recommender.md").write_text(text, encoding="utf-8")
    (out / "recommender.json").write_text(json.dumps({
        "machine": about, "skipped": dict(skipped), "runs": runs,
        "results": [{"name": name, **{key: value and value._asdict() for key, value in row.items()}}
                    for name, row in {**first, **second}.items()]}, indent=1), encoding="utf-8")
    print(f"\n{text}\nwritten to {out}/recommender.md and .json")


def compared_rows(runs: Mapping[str, Mapping[int, Figures]], work_dir: pathlib.Path, compared: Sequence[Trial]) -> Rows:
    """Returns name -> key of a column -> its spread, of the peers that have run."""
    rows = {}
    for trial, counted in zip(compared, trials.counting(compared)):
        own = runs[trial.name]
        if not own:
            continue
        row = figures.spreads(own, COLUMNS)
        for key, base in (("of_classic_26", trials.CLASSIC_26), ("of_classic_1", trials.CLASSIC_1)):
            row[key] = spread(figures.ratios(own, runs[base], "examples_per_sec"))
        row["cpu_of_classic_26"] = spread(figures.ratios(own, runs[trials.CLASSIC_26], "cpu_ms"))
        row["received_tensors"] = spread(
            [figures.received_tensors(folder) for folder in tool.finished(work_dir, counted)])
        rows[trial.name] = row
    return rows


def swept_rows(runs: Mapping[str, Mapping[int, Figures]], swept: Mapping[str, Sequence[Trial]]) -> Rows:
    """Returns the same of the trials with growing tables, each group beside its table of about 10^6 rows.

    A smaller table may fit into the cache of the processor, and then is no measure for larger ones.
    """
    rows = {}
    for group in swept.values():
        done = [trial for trial in group if runs[trial.name]]
        if not done:
            continue
        base = runs[min(done, key=lambda trial: abs(math.log10(Work.parse(trial.setting.params).num_ids) - 6)).name]
        fewest = runs[done[0].name]
        for trial in done:
            own = runs[trial.name]
            row = figures.spreads(own, SWEEP_COLUMNS)
            row["cpu_of_base"] = spread(figures.ratios(own, base, "cpu_ms"))
            row["bytes_per_row"] = spread(
                [_bytes_per_row(own[repeat], fewest[repeat]) for repeat in own.keys() & fewest.keys()])
            rows[trial.name] = row
    return rows


def _bytes_per_row(figures_of_run: Figures, of_fewest: Figures) -> float | None:
    more_rows = figures_of_run["num_rows"] - of_fewest["num_rows"]
    more_mb = (figures_of_run["ps_memory_mb"] or 0) - (of_fewest["ps_memory_mb"] or 0)
    return more_mb * 2**20 / more_rows if more_rows else None


if __name__ == "__main__":
    sys.exit(main())
