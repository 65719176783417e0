"""DeepRec and PAI: their embedding variables, optimizers and work queue, in an unchanged script.

    a script's `tf.get_embedding_variable` --> a dynamic table of parts/tables, on the ps of its cluster

Start with `variables.py`.

    options      what a script says about an embedding variable: admission, eviction, first values
    variables    `tf.get_embedding_variable` and its lookups; the table behind it
    training     gradients of embedding variables, and how an optimizer of the script applies them
    optimizers   `AdamAsyncOptimizer`, `AdagradDecayOptimizer`; the rule by which a table follows an optimizer
    layout       an embedding variable as the tensors of a DeepRec checkpoint
    saving       how a `tf.train.Saver` writes and reads that layout
    columns      `categorical_column_with_embedding`, and the columns made of it
    functions    operations on rows as calls of functions, which keep the graph small
    speed        names that are about speed only
    version      a script that asks for DeepRec's TensorFlow
    inputs       `WorkQueue`, `ParquetDataset`
    installation puts all this into TensorFlow's place

Tests: tests/*/parts/legacy/deeprec. The user's page: docs/migrate_deeprec.md.
"""
