"""What does `import tensorflow as tf` of an unchanged TF1 script find?

`installation.install()` puts a stand-in at `sys.modules["tensorflow"]`, which looks a name up in this order:

    tables.py      name in TF1 -> what it is today
    compat.v1      TensorFlow's own copy of the TF1 names
    TensorFlow 2   the names that only it has
    nowhere        an error: the name, the line of the script, and what to use instead

Each table is a dictionary of strings that can be read, and docs/compatibility.md shows them all.

    moved         names inside TensorFlow and packages that have other places today
    script_modules  modules inside TensorFlow with the objects of `tf` for scripts; keras_copies: its copy of Keras
    namespace     looks names up, and says what is missing
    installation  puts the stand-in in place, for `import` statements, too
    repairs       changes TensorFlow, numpy and absl themselves, where a stand-in would not be reached
    library       what Python's own library and packages have lost; command_line: flags as argparse read them

The other files are what the tables name, where today's libraries have nothing with the same arguments: `functions`,
`feature_columns` (contrib.layers), `datasets` (contrib.data), `optimizers`, `cudnn_rnn`, `crf`, `hparams`, `learn*` and
`batch_reading` (contrib.learn), `heads` (contrib.estimator), `attention`, `monotonic_attention`, `decoding` and
`beam_search` (contrib.seq2seq), `exporter` (contrib.session_bundle), `examples` (the tutorials' data and model),
`losses` (contrib.losses), `eager_classes`, `contrib`, `images` (scipy.misc), `private`, `cell_helpers`.
"""
