"""What selection.json remembers."""

from __future__ import annotations

import logging

import pytest

from ps_train.parts.selection.flags import Target
from ps_train.parts.selection.record import MetricStanding, SelectionRecord, go_back

_ACCURACY = {"keep_best": Target("accuracy", True)}


@pytest.mark.parametrize("is_max, values, best, num_worse", [
    (True, [0.1, 0.3, 0.2, 0.3], 0.3, 2), (False, [3.0, 2.0, 2.5], 2.0, 1), (True, [float("nan"), 0.1], 0.1, 0),
    (True, [0.1, float("nan")], 0.1, 1), (False, [float("nan")], None, 1)])
def test_only_a_better_value_counts(is_max, values, best, num_worse):
    """An equal one does not, and NaN never does."""
    standing = MetricStanding("m", is_max)
    for step, value in enumerate(values):
        standing.count(value, step)
    assert (standing.value, standing.num_worse) == (best, num_worse)


def test_a_record_is_remembered(tmp_path):
    """The best value, its step, and the count; of another metric nothing."""
    record = SelectionRecord(str(tmp_path), _ACCURACY)
    assert record.last_step == -1
    record["keep_best"].count(0.5, 10)
    record["keep_best"].count(0.4, 20)
    record.last_step = 20
    record.write()
    again = SelectionRecord(str(tmp_path), _ACCURACY)
    assert (again.last_step, again["keep_best"]) == (20, MetricStanding("accuracy", True, 0.5, 10, 1))
    other = SelectionRecord(str(tmp_path), {"keep_best": Target("accuracy", False)})
    assert other["keep_best"] == MetricStanding("accuracy", False)


def test_flags_with_one_metric_share_its_best(tmp_path):
    """Also if an earlier run had only one of the flags."""
    loss = Target("loss", False)
    SelectionRecord(str(tmp_path), {"keep_best": loss}).write()
    record = SelectionRecord(str(tmp_path), {"keep_best": loss, "early_stopping": loss})
    assert record["keep_best"] is record["early_stopping"]
    assert record.count({"loss": 0.4}, 50) == [MetricStanding("loss", False, 0.4, 50, 0)]


@pytest.mark.parametrize("text", ["{", "[]", '{"keep_best": {"old": 1}}'])
def test_a_damaged_record_is_replaced(tmp_path, caplog, text):
    """With a warning if it cannot be read."""
    (tmp_path / "selection.json").write_text(text)
    with caplog.at_level(logging.WARNING):
        assert SelectionRecord(str(tmp_path), _ACCURACY)["keep_best"].value is None
    assert (len(caplog.records) == 1) == (text == "{")


def test_a_record_that_cannot_be_read_now_is_not_a_new_one(tmp_path):
    """A mount may come back, and the best value with it."""
    (tmp_path / "selection.json").mkdir()
    with pytest.raises(IsADirectoryError):
        SelectionRecord(str(tmp_path), _ACCURACY)


def test_a_record_is_forgotten_in_one_line(tmp_path, caplog):
    """Without a record nothing is logged."""
    SelectionRecord(str(tmp_path), _ACCURACY).write()
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            go_back(str(tmp_path), None)
    [message] = caplog.messages
    assert f"{tmp_path}/selection.json" in message
    assert list(tmp_path.iterdir()) == []


def test_evaluations_of_steps_that_come_again_are_undone(tmp_path, caplog):
    """Issue: after the newest checkpoints had been removed, nothing was evaluated up to the step of the last one."""
    record = SelectionRecord(str(tmp_path), _ACCURACY)
    record.count({"accuracy": 0.9}, 1000)
    record.write()
    with caplog.at_level(logging.INFO):
        go_back(str(tmp_path), 1000), go_back(str(tmp_path), 500)
    [message] = caplog.messages
    assert "1000" in message and "500" in message
    again = SelectionRecord(str(tmp_path), _ACCURACY)
    assert (again.last_step, again["keep_best"].value) == (500, 0.9)


def test_a_run_without_the_flags_forgets_no_best_value(tmp_path):
    """Issue: with --exporters=latest alone the best value was lost, and a worse checkpoint replaced the best one."""
    for targets, step, value in ((_ACCURACY, 100, 0.9), ({}, 200, 0.5), (_ACCURACY, 300, 0.5)):
        record = SelectionRecord(str(tmp_path), targets)
        record.count({"accuracy": value}, step)
        record.write()
    assert (record["keep_best"].value, record["keep_best"].step, record.last_step) == (0.9, 100, 300)
