"""One process of `ps_train keras` from start to end: start reading here.

    no cluster            train
    multi_worker_mirrored train; the chief besides evaluates and reports
    parameter_server      the chief coordinates, evaluates and reports; a ps or worker serves it
"""

from __future__ import annotations

import logging
import threading

from absl import logging as absl_logging

from ps_train.cluster.spec import Cluster
from ps_train.keras import plugins
from ps_train.keras.convert_flags import ConvertConfig
from ps_train.keras.flags import KerasConfig
from ps_train.keras.storage import checkpoints, conversion
from ps_train.keras.strategies import servers
from ps_train.keras.training import inputs, trainer
from ps_train.plugins.contracts import TRAIN
from ps_train.storage import folder_record


def run(config: KerasConfig, cluster: Cluster | None, stop: threading.Event) -> None:
    """Lives the life of this task.

    Raises:
      PsTrainError: what went wrong, with its exit code.
    """
    quieten(config.tf_log)
    loaded = plugins.load_keras_plugins(config)
    if config.strategy == "parameter_server" and not cluster.is_chief:
        servers.serve(config, cluster, stop)
    else:
        trainer.train(config, cluster, loaded, stop)


def download(config: KerasConfig) -> None:
    """Fetches and checks the dataset's files; of a task of a cluster, makes the model and the input, to find faults.

    Raises:
      ConfigError: the train_dir that was given has another training.
    """
    quieten(config.tf_log)
    loaded = plugins.load_keras_plugins(config)
    loaded.dataset.prepare(loaded.dataset_params)
    if "train_dir" in config.given and checkpoints.has_training(config.train_dir):
        folder_record.check(config.train_dir, folder_record.describe(*loaded))
    if config.job_name is not None:
        checkpoints.build_model(loaded.model, loaded.model_params)
        inputs.batches(loaded.dataset, loaded.dataset_params, TRAIN)


def convert(config: ConvertConfig) -> None:
    """Turns a checkpoint of one road into one of the other."""
    quieten(config.tf_log)
    conversion.run(config)


def quieten(tf_log: bool) -> None:
    """Shows TensorFlow's own messages only where they were asked for."""
    if not tf_log:
        logging.getLogger("tensorflow").setLevel(logging.ERROR)
        absl_logging.set_verbosity(absl_logging.ERROR)
