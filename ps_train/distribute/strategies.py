"""Makes the tf.distribute strategy that --strategy names."""

from __future__ import annotations

import os

import tensorflow as tf

from ps_train import waiting
from ps_train.cluster import Cluster
from ps_train.distribute import tpu
from ps_train.distribute.options import KerasConfig
from ps_train.errors import ClusterLostError, ConfigError


def make(config: KerasConfig, cluster: Cluster | None) -> tf.distribute.Strategy:
    """Returns the strategy. For a cluster it comes before any other TensorFlow operation, and may wait for ever.

    Raises:
      ConfigError: there is no such device here.
    """
    return _MAKERS[config.strategy](config, cluster)


def summary(strategy: tf.distribute.Strategy, config: KerasConfig, cluster: Cluster | None) -> str:
    """Returns the line that says who trains with which batch size, and how data and gradients travel."""
    replicas = strategy.num_replicas_in_sync
    if config.strategy == "parameter_server":
        num_workers = len(cluster.addresses["worker"])
        return (f"parameter_server: {num_workers} workers and {len(cluster.ps)} ps, updates without waiting for each "
                f"other; batch size {config.batch_size}, each worker reads all data in an order of its own")
    text = (f"{config.strategy}: {replicas} replica{'s' * (replicas > 1)}; batch size {config.batch_size} per replica, "
            f"{global_batch_size(strategy, config)} in all")
    if config.strategy == "multi_worker_mirrored":
        text += f"; {cluster.num_workers} workers, communication {config.communication}, auto-shard by data"
    return text


def global_batch_size(strategy: tf.distribute.Strategy, config: KerasConfig) -> int:
    """Returns the examples in one step; with parameter_server a step is one worker's."""
    return config.batch_size * strategy.num_replicas_in_sync


def _show_gpus(config: KerasConfig) -> list[str]:
    """Lets TensorFlow see as many GPUs as the user said, and returns their names."""
    found = tf.config.list_physical_devices("GPU")
    return _see(found if config.num_gpus is None else found[:config.num_gpus])


def _see(gpus: list) -> list[str]:
    tf.config.set_visible_devices(gpus, "GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    return [f"/gpu:{index}" for index in range(len(gpus))]


def _devices(config: KerasConfig) -> list[str]:
    """Returns the devices of the replicas: virtual CPUs where asked for, else the GPUs, else the CPU."""
    if config.num_virtual_devices is None:
        return _show_gpus(config) or ["/cpu:0"]
    _see([])
    [cpu] = tf.config.list_physical_devices("CPU")
    parts = [tf.config.LogicalDeviceConfiguration() for _ in range(config.num_virtual_devices)]
    tf.config.set_logical_device_configuration(cpu, parts)
    return [f"/cpu:{index}" for index in range(len(parts))]


def _default(config: KerasConfig, cluster: None) -> tf.distribute.Strategy:
    _show_gpus(config)
    return tf.distribute.get_strategy()


def _one_device(config: KerasConfig, cluster: None) -> tf.distribute.Strategy:
    return tf.distribute.OneDeviceStrategy([*_show_gpus(config), "/cpu:0"][0])


def _mirrored(config: KerasConfig, cluster: None) -> tf.distribute.Strategy:
    return tf.distribute.MirroredStrategy(_devices(config))


def _central_storage(config: KerasConfig, cluster: None) -> tf.distribute.Strategy:
    return tf.distribute.experimental.CentralStorageStrategy(_devices(config), "/cpu:0")


def _multi_worker_mirrored(config: KerasConfig, cluster: Cluster) -> tf.distribute.Strategy:
    gpus = tf.config.list_physical_devices("GPU")
    if config.num_gpus is None:
        _see(gpus)
    else:  # one for each worker of a machine: no two may reduce on the same one
        gpus = gpus[:config.num_gpus]
        _see([gpus[cluster.worker_number % len(gpus)]] if gpus else [])
    implementation = tf.distribute.experimental.CommunicationImplementation[config.communication]
    return tf.distribute.MultiWorkerMirroredStrategy(
        cluster_resolver=_resolver(cluster),
        communication_options=tf.distribute.experimental.CommunicationOptions(implementation=implementation))


def _parameter_server(config: KerasConfig, cluster: Cluster) -> tf.distribute.Strategy:
    return tf.distribute.ParameterServerStrategy(_resolver(cluster))


def _resolver(cluster: Cluster) -> tf.distribute.cluster_resolver.ClusterResolver:
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster.server_spec), task_type=cluster.job, task_id=cluster.index, rpc_layer="grpc")


def _tpu(config: KerasConfig, cluster: None) -> tf.distribute.Strategy:
    name = tpu.find(config.tpu_name, os.environ)

    def connect() -> tf.distribute.Strategy:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        if name != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)

    try:
        return waiting.bounded(connect, config.start_timeout_secs, f"the TPU {name}")
    except ClusterLostError:
        raise
    except Exception as error:  # one of many kinds, by where it fails: the name, the network, the driver
        raise ConfigError(f"--strategy=tpu: the TPU {name} cannot be used: {type(error).__name__}: "
                          f"{str(error).splitlines()[0] if str(error) else ''}") from error


_MAKERS = {
    "default": _default,
    "one_device": _one_device,
    "mirrored": _mirrored,
    "central_storage": _central_storage,
    "multi_worker_mirrored": _multi_worker_mirrored,
    "parameter_server": _parameter_server,
    "tpu": _tpu,
}
