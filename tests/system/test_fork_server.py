"""The fork server: what it starts behaves as a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess

import pytest

from tests import fork_server
from tests.processes import DEADLINE_SECS, free_ports

SERVE = ["serve", "--job_name=ps", "--task_index=0", "--worker_hosts=localhost:4399"]


def test_a_fork_and_an_exec_print_the_same(start_process):
    """Also to a file that the test names, and with its exit code."""
    for name, is_exec in (("fork", False), ("exec", True)):
        start_process.start(name, ["--trian_steps=1"], is_exec=is_exec)
    assert start_process.wait() == {"fork": 2, "exec": 2}
    assert start_process.log("fork") == start_process.log("exec") != ""


def test_a_fork_has_its_own_folder_and_environment(start_process, tmp_path):
    """As an exec has: plug-ins are found from its working directory."""
    (tmp_path / "probe.py").write_text("import os\nraise ValueError(os.environ['PROBE'])\n")
    start_process.start("task", ["--download_only", "--model=probe"], cwd=tmp_path, env={"PROBE": "from the test"})
    assert start_process.exit_code("task") == 1
    assert "ValueError: from the test" in start_process.log("task")


def test_a_fork_runs_a_script_as_python_does(tmp_path):
    """With its arguments, modules beside it, and its exit code."""
    (tmp_path / "beside.py").write_text("NUMBER = 3\n")
    (tmp_path / "script.py").write_text(
        "import sys\nimport beside\nprint(__name__, sys.argv[1:])\nsys.exit(beside.NUMBER)\n")
    with open(tmp_path / "output", "wb") as output:
        process = fork_server.of_this_process().start(
            ["one", "two"], "/", dict(os.environ), output.fileno(), script=str(tmp_path / "script.py"))
        assert process.wait(DEADLINE_SECS) == 3
    assert (tmp_path / "output").read_text() == "__main__ ['one', 'two']\n"


@pytest.mark.parametrize("is_plain", [False, True])
def test_graphs_are_optimised_where_a_test_is_marked(start_process, tmp_path, monkeypatch, is_plain):
    """By TensorFlow, in the sessions of the task."""
    if not is_plain:
        monkeypatch.delenv(fork_server.PLAIN_GRAPHS_VARIABLE)
    (tmp_path / "probe.py").write_text(
        "import tensorflow.compat.v1 as tf\n"
        "found = tf.Session(graph=tf.Graph())._config\n"
        "found = found is not None and found.graph_options.rewrite_options.disable_meta_optimizer\n"
        "raise ValueError(f'is plain: {found}')\n")
    start_process.start("task", ["--download_only", "--model=probe"], cwd=tmp_path)
    assert start_process.exit_code("task") == 1
    assert f"ValueError: is plain: {is_plain}" in start_process.log("task")


def test_forks_draw_different_random_numbers(start_process, tmp_path):
    """Python's and numpy's generators are seeded anew in each."""
    (tmp_path / "probe.py").write_text(
        "import random\nimport numpy\nraise ValueError(f'drew {random.random()} and {numpy.random.random()}')\n")
    for name in ("one", "two"):
        start_process.start(name, ["--download_only", "--model=probe"], cwd=tmp_path)
    start_process.wait()
    one, two = (re.search(r"ValueError: drew (\S+) and (\S+)", start_process.log(name)).groups()
                for name in ("one", "two"))
    assert len({*one, *two}) == 4


def test_a_signal_ends_a_fork_and_a_wait_has_a_bound(start_process):
    """`wait` raises what Popen's does, and a killed fork has the exit code that Popen tells."""
    [port] = free_ports(1)
    process = start_process.start("ps", [*SERVE, f"--ps_hosts=localhost:{port}"])
    start_process.wait_for_line("ps", "serves at")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    start_process.signal("ps", signal.SIGKILL)
    assert start_process.exit_code("ps") == -signal.SIGKILL
    assert process.poll() == -signal.SIGKILL


def test_the_tasks_of_a_forked_launcher_are_forks_and_its_children(start_process, tmp_path):
    """Each has the launcher's folder and the environment that it was given."""
    (tmp_path / "probe.py").write_text(
        "import os, sys\n"
        "is_fork = 'tests.launched_forks' in sys.modules\n"
        "raise ValueError(f'{is_fork} of {os.getppid()} with {os.environ[\"PROBE\"]} in {os.getcwd()}')\n")
    launcher = start_process.start("launch", ["launch", "--model=probe", "--dataset=probe"], cwd=tmp_path,
                                   env={"PROBE": "mine"})
    assert start_process.exit_code("launch") == 1
    assert f"ValueError: True of {launcher.pid} with mine in {tmp_path}\n" in start_process.log("launch")
