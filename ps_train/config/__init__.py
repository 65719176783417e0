"""From flags to frozen configuration: the only place that reads a command line.

    argv --> fields --> Config (task), LaunchConfig (launch)

A flag is written once, as a field: its help, limits and default come from there. Start with `task.py`.
"""
