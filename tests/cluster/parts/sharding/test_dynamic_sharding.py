"""Trainings on ranges that ps 0 hands out: how often each line was trained on, in every mode."""

from __future__ import annotations

import re
import threading

import numpy as np
import pytest

import ps_train
from ps_train import testing
from ps_train.parts.readers.file_ranges import plan_ranges
from ps_train.parts.sharding import position
from ps_train.parts.sharding.local_ranges import LocalRanges, RangeSettings
from ps_train.training.reporting import End
from tests.errors import raises
from tests.plugins import ledger
from tests.tensorflow_mode import tf

PLUGIN = "tests.plugins.ledger"


@pytest.fixture
def train(tmp_path):
    """A function that trains on two files with the lines 0 to 999 until all epochs are done, or to a global step.

    One worker does so, where the test is not about how several share the ranges.
    """
    (tmp_path / "a.txt").write_text("".join(f"{number}\n" for number in range(700)))
    (tmp_path / "b.txt").write_text("".join(f"{number}\n" for number in range(700, ledger.NUM_LINES)))

    def run(params="", num_epochs=2, **flags):
        return testing.run_in_threads(
            PLUGIN, PLUGIN, params=f"files={tmp_path}/*.txt{params}", batch_size=16, optimizer="sgd", learning_rate=1.0,
            dynamic_sharding=True, num_epochs=num_epochs, log_steps=0, timeout_secs=120.0,
            **{"num_ps": 1, "num_workers": 1, "train_dir": tmp_path / "train", **flags})

    run.folder = tmp_path
    return run


def counts(train, folder="train"):
    """Returns how often the parameters in the last checkpoint were trained on each line."""
    return testing.read_checkpoint(train.folder / folder)["counts"]


def hold_batches(monkeypatch, wait):
    """Calls `wait(index of the worker)` before each mini-batch of training is given."""
    read = ledger.input_fn

    def input_fn(mode, params, shard):
        def held(*element):
            with tf.control_dependencies([tf.numpy_function(lambda: np.int64(bool(wait(shard[0]))), [], tf.int64)]):
                return tf.nest.map_structure(tf.identity, element)

        batches = read(mode, params, shard)
        return batches.map(held) if mode == ps_train.TRAIN else batches

    monkeypatch.setattr(ledger, "input_fn", input_fn)


# For async see the slow worker below.
@pytest.mark.parametrize("flags", [{"steps_per_execution": 4}, {"sync_replicas": True}, {"staleness_bound": 2}],
                         ids=["several steps at once", "sync", "bounded"])
def test_each_line_is_trained_on_once_in_each_epoch(train, monkeypatch, flags):
    """Both workers take part, and end with all ranges done."""
    both, to_begin = threading.Barrier(2), {0, 1}

    def wait(worker):  # else one may have done all ranges before the other joins
        if worker in to_begin:
            to_begin.discard(worker)
            both.wait(60)

    hold_batches(monkeypatch, wait)
    outcomes = train(num_workers=2, **flags).outcomes
    np.testing.assert_array_equal(counts(train), np.full(ledger.NUM_LINES, 2.0))
    assert all(outcome.end is End.DATA and outcome.local_steps for outcome in outcomes)
    assert sum(outcome.local_steps for outcome in outcomes) >= 2 * ledger.NUM_LINES / 16


def test_each_row_of_parquet_files_is_trained_on_once_in_each_epoch(train, monkeypatch):
    """Row groups are handed out like ranges of lines."""
    pa = pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    for name, first, last in (("a", 0, 700), ("b", 700, ledger.NUM_LINES)):
        parquet.write_table(pa.table({"number": np.arange(first, last)}), train.folder / f"{name}.parquet",
                            row_group_size=50)

    def input_fn(mode, params, shard):
        reader = ps_train.ParquetReader({"number": tf.int64}, lambda columns: (columns["number"], columns["number"]))
        ranges = ps_train.file_ranges(f"{train.folder}/*.parquet", shard, mode, is_text=False, range_bytes=500)
        return ps_train.range_batches(ranges, reader.read, params["batch_size"])

    monkeypatch.setattr(ledger, "input_fn", input_fn)
    train(num_workers=2)
    np.testing.assert_array_equal(counts(train), np.full(ledger.NUM_LINES, 2.0))


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_range_of_malformed_lines_only_counts_as_done(train, monkeypatch, num_workers):
    """With --on_bad_record=skip: at the beginning, in the middle and at the end there is one without an example."""
    for name in ("a0", "az", "c"):
        (train.folder / f"{name}.txt").write_text("x\n")

    def input_fn(mode, params, shard):
        def find_faults(lines):
            return tf.where(tf.equal(lines, "x"), tf.fill(tf.shape(lines), "no number"), tf.zeros_like(lines))

        reader = ps_train.LineReader(lambda lines: 2 * (tf.strings.to_number(lines, tf.int64),), find_faults,
                                     params["on_bad_record"])
        ranges = ps_train.file_ranges(params["files"], shard, mode, range_bytes=200)
        return ps_train.range_batches(ranges, reader.read, params["batch_size"])

    monkeypatch.setattr(ledger, "input_fn", input_fn)
    outcomes = train(num_workers=num_workers, on_bad_record="skip").outcomes
    assert all(outcome.end is End.DATA for outcome in outcomes)
    np.testing.assert_array_equal(counts(train), np.full(ledger.NUM_LINES, 2.0))


