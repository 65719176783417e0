"""Models of clicks on data with a known best AUC: DeepFM finds what logistic regression cannot, in several modes."""

from __future__ import annotations

import pytest

from data import clicks
from ps_train import testing

PARAMS = {"vocab": 200, "fields": 6, "pairs": 6, "eval_examples": 10_000}
LEAST_MARGIN = 0.04  # the best scores are 0.776 with interactions and 0.708 without


def train(folder, model, learning_rate, params="", **flags):
    """Returns the AUC after 400 steps of 256 examples."""
    found = testing.run_in_threads(
        f"models.{model}", "data.clicks", train_dir=folder, train_steps=400, batch_size=256, seed=1, num_gpus=0,
        log_steps=0, save_summaries_steps=0, learning_rate=learning_rate,
        params=",".join(f"{name}={value}" for name, value in PARAMS.items()) + params, **flags)
    return found.evaluation.metrics["auc"]


@pytest.fixture(scope="module")
def linear_auc(tmp_path_factory):
    """The AUC of logistic regression, which lies below the best one without interactions."""
    best = clicks.best_scores({**clicks.DEFAULT_PARAMS, **PARAMS, "seed": 1})
    found = train(tmp_path_factory.mktemp("linear"), "logistic_regression", 0.3, num_workers=1)
    assert best.linear_auc - LEAST_MARGIN < found < best.linear_auc + 0.005
    return found


# For several steps in an execution see cluster/updates/test_table_modes.py.
@pytest.mark.parametrize("flags", [{"num_workers": 2}, {"num_workers": 2, "communication_period": 8}],
                         ids=["async", "local_steps"])
def test_deepfm_beats_logistic_regression(tmp_path, linear_auc, flags):
    """After the same examples, with lazy Adam."""
    assert train(tmp_path, "deepfm", 0.01, ",dim=8,layers=32", **flags) > linear_auc + LEAST_MARGIN
