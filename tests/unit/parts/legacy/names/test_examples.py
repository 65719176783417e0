"""The tutorial's reader does not replace a script's modules of the same names."""

from __future__ import annotations

import subprocess
import sys

from tests.processes import GUARD_SECS, REPO

SCRIPT = """
import sys
import data, data.own
from ps_train.errors import MissingDataError
from ps_train.parts.legacy.names import examples
datasets = examples.read_data_sets("unused", fake_data=True, one_hot=True)
images, labels = datasets.train.next_batch(2)
few = examples.DataSet([[[number]] for number in range(5)], range(5))
sizes = [len(few.next_batch(size)[1]) for size in (3, 100, 2, 3, 100)]
assert sizes == [3, 7, 2, 3, 5], "at most the rest and a whole epoch"
assert [len(datasets.train.next_batch(9000)[1]) for _ in range(4)] == [9000] * 4, "fake data has no end"
assert len(few.next_batch(50, fake_data=True)[1]) == 50
import models
print(data.NAME, data.own.NAME, models.NAME, sorted(name for name in sys.modules if name.split(".")[0] == "data"))
print(len(images[0]), len(labels[0]), sys.path[0])
examples._CHECKOUT = examples.pathlib.Path("no checkout")
try:
    examples._load_reader.__wrapped__()
except MissingDataError as error:
    print(error)
"""


def test_the_reader_leaves_a_scripts_own_data_and_models_alone(tmp_path):
    """Those that were imported before stay, those that are imported later are the script's; a wheel has no data/."""
    for package in ("data", "models"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(f"NAME = 'own {package}'\n")
    (tmp_path / "data/own.py").write_text("NAME = 'own module'\n")
    (tmp_path / "script.py").write_text(SCRIPT)
    ended = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True,
                           timeout=GUARD_SECS, env={"PYTHONPATH": str(REPO), "PATH": ""})
    assert ended.returncode == 0, ended.stderr
    *found, missing = ended.stdout.splitlines()
    assert found == ["own data own module own models ['data', 'data.own']", f"784 10 {tmp_path}"]
    assert "no checkout" in missing and "pip install -e" in missing
