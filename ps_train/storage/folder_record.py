"""Writes and compares `training.json`, which records to which model and data the checkpoints of a train_dir belong.

    {"model": "models.cnn", "model_params": {"hidden_units": 100, "dropout": 0.2, ...},
     "dataset": "data.mnist", "dataset_params": {...}}

It contains what makes a different network or different data: the plug-ins, their own parameters, and --hidden_units. A
user may change the rest between two runs: optimizer, learning rate, batch size, seed, number of steps and workers,
location of the data, to which parameters belong whose names end in `_files`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Mapping
from typing import Any

from ps_train.errors import ConfigError
from ps_train.plugins.contracts import Plugin

RECORD_NAME = "training.json"
_log = logging.getLogger(__name__)


def make_record(
    model: Plugin, model_params: Mapping[str, Any], dataset: Plugin, dataset_params: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the record of a training.

    Args:
      model_params: the model's `params`, of which the record has those in its DEFAULT_PARAMS, and the hidden units.
      dataset_params: the dataset's `params`, of which the record has those in its DEFAULT_PARAMS.
    """
    own_of_model = {"hidden_units", *model.default_params}
    return {"model": model.name, "model_params": {name: model_params[name] for name in sorted(own_of_model)},
            "dataset": dataset.name,
            "dataset_params": {name: dataset_params[name] for name in sorted(dataset.default_params)
                               if not name.endswith("_files")}}


def check_record(train_dir: str, own: Mapping[str, Any]) -> None:
    """Compares the record of this training with that in the folder, if there is one.

    Args:
      own: as `make_record` makes it; without "dataset" only the models are compared.

    Raises:
      ConfigError: the checkpoints there belong to another model or to other data; the error lists the differences.
    """
    differing = _differences(own, read_record(train_dir))
    if differing:
        raise ConfigError(f"--train_dir: {train_dir} has another training: {'; '.join(differing)}; give another "
                          "--train_dir, or the flags of that training. To continue from its checkpoints all the "
                          f"same, remove {os.path.join(train_dir, RECORD_NAME)}")


def write_record(train_dir: str, own: Mapping[str, Any]) -> None:
    """Writes the record into the folder; only warns if that fails."""
    if read_record(train_dir) == own:
        return
    path = os.path.join(train_dir, RECORD_NAME)
    beside = f"{path}.tmp"
    try:
        with open(beside, "w", encoding="utf-8") as file:
            json.dump(own, file, indent=2)
            file.write("\n")
        os.replace(beside, path)
    except OSError as error:
        _log.warning("cannot write %s: %s; a run with other flags will not be refused in this folder", path,
                     error.strerror)
        with contextlib.suppress(OSError):
            os.remove(beside)


def read_record(train_dir: str) -> dict[str, Any]:
    """Returns the record in the folder, or {} if there is none that can be read."""
    path = os.path.join(train_dir, RECORD_NAME)
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        _log.warning("%s cannot be read and will be replaced: %s", path, error)
        return {}
    return found if isinstance(found, dict) else {}


def _differences(own: Mapping[str, Any], recorded: Mapping[str, Any]) -> list[str]:
    """Returns a text for each difference."""
    found = []
    for kind in ("model", "dataset"):
        if kind not in recorded or kind not in own:
            continue
        if own[kind] != recorded[kind]:
            found.append(_difference(f"--{kind}", own[kind], recorded[kind]))
            continue  # the parameters of another plug-in have other meanings
        # Only the parameters in both: a newer version of a plug-in may have more of them.
        here, there = own[f"{kind}_params"], recorded.get(f"{kind}_params", {})
        found += [_difference("--hidden_units" if name == "hidden_units" else f"{name} in --params", here[name],
                              there[name])
                  for name in sorted(here.keys() & there.keys()) if json.dumps(here[name]) != json.dumps(there[name])]
    return list(dict.fromkeys(found))  # a parameter of both plug-ins is named once


def _difference(name: str, here: Any, there: Any) -> str:
    return f"{name} is {here}, but {there} in the folder"
