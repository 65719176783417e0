"""Public TF1 jobs run as they are: what `benchmarks.public_scripts` is made of.

    catalogue.json  catalogue   which jobs there are, at which commit, and how each is started
    field.json                  jobs that nobody had run when half of them was drawn by lot: `seen` and `unseen`
    NAME.json                   the sets that were collected later: nobody had run a job when it was written down
    data, field_data            small synthetic data in the formats that the jobs read
    NAME_data                   the same for the jobs of a later set
    sandbox                     temporary folders and a network of its own for a job
    commands                    command line and environment of each task
    running                     runs a job: starts its tasks, waits, ends what is left
    report                      JSON and Markdown
    as_v1                       `import tensorflow as tf` gives `tensorflow.compat.v1`, to compare with
"""
