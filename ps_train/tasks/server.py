"""This task's `tf.train.Server`: its port, its address, the GPUs and the cores that it takes."""

from __future__ import annotations

import logging
import os
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.cluster import addresses, ports
from ps_train.cluster.spec import Cluster
from ps_train.errors import ConfigError
from ps_train.graph import devices

_log = logging.getLogger(__name__)


def start(cluster: Cluster, num_gpus: int | None) -> str:
    """Starts this task's server, which lives as long as the process, and returns its target, `grpc://...`.

    Args:
      cluster: the cluster and this task in it.
      num_gpus: GPUs of this machine, or None for what is there; a ps sees none.

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
    _log.info("%s serves at %s; without authentication, to whoever reaches %s", cluster.task.name,
              cluster.task.address, addresses.reachable_at(addresses.port_of(cluster.task.address)))
    if cluster.job != "ps":
        index = devices.gpu_index(cluster, num_gpus)
        devices.tell_devices(cluster.task.name, ["CPU:0" if index is None else f"GPU:{index}"], num_gpus)
    return server.target


def share_cores(cluster: Cluster) -> None:
    """Decides how many threads an operation takes in this process; to be called before anything else makes a device.

    TensorFlow makes these threads once in a process, with its first device, which may be one that tracing a function of
    the input makes.
    """
    with tf.Graph().as_default(), tf.Session(config=_threads(cluster, device_count={"GPU": 0})):
        pass


def _threads(cluster: Cluster, **others: Any) -> tf.ConfigProto:
    # A thread without work would first spin, by default, and take the core from the other tasks of its machine: of
    # 1 ps and 2 workers on 2 cores, the steps per second were 565 with it and 662 without; of 1 and 1, the same.
    without_spinning = tf.ConfigProto.Experimental(disable_thread_spinning=True)
    return tf.ConfigProto(intra_op_parallelism_threads=threads_of_an_operation(cluster, _num_cores()),
                          experimental=without_spinning, **others)


def _session_config(cluster: Cluster, num_gpus: int | None) -> tf.ConfigProto:
    index = devices.gpu_index(cluster, num_gpus)
    if index is None:
        return _threads(cluster, device_count={"GPU": 0})
    # Several workers may share a GPU: none may take all of its memory at once.
    return _threads(cluster, gpu_options=tf.GPUOptions(visible_device_list=str(index), allow_growth=True))


def threads_of_an_operation(cluster: Cluster, num_cores: int) -> int:
    """Returns a task's part of the cores that the workers of its machine share; 0, TensorFlow's own choice, for all.

    By default each task cuts an operation into as many parts as there are cores, and waits for the one whose core
    another task has. 2 workers and a ps on 2 cores did 2700 local steps per second so, and 3400 with one thread each;
    670 and 735 single steps. TF_NUM_INTRAOP_THREADS, TensorFlow's own variable, wins.
    """
    own_host = cluster.task.address.rpartition(":")[0]
    workers = cluster.server_spec.get("worker", {}).values()
    num_workers = sum(address.rpartition(":")[0] == own_host for address in workers)
    if num_workers < 2 or os.environ.get("TF_NUM_INTRAOP_THREADS"):
        return 0
    return max(1, num_cores // num_workers)


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


