"""`ps_train publish`: what a training changes reaches the servers of a live model within seconds.

docs/fresh_rows.md is the page for users. Start with `publisher.py`. The files of the folder and the versions of the
model are those of parts/live.

    trained     the newest checkpoint and delta of a train_dir, and whether the training has ended
    rows_state  what was published of a table, as a hash of each row; what differs from that
    publisher   writes the next push, or a new version of the model, to the folder
    sending     a thread for each target sends it the pushes of the folder
    freshness   the seconds from a training step, and from an event, to where it is served
    following   the loop: new states, the end, publish.json
"""
