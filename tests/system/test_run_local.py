"""run_local.sh: from any directory, with an environment that has the package, to the end of training."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

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
