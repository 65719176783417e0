"""The shares of an evaluation by all workers, on the blackboard."""

from __future__ import annotations

from ps_train.part import BoardVariable

VARIABLES = {
    "evaluation_plan": BoardVariable("string"),  # the worker of each share, as JSON
    "evaluation_results": BoardVariable("string", is_per_worker=True),  # the result of each share
}
