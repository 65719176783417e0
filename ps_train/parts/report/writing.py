"""Reads a train_dir and writes its report.

    events.*      --history--> values over steps --+
    journal.jsonl --history--> events, workers -----+--page--> report.html
"""

from __future__ import annotations

import datetime
import functools
import itertools
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from ps_train.errors import ConfigError
from ps_train.parts.report import page
from ps_train.parts.report.flags import ReportConfig
from ps_train.parts.report.history import Point, Story, read_series, tell_story, thinned
from ps_train.parts.report.page import Row, TimeAxis
from ps_train.runtime import logs
from ps_train.storage.event_files import LOSS_TAG
from ps_train.storage.journal import read_journal

_RATE_TAGS = ("global_step/sec", "examples/sec")
_STALENESS_TAG = "staleness"
_MOST_OTHERS = 12  # charts of the model's own summaries
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
        story = tell_story(read_journal(config.train_dir))
    except OSError as error:
        raise ConfigError(f"cannot read the journal in {config.train_dir}: {error.strerror}") from None
    training, evaluations = read_series(config.train_dir), read_series(os.path.join(config.train_dir, "eval"))
    if not (story.happenings or training or evaluations):
        raise ConfigError(f"{config.train_dir}: no training has written a journal or event files there; give the "
                          "--train_dir of a training")
    path = config.output or os.path.join(config.train_dir, "report.html")
    text = make_report(config.train_dir, story, training, evaluations)
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}; give another --output") from None
    logs.show(f"wrote {path}")


def make_report(
    train_dir: str, story: Story, training: Mapping[str, Sequence[Point]], evaluations: Mapping[str, Sequence[Point]]
) -> str:
    """Returns the page; see `read_series` for the values of training and of evaluations."""
    run = story.run
    title = f"{run['model']} on {run['dataset']}" if run else os.path.basename(os.path.abspath(train_dir))
    times = [point.time for point in itertools.chain(*training.values(), *evaluations.values())]
    times += [happening.time for happening in story.happenings] + [sample.time for sample in story.samples]
    begin, end = min(times), max(times)
    sections = [
        page.figures(_figures(story, training, evaluations, end - begin)),
        page.heading("Loss and metrics"), page.charts(_value_charts(story, training, evaluations)),
        page.heading("Speed and workers"), page.charts(_worker_charts(story, training, TimeAxis.over(begin, end))),
        *_worker_table(story), *_happening_table(story), *_placement(story), *_flags(story)]
    return page.page(title, f"{os.path.abspath(train_dir)}, from {_clock(begin)} to {_clock(end)}", sections)


def _figures(
    story: Story, training: Mapping[str, Sequence[Point]], evaluations: Mapping[str, Sequence[Point]], secs: float
) -> Iterator[tuple[str, str]]:
    steps = [point.step for points in (*training.values(), *evaluations.values()) for point in points]
    steps += [sample.step for sample in story.samples] + [event.step for event in story.happenings if event.step]
    limit = story.run.get("train_steps")
    yield f"{max(steps, default=0):,}", f"global steps of {limit:,}" if limit else "global steps"
    yield str(datetime.timedelta(seconds=round(secs))), "from first to last event"
    for tag, points in sorted(evaluations.items()):
        yield f"{points[-1].value:.4g}", f"{tag} in the last evaluation"
    if story.samples:
        yield f"{len(story.samples[-1].steps)}", "workers"
        yield f"{len(story.losses)}", "lost sessions"
    if story.run:
        yield story.ending or "not said", "how it ended"


def _value_charts(
    story: Story, training: Mapping[str, Sequence[Point]], evaluations: Mapping[str, Sequence[Point]]
) -> Iterator[tuple[str, str]]:
    others = [tag for tag in sorted(training) if tag not in (LOSS_TAG, _STALENESS_TAG, *_RATE_TAGS, *evaluations)]
    known = {LOSS_TAG: None, **dict.fromkeys(sorted(evaluations)), **dict.fromkeys(others[:_MOST_OTHERS])}
    for tag in known:
        lines = [page.by_step("training", training[tag])] if tag in training else []
        if tag in evaluations:
            lines.append(page.by_step("evaluation", evaluations[tag], has_marks=True))
        if lines:
            yield tag, page.lines_chart(lines, x_label="global step", y_label=tag,
                                        losses=[step for _, step in story.losses])


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


def _happening_table(story: Story) -> Iterator[str]:
    rows = story.happenings
    yield page.heading("What happened")
    if not rows:
        yield page.text("There is no journal in this folder; training with this version of ps_train writes one.")
        return
    if len(rows) > _MOST_HAPPENINGS:
        half = _MOST_HAPPENINGS // 2
        yield page.text(f"The first and the last {half} of {len(rows):,} events.")
        rows = [*rows[:half], *rows[-half:]]
    yield page.table(["time", "global step", "task", "event"], [
        Row([_clock(row.time), "" if row.step is None else f"{row.step:,}", row.who, row.text], row.is_fault)
        for row in rows], numbers=(1,))


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


def _clock(secs: float) -> str:
    return datetime.datetime.fromtimestamp(secs).strftime("%Y-%m-%d %H:%M:%S")
