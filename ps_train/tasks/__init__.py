"""The life of each role: ps, worker, evaluator. Start with `run.py`.

    run --> server, setup --> ps: serve until training is done
                         --> worker: train; the chief also prepares, saves and evaluates
                         --> evaluator: evaluate each checkpoint
"""
