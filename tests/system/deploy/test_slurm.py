"""deploy/slurm: a job trains and is queued again; `srun` and `scontrol` are stubs (tests/slurm_stub.py).

tests/unit/parts/schedulers has the tests of how a task of a step finds its cluster.
"""

from __future__ import annotations

import json
import os
import pathlib
import random
import signal
import stat
import subprocess
import sys
import time

import pytest

from ps_train.errors import StoppedError, StopRequestedError
from ps_train.runtime import signals, waits
from tests import processes
from tests.errors import raises
from tests.processes import REPO


@pytest.fixture
def run_batch(tmp_path):
    """A function that runs train.sbatch with stubs in place of Slurm's tools; returns (process, the stubs' log)."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("srun", "scontrol"):
        stub = tools / name
        stub.write_text(f"#!{sys.executable}\n{(REPO / 'tests/slurm_stub.py').read_text()}")
        stub.chmod(stub.stat().st_mode | stat.S_IXUSR)
    log, output = tmp_path / "slurm.log", tmp_path / "output"
    log.touch()

    def run(*flags, restart_count=0, python=sys.executable, num_ps=1, job_id=None, **variables):
        environ = {name: value for name, value in os.environ.items()
                   if name not in ("TF_CONFIG", "TF_NUM_INTRAOP_THREADS", "SLURM_CPUS_PER_TASK")}
        environ.update(PATH=f"{tools}:{environ['PATH']}", PYTHON=str(python), SLURM_STUB_LOG=str(log),
                       SLURM_JOB_ID=job_id or free_job_id(), SLURM_NTASKS="2", NUM_PS=str(num_ps),
                       SLURM_RESTART_COUNT=str(restart_count), PYTHONPATH=str(REPO), PYTHONUNBUFFERED="1", **variables)
        with open(output, "wb") as sink:
            return subprocess.Popen([REPO / "deploy/slurm/train.sbatch", *flags], cwd=REPO, env=environ, stdout=sink,
                                    stderr=subprocess.STDOUT, start_new_session=True)

    started = []

    def start(*flags, **options):
        started.append(run(*flags, **options))
        return started[-1], log, output

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def free_job_id():
    """Returns a job id whose first ports are free on this machine."""
    while True:
        job_id = random.randrange(100)
        if not any(processes.is_open(20000 + 100 * job_id + offset) for offset in range(4)):
            return str(job_id)


def asked(log: pathlib.Path, tool):
    """Returns the arguments of each call of a stub."""
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    return [call[1:] for call in calls if call[0] == tool]


def test_the_batch_script_trains_and_at_the_time_limit_saves_and_is_queued_again(run_batch, tmp_path):
    """A ps and a worker as the tasks of one step, to which Slurm sends SIGTERM: all end with 143.

    For the other codes see below.
    """
    process, log, output = run_batch("--model=models.softmax", "--dataset=tests.plugins.slow", "--train_steps=1000000",
                                     f"--train_dir={tmp_path}/train")
    end = time.monotonic() + processes.DEADLINE_SECS
    while "examples/s" not in output.read_text() and time.monotonic() < end:
        assert process.poll() is None, output.read_text()
        time.sleep(0.1)
    srun_pid = subprocess.run(["pgrep", "-P", str(process.pid), "srun"], capture_output=True, text=True,
                              check=True).stdout
    os.kill(int(srun_pid), signal.SIGTERM)
    assert process.wait(processes.DEADLINE_SECS) == 143, output.read_text()
    assert len(asked(log, "scontrol")) == 1 and asked(log, "scontrol")[0][0] == "requeue"
    assert "saved" in output.read_text()
    assert "--kill-on-bad-exit=0" in asked(log, "srun")[0]


def test_the_batch_script_starts_other_verbs(run_batch, tmp_path):
    """A script that reads TF_CONFIG, as each task of the step: Slurm's tasks in the order of the cluster."""
    script = tmp_path / "script.py"
    script.write_text("import os\nprint('<' + os.environ['TF_CONFIG'] + '>', flush=True)\n")
    process, _, output = run_batch("run", str(script))
    assert process.wait(processes.DEADLINE_SECS) == 0, output.read_text()
    found = [json.loads(line.partition("<")[2].rpartition(">")[0]) for line in output.read_text().splitlines()
             if "<{" in line]
    assert sorted(config["task"]["type"] for config in found) == ["ps", "worker"]
    assert found[0]["cluster"] == found[1]["cluster"] and [*map(len, found[0]["cluster"].values())] == [1, 1]


def test_the_batch_script_starts_a_verb_that_has_no_ps(run_batch, tmp_path):
    """NUM_PS=0, as for `keras --strategy=multi_worker_mirrored`: all tasks are workers."""
    script = tmp_path / "script.py"
    script.write_text("import os\nprint('<' + os.environ['TF_CONFIG'] + '>', flush=True)\n")
    process, _, output = run_batch("run", str(script), num_ps=0)
    assert process.wait(processes.DEADLINE_SECS) == 0, output.read_text()
    found = [json.loads(line.partition("<")[2].rpartition(">")[0]) for line in output.read_text().splitlines()
             if "<{" in line]
    assert [[*config["cluster"]] for config in found] == [["worker"]] * 2
    assert sorted(config["task"]["index"] for config in found) == [0, 1]


@pytest.mark.parametrize(("variables", "options", "threads"), [
    ({"SLURM_CPUS_PER_TASK": "4"}, ["--cpus-per-task=4"], "4"), ({}, [], ""),
    ({"SLURM_CPUS_PER_TASK": "4", "TF_NUM_INTRAOP_THREADS": "3"}, ["--cpus-per-task=4"], "3")])
