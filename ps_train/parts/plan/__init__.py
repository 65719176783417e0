"""What does a training place where, and what does a step transfer? `ps_train plan` answers before anything runs.

    flags      the flags of the verb
    plan       reads sizes and transfers off a built graph
    planning   builds the graphs and prints the plan
    transfers  which tensors a step sends between tasks
"""
