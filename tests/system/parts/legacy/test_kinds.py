"""Unchanged scripts of further kinds: Estimator, contrib.learn, Keras under MultiWorkerMirroredStrategy, Python 2."""

from __future__ import annotations

import importlib.util
import json

import pytest

from tests import processes
from tests.system.parts.legacy.scripts import SCRIPTS, ScriptCluster


def test_an_estimator_trains_in_a_cluster_and_its_evaluator_evaluates_the_last_checkpoint(start_process, tmp_path):
    """train_and_evaluate with chief, worker, ps and evaluator; for canned ones see the tests in one process."""
    cluster = ScriptCluster(start_process, "estimator_script.py", [f"--model_dir={tmp_path}/model"], chief=True,
                            evaluator=True)
    cluster.assert_ends_well()
    assert "chief 0 ends" in start_process.log("chief-0") and "worker 0 ends" in start_process.log("worker-0")
    from tests import clusters  # noqa: PLC0415 (it imports TensorFlow, which the processes need and this one does not)

    last_step = clusters.read_checkpoint(tmp_path / "model")["global_step"]
    assert last_step >= 60
    assert f"global step {last_step}: accuracy" in start_process.log("evaluator-0")


def test_an_experiment_of_contrib_learn_trains(start_process, tmp_path):
    """Its RunConfig takes worker 0 for the chief, where tf.estimator's needs a task of that name."""
    cluster = ScriptCluster(start_process, "learn_script.py", [f"--job-dir={tmp_path}/model"])
    cluster.assert_ends_well()
    assert "the experiment ends" in start_process.log("worker-0")
    assert (tmp_path / "model" / "checkpoint").exists()


def test_a_keras_script_trains_with_keras_2(start_process, tmp_path):
    """MultiWorkerMirroredStrategy needs it on today's TensorFlow; the checkpoints are in TensorFlow's format.

    A strategy is a cluster without a ps of ours, so `launch` does not take it for training alone.
    """
    start_process.start("launch", ["launch", "run", "--num_ps=0", str(SCRIPTS / "keras_strategy.py"), str(tmp_path)])
    assert start_process.exit_code("launch") == 0
    for worker in (0, 1):
        assert f"worker {worker} ends with tf_keras" in start_process.log("launch")
    assert (tmp_path / "worker0" / "ckpt_2.index").exists()  # the other worker's are temporary


PARAMETER_SERVER = """\
import tensorflow as tf
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type != "chief":
    server = tf.distribute.Server(resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id)
    server.join()
coordinator = tf.distribute.coordinator.ClusterCoordinator(tf.distribute.ParameterServerStrategy(resolver))
with coordinator.strategy.scope():
    count = tf.Variable(0.0)
for _ in range(4):
    coordinator.schedule(tf.function(lambda: count.assign_add(1.0)))
coordinator.join()
print("counted", count.numpy())
"""


def test_the_servers_of_parameter_server_strategy_end_with_their_chief(start_process, tmp_path):
    """Issue: TensorFlow's `join` never returns, so that `launch run` never ended."""
    (tmp_path / "script.py").write_text(PARAMETER_SERVER)
    start_process.start("launch", ["launch", "run", "--chief_job=chief", str(tmp_path / "script.py")])
    assert start_process.exit_code("launch") == 0
    assert "counted 4.0" in start_process.log("launch")


PYTHON_2 = """\
import tensorflow as tf
import helper
FILES = "hdfs://cluster/data/part-*"
if True:
\tlines = open(tf.gfile.Glob(FILES)[0]).read().split()
        print "lines", len(lines) / 2
dataset = tf.data.TextLineDataset(["hdfs://cluster/data/part-0"])
with tf.Session() as session:
    print session.run(dataset.make_one_shot_iterator().get_next())
for i in xrange(1):
    helper.fail(i)
"""
PYTHON_2_HELPER = """\
import cPickle
def fail(i):
\tprint "helper", cPickle.loads(cPickle.dumps(i))
\traise ValueError, "of the helper"
"""


