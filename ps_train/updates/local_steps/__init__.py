"""Local steps: a worker pulls once, takes several steps on its own copy of the parameters, and pushes the change.

    one round:   pull --> step, step, ..., step on the copy --> push the change

Start with `rounds.py`. The decision: docs/decisions/local-steps.md.

    rounds.py            adds a round to the graph: pull, steps, push
    change.py            what a worker pushes, by how many workers it is divided, and the optimizer that applies it
    variable_copies.py   the worker's copy of the variables, a second build of the model that reads it, and the move of
                         optimizer slots between the worker and the ps
"""
