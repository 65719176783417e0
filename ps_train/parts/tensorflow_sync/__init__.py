"""`--sync_engine=tensorflow`: synchronous updates by TensorFlow's own `SyncReplicasOptimizer`, with bounded waits.

`part.py` has it all. Without this part, `--sync_replicas` has ps_train's own engine (updates/sync/aggregation.py) only.
The user's page is docs/update-modes.md; the reasons are in docs/decisions/sync.md.
"""
