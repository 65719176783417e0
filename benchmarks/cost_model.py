"""What a mini-batch costs with other numbers of workers and ps: a model fitted to runs of `benchmarks.scaling`.

    python -m benchmarks.scaling --workers=2,4,8 --ps=1,2 --only=ps_train --work_dir=runs/scaling
    python -m benchmarks.cost_model --work_dir=runs/scaling --fit=2x1,4x2,8x1 [--predict=100x8,1000x64]

A run is named WORKERSxPS. The measure is CPU time, as wall time says nothing where tasks share few cores:

    ms of all workers for a mini-batch = a + b * ps          it computes, and speaks with each ps
    ms of all ps for a mini-batch      = c + d * ps          one ps applies, the others take part
    ms of ps 0 in a second             = beat * workers      heartbeats, by `benchmarks.board_load`

The four numbers are fitted by least squares of the relative errors to the runs in --fit; the other runs show how well
they predict. A prediction assumes a core for each worker, --ps_cores for each ps, and a network without limits. It is
the smaller one of two rates: what the workers can compute, and what ps 0 can do beside the heartbeats.
"""

from __future__ import annotations

import argparse
import json
import pathlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.harness import report

# CPU ms of ps 0 for a heartbeat, one a second from each worker: 257 ms a second with 128 workers, 33 with 1.
_BEAT_MS = 2.0


class Run(NamedTuple):
    """What was measured with so many workers and ps: CPU ms for a mini-batch, and mini-batches a second."""

    num_workers: int
    num_ps: int
    workers_ms: float
    ps_ms: float
    batches_per_sec: float

    @property
    def size(self) -> tuple[int, int]:
        """How many workers and ps."""
        return self.num_workers, self.num_ps


class Costs(NamedTuple):
    """The fitted numbers, in CPU ms: for a mini-batch, and for each ps besides."""

    worker: float
    worker_for_each_ps: float
    ps: float
    ps_for_each_ps: float

    def workers_ms(self, num_ps: int) -> float:
        """Returns the CPU ms of a worker for a mini-batch."""
        return self.worker + self.worker_for_each_ps * num_ps

    def ps_ms(self, num_ps: int) -> float:
        """Returns the CPU ms of all ps for a mini-batch, without heartbeats."""
        return self.ps + self.ps_for_each_ps * num_ps


class Rates(NamedTuple):
    """Mini-batches a second with a core for each worker: what the workers, and what the busiest ps allow."""

    of_workers: float
    of_ps: float
    board_cores: float

    @property
    def bound(self) -> str:
        """What comes to its end first."""
        return "workers" if self.of_workers <= self.of_ps else "ps" if self.of_ps > 0 else "heartbeats"


def fit(runs: Sequence[Run]) -> Costs:
    """Returns the costs that predict these runs best.

    Raises:
      ValueError: they all have the same number of ps, so what a ps costs cannot be told from the rest, or the ps of
        one took less CPU than the heartbeats alone.
    """
    if len({run.num_ps for run in runs}) < 2:
        raise ValueError("--fit: give runs with at least two numbers of ps")
    for run in runs:
        if run.ps_ms <= _beats_ms(run):
            raise ValueError(
                f"--fit: leave out {run.num_workers}x{run.num_ps}: its ps took {run.ps_ms:.2f} CPU ms for a batch, "
                f"and heartbeats alone take {_beats_ms(run):.2f}; measure it for longer")
    return Costs(*_line(runs, [run.workers_ms for run in runs]),
                 *_line(runs, [run.ps_ms - _beats_ms(run) for run in runs]))


def _line(runs: Sequence[Run], values: Sequence[float]) -> tuple[float, float]:
    """Returns the constant and the slope over the number of ps; each run weighs as much, small or large."""
    scaled = np.array([[1.0, run.num_ps] for run in runs]) / np.array(values)[:, None]
    constant, slope = np.linalg.lstsq(scaled, np.ones(len(runs)), rcond=None)[0]
    return float(constant), float(slope)


def _beats_ms(run: Run) -> float:
    """Returns the share of the heartbeats in the CPU ms of the ps for a mini-batch."""
    return _BEAT_MS * run.num_workers / run.batches_per_sec


