"""The chief's evaluation of the newest checkpoint, in this process alone, and its report."""

from __future__ import annotations

from ps_train.errors import ClusterLostError, PsTrainError
from ps_train.parts.keras.flags import KerasConfig
from ps_train.parts.keras.plugins import KerasPlugins
from ps_train.parts.keras.storage import keras_checkpoints
from ps_train.parts.keras.training.inputs import KerasInputs
from ps_train.parts.keras.training.planning import TrainingSpan
from ps_train.plugins.contracts import EVAL
from ps_train.runtime import waits
from ps_train.runtime.reports import Evaluation


def report_newest(config: KerasConfig, plugins: KerasPlugins, span: TrainingSpan, examples_per_step: int) -> None:
    """Prints the metrics of the newest checkpoint, and the speed of training.

    Raises:
      PsTrainError: there is no checkpoint, it is of another model, or the evaluation takes too long.
    """
    evaluation = _evaluate_newest(config, plugins)
    print(evaluation.format(), flush=True)
    steps = evaluation.global_step - span.first_step
    if steps > 0:
        rate = steps * examples_per_step / max(span.secs, 1e-9)
        print(f"Training took {span.secs:.2f} s, {rate:.0f} examples per second over all workers", flush=True)


def _evaluate_newest(config: KerasConfig, plugins: KerasPlugins) -> Evaluation:
    """Returns the metrics of the newest checkpoint on the whole held-out set."""
    newest = keras_checkpoints.newest_readable(config.train_dir)
    if newest is None:
        raise PsTrainError(f"there is no checkpoint in {config.train_dir} that could be evaluated")
    step, path = newest
    model = keras_checkpoints.load_model_file(path, plugins.model.objects)
    inputs = KerasInputs(config, plugins.dataset, plugins.dataset_params)
    sizes = inputs.eval_sizes()
    try:
        values = waits.bounded(
            lambda: model.evaluate(inputs.batches(EVAL), steps=len(sizes), verbose=0, return_dict=True),
            config.eval_timeout_secs, "the evaluation")
    except ClusterLostError as error:
        raise PsTrainError(f"--eval_timeout_secs: {error} of {path}; training is saved: give more time, and the "
                           "same command evaluates again") from error
    loss_name = getattr(model.loss, "name", None) or getattr(model.loss, "__name__", "loss")
    return Evaluation(step, sum(sizes), loss_name.replace("_", " "), values.pop("loss") * sum(sizes), values)
