"""Estimators under `tf.distribute` strategies: what TensorFlow's `estimator_training` did, which 2.16 has removed.

    ParameterServerStrategy               no strategy, but ps_train's parameter servers (names/run_config.py)
    any other: no cluster, an evaluator   the strategy, on the devices of this process; the Estimator needs nothing here
    MultiWorkerMirroredStrategy           TensorFlow's coordinator: each worker has the variables, and collective
                                          operations average the gradients of all workers; there is no ps
    MirroredStrategy, OneDeviceStrategy   TensorFlow's coordinator: the chief's graph has the operations of all workers,
                                          whose servers run them

The Estimator calls the first five functions by their names, in TensorFlow's module. The coordinator itself and the
strategies are part of each TensorFlow from 2.14 to 2.21, so the numbers are theirs. Their waits have no bound: a
worker whose peer has died stays in its step for ever. So each worker that trains has a `PeerWatch`.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import logging
import threading
import time
import types
from typing import Any, Callable

import tensorflow.compat.v1 as tf
from tensorflow.python.distribute import (  # no public names
    collective_all_reduce_strategy,
    distribute_coordinator,
    mirrored_strategy,
)

from ps_train.cluster import reachability
from ps_train.cluster.spec import Cluster, Task
from ps_train.cluster.tf_config import parse_tf_config
from ps_train.errors import ClusterLostError, ConfigError
from ps_train.parts.legacy import strategy_ends
from ps_train.parts.legacy.classic import clients, ending
from ps_train.parts.legacy.classic.script_cluster import addresses_of, launched_addresses
from ps_train.runtime import tensorflow_errors, threads
from ps_train.runtime.waits import Timeouts

_CHECK_SECS = 1.0
_MARK = "ps_train/has_taken_a_step"  # of a worker, in its server, while its session is open
_LEFT = "ps_train/is_left"  # in the server of such a worker: another one was started again, and waits for its end
_ABORTED = "Collective ops is aborted"
_log = logging.getLogger(__name__)


class _State:
    """What `serve_by` has set."""

    timeouts = Timeouts()


def init_run_config(config: Any, tf_config: dict) -> None:
    """Gives a RunConfig with strategies its task in the cluster.

    Raises:
      ConfigError: the strategies are given twice, train from a client outside the cluster, or lack a ps.
    """
    from ps_train.parts.legacy.names import run_config  # noqa: PLC0415 (it needs the Estimator)

    _take_strategies(config)
    run_config.drop_parameter_server_strategy(config, tf_config)
    strategy, task = config.train_distribute, tf_config.get("task", {}).get("type")
    if strategy is None or not tf_config.get("cluster") or task == "evaluator":
        config._distribute_coordinator_mode = None  # noqa: SLF001 (the Estimator reads it)
        run_config.place(config, tf_config)
        return
    parsed = parse_tf_config(json.dumps(tf_config), needs_ps=False)
    names = {"master": "chief"}  # the coordinator knows one name of the two
    addresses = launched_addresses(parsed.addresses, parsed.sparse_jobs)
    cluster = {names.get(job, job): list(tasks.values()) for job, tasks in addresses.items()
               if job not in ("ps", "evaluator")}
    config._distribute_coordinator_mode = distribute_coordinator.CoordinatorMode.INDEPENDENT_WORKER  # noqa: SLF001
    vars(config)["listed_cluster"] = Cluster(parsed.job, parsed.index, addresses)  # with its ps
    run_config.take_cluster(config, cluster, {"type": names.get(parsed.job, parsed.job), "index": parsed.index})
    config._is_chief = True  # noqa: SLF001 (as with TensorFlow, for model_to_estimator: all workers start from a file)
    _log.info("the Estimator trains under %s on %s", type(strategy).__name__, ", ".join(
        f"{job}:{index}" for job, tasks in cluster.items() for index in range(len(tasks))))


def _take_strategies(config: Any) -> None:
    """Takes the strategies of a `DistributeConfig` for those of the RunConfig."""
    given = vars(config).get("_experimental_distribute")  # the Estimator sets it by its name
    if given is None:
        return
    if getattr(given, "remote_cluster", None):
        raise ConfigError("strategy_remote_cluster", "RunConfig: got experimental_distribute with remote_cluster; "
                          "allowed: none; start a task with TF_CONFIG for each address of that cluster")
    for name in ("train_distribute", "eval_distribute"):
        strategy = getattr(given, name, None)
        if strategy is not None and getattr(config, name) is not None:
            raise ConfigError("strategy_given_twice", f"RunConfig: got {name} and experimental_distribute.{name}; "
                              "allowed: one of them")
        if strategy is not None:
            setattr(config, f"_{name}", strategy)


def should_run_distribute_coordinator(config: Any) -> bool:
    """Returns whether `train_and_evaluate` trains by this module's function."""
    return bool(getattr(config, "_distribute_coordinator_mode", None))


