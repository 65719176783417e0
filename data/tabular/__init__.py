"""Tables of examples in files, a line or a record for each: labels, numbers and categories.

    files --pipeline--> lines --columns--> label, numbers, categories --features--> {"numbers", "ids"}, labels

Used by `data.criteo`, `data.csv_files`, `data.parquet_files` and `data.click_records`. Start with `pipeline.py`.

    pipeline  input_fn and prepare of datasets in files
    columns   the columns of delimited text: parses lines, and finds their faults
    features  categories as ids, the same in every dataset
    schema    the columns of plain CSV and of Parquet files, from a JSON file
"""
