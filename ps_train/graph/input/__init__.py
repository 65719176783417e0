"""Input: how does the data of a plug-in become tensors of the graph?

Start with `batches.py`.

    batches  the mini-batches of a dataset plug-in, from tf.data or from TensorFlow 1's input queues
    arrays   numpy arrays as a tf.data pipeline that stays out of the GraphDef (`ps_train.from_arrays`)
    file_ranges    parts of files, and each worker's share of them (`ps_train.file_ranges`)
    readers        reads lines and TFRecord files in chunks (`ps_train.LineReader`, `ps_train.RecordReader`)
    bad_records    stops at malformed records or leaves them out, and names them
    range_batches  parses the examples of ranges and cuts them into mini-batches (`ps_train.range_batches`)
    single_pass    lets training data end after one pass, for an evaluation on it
"""
