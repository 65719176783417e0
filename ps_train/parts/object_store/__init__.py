"""`--train_dir=s3://bucket/run`: a training whose checkpoints lie in an object store (docs/object_stores.md).

    chief: TensorFlow --> a folder on this machine --> uploader --> the store
                          the same folder <-- fetching <-- the store, at the start

Start with `part.py`.

    flags        which URLs --train_dir takes
    part         gives a task its folder on this machine; the chief holds the lock, fetches, and uploads beside training
    reading      the same for a verb that reads a train_dir
    store        one folder of a store, through fsspec; faults as one line without credentials
    patience     repeats its calls for a bounded time
    manifests    which files are one checkpoint, with their sizes and checksums
    other_files  which other files go into a store and come back, and what this machine knows of them
    fetching     brings the newest whole checkpoint and the small files to this machine
    uploading    mirrors whole checkpoints and the other files, in a thread
    lock         one training at a time writes to a URL
    evaluator    gives an evaluator a folder with the newest checkpoint
"""
