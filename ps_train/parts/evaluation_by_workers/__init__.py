"""How do all workers evaluate the last checkpoint together? `--evaluate_with=workers`

    chief     plan: a share for each live worker --> evaluate share 0 --> shares of dead workers --> merged result
    workers   wait for the plan --> their share: lookups on the ps, metrics here --> the sums to ps 0 --> end

Start with `roles.py`. The decision: docs/decisions/evaluation.md. Tests: tests/*/parts/evaluation_by_workers/.

    part         replaces the evaluation by the chief
    roles        the roles of the chief and of every other worker
    share_graph  the model in mode "eval", with its variables on the ps; the sums behind its metrics
    exchange     plan and results on ps 0
"""
