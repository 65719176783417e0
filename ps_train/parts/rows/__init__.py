"""What is a row of a table now, and which rows moved most since a checkpoint? `ps_train rows` reads checkpoints only.

    verb      the words of the verb
    flags     its flags
    looking   finds rows by id, and compares two checkpoints

The user's page: docs/embeddings.md. Tests: tests/{unit,cluster,system}/parts/rows.
"""
