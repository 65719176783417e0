"""Workers that come and go: real processes, and what they are made of in this process.

Each worker trains so many mini-batches, then waits in its input until its gate is opened; others come and go meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
import shutil
import signal

import numpy as np
import pytest

from ps_train.cluster.spec import Cluster, Task
from ps_train.config.task import Config
from ps_train.coordination import blackboard, sessions
from ps_train.coordination.state import State
from ps_train.errors import BlackboardError, ConfigError
from ps_train.plugins import contracts
from ps_train.tasks import setup
from ps_train.training import replica_graph
from tests import clusters, processes
from tests.errors import raises
from tests.processes import REPO
from tests.tensorflow_mode import tf

GATE_BATCH = 30
LOG_STEPS = 10
TRAIN_STEPS = 300


class ElasticTraining:
    """Two ps that know no worker, as with Kubeflow's operator, and workers that know only themselves."""

    def __init__(self, tmp_path, group, flags=(), params="", train_steps=TRAIN_STEPS, is_ps_last=False):
        """Starts the ps, unless they come last: an idle one would else end before a worker that is late is there."""
        self.folder, self.group = tmp_path, group
        self.train_dir = tmp_path / "train"
        shutil.copy(REPO / "tests/plugins/tiny.py", tmp_path)
        self.ps = [f"localhost:{port}" for port in processes.free_ports(2)]
        self.flags = ["--model=tiny", "--dataset=tiny", "--batch_size=16", f"--log_steps={LOG_STEPS}",
                      f"--train_steps={train_steps}", f"--train_dir={self.train_dir}", "--start_timeout_secs=60",
                      "--beat_timeout_secs=4", f"--params=gate={tmp_path}/gate,gate_batch={GATE_BATCH}{params}", *flags]
        if not is_ps_last:
            self.start_all_ps()

    def start_all_ps(self):
        """Starts both."""
        for index in range(2):
            self.start_ps(index, f"ps-{index}")

    def start_ps(self, index, name):
        """Starts a ps that knows itself only."""
        self._start(name, {"ps": [self.ps[index]], "worker": {}}, "ps", index)

    def start_worker(self, index, name=None):
        """Starts a worker that no other task knows."""
        name = name or f"worker-{index}"
        address = f"localhost:{processes.free_ports(1)[0]}"
        self._start(name, {"ps": self.ps, "worker": {str(index): address}}, "worker", index, TINY_GATE=name)

    def start_evaluator(self):
        """Starts an evaluator, which knows the ps only."""
        self._start("evaluator", {"ps": self.ps, "worker": {}}, "evaluator", 0)

    def _start(self, name, cluster, job, index, **environ):
        text = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
        self.group.start(name, self.flags, cwd=self.folder, env={"TF_CONFIG": text, **environ})

    def wait_for_gates(self, *names):
        """Returns when these workers have trained up to their gates."""
        for name in names:
            self.group.wait_for_line(name, "examples/s", number=GATE_BATCH // LOG_STEPS)

    def open_gates(self, *names):
        """Lets these workers train on."""
        for name in names:
            pathlib.Path(f"{self.folder}/gate.{name}").touch()


@pytest.fixture
def train(tmp_path, start_process):
    """A function that starts an ElasticTraining."""
    return lambda *args, **kwargs: ElasticTraining(tmp_path, start_process, *args, **kwargs)


def steps_by_worker(log):
    """Returns name -> steps of the table at the end of the chief's log, and the total that stands above it."""
    table = re.search(r"^Steps of each worker, (\d+) in all:\n((?:  .*\n)+)", log, re.MULTILINE)
    rows = re.findall(r"^  (worker:\d+).*?\s{2,}(\d+)\s+[\d.]+%", table[2], re.MULTILINE)
    assert len(rows) == len(table[2].splitlines()), table[2]
    return {name: int(steps) for name, steps in rows}, int(table[1])


def test_a_third_worker_joins_the_second_leaves_and_training_ends_well(train):
    """No ps knows a worker at the start; all that stay exit 0, and the chief reports the steps of each worker.

    In rounds of local steps; with single steps workers join and leave in the next test and in deploy/test_deploy.py.
    """
    period = 5
    # A summary of a round takes another batch, and then the chief comes to its gate with a line less.
    training = train([f"--communication_period={period}", "--save_summaries_steps=0"])
    training.start_evaluator()
    for index in range(2):
        training.start_worker(index)
    training.wait_for_gates("worker-0", "worker-1")
    training.start_worker(2)
    training.wait_for_gates("worker-2")
    training.group.signal("worker-1", signal.SIGTERM)
    training.group.wait_until_heard("worker-1")  # else it takes steps until it hears of it
    training.open_gates("worker-1")
    assert training.group.exit_code("worker-1") == 143
    training.open_gates("worker-0", "worker-2")
    codes = training.group.wait()
    assert {name for name, code in codes.items() if code} == {"worker-1"}
    log = training.group.log("worker-0")
    steps, total = steps_by_worker(log)
    assert total == sum(steps.values()) == int(clusters.read_checkpoint(training.train_dir)["global_step"])
    assert set(steps) == {"worker:0", "worker:1", "worker:2"}
    assert GATE_BATCH <= steps["worker:1"] <= GATE_BATCH + 2 * period
    assert [line for line in log.splitlines() if "left before the end" in line and "worker:1 " in line]
    assert "ending without" not in log, "the chief waited for the worker that had left"
    assert f"After {total} training steps" in training.group.log("evaluator")


def test_a_worker_and_a_ps_die_and_come_back(train):
    """As in a fixed cluster: the worker rejoins, and all ps are restored together."""
    # Without end, as the chief waits at the end for no worker that has not made its new session yet.
    training = train(["--save_model_secs=1"], params=",batch_secs=0.01", train_steps=10**6)
    for index in range(2):
        training.start_worker(index)
    training.wait_for_gates("worker-0", "worker-1")
    training.group.kill("worker-1")
    training.start_worker(1, "worker-1-again")
    training.wait_for_gates("worker-1-again")
    training.group.wait_for_line("worker-0", "saved ")
    training.group.kill("ps-1")
    training.start_ps(1, "ps-1-again")
    training.open_gates("worker-0", "worker-1-again")
    for name in ("worker-0", "worker-1-again"):  # a line of steps after the loss
        training.group.wait_for_line(name, "examples/s", number=GATE_BATCH // LOG_STEPS + 1)
    for name in ("ps-0", "ps-1-again", "worker-0", "worker-1-again"):
        training.group.signal(name, signal.SIGTERM)
    assert {code for name, code in training.group.wait().items() if name not in ("worker-1", "ps-1")} == {143}
    log = training.group.log("worker-0")
    [restored] = re.findall(r"a ps has lost its parameters at about step \d+: restoring all ps from \S+-(\d+)\n", log)
    assert "Traceback" not in log + training.group.log("worker-1-again")
    assert clusters.read_checkpoint(training.train_dir)["global_step"] >= int(restored) + 2 * LOG_STEPS


def test_a_ps_that_knew_itself_only_ends_when_all_workers_died(train):
    """The chief sent it the address of ps 0, which knows the workers: both end with 138."""
    training = train(["--idle_timeout_secs=12"], is_ps_last=True)
    training.start_worker(0)
    training.group.wait_for_line("worker-0", "serves at")
    training.start_all_ps()
    training.wait_for_gates("worker-0")
    training.group.kill("worker-0")
    assert [training.group.exit_code(f"ps-{index}") for index in range(2)] == [138, 138]
    assert "[no_workers]" in training.group.log("ps-1")


class ElasticServers:
    """Servers that know themselves only, in this process."""

    def __init__(self, num_ps, num_workers):
        ports = iter(processes.free_ports(num_ps + num_workers))
        self.ps = {index: f"localhost:{next(ports)}" for index in range(num_ps)}
        self.workers = {index: f"localhost:{next(ports)}" for index in range(num_workers)}
        self.targets = {}
        for job, tasks in (("ps", self.ps), ("worker", self.workers)):
            for index in tasks:
                self.targets[job, index] = setup.start(self.view(job, index), num_gpus=0)

    def view(self, job, index):
        """Returns the cluster as the task sees it: a ps itself, a worker all ps and itself."""
        ps = {index: self.ps[index]} if job == "ps" else self.ps
        return Cluster(job, index, {"ps": ps, "worker": {index: self.workers[index]} if job == "worker" else {}}, True)


def test_a_ps_learns_from_the_chief_where_ps_0_is():
    """Until then it cannot know whether there are workers; then it sees what the workers write on ps 0."""
    servers = ElasticServers(2, 2)
    with contextlib.ExitStack() as stack:
        def opened(board):
            return stack.enter_context(contextlib.closing(board))

        boards = [opened(blackboard.for_ps(servers.targets["ps", index], servers.view("ps", index)))
                  for index in range(2)]
        for board in boards:
            board.create()
        with pytest.raises(BlackboardError, match="ps:1 .* does not know the address of ps:0 yet"):
            blackboard.for_first_ps(boards[1], servers.view("ps", 1))
        chief, other = (opened(blackboard.for_worker(servers.targets["worker", index], servers.view("worker", index)))
                        for index in range(2))
        chief.start_run()
        seen = opened(blackboard.for_first_ps(boards[1], servers.view("ps", 1)))
        other.claim(1, claim=5)
        assert seen.snapshot().alive(within_secs=60) == [1]
        assert [board.state() for board in boards] == [State.RUNNING] * 2


def test_sessions_of_workers_that_do_not_know_each_other_share_variables():
    """Each brings the addresses of the ps and of itself; a session without a server is a client of ps 0."""
    servers = ElasticServers(1, 2)
    values = []
    for index in (0, 1, None):
        tasks = [Task("ps", 0, servers.ps[0])] + ([] if index is None else [servers.view("worker", index).task])
        target = f"grpc://{servers.ps[0]}" if index is None else servers.targets["worker", index]
        with tf.Graph().as_default():
            with tf.device(tasks[0].device):
                counts = tf.get_variable("counts", [2], initializer=tf.zeros_initializer())
            with tf.device(tasks[-1].device):
                ones = tf.ones([2])
            added = counts.assign_add(ones)
            with tf.Session(target, config=sessions.options(tasks, is_elastic=True)) as session:
                if index == 0:
                    session.run(counts.initializer)
                values.append(session.run(added))
    np.testing.assert_array_equal(values, [[1, 1], [2, 2], [3, 3]])


@pytest.mark.parametrize("is_elastic", [True, False])
def test_a_task_of_the_other_kind_is_refused(start_servers, is_elastic):
    """An elastic task at a fixed ps, and a fixed one at an elastic ps: a configuration error, not a wait."""
    view = (start_servers if is_elastic else ElasticServers)(1, 1).view("worker", 0)
    visitor = blackboard.for_client(Cluster(view.job, view.index, view.addresses, is_elastic))
    with contextlib.closing(visitor), pytest.raises(ConfigError, match=r"ps:0 localhost:\d+ is not the ps that "
                                                    "this task expects.*all with or all without --elastic"):
        visitor.state()


def test_sync_replicas_needs_the_number_of_workers():
    """It is not known how many gradients make an update."""
    view = Cluster("worker", 3, {"ps": {0: "a:1"}, "worker": {3: "c:1"}}, is_elastic=True)
    with raises("workers_unknown", kind=ConfigError):
        setup.update_settings(Config(sync_replicas=True), view)


def test_each_worker_draws_all_data_in_an_order_of_its_own():
    """The shard is (0, 1), and a seed that was given is made different for each."""
    seen = []

    def input_fn(mode, params, shard):
        seen.append((params["seed"], shard))
        return dataset.input_fn(mode=mode, params=params, shard=shard)

    dataset = clusters.array_dataset(*clusters.linear_data())
    params = {"batch_size": 8, "seed": 5}
    loaded = setup.LoadedPlugins(clusters.linear_model(), params,
                            contracts.Dataset("arrays", input_fn, lambda params: None, {}), params)
    for index in (0, 3):
        view = Cluster("worker", index, {"ps": {0: "a:1"}, "worker": {index: "c:1"}}, is_elastic=True)
        settings = setup.worker_settings(Config(seed=5, num_gpus=0), view)
        replica_graph.build_train_graph(view, *loaded, settings.graph)
    assert seen == [(5, (0, 1)), (8, (0, 1))]
