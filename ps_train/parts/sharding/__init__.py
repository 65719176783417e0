"""Dynamic sharding: ps 0 hands out the ranges of the input, each once an epoch (docs/data.md).

    flags          --dynamic_sharding and --num_epochs
    range_plan     how the files are divided into ranges
    range_queue    the queue of ranges on ps 0, and a worker's client of it
    position       the position in the data, as a checkpoint has it
    range_loop     the step loop of a worker that trains on ranges
    part           what of all this a worker does when; read this first
"""
