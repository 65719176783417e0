"""Datasets to train on, each a module with DEFAULT_PARAMS, input_fn and prepare.

    --dataset=data.mnist     the MNIST files in --data_dir, fetched there where they are absent
    --dataset=data.digits    drawn from a seed in under a second: no file, no network

Both give features float32 [batch, 784] in [0, 1] and labels int32 [batch].

Behind them: `idx` reads a file, `fetch` downloads one, `mnist_files` knows which files there are,
`glyphs` and `drawing` make the digits, `examples` holds images and labels, `pipeline` makes a
tf.data.Dataset of them. `input_data` and its `data_set` are the numpy readers for code written
against `read_data_sets` of the old tutorial.
"""
