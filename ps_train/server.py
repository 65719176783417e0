"""This task's `tf.train.Server`, and the life of a ps: it serves until training is over."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from ps_train import addresses, ports
from ps_train.blackboard import Blackboard, BlackboardError, ChiefFailedError
from ps_train.cluster import Cluster, Task
from ps_train.errors import ClusterLostError, ConfigError, StoppedError
from ps_train.snapshot import State

_POLL_SECS = 0.25
_TICK_SECS = 0.25
_LATE_SECS = 12.0  # longer than a call to a blackboard that hangs, see blackboard.py
_LINGER_SECS = 1.0  # so that the chief gets the answer to its announcement before the server is gone
_FAILURE_SECS = 3.0  # so that each worker hears of it with one of its beats, whatever it is waiting for
_ASK_PERIOD_SECS = 2.0
_SHARE_OF_GRACE = 0.9  # so that a ps that is told to stop ends by itself, and says why
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
    check_port(cluster.task)
    try:
        tasks, job, index = cluster.boot
        server = tf.train.Server(tf.train.ClusterSpec(tasks), job_name=job, task_index=index,
                                 config=_session_config(cluster, num_gpus))
    except tf.errors.OpError as error:
        raise ConfigError(f"TensorFlow could not start the server of {cluster.task}: {error.message}") from error
    _log.info("%s serves at %s; without authentication, to whoever reaches %s", cluster.task.name,
              cluster.task.address, addresses.reachable_at(_port(cluster.task)))
    return server.target


def gpu_index(cluster: Cluster, num_gpus: int | None) -> int | None:
    """Returns the number of the GPU that this task uses, or None for none."""
    if cluster.job == "ps":
        return None
    count = len(tf.config.list_physical_devices("GPU")) if num_gpus is None else num_gpus
    return cluster.worker_number % count if count else None


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
    index = gpu_index(cluster, num_gpus)
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


def _port(task: Task) -> int:
    return int(task.address.rpartition(":")[2])


def check_port(task: Task) -> None:
    """Looks whether the task's port can be had: TensorFlow would only say "Could not start gRPC server".

    Raises:
      ConfigError: it is in use, or may not be opened; the text says how to find who has it.
    """
    port = _port(task)
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


@contextlib.contextmanager
def keeping_time(board: Blackboard) -> Iterator[None]:
    """Lets the clock of a ps's own blackboard go while its body runs."""
    over = threading.Event()

    def tick() -> None:
        while not over.wait(_TICK_SECS):
            with contextlib.suppress(BlackboardError):  # not put up yet, or too busy
                board.tick()

    thread = threading.Thread(target=tick, daemon=True, name="clock")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(_TICK_SECS)


class Life:
    """How long a ps serves.

    The server works in threads of its own. Its `join()` would never return (tensorflow/tensorflow#4713) and would
    keep Python's signal handlers from running.
    """

    def __init__(
        self, own: Blackboard, find_first: Callable[[], Blackboard], beat_timeout_secs: float,
        idle_timeout_secs: float, stop_timeout_secs: float, stop: threading.Event,
    ) -> None:
        """Prepares it.

        Args:
          own: this ps's view of itself.
          find_first: returns its view of ps 0, which knows the workers; raises BlackboardError as long as this ps
            does not know where that is.
          beat_timeout_secs: a worker that was not heard of for this long is gone.
          idle_timeout_secs: how long it serves without any worker.
          stop_timeout_secs: how long a task that is told to stop may take, which the chief needs a ps for.
          stop: asks it to end as soon as no worker needs it any more.
        """
        self._own = own
        self._find_first = find_first
        self._beat_timeout_secs = beat_timeout_secs
        self._idle_timeout_secs = idle_timeout_secs
        self._last_save_secs = stop_timeout_secs * _SHARE_OF_GRACE
        self._stop = stop
        self._needed_secs = self._asked_secs = time.monotonic()

    def run(self) -> None:
        """Serves until the chief has announced that training is done.

        Raises:
          StoppedError: `stop` was set, and the workers have ended or were waited for in vain.
          ClusterLostError: the chief gave up, or no worker was there for the idle time-out.
        """
        self._own.put_up()
        while (state := self._state()) != State.DONE:
            if state == State.FAILED:
                self._stop.wait(_FAILURE_SECS)
                raise ChiefFailedError
            self._check_needed()
            if self._stop.wait(_POLL_SECS):
                self._serve_the_last_save()
                raise StoppedError("told to stop while serving")
        self._serve_the_late()

    def _state(self) -> State | None:
        """Returns the training state, or None where even this machine's own server was too busy to say."""
        try:
            return self._own.state()
        except BlackboardError as error:
            _log.warning("%s", error)
            return None

    def _check_needed(self) -> None:
        """Raises ClusterLostError where no worker was there for the idle time-out."""
        now_secs = time.monotonic()
        if now_secs - self._asked_secs < _ASK_PERIOD_SECS:
            return
        self._asked_secs = now_secs
        if self._is_needed():
            self._needed_secs = now_secs
        elif now_secs - self._needed_secs > self._idle_timeout_secs:
            raise ClusterLostError(f"no worker was there for {self._idle_timeout_secs:g} s; were they ended, or never "
                                   "started?")

    def _is_needed(self) -> bool:
        try:
            return bool(self._find_first().snapshot().alive(self._beat_timeout_secs))
        except BlackboardError:  # ps 0 is gone, or not known yet
            return False

    def _serve_the_late(self) -> None:
        """Returns when every worker knows that training is done, or is not back after a while.

        One that has just lost ps 0, or was killed and is started again, would wait for a cluster that is gone.
        """
        is_awaited = self._is_awaited()  # asked while ps 0 is there: one that is gone would take seconds to say so
        self._stop.wait(_LINGER_SECS)
        end_secs = time.monotonic() + _LATE_SECS
        while is_awaited and time.monotonic() < end_secs and not self._stop.wait(_POLL_SECS):
            is_awaited = self._is_awaited()

    def _is_awaited(self) -> bool:
        """Tells whether a worker has neither finished nor left."""
        try:
            snapshot = self._find_first().snapshot()
        except BlackboardError:  # ps 0 has ended
            return False
        return bool(((snapshot.claims != 0) & (snapshot.finished == 0)).any())

    def _serve_the_last_save(self) -> None:
        """Returns when no worker is there, or the grace period is nearly over.

        A ps cannot know whether it alone was told to stop. All are, as a rule, and then the chief needs it for its last
        save. If it is alone, these are some more steps, which are lost with it.
        """
        end_secs = time.monotonic() + self._last_save_secs
        while time.monotonic() < end_secs and self._is_needed():
            time.sleep(_POLL_SECS)
