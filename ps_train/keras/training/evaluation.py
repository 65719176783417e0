"""The chief's evaluation of the newest checkpoint, in this process alone, and its report."""

from __future__ import annotations

import tf_keras

from ps_train.errors import ClusterLostError, PsTrainError
from ps_train.keras.flags import KerasConfig
from ps_train.keras.plugins import KerasPlugins
from ps_train.keras.storage import checkpoints
from ps_train.keras.training import inputs
from ps_train.keras.training.planning import Span
from ps_train.plugins.contracts import EVAL
from ps_train.runtime import waits
from ps_train.runtime.reports import Evaluation


def report(config: KerasConfig, loaded: KerasPlugins, span: Span, examples_per_step: int) -> None:
    """Prints the metrics of the newest checkpoint, and how fast training was.

    Raises:
      PsTrainError: there is no checkpoint, it is of another model, or the evaluation takes too long.
    """
    evaluation = evaluate(config, loaded)
    print(evaluation.format(), flush=True)
    steps = evaluation.global_step - span.first_step
    if steps > 0:
        rate = steps * examples_per_step / max(span.secs, 1e-9)
        print(f"Training took {span.secs:.2f} s, {rate:.0f} examples per second over all workers", flush=True)


def evaluate(config: KerasConfig, loaded: KerasPlugins) -> Evaluation:
    """Returns the metrics of the newest checkpoint on the whole held-out set.

    Raises:
      PsTrainError: there is no checkpoint, it is of another model, or it takes longer than --eval_timeout_secs.
    """
    newest = checkpoints.newest_sound(config.train_dir)
    if newest is None:
        raise PsTrainError(f"there is no checkpoint in {config.train_dir} that could be evaluated")
    step, path = newest
    model = checkpoints.load(path, loaded.model.objects)
    sizes = inputs.sizes(config, loaded.dataset, loaded.dataset_params)
    try:
        values = waits.bounded(lambda: _metrics(model, loaded, len(sizes)), config.eval_timeout_secs,
                                 "the evaluation")
    except ClusterLostError as error:
        raise PsTrainError(f"--eval_timeout_secs: {error} of {path}; training is saved: give more time, and the "
                           "same command evaluates again") from error
    loss_name = getattr(model.loss, "name", None) or getattr(model.loss, "__name__", "loss")
    return Evaluation(step, sum(sizes), loss_name.replace("_", " "), values.pop("loss") * sum(sizes), values)


def _metrics(model: tf_keras.Model, loaded: KerasPlugins, num_batches: int) -> dict[str, float]:
    held_out = inputs.batches(loaded.dataset, loaded.dataset_params, EVAL)
    return model.evaluate(held_out, steps=num_batches, verbose=0, return_dict=True)
