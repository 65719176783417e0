"""Embedding tables: how does a model look up rows of tables that are larger than a worker?

    ids --> unique, by ps --> [ps: find, read] --> rows --> model --> gradients --> [ps: rule, write]

Start with `tables.py`, which has what a model_fn calls.

    tables      `embedding_table` and its lookups
    variable    the same under DeepRec's names: `get_embedding_variable`
    spec        what a model says about a table, as a value
    registry    the tables and lookups of a graph, and what their ids are called in messages
    connection  one transfer each way per ps for all lookups of a step
    id_check    stops a step whose ids cannot be in their table
    rules       how a row is updated
    optimizer   applies the gradients of tables, and of all other variables
    copies      a worker's copies of rows in a round of local steps
    parameters  what the spine sees of the tables of a graph
    part        what a worker does for them: settings, upkeep, what is saved
    deltas      what has changed since a checkpoint, in a file next to it
    rows/       the rows of a table on one ps
    files/      makes, saves and restores tables
"""