def train_and_evaluate(estimator: Any, train_spec: Any, eval_spec: Any, executor_class: Any) -> None:
    """Trains on this task of the cluster; only an evaluator evaluates, and that is none of this module's tasks."""
    def train(trained: Any, strategy: Any, hooks: list) -> Any:
        takes_listeners = not strategy.extended.experimental_between_graph
        if train_spec.saving_listeners and not takes_listeners:
            _log.warning("TrainSpec.saving_listeners are not called under %s", type(strategy).__name__)
        return trained.train(train_spec.input_fn, max_steps=train_spec.max_steps, hooks=[*train_spec.hooks, *hooks],
                             saving_listeners=train_spec.saving_listeners if takes_listeners else None)

    _coordinate(estimator, train)


def estimator_train(estimator: Any, train_distributed: Callable, hooks: list) -> Any:
    """Trains on this task of the cluster, for `Estimator.train`; TensorFlow refuses that."""
    return _coordinate(estimator, lambda trained, strategy, watch: train_distributed(
        trained, strategy, [*hooks, *watch]))


def estimator_evaluate(estimator: Any, evaluate_distributed: Callable, hooks: list) -> Any:
    """Evaluates on this task alone, without a strategy, for `Estimator.evaluate`; TensorFlow refuses that."""
    alone = copy.deepcopy(estimator)
    alone._eval_distribution = None  # noqa: SLF001 (where the Estimator has it)
    return evaluate_distributed(alone, None, hooks)


def _coordinate(estimator: Any, train: Callable[[Any, Any, list], Any]) -> Any:
    """Returns what `train(estimator, strategy, hooks)` returns, called by TensorFlow's coordinator.

    On a task that has nothing to train the process ends here.
    """
    config = estimator._config  # noqa: SLF001 (`config` is a copy)
    wait_on_ps(config)
    cluster = Cluster(config.task_type, config.task_id, addresses_of(config.cluster_spec))
    is_collective = config.train_distribute.extended.experimental_between_graph
    only_serves = not is_collective and not cluster.is_chief
    served = [] if is_collective else cluster.workers[1:]
    told = [*served, *config.listed_cluster.ps]  # set by `init_run_config`
    _refuse_other_server(config)
    if cluster.is_chief:
        strategy_ends.withdraw(told, estimator.model_dir)
    with contextlib.suppress(SystemExit) if only_serves else contextlib.nullcontext():
        result = distribute_coordinator.run_distribute_coordinator(
            _watching(estimator, cluster, is_collective, train), config.train_distribute,
            mode=config._distribute_coordinator_mode,  # noqa: SLF001 (as above)
            cluster_spec=config.cluster_spec, task_type=config.task_type, task_id=config.task_id,
            session_config=config.session_config)
    if only_serves:
        strategy_ends.end_as_server(cluster)
    if cluster.is_chief:
        strategy_ends.announce(told, estimator.model_dir, _State.timeouts)
    config._is_chief = cluster.is_chief  # noqa: SLF001 (see `init_run_config`)
    return result


