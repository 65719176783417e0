"""What any process needs: time limits for waits, signals, log streams, and the lines that tasks report.

Start with `waits.py`. Nothing here knows what a cluster is, and nothing imports TensorFlow.

    waits    wait until a condition holds or the time is over; a call in a thread of its own
    signals  SIGTERM and Ctrl-C: the first asks to stop, the second ends the process
    logs     where lines go, and how TensorFlow is imported without its start-up messages
    reports  progress, stages, failures: their lines in a log, and the JSON in which the launcher gets them
"""
