"""`ps_train launch --hosts`: the tasks of a cluster run on other machines, over ssh.

    launcher --> relay (a local process per task) --> ssh --> watcher (on the host) --> `python -m ps_train`, the task
                   beats, "stop" ------------------------------->
                   <---------------------- lines, reports, the exit code

To the launcher a relay is a task like any other: it prints the output of the task, sends its reports, and ends with its
exit code. A watcher ends its task when the connection breaks. Start with `part.py`. Nothing here imports TensorFlow.

    part        the part of a launch that runs each task on its host
    hosts       the flags, the list of hosts, the host of each task, and the command line of ssh
    preflight   asks all hosts at once, before any task starts, and keeps the connections that reserve the ports;
                run on a host, it is the probe that answers
    connection  relay and watcher, the two ends of the connection to a task
"""
