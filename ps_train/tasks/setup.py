"""Before a task begins: the TF1 mode, its share of the cores, the plug-ins that it loads, and its TensorFlow server."""

from __future__ import annotations

import logging
import os
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.cluster import addresses, ports
from ps_train.cluster.spec import Cluster
from ps_train.config.optimizer import problems_of_make_optimizer
from ps_train.config.task import Config
from ps_train.errors import ConfigError, refuse
from ps_train.graph import devices
from ps_train.parts import table as parts
from ps_train.plugins import contracts, loader
from ps_train.plugins.params import resolve_params

_log = logging.getLogger(__name__)


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
    parts.prepare_for_plugins()
    model, dataset = loader.load_model(config.model), loader.load_dataset(config.dataset)
    if model.make_optimizer:
        refuse(problems_of_make_optimizer(config, config.model))
    shared = {name: getattr(config, name)
              for name in ("batch_size", "data_dir", "hidden_units", "learning_rate", "on_bad_record", "seed")}
    model_params, dataset_params = resolve_params(config.params, [model, dataset], shared)
    return LoadedPlugins(model, model_params, dataset, dataset_params)


def prepare_tensorflow(tf_log: bool) -> None:
    """Puts TensorFlow into the mode that TF1 graph code expects, for this whole process."""
    tf.disable_v2_behavior()
    # Otherwise a worker could read a half-updated parameter, see docs/decisions/resource-variables.md.
    tf.enable_resource_variables()
    tf.logging.set_verbosity(tf.logging.INFO if tf_log else tf.logging.ERROR)


def share_cores(cluster: Cluster) -> None:
    """Sets how many threads an operation uses in this process. Call it before anything else creates a device."""
    # TensorFlow creates these threads once per process, with its first device. Tracing a function of the input
    # pipeline may already create one.
    with tf.Graph().as_default(), tf.Session(config=session_threads(cluster, device_count={"GPU": 0})):
        pass


def session_threads(cluster: Cluster, **others: Any) -> tf.ConfigProto:
    """Returns the options of a session or server of this task, with its share of the cores; `others` are added."""
    # By default an idle thread first spins, and takes a core from the other tasks of the machine. On 2 cores, 1 ps and
    # 2 workers took 565 steps per second with spinning and 662 without; 1 ps and 1 worker were equally fast.
    without_spinning = tf.ConfigProto.Experimental(disable_thread_spinning=True)
    return tf.ConfigProto(intra_op_parallelism_threads=threads_of_an_operation(cluster, num_cores()),
                          experimental=without_spinning, **others)


def threads_of_an_operation(cluster: Cluster, num_cores: int) -> int:
    """Returns how many threads an operation of this task uses; 0 leaves it to TensorFlow, which takes every core.

    The workers of one machine share its cores. TensorFlow's own variable TF_NUM_INTRAOP_THREADS takes precedence.
    """
    # By default each task splits an operation into as many parts as there are cores, and waits for the part whose core
    # another task uses. On 2 cores, 1 ps and 2 workers took 2700 local steps per second that way, and 3400 with one
    # thread each; 670 and 735 single steps.
    own_host = addresses.host_of(cluster.task.address)
    workers = cluster.server_spec.get("worker", {}).values()
    num_workers = sum(addresses.host_of(address) == own_host for address in workers)
    if num_workers < 2 or os.environ.get("TF_NUM_INTRAOP_THREADS"):
        return 0
    return max(1, num_cores // num_workers)


def num_cores() -> int:
    """Returns the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
        raise ConfigError("server_not_started",
                          f"TensorFlow could not start the server of {cluster.task}: {error.message}") from error
    _log.info("%s serves at %s, which others reach at %s%s", cluster.task.name, cluster.task.address,
              addresses.reachable_at(addresses.port_of(cluster.task.address)),
              "; all tasks serve without authentication" if cluster.is_chief else "")
    if cluster.job != "ps":
        index = devices.gpu_index(cluster, num_gpus)
        devices.log_devices(cluster.task.name, ["CPU:0" if index is None else f"GPU:{index}"], num_gpus)
    return server.target


def _session_config(cluster: Cluster, num_gpus: int | None) -> tf.ConfigProto:
    index = devices.gpu_index(cluster, num_gpus)
    if index is None:
        return session_threads(cluster, device_count={"GPU": 0})
    # Several workers may share a GPU, so none may take all of its memory at the start.
    return session_threads(cluster, gpu_options=tf.GPUOptions(visible_device_list=str(index), allow_growth=True))
