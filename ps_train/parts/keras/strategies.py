"""The tf.distribute strategy that --strategy names, and how its processes meet, get a time limit, and end.

TensorFlow waits for its peers without a time limit and holds Python's lock: no thread can end that wait, and no signal
is handled. Therefore the workers of multi_worker_mirrored `meet` before TensorFlow starts, each at the others' ports.
`bounded_without_python` limits the time until TensorFlow's servers are connected, `run_watched` that of training.

A ps or worker of parameter_server waits for the coordinator's port, serves, and ends when the coordinator says so, or
when it cannot reach the coordinator. TensorFlow never tells such a server that training is over, so the coordinator
makes each server write a file into its working directory, which needs no second port and no shared folder.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import glob
import logging
import os
import pathlib
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Callable

import tensorflow as tf

from ps_train.cluster import addresses, ports, reachability
from ps_train.cluster.spec import Cluster, Task
from ps_train.errors import ClusterLostError, ConfigError, StoppedError, UserCodeError
from ps_train.graph import devices
from ps_train.parts.keras.flags import KerasConfig, parse_devices, parse_partitioner, peers
from ps_train.runtime import tensorflow_errors, threads, waits

DONE, FAILED = "done", "failed"
_VERDICT = "ps_train_verdict"  # of the coordinator, in the server's working directory
_BACKLOG = 1024  # connections that the operating system accepts for a process: one of each other worker
_DYING_SECS = 2.0  # from the loss of a task's connections to that of its port
_POLL_SECS = 0.25
_LINGER_SECS = 1.0  # the coordinator must get the answer to its call before the server ends
_NOTIFY_SECS = 5.0
# The variables that TensorFlow's TPUClusterResolver reads (distribute/cluster_resolver/tpu/tpu_cluster_resolver.py),
# and the devices that the driver of a TPU VM creates.
_TPU_VARIABLES = ("TPU_NAME", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS")
_TPU_DEVICES = ("/dev/accel*", "/dev/vfio/[0-9]*")
_log = logging.getLogger(__name__)


def make_strategy(config: KerasConfig, cluster: Cluster | None) -> tf.distribute.Strategy:
    """Returns the strategy.

    For a cluster, call it before any other TensorFlow operation; it may block forever.

    Raises:
      ConfigError: this machine lacks the device.
      UserCodeError: TensorFlow has been used before.
    """
    try:
        return _make_strategy(config, cluster)
    except RuntimeError as error:  # TensorFlow's devices have their settings from the first operation on
        raise UserCodeError("tensorflow_used_too_early", f"--strategy={config.strategy}: a module of the model or the "
                            "dataset uses TensorFlow while it is imported, before the strategy is made; make tensors "
                            f"in build_model and input_fn only ({error})") from None


def _make_strategy(config: KerasConfig, cluster: Cluster | None) -> tf.distribute.Strategy:
    if config.strategy == "tpu":
        return _connect_tpu(config)
    resolver = cluster and tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster.server_spec), task_type=cluster.job, task_id=cluster.index, rpc_layer="grpc")
    if config.strategy == "parameter_server":  # here, too, other processes compute, and report their devices
        return tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=_partitioner(config, cluster))
    strategy = _local_strategy(config) if cluster is None else _multi_worker_mirrored(config, cluster, resolver)
    devices.log_devices(cluster.task.name if cluster else "this process", _used_devices(strategy, config),
                         config.num_gpus)
    return strategy


def describe_strategy(strategy: tf.distribute.Strategy, config: KerasConfig, cluster: Cluster | None) -> str:
    """Returns the line with the replicas and their batch size, and with the flags about devices and gradients."""
    if config.strategy == "parameter_server":
        size = (f"{len(cluster.addresses['worker'])} workers and {len(cluster.ps)} ps, batch size {config.batch_size}; "
                "updates do not wait for each other; each worker reads all data in its own order")
    else:
        replicas = strategy.num_replicas_in_sync
        size = (f"{replicas} replica{'s' * (replicas > 1)}, batch size {config.batch_size} per replica, "
                f"{global_batch_size(strategy, config)} in all")
    if config.strategy == "multi_worker_mirrored":
        size += f"; {cluster.num_workers} workers, auto-shard by data"
    return "; ".join([f"{config.strategy}: {size}", *(
        f"{name} {getattr(config, name)}"
        for name in ("devices", "cross_device_ops", "communication", "variable_partitioner") if name in config.given)])


def global_batch_size(strategy: tf.distribute.Strategy, config: KerasConfig) -> int:
    """Returns the number of examples in one step; with parameter_server one worker takes a step alone."""
    return config.batch_size * strategy.num_replicas_in_sync


def _used_devices(strategy: tf.distribute.Strategy, config: KerasConfig) -> list[str]:
    gpus = [gpu.name.rpartition("/physical_device:")[2] for gpu in tf.config.get_visible_devices("GPU")]
    if config.strategy == "default":  # it has no list of devices: TensorFlow takes the first one
        return [*gpus, "CPU:0"][:1]
    specs = [tf.DeviceSpec.from_string(device) for device in strategy.extended.worker_devices]
    return [gpus[spec.device_index] if spec.device_type == "GPU" else f"CPU:{spec.device_index}" for spec in specs]


def _local_strategy(config: KerasConfig) -> tf.distribute.Strategy:
    names = _replica_devices(config)
    if config.strategy == "one_device":
        return tf.distribute.OneDeviceStrategy(names[0])
    if config.strategy == "central_storage":
        return tf.distribute.experimental.CentralStorageStrategy(names, "/cpu:0")
    if config.strategy == "mirrored":
        return tf.distribute.MirroredStrategy(names, _cross_device_ops(config, names))
    return tf.distribute.get_strategy()


def _replica_devices(config: KerasConfig) -> list[str]:
    """Returns the names of --devices, else of the GPUs, else of the CPU; shows TensorFlow these devices."""
    gpus = tf.config.list_physical_devices("GPU")
    named = parse_devices("--devices", config.devices)
    if config.num_virtual_devices:
        named = [("cpu", index) for index in range(config.num_virtual_devices)]
    indices = [index for _, index in named]
    if not named:
        return _show_gpus(gpus[:config.num_gpus]) or ["/cpu:0"]
    if named[0][0] == "cpu":  # which is divided into as many devices as the indices need
        _show_gpus([])
        [cpu] = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(max(indices) + 1)])
        return [f"/cpu:{index}" for index in indices]
    if max(indices) >= len(gpus):
        present = f"gpu:0 to gpu:{len(gpus) - 1}" if gpus else "no GPU that TensorFlow can use"
        raise ConfigError("no_such_device",
                          f"--devices: got {config.devices!r}; this machine has {present}; name one of its devices")
    return _show_gpus([gpus[index] for index in indices])


def _show_gpus(gpus: list) -> list[str]:
    """Shows TensorFlow these GPUs only, and returns their names."""
    tf.config.set_visible_devices(gpus, "GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    return [f"/gpu:{index}" for index in range(len(gpus))]


def _cross_device_ops(config: KerasConfig, names: list[str]) -> tf.distribute.CrossDeviceOps | None:
    """Returns the reduction of gradients, None for TensorFlow's default."""
    name = config.cross_device_ops
    # TensorFlow would silently reduce in another way.
    if name in ("nccl", "hierarchical_copy") and any("cpu" in device for device in names):
        raise ConfigError("reduction_needs_gpus",
                          f"--cross_device_ops: got {name!r}, which reduces between GPUs, and the replicas are on "
                          f"{', '.join(names)}; choose auto or reduction_to_one, or name GPUs by --devices")
    makers = {"nccl": tf.distribute.NcclAllReduce, "hierarchical_copy": tf.distribute.HierarchicalCopyAllReduce,
              "reduction_to_one": tf.distribute.ReductionToOneDevice}
    return makers[name]() if name in makers else None


