"""Two workers of a Horovod script, on in-process servers."""

from __future__ import annotations

import contextlib

import pytest

from ps_train.parts.legacy.classic.membership import Membership
from ps_train.runtime.waits import Timeouts

_SECS = 60.0


def refuse_to_end(error):
    """Stands for the end of the process."""
    raise AssertionError from error


@pytest.fixture
def members(start_servers):
    """The memberships of two workers."""
    cluster = start_servers(1, 2)
    cluster.create_blackboard()
    found = [Membership(cluster.view("worker", index), cluster.target("worker", index),
                        Timeouts(start_secs=_SECS, heartbeat_secs=3.0), refuse_to_end) for index in range(2)]
    with cluster.keeping_time():
        yield found
        for member in found:
            with contextlib.suppress(AttributeError):
                member.finish(0)
