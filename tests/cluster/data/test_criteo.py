"""The dataset plug-in for files in Criteo's format."""

from __future__ import annotations

import gzip
import pathlib
import re
import types

import numpy as np
import pytest

from data import criteo
from data.tabular.features import NUM_HASHES, category_ids, field_keys
from ps_train.errors import DataError
from tests.cluster.data.reading import read_batches, read_examples
from tests.errors import raises
from tests.tensorflow_mode import tf

RNG = np.random.default_rng(5)


def make_line(label=None, numbers=None, categories=None):
    """A line with random fields, a fifth of them missing."""
    def some(values):
        return [value if RNG.random() < 0.8 else "" for value in values]

    numbers = numbers or some([str(number) for number in RNG.integers(-2, 5000, 13)])
    categories = categories or some([f"{number:08x}" for number in RNG.integers(0, 2**32, 26)])
    return "\t".join([label or str(RNG.integers(2)), *numbers, *categories])


LINES = [make_line() for _ in range(300)]


@pytest.fixture
def params(tmp_path):
    """Parameters of a folder with 300 lines for training in two files, and 50 for evaluation."""
    for name, lines in {"train-0": LINES[:180], "train-1": LINES[180:], "eval": LINES[:50]}.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    return {**criteo.DEFAULT_PARAMS, "data_dir": str(tmp_path), "batch_size": 32, "seed": 1, "on_bad_record": "stop"}


def hashes(strings):
    with tf.Graph().as_default(), tf.Session() as session:
        return session.run(tf.strings.to_hash_bucket_fast(tf.constant(strings), NUM_HASHES))


def oracle(lines, hash_buckets=0):
    """Parses lines in Python."""
    fields = [line.split("\t") for line in lines]
    numbers = [[np.log1p(max(0, int(text or 0))) for text in row[1:14]] for row in fields]
    ids = hashes([row[14:] for row in fields]) ^ field_keys(26)
    return np.array(numbers, np.float32), ids % hash_buckets if hash_buckets else ids, np.array(
        [float(row[0]) for row in fields], np.float32)


@pytest.mark.parametrize("hash_buckets", [0, 1000])
def test_evaluation_has_every_example_once_in_order(params, hash_buckets):
    """Numbers, ids and labels are those of the lines; the dtypes are those that models take."""
    features, labels = read_examples(criteo, "eval", {**params, "hash_buckets": hash_buckets})
    numbers, ids, expected_labels = oracle(LINES[:50], hash_buckets)
    np.testing.assert_allclose(features["numbers"], numbers, rtol=1e-6)
    np.testing.assert_array_equal(features["ids"], ids)
    np.testing.assert_array_equal(labels, expected_labels)
    assert (features["numbers"].dtype, features["ids"].dtype, labels.dtype) == (np.float32, np.int64, np.float32)
    assert features["ids"].min() >= 0


def test_an_id_tells_the_field_and_the_string():
    """One string has another id in each field; the empty one has an id, too."""
    with tf.Graph().as_default(), tf.Session() as session:
        ids = session.run(category_ids([tf.constant(["a", "b", ""])] * 26, 0))
    assert len(np.unique(ids)) == 3 * 26 and ids.min() >= 0


def test_an_epoch_of_both_workers_has_every_example_once_in_full_batches(params):
    """In an order that the seed gives, another one in each epoch."""
    ids = oracle(LINES)[1]
    seen = []
    for index in range(2):
        batches, _ = read_batches(criteo, "train", params, (index, 2), 20)
        assert {len(labels) for _, labels in batches} == {32}
        found = np.concatenate([features["ids"] for features, _ in batches])
        size = len({row.tobytes() for row in found})
        epochs = [sorted(row.tobytes() for row in found[start:start + size]) for start in (0, size)]
        assert epochs[0] == epochs[1] and not np.array_equal(found[:size], found[size:2 * size])
        again, _ = read_batches(criteo, "train", params, (index, 2), 20)
        np.testing.assert_array_equal(found, np.concatenate([features["ids"] for features, _ in again]))
        seen += epochs[0]
    assert sorted(seen) == sorted(row.tobytes() for row in ids)


