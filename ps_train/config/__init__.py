"""From flags to frozen configuration: the only place that reads a command line.

    groups of flags --> Config, LaunchConfig (task)
    argv --> fields --------^

A flag is written once, as a field of a group: its help, limits and default are there. A verb lists the groups that it
takes. Start with `groups.py`.
"""
