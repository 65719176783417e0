"""Whole tasks as real processes: the command line, the end of training, signals."""

from __future__ import annotations

import json
import re
import shutil
import signal

import pytest

from ps_train.coordination.state import State
from ps_train.parts.control import looking
from tests import processes
from tests.children import wait_until
from tests.processes import REPO, TaskCluster

TINY = ["--model=tiny", "--dataset=tiny", "--batch_size=16", "--log_steps=20"]
MODES = {"async": [], "sync": ["--sync_replicas"]}


@pytest.fixture
def elsewhere(tmp_path):
    """A working directory outside the repository, with a plug-in in it."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    shutil.copy(REPO / "tests/plugins/tiny.py", folder)
    return folder


def state_on(ps: str) -> State:
    """Returns the state of the training on a ps, which may be too busy to answer at once."""
    seen = []

    def answers() -> bool:
        seen.append(looking.look(looking.find_place("", ps)).snapshot)
        return seen[-1] is not None

    wait_until(answers, f"an answer of {ps}")
    return seen[-1].state


def open_gates_when_evaluated(group, folder, num_workers: int) -> None:
    """Lets the workers train on when the evaluator has evaluated: one that comes after the end finds no ps."""
    group.wait_for_line("evaluator", "After ")
    for index in range(num_workers):
        (folder / f"gate.{index}").touch()


def _assert_nothing_left(cluster: TaskCluster) -> None:
    assert [port for port in cluster.ports if processes.is_open(port)] == []


def test_every_process_ends_by_itself_after_the_evaluation(tmp_path, elsewhere, start_process):
    """2 ps and 2 workers, a plug-in from elsewhere: all exit 0, the chief evaluates, no port and no file stays.

    In sync, where a worker might wait for another one's gradient; for async see launch/test_launcher.py.
    """
    cluster = TaskCluster(2, 2)
    (tmp_path / "temporary").mkdir()
    cluster.start(start_process, [*TINY, f"--train_dir={tmp_path}/train", "--train_steps=150", *MODES["sync"]],
                  cwd=elsewhere, env={"TMPDIR": f"{tmp_path}/temporary"})
    start_process.wait_for_line("worker-0", "error = ")
    assert set(start_process.wait().values()) == {0}
    assert re.search(r"After 15[01] training steps, on 640 held-out examples:\n"
                     r"  loss = \S+ in sum, \S+ in the mean\n  error = \d\.\d{4}\n"
                     r"Training took \S+ s, \d+ examples per second over all workers", start_process.log("worker-0"))
    _assert_nothing_left(cluster)
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_task_prints_its_own_lines_only(tmp_path, elsewhere, start_process):
    """TensorFlow's start-up noise is not there: every line of a worker is one of ours."""
    cluster = TaskCluster(1, 1)
    for job, index in cluster.tasks():
        start_process.start(f"{job}-{index}", [*cluster.flags(job, index), *TINY, f"--train_dir={tmp_path}/train",
                                               "--train_steps=40"], cwd=elsewhere)
        start_process.wait_for_line(f"{job}-{index}", "serves at")  # no line of the worker's that it waits for the ps
    start_process.wait()
    ours = re.compile(r"\d\d:\d\d:\d\d (worker:0 (serves|computes)|starting from|step \d+ of 40|saved|training ended"
                      r"|staleness"
                      r"|4 parameters in 1 variable \(16 B\); \d+ B with the optimizer's slots, on 1 ps$)"
                      r"|After 40 training|  loss =|  error =|Training took|Steps of each|  worker:0")
    assert [line for line in start_process.log("worker-0").splitlines() if not ours.match(line)] == []
    of_ps = [line for line in start_process.log("ps-0").splitlines() if "waiting for a worker" not in line]
    assert len(of_ps) == 1, of_ps  # it waits where the machine is busy


