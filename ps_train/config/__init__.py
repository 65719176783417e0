"""Configuration: which flags exist, and what did the user choose?

    groups of flags, and those of parts --> Config, LaunchConfig
    argv --> fields -----------------------------^

Each flag is declared once, as a field of a group, with its help, limits and default. A verb lists the groups that it
takes; those of a part are in its flags.py. Start with `groups.py`.

    groups     the flags of the spine, in groups that verbs share; --optimizer and --learning_rate among them
    fields     turns the fields of a dataclass into flags and checked values
    flag_help  the help of flags, for verbs
    folders    the folders that flags name, on the machine of a verb
    task       Config, the flags of one task, and the checks of flags that depend on each other
    launch     LaunchConfig, the further flags of `ps_train launch`
"""
