"""Unchanged scripts around Supervisor and MonitoredTrainingSession: they end, and go on after a loss."""

from __future__ import annotations

import json
import signal

from tests.processes import TaskCluster
from tests.system.parts.legacy.scripts import SCRIPTS, ScriptCluster

ENDLESS = ["--train_steps=1000000", "--step_secs=0.02"]


def _checkpoint(folder):
    from tests import clusters  # noqa: PLC0415 (it imports TensorFlow, which the processes need and this one does not)

    return clusters.read_checkpoint(folder)


def assert_ps_ended_well(group, name):
    """The ps ends in `join`: the code behind it was never reached."""
    assert "beyond join" not in group.log(name)
    assert "every worker has ended" in group.log(name)


def test_a_killed_worker_leaves_the_others_training_in_sync_and_may_come_back(start_process, tmp_path):
    """TensorFlow's own class waits for its gradients for ever."""
    arguments = [f"--model_dir={tmp_path}/train", "--sync", "--train_steps=80"]
    cluster = ScriptCluster(start_process, "monitored.py", [*arguments, f"--gate={tmp_path}/gate"])
    start_process.wait_for_line("worker-1", "is at gate 20")
    start_process.kill("worker-1")
    (tmp_path / "gate20").touch()
    start_process.wait_for_line("worker-0", "dead or never started: worker:1")
    start_process.wait_for_line("worker-0", "is at gate 40")
    cluster.start("worker", 1, name="worker-1-again", arguments=arguments)
    start_process.wait_for_line("worker-1-again", "has joined")
    (tmp_path / "gate40").touch()
    cluster.assert_ends_well(killed=("worker-1",))
    assert _checkpoint(tmp_path / "train")["global_step"] >= 79


def test_a_killed_chief_is_waited_for_in_sync_and_does_not_overwrite_the_parameters(start_process, tmp_path):
    """Matrix row 10, for a script: the step never goes back."""
    cluster = ScriptCluster(start_process, "monitored.py", [
        f"--model_dir={tmp_path}/train", "--sync", f"--gate={tmp_path}/gate", "--train_steps=120"], chief=True)
    start_process.wait_for_line("chief-0", "is at gate 20")
    start_process.kill("chief-0")
    for step in (20, 40):
        (tmp_path / f"gate{step}").touch()
    cluster.start("chief", 0, name="chief-0-again")
    cluster.assert_ends_well(killed=("chief-0",))
    steps = [int(line.rpartition(" ")[2]) for line in start_process.log("worker-0").splitlines() if "at step" in line]
    assert steps == sorted(steps) and steps[-1] >= 110


def test_a_chief_that_is_listed_again_as_worker_0_trains_in_sync_with_worker_1(start_process, tmp_path):
    """Issue: the address was refused as a duplicate. The script counts three workers, and nobody waits for a third."""
    cluster = ScriptCluster(start_process, "monitored.py", [f"--model_dir={tmp_path}/train", "--sync"], chief=True,
                            chief_again=True)
    cluster.assert_ends_well()
    assert "the cluster lists chief:0 again, as worker:0; they are one task" in start_process.log("chief-0")
    assert "but the cluster has 2 workers; they compute the 3 gradients" in start_process.log("chief-0")
    assert "worker 1 ends at step" in start_process.log("worker-1") and "lost" not in start_process.log("ps-0")
    assert _checkpoint(tmp_path / "train")["global_step"] >= 59


def test_after_the_death_of_a_ps_all_continue_from_one_checkpoint(start_process, tmp_path):
    """Matrix rows 12 and 13, for MonitoredTrainingSession; two ps, of which one is lost."""
    cluster = ScriptCluster(start_process, "monitored.py", [
        f"--model_dir={tmp_path}/train", f"--gate={tmp_path}/gate", "--train_steps=100"], num_ps=2)
    for worker in ("worker-0", "worker-1"):
        start_process.wait_for_line(worker, "is at gate 20")
    start_process.kill("ps-1")
    cluster.start("ps", 1, name="ps-1-again")
    for step in (20, 40):
        (tmp_path / f"gate{step}").touch()
    cluster.assert_ends_well(killed=("ps-1",))
    assert _checkpoint(tmp_path / "train")["global_step"] >= 100


