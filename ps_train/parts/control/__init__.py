"""Watches and controls a training from outside: `ps_train status`, `save`, `stop` and `resume`. Start with `asking.py`.

    verb      the verbs and their flags
    asking    the clients: they ask, wait in bounded time, and print
    looking   the state of a training, as a client reads it from the ps
    requests  the requests of clients, by variables on ps 0, and the chief's answers
    part      the chief's side: describes the training, answers, keeps the journal
    history   the journal: the changes of workers, how a training ended, and its events in words

Documentation: docs/operate.md. Tests: tests/*/parts/control/.
"""
