"""The dataset plug-in of synthetic clicks, and the files that it writes."""

from __future__ import annotations

import gzip
import pathlib

import numpy as np
import pytest

from data import click_records, clicks, criteo
from data.click_model import hashing, writing
from ps_train.errors import ConfigError, DataError
from tests.cluster.data.reading import read_batches, read_examples
from tests.errors import raises
from tests.tensorflow_mode import tf

PARAMS = {**clicks.DEFAULT_PARAMS, "vocab": 5000, "eval_examples": 3000, "batch_size": 64, "seed": 3,
          "data_dir": "not used", "on_bad_record": "stop"}


def rows(features, labels):
    """Each example as one hashable value, sorted."""
    return sorted(zip(map(bytes, features["ids"]), features["numbers"].round(4).tolist(), labels.tolist()))


def test_strings_and_hashes_are_those_of_tensorflow():
    """8 digits of every kind, and FarmHash as in `to_hash_bucket_fast`."""
    values = np.concatenate([np.arange(300), np.random.default_rng(1).integers(0, 2**32, 5000)]).astype(np.uint64)
    digits = hashing.hex_digits(values)
    strings = [f"{value:08x}" for value in values.tolist()]
    assert digits.view("S8").tolist() == [text.encode() for text in strings]
    with tf.Graph().as_default(), tf.Session() as session:
        expected = session.run(tf.strings.to_hash_bucket_fast(tf.constant([*strings, ""]), 2**63 - 1))
    found = np.append(hashing.fingerprints(digits), np.uint64(hashing.FINGERPRINT_OF_EMPTY)) % np.uint64(2**63 - 1)
    np.testing.assert_array_equal(found.astype(np.int64), expected)


def test_scrambled_numbers_stay_different():
    """One-to-one, on a sample of a million."""
    numbers = np.arange(10**6, dtype=np.uint64) * np.uint64(4001)
    found = hashing.scramble(numbers)
    assert len(np.unique(found)) == 10**6 and found.max() < 2**32


def test_evaluation_is_the_same_for_any_seed():
    """It belongs to the data, not to the run; each example once."""
    features, labels = read_examples(clicks, "eval", PARAMS)
    again, labels_again = read_examples(clicks, "eval", {**PARAMS, "seed": None, "batch_size": 7})
    np.testing.assert_array_equal(features["ids"], again["ids"])
    np.testing.assert_array_equal(features["numbers"], again["numbers"])
    np.testing.assert_array_equal(labels, labels_again)
    assert features["numbers"].shape == (3000, 13) and features["ids"].shape == (3000, 26) and len(labels) == 3000
    assert (features["numbers"].dtype, features["ids"].dtype, labels.dtype) == (np.float32, np.int64, np.float32)
    assert set(labels) == {0, 1} and features["ids"].min() >= 0
    other, _ = read_examples(clicks, "eval", {**PARAMS, "data_seed": 2})
    assert not np.array_equal(features["numbers"], other["numbers"])


def test_the_shares_of_the_evaluation_are_all_of_it():
    """As several workers evaluate it."""
    parts = [read_examples(clicks, "eval", PARAMS, (index, 3)) for index in range(3)]
    assert sorted(sum((rows(*part) for part in parts), [])) == rows(*read_examples(clicks, "eval", PARAMS))


def test_a_stream_follows_from_seed_and_shard():
    """Two workers, two seeds and the evaluation have no example in common; without a seed each run has other ones."""
    def stream(seed, shard):
        features, _ = read_examples(clicks, "train", {**PARAMS, "seed": seed}, shard, count=100)
        return features["numbers"]

    first = stream(3, (0, 2))
    np.testing.assert_array_equal(first, stream(3, (0, 2)))
    assert len(first) == 6400
    others = [stream(3, (1, 2)), stream(4, (0, 2)), stream(None, (0, 2)), stream(None, (0, 2)),
              read_examples(clicks, "eval", PARAMS)[0]["numbers"]]
    seen = {row.tobytes() for row in first}
    for other in others:
        found = {row.tobytes() for row in other}
        assert not found & seen
        seen |= found


def test_an_epoch_repeats_its_examples_in_a_new_order():
    """640 examples, on two workers, in full batches."""
    params = {**PARAMS, "num_examples": 640, "batch_size": 32}
    epochs = []
    for index in range(2):
        features, _ = read_examples(clicks, "train", params, (index, 2), count=20)
        both = features["ids"].reshape(2, 320, 26)
        assert sorted(map(bytes, both[0])) == sorted(map(bytes, both[1])) and not np.array_equal(*both)
        epochs += map(bytes, both[0])
    assert len(set(epochs)) == 640
    with raises("too_few_ranges"):
        clicks.input_fn("train", {**params, "num_examples": 3}, (0, 4))


