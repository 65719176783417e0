"""What reading costs: the same click examples as text, compressed, as TFRecord and Parquet, in examples a CPU second.

    data.clicks --> text, TFRecord     text --> .gz, .zst, Parquet     each is read to its end, in a process of its own

Prints a table in Markdown: the median of alternating runs, with the least and the most, and the bytes of an example.
The formats must give the same examples; TFRecord and "Parquet of ids" have ids in place of strings. It needs the extras
`parquet` and `zstd`.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import importlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

import ps_train

_ROW_GROUP_ROWS = 50_000


class Format(NamedTuple):
    """How examples are stored: the dataset plug-in that reads them, and the name of the file."""

    dataset: str
    file: str


FORMATS = {
    "text": Format("data.criteo", "text.tsv"),
    "text, .gz": Format("data.criteo", "text.tsv.gz"),
    "text, .zst": Format("data.criteo", "text.tsv.zst"),
    "TFRecord": Format("data.click_records", "records.tfrecord"),
    "Parquet": Format("data.parquet_files", "columns.parquet"),
    "Parquet of ids": Format("benchmarks.input_formats", "ids.parquet"),
}
DEFAULT_PARAMS: dict[str, Any] = {}  # of the last one


def input_fn(mode, params, shard):
    """Reads lists of numbers and of ids, as records have them; the dataset of "Parquet of ids"."""
    reader = ps_train.ParquetReader(
        {"label": tf.float32, "numbers": tf.TensorSpec([13], tf.float32), "ids": tf.TensorSpec([26], tf.int64)},
        lambda columns: ({"numbers": columns["numbers"], "ids": columns["ids"]}, columns["label"]))
    ranges = ps_train.file_ranges(f"{params['data_dir']}/{params['eval_files']}", shard, mode, is_text=False)
    return ps_train.range_batches(ranges, reader.read, 2048)


def main() -> int:
    """Writes the files, measures each format in turn, and prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.input_formats", description=__doc__.split("\n")[0])
    parser.add_argument("--examples", type=int, default=200_000, help="(default %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="(default %(default)s)")
    parser.add_argument("--measure", nargs=2, metavar=("FORMAT", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(*arguments.measure, arguments.examples)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        write(folder, arguments.examples)
        runs = [{name: _measured_apart(name, folder, arguments.examples) for name in FORMATS}
                for _ in range(arguments.repeats)]
        sizes = {name: (pathlib.Path(folder) / form.file).stat().st_size for name, form in FORMATS.items()}
    if len(sums := {tuple(run[name]["sums"]) for run in runs for name in FORMATS}) != 1:
        sys.exit(f"the formats give different examples: {sums}")
    print("| | examples/s | times text | bytes |\n|---|---|---|---|")
    of_text = statistics.median(run["text"]["examples_per_cpu_sec"] for run in runs)
    for name in FORMATS:
        rates = [run[name]["examples_per_cpu_sec"] for run in runs]
        print(f"| {name} | {statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f}) | "
              f"{statistics.median(rates) / of_text:.2f} | {sizes[name] / arguments.examples:.0f} |")
    return 0


def write(folder: str, num_examples: int) -> None:
    """Writes the same examples in each format."""
    import pyarrow.csv  # noqa: PLC0415 (an extra)
    import pyarrow.parquet  # noqa: PLC0415 (an extra)

    from data import clicks, criteo  # noqa: PLC0415 (`measure` needs neither)

    path = pathlib.Path(folder)
    params = {**clicks.DEFAULT_PARAMS, "seed": 0, "hash_buckets": 0, "num_examples": num_examples}
    for form, file in (("tsv", "text.tsv"), ("tfrecord", "records.tfrecord")):
        pathlib.Path(clicks.write(f"{folder}/written", params, num_files=1, form=form)[0]).rename(path / file)
    text = (path / "text.tsv").read_bytes()
    (path / "text.tsv.gz").write_bytes(gzip.compress(text, 6))
    zstd = importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    (path / "text.tsv.zst").write_bytes(zstd.compress(text))
    names = [column.name for column in criteo.FORM.columns]
    numbers, categories = names[1:1 + criteo.NUM_NUMBERS], names[1 + criteo.NUM_NUMBERS:]
    table = pyarrow.csv.read_csv(
        path / "text.tsv", pyarrow.csv.ReadOptions(column_names=names), pyarrow.csv.ParseOptions(delimiter="\t"),
        pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(categories, pyarrow.string())))
    pyarrow.parquet.write_table(table, path / "columns.parquet", row_group_size=_ROW_GROUP_ROWS)
    batches = list(read("TFRecord", folder))
    lists = {name: pyarrow.array([row for features, _ in batches for row in features[name]])
             for name in ("numbers", "ids")}
    table = pyarrow.table({"label": np.concatenate([labels for _, labels in batches]), **lists})
    pyarrow.parquet.write_table(table, path / "ids.parquet", row_group_size=_ROW_GROUP_ROWS)
    (path / "schema.json").write_text(json.dumps({
        "label": names[0], "numbers": numbers, "categories": categories, "log_numbers": True}))


def read(name: str, folder: str, times: int = 1) -> Iterator[tuple[dict[str, np.ndarray], np.ndarray]]:
    """Yields all batches of a format, so many times over."""
    plugin = importlib.import_module(FORMATS[name].dataset)
    params = {**plugin.DEFAULT_PARAMS, "data_dir": folder, "eval_files": FORMATS[name].file, "on_bad_record": "stop",
              "seed": 0, "batch_size": 512}
    threads = tf.ConfigProto(intra_op_parallelism_threads=1)
    with tf.Graph().as_default() as graph, tf.Session(graph=graph, config=threads) as session:
        iterator = tf.data.make_initializable_iterator(plugin.input_fn("eval", params, (0, 1)))
        batch = iterator.get_next()
        for _ in range(times):
            session.run([iterator.initializer, tf.local_variables_initializer()])
            with contextlib.suppress(tf.errors.OutOfRangeError):
                while True:
                    yield session.run(batch)


def measure(name: str, folder: str, num_examples: int) -> dict[str, Any]:
    """Reads all examples of a format twice; returns how many of the second time a CPU second takes, and sums over both.

    The first time, TensorFlow makes its threads and plans.
    """
    num_read, start_secs, sums = 0, 0.0, np.zeros(2, np.int64)
    for features, labels in read(name, folder, times=2):
        num_read += len(labels)
        if num_read == num_examples:
            start_secs = time.process_time()
        sums += [features["ids"].sum(), int(labels.sum())]  # of ids, modulo 2^64
    secs = time.process_time() - start_secs
    return {"examples_per_cpu_sec": (num_read - num_examples) / secs, "sums": sums.tolist()}


def _measured_apart(name: str, folder: str, num_examples: int) -> dict[str, Any]:
    """Returns what `measure` does in a new process."""
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.input_formats", f"--examples={num_examples}", "--measure", name, folder],
        stdout=subprocess.PIPE, check=True)
    return json.loads(ended.stdout.splitlines()[-1])


if __name__ == "__main__":
    sys.exit(main())
