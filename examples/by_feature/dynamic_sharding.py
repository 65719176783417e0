"""Dynamic sharding: parameter server 0 hands out ranges of a file, so each line is trained on once an epoch."""

import pathlib

import numpy as np
import tensorflow.compat.v1 as tf

import ps_train

DEFAULT_PARAMS = {"folder": "runs/points"}


def parse(lines):
    """Returns the points and labels in lines of eight numbers and a label."""
    values = tf.reshape(tf.io.decode_csv(lines, [[0.0]] * 9), [9, -1])
    return tf.transpose(values[:8]), values[8]


def find_faults(lines):
    """Says of each line what is wrong with it, or "" of a sound one; it is called only if `parse` fails."""
    number = "[-+]?[0-9]+([.][0-9]*)?"
    is_sound = tf.strings.regex_full_match(lines, f"{number}(,{number}){{8}}")
    return tf.where(is_sound, tf.zeros_like(lines), tf.fill(tf.shape(lines), "not nine numbers"))


def input_fn(mode, params, shard):
    """The lines of files; in training in ranges that parameter server 0 hands out."""
    training = mode == ps_train.TRAIN
    ranges = ps_train.file_ranges(f"{params['folder']}/{'train' if training else 'test'}*.csv", shard, mode)
    reader = ps_train.LineReader(parse, find_faults, params["on_bad_record"])
    return ps_train.range_batches(ranges, reader.read, params["batch_size"], shuffle=training)


def write_points(folder):
    """Writes the points of the base, as lines."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate(["test", "train"]):
        points = np.random.default_rng(seed).normal(size=(2000, 8))
        rows = np.column_stack([points, points.sum(axis=1) > 0])
        np.savetxt(folder / f"{name}.csv", rows, fmt="%.5f", delimiter=",")


if __name__ == "__main__":
    write_points(pathlib.Path("runs/points"))
    training = ps_train.Training("base", "dynamic_sharding", train_dir="runs/dynamic_sharding", num_ps=1, num_workers=2,
                                 batch_size=20, dynamic_sharding=True, num_epochs=2)
    result = training.launch().wait()
    print(f"step {result.step}, accuracy {result.metrics['accuracy']:.2f}: {result.why}")
