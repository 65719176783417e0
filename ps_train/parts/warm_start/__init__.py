"""`--init_checkpoint`: a new training begins with values of another one's checkpoint.

    flags   --init_checkpoint and --init_map
    part    finds the variables in that checkpoint, and sets them when the chief has made new parameters; what it needs
            for mutable tables is in entries, for other types in casting, for variables in parts in partitions

The user's page: docs/optimizers.md. Tests: tests/{unit,cluster}/parts/warm_start.
"""
