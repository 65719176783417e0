"""What a script's own SyncReplicasOptimizer needs on the blackboard, beside the variables of synchronous updates."""

from __future__ import annotations

from ps_train.part import BoardVariable

VARIABLES = {"updates_ended": BoardVariable("int64")}  # 1 after the chief's last update