def test_tf_config_describes_the_same_cluster_with_chief_and_evaluator(tmp_path, elsewhere, start_process):
    """A chief, a worker and an evaluator by TF_CONFIG; the evaluator evaluates the last checkpoint and ends."""
    tasks = [("ps", 0), ("chief", 0), ("worker", 0), ("evaluator", 0)]
    ports = processes.free_ports(len(tasks))
    spec = {job: [f"localhost:{port}"] for (job, _), port in zip(tasks, ports)}
    for job, index in tasks:
        tf_config = json.dumps({"cluster": spec, "task": {"type": job, "index": index}, "environment": "cloud"})
        start_process.start(job, [*TINY, f"--train_dir={tmp_path}/train", "--train_steps=100",
                                  f"--params=gate={tmp_path}/gate,gate_batch=10"], cwd=elsewhere,
                            env={"TF_CONFIG": tf_config})
    open_gates_when_evaluated(start_process, tmp_path, 2)
    assert set(start_process.wait().values()) == {0}
    final = re.search(r"After 10[01] training steps.*\n.*\n.*\n", start_process.log("chief"))[0]
    assert final in start_process.log("evaluator")
    # The chief may be so fast that nothing is left.
    assert re.search("training ended|nothing to train|took no step", start_process.log("worker"))


def test_the_lines_of_dist_mnist_and_an_evaluator_by_flags(tmp_path, elsewhere, start_process):
    """Without TF_CONFIG, and without --task_index where a job has one task; stdout is what the script would print."""
    cluster = TaskCluster(1, 1)
    flags = [*cluster.flags("worker", 0)[:2], "--model=tiny", "--dataset=tiny", "--batch_size=16", "--log_steps=1",
             "--train_steps=20", f"--train_dir={tmp_path}/train", "--log_format=dist_mnist",
             f"--params=gate={tmp_path}/gate,gate_batch=10"]
    for job in ("ps", "worker", "evaluator"):
        start_process.start(job, [*flags, f"--job_name={job}"], cwd=elsewhere)
    open_gates_when_evaluated(start_process, tmp_path, 1)
    assert set(start_process.wait().values()) == {0}
    result = r"After 20 training step\(s\), validation cross entropy = (\S+)\n"
    steps = "".join(rf"\d+\.\d+: Worker 0: training step {step} done \(global step: {step}\)\n"
                    for step in range(1, 21))
    printed = re.sub(r"(?m)^(\d\d:\d\d:\d\d .*)\n", "", start_process.log("worker"))  # what it logs to stderr
    found = re.fullmatch(
        r"job name = worker\ntask index = 0\nworker device = /job:worker/task:0/cpu:0\n"
        r"Worker 0: Initializing session\.\.\.\nWorker 0: Session initialization complete\.\n"
        rf"Training begins @ \d+\.\d+\n{steps}Training ends @ \d+\.\d+\n"
        rf"Training elapsed time: \d+\.\d+ s\n{result}", printed)
    assert found, printed
    assert start_process.log("ps").count("job name = ps\ntask index = 0\n") == 1
    evaluated = re.search(result, start_process.log("evaluator"))
    assert evaluated and evaluated[1] == found[1], start_process.log("evaluator")


def test_an_evaluator_that_sleeps_through_the_end_evaluates_the_last_checkpoint(tmp_path, elsewhere, start_process):
    """The ps have ended when it wakes up; the chief's journal says that training is over."""
    cluster = TaskCluster(1, 1)
    flags = [*cluster.flags("worker", 0)[:2], *TINY, "--train_steps=20", f"--train_dir={tmp_path}/train",
             f"--params=gate={tmp_path}/gate,gate_batch=10"]
    for job in ("ps", "worker", "evaluator"):
        start_process.start(job, [*flags, f"--job_name={job}"], cwd=elsewhere)
    start_process.wait_for_line("evaluator", "After ")
    start_process.pause("evaluator")
    (tmp_path / "gate.0").touch()
    assert [start_process.exit_code(job) for job in ("worker", "ps")] == [0, 0]
    start_process.resume("evaluator")
    assert start_process.exit_code("evaluator") == 0
    assert "After 20 training steps" in start_process.log("evaluator")


