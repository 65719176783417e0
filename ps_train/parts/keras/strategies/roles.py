"""Which processes a strategy has, and which of them this one is; needs no TensorFlow.

    default, one_device, mirrored, central_storage, tpu   one process, and no cluster
    multi_worker_mirrored                                 workers, the first (or the chief task) is the chief
    parameter_server                                      a chief that coordinates, ps and workers that serve it
"""

from __future__ import annotations

from collections.abc import Mapping

from ps_train.cluster.addresses import parse_hosts, refuse_duplicates
from ps_train.cluster.spec import Cluster, Task
from ps_train.cluster.tf_config import parse_tf_config
from ps_train.config.launch import LaunchConfig
from ps_train.errors import ConfigError, refuse
from ps_train.launch.command_lines import TaskList
from ps_train.parts.keras.flags import KerasConfig

_HOST_FLAGS = {
    "multi_worker_mirrored": {"worker": "worker_hosts"},
    "parameter_server": {"chief": "coordinator_host", "ps": "ps_hosts", "worker": "worker_hosts"},
}
_Addresses = Mapping[str, Mapping[int, str]]


def resolve_cluster(config: KerasConfig) -> Cluster | None:
    """Returns the cluster and this task's place in it, or None for a strategy of one process.

    Raises:
      ConfigError: what the flags or TF_CONFIG say is malformed, contradictory, or no cluster for this strategy.
    """
    has_tf_config = bool(config.tf_config.strip())
    if config.strategy in _HOST_FLAGS:
        return _from_tf_config(config) if has_tf_config else _from_flags(config)
    if has_tf_config:
        _refuse_cluster(config)
    return None


def servers(cluster: Cluster) -> list[Task]:
    """Returns the ps and workers of a parameter_server cluster, which its coordinator needs."""
    return [Task(job, index, address) for job in ("ps", "worker")
            for index, address in sorted(cluster.addresses[job].items())]


def peers(cluster: Cluster) -> list[Task]:
    """Returns all other tasks."""
    return [task for task in [*cluster.ps, *cluster.workers] if task != cluster.task]


def strategy_tasks(config: KerasConfig, launch_config: LaunchConfig) -> TaskList:
    """Returns the tasks that a launcher starts for the strategy."""
    flags = _HOST_FLAGS.get(config.strategy, {})
    counts = {"ps": launch_config.num_ps, "chief": 1, "worker": launch_config.num_workers}
    names = [f"{job}:{index}" for job, count in counts.items() if job in flags for index in range(count)]
    chief = "chief:0" if "chief" in flags else "worker:0"
    return TaskList(names or [chief], chief, ("keras",), flags)


def _refuse_cluster(config: KerasConfig) -> None:
    """Raises ConfigError if TF_CONFIG has several tasks; a scheduler may write one for a job of one process."""
    addresses = parse_tf_config(config.tf_config, needs_ps=False).addresses
    tasks = [f"{job}:{index}" for job, hosts in addresses.items() if job != "evaluator" for index in hosts]
    if len(tasks) > 1:
        raise ConfigError(f"--strategy={config.strategy} is one process, and TF_CONFIG names {len(tasks)}: "
                          f"{', '.join(tasks)}; each would train alone. Choose multi_worker_mirrored or "
                          "parameter_server, or unset TF_CONFIG")


def _from_tf_config(config: KerasConfig) -> Cluster:
    flags = _HOST_FLAGS[config.strategy]
    refuse([f"--{name}: TF_CONFIG defines the cluster; leave the flag out, or unset TF_CONFIG"
            for name in sorted(config.given & {"job_name", "task_index", *flags.values()})])
    told = parse_tf_config(config.tf_config, needs_ps="ps" in flags)
    job, index, found = told.job, told.index, told.addresses
    if job == "evaluator":
        raise ConfigError("TF_CONFIG: task type is 'evaluator'; `ps_train keras` validates while it trains, and its "
                          "chief evaluates at the end: start no evaluator")
    names = {"master": "chief"}  # the same role; tf.distribute knows one of the words only
    addresses = {names.get(name, name): hosts for name, hosts in found.items() if name != "evaluator"}
    _check_jobs(config.strategy, addresses)
    return Cluster(names.get(job, job), index, addresses)


def _check_jobs(strategy: str, addresses: _Addresses) -> None:
    if strategy == "multi_worker_mirrored":
        if "ps" in addresses:
            raise ConfigError("TF_CONFIG: cluster names ps, and multi_worker_mirrored has none; leave them out, or "
                              "choose --strategy=parameter_server")
    else:
        refuse([f"TF_CONFIG: cluster names no {job}, which parameter_server needs; allowed: one chief (the "
                "coordinator), and at least one ps and one worker"
                for job in ("chief", "worker") if not addresses.get(job)])
    for job, hosts in addresses.items():
        if sorted(hosts) != list(range(len(hosts))):
            raise ConfigError(f"TF_CONFIG: cluster[{job!r}] names the indices {', '.join(map(str, sorted(hosts)))}; "
                              f"{strategy} needs to know all tasks, from 0 on without a gap")


def _from_flags(config: KerasConfig) -> Cluster:
    flags = _HOST_FLAGS[config.strategy]
    if config.job_name is None or config.task_index is None:
        missing = "job_name" if config.job_name is None else "task_index"
        raise ConfigError(f"--{missing}: not given, and TF_CONFIG is not set; give --job_name and --task_index, or run "
                          f"all tasks on this machine with `ps_train launch keras --strategy={config.strategy}`")
    if config.job_name not in flags:
        raise ConfigError(f"--job_name: got {config.job_name!r}; allowed with --strategy={config.strategy}: "
                          f"{', '.join(flags)}")
    addresses = {job: parse_hosts(f"--{flag}", getattr(config, flag)) for job, flag in flags.items()}
    refuse_duplicates(addresses)
    count = len(addresses[config.job_name])
    if len(addresses.get("chief", [0])) != 1:
        raise ConfigError(f"--coordinator_host: got {config.coordinator_host!r}; allowed: one host:port")
    if config.task_index >= count:
        raise ConfigError(f"--task_index: got {config.task_index}; allowed: 0 to {count - 1}, since "
                          f"--{flags[config.job_name]} names {count} task{'s' if count > 1 else ''}")
    return Cluster(config.job_name, config.task_index, addresses)
