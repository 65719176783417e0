"""The requests of clients to the chief, and the answer, on the blackboard."""

from __future__ import annotations

from ps_train.part import BoardVariable

VARIABLES = {
    "about": BoardVariable("string"),  # the training, as JSON
    "save_requested": BoardVariable("int64"),  # the number of the last request
    "save_answer": BoardVariable("string"),  # the number of the request and its result, as JSON
}