def _multi_worker_mirrored(config: KerasConfig, cluster: Cluster, resolver: Any) -> tf.distribute.Strategy:
    gpus = tf.config.list_physical_devices("GPU")[:config.num_gpus]
    if config.num_gpus is not None and gpus:
        # One for each worker of a machine: two workers cannot reduce on the same GPU.
        gpus = [gpus[devices.number_on_machine(cluster) % len(gpus)]]
    _show_gpus(gpus)
    implementation = tf.distribute.experimental.CommunicationImplementation[config.communication]
    options = tf.distribute.experimental.CommunicationOptions(implementation=implementation)
    return tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver, communication_options=options)


def _partitioner(config: KerasConfig, cluster: Cluster) -> Callable | None:
    kinds = tf.distribute.experimental.partitioners
    makers = {"fixed": kinds.FixedShardsPartitioner, "max_size": kinds.MaxSizePartitioner,
              "min_size": lambda num_bytes: kinds.MinSizePartitioner(num_bytes, max_shards=len(cluster.ps))}
    parsed = parse_partitioner("--variable_partitioner", config.variable_partitioner)
    return makers[parsed[0]](parsed[1]) if parsed else None


def _connect_tpu(config: KerasConfig) -> tf.distribute.Strategy:
    name = find_tpu(config.tpu_name, os.environ)

    def connect() -> tf.distribute.Strategy:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        if name != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)

    try:
        return waits.bounded(connect, config.start_timeout_secs, f"the TPU {name}")
    except ClusterLostError:
        raise
    except Exception as error:  # one of many kinds, by where it fails: the name, the network, the driver
        raise ConfigError("tpu_failed", f"--strategy=tpu: the TPU {name} cannot be used: {type(error).__name__}: "
                          f"{tensorflow_errors.reason(error)}") from error


