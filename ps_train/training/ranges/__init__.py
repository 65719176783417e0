"""How does a worker train on the ranges that ps 0 hands out? (--dynamic_sharding)

    queue on ps 0 <--> feeder (a thread) <--> queues of the input <--> training steps
                                                                        | the data ends for now
                                                  RangeLoop <-----------+ more ranges? go on : training is over

Start with `feeder.py`. The decision: docs/decisions/dynamic-sharding.md.

    accounts.py    which ranges this worker has in hand, and which of them it has trained on
    feeder.py      a thread that fetches ranges and reports those that are done
    saved.py       the position in the data, as a checkpoint has it
    range_loop.py  trains until no range is left; waits for ranges that other workers have in hand
"""