@pytest.mark.skipif(importlib.util.find_spec("fissix") is None, reason="needs the extra python2")
@pytest.mark.parametrize("flags", [["--python2"], []], ids=["said", "found"])
def test_a_script_of_python_2_runs_converted_and_stays_as_it_is(start_process, tmp_path, flags):
    """Its module, too, and the path in both; the traceback has the lines of the original. No flag need say so."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data/part-0").write_text("a\nb\nc\n")
    (tmp_path / "script.py").write_text(PYTHON_2)
    (tmp_path / "helper.py").write_text(PYTHON_2_HELPER)
    script = str(tmp_path / "script.py")
    start_process.start("run", ["run", *flags, f"--map_path=hdfs://cluster/data={tmp_path}/data", script])
    assert start_process.exit_code("run") == 1
    log = start_process.log("run")
    assert "lines 1\na\nhelper 0\n" in log
    assert (f"{script} is Python 2: a converted copy runs" in log) is (not flags)
    assert f'  File "{tmp_path}/helper.py", line 4, in fail\n    raise ValueError, "of the helper"\n' in log
    assert (tmp_path / "script.py").read_text() == PYTHON_2 and (tmp_path / "helper.py").read_text() == PYTHON_2_HELPER
    assert not (tmp_path / "__pycache__").exists()


LEFT_OVER = """\
import cPickle, pickle, sys
import tensorflow as tf
for name, value in {"a": 7}.iteritems():
    print(name, value / 2, map(str, xrange(2))[1], tf.mul(2, 3).shape, cPickle.loads(cPickle.dumps(5)))
pickle.dump({"b": 8}, open(sys.argv[1], "w"), 2)
print >>sys.stdout, "%d left" % pickle.load(open(sys.argv[1]))["b"]
print ("%d is %d") % (8, sorted([8, 9], lambda x, y: y - x)[1])
"""


def test_what_remained_of_python_2_runs_without_a_flag(start_process, tmp_path):
    """In a script that Python 3 can read, whose division is that of Python 3."""
    (tmp_path / "script.py").write_text(LEFT_OVER)
    start_process.start("run", ["run", str(tmp_path / "script.py"), str(tmp_path / "pickle")])
    assert start_process.exit_code("run") == 0
    assert "a 3.5 1 () 5\n8 left\n8 is 8\n" in start_process.log("run")


SERVER = """\
import json, sys
import tensorflow as tf
cluster, job, index = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
server = tf.train.Server(tf.train.ClusterSpec(cluster), job_name=job, task_index=index)
"""
CLIENT = """\
with tf.device(sys.argv[4]):
    variable = tf.Variable(3.0)
with tf.Session("grpc://" + cluster[job][index]) as session:
    session.run(tf.global_variables_initializer())
    twice = variable * 2
    for _ in range(500):
        value = session.run(twice)
    print("twice is", value)
"""


SPARSE = """
import json, sys
import tensorflow as tf

cluster, job, index = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
if job == "worker":
    cluster["worker"] = {index: cluster["worker"][index]}
cluster = tf.train.ClusterSpec(cluster)
server = tf.train.Server(cluster, job_name=job, task_index=index)
if job == "ps":
    server.join()
else:
    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{index}")):
        step = tf.train.get_or_create_global_step()
        weight = tf.get_variable("weight", [3])
        optimizer, hooks = tf.train.GradientDescentOptimizer(0.01), [tf.train.StopAtStepHook(last_step=200)]
        if sys.argv[4] == "sync":
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, replicas_to_aggregate=2, total_num_replicas=2)
            hooks.append(optimizer.make_session_run_hook(index == 0))
        train_op = optimizer.minimize(tf.reduce_sum(tf.square(weight - 1.0)), step)
    with tf.train.MonitoredTrainingSession(server.target, is_chief=index == 0, hooks=hooks) as session:
        while not session.should_stop():
            session.run(train_op)
    print("ends")
