"""Datasets to train on, each a module with DEFAULT_PARAMS, input_fn and prepare.

    --dataset=data.mnist     the MNIST files in --data_dir, downloaded if they are missing
    --dataset=data.digits    synthetic digits, drawn from a seed in under a second: no files, no network

These return features float32 [batch, 784] in [0, 1] and labels int32 [batch].

    --dataset=data.criteo         click logs in Criteo's format
    --dataset=data.csv_files      CSV files, by a schema
    --dataset=data.parquet_files  Parquet files, by a schema
    --dataset=data.click_records  click examples in TFRecord files
    --dataset=data.clicks         click examples drawn from a known model

These return features {"numbers": float32 [batch, 13], "ids": int64 [batch, 26]} and labels float32 [batch]. Their parts
are in `tabular/` and `click_model/`.

The parts of the first two: `idx` reads an IDX file, `fetch` downloads a file, `mnist_files` lists the files of MNIST,
`glyphs` and `drawing` draw the digits, `examples` holds images and labels, `pipeline` turns them into a
tf.data.Dataset. `input_data` and `data_set` are numpy readers for code written for the old tutorial's `read_data_sets`.
"""
