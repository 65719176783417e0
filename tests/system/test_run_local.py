"""run_local.sh: from any directory, with an environment that has the package, to the end of training."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
DEADLINE_SECS = 90


def run_local(tmp_path, *flags):
    """Runs the script from another directory, as in an active environment; returns (exit code, output)."""
    environ = {name: value for name, value in os.environ.items()
               if name not in ("TF_CONFIG", "PS_TRAIN_VENV", "PYTHONPATH")}
    environ.update(VIRTUAL_ENV=sys.prefix, PATH=f"{pathlib.Path(sys.executable).parent}:{environ['PATH']}")
    ended = subprocess.run([str(REPO / "run_local.sh"), *flags], cwd=tmp_path, env=environ, text=True,
                           timeout=DEADLINE_SECS, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, check=False)
    return ended.returncode, ended.stdout


def test_it_runs_a_cluster_in_the_environment_that_is_there(tmp_path):
    """A cluster trains on the embedded digits, is evaluated and ends with 0; nothing is installed.

    `models/` and `data/` where it is called, the user's own, hide neither the default model nor the dataset.
    """
    for folder in ("models", "data"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    code, output = run_local(tmp_path, "--num_ps=1", "--num_workers=1", "--dataset=data.digits", "--train_steps=60",
                             f"--train_dir={tmp_path}/train")
    assert code == 0, output
    assert "setup:" not in output, output
    commands = re.findall(r"^  (\S+) -m ps_train .*--job_name=(\w+) --task_index=(\d)", output, re.MULTILINE)
    assert commands == [("python", "ps", "0"), ("python", "worker", "0")], output
    assert re.search(r"worker:0 \|   accuracy = 0\.\d+", output), output
    assert re.search(r"^Exit codes: ps:0 0 .*worker:0 0 ", output, re.MULTILINE), output


def test_it_passes_on_flags_and_the_exit_code(tmp_path):
    """A wrong flag is one line and exit code 2."""
    code, output = run_local(tmp_path, "--num_workers=0")
    assert code == 2, output
    assert output.startswith("ps_train: --num_workers: got 0;") and output.endswith("[flag_out_of_range]\n"), output


@pytest.fixture
def make_venv(tmp_path):
    """Returns a function that makes the environment `envs` with a Python whose pip fails; returns (exit code, output).

    Its `-m venv` makes the folder, as Python's does.
    """
    python = tmp_path / "path/python3"
    python.parent.mkdir()
    python.write_text('''#!/bin/bash
case "$*" in
  *"-m pip"*|*installed*) exit 1 ;;
  *"-m venv"*) mkdir -p "$3/bin"; touch "$3/pyvenv.cfg"; cp "$0" "$3/bin/python" ;;
esac
''')
    python.chmod(0o755)

    def make():
        environ = {**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}", "PS_TRAIN_VENV": f"{tmp_path}/envs"}
        ended = subprocess.run(["bash", "-ec", 'source scripts/setup_env.sh; make_venv ""'], cwd=REPO, env=environ,
                               text=True, timeout=DEADLINE_SECS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               check=False)
        return ended.returncode, ended.stdout

    return make


def test_an_environment_is_made_in_no_folder_that_has_files_of_the_user(tmp_path, make_venv):
    """One line refuses it, again and again, and the files stay."""
    work = tmp_path / "envs/other-project/thesis.txt"
    work.parent.mkdir(parents=True)
    work.write_text("precious")
    for _ in range(2):
        code, output = make_venv()
        assert code == 1 and output.startswith("setup: ") and "new or empty folder" in output, output
        assert output.count("\n") == 1 and [path.name for path in (tmp_path / "envs").iterdir()] == ["other-project"]
    assert work.read_text() == "precious"


def test_only_an_environment_that_began_in_an_empty_folder_is_removed_where_it_is_half_made(tmp_path, make_venv):
    """One of the user whose Python is gone is completed in place."""
    for is_new in (True, False):
        folder = tmp_path / "envs"
        if not is_new:
            folder.mkdir()
            (folder / "pyvenv.cfg").touch()
        assert make_venv()[0] == 1
        (folder / "bin/left").touch()
        code, output = make_venv()
        assert code == 1 and ("half made" in output) is is_new, output
        assert (folder / "bin/left").exists() is not is_new
        (folder / "bin/left").unlink(missing_ok=True)
        if is_new:
            folder.rename(tmp_path / "earlier")
