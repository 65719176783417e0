"""An export: the last checkpoint becomes a SavedModel, which predicts without ps_train."""

import pathlib

import numpy as np
import tensorflow as tf

import ps_train

if __name__ == "__main__":
    training = ps_train.Training("base", "base", train_dir="runs/export", num_ps=1, num_workers=1, train_steps=100,
                                 export_dir="runs/exported")
    result = training.launch().wait()
    folder = max(pathlib.Path("runs/exported/final").iterdir(), key=lambda path: int(path.name))  # the newest
    model = tf.saved_model.load(str(folder))
    [predicted] = model.signatures["serving_default"](tf.constant(np.eye(8, dtype=np.float32))).values()
    print(f"step {result.step}, probabilities of eight points: {np.round(predicted, 2)}")
