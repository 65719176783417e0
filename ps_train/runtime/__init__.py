"""What every process needs in any role: how does it wait, stop, log, and report errors?

Start with `waits.py`. Nothing here knows about clusters, and TensorFlow is imported for a verb only.

    waits              waits until a condition holds or the time is over; a call with a time limit; the time limits
    threads            a call in its own thread; a call that is repeated in the background
    signals            SIGTERM and Ctrl-C: the first asks to stop, the second ends the process
    logs               the log of a process, and the import of TensorFlow without its start-up messages
    installed          checks which TensorFlow is installed, without importing it; imports it for a verb
    keras_import       chooses between Keras 3 and tf_keras, and when they are imported
    tensorflow_errors  finds the line in a TensorFlow error that says what happened
    tracebacks         reports a fault in the user's code by the user's own lines
    advice             what to do about a missing module, and about code of Python 2
    reports            progress, stages and failures: their lines in a log, and the JSON in which the launcher gets them
"""
