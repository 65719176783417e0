"""What a task sets before anything else in its process uses TensorFlow: the TF1 mode, and its share of the cores."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.cluster import addresses
from ps_train.cluster.spec import Cluster
from ps_train.config.task import Config
from ps_train.plugins import contracts, loader
from ps_train.plugins.params import resolve_params


class LoadedPlugins(NamedTuple):
    """The model and the dataset, each with its parameters."""

    model: contracts.Model
    model_params: dict[str, Any]
    dataset: contracts.Dataset
    dataset_params: dict[str, Any]


def load_plugins(config: Config) -> LoadedPlugins:
    """Imports and checks the plug-ins that the configuration names.

    Raises:
      ConfigError: one is missing or has another contract, or --params does not fit them.
    """
    model, dataset = loader.load_model(config.model), loader.load_dataset(config.dataset)
    shared = {name: getattr(config, name)
              for name in ("batch_size", "data_dir", "hidden_units", "learning_rate", "seed")}
    model_params, dataset_params = resolve_params(config.params, [model, dataset], shared)
    return LoadedPlugins(model, model_params, dataset, dataset_params)


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
    """Returns the options of a session or server of this task, with its share of the cores; `others` are added."""
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
    own_host = addresses.host_of(cluster.task.address)
    workers = cluster.server_spec.get("worker", {}).values()
    num_workers = sum(addresses.host_of(address) == own_host for address in workers)
    if num_workers < 2 or os.environ.get("TF_NUM_INTRAOP_THREADS"):
        return 0
    return max(1, num_cores // num_workers)


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
