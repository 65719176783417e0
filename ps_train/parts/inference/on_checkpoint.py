"""Evaluates, exports and predicts with the checkpoint that the user means: `ps_train evaluate`, `export`, `predict`."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pathlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Callable

from ps_train.config.folders import problem_of_data_dir
from ps_train.config.groups import parse_accepted
from ps_train.config.task import Config
from ps_train.errors import ConfigError
from ps_train.parts.inference import examples, outputs, predictor, processes, request_inputs, serving
from ps_train.parts.inference.flags import CheckpointFlags, EvaluateConfig, ExportConfig, PredictConfig
from ps_train.parts.inference.predictor import Predictor
from ps_train.parts.sharding.position import reading_as_trained
from ps_train.parts.tables import contents
from ps_train.plugins.contracts import EVAL, TRAIN, VALIDATION
from ps_train.plugins.params import split_params
from ps_train.runtime import logs, threads
from ps_train.storage import checkpoints, folder_record
from ps_train.tasks import setup
from ps_train.tasks.setup import LoadedPlugins
from ps_train.training import evaluation
from ps_train.training.evaluation import EvalData, Evaluator
from ps_train.verbs.verb import json_answer

_MAX_LISTED = 8
_MODES = {"test": EVAL, "train": TRAIN, "validation": VALIDATION}
_NAMES = {"train": "training", "validation": "validation"}


def find_checkpoint(train_dir: str, checkpoint: str, flag: str = "--checkpoint") -> str:
    """Returns the path prefix of a checkpoint.

    Args:
      train_dir: the folder of the checkpoints.
      checkpoint: a global step, a path, `best`, or "" for the newest readable one.
      flag: that has it, for errors.

    Raises:
      ConfigError: it does not exist, or is a delta; the error lists the existing ones.
    """
    if checkpoint == checkpoints.BEST:
        train_dir, checkpoint = os.path.join(train_dir, checkpoints.BEST), ""
    if not os.path.isdir(train_dir):
        is_best = os.path.basename(train_dir) == checkpoints.BEST
        needs = ", which must have --keep_best or --early_stopping" if is_best else ""
        raise ConfigError("train_dir_missing",
                          f"--train_dir: no folder {train_dir!r}; give the --train_dir of the training{needs}")
    if not checkpoint:
        path = checkpoints.newest_sound(train_dir)
        if path is None:
            raise _without_checkpoint(train_dir)
        return path
    if checkpoint.isdecimal():
        candidates = [checkpoints.path_of(train_dir, int(checkpoint))]
    else:
        # A shell leaves ~ in --checkpoint=~/run/model.ckpt-1000.
        prefix = os.path.expanduser(checkpoint).removesuffix(".index").removesuffix(".meta")
        candidates = [prefix, os.path.join(train_dir, prefix)]
    path = next((path for path in candidates if checkpoints.exists(path)), None)
    if path and (base := contents.base_of(path)):
        raise ConfigError("delta_for_checkpoint", f"{flag}: {path} has only the rows that changed since {base}; give "
                          "that one, or let the training save at its end: it continues from both")
    if path is None:
        steps = [os.path.basename(path).rpartition("-")[2] for path in checkpoints.paths(train_dir)]
        raise ConfigError("no_checkpoint", f"{flag}: got {checkpoint!r}; {train_dir} has "
                          f"{', '.join(steps[-_MAX_LISTED:])}; give one of these, or a path"
                          ) if steps else _without_checkpoint(train_dir)
    checkpoints.verify(path)
    return path


def _without_checkpoint(train_dir: str) -> ConfigError:
    """Returns the error about a folder, which says what it has instead."""
    below = predictor.folders_with(train_dir, f"{checkpoints.BASENAME}-*.index")
    others = f"; give {' or '.join(below)}" if below else ""
    if any(pathlib.Path(train_dir).glob("ckpt-*.keras")):
        others = ("; its ckpt-N.keras are of `ps_train keras`: the command of that training evaluates the newest one "
                  "again, tf_keras.models.load_model reads it, and `ps_train convert --to=graph` converts it")
    return ConfigError("no_checkpoint", f"--train_dir: no checkpoint in {train_dir!r}{others}")


def evaluate_checkpoint(config: EvaluateConfig, stop: threading.Event) -> None:
    """Prints the metrics of a checkpoint.

    Raises:
      PsTrainError: the checkpoint does not exist or is of another model, or the data is wrong.
    """
    path, plugins = _prepare(config)
    with reading_as_trained(path):
        prepare_data(config, plugins, os.path.dirname(path))
        evaluator = Evaluator(*plugins, EvalData(_MODES[config.split], config.num_batches))
    evaluated = evaluation.evaluate_bounded(config.eval_timeout_secs, evaluator, path, stop)
    if config.json:
        logs.show(json_answer({
            "checkpoint": path, "global_step": evaluated.global_step, "split": config.split,
            "num_examples": evaluated.num_examples, "loss_name": evaluated.loss_name, "loss": evaluated.loss_mean,
            "metrics": dict(sorted(evaluated.metrics.items()))}))
        return
    logs.show((evaluated if config.split == "test" else evaluated._replace(split=_NAMES[config.split])).format())


def _prepare(config: CheckpointFlags) -> tuple[str, LoadedPlugins]:
    """Returns the checkpoint and the plug-ins, those of its training unless the flags name others."""
    setup.prepare_tensorflow(config.tf_log)
    path = find_checkpoint(config.train_dir, config.checkpoint)
    return path, load_as_trained(config, os.path.dirname(path))


def load_as_trained(config: CheckpointFlags, folder: str) -> LoadedPlugins:
    """Returns the plug-ins of the training with the checkpoints in a folder, unless the flags name others.

    Raises:
      ConfigError: the checkpoints there are of another model than the flags say, or a plug-in is wrong.
    """
    record = folder_record.read_record(folder)
    plugins = setup.load_plugins(_with_defaults(config, record))
    given = split_params("--params", config.params).keys()
    for plugin, params, kind in ((plugins.model, plugins.model_params, "model"),
                                 (plugins.dataset, plugins.dataset_params, "dataset")):
        if record.get(kind) == plugin.name:
            params.update({name: value for name, value in _recorded_params(record, kind).items()
                           if name not in given and name not in config.given and name in params})
    # Only the models are compared: the data need not be there. `prepare_data` compares what is in the data.
    used = folder_record.make_record(plugins.model, plugins.model_params, dataclasses.replace(
        plugins.dataset, data_identity=lambda params: None), plugins.dataset_params)
    folder_record.check_record(folder, {name: used[name] for name in ("model", "model_params")},
                               parse_accepted("--accept_params", config.accept_params))
    return plugins


def _recorded_params(record: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Returns the parameters of a plug-in in a record; `kind` is "model" or "dataset"."""
    return {**record.get(f"{kind}_params", {}), **(record.get("input", {}) if kind == "dataset" else {})}