@pytest.mark.parametrize("flags", [{}, {"sync_replicas": True}, {"steps_per_execution": 4}],
                         ids=["async", "sync", "several steps at once"])
@pytest.mark.parametrize("range_bytes", [200, 10**6])
def test_a_dataset_that_ends_before_its_ranges_is_refused(train, monkeypatch, range_bytes, flags):
    """It would be read again without end, or its last ranges would count as done."""
    whole = ledger.input_fn
    monkeypatch.setattr(ledger, "input_fn", lambda mode, params, shard: whole(mode, params, shard).take(5))
    with raises("dataset_ends_early"):
        train(f",range_bytes={range_bytes}", num_epochs=1, **flags)


@pytest.mark.parametrize("limit", ["all", "full"])
def test_a_dataset_may_leave_batches_out_and_end_with_its_ranges(train, monkeypatch, limit):
    """One that takes as many batches as there are, and one without the smaller batches at the ends of ranges."""
    whole = ledger.input_fn

    def input_fn(mode, params, shard):
        batches = whole(mode, params, shard)
        if mode == ps_train.TRAIN and limit == "full":
            return batches.filter(lambda batch, mark: tf.equal(tf.shape(batch[0])[0], params["batch_size"]))
        return batches.take(44 + 19) if mode == ps_train.TRAIN else batches  # of 700 and of 300 lines

    monkeypatch.setattr(ledger, "input_fn", input_fn)
    [outcome] = train(",range_bytes=1000000", num_epochs=1).outcomes
    assert outcome.end is End.DATA
    assert counts(train).sum() == (ledger.NUM_LINES if limit == "all" else 16 * (43 + 18))


@pytest.mark.parametrize("flags", [{}, {"sync_replicas": True}], ids=["async", "sync"])
def test_a_round_of_local_steps_counts_each_line_once(train, flags):
    """The last round is cut short by the end of the data, and its steps count; no summary takes a batch."""
    train(",dense=True", communication_period=7, **flags)
    if flags:  # a sync round is whole or not at all
        assert counts(train).max() == 2.0 and counts(train).mean() > 1.8
    else:
        np.testing.assert_array_equal(counts(train), np.full(ledger.NUM_LINES, 2.0))


def test_a_slow_worker_gets_fewer(train, monkeypatch):
    """Its second batch takes as long as 120 of the other worker's; each line is trained on once in each epoch."""
    batches, slow_has_begun, fast_is_far = [], threading.Event(), threading.Event()

    def wait(worker):
        if worker == 1 and slow_has_begun.is_set():
            assert fast_is_far.wait(60)
        elif worker == 1:
            slow_has_begun.set()
        else:
            assert slow_has_begun.wait(60)
            batches.append(worker)
            if len(batches) == 120:  # of some 160 in all
                fast_is_far.set()

    hold_batches(monkeypatch, wait)
    fast, slow = train(",range_bytes=100", num_workers=2).outcomes
    np.testing.assert_array_equal(counts(train), np.full(ledger.NUM_LINES, 2.0))
    assert fast.end is slow.end is End.DATA and slow.local_steps
    assert fast.local_steps > 2 * slow.local_steps


def test_workers_outnumber_the_ranges(train):
    """A worker without a range waits, and goes on if the next epoch has one; in the end each line counts alike."""
    (train.folder / "b.txt").unlink()
    train(",range_bytes=100000,batch_secs=0.005", num_workers=2, num_epochs=3)  # one range
    np.testing.assert_array_equal(counts(train), np.repeat([3.0, 0.0], [700, 300]))


def test_a_training_that_begins_with_the_values_of_another_takes_all_data(train):
    """It is the parameters that --init_checkpoint names, not the position; to continue with fewer epochs is no work."""
    train()
    [outcome] = train(num_epochs=1).outcomes
    assert (outcome.end, outcome.local_steps) == (End.DATA, 0)
    train(num_epochs=1, train_dir=train.folder / "second", init_checkpoint=str(train.folder / "train"))
    np.testing.assert_array_equal(counts(train, "second"), np.full(ledger.NUM_LINES, 3.0))