def test_each_task_gets_the_cores_of_the_job_and_uses_them(run_batch, tmp_path, variables, options, threads):
    """srun takes neither the cores nor, at some sites, variables from the job by itself; a job may count no cores."""
    task = tmp_path / "task"
    task.write_text('#!/bin/sh\n[ "$3" = tf_config ] || echo "threads=<$TF_NUM_INTRAOP_THREADS>"\n')
    task.chmod(task.stat().st_mode | stat.S_IXUSR)
    process, log, output = run_batch(python=task, **variables)
    assert process.wait(processes.DEADLINE_SECS) == 0, output.read_text()
    assert output.read_text().count(f"threads=<{threads}>") == 2
    [asked_of_srun] = asked(log, "srun")
    assert [word for word in asked_of_srun if word.startswith("--cpus-per-task")] == options
    assert "--export=ALL" in asked_of_srun


def test_a_temporary_folder_that_the_node_lacks_loses_no_line(run_batch, tmp_path):
    """TMPDIR of the login machine: the script's own note is elsewhere then."""
    task = tmp_path / "task"
    task.write_text("#!/bin/sh\necho 'a line of the log' >&2\nexit 2\n")
    task.chmod(task.stat().st_mode | stat.S_IXUSR)
    process, log, output = run_batch(python=task, TMPDIR=str(tmp_path / "scratch"))
    assert process.wait(processes.DEADLINE_SECS) == 2, output.read_text()
    assert output.read_text().count("a line of the log") == 2
    assert not asked(log, "scontrol")


def test_a_step_of_another_shape_ends_before_the_verb_starts(run_batch, tmp_path):
    """With 2, and a line of each task that says what to change."""
    process, log, output = run_batch("run", str(tmp_path / "missing.py"), num_ps=2)
    assert process.wait(processes.DEADLINE_SECS) == 2, output.read_text()
    assert output.read_text().count("[task_not_in_cluster]") == 2
    assert not asked(log, "scontrol")


@pytest.mark.parametrize(("code", "restart_count", "is_queued_again"), [
    (138, 0, True), (143, 2, True), (137, 0, True), (138, 3, False), (2, 0, False), (1, 0, False), (0, 0, False)])
def test_a_job_is_queued_again_where_that_may_help(run_batch, tmp_path, code, restart_count, is_queued_again):
    """Codes of 128 and above, a limited number of times; the job's own code is that of its tasks."""
    task = tmp_path / "task"
    task.write_text(f"#!/bin/sh\nexit {code}\n")
    task.chmod(task.stat().st_mode | stat.S_IXUSR)
    process, log, output = run_batch(python=task, restart_count=restart_count)
    assert process.wait(processes.DEADLINE_SECS) == code, output.read_text()
    assert len(asked(log, "scontrol")) == is_queued_again


@pytest.mark.parametrize(("array", "requeued"), [
    ({}, "36"), ({"SLURM_ARRAY_JOB_ID": "36", "SLURM_ARRAY_TASK_ID": "2"}, "36_2"),
    ({"SLURM_ARRAY_JOB_ID": "35", "SLURM_ARRAY_TASK_ID": "1"}, "36")])  # or of a job that has submitted this one
def test_a_job_of_an_array_is_queued_again_alone(run_batch, tmp_path, array, requeued):
    """One of them has the number of the array as its own, by which scontrol would end the trainings of the others."""
    task = tmp_path / "task"
    task.write_text("#!/bin/sh\nexit 138\n")
    task.chmod(task.stat().st_mode | stat.S_IXUSR)
    process, log, output = run_batch(python=task, job_id="36", **array)
    assert process.wait(processes.DEADLINE_SECS) == 138, output.read_text()
    assert asked(log, "scontrol") == [["requeue", requeued]]


@pytest.mark.parametrize(("script", "code", "is_queued_again"), [
    ("exit $((SLURM_PROCID == 1 ? 1 : 138))", 1, False),
    ("exit $((SLURM_PROCID == 1 ? 2 : 143))", 2, False),
    ("exit $((SLURM_PROCID == 1 ? 137 : 138))", 138, True),
    ("echo '1: ps_train: stopped at step 7 [stop_requested]' >&2; exit 143", 143, False),
    ("""echo '1: {"time": "", "code": "stop_requested", "exit_code": 143}' >&2; exit 143""", 143, False),
])
def test_a_fault_of_one_task_and_a_request_to_stop_end_the_job(run_batch, tmp_path, script, code, is_queued_again):
    """A chief that fails ends the others with 138, which is the larger code and so that of srun."""
    task = tmp_path / "task"
    task.write_text(f"#!/bin/bash\n{script}\n")
    task.chmod(task.stat().st_mode | stat.S_IXUSR)
    process, log, output = run_batch(python=task)
    assert process.wait(processes.DEADLINE_SECS) == code, output.read_text()
    assert len(asked(log, "scontrol")) == is_queued_again


def test_the_line_by_which_the_batch_script_knows_a_request_to_stop():
    """It is that of every task that `ps_train stop` has stopped."""
    stop = waits.StopEvent()

    def body():
        waits.stop_on_request(stop)
        raise StoppedError("stopped", "stopped at step 7")

    with raises("stop_requested", kind=StopRequestedError) as caught:
        signals.run_until_stopped(body, stop, 5.0)
    assert caught.value.lines()[-1].endswith(" [stop_requested]")
