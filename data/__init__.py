"""Datasets to train on, each a module with DEFAULT_PARAMS, input_fn and prepare.

    --dataset=data.mnist     the MNIST files in --data_dir, downloaded if they are missing
    --dataset=data.digits    synthetic digits, drawn from a seed in under a second: no files, no network

Both return features float32 [batch, 784] in [0, 1] and labels int32 [batch].

Their parts: `idx` reads an IDX file, `fetch` downloads a file, `mnist_files` lists the files of MNIST, `glyphs` and
`drawing` draw the digits, `examples` holds images and labels, `pipeline` turns them into a tf.data.Dataset.
`input_data` and `data_set` are numpy readers for code written for the old tutorial's `read_data_sets`.
"""
