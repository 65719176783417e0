"""Writes and compares `training.json`, which records to which model and data the checkpoints of a train_dir belong.

    {"model": "models.cnn", "model_params": {"hidden_units": 100, "dropout": 0.2, ...},
     "dataset": "data.mnist", "dataset_params": {...},
     "input": {"data_dir": "/data/mnist", "on_bad_record": "stop"}}

It compares everything that makes a different network or different data: the plug-ins, their parameters, and
--hidden_units. A user may change all other flags between two runs: optimizer, learning rate, batch size, seed, number
of steps and workers, and the location of the data, which includes parameters whose names end in `_files`. Of these,
"input" has those with which `ps_train evaluate` reads the same data.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Collection, Mapping
from typing import Any

from ps_train.errors import ConfigError
from ps_train.plugins.contracts import Plugin

RECORD_NAME = "training.json"
_INPUT_FLAGS = ("data_dir", "on_bad_record", "seed")
_log = logging.getLogger(__name__)


def make_record(
    model: Plugin, model_params: Mapping[str, Any], dataset: Plugin, dataset_params: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the record of a training.

    Args:
      model_params: the model's `params`, of which the record has those in its DEFAULT_PARAMS, and the hidden units.
      dataset_params: the dataset's `params`, of which the record has those in its DEFAULT_PARAMS, and its identity.
    """
    compared = {"hidden_units", *model.default_params}
    return {"model": model.name, "model_params": {name: model_params[name] for name in sorted(compared)},
            "dataset": dataset.name,
            "dataset_params": {name: dataset_params[name] for name in sorted(dataset.default_params)
                               if not name.endswith("_files")} | (dataset.data_identity(dataset_params) or {})}


def make_input_record(dataset: Plugin, dataset_params: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the data that this run reads, and how; a later run may read other data, so it is not compared."""
    names = [*_INPUT_FLAGS, *sorted(dataset.default_params)]
    input_params = {name: dataset_params[name] for name in names
             if name in _INPUT_FLAGS or name.endswith("_files") if dataset_params.get(name) is not None}
    if input_params.get("data_dir") and "://" not in input_params["data_dir"]:
        input_params["data_dir"] = os.path.abspath(input_params["data_dir"])  # evaluations may run in another folder
    return {"input": input_params}


def check_record(train_dir: str, record: Mapping[str, Any], accepted: Collection[str] = ()) -> None:
    """Compares the record of this training with that in the folder, if it has one.

    Args:
      record: from `make_record`; without "dataset" only the models are compared.
      accepted: the parameters that may differ, of --accept_params.

    Raises:
      ConfigError: the checkpoints there belong to another model or to other data; the error lists the differences.
    """
    differing = {name: line for name, line in _differences(record, read_record(train_dir)).items()
                 if name not in accepted}
    if not differing:
        return
    advice = (f"remove {os.path.join(train_dir, RECORD_NAME)}" if any(name.startswith("--") for name in differing)
              else f"add --accept_params={','.join(differing)}")
    raise ConfigError("other_training_in_folder", f"--train_dir: {train_dir} belongs to another training: "
                      f"{'; '.join(differing.values())}; give another --train_dir, or the flags of that training; to "
                      f"continue from its checkpoints with these flags, {advice}")


def write_record(train_dir: str, record: Mapping[str, Any]) -> None:
    """Writes the record into the folder; only warns if that fails."""
    if read_record(train_dir) == record:
        return
    path = os.path.join(train_dir, RECORD_NAME)
    temporary = f"{path}.tmp"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(record, file, indent=2)
            file.write("\n")
        os.replace(temporary, path)
    except OSError as error:
        _log.warning("cannot write %s: %s; a run with other flags will not be refused in this folder", path,
                     error.strerror)
        with contextlib.suppress(OSError):
            os.remove(temporary)


def read_record(train_dir: str) -> dict[str, Any]:
    """Returns the record in the folder, or {} if it has none that can be read."""
    path = os.path.join(train_dir, RECORD_NAME)
    try:
        with open(path, encoding="utf-8") as file:
            record = json.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        _log.warning("%s cannot be read and will be replaced: %s", path, error)
        return {}
    return record if isinstance(record, dict) else {}


def _differences(record: Mapping[str, Any], recorded: Mapping[str, Any]) -> dict[str, str]:
    """Returns name of a flag or parameter -> a line for each difference; a parameter of both plug-ins has one."""
    lines = {}
    for kind in ("model", "dataset"):
        if kind not in recorded or kind not in record:
            continue
        if record[kind] != recorded[kind]:
            lines[f"--{kind}"] = _difference(f"--{kind}", record[kind], recorded[kind])
            continue  # the parameters of another plug-in have other meanings
        # Only the parameters in both: a newer version of a plug-in may have more of them.
        here, there = record[f"{kind}_params"], recorded.get(f"{kind}_params", {})
        for name in sorted(here.keys() & there.keys()):
            if json.dumps(here[name]) != json.dumps(there[name]):
                is_flag = name == "hidden_units"
                lines[f"--{name}" if is_flag else name] = _difference(
                    f"--{name}" if is_flag else f"{name} in --params", here[name], there[name])
    return lines


def _difference(name: str, here: Any, there: Any) -> str:
    return f"{name} is {here}, but {there} in the folder"
