"""How does one worker train, from its graph to the last checkpoint?

    replica_graph --> opening (may this worker train? a session) --> loop --> the end, in order
                          ^                                           |
                          +------ recovery: the session was lost -----+

    loop            the training steps; start here
    recovery        sessions, one after the other, until one ends as it should
    replica_graph   the graph of one worker: input, model, loss, update, summaries
    opening         waits until the parameters are ready, and opens a session with TensorFlow's Supervisor
    evaluation      metrics of a checkpoint on held-out data
    reporting       the lines that a task prints, and how training ended
"""