def test_without_shuffling_the_order_is_that_of_the_files(params):
    """For logs that are to be trained on in the order of time."""
    features, _ = read_examples(criteo, "train", {**params, "shuffle": False}, count=12)
    ids = oracle(LINES)[1]
    np.testing.assert_array_equal(features["ids"], np.concatenate([ids, ids])[:12 * 32])


BAD_LINES = {
    "39 fields; expected 40: label, 13 numbers, 26 categories, separated by tabs": "\t".join(["1"] * 39),
    "1 fields; expected 40": "",
    "column label: expected 0 or 1, got '2'": make_line("2"),
    "column label: expected 0 or 1, got ''": "\t".join([""] * 40),
    "column I2: expected a number or nothing, got 'abc'": make_line(numbers=["1", "abc", *"3456789012345"[:11]]),
    "column I13: expected a number or nothing, got 'nan'": make_line(numbers=[*"123456789012", "nan"]),
    "column I1: expected a number or nothing, got '1e99'": make_line(numbers=["1e99", *"123456789012"]),
    "column C26: expected text without line breaks": make_line(categories=[*"abcdefghijklmnopqrstuvwxy", "a\rb"]),
}


@pytest.mark.parametrize("fault", BAD_LINES)
def test_a_malformed_line_is_named(params, tmp_path, fault):
    """By `prepare` among the first lines, and while reading; the file, the line and what is wrong."""
    bad = BAD_LINES[fault]
    (tmp_path / "eval").write_text("\n".join([*LINES[:3], bad, *LINES[3:9]]), newline="")
    with pytest.raises(DataError) as caught:
        criteo.prepare(params)
    assert str(caught.value).startswith(f"{tmp_path}/eval, line 4: {fault}")
    with pytest.raises(DataError) as caught:
        read_batches(criteo, "eval", params)
    assert str(caught.value).startswith(f"{tmp_path}/eval, line 4 (byte ") and f": {fault}" in str(caught.value)


def test_malformed_lines_are_left_out(params, tmp_path):
    """Each of them is counted; the others are those of a file without them."""
    (tmp_path / "eval").write_text("\n".join([*LINES[:25], *BAD_LINES.values(), *LINES[25:50]]), newline="")
    batches, num_skipped = read_batches(criteo, "eval", {**params, "on_bad_record": "skip"})
    assert num_skipped == len(BAD_LINES)
    np.testing.assert_array_equal(np.concatenate([features["ids"] for features, _ in batches]), oracle(LINES[:50])[1])


def test_the_dataset_of_the_docs_reads_its_share(tmp_path):
    """The example in docs/data.md, as it stands there."""
    text = (pathlib.Path(__file__).parents[3] / "docs/data.md").read_text(encoding="utf-8")
    module = types.ModuleType("of_the_docs")
    exec(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1], vars(module))
    (tmp_path / "a.txt").write_text("".join(f"{number}\n" for number in range(-5, 5)))
    params = {"files": str(tmp_path / "*.txt"), "batch_size": 4, "on_bad_record": "stop"}
    batches, _ = read_batches(module, "eval", params)
    assert [len(labels) for _, labels in batches] == [4, 4, 2]
    np.testing.assert_array_equal(np.concatenate([values for values, _ in batches]), np.arange(-5, 5))
    np.testing.assert_array_equal(np.concatenate([labels for _, labels in batches]), np.arange(-5, 5) > 0)
    (tmp_path / "a.txt").write_text("1\n2.5\nx\n")
    with pytest.raises(DataError, match="a.txt, line 2 .byte 2.: expected an integer"):
        read_batches(module, "eval", params)


def test_prepare_looks_at_all_files(params, tmp_path):
    """Missing, empty and compressed ones, and wrong parameters, are one line."""
    criteo.prepare(params)
    with raises("input_file_missing"):
        criteo.prepare({**params, "train_files": "day_*"})
    with raises("parameter_out_of_range"):
        criteo.prepare({**params, "hash_buckets": -1})
    (tmp_path / "nothing").touch()
    with raises("input_file_empty"):
        criteo.prepare({**params, "train_files": "nothing", "eval_files": "nothing"})
    (tmp_path / "train-2").write_bytes(gzip.compress("\n".join(LINES).encode()))
    with raises("input_file_compressed"):
        criteo.prepare(params)