def test_the_other_ps_wait_for_a_lost_ps_0_as_long_as_the_workers_do(start_process, tmp_path):
    """Issue: they ended with 0 after --beat_timeout_secs, so what Kubernetes started again found nobody."""
    cluster = ScriptCluster(start_process, "monitored.py", [
        f"--model_dir={tmp_path}/train", f"--gate={tmp_path}/gate", "--train_steps=100"], num_ps=2)
    for worker in ("worker-0", "worker-1"):
        start_process.wait_for_line(worker, "is at gate 20")
    start_process.kill("ps-0")
    start_process.wait_for_line("ps-1", "waiting for ps:0 ")  # ten seconds later
    cluster.start("ps", 0, name="ps-0-again")
    for step in (20, 40):
        (tmp_path / f"gate{step}").touch()
    cluster.assert_ends_well(killed=("ps-0",))
    assert _checkpoint(tmp_path / "train")["global_step"] >= 100


def test_a_supervisor_script_that_loses_its_ps_ends_with_138(start_process, tmp_path):
    """A Supervisor makes one session, so the process ends, in one line; started again, all train to the end, in sync.

    The chief saves the last step. For async see `launch run`.
    """
    arguments = [f"--log_dir={tmp_path}/train", f"--gate={tmp_path}/gate"]
    cluster = ScriptCluster(start_process, "supervised.py", arguments, by_flags=True)
    for worker in ("worker-0", "worker-1"):
        start_process.wait_for_line(worker, "is at the gate")
    start_process.kill("ps-0")
    (tmp_path / "gate").touch()
    assert {start_process.exit_code(worker) for worker in ("worker-0", "worker-1")} == {138}
    last_line = start_process.log("worker-1").splitlines()[-1]
    assert last_line.endswith("[session_lost]") and "--max_restarts" in last_line
    for job, index in cluster.tasks:
        cluster.start(job, index, name=f"{job}-{index}-again", arguments=[*arguments, "--sync_replicas"])
    assert {start_process.exit_code(f"{job}-{index}-again") for job, index in cluster.tasks} == {0}
    assert_ps_ended_well(start_process, "ps-0-again")
    assert _checkpoint(tmp_path / "train")["global_step"] >= 60
    assert "dropped" in start_process.log("worker-0-again")


def test_sigterm_saves_and_ends_every_task_with_143(start_process, tmp_path):
    """The loop of MonitoredTrainingSession ends, with a checkpoint."""
    cluster = ScriptCluster(start_process, "monitored.py", [f"--model_dir={tmp_path}/train", *ENDLESS])
    for worker in ("worker-0", "worker-1"):
        start_process.wait_for_line(worker, "at step")
    for job, index in cluster.tasks:
        start_process.signal(f"{job}-{index}", signal.SIGTERM)
    assert set(start_process.wait().values()) == {143}
    last_step = max(int(line.rpartition(" ")[2]) for line in start_process.log("worker-0").splitlines()
                    if "at step" in line)
    assert _checkpoint(tmp_path / "train")["global_step"] >= last_step


def test_the_chief_saves_on_sigterm_though_its_script_does_not_listen(start_process, tmp_path):
    """The script stands still in its own code, and its main thread cannot handle a signal."""
    ScriptCluster(start_process, "supervised.py", [f"--log_dir={tmp_path}/train", f"--gate={tmp_path}/gate"],
                  by_flags=True, num_workers=1)
    start_process.wait_for_line("worker-0", "is at the gate")
    start_process.signal("worker-0", signal.SIGTERM)
    assert start_process.exit_code("worker-0") == 143
    assert _checkpoint(tmp_path / "train")["global_step"] == 20
    start_process.signal("ps-0", signal.SIGTERM)
    assert start_process.exit_code("ps-0") == 143


def test_the_chief_of_a_monitored_session_saves_on_sigterm_though_its_loop_waits(start_process, tmp_path):
    """Issue: nothing was saved if the loop waited for data, or for an update, when the signal came."""
    ScriptCluster(start_process, "monitored.py", [f"--model_dir={tmp_path}/train", f"--gate={tmp_path}/gate"],
                  num_workers=1)
    start_process.wait_for_line("worker-0", "is at gate 20")
    start_process.signal("worker-0", signal.SIGTERM)
    assert start_process.exit_code("worker-0") == 143
    assert _checkpoint(tmp_path / "train")["global_step"] == 20
    assert "no checkpoint was saved" not in start_process.log("worker-0")
    start_process.signal("ps-0", signal.SIGTERM)
    assert start_process.exit_code("ps-0") == 143


