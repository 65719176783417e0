"""Rows: how does a ps store the rows of a table, find them, update them and drop them?

Start with `store.py`.

    store         the operations on the rows of a table on one ps
    index         finds the row of an id, and makes new ones
    dealing       hashes of ids: which ps has the row of an id, and the keys of hash tables
    id_table      the hash table of a dynamic table
    row_ops       operations on the variables of a store
    first_values  the value of a row that was never updated
"""
