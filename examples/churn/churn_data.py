"""The dataset: rows of CSV as named features, each worker its share of the files."""

import tensorflow.compat.v1 as tf

import ps_train

# Name -> the value of an empty cell, whose type is that of the column.
COLUMNS = {"months": 0.0, "calls": 0.0, "charge": 0.0, "contract": "", "region": "", "left": 0.0}
LABEL = "left"


def parse(lines):
    """Turns lines, string [n], into ({name: [n]}, labels float32 [n])."""
    values = dict(zip(COLUMNS, tf.io.decode_csv(lines, [[default] for default in COLUMNS.values()])))
    return values, values.pop(LABEL)


def find_faults(lines):
    """Returns for each line what is wrong with it, or ""; called only if `parse` has failed."""
    is_good = tf.strings.regex_full_match(lines, r"([0-9.]*,){3}[^,]*,[^,]*,[01]")
    return tf.where(is_good, tf.zeros_like(lines), tf.fill(tf.shape(lines), f"expected {','.join(COLUMNS)}"))


def input_fn(mode, params, shard):
    """Returns a tf.data.Dataset of (features, labels) in mini-batches."""
    training = mode == ps_train.TRAIN
    ranges = ps_train.file_ranges("customers/train-*.csv" if training else "customers/eval.csv", shard, mode,
                                  has_header=True, seed=params["seed"])
    reader = ps_train.LineReader(parse, find_faults, params["on_bad_record"])
    return ps_train.range_batches(ranges, reader.read, params["batch_size"], shuffle=training, seed=params["seed"])
