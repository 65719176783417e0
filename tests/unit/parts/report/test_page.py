"""The page of a report, from a journal and series."""

from __future__ import annotations

import html
import html.parser
import re

import pytest

from ps_train.errors import ConfigError
from ps_train.parts.report import page, writing
from ps_train.parts.report.flags import ReportConfig, parse_report
from ps_train.parts.report.history import Point, tell_story

RUN = {"model": "models.<b>", "dataset": "digits", "train_steps": 100, "command": ["--optimizer=adam", "--x=a b"],
       "ps": {"0": "h:1", "1": "h:2"}, "workers": {"0": ["worker:0", "h:3"], "1": ["worker:1", "h:4"]}}
PLACED = {"ps_bytes": {"0": 4_000_000, "1": 8_000_000}, "num_variables": 3,
          "largest": [{"name": "weights", "ps": 1, "bytes": 8_000_000}], "tables": [
              {"name": "users", "rows": None, "dim": 16}]}
EVENTS = [
    {"time": 1000.0, "event": "start", "run": RUN, "placed": PLACED},
    {"time": 1001.0, "event": "session", "source": "new parameters", "step": 0},
    {"time": 1002.0, "event": "worker", "name": "worker:1", "what": "joined", "step": 3},
    {"time": 1005.0, "event": "sample", "step": 30, "workers": {
        "worker:0": {"steps": 10, "staleness": 0.5}, "worker:1": {"steps": 20, "staleness": 1.5}}},
    {"time": 1007.0, "event": "lost", "reason": "Connection reset", "gone": ["ps:1"], "step": 40},
    {"time": 1008.0, "event": "session", "source": "/t/model.ckpt-30", "step": 40},
    {"time": 1009.0, "event": "of a later version", "step": 41},
    {"time": 1010.0, "event": "sample", "step": 60, "workers": {
        "worker:0": {"steps": 15, "staleness": 0.5}, "worker:1": {"steps": 45, "staleness": 1.5}}},
    {"time": 1012.0, "event": "end", "why": "the global step reached train_steps", "step": 100},
]


def test_the_story_has_every_event_in_words():
    """A sample is none, and what a later version writes is left out."""
    story = tell_story(EVENTS)
    assert [(event.who, event.text, event.is_fault) for event in story.happenings] == [
        ("chief", "starts: models.<b> on digits", False),
        ("chief", "training begins with new parameters", False),
        ("worker:1", "joined", False),
        ("chief", "lost its session: ps:1 did not answer; Connection reset", True),
        ("chief", "restores all ps from /t/model.ckpt-30; steps after it are taken again", True),
        ("chief", "ends: the global step reached train_steps", False)]
    assert (story.losses, story.ending) == ([(1007.0, 40)], "the global step reached train_steps")


def test_the_ending_is_that_of_the_last_process():
    """A chief that was killed said nothing."""
    assert tell_story([*EVENTS, EVENTS[0]]).ending == ""
    assert tell_story([]).run == {}


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
        self.words.append(data.strip())


def test_the_page_is_whole_and_needs_no_other_file(tmp_path):
    """Figures, shares and placement are in it; what a user wrote is no HTML."""
    series = {"loss": [Point(1000.0 + step / 10, step, 1.0 / (1 + step)) for step in range(100)]}
    evaluations = {"loss": [Point(1012.0, 100, 0.25)], "accuracy": [Point(1012.0, 100, 0.5)]}
    text = writing.make_report(str(tmp_path), tell_story(EVENTS), series, evaluations)
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
    text = writing.make_report(str(tmp_path), tell_story([]), {"loss": [Point(1.0, 1, 2.0)]}, {})
    assert "There is no journal" in text


def test_the_same_figures_give_the_same_chart():
    """So that two reports can be compared."""
    line = page.Line("x", [1, 2], [3, 4])
    assert page.lines_chart([line], x_label="a", y_label="b") == page.lines_chart([line], x_label="a", y_label="b")


@pytest.mark.parametrize("name", ["loss$x$", r"cost_$\foo$", "<i>&"])
def test_a_name_is_no_formula(name):
    """Such as that of a summary, or of a worker."""
    svg = page.lines_chart([page.Line(name, [1, 2], [3, 4])] * 2, x_label="a", y_label=name)
    assert svg.count(f"<!-- {html.escape(name, quote=False)} -->") == 3  # matplotlib draws letters as paths


def test_wrong_use_is_one_line(tmp_path):
    """What is missing, and what to give."""
    with pytest.raises(ConfigError, match="--train_dir: not given; give the folder"):
        parse_report([])
    with pytest.raises(ConfigError, match="there is no such folder"):
        writing.write_report(ReportConfig(train_dir=str(tmp_path / "nowhere")))
    with pytest.raises(ConfigError, match="no training has written a journal or event files there"):
        writing.write_report(ReportConfig(train_dir=str(tmp_path)))
