"""Makes the tf.distribute strategy that --strategy names."""

from __future__ import annotations

import os
from typing import Callable

import tensorflow as tf

from ps_train.cluster.spec import Cluster
from ps_train.errors import ClusterLostError, ConfigError
from ps_train.graph import devices
from ps_train.parts.keras.flags import KerasConfig, parse_devices, parse_partitioner
from ps_train.parts.keras.strategies import tpu
from ps_train.runtime import tensorflow_errors, waits


def make_strategy(config: KerasConfig, cluster: Cluster | None) -> tf.distribute.Strategy:
    """Returns the strategy. For a cluster, call it before any other TensorFlow operation; it may block for ever.

    Raises:
      ConfigError: there is no such device here.
    """
    strategy = _ALONE[config.strategy](config) if cluster is None else _IN_CLUSTER[config.strategy](config, cluster)
    if config.strategy not in ("parameter_server", "tpu"):  # there other processes compute, and report their devices
        devices.tell_devices(cluster.task.name if cluster else "this process", _used_devices(strategy, config),
                             config.num_gpus)
    return strategy


def _used_devices(strategy: tf.distribute.Strategy, config: KerasConfig) -> list[str]:
    gpus = [gpu.name.rpartition("/physical_device:")[2] for gpu in tf.config.get_visible_devices("GPU")]
    if config.strategy == "default":  # it has no list of devices: TensorFlow takes the first one
        return [*gpus, "CPU:0"][:1]
    specs = [tf.DeviceSpec.from_string(device) for device in strategy.extended.worker_devices]
    return [gpus[spec.device_index] if spec.device_type == "GPU" else f"CPU:{spec.device_index}" for spec in specs]


def describe_strategy(strategy: tf.distribute.Strategy, config: KerasConfig, cluster: Cluster | None) -> str:
    """Returns the line with the replicas and their batch size, and with how data and gradients are distributed."""
    replicas = strategy.num_replicas_in_sync
    if config.strategy == "parameter_server":
        num_workers = len(cluster.addresses["worker"])
        return (f"parameter_server: {num_workers} workers and {len(cluster.ps)} ps, updates without waiting for each "
                f"other; batch size {config.batch_size}, each worker reads all data in an order of its own"
                + (f"; variables cut by {config.variable_partitioner}" if config.variable_partitioner else ""))
    text = (f"{config.strategy}: {replicas} replica{'s' * (replicas > 1)}; batch size {config.batch_size} per replica, "
            f"{global_batch_size(strategy, config)} in all")
    if config.devices:
        text += f"; on {', '.join(f'{kind}:{index}' for kind, index in parse_devices('--devices', config.devices))}"
    if config.cross_device_ops != "auto":
        text += f"; gradients by {config.cross_device_ops}"
    if config.strategy == "multi_worker_mirrored":
        text += f"; {cluster.num_workers} workers, communication {config.communication}, auto-shard by data"
    return text


def global_batch_size(strategy: tf.distribute.Strategy, config: KerasConfig) -> int:
    """Returns the number of examples in one step; with parameter_server one worker takes a step alone."""
    return config.batch_size * strategy.num_replicas_in_sync


def _show_gpus(config: KerasConfig) -> list[str]:
    """Shows TensorFlow --num_gpus GPUs, or all, and returns their names."""
    found = tf.config.list_physical_devices("GPU")
    return _see(found if config.num_gpus is None else found[:config.num_gpus])


