"""The flags of status, save, stop and resume."""

from __future__ import annotations

from ps_train.parts.control import verb as control_flags
from tests.errors import raises


def test_addresses_are_checked():
    """As those of a training are."""
    assert control_flags.parse_control(["--ps_hosts=a:1,b:2"], "stop").ps_hosts == "a:1,b:2"
    with raises("address_malformed") as caught:
        control_flags.parse_control(["--ps_hosts=a:1,localhost"], "stop")
    assert str(caught.value).startswith("--ps_hosts entry 1: ")
