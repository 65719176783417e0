"""--profile_steps: where does the time of a step go?

    traced steps --> StepStats --spans--> what each task did --phases--> pull, compute, push, wait, call

Start with `recorder.py`. Each worker traces its steps, prints a table of phases and writes a Chrome trace.

    recorder  traces steps, prints the table and writes the timeline
    spans     reads TensorFlow's StepStats as spans of time on tasks
    phases    divides the time of a step into phases
"""
