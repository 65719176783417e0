"""One process of `ps_train keras` from start to end: start reading here.

    no cluster            train
    multi_worker_mirrored train; the chief also evaluates and reports
    parameter_server      the chief coordinates, evaluates and reports; a ps or worker serves it
"""

from __future__ import annotations

import logging
import threading

from absl import logging as absl_logging

from ps_train.cluster.spec import Cluster
from ps_train.config.groups import parse_accepted
from ps_train.parts.keras.flags import ConvertConfig, KerasConfig
from ps_train.parts.keras.plugins import load_keras_plugins
from ps_train.parts.keras.storage import conversion, keras_checkpoints
from ps_train.parts.keras.strategies import servers
from ps_train.parts.keras.training import trainer
from ps_train.parts.keras.training.inputs import KerasInputs
from ps_train.plugins.contracts import TRAIN
from ps_train.storage import folder_record


def run_keras_task(config: KerasConfig, cluster: Cluster | None, stop: threading.Event) -> None:
    """Runs this task to its end.

    Raises:
      PsTrainError: what went wrong, with its exit code.
    """
    _quieten(config.tf_log)
    plugins = load_keras_plugins(config)
    if config.strategy == "parameter_server" and not cluster.is_chief:
        servers.serve_coordinator(config, cluster, stop)
    else:
        trainer.run_training(config, cluster, plugins, stop)


def download_data(config: KerasConfig) -> None:
    """Fetches and checks the dataset's files; for a task of a cluster, also checks that model and input can be built.

    Raises:
      ConfigError: the given train_dir has another training.
    """
    _quieten(config.tf_log)
    plugins = load_keras_plugins(config)
    plugins.dataset.prepare(plugins.dataset_params)
    if "train_dir" in config.given and keras_checkpoints.has_training(config.train_dir):
        folder_record.check_record(config.train_dir, folder_record.make_record(*plugins),
                                   parse_accepted("--accept_params", config.accept_params))
    if config.job_name is not None:
        keras_checkpoints.build_model(plugins.model, plugins.model_params)
        KerasInputs(config, plugins.dataset, plugins.dataset_params).batches(TRAIN)


def convert(config: ConvertConfig) -> None:
    """Turns a checkpoint of one road into one of the other."""
    _quieten(config.tf_log)
    conversion.convert_checkpoint(config)


def _quieten(tf_log: bool) -> None:
    """Hides TensorFlow's own messages, unless --tf_log asks for them."""
    if not tf_log:
        logging.getLogger("tensorflow").setLevel(logging.ERROR)
        absl_logging.set_verbosity(absl_logging.ERROR)