def test_a_share_of_an_evaluation_may_be_empty():
    """As of workers that evaluate together."""
    params = {**PARAMS, "eval_examples": 2}  # in two chunks
    assert [len(read_batches(clicks, "eval", params, (index, 3))[0]) for index in range(3)] == [1, 1, 0]


@pytest.mark.parametrize("form, plugin", [("tsv", criteo), ("tfrecord", click_records)])
def test_written_files_have_the_same_examples(tmp_path, form, plugin):
    """Evaluation in the same order, training in some order: the ids of the strings, the numbers and the labels."""
    params = {**PARAMS, "num_examples": 1000, "eval_examples": 500}
    names = clicks.write(str(tmp_path), params, num_files=3, form=form)
    assert len(names) == 4 and all(name.endswith(f".{form}") for name in names)
    of_files = {**plugin.DEFAULT_PARAMS, **{name: params[name] for name in ("batch_size", "seed", "on_bad_record")},
                "data_dir": str(tmp_path)}
    plugin.prepare(of_files)
    drawn, labels = read_examples(clicks, "eval", params)
    read, read_labels = read_examples(plugin, "eval", of_files)
    np.testing.assert_array_equal(read["ids"], drawn["ids"])
    np.testing.assert_allclose(read["numbers"], drawn["numbers"], rtol=1e-6)
    np.testing.assert_array_equal(read_labels, labels)
    drawn, read = ({row.tobytes() for row in read_examples(one, "train", its, count=40)[0]["ids"]}
                   for one, its in ((clicks, params), (plugin, of_files)))
    assert drawn == read and len(drawn) == 1000


def test_hash_buckets_are_those_of_the_files(tmp_path):
    """A fixed table gets the same ids, too."""
    params = {**PARAMS, "num_examples": 64, "eval_examples": 100, "hash_buckets": 777}
    clicks.write(str(tmp_path), {**params, "hash_buckets": 0}, num_files=1, form="tsv")
    of_files = {**criteo.DEFAULT_PARAMS, "data_dir": str(tmp_path), "batch_size": 5, "seed": 1,
                "on_bad_record": "stop", "hash_buckets": 777}
    drawn, _ = read_examples(clicks, "eval", params)
    np.testing.assert_array_equal(drawn["ids"], read_examples(criteo, "eval", of_files)[0]["ids"])
    assert drawn["ids"].min() >= 0 and drawn["ids"].max() < 777


def test_lines_have_the_form_of_criteos(tmp_path):
    """40 fields, 8 hexadecimal digits; some numbers and some categories are missing."""
    source = clicks.click_model(PARAMS).draw(200, np.random.default_rng(1))
    lines = [line.decode().rstrip("\n").split("\t") for line in writing.tsv_lines(source)]
    assert {len(line) for line in lines} == {40} and {line[0] for line in lines} == {"0", "1"}
    digits = {text for line in lines for text in line[14:]}
    assert "" in digits and {len(text) for text in digits} == {0, 8}
    assert {line[number] == "" for line in lines for number in range(1, 14)} == {True, False}


def test_broken_records_are_left_out_or_named(tmp_path):
    """A record that is no example, one without a feature, one with a label of 2, one with a number that is none."""
    examples = clicks.click_model(PARAMS).draw(10, np.random.default_rng(1))
    sound = list(writing.serialized_examples(examples))
    wrong_label = list(writing.serialized_examples(examples._replace(labels=examples.labels + 2)))[0]
    no_number = list(writing.serialized_examples(examples._replace(counts=examples.counts * np.nan)))[0]
    path = str(tmp_path / "eval")
    with tf.io.TFRecordWriter(path) as writer:
        for record in [*sound[:5], b"\xff", b"", wrong_label, no_number, *sound[5:]]:
            writer.write(record)
    params = {**click_records.DEFAULT_PARAMS, "data_dir": str(tmp_path), "train_files": "eval", "batch_size": 5,
              "seed": 1, "on_bad_record": "skip"}
    click_records.prepare(params)
    batches, num_skipped = read_batches(click_records, "eval", params)
    assert num_skipped == 4
    np.testing.assert_array_equal(np.concatenate([features["ids"] for features, _ in batches]), examples.ids)
    with pytest.raises(DataError, match=f"{path}, record 5: not a tf.train.Example with label"):
        read_batches(click_records, "eval", {**params, "on_bad_record": "stop"})
    with pytest.raises(DataError, match=f"{path}, record 0: not a tf.train.Example with .*numbers float .12."):
        click_records.prepare({**params, "num_numbers": 12, "on_bad_record": "stop"})


