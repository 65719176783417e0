"""Dynamic sharding: ps 0 hands out the ranges of the input, each once an epoch (docs/data.md).

    part           what of all this a worker does when; read this first
    flags          --dynamic_sharding and --num_epochs
    range_plan     the ranges of files as a text, by which workers and checkpoints know them
    range_queue    the queue of ranges on ps 0, and a worker's client of it
    local_ranges   the worker's end: ranges that come in, and notes on the batches that steps take
    accounts       which ranges a worker has in hand, and which of them it has trained on
    feeder         a thread that fetches ranges for the input, and reports those that are done
    range_loop     the step loop of a worker that trains until no range is left
    position       the position in the data, as a checkpoint has it
"""
