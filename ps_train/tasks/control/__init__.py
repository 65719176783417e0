"""How is a running training watched and controlled? `ps_train status`, `save`, `stop` and `resume`.

    description    what the chief says of its training
    chief_service  in the chief: describes the training, and saves on request
    looking        in a client: what the blackboard and the train_dir tell
    asking         in a client: stop and save, with bounded waits
    wording        what `status` prints

Start with `looking.py`. The variables are in coordination/control/.
"""
