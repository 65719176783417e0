"""The recommender benchmark: its data and figures against numbers worked out by hand, and its peers for a moment."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from benchmarks.harness import running, tool
from benchmarks.harness.measures import Spread
from benchmarks.harness.report import Column
from benchmarks.harness.trial import Setting
from benchmarks.recommender import __main__ as recommender
from benchmarks.recommender import dataset, examples, figures, network, trials
from benchmarks.recommender.figures import Ratio
from benchmarks.recommender.work import Work
from tests.tensorflow_mode import tf


@pytest.mark.parametrize("work", [Work(), Work(num_ids=7, dim=3, layers="", is_dynamic=True, fill=2)])
def test_a_work_survives_the_command_line(work):
    """The text of --params gives the value back."""
    assert Work.parse(work.params) == work


def test_ids_of_each_field_are_its_own_and_follow_a_zipf_law():
    """A field's ids are in its range, and its first id is the most frequent one."""
    clicks = examples.draw(4000, 5000, seed=1)
    offsets, sizes = examples.field_offsets(5000), examples.field_sizes(5000)
    assert sizes.sum() <= 5000
    assert (clicks.ids >= offsets).all() and (clicks.ids < offsets + sizes).all()
    for field in range(examples.NUM_FIELDS):
        ids, counts = np.unique(clicks.ids[:, field], return_counts=True)
        assert ids[np.argmax(counts)] == offsets[field]
    again = examples.draw(4000, 5000, seed=1)
    assert all(np.array_equal(one, other) for one, other in zip(clicks, again))
    assert 0.1 < clicks.labels.mean() < 0.5


def test_workers_share_the_batches(tmp_path):
    """Every batch belongs to one worker, and nothing is drawn twice."""
    examples.write(tmp_path, 64, 1000)
    whole = examples.batches(str(tmp_path), 16)
    parts = [examples.batches(str(tmp_path), 16, (index, 2)) for index in range(2)]
    assert whole.ids.shape == (4, 16, 26)
    for name in examples.Clicks._fields:
        np.testing.assert_array_equal(getattr(whole, name)[0::2], getattr(parts[0], name))
        np.testing.assert_array_equal(getattr(whole, name)[1::2], getattr(parts[1], name))


def test_a_sweep_first_touches_ids_all_over_the_table():
    """4 batches of 52 ids, each tenth of 2000; later ones are uniform."""
    work = Work(num_ids=2000, fill=10)
    with tf.Graph().as_default(), tf.Session() as session:
        features, labels = tf.data.make_one_shot_iterator(dataset.uniform_batches(work, 2, (0, 1))).get_next()
        drawn = [session.run([features["ids"], labels]) for _ in range(40)]
    filled = np.concatenate([ids.ravel() for ids, _ in drawn[:4]])
    assert set(filled) >= set(range(0, 2000, 10))
    later = np.concatenate([ids.ravel() for ids, _ in drawn[4:]])
    assert 0 <= later.min() < 50 and 1950 < later.max() < 2000
    assert all(list(labels) == [0, 1] for _, labels in drawn)


def test_the_network_is_deepfm():
    """Weights, all pairs of vectors and a perceptron, written out in numpy."""
    work = Work(num_ids=10, dim=3, layers="4x2")
    rng = np.random.default_rng(0)
    weights, vectors, numbers = (rng.standard_normal(shape).astype(np.float32)
                                 for shape in ([5, 26], [5, 26, 3], [5, 13]))
    dense = {name: value + 0.1 for name, value in network.first_values(work).items()}
    with tf.Graph().as_default(), tf.Session() as session:
        found = session.run(network.logits(work, weights, vectors, numbers, dense))
    pairs = sum((vectors[:, one] * vectors[:, other]).sum(1) for one in range(26) for other in range(one))
    hidden = np.concatenate([vectors.reshape(5, -1), numbers], 1)
    for number in range(2):
        hidden = np.maximum(0, hidden @ dense[f"layer_{number}/weights"] + dense[f"layer_{number}/biases"])
    expected = (hidden @ dense["output/weights"] + numbers @ dense["numbers/weights"])[:, 0] + dense["bias"]
    np.testing.assert_allclose(found, expected + weights.sum(1) + pairs, rtol=1e-4)


def test_ratios_are_taken_within_a_repeat():
    """2 and 3 times in the repeats that both have: the median is 2.5, where that of medians would be 1.6."""
    runs = {"a": {0: {"speed": 20.0}, 1: {"speed": 300.0}, 2: {"speed": 7.0}},
            "b": {0: {"speed": 10.0}, 1: {"speed": 100.0}}, "c": {}}
    assert figures.value_of(Ratio("a", "b", "speed", ">=", 2), runs) == Spread(2.5, 2.0, 3.0, 2)
    lines = figures.claims_table(
        [Ratio("a", "b", "speed", ">=", 2), Ratio("a", "b", "speed", "<=", 2), Ratio("a", "c", "speed", ">=", 2)], runs)
    assert [line.rsplit("|", 2)[1].strip() for line in lines.splitlines()[2:]] == ["yes", "**no**", "not measured"]


def test_a_column_without_figures_is_left_out():
    """A figure that one row has not is a dash."""
    columns = [Column("a", "A", "{:.1f}"), Column("b", "B", "{:.1f}")]
    rows = {"one": {"a": Spread(1.0, 0.5, 2.0, 3), "b": None}, "two": {"a": None}}
    assert figures.table(columns, rows).splitlines() == [
        "| | A |", "|---|---|", "| one | 1.0 (0.5 to 2.0) |", "| two | - |"]


