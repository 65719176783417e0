"""`ps_train compare`: are the losses of two trainings the same, step by step?

    verb     the words of the verb
    flags    its flags
    losses   reads the loss of each step from event files, a CSV file or a log
    table    compares them, and prints the table

Start with `table.py`. The user's page: docs/migrate.md, "Compare before and after". Tests: tests/unit/parts/compare.
"""