def test_existing_servers_are_used_twice_and_left_running(tmp_path, elsewhere, start_process):
    """Three trainings after each other on servers that `serve` started in another folder; SIGTERM ends these with 143.

    The chief of the second is stopped in its evaluation.
    """
    cluster = TaskCluster(1, 2)
    servers = [start_process.start(f"serve-{job}-{index}", ["serve", *cluster.flags(job, index), *TINY],
                                   cwd=tmp_path) for job, index in cluster.tasks()]
    gate = tmp_path / "gate"
    gate.touch()
    flags = [*TINY, "--existing_servers", "--train_dir=train", f"--params=eval_gate={gate}"]
    for run, mode in enumerate([*MODES.values(), MODES["sync"]]):
        is_stopped = run == 1
        if is_stopped:
            gate.unlink()
        clients = [start_process.start(
            f"client-{run}-{index}",
            [*cluster.flags("worker", index), *flags, f"--train_steps={60 * (run + 1)}", *mode], cwd=elsewhere)
            for index in range(2)]
        if is_stopped:
            start_process.wait_for_line(f"client-{run}-0", ", evaluating")
            clients[0].send_signal(signal.SIGTERM)
        assert [client.wait(processes.DEADLINE_SECS) for client in clients] == [143 if is_stopped else 0, 0]
        assert ("error = " in start_process.log(f"client-{run}-0")) == (not is_stopped)
        assert [server.poll() for server in servers] == [None] * 3
        assert state_on(cluster.ps[0]) == State.IDLE
        gate.touch()
    assert "continuing from" in start_process.log("client-1-0")
    for server in servers:
        server.send_signal(signal.SIGTERM)
    assert [server.wait(processes.DEADLINE_SECS) for server in servers] == [143] * 3
    _assert_nothing_left(cluster)


def test_sigterm_saves_and_the_same_command_continues(tmp_path, elsewhere, start_process):
    """The chief ends with 143 and a checkpoint, so does the ps with 143; a second run starts at that step."""
    flags = [*TINY, f"--train_dir={tmp_path}/train", "--train_steps=1000000"]
    cluster = TaskCluster(1, 1)
    cluster.start(start_process, flags, cwd=elsewhere)
    start_process.wait_for_line("worker-0", "step 20 of")
    start_process._processes["worker-0"].send_signal(signal.SIGTERM)
    assert start_process._processes["worker-0"].wait(processes.DEADLINE_SECS) == 143
    start_process._processes["ps-0"].send_signal(signal.SIGTERM)
    assert set(start_process.wait().values()) == {143}
    step = re.findall(r"saved \S+model.ckpt-(\d+)", start_process.log("worker-0"))[-1]
    again = TaskCluster(1, 1)
    for job, index in again.tasks():
        start_process.start(f"again-{job}", [*again.flags(job, index), *flags[:-1], f"--train_steps={int(step) + 5}"],
                            cwd=elsewhere)
    assert start_process._processes["again-worker"].wait(processes.DEADLINE_SECS) == 0
    assert f"continuing from {tmp_path}/train/model.ckpt-{step}" in start_process.log("again-worker")
    assert "this worker did 5 steps" in start_process.log("again-worker")


def test_a_missing_ps_is_named_and_the_exit_code_says_run_me_again(tmp_path, elsewhere, start_process):
    """Only the worker is started: 138, and a line with every missing ps and its address."""
    cluster = TaskCluster(2, 1)
    start_process.start("worker", [*cluster.flags("worker", 0), *TINY, f"--train_dir={tmp_path}/train",
                                   "--start_timeout_secs=1"], cwd=elsewhere)
    assert start_process.wait() == {"worker": 138}
    assert f"waited 1 s for ps:0 {cluster.ps[0]}, ps:1 {cluster.ps[1]}" in start_process.log("worker")


def test_a_busy_port_is_a_configuration_error(tmp_path, elsewhere, start_process):
    """The second ps at the same address exits 2 and says how to find the holder."""
    cluster = TaskCluster(1, 1)
    start_process.start("first", [*cluster.flags("ps", 0), *TINY], cwd=elsewhere)
    start_process.wait_for_line("first", "serves at")
    second = start_process.start("second", [*cluster.flags("ps", 0), *TINY], cwd=elsewhere)
    assert second.wait(processes.DEADLINE_SECS) == 2
    assert re.fullmatch(rf"ps_train: port {cluster.ports[0]} of ps:0 \S+ is in use by another process; .*ss -ltnp.*\n",
                        start_process.log("second"))


def test_a_fault_in_the_users_input_fn_shows_their_traceback(tmp_path, elsewhere, start_process):
    """Exit code 1, and the line of the plug-in."""
    cluster = TaskCluster(1, 1)
    start_process.start("worker", [*cluster.flags("worker", 0), *TINY,
                                   f"--train_dir={tmp_path}/train"], cwd=elsewhere, env={"TINY_FAULT": "input_fn"})
    assert start_process.wait() == {"worker": 1}
    log = start_process.log("worker")
    assert "tiny.py" in log and "RuntimeError: a fault in the user's input_fn" in log
    assert "serves at" not in log, "the fault was found only after a socket was opened"
