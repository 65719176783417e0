"""Embedding tables: how does a model look up rows of tables that are larger than a worker?

    ids --> unique, by ps --> [ps: find, read] --> rows --> model --> gradients --> [ps: rule, write]

Start with `tables.py`, which has what a model_fn calls.

    tables       `embedding_table` and its lookups; `get_embedding_variable`, the same with DeepRec's arguments
    rules        what a model says about a table; how a row is stored and updated
    registry     the tables and lookups of a graph, and the names of their ids in messages
    connection   one transfer each way per ps for all lookups of a step; stops it at ids that cannot be in their table
    copies       a worker's copies of rows in a round of local steps
    part         what the spine sees of the tables of a graph, and what a worker does for them
    upkeep       drops old rows, says how tables are used

The rows of a table on one ps:

    store        finds, reads, updates, drops, saves and loads rows
    index        finds the row number of an id, makes new rows; operations on single rows
    id_map       the hash table id -> row number, and how it is rebuilt
    hashing      which ps has the row of an id, keys of hash tables, first values
    row_history  when a row was updated first, and how often

Rows in files:

    table_files  makes, saves and restores the tables of a graph
    store_ops    the operations of one store with their placeholders
    contents     the tables of a checkpoint and its deltas; `ps_train.read_table`
    exported     the tables of a SavedModel
    pretrained   the rows with which the tables of a new training begin
    folder_probe whether all ps see the folder of a checkpoint as the chief does
"""