def find_tpu(tpu_name: str, environ: Mapping[str, str], root: str = "") -> str:
    """Returns the argument of TPUClusterResolver: a name, an address, or `local` for the chips of a TPU VM.

    Raises ConfigError without a TPU. `root` is put before the paths of devices, for tests.
    """
    for name in (tpu_name, *map(environ.get, _TPU_VARIABLES)):
        if name:
            return name
    if any(glob.glob(root + pattern) for pattern in _TPU_DEVICES):
        return "local"
    raise ConfigError("no_tpu", "--strategy=tpu: no TPU was found. Looked for --tpu_name (not given), "
                      + ", ".join(f"{variable} (not set)" for variable in _TPU_VARIABLES)
                      + f", and devices {', '.join(_TPU_DEVICES)} (none). Run it on a TPU VM, name the TPU, or choose "
                        "another strategy")


def meet(task: Task, others: Iterable[Task], timeout_secs: float, stop: threading.Event) -> None:
    """Returns when each other task's port has accepted a connection; the port of `task`, this one, is free again then.

    Raises:
      ClusterLostError: the time is over; the message names the missing tasks.
      StoppedError: `stop` was set.
    """
    with _accepting(addresses.port_of(task.address)):
        reachability.wait_for_tasks(others, timeout_secs, stop)


def _accepting(port: int) -> socket.socket:
    """Returns a socket at a port of this machine that accepts connections, as far as other machines can see."""
    dual_stack = socket.has_dualstack_ipv6()
    return socket.create_server(("", port), family=socket.AF_INET6 if dual_stack else socket.AF_INET,
                                dualstack_ipv6=dual_stack, backlog=_BACKLOG)


