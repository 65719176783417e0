"""How do all workers evaluate the last checkpoint together? `--evaluate_with=workers`

    chief     plan: a share for each worker that is there --> its own share --> shares of dead workers --> merged result
    workers   wait for the plan --> their share: lookups on the ps, metrics here --> the sums to ps 0 --> end

Start with `chief.py`. The decision: docs/decisions/evaluation.md.

    chief           opens the evaluation, waits for the shares, merges them
    participation   what every other worker does
    share_graph     the model in mode "eval", with its variables on the ps
    metric_sums     the variables behind the metrics, which must be sums
    exchange        plan and results on ps 0
"""
