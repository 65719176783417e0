"""The flags of `ps_train evaluate`, `predict` and `export`, which work on a checkpoint and need no cluster."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence
from typing import Any, Optional

from ps_train.config import fields, flag_help
from ps_train.config.groups import ModelFlags
from ps_train.config.task import Config
from ps_train.errors import Problem, refuse
from ps_train.runtime import tensorflow_errors

SPLITS = ("test", "train", "validation")
OUTPUT_FORMATS = (".csv", ".npz", ".tfrecord")
INPUT_FORMATS = (".csv", ".npz")

_again = functools.partial(fields.redeclare, Config)
_field = functools.partial(fields.field, group="Using a checkpoint")
_AS_TRAINED = "that of the training, from training.json"


@dataclasses.dataclass(frozen=True)
class CheckpointFlags(ModelFlags):
    """Which checkpoint to use, and the model and data of its training."""

    model: str = _again("model", unset=_AS_TRAINED, default="")
    dataset: str = _again("dataset", unset=_AS_TRAINED, default="")
    train_dir: str = _again("train_dir", help="Folder with the checkpoints.", unset="none; required")
    data_dir: str = _again("data_dir", unset=_AS_TRAINED, default="")
    on_bad_record: Optional[str] = _again("on_bad_record", unset=_AS_TRAINED, default=None)
    batch_size: int = _again("batch_size")
    seed: Optional[int] = _again("seed", unset=_AS_TRAINED)
    accept_params: str = _again("accept_params")
    checkpoint: str = _field(
        "", help="The checkpoint: its global step, a path such as DIR/model.ckpt-1000, or `best`.",
        unit="STEP, PATH or best", unset="the newest")
    tf_log: bool = _again("tf_log")

    def _common_problems(self, verb: str, *required: str) -> list[Problem]:
        return [*fields.problems(vars(self), type(self)), *flag_help.foreign(self.given, verb, type(self)),
                *(Problem("flag_missing", f"--{name}: not given; it is {_REQUIRED[name]}")
                  for name in required if not getattr(self, name)),
                *(Problem("path_is_pattern", f"--{name}: got {getattr(self, name)!r}; {problem}")
                  for name in _OF_MODELS if (problem := tensorflow_errors.problem_of_path(getattr(self, name, ""))))]


_OF_MODELS = ("export_dir", "publish_dir", "saved_model")  # a SavedModel has its variables in a checkpoint
_REQUIRED = {
    "train_dir": "the folder of the checkpoints",
    "export_dir": "the folder for the SavedModel, as DIR/STEP",
    "output": "the file to write, which ends in " + ", ".join(OUTPUT_FORMATS),
}


@dataclasses.dataclass(frozen=True)
class EvaluateConfig(CheckpointFlags):
    """The flags of `ps_train evaluate`; raises ConfigError with a line for each one that is wrong or missing."""

    split: str = _field("test", help="The examples to evaluate on.", choices=SPLITS)
    num_batches: Optional[int] = _field(
        None, help="Mini-batches to evaluate; required for data that repeats.", minimum=1, unset="all")
    json: bool = _field(False, help="Print the result as one line of JSON.")
    eval_timeout_secs: float = _again("eval_timeout_secs")

    def __post_init__(self) -> None:
        refuse(self._common_problems("evaluate", "train_dir"))


@dataclasses.dataclass(frozen=True)
class ExportConfig(CheckpointFlags):
    """The flags of `ps_train export`; raises ConfigError with a line for each one that is wrong or missing."""

    export_dir: str = _field("", help="Folder for the SavedModel, which becomes DIR/STEP.", unit="path",
                             unset="none; required")

    def __post_init__(self) -> None:
        refuse(self._common_problems("export", "train_dir", "export_dir"))


@dataclasses.dataclass(frozen=True)
class PredictConfig(CheckpointFlags):
    """The flags of `ps_train predict`; raises ConfigError with a line for each one that is wrong or missing."""

    output: str = _field("", help="File for the predictions; its ending says the format.",
                         unit="FILE.csv, .npz or .tfrecord", unset="none; required", is_path=True)
    input: str = _field("", help="File with the features.", unit="FILE.csv or .npz",
                        unset="the test examples of --dataset", is_path=True)
    saved_model: str = _field("", help="Predict with this SavedModel instead of a checkpoint.", unit="path",
                              unset="none", is_path=False)  # TensorFlow reads it
    outputs: str = _field("", help="The predictions to write.", unit="name,...", unset="all")
    num_processes: int = _field(1, help="Processes that predict, each a share of the mini-batches.", minimum=1,
                                maximum=256)

    def __post_init__(self) -> None:
        problems = self._common_problems("predict", *(() if self.saved_model else ("train_dir",)), "output")
        if self.saved_model and not self.input and not self.train_dir and not self.dataset:
            problems.append(Problem("flag_missing", "--saved_model: given without --input; give a file there, or "
                                    "--dataset"))
        if self.saved_model and self.checkpoint:
            problems.append(Problem("flags_conflict", "--checkpoint: given with --saved_model, which has its own "
                                    "parameters; leave one of them out"))
        for name, allowed in (("input", INPUT_FORMATS), ("output", OUTPUT_FORMATS)):
            value = getattr(self, name)
            if value and os.path.splitext(value)[1] not in allowed:
                problems.append(Problem("flag_malformed",
                                        f"--{name}: got {value!r}; allowed: a file that ends in {', '.join(allowed)}"))
        refuse(problems)


def parse_evaluate(argv: Sequence[str]) -> EvaluateConfig:
    """Returns the flags of a command line; raises ConfigError if they are wrong."""
    return _parse(argv, EvaluateConfig, "evaluate")


def parse_export(argv: Sequence[str]) -> ExportConfig:
    """Returns the flags of a command line; raises ConfigError if they are wrong."""
    return _parse(argv, ExportConfig, "export")


def parse_predict(argv: Sequence[str]) -> PredictConfig:
    """Returns the flags of a command line; raises ConfigError if they are wrong."""
    return _parse(argv, PredictConfig, "predict")


def _parse(argv: Sequence[str], cls: type, verb: str) -> Any:
    values, given = fields.parse_flags(argv, cls, others=[Config], help_command=f"ps_train {verb} --help")
    return cls(**values, given=given)
