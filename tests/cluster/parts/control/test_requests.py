"""The chief's side of `ps_train save`, on a blackboard of a server in this process."""

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
    """A chief's service, and the callbacks of the checkpoints that it has requested."""

    def __init__(self, board):
        self.callbacks = []
        self.service = ClientService(board, {}, self.callbacks.append, lambda: 7)


def test_each_request_is_taken_and_answered_once(open_board):
    """Also one that came before the chief trained; several that wait get one checkpoint."""
    client, chief = open_board(), Chief(open_board())
    assert [client.ask_to_save(), client.ask_to_save()] == [1, 2]
    chief.service.serve()
    chief.service.serve()
    (answer,) = chief.callbacks
    assert client.read().answer == {"number": 0}
    answer("here", "")
    assert client.read().answer == {"number": 2, "path": "here", "problem": ""}
    chief.service.serve()
    assert len(chief.callbacks) == 1


def test_the_next_chief_answers_pending_requests(open_board):
    """And no request that has its answer."""
    client, first = open_board(), Chief(open_board())
    client.ask_to_save()
    first.service.serve()
    first.callbacks[0]("here", "")
    second = Chief(open_board())
    second.service.serve()
    assert not second.callbacks
    client.ask_to_save()
    second.service.serve()  # and dies
    third = Chief(open_board())
    third.service.serve()
    third.callbacks[0]("", "no room")
    assert client.read().answer == {"number": 2, "path": "", "problem": "no room"}
