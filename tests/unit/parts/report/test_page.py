"""The page of a report, from a journal and series."""

from __future__ import annotations

import functools
import html
import html.parser
import json
import os
import re

import pytest

from ps_train.parts.control.history import run_at, run_histories, run_history
from ps_train.parts.report import curves, page, writing
from ps_train.parts.report.curves import Point
from ps_train.parts.report.verb import parse_report
from ps_train.parts.selection.flags import Target
from tests.errors import raises
from tests.journals import EVENTS, moved
from tests.unit.parts.report.test_curves import scalar, start, write


def drawn_lines(monkeypatch):
    """Returns the lists of lines of the charts that are drawn from now on, by the label of the y axis."""
    lines_of, draw = {}, page.lines_chart

    def note(lines, **values):
        lines_of.setdefault(values["y_label"], lines)
        return draw(lines, **values)

    monkeypatch.setattr(page, "lines_chart", note)
    return lines_of


def test_the_runs_of_a_folder_are_apart(tmp_path, monkeypatch):
    """Each has its lines, its step limit and its workers."""
    charts_of = drawn_lines(monkeypatch)
    later = [*moved(EVENTS[:2], 90000, train_steps=40), {
        "time": 91005.0, "event": "sample", "step": 130, "workers": {"worker:0": {"steps": 30, "staleness": 0.0}}}]
    series = {"loss": [Point(1005.0, 1, 2.0), Point(1008.0, 99, 1.0), Point(91004.0, 101, 1.5),
                       Point(91005.0, 130, 1.0)]}
    evaluations = {"accuracy": [Point(1011.0, 100, 0.7), Point(91006.0, 130, 0.6)]}
    text = writing.make_report(str(tmp_path), run_histories([*EVENTS, *later]), series, evaluations)
    assert [(line.name, list(line.xs)) for line in charts_of["loss"]] == [
        ("training, run 1", [1, 99]), ("training, run 2", [101, 130])]
    assert [line.name for line in charts_of["accuracy"]] == ["evaluation, run 1", "evaluation, run 2"]
    reader = Reader()
    reader.feed(text)
    assert reader.words[reader.words.index("global steps") - 1] == "130"  # beyond the 40 of its --train_steps
    assert reader.words[reader.words.index("worker") - 1] == "1"
    assert {"Speed and workers of run 1", "Speed and workers of run 2", "75.0%", "100.0%", "unknown",
            "This folder has 2 runs. The figures above are those of the last one."} <= set(reader.words)


@pytest.mark.parametrize("secs", [5, 3600])
def test_a_clock_that_was_set_back_disorders_nothing(tmp_path, monkeypatch, secs):
    """As by NTP. Issue: the end came before the start, a run of 12 s took an hour, and curves were those of others."""
    charts_of = drawn_lines(monkeypatch)
    write(tmp_path, 1, [moment(step, 1000.0 + step / 10 - secs * (step > 60)) for step in range(0, 101, 10)])
    write(tmp_path, 2, [moment(step, 1100.0 - secs + step / 10) for step in range(0, 101, 10)])
    histories = run_histories([*EVENTS[:5], *moved(EVENTS[5:], -secs), *moved(EVENTS, 100 - secs, command=["--x=b"])])
    series = curves.read_series(str(tmp_path), functools.partial(run_at, histories))
    text = writing.make_report(str(tmp_path), histories, series, {})
    assert [(line.name, list(line.xs)) for line in charts_of["loss"]] == [
        (f"training, run {number}", list(range(0, 101, 10))) for number in (1, 2)]
    [speed] = charts_of["global steps/s"]
    assert max(speed.ys) < 11
    assert list(speed.xs) == sorted(speed.xs) and speed.xs[0] >= 0
    reader = Reader()
    reader.feed(text)
    durations = [word for word in reader.words if re.fullmatch(r"\d+:\d\d:\d\d", word)]
    assert len(durations) == 3 and all("0:00:07" <= duration <= "0:00:13" for duration in durations)
    described = [word.partition(" ")[0] for word in reader.words if word.startswith(("starts:", "lost", "ends:"))]
    assert described[-6:] == ["starts:", "lost", "ends:"] * 2


