"""Decides what follows from each evaluation: keep its checkpoint as the best, export it, end training.

    Evaluation --> selection.json --> better than ever?    train_dir/best/, export_dir/best/STEP
                                  --> not for a long time? should_stop
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import logging
import os
import shlex
import shutil
from collections.abc import Collection
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.errors import CheckpointError, ConfigError, PsTrainError, SaveError
from ps_train.parts.selection.flags import (
    OF_EACH_EVALUATION,
    Target,
    parse_exporters,
    parse_stopping,
    parse_target,
)
from ps_train.parts.selection.record import SelectionRecord
from ps_train.runtime import clock
from ps_train.runtime.reports import Evaluation
from ps_train.storage import checkpoints, folder_record
from ps_train.tasks.setup import LoadedPlugins

LOSS = "loss"
_KEPT = 5  # exports of each exporter but `final`, as in Estimator
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class SelectionSettings:
    """What follows from evaluations.

    Attributes:
      eval_steps, eval_secs: between evaluations; 0 where that does not count.
      keep_best: the metric of the best checkpoint, or None.
      stopping: the metric that must improve for training to continue, or None.
      patience: evaluations in a row without a better value.
      export_dir: folder of SavedModels, "" for none.
      exporters: of "latest", "best", "final" and "live".
    """

    eval_steps: int = 0
    eval_secs: float = 0.0
    keep_best: Target | None = None
    stopping: Target | None = None
    patience: int = 0
    export_dir: str = ""
    exporters: Collection[str] = ()

    @property
    def evaluates_during_training(self) -> bool:
        """Whether there must be evaluations before the last one."""
        return bool(self.eval_steps or self.eval_secs or self.keep_best or self.stopping
                    or self.exports_each_evaluation)

    @property
    def exports_each_evaluation(self) -> bool:
        """Whether the checkpoint of each evaluation is exported."""
        return not OF_EACH_EVALUATION.isdisjoint(self.exporters)

    @property
    def kept(self) -> Target | None:
        """The metric of the checkpoint in train_dir/best, or None if none is kept."""
        return self.keep_best or self.stopping

    @property
    def targets(self) -> dict[str, Target]:
        """Name of a flag -> its target."""
        targets = {"keep_best": self.keep_best, "early_stopping": self.stopping}
        return {name: target for name, target in targets.items() if target}

    @property
    def selects(self) -> str:
        """The flags by which something follows from each evaluation, as text; "" without any."""
        texts = {name: f"{target.metric}:{'max' if target.is_max else 'min'}" for name, target in self.targets.items()}
        if self.stopping:
            texts["early_stopping"] += f":{self.patience}"
        if exporters := sorted({*self.exporters} - {"final"}):  # that one is the chief's
            texts["exporters"] = ",".join(exporters)
        return ", ".join(f"--{name}={text}" for name, text in texts.items())


def selection_settings(config: Any) -> SelectionSettings:
    """Returns what the flags of a Config say."""
    stopping, patience = parse_stopping("--early_stopping", config.early_stopping) or (None, 0)
    chosen = parse_exporters("--exporters", config.exporters)
    default = ("final", "best") if config.keep_best or config.early_stopping else ("final",)
    return SelectionSettings(
        eval_steps=config.eval_steps, eval_secs=config.eval_secs,
        keep_best=parse_target("--keep_best", config.keep_best), stopping=stopping, patience=patience,
        export_dir=config.export_dir, exporters=(chosen or default) if config.export_dir else ())


class EvalTimer:
    """Decides whether a checkpoint should be evaluated; without a period, each is."""

    def __init__(self, settings: SelectionSettings, last_step: int = 0) -> None:
        self._settings = settings
        self.evaluated(max(0, last_step))

    def is_due(self, step: int) -> bool:
        """Returns whether the checkpoint of this step should be evaluated."""
        steps, secs = self._settings.eval_steps, self._settings.eval_secs
        if step < self._last_step:  # the newest is of a new training, whose steps begin again
            return True
        return (not steps and not secs or bool(steps) and step >= self._last_step + steps
                or bool(secs) and clock.now() >= self._last_secs + secs)

    def evaluated(self, step: int) -> None:
        """Begins the next period."""
        self._last_step, self._last_secs = step, clock.now()


class Selector:
    """The decisions of one training. One task at a time uses it: the evaluator, or else the chief."""

    def __init__(self, settings: SelectionSettings, train_dir: str, plugins: LoadedPlugins) -> None:
        """Prepares it; reads and writes nothing yet."""
        self.settings, self._train_dir, self._plugins = settings, train_dir, plugins
        self._unwritten: SelectionRecord | None = None  # the last record, if it could not be written

    def check(self, metrics: Collection[str]) -> None:
        """Checks the flags against the model.

        Args:
          metrics: the names of the model's metrics that are one number.

        Raises:
          ConfigError: the model has no such metric; the error lists those that it has.
          UserCodeError: the model cannot be exported.
        """
        for flag, target in self.settings.targets.items():
            if target.metric not in {LOSS, *metrics}:
                raise ConfigError("no_such_metric", f"--{flag}: the model has no metric {target.metric!r} that is one "
                                  f"number; allowed: {', '.join(sorted({LOSS, *metrics}))}")
        if self.settings.exporters:
            model, params, *_ = self._plugins
            serving = _serving()
            make_input = serving.serving_input_maker(*self._plugins)
            serving.check_exportable(model, params, make_input)
            if "live" in self.settings.exporters:
                _live().check_live(model, params, make_input)

    def last_step(self) -> int:
        """Returns the global step of the last evaluation that was considered, -1 before the first."""
        newest, record = checkpoints.newest_sound(self._train_dir), self._record()
        if newest is None or record is None:  # without a checkpoint the chief will start from step 0
            return -1
        return min(record.last_step, checkpoints.step_of(newest))  # the chief will write that, see `go_back`

    def should_stop(self) -> str:
        """Returns why training is to end, "" if it is not."""
        record = self._record() if self.settings.stopping else None
        if record is None:
            return ""
        standing = record["early_stopping"]
        if standing.num_worse < self.settings.patience:
            return ""
        best = "never had a value" if standing.value is None else f"was best with {standing.value:.6g} at step " \
            f"{standing.step}"
        return (f"early stopping: {standing.metric} {best}, and was not better in {standing.num_worse} evaluations "
                "since then")

    def describe_earlier_stop(self) -> str:
        """Returns why a continued training would end at once, and how to continue it; "" if it would not."""
        reason, record = self.should_stop(), self._record()
        if not reason or record is None:
            return ""
        target, patience = self.settings.stopping, self.settings.patience
        enough = record["early_stopping"].num_worse + patience
        return (f"this training was stopped early, and with a patience of {patience} it stops again at once; {reason}. "
                "To continue, give a larger patience, such as "
                f"--early_stopping={target.metric}:{'max' if target.is_max else 'min'}:{enough}, or leave the flag out")

    def describe_best(self) -> str:
        """Returns which checkpoint is the best, where it is and how to use it; "" if none was evaluated for that."""
        target = self.settings.kept
        record = self._record() if target else None
        if record is None:
            return ""
        standing = record["keep_best" if self.settings.keep_best else "early_stopping"]
        if standing.value is None:
            return ""
        best = f"best {target.metric}: {standing.value:.6g} at step {standing.step}"
        kept = os.path.join(self._train_dir, standing.checkpoint)
        if not standing.checkpoint or not checkpoints.exists(kept):
            return f"{best}; its checkpoint was not kept"
        return (f"{best}, kept as {kept}; `ps_train evaluate --train_dir={shlex.quote(self._train_dir)} "
                "--checkpoint=best` takes it, and so do predict and export")

    def consider(self, evaluation: Evaluation, path: str) -> None:
        """Keeps, exports and counts what an evaluation calls for; ignores a second evaluation of the same step."""
        if not self.settings.targets and not self.settings.exports_each_evaluation:
            return
        record = self._record()
        if record is None or evaluation.global_step == record.last_step:
            return
        values = {LOSS: evaluation.loss_mean, **evaluation.metrics}
        for flag, target in self.settings.targets.items():
            if target.metric not in values:
                _warn(f"--{flag}: {target.metric} is not one number, so evaluations do not count")
        for best in record.count(values, evaluation.global_step):
            if (best.metric, best.is_max) != self.settings.kept:
                continue
            best.checkpoint = self._keep(path, best.metric, best.value)
            if not best.checkpoint and self.settings.keep_best:
                return  # a later evaluation with that value counts as better
        for exporter in sorted(OF_EACH_EVALUATION):
            self.export(exporter, path)
        self._unwritten = None if record.write() else record

    def export(self, exporter: str, path: str) -> None:
        """Exports a checkpoint to DIR/EXPORTER/STEP, as Estimator does, if the flags name that exporter.

        Raises:
          SaveError: the exporter is `final`, and failed; during training a failure is only a warning.
        """
        if exporter not in self.settings.exporters:
            return
        folder = output_dir = os.path.join(self.settings.export_dir, exporter)
        try:
            output_dir = os.path.join(folder, str(checkpoints.step_of(path)))  # it may have been removed meanwhile
            if _is_newer(output_dir, path):  # of an earlier run
                _log.info("%s exists already", output_dir)
                return
            is_old = os.path.exists(output_dir)
            self._write_model(exporter, path, output_dir)
        except (PsTrainError, OSError, tf.errors.OpError) as error:
            if exporter == "final":
                raise SaveError("export_failed", f"cannot export {path} to {output_dir}: {error}; the checkpoint can "
                                "be read: correct that, then run `ps_train export`") from error
            _log.warning("cannot export %s to %s: %s; training continues", path, output_dir, error)
            return
        _log.info("exported %s to %s%s", path, output_dir,
                  ", replacing an older model; restart a server that has loaded that one" if is_old else "")
        if exporter != "final":
            _prune(folder, output_dir)

    def _write_model(self, exporter: str, path: str, output_dir: str) -> None:
        model, params, *_ = self._plugins
        serving = _serving()
        write = _live().write_live if exporter == "live" else serving.export_model
        write(path, output_dir, model, params, serving.serving_input_maker(*self._plugins), replaces=True)

    def _record(self) -> SelectionRecord | None:
        """Returns the record; None if it cannot be read now: a new one would take any checkpoint for the best."""
        try:
            # A copy: what it counts must not stay if the best checkpoint cannot be kept.
            return copy.deepcopy(self._unwritten) or SelectionRecord(self._train_dir, self.settings.targets)
        except OSError as error:
            _warn(f"cannot read {error.filename}: {error.strerror}; evaluations do not count meanwhile")
            return None

    def _keep(self, path: str, metric: str, value: float) -> str:
        """Copies the best checkpoint to its folder, replacing the previous one.

        Returns:
          its path, relative to the train_dir; "" if it could not be copied.
        """
        folder = os.path.join(self._train_dir, checkpoints.BEST)
        try:
            kept = _copy_to(path, folder)
            record = os.path.join(self._train_dir, folder_record.RECORD_NAME)
            if os.path.exists(record):
                shutil.copy(record, folder)
        except (OSError, CheckpointError, tf.errors.OpError) as error:
            _log.warning("cannot keep %s as the best: %s; a larger --keep_checkpoint_max keeps checkpoints for longer",
                         path, error)
            return ""
        _log.info("best %s so far: %.6g, kept as %s", metric, value, kept)
        self.export("best", kept)
        return os.path.join(checkpoints.BEST, os.path.basename(kept))


@functools.cache  # whether training is to end is asked every second
def _warn(message: str) -> None:
    _log.warning("%s", message)


def _serving() -> Any:
    """Returns the module that writes SavedModels."""
    from ps_train.parts.inference import serving  # noqa: PLC0415 (another part, which only an export needs)

    return serving


def _live() -> Any:
    """Returns the module that writes live models."""
    from ps_train.parts.live import exporting  # noqa: PLC0415 (another part, which only such an export needs)

    return exporting


def _is_newer(export: str, path: str) -> bool:
    """Returns whether there is an export that was written after a checkpoint."""
    try:
        return os.stat(os.path.join(export, "saved_model.pb")).st_mtime_ns >= os.stat(f"{path}.index").st_mtime_ns
    except FileNotFoundError:
        return False


def _prune(folder: str, newest: str) -> None:
    """Removes all but the models that were written last, `newest` among those that stay."""
    versions = [name for name in os.listdir(folder) if name.isdecimal()]
    if higher := [name for name in versions if int(name) > int(os.path.basename(newest))]:
        _log.warning("%s has %s, of another training: a server that takes the highest number does not take %s; give "
                     "each training an --export_dir of its own", folder, max(higher, key=int), newest)
    paths = {os.path.join(folder, name) for name in versions} - {newest}
    for old in sorted(paths, key=_written_ns)[:-_KEPT + 1]:
        shutil.rmtree(old, ignore_errors=True)


def _written_ns(export: str) -> tuple[int, int]:
    """Returns when a model was written; the number decides between those that a copy has given one time."""
    try:
        written_ns = os.stat(os.path.join(export, "saved_model.pb")).st_mtime_ns
    except FileNotFoundError:  # not a whole model
        written_ns = 0
    return written_ns, int(os.path.basename(export))


def _copy_to(path: str, folder: str) -> str:
    """Copies a checkpoint to another folder, where it replaces all others; returns its path there.

    Raises:
      CheckpointError: it was removed in the meantime, or cannot be read.
      OSError: the folder cannot be written.
    """
    os.makedirs(folder, exist_ok=True)
    kept = os.path.join(folder, os.path.basename(path))
    files = [file for file in checkpoints.files_of(path) if checkpoints.FILE.fullmatch(os.path.basename(file))]
    for file in sorted(files, key=lambda file: file.endswith(".index")):  # the index last: only then it exists
        shutil.copy(file, folder)
    checkpoints.verify(kept)
    checkpoints.record_and_prune(folder, kept, 1)
    for other in checkpoints.paths(folder):
        if other != kept:  # of a later step
            checkpoints.remove(other)
    return kept
