"""Files: how do the rows of tables get into a checkpoint and out of it, in bounded memory?

Each ps writes and reads its own rows, in pieces of some MB. So train_dir must be a folder that all ps can reach.

    table_files  makes, saves and restores the tables of a graph, also where they are only read, as in an evaluation
    store_ops    the operations of one store with their placeholders
    contents     what a checkpoint says about its tables
    reading      the rows of a checkpoint as numpy arrays: `ps_train.read_table`
    exported     the tables of a SavedModel
    upkeep       drops old rows, and logs how tables are used
"""