def test_received_tensors_are_counted_in_the_second_half(tmp_path):
    """6 of both tasks from 106 to 110 s, in which there were 4 batches; other lines do not count."""
    samples = [{"time": float(secs), "batches": secs - 100} for secs in (100, 103, 106, 110)]
    lines = ["{}", *map(json.dumps, samples)]
    (tmp_path / "samples.jsonl").write_text("\n".join(lines) + "\n")
    line = "I0000 00:00:{:.6f}   22 grpc_remote_worker.cc:202] {}\n"
    for name, times in (("ps-0", [101, 106.5, 107, 109.9]), ("worker-0", [106, 108, 109, 110.5])):
        (tmp_path / f"{name}.log").write_text("".join(
            line.format(secs, "RecvTensorAsync req: step_id: 1") + line.format(secs, "another") for secs in times))
    assert figures.received_tensors(tmp_path) == 6 / 4
    (tmp_path / "ps-0.log").unlink()
    (tmp_path / "worker-0.log").write_text("nothing\n")
    assert figures.received_tensors(tmp_path) is None


def test_a_sweep_leaves_out_what_the_memory_cannot_hold(monkeypatch):
    """10^6 rows of Adam fit into 200 MB, 10^7 do not; stock Adam has an end of its own."""
    monkeypatch.setattr(trials.proc, "free_memory_mb", lambda: 200.0)
    found, left_out = trials.swept(Setting(), [10**6, 10**7, 10**8])
    assert [trial.name for trial in found["lazy adam"]] == ["1e6 rows: lazy adam"]
    assert "needs 954 MB, and 200 are free" in left_out["1e7 rows: lazy adam"]
    assert left_out["1e8 rows: classic loop, adam"] == "each step would take seconds"


def test_growing_tables_are_compared_with_one_of_a_million_rows(monkeypatch):
    """Twice the CPU time of 10^6 rows; the memory of a row is what more rows have added to the smallest table."""
    monkeypatch.setattr(trials.proc, "free_memory_mb", lambda: 0.0)
    group = trials.swept(Setting(), [10**5, 10**6, 10**7])[0]["adagrad"]
    runs = {trial.name: {0: {"cpu_ms": cpu_ms, "ps_memory_mb": 100.0 + 64 * rows / 2**20, "num_rows": rows}}
            for trial, cpu_ms, rows in zip(group, [5.0, 8.0, 16.0], [10**5, 10**6, 10**7])}
    rows = recommender.swept_rows(runs, {"adagrad": group})
    assert [row["cpu_of_base"].median for row in rows.values()] == [5 / 8, 1, 2]
    assert rows[group[0].name]["bytes_per_row"] is None
    assert rows[group[2].name]["bytes_per_row"].median == pytest.approx(64)


def test_the_tool_runs_for_a_moment(tmp_path, monkeypatch, forked_tasks):
    """A peer of each table trains, transfers are counted, and both tables have figures."""
    monkeypatch.setattr(recommender, "_NUM_EXAMPLES", 16 * 512)
    only = "ps_train;1e3 rows: adagrad, dynamic"
    monkeypatch.setattr(tool, "wanted", lambda trials, names, original=tool.wanted: [
        trial for trial in original(trials, names) if not names or trial.name in names.split(";")])
    monkeypatch.setattr(sys, "argv", [
        "recommender", "--num_ids=3000", "--rows=1e3", "--repeats=1", "--batches=20", "--min_secs=1.5",
        f"--work_dir={tmp_path}", f"--only={only}"])
    assert recommender.main() == 0
    results = {row["name"]: row for row in json.loads((tmp_path / "recommender.json").read_text())["results"]}
    assert list(results) == only.split(";")
    assert all(row["ps_memory_mb"]["median"] > 0 for row in results.values())
    assert 5 < results["ps_train"]["received_tensors"]["median"] < 30  # with the heartbeats of a slow machine


@pytest.mark.parametrize("name", [
    "no communication", "classic loop, 26 tables", "ParameterServerStrategy, 25 a closure",
    "PyTorch, one process, 1 thread"])
def test_a_peer_runs_for_a_moment(name, tmp_path, request):
    """It trains and counts its mini-batches; PyTorch, which may be missing, is then skipped."""
    if not name.startswith("PyTorch"):  # in one process with TensorFlow, both bring LLVM, which then aborts
        request.getfixturevalue("forked_tasks")
    examples.write(tmp_path / "examples", 16 * 512, 3000)
    setting = Setting(data_dir=str(tmp_path / "examples"), has_accuracy=False, batches=60, min_secs=1.5, seed=0)
    (trial,) = [trial for trial in trials.compared(setting, 3000) if trial.name == name]
    try:
        running.run(trial.peer, trial.setting, str(tmp_path / f"{trial.peer.name}.0"))
    except running.SkippedError as error:
        pytest.skip(str(error))
    (run,) = tmp_path.glob("*.0")
    (found,) = figures.of_runs([run]).values()
    assert found["examples_per_sec"] > 0
    # How much of it falls into the time that counts is a matter of luck in so short a run.
    assert sum(json.loads((run / "run.json").read_text())["samples"][-1]["cpu_secs"].values()) > 0