def prepare_data(config: CheckpointFlags, plugins: LoadedPlugins, folder: str) -> None:
    """Prepares the data; `folder` has the checkpoint that will be used with them.

    Raises:
      ConfigError: its folder is that of the training and does not exist here; a dataset might create another one. Or
        the dataset is that of the training and says that its data have other features (`data_identity`).
      PsTrainError: the data is wrong.
    """
    data_dir = str(plugins.dataset_params.get("data_dir") or "")
    is_recorded = "data_dir" not in config.given and data_dir != Config.__dataclass_fields__["data_dir"].default
    if is_recorded and problem_of_data_dir(data_dir):
        raise ConfigError("data_dir_missing",
                          f"--data_dir: not given, and that of the training, {data_dir!r}, does not exist here; give "
                          "the folder with the dataset's files")
    dataset, params = plugins.dataset, plugins.dataset_params
    dataset.prepare(params)
    if folder_record.read_record(folder).get("dataset") == dataset.name:
        identity = dataset.data_identity(params) or {}
        folder_record.check_record(folder, {"dataset": dataset.name, "dataset_params": identity},
                                   parse_accepted("--accept_params", config.accept_params))


def _with_defaults(config: CheckpointFlags, record: dict[str, Any]) -> Any:
    """Returns the flags; those that are not set get the value of a record, or else the default of a training."""
    return dataclasses.replace(config, **{
        name: getattr(config, name) or (record.get(name) if name in ("model", "dataset") else None)
        or Config.__dataclass_fields__[name].default
        for name in ("model", "dataset", "data_dir", "on_bad_record")})


