"""Who trains on which range of the input? With --dynamic_sharding, a queue on ps 0 hands the ranges out.

    worker --- "done: 17; another one, please" ---> ps 0      one call at a time changes the queue
           <-- "range 42 of epoch 1" --------------

Start with `operations.py`. The decision: docs/decisions/dynamic-sharding.md.

    operations.py    the variables of the queue on ps 0, and the operations that change them
    range_queue.py   a worker's view of the queue
"""
