"""`--profile_steps`: where the time of a step goes.

    traced steps --> StepStats --phases--> pull, compute, push, wait, call

Each worker traces its steps, prints a table of phases and writes a Chrome trace. Start with `part.py`.

    part    traces steps, prints the table and writes the timeline
    phases  reads TensorFlow's StepStats as spans of time on tasks, and divides the time of a step into phases
"""
