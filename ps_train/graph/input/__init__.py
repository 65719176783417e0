"""Input: how does the data of a plug-in become tensors of the graph?

Start with `batches.py`.

    batches  the mini-batches of a dataset plug-in, from tf.data or from TensorFlow 1's input queues
    arrays   numpy arrays as a tf.data pipeline that stays out of the GraphDef (`ps_train.from_arrays`)
"""
