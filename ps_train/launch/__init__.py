"""How does a whole cluster run as processes, on this machine or over ssh on others? `ps_train launch`.

    launcher --> preparation (one process) --> command_lines --> a process per task --> its log and its reports
        |                                                                                      |
        +-- supervision                                                 display, or tmux <-----+

Start with `launcher.py`. Nothing here imports TensorFlow.

    launcher       runs a cluster from start to end
    preparation    checks everything and fetches the data in one process, before any task starts
    command_lines  the command line of each task
    machines       where each task runs, here or on another machine; keeps ports free for tasks here
    process        a child process, its log file, and its reports to the launcher, as JSON
    supervision    watches the processes, restarts lost ones (--max_restarts), and ends all in the right order
    display        the output of all tasks in one stream, with a progress bar
"""
