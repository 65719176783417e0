"""Servers in this process, for the few tests that need them beside real processes; TensorFlow is imported with them."""

from __future__ import annotations

import pytest

from tests import fork_server


@pytest.fixture
def start_servers(request):
    """A function (num_ps, num_workers) -> LocalCluster of in-process servers."""
    from tests import server_fixtures  # noqa: PLC0415 (most of these tests need no TensorFlow in their own process)

    with server_fixtures.starting_servers() as start:
        yield start


@pytest.fixture(autouse=True)
def graphs_as_marked(request, monkeypatch):
    """Lets the forks of a test that is not marked `optimised` run their graphs as they were built."""
    if request.node.get_closest_marker("optimised") is None:
        monkeypatch.setenv(fork_server.PLAIN_GRAPHS_VARIABLE, "1")