def test_skip_begins_although_the_first_record_is_broken(tmp_path):
    """Not with a file of ten broken records and no other."""
    sound = list(writing.serialized_examples(clicks.click_model(PARAMS).draw(3, np.random.default_rng(1))))
    path = str(tmp_path / "eval")

    def prepare(records, on_bad_record):
        with tf.io.TFRecordWriter(path) as writer:
            for record in records:
                writer.write(record)
        params = {**click_records.DEFAULT_PARAMS, "data_dir": str(tmp_path), "train_files": "eval",
                  "on_bad_record": on_bad_record}
        click_records.prepare(params)
        return {**params, "batch_size": 2, "seed": 1}

    batches, num_skipped = read_batches(click_records, "eval", prepare([b"\xff", *sound], "skip"))
    assert num_skipped == 1 and len(batches[0][1]) == len(sound)
    prepare([b"\xff"] * 9, "skip")
    for records, on_bad_record in (([b"\xff"] * 10, "skip"), ([b"\xff", *sound], "stop")):
        with pytest.raises(DataError, match=f"{path}, record 0: not a tf.train.Example"):
            prepare(records, on_bad_record)


def test_files_that_are_no_tfrecord_files_are_named(tmp_path):
    """Text, and records compressed as a whole under a name that does not say so."""
    params = {**click_records.DEFAULT_PARAMS, "data_dir": str(tmp_path), "train_files": "text", "eval_files": "text",
              "on_bad_record": "skip"}
    (tmp_path / "text").write_text("no TFRecord file at all, but some text\n")
    with raises("bad_record_file"):
        click_records.prepare(params)
    (tmp_path / "text").write_bytes(gzip.compress(b"records"))
    with raises("bad_record_file"):
        click_records.prepare(params)


def test_the_command_line_writes_files_and_prints_the_best_scores(tmp_path, capsys):
    """A wrong parameter is one line."""
    clicks.main([f"--write={tmp_path}", "--examples=100", "--files=2", "--params=vocab=1000,eval_examples=2000"])
    *names, auc, log_loss, linear_auc, linear_log_loss = capsys.readouterr().out.splitlines()
    assert [name.rpartition("/")[2] for name in names] == [
        "train-00000-of-00002.tsv", "train-00001-of-00002.tsv", "eval-00000-of-00001.tsv"]
    assert sum(pathlib.Path(name).read_bytes().count(b"\n") for name in names[:2]) == 100
    best = clicks.best_scores({**PARAMS, "vocab": 1000, "eval_examples": 2000})
    assert [auc, linear_auc] == [f"auc {best.auc:.4f}", f"linear_auc {best.linear_auc:.4f}"]
    assert log_loss < linear_log_loss.removeprefix("linear_")
    with pytest.raises(SystemExit, match="unknown parameter 'vocb'; known to data.clicks: data_seed"):
        clicks.main(["--params=vocb=3"])
    with pytest.raises(SystemExit, match="fields=4; allowed: 26"):
        clicks.main(["--params=fields=4", f"--write={tmp_path}"])


def test_in_a_group_all_pairs_interact():
    """The logits are those of the pairs, one by one, with the standard deviation of 20 pairs."""
    model = clicks.click_model({**PARAMS, "fields": 5, "group": 5})
    vectors = np.random.default_rng(1).standard_normal((4, 5, 3000)).astype(np.float32)
    terms = sum((vectors[:, left] * vectors[:, right]).sum(axis=0) for left in range(5) for right in range(left))
    of_group = model._pair_terms(vectors)
    np.testing.assert_allclose(of_group, terms * (of_group.std() / terms.std()), rtol=1e-3, atol=1e-3)
    assert of_group.std() == pytest.approx(0.3 * np.sqrt(20), rel=0.1)
    best = clicks.best_scores({**PARAMS, "group": 26})
    assert best.auc > best.linear_auc + 0.03


@pytest.mark.parametrize("name, value", [("vocab", 5), ("zipf", 0.0), ("eval_examples", 0), ("hash_buckets", -3),
                                         ("group", 1), ("group", 27)])
def test_wrong_parameters_are_refused(name, value):
    """With the limits."""
    with pytest.raises(ConfigError, match=f"{name}={value}"):
        clicks.prepare({**PARAMS, name: value})
