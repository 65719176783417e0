"""What SyncReplicasOptimizer in a script needs on the blackboard, in addition to the variables of sync."""

from __future__ import annotations

from ps_train.part import BoardVariable

VARIABLES = {
    "updates_ended": BoardVariable("int64"),  # 1 after the chief's last update
    "updates_failed": BoardVariable("int64"),  # 1 after an error of the chief, which may begin again
}