@pytest.mark.parametrize("secs", [5, 900])
def test_files_that_were_begun_after_a_clock_was_set_back_are_in_order(tmp_path, monkeypatch, secs):
    """Those of evaluations, and of a chief that came back. Issue: they had the run begin before its start."""
    (tmp_path / "eval").mkdir()
    journal = [*EVENTS[:5], *moved(EVENTS[5:], -secs), *moved(EVENTS, 100 - secs, command=["--x=b"])]
    (tmp_path / "journal.jsonl").write_text("".join(json.dumps(event) + "\n" for event in journal))
    steps_of_file = {1000: range(0, 50, 10), 1008 - secs: range(30, 101, 10), 1100 - secs: range(0, 101, 10)}
    for begin, steps in steps_of_file.items():
        first = start(steps[0])
        first.wall_time = begin
        write(tmp_path, begin, [first, *(moment(step, begin + step / 100) for step in steps)])
    for step, begin in [(10, 1003), (100, 1011 - secs), (10, 1103 - secs), (100, 1111 - secs)]:
        write(tmp_path / "eval", begin, [moment(step, begin, "accuracy")])
    charts_of, reader = drawn_lines(monkeypatch), Reader()
    writing.write_report(str(tmp_path))
    reader.feed((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert {(label, line.name): list(line.xs) for label in ("loss", "accuracy") for line in charts_of[label]} == {
        **{("loss", f"training, run {number}"): list(range(0, 101, 10)) for number in (1, 2)},
        **{("accuracy", f"evaluation, run {number}"): [10, 100] for number in (1, 2)}}
    durations = [word for word in reader.words if re.fullmatch(r"\d+:\d\d:\d\d", word)]
    assert len(durations) == 3 and all("0:00:07" <= duration <= "0:00:13" for duration in durations)
    described = [word.partition(" ")[0] for word in reader.words if re.match("(starts:|accuracy|lost|ends:) ", word)]
    assert described[-10:] == ["starts:", "accuracy", "lost", "accuracy", "ends:"] * 2


def moment(step, secs, tag="loss"):
    """Returns an event with the value of a step, at a time."""
    event = scalar(step, 2.0, tag)
    event.wall_time = secs
    return event


def test_evaluations_checkpoints_and_the_best_step_are_events(tmp_path):
    """Among many events only the best evaluations are shown; the best of the folder is one of the figures."""
    saved = [{"time": 1003.0 + step / 1000, "event": "checkpoint", "path": f"/t/model.ckpt-{step}", "step": step}
             for step in range(600)]
    evaluations = {"accuracy": [Point(1004.0, 10, 0.5), Point(1006.0, 20, 0.9), Point(1011.0, 30, 0.8)],
                   "loss": [Point(1004.0, 10, 2.0), Point(1006.0, 20, 1.0), Point(1011.0, 30, float("nan"))]}

    def words(events, target):
        reader = Reader()
        reader.feed(writing.make_report(str(tmp_path), run_histories(events), {}, evaluations, target))
        return reader.words

    few = words(sorted([*EVENTS, *saved[:3]], key=lambda event: event["time"]), Target("accuracy", True))
    assert [word for word in few if word.startswith("accuracy 0")] == [
        "accuracy 0.5, loss 2; the best accuracy so far", "accuracy 0.9, loss 1; the best accuracy so far",
        "accuracy 0.8, loss nan"]
    assert "has saved /t/model.ckpt-2" in few
    assert few[few.index("best accuracy, at step 20") - 1] == "0.9"
    many = words(sorted([*EVENTS, *saved], key=lambda event: event["time"]), Target("accuracy", True))
    assert "Without 601 checkpoints and evaluations that were not the best." in many
    assert not any(word.startswith("has saved") for word in many)
    assert "accuracy 0.9, loss 1; the best accuracy so far" in many
    assert "accuracy 0.9, loss 1" in words(EVENTS, None)


def report_of(folder, events, monkeypatch):
    """Writes the report of evaluations; returns the words of the page and the lines of the charts."""
    (folder / "eval").mkdir(parents=True)
    (folder / "selection.json").write_text('{"keep_best": {"metric": "accuracy", "is_max": true}}')
    write(folder / "eval", 1, events)
    charts_of, reader = drawn_lines(monkeypatch), Reader()
    writing.write_report(str(folder))
    reader.feed((folder / "report.html").read_text(encoding="utf-8"))
    return reader.words, charts_of


def test_the_best_of_many_evaluations_is_found(tmp_path, monkeypatch):
    """Also where the chart leaves out its point."""
    words, charts_of = report_of(tmp_path, [
        scalar(100 * number, 0.99 if number == 1000 else number / 10000, "accuracy") for number in range(2001)],
        monkeypatch)
    assert words[words.index("best accuracy, at step 100,000") - 1] == "0.99"
    [line] = charts_of["accuracy"]
    assert 100_000 not in line.xs and len(line.xs) <= 1001


@pytest.mark.parametrize(("text", "target"), [
    (None, None), ("{", None), ("[]", None), ('{"last_step": 3}', None),
    ('{"early_stopping": {"metric": "loss", "is_max": false}}', Target("loss", False)),
    ('{"keep_best": {"metric": "accuracy", "is_max": true}, "early_stopping": {"metric": "loss", "is_max": false}}',
     Target("accuracy", True)),
])
def test_the_metric_of_the_best_is_that_of_the_selection(tmp_path, text, target):
    """None without one, or in a file of another version."""
    if text is not None:
        (tmp_path / "selection.json").write_text(text)
    assert curves.read_target(str(tmp_path)) == target


def test_the_page_has_a_dark_mode(tmp_path):
    """Charts have no background, and are inverted."""
    text = writing.make_report(str(tmp_path), [run_history(EVENTS)], {}, {})
    dark = text.partition("@media (prefers-color-scheme: dark) {")[2]
    assert "body { color: #ddd; background: #16181c; }" in dark and "filter: invert(1)" in dark
    svg = page.bars_chart({"ps:0": 1.0}, "MB")
    patch = svg.partition('<g id="patch_1">')[2].partition("</g>")[0]
    assert "fill: none" in patch  # the background of the figure


class Reader(html.parser.HTMLParser):
    """Checks that every element is closed, and collects the text and the addresses."""

    def __init__(self):
        super().__init__()
        self.open, self.words, self.addresses = [], [], []

    def handle_starttag(self, tag, attrs):
        """Opens an element, unless it has no end."""
        self.addresses += [value for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        """Closes the one that was opened last."""
        assert self.open.pop() == tag

    def handle_data(self, data):
        """Takes a text."""
        self.words += [data.strip()] if data.strip() else []


def test_the_page_is_whole_and_needs_no_other_file(tmp_path):
    """Figures, shares and placement are in it; text of the user is escaped."""
    series = {"loss": [Point(1000.0 + step / 10, step, 1.0 / (1 + step)) for step in range(100)]}
    evaluations = {"loss": [Point(1012.0, 100, 0.25)], "accuracy": [Point(1012.0, 100, 0.5)]}
    text = writing.make_report(str(tmp_path), [run_history(EVENTS)], series, evaluations)
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    assert all(address.startswith("data:image/svg+xml;base64,") for address in reader.addresses)
    assert len(reader.addresses) == 6  # loss, accuracy, speed, steps, staleness, placement
    assert not re.search(r"https?://", text)
    assert {"models.<b> on digits", "0.25", "45", "75.0%", "weights", "8,000,000", "h:2", "grows", "a b"} <= set(
        reader.words)


def test_a_folder_with_event_files_only_has_a_page_too(tmp_path):
    """A training of an earlier version."""
    text = writing.make_report(str(tmp_path), [run_history([])], {"loss": [Point(1.0, 1, 2.0)]}, {})
    assert "This folder has no journal" in text


def test_the_same_figures_give_the_same_chart():
    """So that two reports can be compared."""
    line = page.Line("x", [1, 2], [3, 4])
    assert page.lines_chart([line], x_label="a", y_label="b") == page.lines_chart([line], x_label="a", y_label="b")


@pytest.mark.parametrize("name", ["loss$x$", r"cost_$\foo$", "<i>&"])
def test_a_name_is_no_formula(name):
    """Such as that of a summary, or of a worker."""
    svg = page.lines_chart([page.Line(name, [1, 2], [3, 4])] * 2, x_label="a", y_label=name)
    assert svg.count(f"<!-- {html.escape(name, quote=False)} -->") == 3  # matplotlib draws letters as paths


def test_a_folder_whose_name_is_no_text_has_a_report(tmp_path, monkeypatch):
    """The name is in Latin-1: the page shows its letter as a code."""
    os.mkdir(os.path.join(os.fsencode(tmp_path), b"caf\xe9"))
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    words, charts_of = report_of(folder, [scalar(100, 0.9, "accuracy")], monkeypatch)
    assert any(r"caf\udce9, from" in word for word in words) and list(charts_of["accuracy"][0].xs) == [100]


def test_a_folder_without_a_training_is_refused(tmp_path):
    """And no file is written."""
    with raises("flag_missing"):
        parse_report([])
    with raises("train_dir_missing"):
        writing.write_report(str(tmp_path / "nowhere"))
    with raises("nothing_to_report") as caught:
        writing.write_report(str(tmp_path))
    assert "`ps_train keras` with TensorBoard" in str(caught.value)  # its curves are in folders of their own
    assert not list(tmp_path.iterdir())
