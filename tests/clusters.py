"""Clusters of in-process servers: graphs, updates and sessions are tested on TensorFlow's real runtime."""

from __future__ import annotations

import os
import pathlib
import threading

import numpy as np

import ps_train
from ps_train.cluster.spec import Cluster
from ps_train.config.task import Config
from ps_train.coordination import blackboard
from ps_train.graph import placement
from ps_train.graph.optimizers import OptimizerPlan
from ps_train.parts import table
from ps_train.plugins import contracts
from ps_train.runtime.waits import Timeouts
from ps_train.storage import saver
from ps_train.storage.journal import Journal
from ps_train.tasks import ps, setup
from ps_train.tasks.worker import ConnectedWorker, PreparedWorker
from ps_train.testing import read_checkpoint  # noqa: F401 (used as clusters.read_checkpoint)
from ps_train.training import evaluation, recovery, replica_graph
from ps_train.training import loop as step_loop
from ps_train.updates import update
from tests import processes
from tests.tensorflow_mode import tf

EVAL_PARAMS = {"batch_size": 24, "seed": None}
SAVED_WEIGHTS = np.array([0.5, -1.0, 2.0, 0.0], np.float32)
TRUE_WEIGHTS = np.array([1.0, -2.0, 3.0, 0.5], np.float32)


class GraphCluster:
    """The addresses of a cluster without servers: enough to build graphs for it."""

    def __init__(self, num_ps: int, num_workers: int) -> None:
        ports = iter(processes.free_ports(num_ps + num_workers))
        self.addresses = {job: {index: f"localhost:{next(ports)}" for index in range(count)}
                          for job, count in (("ps", num_ps), ("worker", num_workers))}

    def view(self, job: str, index: int) -> Cluster:
        """Returns the cluster as one task sees it."""
        return Cluster(job, index, self.addresses)


class LocalCluster(GraphCluster):
    """Servers of all tasks, in this process; they end with it, as TensorFlow cannot stop a server."""

    def __init__(self, num_ps: int, num_workers: int) -> None:
        super().__init__(num_ps, num_workers)
        self.servers = {(job, index): self._start(job, index)
                        for job, tasks in self.addresses.items() for index in tasks}
        # Of each ps, made once: making one takes a tenth of a second of CPU time.
        self._boards = [blackboard.for_ps(self.target("ps", index), self.view("ps", index))
                        for index in self.addresses["ps"]]

    def _start(self, job: str, index: int) -> tf.train.Server:
        """Starts a task's server with the options that a real task gives it; its idle threads do not spin, for one."""
        config = setup.session_threads(self.view(job, index), device_count={"GPU": 0})
        return tf.train.Server(tf.train.ClusterSpec(self.addresses), job_name=job, task_index=index, config=config)

    def target(self, job: str, index: int) -> str:
        """Returns the address of one task's server."""
        return self.servers[job, index].target

    def create_blackboard(self) -> None:
        """Does what each ps does when it starts."""
        for board in self._boards:
            board.close()  # the session may be from before a reset of the server
            board.create()

    def keeping_time(self):
        """Returns a context that runs the clock of ps 0."""
        return ps.running_clock(self._boards[0])


def start(num_ps: int, num_workers: int) -> LocalCluster:
    """Starts a cluster with its blackboard up."""
    cluster = LocalCluster(num_ps, num_workers)
    cluster.create_blackboard()
    return cluster


