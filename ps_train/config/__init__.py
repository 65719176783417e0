"""From flags to frozen configuration. Only this folder reads a command line.

    argv --> fields --> Config (task), LaunchConfig (launch)

Each flag is declared once, as a field, with its help, limits and default. Start with `task.py`.
"""
