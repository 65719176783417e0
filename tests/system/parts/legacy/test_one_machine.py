"""Scripts that make a whole cluster on one machine: several servers in one process, or processes of their own."""

from __future__ import annotations

import importlib.util

import pytest

from tests import processes

HEAD = """\
import subprocess, sys
import tensorflow as tf
ps, worker_0, worker_1 = sys.argv[1:4]
cluster = tf.train.ClusterSpec({"ps": [ps], "worker": [worker_0, worker_1]})
"""
SERVERS = HEAD + """\
servers = [tf.train.Server(cluster, job_name=job, task_index=index) for job, index in %s]
with tf.device("/job:ps/task:0"):
    total = tf.Variable(0.0)
for index in range(2):
    with tf.device("/job:worker/task:%%d" %% index):
        add = tf.assign_add(total, index + 1.0)
    with tf.Session("grpc://" + (worker_0, worker_1)[index]) as session:
        if index == 0:
            session.run(tf.global_variables_initializer())
        print("total is", session.run(add))
"""


@pytest.mark.parametrize("order", [
    [("ps", 0), ("worker", 0), ("worker", 1)], [("worker", 0), ("worker", 1), ("ps", 0)],
    [("worker", 1), ("ps", 0), ("worker", 0)]])
def test_a_script_with_all_servers_in_its_process_ends(start_process, tmp_path, order):
    """Issue: where the ps came last, its end waited for the worker of the same process."""
    (tmp_path / "script.py").write_text(SERVERS % order)
    ports = processes.TaskCluster(1, 2)
    start_process.start("script", ["run", str(tmp_path / "script.py"), *ports.ps, *ports.workers])
    assert start_process.exit_code("script") == 0
    assert "total is 1.0\ntotal is 3.0\n" in start_process.log("script")


ONE_OF_TWO = HEAD + """\
if sys.argv[4] == "both":
    servers = [tf.train.Server(cluster, job_name=job, task_index=0) for job in ("worker", "ps")]
else:
    servers = [tf.train.Server(cluster, job_name="worker", task_index=1)]
with tf.device("/job:ps/task:0"):
    step = tf.train.get_or_create_global_step()
    add = tf.assign_add(step, 1)
last_step = 5 if sys.argv[4] == "both" else 200
with tf.train.MonitoredTrainingSession(servers[0].target, is_chief=sys.argv[4] == "both") as session:
    while session.run(step) < last_step:
        session.run(add)
print("ended at", last_step)
"""


def test_a_ps_in_the_process_of_a_worker_serves_the_other_one_to_its_end(start_process, tmp_path):
    """The first worker ends long before the other."""
    (tmp_path / "script.py").write_text(ONE_OF_TWO)
    ports = processes.TaskCluster(1, 2)
    for name in ("both", "other"):
        start_process.start(name, ["run", str(tmp_path / "script.py"), *ports.ps, *ports.workers, name])
    assert start_process.wait() == {"both": 0, "other": 0}
    assert "ended at 200" in start_process.log("other")


STARTS_PROCESSES = HEAD + """\
def start(python, job, index):
    return subprocess.Popen([python, __file__, ps, worker_0, worker_1, job, str(index)])

if len(sys.argv) == 4:
    serving = start("python", "ps", 0)
    workers = [start(sys.executable, "worker", index) for index in range(2)]
    print("exit codes", [process.wait() for process in workers + [serving]])
    sys.exit(0)
server = tf.train.Server(cluster, job_name=sys.argv[4], task_index=int(sys.argv[5]))
if sys.argv[4] == "ps":
    server.join()
with tf.device(tf.train.replica_device_setter(cluster=cluster)):
    step = tf.train.get_or_create_global_step()
    add = tf.assign_add(step, 1)
with tf.train.MonitoredTrainingSession(
        server.target, is_chief=sys.argv[5] == "0", hooks=[tf.train.StopAtStepHook(last_step=20)]) as session:
    while not session.should_stop():
        session.run(add)
print "worker", sys.argv[5], "ends"
"""


SPAWNS = """
import multiprocessing
import sys
import tensorflow as tf

tf.app.flags.DEFINE_integer("number", 3, "what is squared")

def work(results):
    with tf.Graph().as_default(), tf.Session() as session:
        squares = [session.run(tf.square(tf.constant(tf.app.flags.FLAGS.number))) for _ in xrange(1)]
    results.put(map(int, squares)[0])

def main(_):
    for method in sys.argv[2:]:
        context = multiprocessing.get_context(method)
        results = context.Queue()
        process = context.Process(target=work, args=(results,))
        process.start()
        print("result", method, results.get())
        process.join()
        print("exit code", process.exitcode)

if __name__ == "__main__":
    tf.app.run()
"""


def test_the_processes_that_multiprocessing_starts_anew_run_as_the_script_does(start_process, tmp_path):
    """Issue: they had plain TensorFlow, without tf.app, and Python 3 without `xrange`."""
    (tmp_path / "script.py").write_text(SPAWNS)
    start_process.start("script", ["run", str(tmp_path / "script.py"), "--number=5", "spawn", "forkserver"])
    assert start_process.exit_code("script", 4 * processes.DEADLINE_SECS) == 0
    log = start_process.log("script")
    assert "result spawn 25\nexit code 0\nresult forkserver 25\nexit code 0\n" in log


@pytest.mark.skipif(importlib.util.find_spec("fissix") is None, reason="needs the extra python2")
def test_the_tasks_that_a_script_starts_as_processes_run_as_it_does(start_process, tmp_path):
    """Issue: plain TensorFlow ran them, which has no tf.train, and plain Python, which reads no Python 2."""
    (tmp_path / "script.py").write_text(STARTS_PROCESSES)
    ports = processes.TaskCluster(1, 2)
    start_process.start("script", ["run", str(tmp_path / "script.py"), *ports.ps, *ports.workers])
    assert start_process.exit_code("script", 4 * processes.DEADLINE_SECS) == 0  # two starts, one after the other
    log = start_process.log("script")
    assert "[0, 0, 0]" in log
    assert "worker 0 ends" in log and "worker 1 ends" in log
