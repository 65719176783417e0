"""Configuration: which flags exist, and what did the user choose? Only this folder parses command lines.

    groups of flags --> Config, LaunchConfig
    argv --> fields --------^

Each flag is declared once, as a field of a group, with its help, limits and default. A verb lists the groups that it
takes. Start with `groups.py`.

    groups      the flags, in groups that verbs share
    embeddings  the flags of embedding tables
    selection   the flags of evaluations during training
    fields      turns the fields of a dataclass into flags, help texts and checked values
    task        Config, the flags of one task, and the checks of flags that depend on each other
    launch      LaunchConfig, the further flags of `ps_train launch`
    script      the flags of `ps_train run`, and the command line of the script
    control/    the flags of `ps_train plan` and `doctor`
    inference   the flags of `ps_train evaluate`, `predict` and `export`
"""
