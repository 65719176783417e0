"""`--cluster_from`: a task finds its cluster in what JobSet, an Indexed Job, Slurm or a user sets in its environment.

    the environment --sources--> the addresses of all tasks, and which one this is --> the text of TF_CONFIG

Start with `sources.py`.

    flags    --cluster_from, --cluster_tasks, --cluster_port, --cluster_service
    sources  one function for each scheduler
    slurm    the tasks of a job step of Slurm
    verb     `ps_train tf_config`, which prints it for other verbs and programs

The user's page: docs/jobset.md. Tests: tests/unit/parts/schedulers, tests/system/deploy.
"""
