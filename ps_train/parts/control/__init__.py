"""The chief's side of watching and control: what does it tell clients, and what does it do for them?

    description    what the chief says of its training, on ps 0 and in cluster.json
    chief_service  writes that, and saves on request
    diary          writes the journal of the train_dir: who joined, fell silent and came back

The clients are in control/, the variables in coordination/control/.
"""
