"""What the tools have in common: trials in turn, repeated, a folder for each run, a report of all runs that are there.

    python -m benchmarks.TOOL --data_dir=DIR --repeats=3 --work_dir=DIR

A run that is there is not run again, so a tool that was ended, or that was given some of the names with --only, goes on
when it is started once more with the same --work_dir. The order turns with each repeat, so that nobody is always first.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import pathlib
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Callable, NamedTuple

from benchmarks.harness import evaluation, machine, plot, report, running
from benchmarks.harness.report import Ratio, Result
from benchmarks.harness.trial import Peer, Setting


class Trial(NamedTuple):
    """A peer with a setting, under a name that no other trial of the tool has."""

    name: str
    peer: Peer
    setting: Setting


def parser(description: str, name: str) -> argparse.ArgumentParser:
    """Returns a parser of the flags that every tool has; `name` is the tool's, for the files that it writes."""
    found = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--data_dir", default="", help="folder of MNIST, or mnist.npz; by default drawn digits")
    found.add_argument("--repeats", type=int, default=3, help="runs of each; 0 reports what is there")
    found.add_argument("--budget_secs", type=float, default=math.inf,
                       help="start no run after so long; the same command goes on from there")
    found.add_argument("--only", default="", help="names or beginnings of names, separated by ';'; default all")
    found.add_argument("--work_dir", default=f"runs/{name}", help="where the runs are kept; not needed afterwards")
    found.add_argument("--out", default="", help="folder of the report: Markdown, JSON, SVG; default the work_dir")
    found.add_argument("--min_secs", type=float, default=6.0, help="of a run, at least")
    found.add_argument("--batches", type=int, default=4000, help="of a run, at least")
    found.add_argument("--max_secs", type=float, default=60.0, help="of a run, at most")
    return found


def setting(arguments: argparse.Namespace, **others: object) -> Setting:
    """Returns the Setting that the flags ask for, with what else the tool has chosen."""
    given = {name: getattr(arguments, name) for name in ("data_dir", "min_secs", "batches", "max_secs")}
    return Setting(**{**given, **others})


def main(
    arguments: argparse.Namespace, title: str, trials: Sequence[Trial], ratios: Sequence[Ratio], file_name: str
) -> int:
    """Runs what is wanted and missing, evaluates, reports; returns the exit code, 1 where a run failed."""
    work_dir = pathlib.Path(arguments.work_dir)
    skipped, failed = run_missing(trials, arguments)
    evaluation.complete([folder for trial in trials for folder in finished(work_dir, trial)])
    results = [report.summarise(trial.name, folders) for trial in trials if (folders := finished(work_dir, trial))]
    _write(pathlib.Path(arguments.out or work_dir), file_name, title, results, ratios, skipped)
    for name, reason in failed.items():
        print(f"{name} failed: {reason}", file=sys.stderr)
    return 1 if failed else 0


def wanted(trials: Sequence[Trial], only: str) -> list[Trial]:
    """Returns the trials whose name, or beginning of it up to the end of a word, is listed; all for "".

    Raises:
      SystemExit: a name fits none.
    """
    names = [name.strip() for name in only.split(";") if name.strip()]
    fitting = {name: [trial for trial in trials if trial.name == name]
               or [trial for trial in trials if trial.name.startswith(name)] for name in names}
    unknown = [name for name, found in fitting.items() if not found]
    if unknown:
        sys.exit(f"--only: nobody is called {unknown[0]!r}; known: {'; '.join(trial.name for trial in trials)}")
    return [trial for trial in trials if not names or any(trial in found for found in fitting.values())]


def run_missing(
    trials: Sequence[Trial], arguments: argparse.Namespace, run: Callable[[Peer, Setting, str], None] | None = None,
) -> tuple[dict[str, str], dict[str, str]]:
    """Runs what is wanted and missing, within the budget; the number of a repeat is its seed.

    Args:
      run: runs a peer once and leaves its folder; by default `running.run`.

    Returns:
      name -> reason of those that cannot run here, and of those that failed; these are not tried again.
    """
    end_secs = time.monotonic() + arguments.budget_secs
    work_dir = pathlib.Path(arguments.work_dir)
    skipped: dict[str, str] = {}
    failed: dict[str, str] = {}
    for trial, repeat in _in_turn(wanted(trials, arguments.only), arguments.repeats):
        folder = _folder(work_dir, trial, repeat)
        if (folder / "run.json").exists() or trial.name in skipped or trial.name in failed:
            continue
        if time.monotonic() > end_secs:
            print(f"not within --budget_secs: run {repeat + 1} of {trial.name}", flush=True)
            continue
        print(f"run {repeat + 1} of {arguments.repeats}: {trial.name}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)  # of a run that was ended
        try:
            _run(trial, repeat, folder, run or running.run)
        except running.SkippedError as error:
            skipped[trial.name] = str(error)
            print(f"  skipped: {error}", flush=True)
        except running.RunError as error:
            failed[trial.name] = str(error)
            print(f"  failed: {error}", flush=True)
    return skipped, failed


def _run(trial: Trial, repeat: int, folder: pathlib.Path, run: Callable[[Peer, Setting, str], None]) -> None:
    """Runs a trial; SIGTERM meanwhile leaves as an exception, so that the tasks are ended."""
    previous = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        run(trial.peer, dataclasses.replace(trial.setting, seed=repeat), str(folder))
    finally:
        signal.signal(signal.SIGTERM, previous)


def _in_turn(trials: Sequence[Trial], repeats: int) -> Iterator[tuple[Trial, int]]:
    """Yields each trial with the number of its repeat; every repeat begins with another trial."""
    for repeat in range(repeats):
        turn = repeat % max(1, len(trials))
        for trial in [*trials[turn:], *trials[:turn]]:
            yield trial, repeat


def _folder(work_dir: pathlib.Path, trial: Trial, repeat: int) -> pathlib.Path:
    return work_dir / f"{re.sub(r'[^A-Za-z0-9]+', '-', trial.name).strip('-')}.{repeat}"


def finished(work_dir: pathlib.Path, trial: Trial) -> list[pathlib.Path]:
    """Returns the folders of this trial's complete runs, in order."""
    pattern = f"{_folder(work_dir, trial, 0).stem}.*/run.json"
    return sorted(path.parent for path in work_dir.glob(pattern))


def _write(
    folder: pathlib.Path, file_name: str, title: str, results: Sequence[Result], ratios: Sequence[Ratio],
    skipped: Mapping[str, str],
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    about = machine.describe()
    text = report.as_markdown(title, results, ratios, skipped, about)
    (folder / f"{file_name}.md").write_text(text, encoding="utf-8")
    (folder / f"{file_name}.json").write_text(report.as_json(results, ratios, skipped, about), encoding="utf-8")
    if _has_accuracy(results):
        problem = plot.accuracy_over_time(results, str(folder / f"{file_name}.svg"), evaluation.TARGET_ACCURACY)
        if problem:
            print(f"no plot: {problem}", file=sys.stderr)
    print(f"\n{text}\nwritten to {folder}/{file_name}.md and .json")


def _has_accuracy(results: Iterable[Result]) -> bool:
    return any(point.accuracy is not None for result in results for point in result.curve)
