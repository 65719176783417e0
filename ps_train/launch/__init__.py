"""How does a whole cluster run? As processes on this machine or over ssh on others, or in threads of one process.

    Training --> preparation (one process) --> command_lines --> a process per task --> its log and its reports
        |                                                                                      |
        +-- launcher, supervision                            display, or tmux <----------------+

Start with `training.py`. Nothing here imports TensorFlow, but the tasks in threads.

    training       `ps_train.Training`: the flags, the cluster and the result of a training, for programs and `launch`
    result         how it has ended
    preparation    checks everything and fetches the data in one process, before any task starts
    launcher       the steps of a launch; the tasks from start to end
    command_lines  the command line of each task
    part           the seam for parts: other machines, another display
    machines       where each task runs, here or on another machine; keeps ports free for tasks here
    process        a child process, its log file, and its reports to the launcher, as JSON
    supervision    watches the processes, restarts lost ones (--max_restarts), and ends all in the right order
    fork_server    a process that has imported TensorFlow, of which the tasks are forks
    display        the output of all tasks in one stream, with a progress bar
    in_threads     all tasks in threads of this process, for tests
"""
