"""This task's `tf.train.Server`, and the life of a ps: it serves until training is over."""

from __future__ import annotations

import errno
import logging
import socket
import threading

import tensorflow.compat.v1 as tf

from ps_train import blackboard, ports
from ps_train.cluster import Cluster, Task
from ps_train.errors import ConfigError, StoppedError

_POLL_SECS = 0.25
_LINGER_SECS = 1.0  # so that the chief gets the answer to its announcement before the server is gone
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
    _check_port(cluster.task)
    try:
        server = tf.train.Server(tf.train.ClusterSpec(cluster.server_spec), job_name=cluster.job,
                                 task_index=cluster.index, config=_session_config(cluster, num_gpus))
    except tf.errors.OpError as error:
        raise ConfigError(f"TensorFlow could not start the server of {cluster.task}: {error.message}") from error
    _log.info("%s serves at %s, on every network interface and without authentication", cluster.task.name,
              cluster.task.address)
    return server.target


def gpu_index(cluster: Cluster, num_gpus: int | None) -> int | None:
    """Returns the number of the GPU that this task uses, or None for none."""
    if cluster.job == "ps":
        return None
    count = len(tf.config.list_physical_devices("GPU")) if num_gpus is None else num_gpus
    return cluster.worker_number % count if count else None


def _session_config(cluster: Cluster, num_gpus: int | None) -> tf.ConfigProto:
    index = gpu_index(cluster, num_gpus)
    if index is None:
        return tf.ConfigProto(device_count={"GPU": 0})
    # Several workers may share a GPU: none may take all of its memory at once.
    return tf.ConfigProto(gpu_options=tf.GPUOptions(visible_device_list=str(index), allow_growth=True))


def _check_port(task: Task) -> None:
    """Raises ConfigError if the port is in use: TensorFlow would only say "Could not start gRPC server"."""
    port = int(task.address.rpartition(":")[2])
    family = socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            return  # no IPv6 here, say: then TensorFlow's own attempt decides
        why = "is in use by another process" if error.errno == errno.EADDRINUSE else "may not be opened by this user"
        raise ConfigError(f"port {port} of {task} {why}; give the task another port, or find the holder with "
                          f"`ss -ltnp 'sport = :{port}'`") from None


def serve_until_done(board: blackboard.Blackboard, stop: threading.Event) -> None:
    """Returns when the chief has announced that training is done.

    The server works in threads of its own. Its `join()` would never return (tensorflow/tensorflow#4713) and would
    keep Python's signal handlers from running.

    Raises:
      StoppedError: `stop` was set first.
    """
    board.put_up()
    while board.state() != blackboard.State.DONE:
        if stop.wait(_POLL_SECS):
            raise StoppedError("told to stop while serving")
    stop.wait(_LINGER_SECS)
