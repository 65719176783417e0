"""How do the tasks of a cluster run on other machines? `ps_train launch --hosts`, over ssh.

    launcher --> relay (a local process per task) --> ssh --> watcher (on the host) --> `python -m ps_train`, the task
                   beats, "stop" ------------------------------->
                   <---------------------- lines, reports, the exit code

To the launcher a relay is a task like any other: it prints the output of the task, sends its reports, and ends with its
exit code. A watcher ends its task when the connection breaks. Start with `preflight.py`. Nothing here imports
TensorFlow.

    part        the part of a launch that runs each task on its host
    hosts       the list of hosts, which task runs where, and the command line of ssh
    preflight   asks all hosts at once, before any task starts, and keeps the connections that reserve the ports;
                run on a host, it is the probe that answers
    relay       here, for one task: starts ssh, passes output and signals on; the frames that a watcher writes
    watcher     on a host, for one task: starts it, passes its output back, and ends it when the connection breaks
"""
