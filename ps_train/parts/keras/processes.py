"""The processes of a strategy: which there are, how they meet, and a time limit on their training.

    default, one_device, mirrored, central_storage, tpu   one process, and no cluster
    multi_worker_mirrored                                 workers, the first (or the chief task) is the chief
    parameter_server                                      a chief that coordinates, ps and workers that serve it

TensorFlow waits for its peers without a time limit and holds Python's lock: no thread can end that wait, and no signal
is handled. So the workers of multi_worker_mirrored `meet` before TensorFlow starts, each at the others' ports.
`bounded_without_python` limits the time until TensorFlow's servers are connected, `run_watched` that of training.
Nothing here needs TensorFlow.
"""

from __future__ import annotations

import contextlib
import faulthandler
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, Callable

from ps_train.cluster import addresses, reachability
from ps_train.cluster.spec import Cluster, Task
from ps_train.cluster.tf_config import parse_tf_config
from ps_train.config.launch import LaunchConfig
from ps_train.errors import ClusterLostError, ConfigError, refuse
from ps_train.launch.command_lines import TaskList
from ps_train.parts.keras.flags import KerasConfig
from ps_train.runtime import threads

_HOST_FLAGS = {
    "multi_worker_mirrored": {"worker": "worker_hosts"},
    "parameter_server": {"chief": "coordinator_host", "ps": "ps_hosts", "worker": "worker_hosts"},
}
_ACCEPT_SECS = 0.2
_DYING_SECS = 2.0  # from the loss of a task's connections to that of its port
_POLL_SECS = 0.1


def resolve_cluster(config: KerasConfig) -> Cluster | None:
    """Returns the cluster and this task's place in it, or None for a strategy of one process.

    Raises:
      ConfigError: what the flags or TF_CONFIG say is malformed, contradictory, or no cluster for this strategy.
    """
    has_tf_config = bool(config.tf_config.strip())
    if config.strategy in _HOST_FLAGS:
        return _from_tf_config(config) if has_tf_config else _from_flags(config)
    if has_tf_config:  # a scheduler may write one for a job of one process
        jobs = parse_tf_config(config.tf_config, needs_ps=False).addresses
        names = [f"{job}:{index}" for job, hosts in jobs.items() if job != "evaluator" for index in hosts]
        if len(names) > 1:
            raise ConfigError(f"--strategy={config.strategy} is one process, and TF_CONFIG names {len(names)}: "
                              f"{', '.join(names)}; each would train alone. Choose multi_worker_mirrored or "
                              "parameter_server, or unset TF_CONFIG")
    return None


def peers(cluster: Cluster) -> list[Task]:
    """Returns all other tasks, the ps first; for the coordinator of parameter_server these are the servers."""
    return [task for task in [*cluster.ps, *cluster.workers] if task != cluster.task]


def strategy_tasks(config: KerasConfig, launch_config: LaunchConfig) -> TaskList:
    """Returns the tasks that a launcher starts for the strategy."""
    flags = _HOST_FLAGS.get(config.strategy, {})
    counts = {"ps": launch_config.num_ps, "chief": 1, "worker": launch_config.num_workers}
    names = [f"{job}:{index}" for job, count in counts.items() if job in flags for index in range(count)]
    chief = "chief:0" if "chief" in flags else "worker:0"
    return TaskList(names or [chief], chief, ("keras",), flags)


def _from_tf_config(config: KerasConfig) -> Cluster:
    flags = _HOST_FLAGS[config.strategy]
    refuse([f"--{name}: TF_CONFIG defines the cluster; leave the flag out, or unset TF_CONFIG"
            for name in sorted(config.given & {"job_name", "task_index", *flags.values()})])
    parsed = parse_tf_config(config.tf_config, needs_ps="ps" in flags)
    if parsed.job == "evaluator":
        raise ConfigError("TF_CONFIG: task type is 'evaluator'; `ps_train keras` validates while it trains, and its "
                          "chief evaluates at the end: start no evaluator")
    names = {"master": "chief"}  # the same role; tf.distribute knows one of the words only
    hosts_by_job = {names.get(job, job): hosts for job, hosts in parsed.addresses.items() if job != "evaluator"}
    if "ps" in hosts_by_job and "ps" not in flags:
        raise ConfigError("TF_CONFIG: cluster names ps, and multi_worker_mirrored has none; leave them out, or "
                          "choose --strategy=parameter_server")
    refuse([f"TF_CONFIG: cluster names no {job}, which parameter_server needs; allowed: one chief (the coordinator), "
            "and at least one ps and one worker"
            for job in ("chief", "worker") if "ps" in flags and not hosts_by_job.get(job)])
    for job, hosts in hosts_by_job.items():
        if sorted(hosts) != list(range(len(hosts))):
            raise ConfigError(f"TF_CONFIG: cluster[{job!r}] names the indices {', '.join(map(str, sorted(hosts)))}; "
                              f"{config.strategy} needs to know all tasks, from 0 on without a gap")
    return Cluster(names.get(parsed.job, parsed.job), parsed.index, hosts_by_job)


