"""Clicks at a bounded rate, so that a fault comes in the midst of training on any machine."""

from data import clicks
from tests.plugins import slow

DEFAULT_PARAMS = {**clicks.DEFAULT_PARAMS, "vocab": 200, "fields": 4, "group": 4, "eval_examples": 5000,
                  "batch_secs": 0.03}
prepare = clicks.prepare


def input_fn(mode, params, shard):
    """The examples of data.clicks; in training at most one mini-batch in `batch_secs` comes to each worker."""
    return slow.at_bounded_rate(clicks.input_fn(mode, params, shard), mode, params)
