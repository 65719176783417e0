"""Watches and controls a training from outside: `ps_train status`, `save`, `stop` and `resume`. Start with `asking.py`.

    asking    the clients: they ask, wait in bounded time, and print
    looking   the state of a training, as a client reads it from the ps
    ended     how a training has ended, from the chief's journal
    requests  the requests of clients, by variables on ps 0, and the chief's answers
    part      the chief's side: describes the training, answers, keeps the journal
    diary     the journal: which workers joined, fell silent and came back

Documentation: docs/operate.md. Tests: tests/*/parts/control/.
"""