def export_checkpoint(config: ExportConfig, export: Callable[..., dict[str, str]] = serving.export_model) -> None:
    """Writes a checkpoint to export_dir/STEP, and prints its signatures.

    Args:
      export: writes the model; called as `serving.export_model` is.

    Raises:
      PsTrainError: the checkpoint does not exist or is of another model, or the model cannot be exported.
    """
    path, plugins = _prepare(config)
    output_dir = os.path.join(config.export_dir, str(checkpoints.step_of(path)))
    with reading_as_trained(path):
        if serving.needs_dataset(plugins.model, plugins.dataset):
            prepare_data(config, plugins, os.path.dirname(path))
        make_input = serving.serving_input_maker(*plugins)
        signatures = export(path, output_dir, plugins.model, plugins.model_params, make_input)
    logs.show("\n".join([f"Exported {path} to {output_dir}, with the signatures:",
                         *(f"  {name}: {line}" for name, line in sorted(signatures.items()))]))


def predict_examples(config: PredictConfig, stop: threading.Event) -> None:
    """Writes the predictions for a file or for the test examples of the dataset, in order.

    Raises:
      PsTrainError: the checkpoint does not exist or is of another model, or the data is wrong.
      StoppedError: stopped; then no file is written.
    """
    setup.prepare_tensorflow(config.tf_log)
    # All processes use the same checkpoint, also while a training writes newer ones.
    if config.saved_model:
        config = dataclasses.replace(config, saved_model=predictor.newest_version(config.saved_model))
    else:
        path = os.path.abspath(find_checkpoint(config.train_dir, config.checkpoint))
        config = dataclasses.replace(config, checkpoint=path)
    folder = os.path.dirname(os.path.abspath(config.output))
    num_examples = 0
    with outputs.writing(config.output) as write, contextlib.closing(
            processes.batches_in_order(predicted_batches, config, config.num_processes, folder, stop)) as batches:
        for batch in batches:
            write(batch)
            num_examples += len(next(iter(batch.values())))
    logs.show(f"Wrote {num_examples} predictions to {config.output}")


def predicted_batches(config: PredictConfig, share: tuple[int, int]) -> Iterator[dict[str, Any]]:
    """Yields the predictions for a share of the batches, (index, count), in this process."""
    setup.prepare_tensorflow(config.tf_log)
    num_threads = max(1, threads.num_cores() // share[1])
    needs_plugins = not config.saved_model or not config.input
    path, plugins = _plugins_to_predict(config) if needs_plugins else ("", None)
    with reading_as_trained(path), contextlib.closing(
            predictor.of_saved_model(config.saved_model, num_threads) if config.saved_model
            else _of_checkpoint(config, path, plugins, num_threads)) as model:
        model.select([name.strip() for name in config.outputs.split(",") if name.strip()])
        batches = (examples.file_batches(config.input, model.inputs, config.batch_size, share) if config.input
                   else examples.dataset_batches(plugins.dataset, plugins.dataset_params, model.inputs, share))
        with contextlib.closing(batches):  # here, also after an error: TensorFlow's stacks belong to this thread
            for batch in batches:
                yield model.predict(batch)


def _plugins_to_predict(config: PredictConfig) -> tuple[str, LoadedPlugins]:
    path = "" if config.saved_model else find_checkpoint(config.train_dir, config.checkpoint)
    folder = os.path.dirname(path) or config.train_dir
    plugins = load_as_trained(config, folder)
    if not config.input or serving.needs_dataset(plugins.model, plugins.dataset):
        with reading_as_trained(path):
            prepare_data(config, plugins, folder)
    return path, plugins


def _of_checkpoint(config: PredictConfig, path: str, plugins: LoadedPlugins, num_threads: int) -> Predictor:
    if config.input:
        make_input = serving.serving_input_maker(*plugins)
    else:
        specs = request_inputs.feature_specs(plugins.dataset, plugins.dataset_params)
        make_input = functools.partial(request_inputs.input_of_specs, specs)
    return predictor.of_checkpoint(path, plugins.model, plugins.model_params, make_input, num_threads)
