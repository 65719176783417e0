"""The server of a script."""

from __future__ import annotations

import pytest

import ps_train
from tests import processes


@pytest.mark.parametrize("protocol", ["grpc++", "star_server", None])
def test_a_protocol_of_deeprec_becomes_grpc(protocol):
    """TensorFlow's own server would refuse it."""
    server = ps_train.Server({"worker": [f"localhost:{processes.free_ports(1)[0]}"]}, protocol=protocol)
    assert server.target.startswith("grpc://localhost:")