def _from_flags(config: KerasConfig) -> Cluster:
    flags = _HOST_FLAGS[config.strategy]
    if config.job_name is None or config.task_index is None:
        missing = "job_name" if config.job_name is None else "task_index"
        raise ConfigError(f"--{missing}: not given, and TF_CONFIG is not set; give --job_name and --task_index, or run "
                          f"all tasks on this machine with `ps_train launch keras --strategy={config.strategy}`")
    if config.job_name not in flags:
        raise ConfigError(f"--job_name: got {config.job_name!r}; allowed with --strategy={config.strategy}: "
                          f"{', '.join(flags)}")
    hosts = {job: addresses.parse_hosts(f"--{flag}", getattr(config, flag)) for job, flag in flags.items()}
    addresses.refuse_duplicates(hosts)
    count = len(hosts[config.job_name])
    if len(hosts.get("chief", [0])) != 1:
        raise ConfigError(f"--coordinator_host: got {config.coordinator_host!r}; allowed: one host:port")
    if config.task_index >= count:
        raise ConfigError(f"--task_index: got {config.task_index}; allowed: 0 to {count - 1}, since "
                          f"--{flags[config.job_name]} names {count} task{'s' if count > 1 else ''}")
    return Cluster(config.job_name, config.task_index, hosts)


def meet(task: Task, others: Iterable[Task], timeout_secs: float, stop: threading.Event) -> None:
    """Returns when the port of each other task has accepted a connection at least once.

    Args:
      task: this one; its port must be free, and is free again when this returns.

    Raises:
      ClusterLostError: the time is over; the text names the missing tasks.
      StoppedError: `stop` was set.
    """
    with _accepting(addresses.port_of(task.address)):
        reachability.wait_for_tasks(others, timeout_secs, stop)


@contextlib.contextmanager
def _accepting(port: int) -> Iterator[None]:
    """Accepts connections at a port of this machine, and closes each at once."""
    dual_stack = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual_stack else socket.AF_INET
    with socket.create_server(("", port), family=family, dualstack_ipv6=dual_stack) as listener:
        listener.settimeout(_ACCEPT_SECS)

        def accept() -> None:
            with contextlib.suppress(OSError):  # nobody came within the time
                listener.accept()[0].close()

        with threads.repeating(accept, period_secs=0, name="rendezvous", join_secs=10 * _ACCEPT_SECS):
            yield


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

    def expect(self, what: str, timeout_secs: float) -> None:
        """Says what comes next, and how long it may take."""
        self._expected = (what, timeout_secs, time.monotonic())

    def beat(self) -> None:
        """Says that it came, and is expected again."""
        self._expected = (*self._expected[:2], time.monotonic())

    def overdue(self) -> str:
        """Returns `waited 300 s for ...` if the time is over, else ""."""
        what, timeout_secs, since_secs = self._expected
        return f"waited {timeout_secs:g} s for {what}" if time.monotonic() - since_secs > timeout_secs else ""


def run_watched(body: Callable[[], Any], pulse: Pulse, describe_missing: Callable[[], str]) -> Any:
    """Returns `body()`, which runs in another thread for as long as its pulse beats.

    Args:
      describe_missing: says which task cannot be reached, for the error.

    Raises:
      ClusterLostError: no beat came in time; the thread is left behind, and ends with the process.
      Exception: any error of the body.
    """
    thread = threads.Call(body, "watched")
    while thread.is_alive():
        thread.join(_POLL_SECS)
        if thread.is_alive() and (overdue := pulse.overdue()):
            raise ClusterLostError(f"{overdue}: {describe_missing()}")
    return thread.result()


def who_is_missing(cluster: Cluster, otherwise: str) -> str:
    """Says who cannot be reached; asks for some time, because a dying process may still accept connections."""
    end_secs = time.monotonic() + _DYING_SECS
    while not (missing := [str(task) for task in peers(cluster) if not reachability.accepts(task.address)]):
        if time.monotonic() >= end_secs:
            return otherwise
        time.sleep(_POLL_SECS)
    return f"{', '.join(missing)} cannot be reached; look at its log"
