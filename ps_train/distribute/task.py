"""One process of `ps_train keras` from start to end: start reading here.

    no cluster            train
    multi_worker_mirrored train; the chief besides evaluates and reports
    parameter_server      the chief coordinates, evaluates and reports; a ps or worker serves it
"""

from __future__ import annotations

import logging
import threading

from absl import logging as absl_logging

from ps_train.cluster import Cluster
from ps_train.distribute import conversion, serving, training
from ps_train.distribute.convert_options import ConvertConfig
from ps_train.distribute.options import KerasConfig


def run(config: KerasConfig, cluster: Cluster | None, stop: threading.Event) -> None:
    """Lives the life of this task.

    Raises:
      PsTrainError: what went wrong, with its exit code.
    """
    quieten(config.tf_log)
    loaded = training.load_plugins(config)
    if config.strategy == "parameter_server" and not cluster.is_chief:
        serving.serve(config, cluster, stop)
    else:
        training.train(config, cluster, loaded, stop)


def download(config: KerasConfig) -> None:
    """Fetches and checks the dataset's files, and checks the plug-ins on the way."""
    quieten(config.tf_log)
    loaded = training.load_plugins(config)
    loaded.dataset.prepare(loaded.dataset_params)


def convert(config: ConvertConfig) -> None:
    """Turns a checkpoint of one road into one of the other."""
    quieten(config.tf_log)
    conversion.run(config)


def quieten(tf_log: bool) -> None:
    """Shows TensorFlow's own messages only where they were asked for."""
    if not tf_log:
        logging.getLogger("tensorflow").setLevel(logging.ERROR)
        absl_logging.set_verbosity(absl_logging.ERROR)
