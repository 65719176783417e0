"""Where does a training place its variables, and what does a step transfer? `ps_train plan`, before the training.

    flags  the flags of the verb
    plan   builds the graph, reads sizes and transfers off it, and prints the plan
"""
