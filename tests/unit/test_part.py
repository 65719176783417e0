"""The parts of a worker, taken together."""

from __future__ import annotations

import contextlib

import pytest

from ps_train.part import NO_PARTS, Part, Parts


class Noting(Part):
    """Notes what it is asked to do."""

    def __init__(self, name, notes, **answers):
        self._name, self._notes, self._answers = name, notes, answers

    def adjust(self, settings):
        """Adds its name."""
        return f"{settings}{self._name}"

    def final_evaluation(self, task):
        """Returns its answer."""
        return self._answers.get("final_evaluation")

    def is_due(self, path):
        """Returns its answer."""
        return self._answers.get("is_due", True)

    def after_evaluation(self, evaluation, path):
        """Notes the path."""
        self._notes.append(f"{self._name} {path}")

    @contextlib.contextmanager
    def around_evaluations(self, plugins, evaluator, stop):
        """Notes its beginning and its end."""
        self._notes.append(f"begin {self._name}")
        yield
        self._notes.append(f"end {self._name}")


@pytest.fixture
def notes():
    """What the parts were asked to do."""
    return []


def test_without_parts_each_new_checkpoint_is_evaluated_by_the_chief_alone():
    """And the settings stay as they are."""
    assert (NO_PARTS.is_due("x"), NO_PARTS.final_evaluation(None), NO_PARTS.adjust("s")) == (True, None, "s")


def test_a_checkpoint_is_due_if_no_part_objects(notes):
    """One is enough to leave it out."""
    assert Parts([Noting("a", notes), Noting("b", notes)]).is_due("x")
    assert not Parts([Noting("a", notes), Noting("b", notes, is_due=False)]).is_due("x")


def test_parts_come_in_the_order_of_the_table_and_end_in_reverse(notes):
    """Settings, contexts and evaluations alike."""
    parts = Parts([Noting("a", notes), Noting("b", notes)])
    assert parts.adjust("") == "ab"
    with parts.around_evaluations(None, None, None):
        parts.after_evaluation(None, "x")
    assert notes == ["begin a", "begin b", "a x", "b x", "end b", "end a"]


def test_the_part_that_evaluates_in_place_of_the_chief_is_asked_for(notes):
    """The others return None."""
    replacement = object()
    assert Parts([Noting("a", notes), Noting("b", notes, final_evaluation=replacement)]).final_evaluation(
        None) is replacement
