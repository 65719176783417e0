"""What does any process need? Bounded waits, signals, logs, reports, tracebacks.

Start with `waits.py`. Nothing here knows about clusters, and only `installed` imports TensorFlow, for a verb.

    waits              waits until a condition holds; a call with a time limit; the time limits
    threads            a call in a thread; a call that is repeated in the background
    signals            SIGTERM and Ctrl-C: the first asks to stop, the second ends the process
    logs               the log of a process, and its standard streams
    installed          checks which TensorFlow is installed; imports it without its start-up messages; chooses its Keras
    tensorflow_errors  finds the line in a TensorFlow error that says what happened
    tracebacks         reports a fault in the user's code by the user's own lines
    advice             recognises missing modules and code of Python 2, and says what to do
    reports            progress, stages and failures: their lines in a log, and the JSON in which the launcher gets them
"""
