"""--steps_per_execution: several single steps in one session run, each with its own pull and push.

Start with `steps.py`; `clones.py` copies the operations of a step.
"""
