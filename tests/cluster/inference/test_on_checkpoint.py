"""evaluate, export and predict on one checkpoint, against numpy; and a SavedModel in a process without ps_train."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
import types

import numpy as np
import pytest

import ps_train
from ps_train.config import inference
from ps_train.errors import ConfigError, DataError, PsTrainError, UserCodeError
from ps_train.inference import saved_model, serving
from ps_train.plugins.contracts import ModelSpec
from ps_train.tasks import on_checkpoint
from tests.plugins import served
from tests.processes import REPO
from tests.tensorflow_mode import tf

_WEIGHTS = np.arange(8, dtype=np.float32).reshape(4, 2) / 4
_OFFSETS = np.arange(5, dtype=np.float32)
_LOADER = """
import sys, numpy as np, tensorflow.compat.v1 as tf
from tensorflow.python.tools import saved_model_cli
tf.disable_v2_behavior()
with tf.Session() as session:
    signature = tf.saved_model.load(session, ["serve"], sys.argv[1]).signature_def["serving_default"]
    assert not [op.name for op in session.graph.get_operations() if op.device]
    given = np.load(sys.argv[2])
    feed = {signature.inputs[name].name: given[name] for name in signature.inputs}
    np.savez(sys.argv[3], **session.run({name: info.name for name, info in signature.outputs.items()
                                         if name != "name"}, feed))
assert "ps_train" not in sys.modules
sys.argv = ["saved_model_cli", "show", "--dir", sys.argv[1], "--tag_set", "serve", "--signature_def", "serving_default"]
saved_model_cli.main()
"""


def _expected():
    features = served.features()
    return features["x"] @ _WEIGHTS + _OFFSETS[features["kind"]][:, np.newaxis]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the plug-in, two checkpoints in `train`, and features as files."""
    folder = tmp_path_factory.mktemp("served")
    shutil.copy(REPO / "tests/plugins/served.py", folder)
    (folder / "train").mkdir()
    for step in (3, 7):
        with tf.Graph().as_default(), tf.Session() as session:
            tf.get_variable("weights", initializer=_WEIGHTS * step / 7)
            tf.get_variable("offsets", initializer=_OFFSETS)
            tf.get_variable("global_step", initializer=np.int64(step))
            session.run(tf.global_variables_initializer())
            tf.train.Saver().save(session, str(folder / "train/model.ckpt"), step)
    (folder / "train/training.json").write_text(json.dumps(
        {"model": "served", "model_params": {"width": 2}, "dataset": "served", "dataset_params": {"width": 2}}))
    features = served.features()
    np.savez(folder / "features.npz", **features)
    rows = np.column_stack([features["kind"].astype(object), features["x"].astype(object)])
    lines = ["kind,x_0,x_1,x_2,x_3", *(",".join(map(str, row)) for row in rows)]
    (folder / "features.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(autouse=True)
def in_folder(folder, monkeypatch):
    """The working directory is where the plug-in is."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))


def _evaluate(*flags):
    on_checkpoint.evaluate_checkpoint(inference.parse_evaluate(["--train_dir=train", *flags]), threading.Event())


def _predict(output, *flags):
    on_checkpoint.predict_examples(inference.parse_predict([f"--output={output}", *flags]), threading.Event())
    return dict(np.load(output)) if str(output).endswith(".npz") else None


@pytest.fixture(scope="module")
def exported(folder):
    """The SavedModel of the newest checkpoint."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        on_checkpoint.export_checkpoint(inference.parse_export(["--train_dir=train", "--export_dir=exported"]))
    return folder / "exported"


@pytest.mark.parametrize("flags, step, num_examples", [
    ([], 7, 64), (["--checkpoint=3"], 3, 64), (["--checkpoint=train/model.ckpt-3"], 3, 64),
    (["--split=train"], 7, 64), (["--num_batches=1"], 7, 24)])
def test_an_evaluation_is_that_of_numpy(capsys, flags, step, num_examples):
    """Of any checkpoint, on any split; the training examples once, although the plug-in repeats them."""
    _evaluate("--json", *flags)
    found = json.loads(capsys.readouterr().out)
    pair = served.features()["x"] @ (_WEIGHTS * step / 7) + _OFFSETS[served.features()["kind"]][:, np.newaxis]
    pair, labels = pair[:num_examples], served.labels()[:num_examples]
    assert (found["global_step"], found["num_examples"]) == (step, num_examples)
    np.testing.assert_allclose(found["loss"], np.mean((pair[:, 0] - labels) ** 2), rtol=1e-5)
    np.testing.assert_allclose(found["metrics"]["mean"], np.mean(pair), rtol=1e-4, atol=1e-5)


def test_the_text_of_an_evaluation_is_that_of_the_trainer(capsys):
    """With the name of the split."""
    _evaluate("--split=train")
    assert capsys.readouterr().out.startswith("After 7 training steps, on 64 training examples:\n  loss = ")


_NO_CHECKPOINT = {
    "step": (["--train_dir=train", "--checkpoint=5"], "--checkpoint: got '5'; train has 3, 7; give one of these"),
    "best": (["--train_dir=train", "--checkpoint=best"], "there is no folder 'train/best'.*--keep_best"),
    "folder": (["--train_dir=nothing"], "--train_dir: there is no folder 'nothing'"),
    "empty": (["--train_dir=."], "--train_dir: there is no checkpoint in '.'"),
    "model": (["--train_dir=train", "--model=mlp"], "--model is models.mlp, but served in the folder"),
    "params": (["--train_dir=train", "--params=width=3"], "width in --params is 3, but 2 in the folder"),
}


@pytest.mark.parametrize("flags, message", _NO_CHECKPOINT.values(), ids=_NO_CHECKPOINT)
def test_what_cannot_be_found_is_one_line(flags, message):
    """With what there is."""
    with pytest.raises(ConfigError, match=message) as caught:
        on_checkpoint.evaluate_checkpoint(inference.parse_evaluate(flags), threading.Event())
    assert "\n" not in str(caught.value)


def test_a_saved_model_predicts_the_same_without_ps_train(folder, exported):
    """In a fresh process; TensorFlow's own tool shows the signature, and no operation has a device."""
    version = exported / "7"  # TensorFlow Serving's convention: a folder called by a number
    done = subprocess.run([sys.executable, "-c", _LOADER, str(version), "features.npz", "loaded.npz"], cwd=folder,
                          timeout=120, capture_output=True, text=True, check=False,
                          env={"PATH": "", "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"})
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(folder / "loaded.npz")["pair"], _expected(), rtol=1e-6, atol=1e-6)
    assert re.search(r"inputs\['x'\] tensor_info:\s+dtype: DT_FLOAT\s+shape: \(-1, 4\)", done.stdout)
    assert [path.name for path in exported.iterdir()] == ["7"]
    with pytest.raises(ConfigError, match="it exists; remove it"):
        on_checkpoint.export_checkpoint(inference.parse_export(["--train_dir=train", "--export_dir=exported"]))


