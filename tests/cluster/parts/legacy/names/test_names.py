"""What a TF1 script finds at `import tensorflow as tf`: runs the tests of some files in child processes."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

from tests.processes import REPO

DEADLINE_SECS = 300
CHILDREN = "tests/cluster/parts/legacy/names/"


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("tf_slim", "tf_keras", "tensorflow_estimator"))),
    reason="needs the extras legacy and estimator")
@pytest.mark.parametrize("child", [
    "names_child.py", "older_child.py", "inside_child.py", "eager_child.py", "keras_child.py", "series_child.py",
    "learn_child.py"])
def test_the_names_of_tensorflow_1_are_found(child):
    """The child's output names the tests that fail."""
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "--noconftest", "-q", "-p", "no:cacheprovider", CHILDREN + child], cwd=REPO,
        capture_output=True, text=True, timeout=DEADLINE_SECS, env={**os.environ, "PYTHONPATH": str(REPO)})
    assert ended.returncode == 0, ended.stdout + ended.stderr
