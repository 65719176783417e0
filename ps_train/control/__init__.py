"""What can be asked about a training from outside? Before it: `ps_train plan` and `ps_train doctor`.

    plan       what a training will place and transfer: `TrainingPlan`, from a worker's graph
    transfers  what crosses the network in a step, from the graph
    doctor/    examines this machine, and the network between tasks
    planning   builds the graph that the flags describe, and prints its plan

Start with `plan.py`.
"""
