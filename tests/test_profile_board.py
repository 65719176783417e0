"""What the workers exchange for a profile."""

from __future__ import annotations

import contextlib
import itertools

import pytest

from ps_train import profile_board
from ps_train.profile_board import ProfileBoard, Reading


@pytest.fixture
def open_board(start_servers):
    """A function that returns a worker's ProfileBoard in a cluster of two workers, which has two ps."""
    cluster = start_servers(2, 2)
    with contextlib.ExitStack() as stack:
        yield lambda index: stack.enter_context(contextlib.closing(
            ProfileBoard(cluster.target("worker", index), cluster.view("worker", index))))


def test_what_a_worker_delivers_the_chief_collects_once(open_board):
    """As bytes, whatever is in them; then it is gone, so that no later training finds it."""
    chief, other = open_board(0), open_board(1)
    assert chief.collect() == {}
    other.deliver(1, b"\x00\xffpart")
    assert chief.collect() == {1: b"\x00\xffpart"}
    assert chief.collect() == {}


def test_a_worker_takes_back_what_one_before_it_has_left(open_board):
    """On servers that live on there may be the part of an earlier training."""
    chief, other = open_board(0), open_board(1)
    other.deliver(1, b"old")
    other.deliver(1, b"")
    assert chief.collect() == {}


def test_who_is_there_is_known(open_board):
    """By number, as long as it has not left."""
    board = open_board(0)
    board.claim(3, 17)
    assert board.present() == [3]
    board.leave(3)
    assert board.present() == []


def test_the_clocks_of_one_machine_are_the_same(open_board):
    """All ps and the worker's own server are asked; none of the other workers, which may be gone."""
    clocks = open_board(1).clocks()
    assert {name: reading.ahead_secs for name, reading in clocks.items()} == {"ps:0": 0, "ps:1": 0, "worker:1": 0}
    assert all(reading.error_secs > 0 for reading in clocks.values())


def fake_clock(*lengths_secs):
    """Returns our clock, and another that is 7 s ahead; what is asked takes these times, most of it on the way back."""
    lengths = itertools.chain(lengths_secs, itertools.repeat(10.0))
    now = [100.0]

    def ask():
        length = next(lengths)
        now[0] += length
        return now[0] - 0.75 * length + 7.0

    return ask, lambda: now[0]


def test_the_quickest_answer_counts():
    """It is taken to be of half-way; it is off by no more than the error that is told."""
    ask, clock = fake_clock(4.0, 0.4, 2.0)
    ahead_secs, error_secs = profile_board.read_clock(ask, clock=clock)
    assert error_secs == pytest.approx(0.2)
    assert ahead_secs == pytest.approx(7.0 - 0.1)
    assert abs(ahead_secs - 7.0) <= error_secs


def test_a_clock_that_may_be_the_same_as_another_is_the_same():
    """So that the tasks of one machine are not moved against each other by the chance of an answer's way."""
    ask, clock = fake_clock(0.4)
    assert profile_board.read_clock(ask, [Reading(3.0, 0.3), Reading(7.3, 0.3)], clock).ahead_secs == 7.3
    ask, clock = fake_clock(0.4)
    assert profile_board.read_clock(ask, [Reading(3.0, 0.3), Reading(7.6, 0.3)], clock).ahead_secs == pytest.approx(6.9)
    ask, clock = fake_clock(*[30.0] * 10)
    assert profile_board.read_clock(ask, [Reading(8.0, 0.1)], clock).ahead_secs == 0