def test_ctrl_c_reaches_a_script_without_a_loop_that_can_be_asked_to_end(start_process, tmp_path):
    """It ends as in plain Python, `finally` included, and says why; SIGTERM, as there, ends it at once."""
    script = tmp_path / "waiting.py"
    script.write_text("import time\ntry:\n    print('waits')\n    time.sleep(600)\n"
                      "except KeyboardInterrupt:\n    print('cleans up')\n")
    for name, number in (("interrupted", signal.SIGINT), ("terminated", signal.SIGTERM)):
        start_process.start(name, ["run", str(script)])
        start_process.wait_for_line(name, "waits")
        start_process.signal(name, number)
        assert start_process.exit_code(name) == 143
        log = start_process.log(name)  # in which another thread's line may stand before the end of the script's own
        assert log.count("[stopped]") == 1
        assert ("cleans up" in log) is (name == "interrupted")


THREADS = """
import concurrent.futures, os, sys, threading, time

def work(name):
    while not os.path.exists("gate"):
        time.sleep(0.05)
    sys.stdout.write(f"{name} ends\\n")  # in one piece: print's pieces mix with those of the other thread

pool = concurrent.futures.ThreadPoolExecutor(2)
pool.submit(print, "is idle from now on")
pool.submit(work, "a call")
threading.Thread(target=work, args=("a thread",), name="agent").start()
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print("main ends", flush=True)
"""


def test_a_script_ends_with_its_threads(start_process, tmp_path):
    """As in plain Python, but that a daemon and an idle executor do not matter; SIGTERM ends it meanwhile."""
    script = tmp_path / "threads.py"
    script.write_text(THREADS)
    start_process.start("stopped", ["run", str(script)], cwd=tmp_path)
    start_process.start("kept", ["run", str(script)], cwd=tmp_path)
    for name in ("stopped", "kept"):
        start_process.wait_for_line(name, "waiting for its thread")
    start_process.signal("stopped", signal.SIGTERM)
    assert start_process.exit_code("stopped") == 143
    (tmp_path / "gate").touch()
    assert start_process.exit_code("kept") == 0
    assert {"a call ends", "a thread ends"} <= set(start_process.log("kept").splitlines())


HARD_END = """
import json, os
import tensorflow as tf

tf_config = json.loads(os.environ["TF_CONFIG"])
job, index = tf_config["task"]["type"], tf_config["task"]["index"]
server = tf.train.Server(tf_config["cluster"], job, index)
if job == "ps":
    server.join()
with tf.device("/job:ps/task:0"):
    count = tf.Variable(0).assign_add(1)
with tf.train.MonitoredTrainingSession(server.target, index == 0) as session:
    print(job, index, "counts", session.run(count), flush=True)
os._exit(0)
"""


def test_a_script_that_ends_by_os_exit_leaves_no_ps_waiting(start_process, tmp_path):
    """Issue: the ps waited for the idle time-out, and ended with 138; in sync so did the other workers."""
    (tmp_path / "hard_end.py").write_text(HARD_END)
    ScriptCluster(start_process, str(tmp_path / "hard_end.py"), []).assert_ends_well()
    assert "worker 1 counts" in start_process.log("worker-1")


FORKS = """
import concurrent.futures, multiprocessing, os, time

def work():
    while not os.path.exists("gate"):
        time.sleep(0.05)
    print("the child ends", flush=True)

context = multiprocessing.get_context("fork")
manager = context.Manager()  # its process is no daemon, and Python ends it
shared, open_pool = manager.Queue(), context.Pool(1)
with context.Pool(2) as pool:  # its end sends SIGTERM to them
    print("the sum is", sum(pool.map(abs, range(4))))
reader = context.Process(target=time.sleep, args=(600,), daemon=True)
reader.start()  # Python ends it, also by SIGTERM
executor = concurrent.futures.ProcessPoolExecutor(1, mp_context=context)
print("the process says", executor.submit(abs, -5).result())
context.Process(target=work, name="agent").start()
print("main ends")
"""