@contextlib.contextmanager
def bounded_without_python(timeout_secs: float) -> Iterator[None]:
    """Ends the process by SIGALRM (142 to a shell: may be run again) if the block takes longer than that."""
    if not hasattr(signal, "setitimer"):  # Windows
        yield
        return
    has_stderr = sys.stderr is not None
    if has_stderr:
        faulthandler.dump_traceback_later(timeout_secs, file=sys.stderr.fileno())
    signal.setitimer(signal.ITIMER_REAL, timeout_secs + 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if has_stderr:
            faulthandler.cancel_dump_traceback_later()


class Pulse:
    """What the training thread waits for, and since when."""

    def __init__(self) -> None:
        self._expected = ("", float("inf"), 0.0)  # one value, as another thread reads it

    def expect(self, awaited: str, timeout_secs: float) -> None:
        """Sets what comes next, and how long it may take."""
        self._expected = (awaited, timeout_secs, time.monotonic())

    def beat(self) -> None:
        """Notes that it came, and is expected again."""
        self._expected = (*self._expected[:2], time.monotonic())

    def overdue(self) -> str:
        """Returns `waited 300 s for ...` if the time is over, else ""."""
        awaited, timeout_secs, since_secs = self._expected
        return f"waited {timeout_secs:g} s for {awaited}" if time.monotonic() - since_secs > timeout_secs else ""


def run_watched(body: Callable[[], Any], pulse: Pulse, describe_missing: Callable[[], str]) -> Any:
    """Returns `body()`, which runs in another thread for as long as its pulse beats.

    Raises:
      ClusterLostError: no beat came in time; the message has `describe_missing()`. The thread ends with the process.
      Exception: any error of the body.
    """
    thread = threads.Call(body, "watched")
    while thread.is_alive():
        thread.join(_POLL_SECS)
        if thread.is_alive() and (overdue := pulse.overdue()):
            raise ClusterLostError("timed_out", f"{overdue}: {describe_missing()}")
    return thread.result()


def who_is_missing(cluster: Cluster, otherwise: str) -> str:
    """Returns which tasks cannot be reached; tries for some time, as a dying process may still accept connections."""
    end_secs = time.monotonic() + _DYING_SECS
    while not (missing := [str(task) for task in peers(cluster) if not reachability.accepts(task.address)]):
        if time.monotonic() >= end_secs:
            return otherwise
        time.sleep(_POLL_SECS)
    return f"{', '.join(missing)} cannot be reached; look at its log"


def serve_coordinator(config: KerasConfig, cluster: Cluster, stop: threading.Event) -> None:
    """Serves as a ps or worker until the coordinator says that training is done.

    Raises:
      ConfigError: the port is in use.
      ClusterLostError: the coordinator did not come, failed, or is lost.
      StoppedError: the process was asked to stop.
    """
    with tempfile.TemporaryDirectory(prefix="ps_train-") as folder, contextlib.ExitStack() as stack:
        stack.callback(os.chdir, os.getcwd())
        os.chdir(folder)
        running = _start_server(config, cluster)
        _log.info("%s serves at %s%s", cluster.task.name, cluster.task.address,
                  "; all tasks serve on every network interface and without authentication"
                  if cluster.task == cluster.ps[0] else "")
        waits.until(lambda: reachability.accepts(cluster.chief.address), config.start_timeout_secs, str(cluster.chief),
                      stop, "is it started, and reachable from this machine?")
        verdict = _wait_for_verdict(cluster.chief, config.beat_timeout_secs, stop)
        stop.wait(_LINGER_SECS)
        del running  # a server that is garbage collected stops
    if verdict != DONE:
        raise ClusterLostError("chief_failed", f"{cluster.chief.name} gave up training; see its log for the error")


def _start_server(config: KerasConfig, cluster: Cluster) -> tf.distribute.Server:
    ports.release_held_port()
    ports.check_port(cluster.task)
    # A step that waits for variables holds a thread: fewer threads than workers could all wait for each other
    # (tensorflow.org/tutorials/distribute/parameter_server_training).
    num_threads = max(os.cpu_count() or 1, len(cluster.addresses["worker"]) + 1)
    settings = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=num_threads)
    settings.gpu_options.allow_growth = True
    if cluster.job == "worker":
        gpus = [f"GPU:{index}" for index in range(devices.usable_gpus(config.num_gpus))]
        settings.device_count["GPU"] = len(gpus)
        devices.log_devices(cluster.task.name, gpus or ["CPU:0"], config.num_gpus)
    return tf.distribute.Server(tf.train.ClusterSpec(cluster.server_spec), job_name=cluster.job,
                                task_index=cluster.index, protocol="grpc", config=settings)


def _wait_for_verdict(chief: Task, timeout_secs: float, stop: threading.Event) -> str:
    """Returns the coordinator's verdict; raises ClusterLostError or StoppedError as `serve_coordinator` does."""
    path = pathlib.Path(_VERDICT)
    reminder = waits.Reminder(str(chief), timeout_secs)
    while not (verdict := path.read_text() if path.exists() else ""):
        now_secs = time.monotonic()
        if reachability.accepts(chief.address):
            reminder = waits.Reminder(str(chief), timeout_secs)
        elif now_secs - reminder.start_secs > timeout_secs:
            raise ClusterLostError("chief_unreachable", f"{chief} could not be reached for {timeout_secs:g} s, and did "
                                   "not say that training is done")
        reminder.remind(now_secs)
        if stop.wait(_POLL_SECS):
            raise StoppedError("stopped", "stopped while serving")
    return verdict


@contextlib.contextmanager
def ending_servers(servers: Iterable[Task]) -> Iterator[None]:
    """Notifies each server, after the body, whether training succeeded; warns if a server cannot be reached."""
    verdict = FAILED
    try:
        yield
        verdict = DONE
    finally:
        # All at once: a frozen server must not keep the others waiting.
        calls = [threads.Call(functools.partial(_write_verdict, task, verdict), f"verdict to {task.name}")
                 for task in servers]
        for call in calls:
            call.join(2 * _NOTIFY_SECS)


def _write_verdict(task: Task, verdict: str) -> None:
    def write() -> None:
        with tf.device(f"/job:{task.job}/replica:0/task:{task.index}/device:CPU:0"):
            tf.io.write_file(_VERDICT, verdict)

    try:
        waits.bounded(write, _NOTIFY_SECS, f"{task} to hear that training is over")
    except (ClusterLostError, tf.errors.OpError, ValueError) as error:  # ValueError: it was never connected
        _log.warning("%s was not notified that training is over: %s", task, tensorflow_errors.reason(error))
