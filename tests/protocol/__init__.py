"""The tasks of a cluster on a virtual clock, with faults between any two of their calls (docs/decisions/exploring.md).

    interpreter.py   runs the operations of a TensorFlow graph one by one; operations.py says what each of them does
    simulation.py    what happens next, and the network; processes.py has tasks, threads and clocks, sessions.py calls
    tasks.py         ps, workers, evaluator, client: the code of ps_train, in such processes; stand_ins.py, model.py
    ranges.py        the input by ranges
    explorer.py      schedules: which fault comes when; walks, exhaustive search, shrinking
    invariants.py    what must hold in each run
    planted.py       faults in the code, which the explorer must find
"""
