"""--profile_steps: where the time of a step goes.

Start with `recorder.py`. Each worker traces its own steps, prints a table of phases and writes a Chrome trace.
"""