@pytest.mark.parametrize("source", [[], ["--input=features.npz"], ["--input=features.csv", "--batch_size=10"]],
                         ids=["dataset", "npz", "csv"])
@pytest.mark.parametrize("model", [["--train_dir=train"], ["--saved_model=exported", "--train_dir=train"]],
                         ids=["checkpoint", "SavedModel"])
def test_predictions_are_those_of_numpy_in_order(exported, tmp_path, source, model):
    """From each source, with the checkpoint and with the SavedModel; the last batch is shorter."""
    found = _predict(tmp_path / "found.npz", *model, *source)
    np.testing.assert_allclose(found["pair"], _expected(), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found["kind"], served.features()["kind"])
    assert found["name"].tolist() == [str(kind).encode() for kind in served.features()["kind"]]


def test_each_format_has_the_same_predictions(tmp_path):
    """CSV and TFRecord, read back."""
    _predict(tmp_path / "found.csv", "--train_dir=train", "--outputs=name,pair")
    lines = (tmp_path / "found.csv").read_text().splitlines()
    assert lines[0] == "name,pair_0,pair_1"
    cells = [line.split(",") for line in lines[1:]]
    assert [row[0] for row in cells] == [str(kind) for kind in served.features()["kind"]]
    np.testing.assert_allclose(np.array([row[1:] for row in cells], np.float32), _expected(), rtol=1e-5, atol=1e-6)
    _predict(tmp_path / "found.tfrecord", "--train_dir=train")
    examples = [tf.train.Example.FromString(record)
                for record in tf.python_io.tf_record_iterator(str(tmp_path / "found.tfrecord"))]
    pairs = [one.features.feature["pair"].float_list.value for one in examples]
    np.testing.assert_allclose(np.array(pairs), _expected(), rtol=1e-5, atol=1e-6)
    assert {file.name for file in tmp_path.iterdir()} == {"found.csv", "found.tfrecord"}


