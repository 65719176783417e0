"""How does one worker train, from its graph to the last checkpoint?

    replica_graph --> admission (may this worker train?) --> supervisor (a session) --> loop --> shutdown
                          ^                                                               |
                          +------------------ recovery: the session was lost -------------+

    loop            the training steps; start here
    recovery        sessions, one after the other, until one ends as it should
    replica_graph   the graph of one worker: input, model, loss, update, summaries
    admission       waits until the parameters are ready
    supervisor      opens a session with TensorFlow's Supervisor
    shutdown        ends training in the right order
    step_status     what a worker knows after a step, and its progress lines and summaries
    queues          the threads of TensorFlow 1's input queues
    evaluation      metrics of a checkpoint on held-out data
    reporting       the lines that a task prints, and how training ended
"""
