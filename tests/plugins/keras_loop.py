"""The model of keras_tiny.py with the whole training loop of its own, under every strategy."""

import tensorflow as tf
from keras_tiny import DEFAULT_PARAMS, build_model, input_fn  # noqa: F401 (this module is the dataset as well)


def train(strategy, model, run):
    """Steps one by one or, with parameter_server, 20 closures at once."""

    def replica_step(features, labels):
        with tf.GradientTape() as tape:
            errors = tf.square(model(features, training=True)[:, 0] - labels)
            loss = tf.nn.compute_average_loss(errors)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    @tf.function
    def step(batches):
        return strategy.reduce("SUM", strategy.run(replica_step, args=next(batches)), axis=None)

    batches = iter(run.dataset)
    while not run.is_done:
        if run.coordinator is None:
            run.advance(step(batches))
            continue
        num_steps = min(20, run.train_steps - run.step)
        losses = [run.coordinator.schedule(step, args=(batches,)) for _ in range(num_steps)]
        run.coordinator.join()
        run.advance(losses[-1].fetch(), num_steps)
