"""The file `training.json` in a train_dir: which network on which data its checkpoints are of.

    {"model": "models.cnn", "model_params": {"hidden_units": 100, "dropout": 0.2, ...},
     "dataset": "data.mnist", "dataset_params": {...}}

It has what makes another network or other data: the plug-ins with their own parameters, and --hidden_units. Left out is
what a user may change between two runs: optimizer and learning rate, batch size, number of steps and of workers, seed,
the place of the data.
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

NAME = "training.json"
_log = logging.getLogger(__name__)


def describe(
    model: Plugin, model_params: Mapping[str, Any], dataset: Plugin, dataset_params: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the record of a training.

    Args:
      model_params: what the model gets; of it counts what is in its DEFAULT_PARAMS, and the hidden units.
      dataset_params: what the dataset gets; of it counts what is in its DEFAULT_PARAMS.
    """
    own_of_model = {"hidden_units", *model.default_params}
    return {"model": model.name, "model_params": {name: model_params[name] for name in sorted(own_of_model)},
            "dataset": dataset.name,
            "dataset_params": {name: dataset_params[name] for name in sorted(dataset.default_params)}}


def check(train_dir: str, own: Mapping[str, Any]) -> None:
    """Compares a training with what is in the folder, where there is a record of it.

    Raises:
      ConfigError: the checkpoints there are of another network or of other data; the text lists what differs.
    """
    differing = _differences(own, _read(train_dir))
    if differing:
        raise ConfigError(f"--train_dir: {train_dir} has another training: {'; '.join(differing)}; give another "
                          "--train_dir, or the flags that this one was made with. To go on with its checkpoints all "
                          f"the same, remove {os.path.join(train_dir, NAME)}")


def write(train_dir: str, own: Mapping[str, Any]) -> None:
    """Notes what the checkpoints of the folder are of; where that fails, it says so, and nothing else happens."""
    if _read(train_dir) == own:
        return
    path = os.path.join(train_dir, NAME)
    beside = f"{path}.tmp"
    try:
        with open(beside, "w", encoding="utf-8") as file:
            json.dump(own, file, indent=2)
            file.write("\n")
        os.replace(beside, path)
    except OSError as error:
        _log.warning("cannot write %s: %s; other flags will not be noticed in this folder", path, error.strerror)
        with contextlib.suppress(OSError):
            os.remove(beside)


def _read(train_dir: str) -> dict[str, Any]:
    """Returns the record of a folder, {} where there is none that can be read."""
    path = os.path.join(train_dir, NAME)
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        _log.warning("%s cannot be read, and is made anew: %s", path, error)
        return {}
    return found if isinstance(found, dict) else {}


def _differences(own: Mapping[str, Any], noted: Mapping[str, Any]) -> list[str]:
    """Returns a text for each difference; of a parameter only where both know it, as a plug-in may get further ones."""
    found = []
    for kind in ("model", "dataset"):
        if kind not in noted:
            continue
        if own[kind] != noted[kind]:
            found.append(_difference(f"--{kind}", own[kind], noted[kind]))
            continue  # another plug-in has parameters of another meaning
        here, there = own[f"{kind}_params"], noted.get(f"{kind}_params", {})
        found += [_difference("--hidden_units" if name == "hidden_units" else f"{name} in --params", here[name],
                              there[name])
                  for name in sorted(here.keys() & there.keys()) if json.dumps(here[name]) != json.dumps(there[name])]
    return list(dict.fromkeys(found))  # a parameter that both plug-ins have differs once


def _difference(name: str, here: Any, there: Any) -> str:
    return f"{name} is {here}, and in the folder {there}"
