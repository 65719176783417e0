"""DeepRec's names in a TF1 script: runs the tests of deeprec_child.py and columns_child.py in child processes."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

from tests.processes import REPO

DEADLINE_SECS = 300
CHILDREN = "tests/cluster/parts/legacy/deeprec/"


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("tf_slim", "tf_keras"))), reason="needs the extra legacy")
@pytest.mark.parametrize("child", ["deeprec_child.py", "columns_child.py"])
def test_the_names_of_deeprec_do_what_deeprec_does(child):
    """The child's output names the tests that fail."""
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "--noconftest", "-q", "-p", "no:cacheprovider", CHILDREN + child], cwd=REPO,
        capture_output=True, text=True, timeout=DEADLINE_SECS, env={**os.environ, "PYTHONPATH": str(REPO)})
    assert ended.returncode == 0, ended.stdout + ended.stderr