def test_processes_that_a_script_forks_for_its_data_end_and_it_is_not_stopped(start_process, tmp_path):
    """Issue: they did not end, and the signal to them stopped the script; it did not wait for another child."""
    script = tmp_path / "forks.py"
    script.write_text(FORKS)
    start_process.start("forks", ["run", str(script)], cwd=tmp_path)
    start_process.wait_for_line("forks", "waiting for its process 'agent'")
    (tmp_path / "gate").touch()
    assert start_process.exit_code("forks") == 0
    log = start_process.log("forks")
    assert {"the sum is 6", "the process says 5", "main ends", "the child ends"} <= set(log.splitlines())
    assert "[stopped]" not in log and "atexit" not in log and "SyncManager" not in log


def test_a_failing_chief_ends_the_others(start_process, tmp_path):
    """Its traceback has the script's own lines only; the others end with 138 and say why."""
    cluster = ScriptCluster(start_process, "monitored.py", [f"--model_dir={tmp_path}/train", *ENDLESS])
    start_process.wait_for_line("worker-1", "at step")
    start_process.kill("worker-0")
    cluster.start("worker", 0, name="worker-0-again",
                  arguments=[f"--model_dir={tmp_path}/train", *ENDLESS, "--fail_at=5"])
    assert start_process.exit_code("worker-0-again") == 1
    assert "ValueError: this batch is broken" in start_process.log("worker-0-again")
    assert start_process.exit_code("ps-0") == start_process.exit_code("worker-1") == 138
    assert "[chief_failed]" in start_process.log("worker-1")


def test_a_chief_whose_updates_fail_ends_the_others(start_process, tmp_path):
    """Its main thread waits inside TensorFlow for the update, so another thread ends the process."""
    ScriptCluster(start_process, "monitored.py", [f"--model_dir={tmp_path}/train", "--sync", "--fail_update_at=10"],
                  num_workers=1)
    assert start_process.exit_code("worker-0") == 1
    assert "InvalidArgumentError: assertion failed" in start_process.log("worker-0")
    assert start_process.exit_code("ps-0") == 138
    assert start_process.log("ps-0").count("[chief_failed]") == 1


def test_a_missing_ps_is_named_within_the_start_timeout(start_process, tmp_path):
    """TensorFlow's own Session waits for it without a bound, and says nothing."""
    group = start_process
    group.start("worker", ["run", "--start_timeout_secs=1", str(SCRIPTS / "supervised.py"), f"--log_dir={tmp_path}",
                           "--ps_hosts=localhost:9", "--worker_hosts=localhost:9997", "--job_name=worker"])
    assert group.exit_code("worker") == 138
    last_line = group.log("worker").splitlines()[-1]
    assert "ps:0 localhost:9" in last_line and "[timed_out]" in last_line


