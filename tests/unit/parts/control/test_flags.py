"""The flags of status, save, stop and resume."""

from __future__ import annotations

import pytest

from ps_train.errors import ConfigError
from ps_train.parts.control import flags as control_flags


def test_addresses_are_checked():
    """As those of a training are."""
    assert control_flags.parse_control(["--ps_hosts=a:1,b:2"], "stop").ps_hosts == "a:1,b:2"
    with pytest.raises(ConfigError, match="^--ps_hosts entry 1: .*localhost") as caught:
        control_flags.parse_control(["--ps_hosts=a:1,localhost"], "stop")
    assert "\n" not in str(caught.value)
