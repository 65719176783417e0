"""From flags to frozen configuration. Only this folder reads a command line.

    groups of flags --> Config, LaunchConfig (task)
    argv --> fields --------^

Each flag is declared once, as a field of a group, with its help, limits and default. A verb lists the groups that it
takes. Start with `groups.py`.
"""
