"""What the chief does about `ps_train save`, on a blackboard of a server in this process."""

from __future__ import annotations

import contextlib

import pytest

from ps_train.parts.control.requests import ClientService, ControlBoard


@pytest.fixture
def open_board(start_servers):
    """A function that returns a view of the requests on ps 0, and closes it at the end."""
    ps = start_servers(1, 1).view("ps", 0).ps[0]
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(contextlib.closing(ControlBoard(ps)))


class Chief:
    """A chief's service, and the answers that its saver owes."""

    def __init__(self, board):
        self.owed = []
        self.service = ClientService(board, {}, self.owed.append, lambda: 7)


def test_each_request_is_taken_and_answered_once(open_board):
    """Also one that came before the chief trained; several that wait get one checkpoint."""
    client, chief = open_board(), Chief(open_board())
    assert [client.ask_to_save(), client.ask_to_save()] == [1, 2]
    chief.service.look()
    chief.service.look()
    (answer,) = chief.owed
    assert client.save_answer(1) is None
    answer("here", "")
    assert client.save_answer(1) == client.save_answer(2) == {"number": 2, "path": "here", "problem": ""}
    chief.service.look()
    assert len(chief.owed) == 1


def test_the_next_chief_takes_what_the_last_one_did_not_answer(open_board):
    """And nothing that has its answer."""
    client, first = open_board(), Chief(open_board())
    client.ask_to_save()
    first.service.look()
    first.owed[0]("here", "")
    second = Chief(open_board())
    second.service.look()
    assert not second.owed
    client.ask_to_save()
    second.service.look()  # and dies
    third = Chief(open_board())
    third.service.look()
    third.owed[0]("", "no room")
    assert client.save_answer(2)["problem"] == "no room"
