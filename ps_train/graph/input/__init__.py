"""Input: how does the data of a plug-in become tensors of the graph?

Start with `batches.py`.

    batches        the mini-batches of a dataset plug-in, from tf.data or from TensorFlow 1's input queues
    arrays         numpy arrays as a tf.data pipeline that stays out of the GraphDef (`ps_train.from_arrays`); one pass
                   over the training examples, for an evaluation on them
    file_ranges    parts of files, and each worker's share of them (`ps_train.file_ranges`)
    bad_records    stops at malformed records or leaves them out, and names them
    range_batches  reads ranges, parses their examples and cuts them into mini-batches (`ps_train.range_batches`,
                   `ps_train.LineReader`, `ps_train.RecordReader`)
"""
