"""The Python of the how-to pages, taken from them and run. tests/system/test_tutorial.py runs the tutorial."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ps_train
from ps_train import testing
from ps_train.errors import DataError
from tests.pages import block
from tests.processes import REPO
from tests.tensorflow_mode import tf


def run(page, beginning):
    """Returns the names that a block of a page defines."""
    names = {"ps_train": ps_train, "tf": tf}
    exec(compile(block(page, "python", beginning), page, "exec"), names)
    return names


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A function that writes a module into the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(name, *texts):
        (tmp_path / f"{name}.py").write_text("\n".join(texts))

    return write


PAIRS = """
import numpy as np
import ps_train

def input_fn(mode, params, shard):
    numbers = np.arange(64)
    features = {"item": numbers + 2**40, "user": numbers % 7}
    return ps_train.from_arrays((features, (numbers % 2).astype(np.float32)), params["batch_size"],
                                repeat=mode == ps_train.TRAIN)
"""


def test_the_model_of_the_page_on_tables_trains(module, tmp_path):
    """One dynamic table and one of a million rows."""
    module("page_tables", block("docs/embeddings.md", "python", "# mymodel.py"))
    module("page_pairs", PAIRS)
    found = testing.run_in_threads("page_tables", "page_pairs", train_dir=tmp_path / "train", num_ps=2, num_workers=1,
                                   train_steps=3, batch_size=8)
    assert found.evaluation.global_step == 3


def test_the_model_the_test_and_the_optimizer_of_the_page_on_models(module, tmp_path):
    """The test trains the README's model; with the README's data it has the page's optimizer in a second training."""
    model = block("README.md", "python", "# mymodel.py")
    module("mymodel", model)
    module("mydata", block("README.md", "python", "# mydata.py"))
    run("docs/plugins.md", "# test_mymodel.py")["test_it_learns"](tmp_path / "first")
    module("page_optimizer", model, block("docs/plugins.md", "python", "def make_optimizer"))
    found = testing.run_in_threads("page_optimizer", "mydata", train_dir=tmp_path / "second", num_ps=1, num_workers=1,
                                   train_steps=60)
    assert found.evaluation.metrics["accuracy"] >= 0.5
    assert "weights/Momentum" in testing.read_checkpoint(tmp_path / "second")


def test_the_dataset_of_the_page_on_data_reads_parquet(tmp_path):
    """A missing site is the empty string."""
    pa = pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"click": [0, 1], "site": ["a.com", None], "embedding": [[0.5] * 16] * 2}),
                        tmp_path / "a.parquet")
    input_fn = run("docs/data.md", "def input_fn(mode, params, shard):\n    def parse(columns)")["input_fn"]
    with tf.Graph().as_default(), tf.Session() as session:
        batch = tf.data.make_one_shot_iterator(input_fn(
            ps_train.EVAL, {"files": f"{tmp_path}/*.parquet", "batch_size": 3}, (0, 1))).get_next()
        features, labels = session.run(batch)
    assert labels.tolist() == [0, 1] and features["site"].tolist() == [b"a.com", b""]
    np.testing.assert_array_equal(features["embedding"], np.full([2, 16], 0.5))


def test_the_dataset_of_the_page_on_data_reads_lines(tmp_path):
    """Each number once; a line that is none is named."""
    input_fn = run("docs/data.md", "DEFAULT_PARAMS")["input_fn"]
    params = {"files": f"{tmp_path}/*.txt", "on_bad_record": "stop", "batch_size": 3}
    (tmp_path / "a.txt").write_text("1\n-2\n3\n4\n")

    def read():
        with tf.Graph().as_default() as graph, tf.Session() as session:
            batches = tf.data.make_initializable_iterator(input_fn(ps_train.EVAL, params, (0, 1)))
            values, labels = batches.get_next()
            session.run([batches.initializer, tf.tables_initializer()], ps_train.input_feed(graph))
            found = []
            while len(found) < 4:
                found += zip(*session.run([values, labels]))
            return sorted(found)

    assert read() == [(-2.0, False), (1.0, True), (3.0, True), (4.0, True)]
    (tmp_path / "a.txt").write_text("1\nx\n3\n4\n")
    with pytest.raises((DataError, tf.errors.InvalidArgumentError), match="expected an integer"):
        read()


@pytest.mark.parametrize("marks", [True, False])
def test_the_map_of_the_page_on_data_is_for_batches_with_marks_and_without(tmp_path, marks):
    """The labels change, and the mark stays."""
    (tmp_path / "a.txt").write_text("1\n2\n3\n")
    map_batches = run("docs/data.md", "def map_batches")["map_batches"]

    def parse(lines):
        return {"line": lines}, tf.strings.to_number(lines)

    with tf.Graph().as_default(), tf.Session() as session:
        reader = ps_train.LineReader(parse, tf.zeros_like, "stop")
        ranges = ps_train.file_ranges(f"{tmp_path}/*.txt", (0, 1), ps_train.EVAL)
        dataset = map_batches(ps_train.range_batches(ranges, reader.read, 2, marks=marks),
                              lambda features, labels: (features, labels * 10))
        batch = tf.data.make_one_shot_iterator(dataset).get_next()
        found = [session.run(batch) for _ in range(2)]
    if marks:
        assert [bool(mark.is_last) for _, mark in found] == [False, True]
        found = [pair for pair, _ in found]
    assert [labels.tolist() for _, labels in found] == [[10, 20], [30]]
    assert [features["line"].tolist() for features, _ in found] == [[b"1", b"2"], [b"3"]]


def test_each_training_of_the_page_about_keras_has_a_folder_of_its_own():
    """Issue: a reader's second command found that the first one had trained to --train_steps, and trained nothing."""
    page = (REPO / "docs/migrate.md").read_text(encoding="utf-8")
    found = re.findall(r"^\./run_local.sh .*$", page, re.MULTILINE)
    folders = [match[0] for line in found if (match := re.search(r"--train_dir=\S+", line))]
    assert len(set(folders)) == len(found) >= 9


def test_the_serving_input_of_the_page_on_export_parses_examples():
    """As TensorFlow Serving sends them."""
    with tf.Graph().as_default(), tf.Session() as session:
        features, receivers = run("docs/inference.md", "def serving_input_fn")["serving_input_fn"]()
        example = tf.train.Example()
        example.features.feature["x"].float_list.value.extend([1, 2, 3, 4])
        found = session.run(features, {receivers["examples"]: [example.SerializeToString()]})
    np.testing.assert_array_equal(found["x"], [[1, 2, 3, 4]])


def test_the_keras_twin_of_the_page_names_the_layer_of_the_keras_model():
    """The model itself needs eager execution; tests/system/parts/keras trains such models."""
    layer = re.search(r'Dense\(10, name="(\w+)"\)', block("docs/plugins.md", "python", "# mykeras.py"))[1]
    twin = run("docs/migrate.md", "KERAS_TWIN")["KERAS_TWIN"]
    assert set(twin.weights.values()) == {f"{layer}/kernel", f"{layer}/bias"}