def rates(costs: Costs, num_workers: int, num_ps: int, ps_cores: float) -> Rates:
    """Returns the rates with so many tasks; the parameters are spread evenly over the ps."""
    board_cores = _BEAT_MS * num_workers / 1000
    free_ms = 1000 * max(0.0, ps_cores - board_cores)  # of ps 0, which has the heartbeats, too
    return Rates(1000 * num_workers / costs.workers_ms(num_ps), free_ms * num_ps / costs.ps_ms(num_ps), board_cores)


def read(work_dir: pathlib.Path, peer: str) -> list[Run]:
    """Returns the runs of a peer below a folder of `benchmarks.scaling`, with the medians where there are several."""
    found: dict[tuple[int, int], list[Run]] = {}
    for path in sorted(work_dir.glob("*/run.json")):
        run = json.loads(path.read_text(encoding="utf-8"))
        if run["name"] != peer:
            continue
        figures, setting = report.run_figures(path.parent), run["setting"]
        size = setting["num_workers"], setting["num_ps"]
        found.setdefault(size, []).append(Run(
            *size, figures["worker_cpu_ms"], figures["ps_cpu_ms"], figures["batches_per_sec"]))
    return [Run(*size, *np.median([run[2:] for run in runs], axis=0)) for size, runs in sorted(found.items())]


def table(runs: Iterable[Run], costs: Costs, fitted: set[tuple[int, int]]) -> str:
    """Returns each run beside what the model says of it, as Markdown."""
    rows = ["| workers, ps | workers: CPU ms a batch | predicted | ps: CPU ms a batch | predicted | fitted to |",
            "|---|---|---|---|---|---|"]
    for run in runs:
        workers_ms, ps_ms = costs.workers_ms(run.num_ps), costs.ps_ms(run.num_ps) + _beats_ms(run)
        rows.append(f"| {run.num_workers}, {run.num_ps} | {run.workers_ms:.2f} "
                    f"| {workers_ms:.2f} ({workers_ms / run.workers_ms - 1:+.0%}) | {run.ps_ms:.2f} "
                    f"| {ps_ms:.2f} ({ps_ms / run.ps_ms - 1:+.0%}) | {'yes' if run.size in fitted else 'no'} |")
    return "\n".join(rows)


def prediction(costs: Costs, sizes: Iterable[tuple[int, int]], ps_cores: float) -> str:
    """Returns what the model says of other sizes, as Markdown."""
    rows = ["| workers, ps | workers alone: batches/s | the ps: batches/s | heartbeats: cores of ps 0 | bound by |",
            "|---|---|---|---|---|"]
    for num_workers, num_ps in sizes:
        found = rates(costs, num_workers, num_ps, ps_cores)
        rows.append(f"| {num_workers}, {num_ps} | {found.of_workers:,.0f} | {found.of_ps:,.0f} "
                    f"| {found.board_cores:.2f} | {found.bound} |")
    return "\n".join(rows)


def _sizes(text: str) -> list[tuple[int, int]]:
    """Returns the numbers of "2x1,4x2"."""
    pairs = [part.split("x") for part in text.split(",") if part]
    return [(int(num_workers), int(num_ps)) for num_workers, num_ps in pairs]


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cost_model", description=__doc__.partition("\n")[0])
    parser.add_argument("--work_dir", type=pathlib.Path, default=pathlib.Path("runs/scaling"))
    parser.add_argument("--peer", default="ps_train", help="whose runs: a name of benchmarks.scaling")
    parser.add_argument("--fit", type=_sizes, required=True, help="WORKERSxPS, separated by ','")
    parser.add_argument("--predict", type=_sizes, default=_sizes("100x8,1000x64"))
    parser.add_argument("--ps_cores", type=float, default=4.0, help="cores of a ps in the prediction")
    options = parser.parse_args()
    runs, fitted = read(options.work_dir, options.peer), set(options.fit)
    if missing := fitted - {run.size for run in runs}:
        parser.error(f"--fit: {options.work_dir} has no run of {options.peer} with "
                     + ", ".join(f"{num_workers}x{num_ps}" for num_workers, num_ps in sorted(missing)))
    try:
        costs = fit([run for run in runs if run.size in fitted])
    except ValueError as error:
        parser.error(str(error))
    print(f"A mini-batch: workers {costs.worker:.2f} + {costs.worker_for_each_ps:.2f} ms for each ps; "
          f"ps {costs.ps:.2f} + {costs.ps_for_each_ps:.2f} ms for each ps.\n")
    print(table(runs, costs, fitted), prediction(costs, options.predict, options.ps_cores), sep="\n\n")


if __name__ == "__main__":
    main()
