"""Reads a train_dir and writes its report.

    events.*      --curves--> values over steps, and evaluations as events --+
    journal.jsonl --control/history--> runs, with their events and workers --+--page--> report.html
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import itertools
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ps_train.errors import ConfigError
from ps_train.parts.control.history import (
    RunHistory,
    clock_loss,
    describe_published,
    read_published,
    run_at,
    run_histories,
)
from ps_train.parts.report import curves, page
from ps_train.parts.report.curves import Point, read_series, thinned
from ps_train.parts.report.page import Row, TimeAxis
from ps_train.parts.selection.flags import Target
from ps_train.runtime import logs
from ps_train.storage.event_files import LOSS_TAG
from ps_train.storage.journal import read_journal

_RATE_TAGS = ("global_step/sec", "examples/sec")
_STALENESS_TAG = "staleness"
_MOST_OTHERS = 12  # charts of the model's summaries
_MOST_RUNS = 5  # the last ones have charts of their workers
_MOST_EVENTS = 500  # the first and the last ones are shown


def write_report(train_dir: str, output: str = "") -> None:
    """Writes the report of a train_dir to `output`, or into the folder, and prints its path.

    Raises:
      ConfigError: the folder has nothing to report, the file cannot be written, or matplotlib is missing.
    """
    page.check_matplotlib()
    if not os.path.isdir(train_dir):
        raise ConfigError("train_dir_missing", f"{train_dir}: no such folder; give the --train_dir of a training")
    try:
        histories = run_histories(read_journal(train_dir))
    except OSError as error:
        raise ConfigError("journal_unreadable", f"cannot read the journal in {train_dir}: {error.strerror}") from None
    run_and_clock = functools.partial(run_at, histories), functools.partial(clock_loss, histories)
    training = read_series(train_dir, *run_and_clock)
    evaluations = read_series(os.path.join(train_dir, "eval"), *run_and_clock, max_points=None)  # any may be the best
    if not (any(history.events for history in histories) or training or evaluations):
        raise ConfigError("nothing_to_report", f"{train_dir}: no training has written a journal or event files there; "
                          "give the --train_dir of a training, and look at those of `ps_train keras` with TensorBoard")
    path = output or os.path.join(train_dir, "report.html")
    html = make_report(train_dir, histories, training, evaluations, curves.read_target(train_dir),
                       read_published(train_dir))
    try:
        with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:  # a folder's name may be no text
            file.write(html)
    except OSError as error:
        raise ConfigError("output_not_writable", f"cannot write {path}: {error.strerror}; give another --output"
                          ) from None
    logs.show(f"wrote {path}")


def make_report(
    train_dir: str, histories: Sequence[RunHistory], training: Mapping[str, Sequence[Point]],
    evaluations: Mapping[str, Sequence[Point]], target: Target | None = None,
    published: Mapping[str, Any] | None = None,
) -> str:
    """Returns the page.

    Args:
      histories: the history of each run, at least one.
      training, evaluations: see `read_series`.
      target: the metric by which the best checkpoint was chosen.
      published: see `read_published`.
    """
    run_of = functools.partial(run_at, histories)
    events = curves.evaluation_events(evaluations, target)

    def of_run(index: int, series: Mapping[str, Sequence[Point]]) -> dict[str, list[Point]]:
        points_of_run = {tag: [point for point in points if run_of(point.time) == index]
                         for tag, points in series.items()}
        return {tag: points for tag, points in points_of_run.items() if points}

    runs = []
    for index, history in enumerate(histories):
        all_events = [*history.events, *(event for event in events if run_of(event.time) == index)]
        history = dataclasses.replace(history, events=sorted(all_events, key=lambda event: event.time))
        runs.append(ReportedRun(index + 1, history, of_run(index, training), of_run(index, evaluations)))
    run = runs[-1].history.run
    title = f"{run['model']} on {run['dataset']}" if run else os.path.basename(os.path.abspath(train_dir))
    sections = [
        page.figures(itertools.chain(_figures(runs[-1]), curves.best_figure(evaluations, target))), *_run_table(runs),
        page.heading("Loss and metrics"), page.charts(_value_charts(runs)),
        *itertools.chain.from_iterable(_worker_section(run, len(runs)) for run in runs[-_MOST_RUNS:]),
        *_published(published), *_event_table(runs), *_placement(runs[-1].history), *_flags(runs[-1].history)]
    begin, end = min(run.times()[0] for run in runs), max(run.times()[1] for run in runs)
    return page.page(title, f"{os.path.abspath(train_dir)}, from {_clock(begin)} to {_clock(end)}", sections)


@dataclasses.dataclass(frozen=True)
class ReportedRun:
    """The history and the curves of one run.

    Attributes:
      number: from 1.
      history: its history by the journal, with its evaluations among the events.
      training, evaluations: tag -> its points.
    """

    number: int
    history: RunHistory
    training: Mapping[str, Sequence[Point]]
    evaluations: Mapping[str, Sequence[Point]]

    def times(self) -> tuple[float, float]:
        """Returns its first and its last time."""
        times = [event.time for event in self._all()]
        return min(times, default=self.history.begin), max(times, default=self.history.begin)

    def last_step(self) -> int:
        """Returns the last global step."""
        return max((event.step for event in self._all() if event.step), default=0)

    def num_workers(self) -> int:
        """Returns the number of workers in the samples."""
        return len({name for sample in self.history.samples for name in sample.steps})

    def _all(self) -> list[Any]:
        return [*itertools.chain(*self.training.values(), *self.evaluations.values()),
                *self.history.events, *self.history.samples]


def _figures(run: ReportedRun) -> Iterator[tuple[str, str]]:
    history, (begin, end), step = run.history, run.times(), run.last_step()
    limit = history.run.get("train_steps")
    yield f"{step:,}", f"global steps of {limit:,}" if limit and step <= limit else "global steps"
    yield _duration(end - begin), "from first to last event"
    for tag, points in sorted(run.evaluations.items()):
        yield f"{points[-1].value:.4g}", f"{tag} in the last evaluation"
    if history.samples:
        yield f"{run.num_workers()}", "worker" if run.num_workers() == 1 else "workers"
        yield f"{len(history.losses)}", "lost session" if len(history.losses) == 1 else "lost sessions"
    if history.run:
        yield history.ending or "unknown", "how it ended"


def _run_table(runs: Sequence[ReportedRun]) -> Iterator[str]:
    if len(runs) == 1:
        return
    yield page.heading("Runs")
    yield page.paragraph(f"This folder has {len(runs):,} runs. The figures above are those of the last one.")
    yield page.table(["run", "begin", "duration", "last global step", "workers", "lost sessions", "how it ended"], [
        Row([run.number, _clock(run.times()[0]), _duration(run.times()[1] - run.times()[0]), f"{run.last_step():,}",
             run.num_workers() or "", len(run.history.losses), run.history.ending or "unknown"]) for run in runs],
        numbers=(0, 3, 4, 5))


def _value_charts(runs: Sequence[ReportedRun]) -> Iterator[tuple[str, str]]:
    evaluations = sorted({tag for run in runs for tag in run.evaluations})
    others = sorted({tag for run in runs for tag in run.training} - {
        LOSS_TAG, _STALENESS_TAG, *_RATE_TAGS, *evaluations})
    for tag in dict.fromkeys([LOSS_TAG, *evaluations, *others[:_MOST_OTHERS]]):
        lines = []
        for run in runs:
            suffix = f", run {run.number}" if len(runs) > 1 else ""
            if tag in run.training:
                lines.append(page.by_step(f"training{suffix}", run.training[tag]))
            if tag in run.evaluations:
                lines.append(page.by_step(f"evaluation{suffix}", thinned(list(run.evaluations[tag])), has_marks=True))
        if lines:
            yield tag, page.lines_chart(lines, x_label="global step", y_label=tag,
                                          losses=[step for run in runs for _, step in run.history.losses])


def _worker_section(run: ReportedRun, num_runs: int) -> Iterator[str]:
    drawn = list(_worker_charts(run.history, run.training, TimeAxis.over(*run.times())))
    if drawn or num_runs == 1:
        yield page.heading("Speed and workers" + (f" of run {run.number}" if num_runs > 1 else ""))
        yield page.charts(drawn)
        yield from _worker_table(run.history)


def _worker_charts(
    history: RunHistory, training: Mapping[str, Sequence[Point]], axis: TimeAxis
) -> Iterator[tuple[str, str]]:
    over_time = functools.partial(page.lines_chart, x_label=axis.unit, is_from_zero=True,
                                  losses=[axis.place(time) for time, _ in history.losses])
    samples = thinned(list(history.samples))
    counted = max(samples, training.get(LOSS_TAG, ()), key=len)
    if len(counted) > 2:
        yield "Speed", over_time([page.rates(counted, axis)], y_label="global steps/s")
    if samples:
        yield "Steps of each worker", over_time(
            page.by_worker(samples, axis, lambda sample: sample.steps), y_label="steps")
        yield "Staleness of each worker's updates, mean so far", over_time(
            page.by_worker(samples, axis, lambda sample: sample.staleness), y_label="global steps")
    if points := training.get(_STALENESS_TAG):
        yield "Staleness of the chief's updates, mean since the point before", page.lines_chart(
            [page.by_step("staleness", points)], x_label="global step", y_label="global steps", is_from_zero=True)


def _worker_table(history: RunHistory) -> Iterator[str]:
    if not history.samples:
        return
    last = history.samples[-1]
    total = max(1, sum(last.steps.values()))
    places = {name: address for name, address in history.run.get("workers", {}).values()}
    yield page.table(["worker", "address", "steps", "share", "staleness"], [
        Row([name, places.get(name, ""), f"{steps:,}", f"{steps / total:.1%}", f"{last.staleness[name]:.2f}"])
        for name, steps in sorted(last.steps.items(), key=lambda item: (len(item[0]), item[0]))], numbers=(2, 3, 4))


def _published(published: Mapping[str, Any] | None) -> Iterator[str]:
    if published:
        yield page.heading("Fresh rows")
        for line in describe_published(published):
            yield page.paragraph(line)


def _event_table(runs: Sequence[ReportedRun]) -> Iterator[str]:
    rows = [(run.number, event) for run in runs for event in run.history.events]
    yield page.heading("Events")
    if not any(run.history.run for run in runs):
        yield page.paragraph("This folder has no journal; training with this version of ps_train writes one.")
    if len(rows) > _MOST_EVENTS:
        num_all, rows = len(rows), [row for row in rows if not row[1].is_routine]
        if len(rows) < num_all:
            yield page.paragraph(f"Without {num_all - len(rows):,} checkpoints and evaluations that were not the best.")
    if len(rows) > _MOST_EVENTS:
        half = _MOST_EVENTS // 2
        yield page.paragraph(f"The first and the last {half} of {len(rows):,} events.")
        rows = [*rows[:half], *rows[-half:]]
    first = 0 if len(runs) > 1 else 1
    if rows:
        yield page.table(["run", "time", "global step", "task", "event"][first:], [
            Row([number, _clock(row.time), "" if row.step is None else f"{row.step:,}", row.task,
                 row.description][first:], row.is_fault)
            for number, row in rows], numbers=(0, 2) if len(runs) > 1 else (1,))


def _placement(history: RunHistory) -> Iterator[str]:
    placed = history.placed
    if not placed:
        return
    yield page.heading("Placement")
    addresses = history.run.get("ps", {})
    yield page.charts([("Variables on each ps", page.bars_chart(
        {f"ps:{ps}": size / 1e6 for ps, size in placed["ps_bytes"].items()}, "MB, without tables"))])
    if placed["tables"]:
        yield page.table(["table", "rows", "dim"], [
            Row([record["name"], "grows" if record["rows"] is None else f"{record['rows']:,}", record["dim"]])
            for record in placed["tables"]], numbers=(1, 2))
    largest = placed["largest"]
    more = f"; the {len(largest)} largest are shown" if len(largest) < placed["num_variables"] else ""
    yield page.paragraph(f"{placed['num_variables']:,} variables{more}.")
    yield page.table(["variable", "ps", "address", "bytes"], [
        Row([record["name"], f"ps:{record['ps']}", addresses.get(str(record["ps"]), ""), f"{record['bytes']:,}"])
        for record in largest], numbers=(3,))


def _flags(history: RunHistory) -> Iterator[str]:
    if not history.run:
        return
    yield page.heading("Flags of the chief")
    yield page.paragraph(shlex.join(["ps_train", *history.run["command"]]), is_code=True)
    yield page.table(["flag", "value"], [
        Row(re.sub("^--", "", flag).partition("=")[::2]) for flag in sorted(history.run["command"])])


def _duration(secs: float) -> str:
    return str(datetime.timedelta(seconds=round(secs)))


def _clock(secs: float) -> str:
    return datetime.datetime.fromtimestamp(secs).strftime("%Y-%m-%d %H:%M:%S")
