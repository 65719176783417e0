"""The flags of status, save, stop and resume."""

from __future__ import annotations

import pytest

from ps_train.config.control import running
from ps_train.errors import ConfigError


def test_addresses_are_checked():
    """As those of a training are."""
    assert running.parse_control(["--ps_hosts=a:1,b:2"], "stop").ps_hosts == "a:1,b:2"
    with pytest.raises(ConfigError, match="^--ps_hosts entry 1: .*localhost") as caught:
        running.parse_control(["--ps_hosts=a:1,localhost"], "stop")
    assert "\n" not in str(caught.value)
