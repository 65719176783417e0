"""Reads a train_dir and writes its report.

    events.*      --history--> values over steps --evaluated--> events --+
    journal.jsonl --history--> runs, with their events and workers ------+--page--> report.html
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
from ps_train.parts.report import evaluated, page
from ps_train.parts.report.flags import ReportConfig
from ps_train.parts.report.history import Point, Story, read_series, run_at, tell_stories, thinned
from ps_train.parts.report.page import Row, TimeAxis
from ps_train.parts.selection.flags import Target
from ps_train.runtime import logs
from ps_train.storage.event_files import LOSS_TAG
from ps_train.storage.journal import read_journal

_RATE_TAGS = ("global_step/sec", "examples/sec")
_STALENESS_TAG = "staleness"
_MOST_OTHERS = 12  # charts of the model's own summaries
_MOST_RUNS = 5  # the last ones have charts of their workers
_MOST_HAPPENINGS = 500  # the first and the last ones are shown


def write_report(config: ReportConfig) -> None:
    """Writes the report of a train_dir, and prints its path.

    Raises:
      ConfigError: the folder has nothing to report, the file cannot be written, or matplotlib is missing.
    """
    page.check_matplotlib()
    if not os.path.isdir(config.train_dir):
        raise ConfigError(f"{config.train_dir}: there is no such folder; give the --train_dir of a training")
    try:
        stories = tell_stories(read_journal(config.train_dir))
    except OSError as error:
        raise ConfigError(f"cannot read the journal in {config.train_dir}: {error.strerror}") from None
    run_of = functools.partial(run_at, stories)
    training, evaluations = (read_series(folder, run_of)
                             for folder in (config.train_dir, os.path.join(config.train_dir, "eval")))
    if not (any(story.happenings for story in stories) or training or evaluations):
        raise ConfigError(f"{config.train_dir}: no training has written a journal or event files there; give the "
                          "--train_dir of a training")
    path = config.output or os.path.join(config.train_dir, "report.html")
    text = make_report(config.train_dir, stories, training, evaluations, evaluated.read_target(config.train_dir))
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}; give another --output") from None
    logs.show(f"wrote {path}")


def make_report(
    train_dir: str, stories: Sequence[Story], training: Mapping[str, Sequence[Point]],
    evaluations: Mapping[str, Sequence[Point]], target: Target | None = None,
) -> str:
    """Returns the page.

    Args:
      stories: that of each run, at least one.
      training, evaluations: see `read_series`.
      target: the metric by which the best checkpoint was chosen.
    """
    run_of = functools.partial(run_at, stories)
    happenings = evaluated.happenings(evaluations, target)
    runs = [
        ReportedRun(number, dataclasses.replace(story, happenings=sorted(
            [*story.happenings, *(event for event in happenings if run_of(event.time) == number - 1)],
            key=lambda event: event.time)), *(
                {tag: mine for tag, points in values.items()
                 if (mine := [point for point in points if run_of(point.time) == number - 1])}
                for values in (training, evaluations)))
        for number, story in enumerate(stories, start=1)]
    last = runs[-1]
    run = last.story.run
    title = f"{run['model']} on {run['dataset']}" if run else os.path.basename(os.path.abspath(train_dir))
    sections = [
        page.figures(itertools.chain(_figures(last), evaluated.best_figure(evaluations, target))), *_run_table(runs),
        page.heading("Loss and metrics"), page.charts(_value_charts(runs)),
        *itertools.chain.from_iterable(_worker_section(one, len(runs)) for one in runs[-_MOST_RUNS:]),
        *_happening_table(runs), *_placement(last.story), *_flags(last.story)]
    begin, end = min(one.times()[0] for one in runs), max(one.times()[1] for one in runs)
    return page.page(title, f"{os.path.abspath(train_dir)}, from {_clock(begin)} to {_clock(end)}", sections)


@dataclasses.dataclass(frozen=True)
class ReportedRun:
    """What is known of one run.

    Attributes:
      number: from 1.
      story: what the journal tells, and its evaluations among the events.
      training, evaluations: tag -> its points.
    """

    number: int
    story: Story
    training: Mapping[str, Sequence[Point]]
    evaluations: Mapping[str, Sequence[Point]]

    def times(self) -> tuple[float, float]:
        """Returns its first and its last time."""
        times = [one.time for one in self._all()]
        return min(times, default=self.story.begin), max(times, default=self.story.begin)

    def last_step(self) -> int:
        """Returns the last global step."""
        return max((one.step for one in self._all() if one.step), default=0)

    def num_workers(self) -> int:
        """Returns how many workers took part."""
        return len({name for sample in self.story.samples for name in sample.steps})

    def _all(self) -> list[Any]:
        return [*itertools.chain(*self.training.values(), *self.evaluations.values()),
                *self.story.happenings, *self.story.samples]


def _figures(run: ReportedRun) -> Iterator[tuple[str, str]]:
    story, (begin, end), step = run.story, run.times(), run.last_step()
    limit = story.run.get("train_steps")
    yield f"{step:,}", f"global steps of {limit:,}" if limit and step <= limit else "global steps"
    yield _duration(end - begin), "from first to last event"
    for tag, points in sorted(run.evaluations.items()):
        yield f"{points[-1].value:.4g}", f"{tag} in the last evaluation"
    if story.samples:
        yield f"{run.num_workers()}", "worker" if run.num_workers() == 1 else "workers"
        yield f"{len(story.losses)}", "lost session" if len(story.losses) == 1 else "lost sessions"
    if story.run:
        yield story.ending or "not said", "how it ended"


def _run_table(runs: Sequence[ReportedRun]) -> Iterator[str]:
    if len(runs) == 1:
        return
    yield page.heading("Runs")
    yield page.text(f"This folder has {len(runs):,} runs. The figures above are those of the last one.")
    yield page.table(["run", "begin", "duration", "last global step", "workers", "lost sessions", "how it ended"], [
        Row([one.number, _clock(one.times()[0]), _duration(one.times()[1] - one.times()[0]), f"{one.last_step():,}",
             one.num_workers() or "", len(one.story.losses), one.story.ending or "not said"]) for one in runs],
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
                lines.append(page.by_step(f"evaluation{suffix}", run.evaluations[tag], has_marks=True))
        if lines:
            yield tag, page.lines_chart(lines, x_label="global step", y_label=tag,
                                          losses=[step for run in runs for _, step in run.story.losses])


def _worker_section(run: ReportedRun, num_runs: int) -> Iterator[str]:
    drawn = list(_worker_charts(run.story, run.training, TimeAxis.over(*run.times())))
    if drawn or num_runs == 1:
        yield page.heading("Speed and workers" + (f" of run {run.number}" if num_runs > 1 else ""))
        yield page.charts(drawn)
        yield from _worker_table(run.story)


def _worker_charts(
    story: Story, training: Mapping[str, Sequence[Point]], axis: TimeAxis
) -> Iterator[tuple[str, str]]:
    over_time = functools.partial(page.lines_chart, x_label=axis.unit, is_from_zero=True,
                                  losses=[axis.place(time) for time, _ in story.losses])
    samples = thinned(list(story.samples))
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


def _worker_table(story: Story) -> Iterator[str]:
    if not story.samples:
        return
    last = story.samples[-1]
    total = max(1, sum(last.steps.values()))
    places = {name: address for name, address in story.run.get("workers", {}).values()}
    yield page.table(["worker", "address", "steps", "share", "staleness"], [
        Row([name, places.get(name, ""), f"{steps:,}", f"{steps / total:.1%}", f"{last.staleness[name]:.2f}"])
        for name, steps in sorted(last.steps.items(), key=lambda item: (len(item[0]), item[0]))], numbers=(2, 3, 4))


def _happening_table(runs: Sequence[ReportedRun]) -> Iterator[str]:
    rows = [(run.number, event) for run in runs for event in run.story.happenings]
    yield page.heading("What happened")
    if not any(run.story.run for run in runs):
        yield page.text("There is no journal in this folder; training with this version of ps_train writes one.")
    if len(rows) > _MOST_HAPPENINGS:
        num_all, rows = len(rows), [row for row in rows if not row[1].is_routine]
        if len(rows) < num_all:
            yield page.text(f"Without {num_all - len(rows):,} checkpoints and evaluations that were not the best.")
    if len(rows) > _MOST_HAPPENINGS:
        half = _MOST_HAPPENINGS // 2
        yield page.text(f"The first and the last {half} of {len(rows):,} events.")
        rows = [*rows[:half], *rows[-half:]]
    first = 0 if len(runs) > 1 else 1
    if rows:
        yield page.table(["run", "time", "global step", "task", "event"][first:], [
            Row([number, _clock(row.time), "" if row.step is None else f"{row.step:,}", row.who, row.text][first:],
                row.is_fault) for number, row in rows], numbers=(0, 2) if len(runs) > 1 else (1,))


def _placement(story: Story) -> Iterator[str]:
    placed = story.placed
    if not placed:
        return
    yield page.heading("Placement")
    addresses = story.run.get("ps", {})
    yield page.charts([("Variables on each ps", page.bars_chart(
        {f"ps:{ps}": size / 1e6 for ps, size in placed["ps_bytes"].items()}, "MB, without tables"))])
    if placed["tables"]:
        yield page.table(["table", "rows", "dim"], [
            Row([one["name"], "grows" if one["rows"] is None else f"{one['rows']:,}", one["dim"]])
            for one in placed["tables"]], numbers=(1, 2))
    largest = placed["largest"]
    more = f"; the {len(largest)} largest are shown" if len(largest) < placed["num_variables"] else ""
    yield page.text(f"{placed['num_variables']:,} variables{more}.")
    yield page.table(["variable", "ps", "address", "bytes"], [
        Row([one["name"], f"ps:{one['ps']}", addresses.get(str(one["ps"]), ""), f"{one['bytes']:,}"])
        for one in largest], numbers=(3,))


def _flags(story: Story) -> Iterator[str]:
    if not story.run:
        return
    yield page.heading("Flags of the chief")
    yield page.text(shlex.join(["ps_train", *story.run["command"]]), is_code=True)
    yield page.table(["flag", "value"], [
        Row(re.sub("^--", "", flag).partition("=")[::2]) for flag in sorted(story.run["command"])])


def _duration(secs: float) -> str:
    return str(datetime.timedelta(seconds=round(secs)))


def _clock(secs: float) -> str:
    return datetime.datetime.fromtimestamp(secs).strftime("%Y-%m-%d %H:%M:%S")
