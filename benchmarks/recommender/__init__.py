"""A recommender model with ps_train and with its peers: `python -m benchmarks.recommender`.

    __main__      the tool: trials in turn, figures, tables
    trials        who trains what, and what is claimed
    peers         who is measured, as processes
    figures       ratios within a repeat, and their medians; what the tables show
    work          what is trained: rows, widths, layers
    examples      the mini-batches, which every peer has in memory
    network       the arithmetic of DeepFM, and its first values, the same for everybody
    classic, strategy, pytorch, no_communication    the peers, each a process that runs by itself
    model, dataset                                  plug-ins of ps_train
"""
