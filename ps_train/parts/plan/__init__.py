"""`ps_train plan`: where a training would place its variables, and what a step would transfer.

    verb   the flags and the verb
    plan   builds the graph, reads sizes and transfers off it, and prints the plan
"""