def linear_data(num_examples: int = 64, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Returns float32 features [n, 4] and labels [n] of an exactly linear function."""
    features = np.random.default_rng(seed).normal(size=(num_examples, 4)).astype(np.float32)
    return features, features @ TRUE_WEIGHTS


def linear_model(parts: int = 1, **defaults) -> contracts.Model:
    """Returns a linear regression that begins at zero, with its weights cut into parts."""

    def model_fn(features, labels, mode, params):
        weights = tf.get_variable("weights", [4], initializer=tf.zeros_initializer(),
                                  partitioner=tf.fixed_size_partitioner(parts) if parts > 1 else None)
        bias = tf.get_variable("bias", [], initializer=tf.zeros_initializer())
        predictions = tf.linalg.matvec(features, tf.convert_to_tensor(weights)) + bias
        return ps_train.ModelSpec(
            loss=tf.reduce_mean(tf.square(predictions - labels)), predictions=predictions,
            eval_metric_ops={"error": tf.metrics.mean_absolute_error(labels, predictions)})

    return contracts.Model("linear", model_fn, defaults)


def model_of(predict):
    """Returns a model with the squared error of `predict(features)`."""
    def model_fn(features, labels, mode, params):
        predictions = predict(features)
        return ps_train.ModelSpec(loss=tf.reduce_mean(tf.square(predictions - labels)), predictions=predictions)

    return contracts.Model("small", model_fn, {})


def array_dataset(features: np.ndarray, labels: np.ndarray, **options) -> contracts.Dataset:
    """Returns a dataset of a worker's share of the arrays; in training shuffled and repeated by default."""

    def input_fn(mode, params, shard):
        index, count = shard
        wanted = {"shuffle": True, "repeat": True, **options} if mode == ps_train.TRAIN else {}
        return ps_train.from_arrays((features[index::count], labels[index::count]), params["batch_size"],
                                    seed=params["seed"], **wanted)

    return contracts.Dataset("arrays", input_fn, lambda params: None, {})


def build_graph(
    cluster: GraphCluster, index: int, gradients: int | None = None, optimizer_name: str = "sgd",
    learning_rate: float = 0.05, model=None, dataset=None, params=None, floor: int = 1, plan=placement.BY_BYTES,
    bound=None, steps_per_execution: int = 1, flags=None, **chosen,
) -> replica_graph.TrainGraph:
    """Builds one worker's graph.

    Args:
      gradients: the number averaged into an update, None for async.
      flags: of its parts.
      chosen: other fields of UpdateSettings, SyncSettings and OptimizerPlan.
    """
    view = cluster.view("worker", index)
    rule = {name: chosen.pop(name) for name in ("rule", "decays_all_rows", "make_model_optimizer") if name in chosen}
    if chosen.pop("sync_engine", None) == "tensorflow":
        from ps_train.parts.tensorflow_sync.part import tensorflow_engine as engine  # noqa: PLC0415 (left out at times)
    else:
        engine = None
    updates = update.UpdateSettings(
        OptimizerPlan(optimizer_name, learning_rate, **rule), worker=index,
        sync=update.SyncSettings(gradients, view.num_workers, floor, engine) if gradients else None, **chosen)
    params = params or {"batch_size": 8, "seed": 7}
    graph_settings = replica_graph.GraphSettings(
        view.task.device + "/cpu:0", updates, plan, bound, seed=3, steps_per_execution=steps_per_execution)
    return replica_graph.build_train_graph(
        view, model or linear_model(), params, dataset or array_dataset(*linear_data()), params, graph_settings,
        parts=table.make_parts(Config(num_gpus=0, **(flags or {})), view))


def schedule(train_steps: int) -> step_loop.LoopSettings:
    """Returns a loop's schedule without lines or summaries."""
    return step_loop.LoopSettings(worker_name="worker:0", train_steps=train_steps, batch_size=8, log_steps=0,
                                  save_summaries_steps=0, step_timeout_secs=60.0)


class Worker(threading.Thread):
    """One worker's supervised training in a thread, as a process would run it."""

    def __init__(self, cluster: LocalCluster, index: int, train_dir, train_steps: int, stop=None, saves=None,
                 start_timeout_secs=30.0, end_timeout_secs=20.0, shared_flags=None, heartbeat_timeout_secs=20.0,
                 **graph_options):
        """Prepares it.

        Args:
          heartbeat_timeout_secs: shorter only where a worker dies: on a busy machine a heartbeat may be seconds late.
          graph_options: of `build_graph`.
        """
        super().__init__(daemon=True)
        view = cluster.view("worker", index)
        timeouts = Timeouts(start_secs=start_timeout_secs, heartbeat_secs=heartbeat_timeout_secs,
                            end_secs=end_timeout_secs)
        saves = saves or saver.SaveSchedule(every_secs=0, every_steps=0, keep_max=5, timeout_secs=30.0)
        defaults = setup.worker_settings(Config(num_gpus=0), view)
        own = defaults._replace(
            num_gpus=0, has_server=True,  # that of the test
            loop=schedule(train_steps)._replace(worker_name=view.task.name),
            sessions=recovery.SessionSettings(train_dir=str(train_dir), saves=saves, timeouts=timeouts),
            identity=defaults.identity._replace(shared_flags=shared_flags or {}))
        self.stop = stop or threading.Event()
        self.graph = build_graph(cluster, index, **graph_options)
        plugins = setup.LoadedPlugins(None, {}, graph_options.get("dataset") or array_dataset(*linear_data()), {})
        task = PreparedWorker(own, view, plugins, self.graph, Journal(""), self.stop)
        self._connected = ConnectedWorker(task, cluster.target("worker", index))
        self.board, self.heartbeat = self._connected.board, self._connected.heartbeat
        self.progress, self.supervised = self._connected.progress, self._connected.supervised
        self.schedule = own.loop
        self.session: tf.Session | None = None
        self.outcome = None
        self.error: BaseException | None = None

    def body(self, live, write_summary):
        """Trains; a test may replace it."""
        self.session = live
        return self.loop(live, write_summary).run()

    def loop(self, live, write_summary=None, train_steps=None, run_step=None):
        """Returns the loop that a session's body runs, to another step than the worker's own where one is given."""
        self._connected.schedule = (self.schedule if train_steps is None
                                    else self.schedule._replace(train_steps=train_steps))
        return self._connected.loop(live, write_summary, run_step=run_step)

    def run(self) -> None:
        """Trains to the end."""
        try:
            self._connected.claim_number()
            with self.heartbeat.running():
                self.outcome = self._connected.train(lambda live, write: self.body(live, write))
        except BaseException as error:  # noqa: BLE001 (handed to the test)
            self.error = error

    def result(self, deadline_secs: float = 60.0):
        """Returns the outcome, which must be there before the deadline; raises what the worker raised."""
        self.join(deadline_secs)
        assert not self.is_alive(), "the worker still trains"
        self.board.close()
        if self.error:
            raise self.error
        return self.outcome


def remove_checkpoints(train_dir: pathlib.Path) -> None:
    """Leaves the folder of a training that has not saved."""
    for path in train_dir.glob("*ckpt*"):
        path.unlink()


def train_together(cluster: LocalCluster, train_dir, train_steps: int, num_workers: int, **graph_options) -> list:
    """Returns the outcomes of all workers, none of which takes a step before all can."""
    workers = [Worker(cluster, index, train_dir, train_steps, **graph_options) for index in range(num_workers)]
    all_can = threading.Barrier(num_workers)
    for worker in workers:
        # Else one may have taken all steps before another has its session, which then ends without any.
        worker.body = _after_first(all_can, worker.body)
        worker.start()
    return [worker.result() for worker in workers]


def _after_first(barrier: threading.Barrier, body):
    """Returns a worker's body that waits at the barrier in its first session."""
    waiting = [barrier]

    def begin(live, write_summary):
        if waiting:
            waiting.pop().wait(60)
        return body(live, write_summary)

    return begin


def save_linear(folder, step, bias=0.25):
    """Saves a linear model with SAVED_WEIGHTS at a global step."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("weights", initializer=SAVED_WEIGHTS)
        tf.get_variable("bias", initializer=np.float32(bias))
        tf.get_variable("global_step", initializer=np.int64(step))
        session.run(tf.global_variables_initializer())
        return tf.train.Saver().save(session, os.path.join(str(folder), "model.ckpt"), step)


def linear_evaluator(features, labels):
    """Returns an Evaluator of the linear model."""
    return evaluation.Evaluator(linear_model(), EVAL_PARAMS, array_dataset(features, labels), EVAL_PARAMS)
