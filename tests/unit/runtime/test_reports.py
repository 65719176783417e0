"""The progress line: what a worker prints is what a launcher reads."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_train.runtime import reports
from ps_train.runtime.reports import Progress
from ps_train.training import outcome

_STEPS = st.integers(min_value=0, max_value=2**63 - 1)
_LOSSES = st.floats(width=32)  # as TensorFlow computes it
_RATES = st.floats(min_value=0, allow_nan=False)


def test_the_line_reads_like_this():
    """The line as users see it."""
    assert Progress(100, 20000, 0.123456, 45.67, 1234.5).format() == (
        "step 100 of 20000  loss 0.1235  45.7 steps/s  1234 examples/s")


@pytest.mark.parametrize("line", [
    "step 100 of 200  loss 0.5  45.7 steps/s  1234 examples/s",
    "12:34:56 step 100 of 200  loss 0.5  45.7 steps/s  1234 examples/s\n",
    "worker:1 | step 100 of 200  loss 0.5  45.7 steps/s  1234 examples/s, and more",
])
def test_finds_the_progress_in_a_line_with_other_words(line):
    """Time stamps and prefixes around the progress do not matter."""
    assert reports.parse(line) == Progress(100, 200, 0.5, 45.7, 1234.0)


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf, -2.5, 1e-30, 1e30, 0.0])
def test_reads_every_loss_back(loss):
    """A loss that is not finite, negative, tiny or huge is read back as it was."""
    found = reports.parse(Progress(1, 2, loss, 1.0, 1.0).format())
    assert found.loss == loss or (math.isnan(loss) and math.isnan(found.loss))


@pytest.mark.parametrize("line", [
    "",
    "step 1 of 2",
    "step x of 2  loss 0.5  1.0 steps/s  1 examples/s",
    "step 1 of 2  loss 1.2.3  1.0 steps/s  1 examples/s",
    "step 1 of 2  loss .  1.0 steps/s  1 examples/s",
    "step -1 of 2  loss 0.5  1.0 steps/s  1 examples/s",
    "training ended at step 200: the global step reached train_steps",
])
def test_finds_none_in_other_lines(line):
    """A line that is not a progress line gives None."""
    assert reports.parse(line) is None


@given(_STEPS, _STEPS, _LOSSES, _RATES, _RATES)
def test_a_line_reads_back_as_what_it_says(step, train_steps, loss, steps_per_sec, examples_per_sec):
    """Steps come back exactly, the other numbers to the digits that the line has."""
    line = Progress(step, train_steps, loss, steps_per_sec, examples_per_sec).format()
    found = reports.parse(line)
    assert (found.step, found.train_steps) == (step, train_steps)
    assert found.format() == line
    assert found.steps_per_sec == pytest.approx(steps_per_sec, abs=0.051)
    assert found.examples_per_sec == pytest.approx(examples_per_sec, abs=0.51)


@given(st.text())
def test_any_text_can_be_looked_at(text):
    """No text makes the reader fail."""
    assert reports.parse(text) is None or isinstance(reports.parse(text), Progress)


@pytest.mark.parametrize("what", [reports.FINISHING, reports.EVALUATING])
def test_a_stage_reads_back_and_is_no_progress(what):
    """What the chief does after its last step."""
    stage = reports.Stage(3001, 3000, what)
    assert stage.format() == f"step 3001 of 3000, {what}"
    assert reports.parse_stage(f"worker:0 | 12:34:56 {stage.format()}") == stage
    assert reports.parse(stage.format()) is None
    assert reports.parse_stage(Progress(1, 2, 0.5, 1.0, 1.0).format()) is None


def test_every_end_says_why():
    """Each way to end has words of its own for the report."""
    words = [end.value for end in outcome.End]
    assert len(set(words)) == len(words) == 4