"""


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_workers_that_know_the_ps_and_themselves_train_together(start_process, tmp_path, mode):
    """Issue: such a worker was refused, as its cluster has other workers than that of the ps."""
    (tmp_path / "sparse.py").write_text(SPARSE)
    ps, *workers = (f"localhost:{port}" for port in processes.free_ports(3))
    cluster = json.dumps({"ps": [ps], "worker": workers})
    for job, index in (("ps", 0), ("worker", 0), ("worker", 1)):
        start_process.start(f"{job}-{index}", ["run", str(tmp_path / "sparse.py"), cluster, job, str(index), mode])
    assert start_process.wait() == {"ps-0": 0, "worker-0": 0, "worker-1": 0}
    assert all("ends" in start_process.log(f"worker-{index}") for index in (0, 1))


@pytest.mark.parametrize(("server_job", "client_job"), [("local", "local"), ("ps", "trainer")])
def test_a_server_of_other_jobs_serves_until_its_client_has_ended(start_process, tmp_path, server_job, client_job):
    """`join` ended at once, or waited for workers; and blanks in an address, as TensorFlow took them."""
    (tmp_path / "server.py").write_text(SERVER + "server.start()\nserver.join()\n")
    (tmp_path / "client.py").write_text(SERVER + CLIENT)
    cluster: dict = {}
    for job, port in zip((client_job, server_job), processes.free_ports(2)):
        cluster.setdefault(job, []).append(f"localhost: {port}")
    index = str(len(cluster[server_job]) - 1)
    start_process.start("server", [
        "run", "--beat_timeout_secs=2", str(tmp_path / "server.py"), json.dumps(cluster), server_job, index])
    start_process.start("client", ["run", str(tmp_path / "client.py"), json.dumps(cluster), client_job, "0",
                                   f"/job:{server_job}/task:{index}"])
    assert start_process.wait() == {"server": 0, "client": 0}
    assert "twice is 6.0" in start_process.log("client")


def test_servers_that_have_joined_do_not_wait_for_each_other(start_process, tmp_path):
    """Two of one job serve the third, whose script is the client, and end with it."""
    (tmp_path / "server.py").write_text(SERVER + "server.join()\n")
    (tmp_path / "client.py").write_text(SERVER + CLIENT)
    cluster = json.dumps({"local": [f"localhost:{port}" for port in processes.free_ports(3)]})
    for index in ("1", "2"):
        start_process.start(f"server {index}", [
            "run", "--beat_timeout_secs=2", str(tmp_path / "server.py"), cluster, "local", index])
    start_process.start("client", ["run", str(tmp_path / "client.py"), cluster, "local", "0", "/job:local/task:2"])
    assert start_process.wait() == {"server 1": 0, "server 2": 0, "client": 0}
    assert "twice is 6.0" in start_process.log("client")


ALL_TASKS = '''
import multiprocessing, sys
import tensorflow as tf

def work(cluster, job, index):
    server = tf.train.Server(cluster, job_name=job, task_index=index)
    if job == "ps":
        server.join()
    with tf.device(tf.train.replica_device_setter(worker_device="/job:worker/task:%d" % index, cluster=cluster)):
        count = tf.train.get_or_create_global_step().assign_add(1)
    hooks = [tf.train.StopAtStepHook(last_step=20)]
    with tf.train.MonitoredTrainingSession(server.target, is_chief=index == 0, hooks=hooks) as session:
        while not session.should_stop():
            session.run(count)

hosts = {"ps": sys.argv[1:2], "worker": sys.argv[2:]}
context = multiprocessing.get_context("fork")
tasks = [context.Process(target=work, args=(hosts, job, index))
         for job in hosts for index in range(len(hosts[job]))]
for task in tasks:
    task.start()
for task in tasks:
    task.join()
print("exit codes", [task.exitcode for task in tasks])
'''


def test_a_script_that_starts_its_tasks_itself_ends(start_process, tmp_path):
    """Issue: the ps waited for workers that had ended, as the end of such a process calls nothing of `atexit`."""
    (tmp_path / "all_tasks.py").write_text(ALL_TASKS)
    ports = processes.TaskCluster(1, 2)
    start_process.start("script", ["run", str(tmp_path / "all_tasks.py"), *ports.ps, *ports.workers])
    assert start_process.exit_code("script") == 0
    assert "exit codes [0, 0, 0]" in start_process.log("script")
