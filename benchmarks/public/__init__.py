"""Public TF1 jobs run as they are: what `benchmarks.public_scripts` is made of.

    sets/           catalogue.json: what ps_train was written with; field.json: jobs that nobody had run when a half of
                    them was drawn by lot, `seen` and `unseen`; third.json and so on: collected later, and written down
                    before anyone had run one; third.py and so on: the small synthetic data for their jobs
    data            the data of the catalogue's jobs
    catalogue       which jobs there are, at which commit, and how each is started
    sandbox         temporary folders and a network of its own for a job
    commands        command line and environment of each task
    running         runs a job: starts its tasks, waits, ends what is left
    report          JSON and Markdown
    as_v1           `import tensorflow as tf` gives `tensorflow.compat.v1`, to compare with
"""
