"""`ps_train tune`: short trials that find the fastest cluster and steps for a model, within a bound that the user sets.

    verb     runs it
    flags    the flags, and the bound on a metric
    tuning   which values each setting may take; runs the search, prints it, recommends a command
    search   which choice is tried next, and which is the fastest; pure
    trial    runs a choice as a training of its own, and measures it
"""
