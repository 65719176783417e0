"""Status: what does a worker know after a step, and what does it cost? One transfer from ps 0.

    step_status  the values, and the operations that read them
"""
