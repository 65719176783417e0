"""The modules of `tensorflow.examples.tutorials.mnist` and Keras' MNIST, which scripts read their data with.

`names.py` is the table. `input_data.py` reads with the project's own reader in `data/`, `mnist.py` is the tutorial's
model, and `keras_data.py` reads a file that is there already.
"""
