"""Runs a whole cluster as processes on this machine: `ps_train launch`.

    launcher --> preparation (one process) --> command_lines --> a process per task --> its log and its reports
        |                                                                                      |
        +-- supervision, restarts                                       display, or tmux <-----+

Start with `launcher.py`. Nothing here imports TensorFlow.
"""
