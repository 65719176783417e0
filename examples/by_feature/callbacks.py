"""A callback: the chief calls a function with what happens, which here ends the training."""

import ps_train


def make(training):
    """Returns a callback that ends the training when the loss is low enough."""
    def callback(event):
        if event.kind == "progress" and event.values["loss"] < 0.5:
            training.stop(f"the loss was {event.values['loss']:.2f} at step {event.step}")

    return callback


if __name__ == "__main__":
    training = ps_train.Training("base", "base", train_dir="runs/callbacks", num_ps=1, num_workers=1, train_steps=10000,
                                 callbacks="callbacks:make", log_steps=10)
    result = training.launch().wait()
    print(f"step {result.step}, accuracy {result.metrics['accuracy']:.2f}: {result.why}")