def _refuse_other_server(config: Any) -> None:
    """Raises ConfigError if the server of this process was started with other options, for another Estimator."""
    wanted = copy.deepcopy(config.session_config) or tf.ConfigProto(allow_soft_placement=True)
    distribute_coordinator._configure_session_config_for_std_servers(  # noqa: SLF001 (no public place)
        config.train_distribute, None, wanted, config.cluster_spec, config.task_type, config.task_id)
    started = distribute_coordinator._thread_local  # noqa: SLF001 (as above; it asserts what is compared here)
    if getattr(started, "server", None) is not None and started.session_config_str != repr(wanted):
        raise ConfigError("strategy_differs", "RunConfig: got another strategy or session_config than the first "
                          "Estimator, whose server this process keeps; allowed: the same for all")


def _watching(estimator: Any, cluster: Cluster, is_collective: bool, train: Callable) -> Callable[[Any], Any]:
    """Returns what the coordinator calls with a strategy, to train while the other workers are watched."""
    def run(strategy: Any) -> Any:
        trained = copy.deepcopy(estimator)
        vars(trained._config).update(  # noqa: SLF001 (`config` is a copy)
            _train_distribute=strategy, _distribute_coordinator_mode=None, _is_chief=cluster.is_chief)
        trained._train_distribution = strategy  # noqa: SLF001
        with contextlib.ExitStack() as stack:
            watch = PeerWatch(cluster, _State.timeouts, stack, is_collective=is_collective)
            try:
                return train(trained, strategy, [watch])
            except tf.errors.OpError as error:  # of any type
                watch.raise_if_aborted(error)
                raise

    return run


def wait_on_ps(config: Any) -> None:
    """Waits for the end of training, and ends the process, on a ps of a cluster that trains under a strategy."""
    if config.task_type == "ps":
        _wait_as_ps(config.listed_cluster)  # set by `init_run_config`


def _wait_as_ps(cluster: Cluster) -> None:
    strategy_ends.wait_as_ps(cluster.task, cluster.workers, distribute_coordinator.server_lib.Server, _State.timeouts)