def test_a_training_continues_where_the_checkpoint_is_in_the_data(train, caplog):
    """Ranges that were held at the end of the first run are assigned again, as it says; all others count once.

    A position in other data means nothing, so other files than those of the checkpoint are refused.
    """
    caplog.set_level("INFO")
    first = train(train_steps=60)
    assert first.outcomes[0].end is End.STEPS
    half = counts(train)
    assert 0 < half.sum() < 2 * ledger.NUM_LINES
    second = train()
    again = int(re.search(r"reassigning those that workers held during the save: (\d+) ranges? of", caplog.text)[1])
    extra = counts(train) - 2.0
    plan = plan_ranges(f"{train.folder}/*.txt", range_bytes=200)
    assert extra.min() == 0.0 and extra.max() <= 1.0
    assert 0 < again <= 12 and extra.sum() <= again * ledger.NUM_LINES / len(plan) * 1.5
    assert second.outcomes[0].first_step >= 60
    with open(train.folder / "b.txt", "a") as file:
        file.write("5\n")
    with raises("input_files_differ"):
        train()


@pytest.mark.parametrize("times", [[0, 0, 0], [1, 0, 1], [0, 3, 1]])
def test_a_checkpoint_says_how_often_each_range_was_in_hand(times):
    """Also one of before, which says only of which that is true."""
    in_hand = position.in_unary(np.array(times))
    assert in_hand.dtype == bool and len(in_hand) == 3 * max(1, *times)
    assert position.times_in_hand(in_hand, 3).tolist() == times
    assert position.times_in_hand(np.array(times) > 0, 3).tolist() == [min(1, one) for one in times]


def test_files_that_have_come_since_are_new_ranges_of_a_training_that_was_over(train, caplog):
    """Their names sort before and after those of before, whose ranges are all done; each line counts once."""
    caplog.set_level("INFO")
    (train.folder / "b.txt").unlink()
    train(num_epochs=1)
    np.testing.assert_array_equal(counts(train), np.repeat([1.0, 0.0], [700, 300]))
    _write(train, "0.txt", 700, 850)
    _write(train, "b.txt", 850, 1000)
    train(num_epochs=1)
    np.testing.assert_array_equal(counts(train), np.full(ledger.NUM_LINES, 1.0))
    assert "input: 2 files are new since the checkpoint: 6 new ranges\n" in caplog.text


def test_files_that_come_in_the_middle_leave_the_position_as_it_was(train, caplog):
    """The ranges of before go on where they were; those that were in hand then, and no others, may count again."""
    caplog.set_level("INFO")
    (train.folder / "b.txt").unlink()
    train(train_steps=40)
    _write(train, "A.txt", 700, 1000)
    train()
    reassigned = re.search(r"held during the save: (?:(\d+) ranges? of|no range)", caplog.text)
    again = int(reassigned[1] or 0)
    extra = counts(train) - 2.0
    assert extra.min() == 0.0 and extra[700:].max() == 0.0 and extra.sum() <= again * 200 / 4


def _local(folder):
    """Returns a worker's end of the queue, for the files of now."""
    pattern = f"{folder}/*.txt"
    with tf.Graph().as_default():
        return LocalRanges(plan_ranges(pattern, range_bytes=200), [pattern], RangeSettings(2, 1), is_text=True)


def _save(path, **tensors):
    """Saves a checkpoint with these tensors by name."""
    with tf.Graph().as_default(), tf.Session() as session:
        session.run(tf.raw_ops.SaveV2(prefix=str(path), tensor_names=[*tensors], shape_and_slices=[""] * len(tensors),
                                      tensors=[*tensors.values()]))
    return str(path)


@pytest.mark.parametrize(("change", "why"), [
    (lambda folder: (folder / "a.txt").unlink(), "a.txt is missing"),
    (lambda folder: _append(folder / "a.txt"), "a.txt has 2693 bytes, and had 2690"),
    (lambda folder: (folder / "a.txt").write_text("12345678\n" * 298 + "1234567\n"),
     "a.txt has changed: its lines begin elsewhere"),
], ids=["missing", "longer", "other lines"])
def test_new_files_do_not_excuse_a_file_that_has_changed(train, change, why):
    """Nobody knows which of its examples were trained on."""
    saved = _save(train.folder / "saved", **{
        "dynamic_sharding/done": np.zeros(20, np.int32), "dynamic_sharding/in_hand": np.zeros(20, bool),
        "dynamic_sharding/plan": _local(train.folder).plan_text})
    _write(train, "c.txt", 0, 10)
    change(train.folder)
    with raises("input_files_differ") as caught:
        position.check_position(saved, _local(train.folder))
    assert why in str(caught.value)


def _write(train, name, first, stop):
    (train.folder / name).write_text("".join(f"{number}\n" for number in range(first, stop)))


def _append(path):
    path.write_text(path.read_text() + "12\n")


def test_a_checkpoint_without_a_position_is_refused(train):
    """It was saved without the flag."""
    with raises("checkpoint_without_position"):
        position.check_position(_save(train.folder / "saved", counts=np.zeros(3)), _local(train.folder))


@pytest.mark.parametrize("dataset", ["tests.plugins.tiny", "data.clicks"])
def test_a_dataset_without_ranges_is_refused(train, dataset):
    """Nothing can be handed out."""
    with raises("file_ranges_not_called"):
        testing.run_in_threads("tests.plugins.tiny", dataset, train_dir=train.folder / "train", num_ps=1,
                               num_workers=1, dynamic_sharding=True, train_steps=5)
