"""The variable of evaluations on the blackboard."""

from __future__ import annotations

from ps_train.part import BoardVariable

VARIABLES = {
    "evaluator_heard": BoardVariable("float64"),  # the clock at its last sign of life (evaluations.py)
    "evaluator_selects": BoardVariable("string"),  # its flags of which something follows, "" without any
}
