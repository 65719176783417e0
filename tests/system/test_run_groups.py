"""The runner of `./run_tests.sh`: a process for each group of files, and one exit code for all."""

from __future__ import annotations

import subprocess
import sys

from tests.processes import DEADLINE_SECS, REPO


def run_groups(*lines):
    """Returns the ended runner of these groups."""
    return subprocess.run([sys.executable, "-m", "tests.run_groups", "2"], cwd=REPO, input="\n".join(lines), text=True,
                          capture_output=True, timeout=DEADLINE_SECS, check=False)


def test_a_group_that_fails_shows_its_output_and_the_others_run():
    """The exit code is 1; what has passed is two lines."""
    ended = run_groups("tests/unit/test_nowhere.py", "tests/unit/test_errors.py")
    assert ended.returncode == 1, ended.stderr
    assert "ERROR: file or directory not found: tests/unit/test_nowhere.py" in ended.stdout
    assert "\ntests/unit/test_errors.py\n=" in f"\n{ended.stdout}" and " passed in " in ended.stdout


def test_the_exit_code_is_0_if_all_groups_pass():
    """So it is with no group at all."""
    assert [run_groups(*groups).returncode for groups in ([], ["tests/unit/test_errors.py"])] == [0, 0]


def test_a_group_whose_process_ends_in_the_midst_has_not_passed(tmp_path):
    """Also with exit code 0, as when a thread of a test ends the process."""
    path = tmp_path / "test_end.py"
    path.write_text("import os\ndef test_end():\n    os._exit(0)\n")
    ended = run_groups(str(path))
    assert ended.returncode == 1, ended.stdout
    assert "the process ended before pytest did" in ended.stdout
