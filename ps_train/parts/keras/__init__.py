"""How does a Keras model train under a tf.distribute strategy? `ps_train keras`, and `ps_train convert`.

    verb, flags --> task --> strategies --> inputs --> fitting or custom_loops --> checkpoints

Start with `task.py`. Tests: tests/*/parts/keras. Documentation: docs/migrate.md; decisions: docs/decisions/keras.md.

    flags         the flags of `keras`, `launch keras` and `convert`, and the cluster that they describe
    verb          the verbs
    plugins       the user's module: build_model, train_step, train, make_callbacks, KERAS_TWIN
    task          one process from start to end
    strategies    creates the tf.distribute strategy; how its processes meet, get a time limit, and end
    inputs        the batches of the dataset, as each strategy takes them
    fitting       training by Model.fit, and which epochs are left
    callbacks     the callbacks of Model.fit, and one training in several calls of it
    custom_loops  training by the plug-in's `train_step` or `train`
    checkpoints   writes, finds, checks and loads `.keras` checkpoints and the backups
    readable      checks before training that a checkpoint will hold the model
    conversion    a graph checkpoint to a Keras one, and back
"""