class PeerWatch(tf.train.SessionRunHook):
    """Ends this process if another worker is gone, whose part of a step it would await for ever."""

    def __init__(self, cluster: Cluster, timeouts: Timeouts, stack: contextlib.ExitStack, *,
                 is_collective: bool) -> None:
        """Watches the other workers from the first session until `stack` is closed.

        Args:
          is_collective: whether all workers have a session, which one that is started again cannot join.
        """
        self._peers = [task for task in cluster.workers if task != cluster.task]
        self._task, self._timeouts, self._stack = cluster.task, timeouts, stack
        self._bound_secs = timeouts.heartbeat_secs
        self._session_secs: float | None = None  # since when a session is created
        self._step_secs: float | None = None  # since when a step runs
        self._lost_secs: dict[Task, float] = {}  # since when one of the others does not answer
        self._is_collective = is_collective
        self._ended: set[Task] = set()  # even if they are started again
        self._is_marked = False

    def begin(self) -> None:
        """Waits for the other workers.

        Raises:
          ClusterLostError: one of them did not come within the start time-out.
          StoppedError: a signal asked this process to stop.
        """
        stop = threading.Event()
        ending.on_stop(stop.set)
        reachability.wait_for_tasks(self._peers, self._timeouts.start_secs, stop, self._is_ready)
        self._session_secs = time.monotonic()
        self._stack.enter_context(threads.repeating(self._check, period_secs=_CHECK_SECS, name="peers"))

    def _is_ready(self, task: Task) -> bool:
        """Returns whether a worker is in no session; if it is, this one has left that, perhaps by its death."""
        is_ready = not (self._is_collective and clients.has_mark(task, _MARK))
        if not is_ready:
            clients.set_mark(task, _LEFT)
        return is_ready

    def after_create_session(self, session: tf.Session, coord: tf.train.Coordinator) -> None:
        """All workers have prepared their variables, which waits for each of them; also where a session was lost.

        Raises:
          ClusterLostError: it was lost, and all workers need new ones: TensorFlow would create one for ever.
        """
        if self._is_collective and self._session_secs is None:
            raise self._lost_session("the session was lost")
        self._session_secs = self._step_secs = None
        self._bound_secs = self._timeouts.heartbeat_secs

    def before_run(self, run_context: Any) -> None:
        """A worker that ends during a step takes no more part in it."""
        self._bound_secs = self._timeouts.heartbeat_secs
        self._step_secs = time.monotonic()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Between steps the others may have ended, while this worker still saves."""
        self._step_secs = None
        self._bound_secs = self._timeouts.start_secs
        if self._is_collective and not self._is_marked:  # all take part, so none looks for the mark any more
            clients.set_mark(self._task, _LEFT, is_set=False)
            self._is_marked = clients.set_mark(self._task, _MARK)
            self._stack.callback(clients.set_mark, self._task, _MARK, is_set=False)

    def end(self, session: tf.Session) -> None:
        """As between steps: at the end of the input there was no `after_run`, and the last checkpoint comes now."""
        self._step_secs = None
        self._bound_secs = self._timeouts.start_secs

    def _check(self) -> None:
        lost = [task for task in self._peers if not reachability.accepts(task.address)]
        if ending.script_ended.is_set():
            return
        now_secs, peers = time.monotonic(), ", ".join(map(str, self._peers))
        self._ended |= {task for task in lost if self._is_collective and _refuses(task.address)}
        # The time of a loss begins now: this process may have been suspended before.
        self._lost_secs = {task: self._lost_secs.get(task, now_secs) for task in self._peers
                           if task in lost or task in self._ended}
        gone = [str(task) for task, lost_secs in self._lost_secs.items() if now_secs - lost_secs > self._bound_secs]
        if gone:
            ending.end_process(ClusterLostError(
                "task_lost", f"{self._task.name} has had no answer of {', '.join(gone)} for {self._bound_secs:g} s: it "
                "has died, or its input has ended before that of the others; start all tasks again: they continue "
                "from the last checkpoint"))
        if (self._is_marked and self._takes_longer(self._step_secs, self._timeouts.heartbeat_secs)
                and clients.has_mark(self._task, _LEFT)):
            ending.end_process(self._lost_session("it waits for a new session"))
        if self._takes_longer(self._session_secs, self._timeouts.start_secs):
            ending.end_process(ClusterLostError(
                "timed_out", f"waited {self._timeouts.start_secs:g} s (--start_timeout_secs) for a session with "
                f"{peers}: a worker still evaluates or builds its graph, or the workers differ in their code, or in "
                "model_dir, which must be the same one on a shared disk"))
        if self._takes_longer(self._step_secs, self._timeouts.step_secs):
            ending.end_process(ClusterLostError(
                "workers_missing", f"a step with {peers} took longer than {self._timeouts.step_secs:g} s "
                "(--step_timeout_secs): one of them hangs, was restarted, or has ended its training; start all tasks "
                "again: they continue from the last checkpoint"))

    def raise_if_aborted(self, error: tf.errors.OpError) -> None:
        """Raises ClusterLostError if a session has ended with an error because of another worker."""
        if _ABORTED in error.message:
            raise self._lost_session(tensorflow_errors.reason(error)) from error

    def _lost_session(self, reason: str) -> ClusterLostError:
        return ClusterLostError(
            "task_lost", f"{self._task.name} cannot train with {', '.join(map(str, self._peers))}, one of which has "
            f"died or was started again: {reason}; start all tasks again: they continue from the last checkpoint")

    def _takes_longer(self, begun_secs: float | None, bound_secs: float) -> bool:
        return begun_secs is not None and time.monotonic() - begun_secs > bound_secs


def _refuses(address: str) -> bool:
    """Returns whether no process listens there: the one that did has ended, which an unreachable one need not have."""
    return isinstance(reachability.connection_error(address), ConnectionRefusedError)


FUNCTIONS = (init_run_config, should_run_distribute_coordinator, train_and_evaluate, estimator_train,
             estimator_evaluate)


def offer_functions(module: types.ModuleType) -> None:
    """Puts the functions that the Estimator calls into the module where it looks for them.

    TensorFlow's own, which 2.14 and 2.15 have there, stay for a client outside the cluster.
    """
    for function in FUNCTIONS:
        original = getattr(module, function.__name__, None)
        if original is None:
            setattr(module, function.__name__, function)
        elif original is not function and not hasattr(original, "__wrapped__"):
            setattr(module, function.__name__, _unless_client(function, original))


def _unless_client(function: Callable, original: Callable) -> Callable:
    @functools.wraps(original)
    def call(first: Any, *args: Any) -> Any:  # `first` is a RunConfig, or an Estimator
        given = vars(getattr(first, "_config", first)).get("_experimental_distribute")
        return (original if getattr(given, "remote_cluster", None) else function)(first, *args)

    return call


def serve_by(server_class: Any) -> None:
    """Lets the coordinator start this server, and strategies begin on all tasks and machines."""
    _State.timeouts = getattr(server_class, "default_timeouts", _State.timeouts)
    distribute_coordinator.server_lib = types.SimpleNamespace(Server=_sharing_state(server_class))
    for extended, change in ((collective_all_reduce_strategy.CollectiveAllReduceExtended, _of_any_task),
                             (mirrored_strategy.MirroredExtended, _without_gpus)):
        initialize = extended._initialize_strategy  # noqa: SLF001 (no public place)
        if not hasattr(initialize, "__wrapped__"):  # done before
            extended._initialize_strategy = change(initialize)  # noqa: SLF001


def _sharing_state(server_class: Any) -> Callable:
    """Returns how the coordinator starts a server: sessions that do not ask for a state of their own share one.

    The strategy's session asks for it. With that as the server's default no session would find `strategy_ends`' mark.
    """
    def start(*args: Any, config: tf.ConfigProto | None = None, **kwargs: Any) -> Any:
        shared = copy.deepcopy(config) or tf.ConfigProto()
        shared.isolate_session_state = False
        return server_class(*args, config=shared, **kwargs)

    return start


def _without_gpus(initialize: Callable) -> Callable:
    """Returns how MirroredStrategy begins: on a machine without a GPU, replicas on GPUs are one on the CPU.

    Otherwise all of them would be on the one CPU, where their collective operations wait for each other for ever.
    """
    @functools.wraps(initialize)
    def initialize_strategy(self: Any, devices: Any, *args: Any, **kwargs: Any) -> None:
        are_here = not any("/job:" in str(device) for device in devices)
        if are_here and "GPU" in str(devices).upper() and not tf.config.list_physical_devices("GPU"):
            _log.info("MirroredStrategy: this machine has no GPU, so there is one replica, on the CPU")
            devices = ["/device:CPU:0"]
        initialize(self, devices, *args, **kwargs)

    return initialize_strategy


def _of_any_task(initialize: Callable) -> Callable:
    """Returns how the strategy begins, also where TensorFlow raises: on a ps, and on an evaluator of no cluster."""
    @functools.wraps(initialize)
    def initialize_strategy(self: Any, cluster_resolver: Any, *args: Any, **kwargs: Any) -> None:
        if cluster_resolver.task_type == "ps":
            _wait_as_ps(Cluster("ps", cluster_resolver.task_id, addresses_of(cluster_resolver.cluster_spec())))
        if cluster_resolver.task_type == "evaluator":  # as Kubeflow starts it; it is alone in either case
            self._initialize_local(cluster_resolver)
        else:
            initialize(self, cluster_resolver, *args, **kwargs)

    return initialize_strategy
