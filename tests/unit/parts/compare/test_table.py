"""The table of two trainings, and when they differ."""

from __future__ import annotations

import math

import pytest

from ps_train import __main__ as command_line
from ps_train.parts.compare import verb
from ps_train.parts.compare.flags import CompareConfig, parse_compare
from ps_train.parts.compare.table import LossRow, common_rows, lines_of
from tests.errors import raises


def test_steps_that_both_have_are_compared():
    """Step by step, or by the means of windows."""
    before, after = {0: 1.0, 1: 3.0, 7: 5.0, 20: 0.0}, {1: 2.0, 4: 4.0, 8: 6.0}
    assert common_rows(before, after, 1) == [LossRow(1, 3.0, 2.0)]
    assert common_rows(before, after, 5) == [LossRow(0, 2.0, 3.0), LossRow(5, 5.0, 6.0)]
    ((_, mean, _),) = common_rows({1: math.inf, 2: -math.inf}, {1: 1.0}, 5)
    assert math.isnan(mean)


@pytest.mark.parametrize(("before", "after", "is_close"), [
    (2.0, 2.1, True), (2.0, 1.9, True), (2.0, 2.11, False), (-2.0, -2.1, True), (0.0, 0.0, True), (0.0, 0.001, False),
    (math.nan, math.nan, True), (math.nan, 1.0, False), (1.0, math.nan, False), (math.inf, math.inf, True),
    (1.0, math.inf, False), (math.inf, 1.0, False), (math.inf, math.nan, False), (-math.inf, math.inf, False),
])
def test_a_loss_is_close_within_the_tolerance(before, after, is_close):
    """Five percent of the loss before; a loss that is no number is close to none."""
    assert LossRow(1, before, after).is_close(CompareConfig(relative_tolerance=0.050001)) == is_close


def test_the_absolute_tolerance_comes_on_top():
    """For losses near 0."""
    assert LossRow(1, 0.0, 0.5).is_close(CompareConfig(absolute_tolerance=0.5))
    assert not LossRow(1, 1.0, 2.0).is_close(CompareConfig(absolute_tolerance=0.5))


def test_a_long_table_keeps_its_ends_and_the_largest_difference():
    """The others are spread over the steps."""
    rows = [LossRow(step, 1.0, 1.5 if step == 333 else 1.0) for step in range(1000)]
    *lines, last = lines_of(rows, CompareConfig(max_rows=3))
    assert [int(line.split()[0]) for line in lines[1:]] == [0, 333, 500, 999]
    assert [line.endswith("*") for line in lines[1:]] == [False, True, False, False]
    assert last == "1000 steps compared; largest difference 0.5, at step 333"


@pytest.mark.parametrize(("losses", "argv", "code"), [
    ("1,1.0\n2,0.5\n", [], 0), ("1,1.0\n2,0.6\n", [], 1), ("1,1.0\n2,0.6\n", ["--relative_tolerance=0.2"], 0),
    ("3,1.0\n", [], 1), ("3,1.0\n", ["--window_steps=10", "--relative_tolerance=0.4"], 0),
])
def test_the_exit_code_says_whether_they_differ(tmp_path, capsys, losses, argv, code):
    """So that a script can use it."""
    (tmp_path / "before").write_text("step 1 loss 1.0\nstep 2 loss 0.5\n")
    (tmp_path / "after.csv").write_text("step,loss\n" + losses)
    assert command_line.main(["compare", str(tmp_path / "before"), str(tmp_path / "after.csv"), *argv]) == code
    assert ("difference" in capsys.readouterr().out) == (argv != [] or not losses.startswith("3"))


@pytest.mark.parametrize(("argv", "code"), [
    ([], "word_missing"), (["before"], "word_missing"), (["before", "before", "before"], "word_missing"),
    (["before", "nowhere"], "input_file_missing"),
])
def test_two_places_must_be_given(tmp_path, monkeypatch, argv, code):
    """Files or folders that exist."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "before").write_text("")
    with raises(code):
        verb.COMPARE.run(argv)


@pytest.mark.parametrize("pattern", ["(", r"step (\d+)", r"(?P<step>\d+)"])
def test_a_pattern_must_have_both_groups(pattern):
    """It says which number is which."""
    with raises("flag_malformed"):
        parse_compare([f"--pattern={pattern}"])
