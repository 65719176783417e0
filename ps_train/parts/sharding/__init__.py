"""Dynamic sharding: ps 0 hands out the ranges of the input, each once an epoch (docs/data.md).

    part           what a worker does for it, and when; trains until no range is left; read this first
    flags          --dynamic_sharding, --num_epochs, --follow
    range_plan     the ranges of files as a text, by which workers and checkpoints know them
    growth         files that grow (--follow): their ranges as a text, and how fresh the training is
    growth_watch   the chief's looks for new data, in threads
    range_queue    the queue of ranges on ps 0, and a worker's client of it
    local_ranges   the worker's end: incoming ranges, and notes on the batches that steps take
    feeder         a thread that fetches ranges for the input, and reports those that are done
    position       the position in the data, as a checkpoint has it
"""