def test_a_ps_that_never_finds_ps_0_ends_after_the_idle_timeout(start_process, tmp_path):
    """Only ps 0 knows of the workers."""
    cluster = {"ps": ["localhost:9", "localhost:9996"], "worker": ["localhost:9997"]}
    start_process.start("ps", ["run", "--idle_timeout_secs=1", str(SCRIPTS / "monitored.py")], env={
        "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "ps", "index": 1}})})
    assert start_process.exit_code("ps") == 138
    assert "[no_workers]" in start_process.log("ps")


def test_launch_run_starts_all_tasks_of_a_script_with_its_hosts_written_in(start_process, tmp_path):
    """The script's own addresses are replaced, also in the target of its session."""
    start_process.start("launch", ["launch", "run", str(SCRIPTS / "written_hosts.py"), "{job_name}", "{task_index}",
                                   str(tmp_path / "train")])
    assert start_process.exit_code("launch") == 0
    taken = [int(line.split()[-2]) for line in start_process.log("launch").splitlines() if " took " in line]
    assert len(taken) == 2 and sum(taken) >= 19
    assert "ps:0 0 (" in start_process.log("launch")
    assert (tmp_path / "train" / "checkpoint").exists()


def test_launch_run_finds_flags_in_an_imported_module_and_refuses_to_call_lonely_training_a_success(
        start_process, tmp_path):
    """Issue: tasks that knew of no cluster trained alone, and the launcher ended with 0 and no word."""
    (tmp_path / "main.py").write_text("import own\nown.tf.app.run(own.main)\n")
    (tmp_path / "own.py").write_text((SCRIPTS / "supervised.py").read_text())
    start_process.start("imported", ["launch", "run", "--num_workers=1", str(tmp_path / "main.py"),
                                  f"--log_dir={tmp_path}/train"])
    (tmp_path / "alone.py").write_text("import tensorflow as tf\nprint(tf.Session().run(tf.constant(3)))\n")
    start_process.start("alone", ["launch", "run", "--num_workers=1", str(tmp_path / "alone.py")])
    assert start_process.exit_code("imported") == 0
    assert (tmp_path / "train" / "checkpoint").exists()
    assert start_process.exit_code("alone") == 1
    last_line = start_process.log("alone").splitlines()[-1]
    assert last_line.endswith("[no_worker_joined]") and "--hosts_flags=" in last_line


def test_launch_run_refuses_lonely_training_of_tensorflow_2_and_without_ps(start_process, tmp_path):
    """Issue: these, too, ended with 0; for a strategy see test_kinds.py."""
    (tmp_path / "keras.py").write_text(
        "import numpy as np\nimport tensorflow as tf\nmodel = tf.keras.Sequential([tf.keras.layers.Dense(1)])\n"
        "model.compile('sgd', 'mse')\nmodel.fit(np.zeros((8, 2)), np.zeros((8, 1)), verbose=0)\n")
    (tmp_path / "alone.py").write_text("import tensorflow as tf\nprint(tf.Session().run(tf.constant(3)))\n")
    start_process.start("keras", ["launch", "run", "--num_workers=1", str(tmp_path / "keras.py")])
    assert start_process.exit_code("keras") == 1
    assert "tf.distribute strategy" in start_process.log("keras").splitlines()[-1]
    start_process.start("alone", ["launch", "run", "--num_ps=0", str(tmp_path / "alone.py")])
    assert start_process.exit_code("alone") == 1
    assert start_process.log("alone").splitlines()[-1].endswith("[no_worker_joined]")


def test_launch_run_names_the_worker_that_did_not_join(start_process, tmp_path):
    """The ps waits for it, and is ended then. A script that only prints its help needs nobody."""
    (tmp_path / "own.py").write_text((SCRIPTS / "supervised.py").read_text())
    (tmp_path / "main.py").write_text(
        "import sys\nimport tensorflow as tf\nimport own\n"
        "if '--task_index=1' in sys.argv and '--job_name=worker' in sys.argv:\n"
        "    print(tf.Session().run(tf.constant(3)))\n"
        "else:\n    tf.app.run(own.main)\n")
    start_process.start("launch", ["launch", "run", str(tmp_path / "main.py"), f"--log_dir={tmp_path}/train"])
    (tmp_path / "helping.py").write_text(
        "import argparse\nimport tensorflow as tf\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--task_index')\nparser.parse_args()\n")
    start_process.start("help", ["launch", "run", str(tmp_path / "helping.py"), "--help"])
    assert start_process.exit_code("launch") == 138
    assert "Warning: worker:1 did not join the ps" in start_process.log("launch")
    assert start_process.exit_code("help") == 0
    assert "--task_index" in start_process.log("help")


def test_workers_that_wait_for_each_other_in_local_init_op_train(start_process):
    """Issue: they waited for the chief, which waited for them."""
    start_process.start("launch", ["launch", "run", str(SCRIPTS / "barrier.py")])
    assert start_process.exit_code("launch") == 0
    assert {"worker 0 ends", "worker 1 ends"} <= {
        line.rpartition("| ")[2] for line in start_process.log("launch").splitlines()}


def test_a_script_of_ones_own_imports_the_classes(start_process, tmp_path):
    """Plain Python runs it: `join` returns, the chief makes updates to the end, and every process exits with 0."""
    ports = TaskCluster(1, 2)
    for job, index in ports.tasks():
        start_process.start(f"{job}-{index}", [",".join(ports.ps), ",".join(ports.workers), job, str(index),
                                               str(tmp_path / "train")], cwd=tmp_path,
                            script=str(SCRIPTS / "imported.py"), is_exec=(job, index) == ("worker", 0))
    assert set(start_process.wait().values()) == {0}
    assert "training is over" in start_process.log("ps-0") and "worker 1 ends" in start_process.log("worker-1")
    assert _checkpoint(tmp_path / "train")["global_step"] >= 40
