"""Readers: how do workers share large files, and how do their lines or records become mini-batches?

    file_ranges    parts of files, and each worker's share of them (`ps_train.file_ranges`)
    range_batches  reads ranges, parses their examples and cuts them into mini-batches (`ps_train.range_batches`,
                   `ps_train.LineReader`, `ps_train.RecordReader`, `ps_train.ParquetReader`)
    files          finds and opens files, on this machine or in a store
    file_texts     the text of a range, and the records of a file, as datasets
    parquet_files  the row groups of Parquet files, and their columns as numpy arrays
    negatives      ids that an example does not have (`ps_train.negative_samples`)
    bad_records    stops at malformed records or skips them, and names them

Start with `file_ranges.py`. See docs/data.md.
"""
