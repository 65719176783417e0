"""What does a training place where, and what does a step transfer? `ps_train plan` answers before anything runs.

    flags  the flags of the verb
    plan   builds the graph, reads sizes and transfers off it, and prints the plan
"""
