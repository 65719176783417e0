"""The tutorial's reader does not replace a script's modules of the same names."""

from __future__ import annotations

import subprocess
import sys

from tests.processes import REPO

SCRIPT = """
import sys
import data, data.own
from ps_train.parts.legacy.names import examples
datasets = examples.read_data_sets("unused", fake_data=True, one_hot=True)
images, labels = datasets.train.next_batch(2)
import models
print(data.NAME, data.own.NAME, models.NAME, sorted(name for name in sys.modules if name.split(".")[0] == "data"))
print(len(images[0]), len(labels[0]), sys.path[0])
"""


def test_the_reader_leaves_a_scripts_own_data_and_models_alone(tmp_path):
    """Those that were imported before stay, and those that are imported later are the script's."""
    for package in ("data", "models"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(f"NAME = 'own {package}'\n")
    (tmp_path / "data/own.py").write_text("NAME = 'own module'\n")
    (tmp_path / "script.py").write_text(SCRIPT)
    ended = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60,
                           env={"PYTHONPATH": str(REPO), "PATH": ""})
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == [
        "own data own module own models ['data', 'data.own']", f"784 10 {tmp_path}"]


def test_without_the_source_folder_the_reader_says_what_to_do(tmp_path):
    """A wheel has no data/."""
    code = ("import pathlib; from ps_train.parts.legacy.names import examples; "
            f"examples._CHECKOUT = pathlib.Path({str(tmp_path)!r}); examples._load_reader()")
    ended = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, timeout=60)
    assert "MissingDataError" in ended.stderr and str(tmp_path) in ended.stderr
    assert "pip install -e" in ended.stderr