_WRONG_FILES = {
    "no file": ("a.npz", None, "there is no file 'a.npz'"),
    "no array": ("b.npz", {"x": np.zeros([2, 4])}, "b.npz has no array 'kind'; it has x, and the model takes kind"),
    "a shape": ("c.npz", {"x": np.zeros([2, 3]), "kind": [0, 1]}, r"x is float64 \[2, 3\]; the model takes float32"),
    "a type": ("d.npz", {"x": np.zeros([2, 4]), "kind": [0.5, 1]}, r"kind is float64 \[2\]; the model takes int64"),
    "lengths": ("e.npz", {"x": np.zeros([2, 4]), "kind": [0]}, "differ in their number of examples: kind 1, x 2"),
    "damaged": ("f.npz", "no zip", "cannot read f.npz"),
    "empty": ("g.csv", "", "g.csv is empty"),
    "no header": ("h.csv", "1,2,3,4,5\n", "h.csv has no header; its first line must name the columns kind, x_0, x_1"),
    "no column": ("i.csv", "kind,x_0,x_1,x_2\n", "has no column 'x_3'; it has kind, x_0, x_1, x_2, and the model"),
    "a cell": ("j.csv", "kind,x_0,x_1,x_2,x_3\n1,1,1,1,1\n1,1,1,a,1\n", "j.csv, line 3, column x_2: got 'a'; expected"),
    "a whole number": ("k.csv", "kind,x_0,x_1,x_2,x_3\n1.5,1,1,1,1\n", "line 2, column kind: got '1.5'; expected a"),
    "a short line": ("l.csv", "kind,x_0,x_1,x_2,x_3\n1,1,1\n", "l.csv, line 2: 3 columns; expected 5"),
}


@pytest.mark.parametrize("name, content, message", _WRONG_FILES.values(), ids=_WRONG_FILES)
def test_a_wrong_file_is_one_line(exported, tmp_path, name, content, message):
    """It names the file, and the column or array; nothing is written."""
    if isinstance(content, dict):
        np.savez(name, **content)
    elif content is not None:
        with open(name, "w", encoding="utf-8") as file:
            file.write(content)
    with pytest.raises(DataError, match=message) as caught:
        _predict(tmp_path / "found.csv", "--saved_model=exported", f"--input={name}")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_columns_that_are_not_needed_may_be_there(exported, tmp_path):
    """In any order; a single input takes all columns, with or without a header."""
    with open("more.csv", "w", encoding="utf-8") as file:
        file.write("id,x_3,x_2,x_1,x_0,kind\nfirst,1,0,0,0,2\n")
    found = _predict(tmp_path / "found.npz", "--saved_model=exported", "--input=more.csv")
    np.testing.assert_allclose(found["pair"], [_WEIGHTS[3] + 2], rtol=1e-6)


def test_a_wrong_output_is_one_line(tmp_path):
    """A prediction that is not there, a folder that is not there."""
    with pytest.raises(ConfigError, match="--outputs: got 'score'; served predicts kind, name, pair"):
        _predict(tmp_path / "found.csv", "--train_dir=train", "--outputs=score")
    with pytest.raises(ConfigError, match="--output: cannot write '/nowhere/found.csv': No such file"):
        _predict("/nowhere/found.csv", "--train_dir=train")


_RECEIVER = types.SimpleNamespace
_SERVING = {
    "a tensor": (lambda x: x, ["inputs"]),
    "a dict": (lambda x: {"x": x}, ["x"]),
    "features and receivers": (lambda x: ({"x": x}, {"raw": x}), ["raw"]),
    "a receiver": (lambda x: _RECEIVER(features=x, receiver_tensors={"raw": x}), ["raw"]),
}


@pytest.mark.parametrize("make, names", _SERVING.values(), ids=_SERVING)
def test_a_serving_input_has_the_forms_of_estimator(make, names):
    """And plain tensors."""
    with tf.Graph().as_default():
        made = serving._as_serving_input(make(tf.placeholder(tf.float32, [None])), "m.serving_input_fn")
    assert list(made.receivers) == names


def test_another_serving_input_is_one_line():
    """It says what it must be."""
    with pytest.raises(UserCodeError, match="m.serving_input_fn returned int; it must return a tensor, a dict"):
        serving._as_serving_input(5, "m.serving_input_fn")


def test_export_outputs_are_signatures():
    """One alone is also the default; of several, one must be."""
    with tf.Graph().as_default():
        tensor = tf.placeholder(tf.float32, [None])
        inputs = serving.ServingInput(tensor, {"x": tensor}, {"other": {"y": tensor}})
        output = types.SimpleNamespace(as_signature_def=lambda receivers: sorted(receivers))
        found = saved_model._signatures(ModelSpec(export_outputs={"scores": output}), inputs)
        assert found == {"scores": ["x"], "serving_default": ["x"], "other:scores": ["y"],
                         "other:serving_default": ["y"]}
        with pytest.raises(PsTrainError, match="export_outputs a, b; one of several must be called 'serving_default'"):
            saved_model._signatures(ModelSpec(export_outputs={"a": output, "b": tensor}), inputs)


def test_the_modes_are_those_of_estimator():
    """So model_fn may compare with tf.estimator.ModeKeys."""
    assert (ps_train.TRAIN, ps_train.EVAL, ps_train.PREDICT) == ("train", "eval", "infer")
