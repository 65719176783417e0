"""What a task sets before anything else in its process uses TensorFlow: the TF1 mode, and its share of the cores."""

from __future__ import annotations

import os
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Cluster


def prepare_tensorflow(tf_log: bool) -> None:
    """Puts TensorFlow into the mode that TF1 graph code expects, for this whole process."""
    tf.disable_v2_behavior()
    tf.enable_resource_variables()  # a worker then never reads a parameter that is half updated
    tf.logging.set_verbosity(tf.logging.INFO if tf_log else tf.logging.ERROR)


def share_cores(cluster: Cluster) -> None:
    """Decides how many threads an operation takes in this process; to be called before anything else makes a device.

    TensorFlow makes these threads once in a process, with its first device, which may be one that tracing a function of
    the input makes.
    """
    with tf.Graph().as_default(), tf.Session(config=session_threads(cluster, device_count={"GPU": 0})):
        pass


def session_threads(cluster: Cluster, **others: Any) -> tf.ConfigProto:
    # A thread without work would first spin, by default, and take the core from the other tasks of its machine: of
    # 1 ps and 2 workers on 2 cores, the steps per second were 565 with it and 662 without; of 1 and 1, the same.
    without_spinning = tf.ConfigProto.Experimental(disable_thread_spinning=True)
    return tf.ConfigProto(intra_op_parallelism_threads=threads_of_an_operation(cluster, _num_cores()),
                          experimental=without_spinning, **others)


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