def _see(gpus: list) -> list[str]:
    tf.config.set_visible_devices(gpus, "GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    return [f"/gpu:{index}" for index in range(len(gpus))]


def _devices(config: KerasConfig) -> list[str]:
    """Returns the devices of the replicas: those of --devices, else the GPUs, else the CPU."""
    named = parse_devices("--devices", config.devices)
    if config.num_virtual_devices is not None:
        named = [("cpu", index) for index in range(config.num_virtual_devices)]
    if not named:
        return _show_gpus(config) or ["/cpu:0"]
    if named[0][0] == "gpu":
        return _named_gpus(config.devices, [index for _, index in named])
    return _cpu_parts([index for _, index in named])


def _named_gpus(text: str, indices: list[int]) -> list[str]:
    gpus = tf.config.list_physical_devices("GPU")
    if max(indices) >= len(gpus):
        there = f"gpu:0 to gpu:{len(gpus) - 1}" if gpus else "no GPU that TensorFlow can use"
        raise ConfigError(f"--devices: got {text!r}; this machine has {there}; name one of its devices")
    return _see([gpus[index] for index in indices])


def _cpu_parts(indices: list[int]) -> list[str]:
    """Cuts the CPU into as many devices as the indices need, and returns their names."""
    _see([])
    [cpu] = tf.config.list_physical_devices("CPU")
    parts = [tf.config.LogicalDeviceConfiguration() for _ in range(max(indices) + 1)]
    tf.config.set_logical_device_configuration(cpu, parts)
    return [f"/cpu:{index}" for index in indices]


def _cross_device_ops(config: KerasConfig, names: list[str]) -> tf.distribute.CrossDeviceOps | None:
    """Returns how gradients are reduced, None for TensorFlow's own choice.

    Raises:
      ConfigError: it works between GPUs only; TensorFlow would silently reduce in another way.
    """
    name = config.cross_device_ops
    if name in ("nccl", "hierarchical_copy") and any("cpu" in device for device in names):
        raise ConfigError(f"--cross_device_ops: got {name!r}, which reduces between GPUs, and the replicas are on "
                          f"{', '.join(names)}; choose auto or reduction_to_one, or name GPUs by --devices")
    makers = {"nccl": tf.distribute.NcclAllReduce, "hierarchical_copy": tf.distribute.HierarchicalCopyAllReduce,
              "reduction_to_one": tf.distribute.ReductionToOneDevice}
    return makers[name]() if name in makers else None


def _default(config: KerasConfig) -> tf.distribute.Strategy:
    _show_gpus(config)
    return tf.distribute.get_strategy()


def _mirrored(config: KerasConfig) -> tf.distribute.Strategy:
    names = _devices(config)
    return tf.distribute.MirroredStrategy(names, _cross_device_ops(config, names))


def _multi_worker_mirrored(config: KerasConfig, cluster: Cluster) -> tf.distribute.Strategy:
    gpus = tf.config.list_physical_devices("GPU")
    if config.num_gpus is None:
        _see(gpus)
    else:  # one for each worker of a machine: two workers cannot reduce on the same GPU
        gpus = gpus[:config.num_gpus]
        _see([gpus[cluster.worker_number % len(gpus)]] if gpus else [])
    implementation = tf.distribute.experimental.CommunicationImplementation[config.communication]
    return tf.distribute.MultiWorkerMirroredStrategy(
        cluster_resolver=_resolver(cluster),
        communication_options=tf.distribute.experimental.CommunicationOptions(implementation=implementation))


def _parameter_server(config: KerasConfig, cluster: Cluster) -> tf.distribute.Strategy:
    return tf.distribute.ParameterServerStrategy(_resolver(cluster), variable_partitioner=_partitioner(config, cluster))


def _partitioner(config: KerasConfig, cluster: Cluster) -> Callable | None:
    told = parse_partitioner("--variable_partitioner", config.variable_partitioner)
    if told is None:
        return None
    rule, number = told
    kinds = tf.distribute.experimental.partitioners
    if rule == "fixed":
        return kinds.FixedShardsPartitioner(number)
    if rule == "min_size":
        return kinds.MinSizePartitioner(min_shard_bytes=number, max_shards=len(cluster.ps))
    return kinds.MaxSizePartitioner(max_shard_bytes=number)


def _resolver(cluster: Cluster) -> tf.distribute.cluster_resolver.ClusterResolver:
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster.server_spec), task_type=cluster.job, task_id=cluster.index, rpc_layer="grpc")


def _tpu(config: KerasConfig) -> tf.distribute.Strategy:
    name = tpu.find_tpu(config.tpu_name, os.environ)

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
        raise ConfigError(f"--strategy=tpu: the TPU {name} cannot be used: {type(error).__name__}: "
                          f"{tensorflow_errors.reason(error)}") from error


_ALONE: dict[str, Callable[[KerasConfig], tf.distribute.Strategy]] = {
    "default": _default,
    "one_device": lambda config: tf.distribute.OneDeviceStrategy(_devices(config)[0]),
    "mirrored": _mirrored,
    "central_storage": lambda config: tf.distribute.experimental.CentralStorageStrategy(_devices(config), "/cpu:0"),
    "tpu": _tpu,
}
_IN_CLUSTER = {"multi_worker_mirrored": _multi_worker_mirrored, "parameter_server": _parameter_server}
