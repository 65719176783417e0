"""How a plug-in's input becomes tensors: numpy arrays, tf.data, and the mini-batches that a graph asks for.

Start with `batches.py`; `arrays.py` is `ps_train.from_arrays`.
"""
