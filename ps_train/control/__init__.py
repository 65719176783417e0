"""What can be asked about a training from outside?

    before it      `ps_train plan`, `ps_train doctor`
    while it runs  `ps_train status`, `save`, `stop`, `resume`
    afterwards     `ps_train report`, which may also be made while it runs

    plan       what a training will place and transfer: `TrainingPlan`, from a worker's graph
    transfers  what crosses the network in a step, from the graph
    doctor/    examines this machine, and the network between tasks
    looking    what the blackboard and the train_dir tell of a training that runs
    wording    what `status` prints
    asking     lets it save and stop, with bounded waits
    report/    writes what happened as an HTML page
    planning   builds the graph that the flags describe, and prints its plan

Start with `plan.py`.
"""
