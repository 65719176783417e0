"""This task's `tf.train.Server`: its port, its GPUs and its share of the cores."""

from __future__ import annotations

import logging

import tensorflow.compat.v1 as tf

from ps_train.cluster import addresses, ports
from ps_train.cluster.spec import Cluster
from ps_train.errors import ConfigError
from ps_train.graph import devices
from ps_train.tasks.setup import session_threads

_log = logging.getLogger(__name__)


def start(cluster: Cluster, num_gpus: int | None) -> str:
    """Starts this task's server, which lives as long as the process, and returns its target, `grpc://...`.

    Args:
      cluster: the cluster and this task in it.
      num_gpus: GPUs of this machine, or None for all that are present; a ps uses none.

    Raises:
      ConfigError: the port is in use, or TensorFlow refuses the cluster.
    """
    ports.release_held_port()
    ports.check_port(cluster.task)
    try:
        tasks, job, index = cluster.boot
        server = tf.train.Server(tf.train.ClusterSpec(tasks), job_name=job, task_index=index,
                                 config=_session_config(cluster, num_gpus))
    except tf.errors.OpError as error:
        raise ConfigError(f"TensorFlow could not start the server of {cluster.task}: {error.message}") from error
    _log.info("%s serves at %s, which others reach at %s%s", cluster.task.name, cluster.task.address,
              addresses.reachable_at(addresses.port_of(cluster.task.address)),
              "; all tasks serve without authentication, to whoever reaches them" if cluster.is_chief else "")
    if cluster.job != "ps":
        index = devices.gpu_index(cluster, num_gpus)
        devices.tell_devices(cluster.task.name, ["CPU:0" if index is None else f"GPU:{index}"], num_gpus)
    return server.target


def _session_config(cluster: Cluster, num_gpus: int | None) -> tf.ConfigProto:
    index = devices.gpu_index(cluster, num_gpus)
    if index is None:
        return session_threads(cluster, device_count={"GPU": 0})
    # Several workers may share a GPU, so none may take all of its memory at the start.
    return session_threads(cluster, gpu_options=tf.GPUOptions(visible_device_list=str(index), allow_growth=True))


