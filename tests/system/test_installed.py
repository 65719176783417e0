"""ps_train as it is installed: from a wheel, in an environment and a folder that have no checkout."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
import sysconfig

import numpy as np
import pytest

from tests.processes import DEADLINE_SECS, REPO


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder of an environment with the packages of this one, and ps_train from a wheel alone."""
    folder = tmp_path_factory.mktemp("installed")
    source = folder / "source"  # a build leaves files in the folder that it builds
    subprocess.run(["git", "clone", "--quiet", str(REPO), str(source)], check=True)
    for changed in _changed_files():  # what a developer tests is not committed yet
        (source / changed).parent.mkdir(parents=True, exist_ok=True)
        (source / changed).write_bytes((REPO / changed).read_bytes())
    pip, environ = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"], _without_checkouts()
    subprocess.run([*pip, "wheel", "--no-deps", f"--wheel-dir={folder}", str(source)], check=True, env=environ)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "env")], check=True)
    [wheel] = folder.glob("ps_train-*.whl")
    [site] = (folder / "env").glob("lib/python*/site-packages")
    subprocess.run([*pip, f"--python={folder}/env/bin/python", "install", "--no-deps", str(wheel)], check=True,
                   env=environ)
    # Behind its own packages, those of this environment; an editable ps_train among them comes later.
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "env/bin"


def _changed_files():
    """Returns the files that differ from the last commit, but those that are gone."""
    listed = subprocess.run(["git", "ls-files", "--modified", "--others", "--exclude-standard"], cwd=REPO, text=True,
                            capture_output=True, check=True).stdout.split("\n")
    return [name for name in listed if name and (REPO / name).is_file()]


def _without_checkouts():
    """Returns the environment without what would name another ps_train, which pip takes for an installed one."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "TF_CONFIG")}


def _run(installed, cwd, *command):
    environ = _without_checkouts()
    ended = subprocess.run([str(installed / command[0]), *command[1:]], cwd=cwd, env=environ, text=True, check=False,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=3 * DEADLINE_SECS)
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


def test_it_has_its_models_and_datasets_in_an_empty_folder(installed, tmp_path):
    """They are there by their short names, and no checkout is: the plan of their training is made."""
    output = _run(installed, tmp_path, "python", "-c", _PLAN)
    assert str(installed.parent) in output and str(REPO) not in output
    assert re.search(r"^hidden\S*/weights ", output, re.MULTILINE), output


def test_what_new_writes_trains_and_predicts(installed, tmp_path):
    """Unedited: it trains, is evaluated and exported, and the SavedModel predicts what `predict` does."""
    assert "wrote mine/README.md, mine/dataset.py, mine/model.py; go on with" in _run(
        installed, tmp_path, "ps_train", "new", "mine")
    folder = tmp_path / "mine"
    flags = ["--model=model", "--dataset=dataset", "--train_dir=run"]
    trained = _run(installed, folder, "ps_train", "launch", *flags, "--num_ps=1", "--num_workers=1",
                   "--train_steps=300")
    assert float(re.search(r"accuracy = (\S+)", trained)[1]) > 0.7
    _run(installed, folder, "ps_train", "export", *flags, "--export_dir=exported")
    _run(installed, folder, "ps_train", "predict", *flags, "--output=predictions.csv")
    (folder / "served.py").write_text(_SERVED)
    _run(installed, folder, "python", "served.py")
    with open(folder / "predictions.csv", newline="") as file:
        rows = [row for row in csv.reader(file)][1:]
    np.testing.assert_allclose(np.array(rows, np.float64), np.load(folder / "served.npy"), atol=1e-6)


_PLAN = """\
import ps_train, ps_train.models.mlp, ps_train.datasets.digits
print(ps_train.__file__, ps_train.models.mlp.__file__, ps_train.datasets.digits.__file__)
from ps_train.__main__ import main
assert main(["plan", "--model=mlp", "--dataset=digits", "--num_ps=1"]) == 0
"""
_SERVED = """\
import glob, dataset, numpy as np, tensorflow as tf
signature = tf.saved_model.load(glob.glob("exported/*")[0]).signatures["serving_default"]
[name] = signature.structured_input_signature[1]
[values] = signature(**{name: tf.constant(dataset.examples(seed=1, count=1000)[0])}).values()
np.save("served.npy", values.numpy())
"""
