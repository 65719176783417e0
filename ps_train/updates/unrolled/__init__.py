"""Unrolled steps: --steps_per_execution runs several single steps in one session run, each with its own pull and push.

Start with `steps.py`. The decision: docs/decisions/unrolled-steps.md.

    steps.py     chains copies of a step, and counts those that a failed session run has made
    clones.py    copies the operations of a step, and refuses what it cannot copy
"""
