"""Claims: unlike each other, and alike in their place where the same port of the same machine was bound."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

from ps_train.coordination import claims
from tests.processes import REPO

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="a place is known on Linux only")


def claim_of_another_process(port, *before):
    code = f"from ps_train.coordination import claims; print(claims.new_claim({port}))"
    ended = subprocess.run([*before, sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, check=True)
    return int(ended.stdout)


def test_no_two_claims_are_equal():
    """They fit into an int64 and are above 0, which means that nobody is there."""
    drawn = [claims.new_claim(port) for port in (None, 2222) for _ in range(1000)]
    assert len(set(drawn)) == 2000
    assert all(0 < claim < 2**62 for claim in drawn)


@LINUX
def test_the_place_is_that_of_the_port():
    """Also in another process; another port is another place."""
    own = claims.new_claim(2222)
    assert claims.is_same_place(own, claim_of_another_process(2222))
    assert not claims.is_same_place(own, claims.new_claim(2223))


@LINUX
def test_a_container_of_the_same_machine_is_another_place():
    """It may have the same port in its own network."""
    if subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode:
        pytest.skip("may not make a network of its own")
    assert not claims.is_same_place(claims.new_claim(2222), claim_of_another_process(2222, "unshare", "--net"))


def test_without_a_port_or_a_known_machine_every_place_is_another(monkeypatch, tmp_path):
    """So that nobody takes the number of a process that may be alive."""
    assert not claims.is_same_place(claims.new_claim(), claims.new_claim())
    monkeypatch.setattr(claims, "_BOOT_ID", str(pathlib.Path(tmp_path) / "absent"))
    assert not claims.is_same_place(claims.new_claim(2222), claims.new_claim(2222))
