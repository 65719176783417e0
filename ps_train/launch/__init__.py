"""A whole cluster as processes of this machine: `ps_train launch`.

    launcher --> command_lines --> process, one per task, and its log file
        |                             |
        +-- supervision, restarts <---+--> display, or a tmux session

Start with `launcher.py`. Nothing here imports TensorFlow.
"""
