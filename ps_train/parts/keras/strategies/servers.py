"""A ps or worker of parameter_server: it serves the coordinator until training is over.

    waits for the coordinator's port --> serves --> finds the coordinator's verdict --> ends

TensorFlow never tells such a server that training is over. So at the end the coordinator makes each server write a file
into its working directory, which needs no second port and no shared folder. A server whose coordinator is gone without
a verdict ends by itself.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import pathlib
import tempfile
import threading
import time
from collections.abc import Iterable

import tensorflow as tf

from ps_train.cluster import ports, reachability
from ps_train.cluster.spec import Cluster, Task
from ps_train.errors import ClusterLostError, StoppedError
from ps_train.graph import devices
from ps_train.parts.keras.flags import KerasConfig
from ps_train.runtime import tensorflow_errors, waits
from ps_train.runtime.threads import Call

DONE, FAILED = "done", "failed"
_VERDICT = "ps_train_verdict"  # of the coordinator, in the server's working directory
_POLL_SECS = 0.25
_LINGER_SECS = 1.0  # so that the coordinator gets the answer to its call before the server ends
_TELL_SECS = 5.0
_log = logging.getLogger(__name__)


def serve_coordinator(config: KerasConfig, cluster: Cluster, stop: threading.Event) -> None:
    """Serves until the coordinator says that training is done.

    Raises:
      ConfigError: the port is in use.
      ClusterLostError: the coordinator did not come, failed, or is gone.
      StoppedError: the process was told to stop.
    """
    with tempfile.TemporaryDirectory(prefix="ps_train-") as folder, contextlib.ExitStack() as stack:
        stack.callback(os.chdir, os.getcwd())
        os.chdir(folder)
        running = _start(config, cluster)
        _log.info("%s serves at %s%s", cluster.task.name, cluster.task.address,
                  "; all tasks serve on every network interface and without authentication"
                  if cluster.task == cluster.ps[0] else "")
        waits.until(lambda: reachability.accepts(cluster.chief.address), config.start_timeout_secs, str(cluster.chief),
                      stop, "is it started, and reachable from this machine?")
        verdict = _verdict(cluster.chief, config.beat_timeout_secs, stop)
        stop.wait(_LINGER_SECS)
        del running  # a server that is garbage collected stops
    if verdict != DONE:
        raise ClusterLostError(f"{cluster.chief.name} gave up training; see its log for the error")


def _start(config: KerasConfig, cluster: Cluster) -> tf.distribute.Server:
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
        devices.tell_devices(cluster.task.name, gpus or ["CPU:0"], config.num_gpus)
    return tf.distribute.Server(tf.train.ClusterSpec(cluster.server_spec), job_name=cluster.job,
                                task_index=cluster.index, protocol="grpc", config=settings)


def _verdict(chief: Task, timeout_secs: float, stop: threading.Event) -> str:
    """Returns the coordinator's verdict.

    Raises:
      ClusterLostError: it could not be reached for `timeout_secs`.
      StoppedError: `stop` was set.
    """
    path = pathlib.Path(_VERDICT)
    seen_secs = time.monotonic()
    reminder = waits.Reminder(str(chief), timeout_secs)
    while not (verdict := path.read_text() if path.exists() else ""):
        now_secs = time.monotonic()
        if reachability.accepts(chief.address):
            seen_secs, reminder = now_secs, waits.Reminder(str(chief), timeout_secs)
        elif now_secs - seen_secs > timeout_secs:
            raise ClusterLostError(f"{chief} could not be reached for {timeout_secs:g} s, and did not say that "
                                   "training is done")
        reminder.remind(now_secs)
        if stop.wait(_POLL_SECS):
            raise StoppedError("told to stop while serving")
    return verdict


def tell(servers: Iterable[Task], verdict: str) -> None:
    """Tells each server, as the coordinator, that training is over; warns of a server that cannot be told."""
    # All at once: a frozen server must not keep the others waiting.
    calls = [Call(functools.partial(_tell_one, task, verdict), f"verdict to {task.name}") for task in servers]
    for call in calls:
        call.join(2 * _TELL_SECS)


def _tell_one(task: Task, verdict: str) -> None:
    def write() -> None:
        with tf.device(f"/job:{task.job}/replica:0/task:{task.index}/device:CPU:0"):
            tf.io.write_file(_VERDICT, verdict)

    try:
        waits.bounded(write, _TELL_SECS, f"{task} to hear that training is over")
    except (ClusterLostError, tf.errors.OpError, ValueError) as error:  # ValueError: it was never connected
        _log.warning("%s was not told that training is over: %s", task, tensorflow_errors.reason(error))
