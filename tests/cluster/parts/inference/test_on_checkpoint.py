"""evaluate, export and predict on one checkpoint, against numpy; and a SavedModel in a process without ps_train."""

from __future__ import annotations

import bz2
import contextlib
import csv
import gzip
import io
import json
import logging
import re
import resource
import shutil
import subprocess
import sys
import threading
import types
import zipfile

import numpy as np
import pytest

import ps_train
from ps_train import testing
from ps_train.errors import ConfigError, DataError, UserCodeError
from ps_train.parts.inference import examples, on_checkpoint, outputs, predictor, processes, serving
from ps_train.parts.inference import flags as inference_flags
from ps_train.parts.inference.predictor import InputColumn
from ps_train.plugins.contracts import ModelSpec
from ps_train.runtime.reports import Evaluation
from tests.errors import codes_of, error_of, raises
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
    flags = flags if any(flag.startswith("--train_dir") for flag in flags) else ["--train_dir=train", *flags]
    on_checkpoint.evaluate_checkpoint(inference_flags.parse_evaluate(flags), threading.Event())


def _predict(output, *flags):
    on_checkpoint.predict_examples(inference_flags.parse_predict([f"--output={output}", *flags]), threading.Event())
    return dict(np.load(output)) if str(output).endswith(".npz") else None


@pytest.fixture(scope="module")
def exported(folder):
    """The SavedModel of the newest checkpoint."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        on_checkpoint.export_checkpoint(inference_flags.parse_export(["--train_dir=train", "--export_dir=exported"]))
    return folder / "exported"


@pytest.mark.parametrize("flags, step, num_examples", [
    ([], 7, 64), (["--checkpoint=3"], 3, 64), (["--checkpoint=train/model.ckpt-3"], 3, 64),
    (["--split=train"], 7, 64), (["--num_batches=1"], 7, 24)])
def test_an_evaluation_is_that_of_numpy(capsys, flags, step, num_examples):
    """Of any checkpoint, on any split; the training examples once, although the plug-in repeats them."""
    _evaluate("--json", *flags)
    evaluated = json.loads(capsys.readouterr().out)
    pair = served.features()["x"] @ (_WEIGHTS * step / 7) + _OFFSETS[served.features()["kind"]][:, np.newaxis]
    pair, labels = pair[:num_examples], served.labels()[:num_examples]
    assert (evaluated["global_step"], evaluated["num_examples"]) == (step, num_examples)
    np.testing.assert_allclose(evaluated["loss"], np.mean((pair[:, 0] - labels) ** 2), rtol=1e-5)
    np.testing.assert_allclose(evaluated["metrics"]["mean"], np.mean(pair), rtol=1e-4, atol=1e-5)


def test_a_loss_that_is_no_number_is_a_text_in_json(capsys, monkeypatch):
    """JSON has neither NaN nor infinity."""
    evaluated = Evaluation(7, 64, "loss", np.nan, {"mean": np.inf})
    monkeypatch.setattr(on_checkpoint.evaluation, "evaluate_bounded", lambda *_: evaluated)
    _evaluate("--json")
    answer = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert (answer["loss"], answer["metrics"]) == ("nan", {"mean": "inf"})


def test_the_text_of_an_evaluation_is_that_of_the_trainer(capsys):
    """With the name of the split."""
    _evaluate("--split=train")
    assert capsys.readouterr().out.startswith("After 7 training steps, on 64 training examples:\n  loss = ")


_READS = """
import os
import numpy as np
import ps_train

DEFAULT_PARAMS = {"eval_files": "none"}


def prepare(params):
    print(params["data_dir"], params["eval_files"], params["on_bad_record"], params["seed"])
    assert os.path.isdir(params["data_dir"])


def data_identity(params):
    with open(os.path.join(params["data_dir"], "columns")) as columns:
        return {"columns": columns.read()}


def input_fn(mode, params, shard):
    arrays = np.load(os.path.join(params["data_dir"], "data.npz"))
    return ps_train.from_arrays(({"x": arrays["x"], "kind": arrays["kind"]}, arrays["label"]), 8,
                                repeat=mode == ps_train.TRAIN)
"""


def test_an_evaluation_reads_the_data_of_the_training(tmp_path, monkeypatch, capsys):
    """From another working directory; export and predict do, too, and a flag replaces what is recorded.

    Data with other features are refused.
    """
    for name in ("trained", "other"):
        (tmp_path / name).mkdir()
        np.savez(tmp_path / name / "data.npz", **served.features(), label=served.labels())
        (tmp_path / name / "columns").write_text("x,kind")
    (tmp_path / "reads_folder.py").write_text(_READS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    testing.run_in_threads(
        "served", "reads_folder", train_dir="train", num_workers=1, train_steps=2, log_steps=0, seed=5,
        save_summaries_steps=0, data_dir="trained", params="eval_files=mine", on_bad_record="skip")
    monkeypatch.chdir(tmp_path / "other")
    capsys.readouterr()
    folder = f"--train_dir={tmp_path}/train"
    _evaluate(folder)
    on_checkpoint.export_checkpoint(inference_flags.parse_export([folder, "--export_dir=exported"]))
    _predict("p.npz", folder)
    prepared = [line for line in capsys.readouterr().out.splitlines() if line.startswith(str(tmp_path))]
    assert prepared == [f"{tmp_path}/trained mine skip 5"] * 3
    _evaluate(folder, "--data_dir=.", "--on_bad_record=stop", "--seed=7", "--params=eval_files=its")
    assert capsys.readouterr().out.startswith(". its stop 7\n")
    (tmp_path / "trained").rename(tmp_path / "elsewhere")
    for use in (_evaluate, lambda *flags: _predict("p.npz", *flags)):
        with raises("data_dir_missing") as caught:
            use(folder)
        assert f"{tmp_path}/trained" in str(caught.value)
    assert not (tmp_path / "trained").exists()
    _evaluate(folder, f"--data_dir={tmp_path}/elsewhere")
    (tmp_path / "elsewhere/columns").write_text("kind,x")
    for use in (_evaluate, lambda *flags: _predict("p.npz", *flags)):
        with raises("other_training_in_folder") as caught:
            use(folder, f"--data_dir={tmp_path}/elsewhere")
        assert "columns in --params is kind,x, but x,kind in the folder" in str(caught.value)
    _evaluate(folder, f"--data_dir={tmp_path}/elsewhere", "--accept_params=columns")


@pytest.mark.parametrize("flags, code, part", [
    (["--train_dir=train", "--checkpoint=5"], "no_checkpoint", "3, 7"),
    (["--train_dir=train", "--checkpoint=\N{SUPERSCRIPT TWO}"], "no_checkpoint", "3, 7"),
    (["--train_dir=train", "--checkpoint=best"], "train_dir_missing", "'train/best'"),
    (["--train_dir=nothing"], "train_dir_missing", "'nothing'"),
    (["--train_dir=."], "no_checkpoint", "no checkpoint in '.'; give train"),
    (["--train_dir=.", "--checkpoint=7"], "no_checkpoint", "no checkpoint in '.'; give train"),
    (["--train_dir=train", "--model=mlp"], None, "--model is models.mlp, but served in the folder"),
    (["--train_dir=train", "--params=width=3"], None, "width in --params is 3, but 2 in the folder"),
])
def test_a_checkpoint_that_does_not_exist_or_fit_is_refused(flags, code, part):
    """In one line, with the existing ones."""
    with pytest.raises(ConfigError) as caught:
        on_checkpoint.evaluate_checkpoint(inference_flags.parse_evaluate(flags), threading.Event())
    assert code in (caught.value.code, None)
    assert part in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("checkpoint", ["", "7"])
def test_a_folder_of_keras_is_told(tmp_path, checkpoint):
    """Issue: it has "no checkpoint", where the user sees ckpt-00000007.keras."""
    with raises("no_checkpoint") as empty:
        on_checkpoint.find_checkpoint(str(tmp_path), checkpoint)
    (tmp_path / "ckpt-00000007.keras").touch()
    with raises("no_checkpoint") as caught:
        on_checkpoint.find_checkpoint(str(tmp_path), checkpoint)
    assert "of `ps_train keras`" in str(caught.value) and ";" not in str(empty.value)


@pytest.mark.parametrize(("files", "named"), [
    (["final/20/saved_model.pb", "best/10/saved_model.pb", "best/20/variables/x"], "give {0}/best or {0}/final"),
    (["v1/saved_model.pb"], "give {0}/v1"), (["eval/x"], "the folder that `ps_train export` wrote")])
def test_the_models_in_a_folder_above_them_are_named(tmp_path, files, named):
    """Issue: DIR of a training's --export_dir=DIR, which has DIR/final and DIR/best, was told to be another's."""
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).touch()
    with raises("no_saved_model") as caught:
        predictor.newest_version(str(tmp_path))
    assert named.format(tmp_path) in str(caught.value)


@pytest.mark.parametrize("name", ["model.ckpt-3.delta-5", "train/model.ckpt-3.delta-5.index"])
def test_a_delta_is_not_taken_for_a_checkpoint(folder, name):
    """It has only the rows that changed since the checkpoint, which the error names."""
    for file in (folder / "train").glob("model.ckpt-3.*"):
        shutil.copy(file, str(file).replace("ckpt-3.", "ckpt-3.delta-5."))
    with raises("delta_for_checkpoint") as caught:
        on_checkpoint.find_checkpoint("train", name)
    assert "train/model.ckpt-3;" in str(caught.value)
    for file in (folder / "train").glob("*delta*"):
        file.unlink()


def test_a_checkpoint_in_the_home_folder_is_found(folder, monkeypatch):
    """A shell leaves the ~ in --checkpoint=~/train/model.ckpt-3."""
    monkeypatch.setenv("HOME", str(folder))
    for name in ("~/train/model.ckpt-3", "~/train/model.ckpt-3.index"):
        assert on_checkpoint.find_checkpoint("train", name) == f"{folder}/train/model.ckpt-3"


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
    with raises("export_exists"):
        on_checkpoint.export_checkpoint(inference_flags.parse_export(["--train_dir=train", "--export_dir=exported"]))


@pytest.mark.parametrize("source", [[], ["--input=features.npz"], ["--input=features.csv", "--batch_size=10"]],
                         ids=["dataset", "npz", "csv"])
@pytest.mark.parametrize("model", [["--train_dir=train"], ["--saved_model=exported", "--train_dir=train"]],
                         ids=["checkpoint", "SavedModel"])
def test_predictions_are_those_of_numpy_in_order(exported, tmp_path, source, model):
    """From each source, with the checkpoint and with the SavedModel; the last batch is shorter."""
    predictions = _predict(tmp_path / "predicted.npz", *model, *source)
    np.testing.assert_allclose(predictions["pair"], _expected(), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(predictions["kind"], served.features()["kind"])
    assert predictions["name"].tolist() == [str(kind).encode() for kind in served.features()["kind"]]


@pytest.mark.parametrize("flags, taken", [
    (["--train_dir=train"], {"checkpoint": "train/model.ckpt-7"}),
    (["--saved_model=versions"], {"saved_model": "versions/7"}),
], ids=["checkpoint", "SavedModel"])
def test_all_processes_of_a_prediction_take_the_same_model(folder, exported, tmp_path, monkeypatch, flags, taken):
    """The newest is looked up once, as a training may write another one meanwhile."""
    if not (folder / "versions").exists():
        shutil.copytree(exported, folder / "versions")
    configs = []

    def capture(function, config, *_):
        configs.append(config)
        yield {"pair": np.zeros([1, 2], np.float32)}

    monkeypatch.setattr(on_checkpoint.processes, "batches_in_order", capture)
    _predict(tmp_path / "predicted.npz", *flags, "--num_processes=2", "--input=features.npz")
    [config] = configs
    assert {name: getattr(config, name).removeprefix(f"{folder}/") for name in taken} == taken


def test_each_format_has_the_same_predictions(tmp_path):
    """CSV and TFRecord, read back."""
    _predict(tmp_path / "predicted.csv", "--train_dir=train", "--outputs=name,pair")
    lines = (tmp_path / "predicted.csv").read_text().splitlines()
    assert lines[0] == "name,pair_0,pair_1"
    cells = [line.split(",") for line in lines[1:]]
    assert [row[0] for row in cells] == [str(kind) for kind in served.features()["kind"]]
    np.testing.assert_allclose(np.array([row[1:] for row in cells], np.float32), _expected(), rtol=1e-5, atol=1e-6)
    _predict(tmp_path / "predicted.tfrecord", "--train_dir=train")
    examples = [tf.train.Example.FromString(record)
                for record in tf.python_io.tf_record_iterator(str(tmp_path / "predicted.tfrecord"))]
    pairs = [example.features.feature["pair"].float_list.value for example in examples]
    np.testing.assert_allclose(np.array(pairs), _expected(), rtol=1e-5, atol=1e-6)
    assert {file.name for file in tmp_path.iterdir()} == {"predicted.csv", "predicted.tfrecord"}


def _written(save, *arrays, **named):
    save(file := io.BytesIO(), *arrays, **named)
    return file.getvalue()


def _damaged(content):
    """Returns it with other bytes in the midst of what is compressed."""
    return content[:200] + b"\xff" * 40 + content[240:]


_ROW = "kind,x_0,x_1,x_2,x_3\n"
_WRONG_FILES = [
    ("input_file_missing", "a.npz", None, "'a.npz'"),
    ("input_array_missing", "b.npz", {"x": np.zeros([2, 4])}, "'kind'"),
    ("input_array_mismatch", "c.npz", {"x": np.zeros([2, 3]), "kind": [0, 1]}, "x is float64 [2, 3]"),
    ("input_array_mismatch", "d.npz", {"x": np.zeros([2, 4]), "kind": [0.5, 1]}, "kind is float64 [2]"),
    ("input_lengths_differ", "e.npz", {"x": np.zeros([2, 4]), "kind": [0]}, "kind 1, x 2"),
    ("input_array_mismatch", "q.npz", {"x": np.zeros([2, 4], complex), "kind": [0, 1]}, "x is complex128 [2, 4]"),
    ("input_array_mismatch", "r.npz", {"x": np.zeros([2, 4], "M8[s]"), "kind": [0, 1]}, "x is datetime64[s] [2, 4]"),
    ("input_file_unreadable", "f.npz", "no zip", "f.npz"),
    ("input_file_unreadable", "s.npz", _written(np.save, np.zeros([2, 4])), "np.savez"),
    ("input_file_unreadable", "t.npz", _damaged(_written(np.savez_compressed, x=np.arange(900))), "t.npz"),
    ("input_file_empty", "g.csv", "", "g.csv"),
    ("csv_header_missing", "h.csv", "1,2,3,4,5\n", "kind, x_0, x_1"),
    ("csv_column_missing", "i.csv", "kind,x_0,x_1,x_2\n", "'x_3'"),
    ("csv_cell_malformed", "j.csv", f"{_ROW}1,1,1,1,1\n1,1,1,a,1\n", "j.csv, line 3, column x_2: got 'a'"),
    ("csv_cell_malformed", "k.csv", f"{_ROW}1.5,1,1,1,1\n", "line 2, column kind: got '1.5'"),
    ("csv_cell_malformed", "o.csv", f"{_ROW}1_0,1,1,1,1\n", "line 2, column kind: got '1_0'"),
    ("csv_cell_malformed", "p.csv", f"{_ROW}1,1_0,1,1,1\n", "line 2, column x_0: got '1_0'"),
    ("csv_column_count", "l.csv", f"{_ROW}1,1,1\n", "l.csv, line 2: 3 columns; expected 5"),
    ("input_file_compressed", "m.csv", gzip.compress(b"1"), "gzip"),
    ("input_file_compressed", "n.csv", bz2.compress(b"1"), "bzip2"),
    ("input_file_not_utf8", "u.csv", _ROW.encode("utf-16"), "iconv -f UTF-16 "),
    ("input_file_not_utf8", "v.csv", _ROW.encode("utf-16-le"), "iconv -f UTF-16LE"),
]


@pytest.mark.parametrize("code, name, content, part", _WRONG_FILES)
def test_a_wrong_file_is_one_line(exported, tmp_path, code, name, content, part):
    """It names the file, and the column or array; nothing is written."""
    if isinstance(content, dict):
        np.savez(name, **content)
    elif content is not None:
        with open(name, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
    with raises(code, kind=DataError) as caught:
        _predict(tmp_path / "predicted.csv", "--saved_model=exported", f"--input={name}")
    assert part in str(caught.value) and "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_the_error_of_one_of_several_processes_keeps_its_kind_and_code(exported, tmp_path):
    """As if this process had raised it."""
    (tmp_path / "empty.csv").touch()
    with raises("input_file_empty", kind=UserCodeError):
        _predict(tmp_path / "p.csv", f"--saved_model={exported}", f"--input={tmp_path}/empty.csv", "--num_processes=2")


def test_columns_that_are_not_needed_are_ignored(exported, tmp_path):
    """In any order; a single input takes all columns, with or without a header."""
    with open("more.csv", "w", encoding="utf-8") as file:
        file.write("id,x_3,x_2,x_1,x_0,kind\nfirst,1,0,0,0,2\n")
    predictions = _predict(tmp_path / "predicted.npz", "--saved_model=exported", "--input=more.csv")
    np.testing.assert_allclose(predictions["pair"], [_WEIGHTS[3] + 2], rtol=1e-6)


_NUMBERS = {"x": InputColumn(tf.float32, [3])}
_TEXT = {"t": InputColumn(tf.string, [])}
_TWO = {"age": InputColumn(tf.float32, []), "b": InputColumn(tf.float32, [])}
_FLAG = {"b": InputColumn(tf.bool, [])}
_FIRST_LINES = {
    "numbers": (_NUMBERS, "1,2,3\n4,5,6\n", {"x": [[1, 2, 3], [4, 5, 6]]}, ""),
    "names": (_NUMBERS, "x_2,x_1,x_0\n4,5,6\n", {"x": [[6, 5, 4]]}, ""),
    "other names": (_NUMBERS, "a,b,c\n4,5,6\n", {"x": [[4, 5, 6]]}, "first line is taken as a header: a, b, c"),
    "pandas": (_NUMBERS, "0,1,2\n4,5,6\n", {"x": [[4, 5, 6]]}, "first line is taken as a header: 0, 1, 2"),
    "Excel, numbers": (_NUMBERS, "\ufeff1,2,3\n4,5,6\n", {"x": [[1, 2, 3], [4, 5, 6]]}, ""),
    "Excel, names": (_TWO, "\ufeffage,b\n4,5\n", {"age": [4], "b": [5]}, ""),
    "a number as a name": (_TWO, "b,2019,age\n5,0,4\n", {"age": [4], "b": [5]}, ""),
    "text": (_TEXT, "t\ngood\n", {"t": [b"good"]}, ""),
    "bools": (_FLAG, "b\ntrue\n0\n False \n1\n", {"b": [True, False, False, True]}, ""),
    "a long text": (_TEXT, f"t\n{'a' * 200_000}\n", {"t": [b"a" * 200_000]}, ""),
    "UTF-8": (_TEXT, "t\nca\u0301fé\n", {"t": ["ca\u0301fé".encode()]}, ""),
}


@pytest.mark.parametrize("inputs, text, expected, logged", _FIRST_LINES.values(), ids=_FIRST_LINES)
def test_no_example_of_a_csv_is_lost_or_added(tmp_path, caplog, inputs, text, expected, logged):
    """The first line is a header or an example; where it need not be one, that is logged."""
    (tmp_path / "f.csv").write_text(text, encoding="utf-8")
    with caplog.at_level(logging.INFO, "ps_train.parts.inference.examples"):
        [batch] = examples.csv_batches(str(tmp_path / "f.csv"), inputs, 10, (0, 1))
    assert {name: values.tolist() for name, values in batch.items()} == expected
    assert ("taken as a header" in caplog.text) == bool(logged)
    assert logged in caplog.text


@pytest.mark.parametrize("sizes, shape", [
    ([None], [2, 6]), ([None, 3], [2, 2, 3]), ([2, None], [2, 2, 3]), ([1, None, 6], [2, 1, 1, 6]), (None, [2, 6]),
    ([None, None], "csv_shape_open"), ([None, 3, None], "csv_shape_open"),
    ([None, 4], "csv_column_count"), ([0, None], "csv_column_count"),
])
@pytest.mark.parametrize("num_inputs", [1, 2])
def test_open_sizes_are_those_of_the_columns(tmp_path, sizes, shape, num_inputs):
    """Issue: of several, or where the columns do not fill the others, it was numpy's error."""
    inputs = {"x": InputColumn(tf.float32, sizes), "id": InputColumn(tf.int64, [])}
    (tmp_path / "f.csv").write_text("x_0,x_1,x_2,x_3,x_4,x_5,id\n1,2,3,4,5,6,7\n1,2,3,4,5,6,8\n" if num_inputs == 2 else
                                    "1,2,3,4,5,6\n1,2,3,4,5,6\n")
    batches = examples.file_batches(str(tmp_path / "f.csv"), dict([*inputs.items()][:num_inputs]), 2, (0, 1))
    if isinstance(shape, str):
        with raises(shape) as caught:
            next(batches)
        assert "x float32 [n, " in str(caught.value)
    else:
        [batch] = batches
        np.testing.assert_array_equal(batch["x"], np.reshape([[1, 2, 3, 4, 5, 6]] * 2, shape))


def test_text_of_another_encoding_is_read_as_the_bytes_that_training_read(tmp_path):
    """Issue: in a file in Latin-1, each letter beyond ASCII became the same one."""
    (tmp_path / "f.csv").write_bytes(b"t\ncaf\xe9\ncaf\xe8\n")
    [batch] = examples.csv_batches(str(tmp_path / "f.csv"), _TEXT, 10, (0, 1))
    assert batch["t"].tolist() == [b"caf\xe9", b"caf\xe8"]
    with tf.Graph().as_default(), tf.Session() as session:
        placeholder = tf.placeholder(tf.string, [None])
        assert session.run(tf.strings.length(placeholder), {placeholder: batch["t"]}).tolist() == [4, 4]


@pytest.mark.parametrize("inputs, text, code, part", [
    (_NUMBERS, "1,,3\n4,5,6\n", "csv_header_unclear", "f.csv, line 1, column 2: got ''"),
    (_NUMBERS, "1,x,3\n4,5,6\n", "csv_header_unclear", "f.csv, line 1, column 2: got 'x'"),
    (_NUMBERS, ",,\n4,5,6\n", "csv_header_unclear", "f.csv, line 1, column 1: got ''"),
    (_TEXT, "good film\nbad film\n", "csv_header_unclear", "line 1: 'good film'"),
    ({"x": InputColumn(tf.float32, [])}, "0\n1\n", "csv_header_unclear", "line 1: '0'"),
    (_TWO, "1,\n4,5\n", "csv_header_missing", "age, b"),
    (_FLAG, "true\nfalse\n", "csv_header_unclear", "line 1: 'true'"),
    (_TWO, "age,b,x,age\n1,2,3,4\n", "csv_column_repeated", "f.csv has 2 columns 'age'"),
])
def test_a_first_line_that_is_not_clear_is_refused(tmp_path, inputs, text, code, part):
    """Otherwise an example could be lost, or the wrong column be read."""
    (tmp_path / "f.csv").write_text(text)
    with raises(code) as caught:
        next(examples.csv_batches(str(tmp_path / "f.csv"), inputs, 10, (0, 1)))
    assert part in str(caught.value)


@pytest.mark.parametrize("cells, code, part", [
    ("yes", "csv_cell_malformed", "line 7, column b: got 'yes'; expected 0, 1, false, true"),
    ("1,2", "csv_column_count", "line 7: 2 columns; expected 1"),
    (f'"{"a" * 100}"', "input_file_unreadable", "line 7: field larger than field limit"),
])
def test_a_wrong_cell_behind_cells_of_several_lines_is_named_by_its_line(tmp_path, monkeypatch, cells, code, part):
    """As editors count them."""
    limit = csv.field_size_limit(50)
    monkeypatch.setattr(examples, "_MOST_CELL_CHARS", 50)
    try:
        (tmp_path / "f.csv").write_text(f'b\n1\n"\n0"\n"1\n"\n{cells}\n')
        with raises(code) as caught:
            next(examples.csv_batches(str(tmp_path / "f.csv"), _FLAG, 10, (0, 1)))
    finally:
        csv.field_size_limit(limit)
    assert part in str(caught.value)


@pytest.mark.parametrize("kind, good, bad, allowed", [
    ("int32", [2**31 - 1, -2**31], 3000000000, "from -2147483648 to 2147483647"),
    ("uint8", [255, 0], 300, "from 0 to 255"), ("uint8", [255, 0], -1, "from 0 to 255"),
    ("uint64", [2**64 - 1, 5], 2**64, "from 0 to 18446744073709551615"),
    ("int64", [2**63 - 1, -2**63], 2**63, "from -9223372036854775808 to 9223372036854775807"),
])
def test_a_whole_number_that_does_not_fit_is_refused(tmp_path, kind, good, bad, allowed):
    """It is not changed to another one; the largest and the smallest stay what they are."""
    inputs, path = {"id": InputColumn(tf.as_dtype(kind), [])}, tmp_path / "f.csv"
    path.write_text("".join(f"{cell}\n" for cell in ["id", *good]))
    assert [batch["id"].tolist() for batch in examples.csv_batches(str(path), inputs, 10, (0, 1))] == [good]
    path.write_text(f"id\n{bad}\n")
    with raises("csv_cell_malformed") as caught:
        next(examples.csv_batches(str(path), inputs, 10, (0, 1)))
    assert f"line 2, column id: got '{bad}'" in str(caught.value) and str(caught.value).endswith(allowed)
    if bad < 2**64:
        np.savez(tmp_path / "f.npz", id=np.array([bad]))
        with raises("input_number_too_large") as caught:
            examples.read_arrays(str(tmp_path / "f.npz"), inputs)
        assert f"id has {bad}" in str(caught.value) and str(caught.value).endswith(allowed)


def test_numbers_for_a_bool_are_zero_and_one(tmp_path):
    """numpy would take any other for true."""
    np.savez(tmp_path / "f.npz", b=np.array([0, 1]))
    assert examples.read_arrays(str(tmp_path / "f.npz"), _FLAG)["b"].tolist() == [False, True]
    np.savez(tmp_path / "f.npz", b=np.array([0, 2]))
    with raises("input_number_too_large") as caught:
        examples.read_arrays(str(tmp_path / "f.npz"), _FLAG)
    assert str(caught.value).endswith("b has 2; the model takes bool [n], from 0 to 1")


@pytest.mark.parametrize("name, is_first, said", [("x", True, False), ("pixels", True, True), ("pixels", False, False)])
def test_an_array_of_another_name_is_announced(tmp_path, monkeypatch, caplog, name, is_first, said):
    """A model with one input takes the only array; one line has both names, once for all processes."""
    caplog.set_level(logging.INFO, logger="ps_train")
    monkeypatch.setattr(logging.getLogger("ps_train"), "propagate", True)
    np.savez(tmp_path / "f.npz", **{name: np.ones([2, 3], np.float32)})
    assert examples.read_arrays(str(tmp_path / "f.npz"), _NUMBERS, is_first=is_first)["x"].shape == (2, 3)
    line = f"--input: {tmp_path}/f.npz has no array 'x'; its only array, 'pixels', is used"
    assert set(caplog.messages) == ({line} if said else set())


@pytest.mark.parametrize("kind, good, bad, largest", [
    ("float32", ["3.4028235e38", "-inf", "Infinity", "nan"], "-1e39", "3.40282e+38, the largest float32"),
    ("float64", ["1e308", "inf"], "1e309", "1.79769e+308, the largest float64"),
    ("bfloat16", ["3e38"], "1e39", "3.38953e+38, the largest bfloat16"),
])
def test_a_number_that_would_become_infinite_is_refused(tmp_path, kind, good, bad, largest):
    """Unless the file says so itself."""
    inputs, path = {"x": InputColumn(tf.as_dtype(kind), [])}, tmp_path / "f.csv"
    path.write_text("".join(f"{cell}\n" for cell in ["x", *good]))
    [batch] = examples.csv_batches(str(path), inputs, 10, (0, 1))
    np.testing.assert_array_equal(batch["x"], np.array([float(cell) for cell in good]).astype(batch["x"].dtype))
    path.write_text(f"x\ninf\n{bad}\n")
    with raises("csv_cell_malformed") as caught:
        next(examples.csv_batches(str(path), inputs, 10, (0, 1)))
    assert f"line 3, column x: got '{bad}'" in str(caught.value) and str(caught.value).endswith(largest)
    np.savez(tmp_path / "f.npz", x=np.array([float(cell) for cell in good]))
    np.testing.assert_array_equal(examples.read_arrays(str(tmp_path / "f.npz"), inputs)["x"], batch["x"])
    if kind != "float64":  # which has no larger number than a file
        np.savez(tmp_path / "f.npz", x=np.array([np.inf, float(bad)]))
        with raises("input_number_too_large") as caught:
            examples.read_arrays(str(tmp_path / "f.npz"), inputs)
        assert f"x has {float(bad)}" in str(caught.value)


def test_other_files_in_an_npz_and_numbers_without_examples(tmp_path):
    """The only array is taken; one number is no list of examples, even where the model takes any shape."""
    inputs, path = {"x": InputColumn(tf.float32, None)}, str(tmp_path / "f.npz")
    np.savez(path, x=np.float32([1, 2]))
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("about.txt", "how it was made")
    assert examples.read_arrays(path, inputs)["x"].tolist() == [1, 2]
    np.savez(path, x=np.float32(1))
    with raises("input_array_mismatch"):
        examples.read_arrays(path, inputs)


def test_an_npz_has_each_prediction_under_its_name(tmp_path):
    """Issue: `file` was a TypeError at the end, and `allow_pickle` was left out."""
    path = str(tmp_path / "predicted.npz")
    batch = {name: np.arange(3) + number for number, name in enumerate(["file", "allow_pickle", "args", "self", "a/b"])}
    with outputs.writing(path) as write:
        for _ in range(2):
            write({**batch, "text": np.array([b"a\0b", b"", b"longer"], object)})
    with np.load(path) as arrays:
        assert arrays["text"].tolist() == [b"a\0b", b"", b"longer"] * 2
        assert {name: arrays[name].tolist() for name in arrays.files if name != "text"} == {
            name: [*values, *values] for name, values in batch.items()}


def test_a_text_that_numpy_would_shorten_is_refused(tmp_path):
    """At its batch; the other formats keep it."""
    batch = {"image": np.array([b"\x89PNG\0"], object)}
    with raises("prediction_ends_with_nul"), outputs.writing(str(tmp_path / "predicted.npz")) as write:
        write(batch)
    with outputs.writing(str(tmp_path / "predicted.tfrecord")) as write:
        write(batch)
    [record] = tf.python_io.tf_record_iterator(str(tmp_path / "predicted.tfrecord"))
    assert tf.train.Example.FromString(record).features.feature["image"].bytes_list.value[:] == [b"\x89PNG\0"]


def test_two_predictions_may_write_the_same_file(tmp_path):
    """Each writes a whole file, and the last to end has its name."""
    path = tmp_path / "predicted.csv"
    with outputs.writing(str(path)) as write_late:
        write_late({"number": np.array([1])})
        with outputs.writing(str(path)) as write_early:
            write_early({"number": np.array([2])})
        assert path.read_text() == "number\n2\n"
        write_late({"number": np.array([3])})
    assert path.read_text() == "number\n1\n3\n"
    assert [file.name for file in tmp_path.iterdir()] == ["predicted.csv"]


def test_a_wrong_output_is_refused(tmp_path):
    """The model has no such prediction; the folder does not exist."""
    with raises("no_such_prediction"):
        _predict(tmp_path / "predicted.csv", "--train_dir=train", "--outputs=score")
    with raises("file_not_writable"):
        _predict("/nowhere/predicted.csv", "--train_dir=train")
    (tmp_path / "folder.csv").mkdir()
    with raises("file_not_writable"), outputs.writing(str(tmp_path / "folder.csv")):
        pytest.fail("it predicts before it says so")
    assert [file.name for file in tmp_path.iterdir()] == ["folder.csv"]


@pytest.mark.parametrize("name", ["predicted.csv", "predicted.npz", "predicted.tfrecord"])
def test_a_file_that_cannot_be_written_to_its_end_is_one_line(tmp_path, name):
    """As on a full disk, wherever that is noticed: it was a traceback. What was written is removed."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with raises("file_not_writable", kind=ConfigError) as caught:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18, limits[1]))
        try:
            with outputs.writing(str(tmp_path / name)) as write:
                for _ in range(3):
                    write({"number": np.arange(20_000) / 3})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert f"cannot write {str(tmp_path / name)!r}: " in str(caught.value) and "File too large" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_the_part_of_a_process_that_cannot_be_written_is_one_line(tmp_path):
    """With --num_processes each writes its predictions first; an error of the predictions stays as it is."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18, limits[1]))
    try:
        error = error_of(processes.write_batches, ({"number": np.zeros(20_000)} for _ in range(3)), str(tmp_path / "0"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert codes_of(error) == ["file_not_writable"] and "File too large" in str(error)

    def failing():
        yield {"number": np.zeros(1)}
        raise FileNotFoundError("of the user's input_fn")

    with pytest.raises(FileNotFoundError):
        processes.write_batches(failing(), str(tmp_path / "1"))


def test_an_error_of_the_predictions_is_none_of_their_file(tmp_path):
    """It stays as it is, and nothing is written."""
    for name in ("predicted.csv", "predicted.npz", "predicted.tfrecord"):
        with pytest.raises(FileNotFoundError), outputs.writing(str(tmp_path / name)) as write:
            write({"number": np.arange(3)})
            raise FileNotFoundError("of the user's input_fn")
    assert list(tmp_path.iterdir()) == []


def test_a_dataset_without_the_inputs_of_a_saved_model_is_refused(folder, tmp_path):
    """As one that was exported with a serving_input_fn, which takes other features than the dataset has."""
    config = inference_flags.parse_export(["--train_dir=train", "--export_dir=x"])
    plugins = on_checkpoint.load_as_trained(config, "train")

    def make_input():
        text = tf.placeholder(tf.string, [None])
        features = tf.io.parse_example(text, {"x": tf.io.FixedLenFeature([4], tf.float32),
                                              "kind": tf.io.FixedLenFeature([], tf.int64)})
        return serving.ServingInput(features, {"examples": text}, {})

    serving.export_model("train/model.ckpt-7", str(tmp_path / "7"), plugins.model, plugins.model_params, make_input)
    with raises("features_missing") as caught:
        _predict(tmp_path / "predicted.npz", f"--saved_model={tmp_path}/7", "--train_dir=train")
    assert "examples string [n]" in str(caught.value) and "x, kind" in str(caught.value)


def test_the_input_is_closed_after_an_error(tmp_path, monkeypatch):
    """In the thread that opened it: TensorFlow keeps a stack of graphs for each thread, and fails in another one."""
    closed = []

    def batches(*_):
        with contextlib.closing(types.SimpleNamespace(close=lambda: closed.append(True))):
            yield {"x": np.zeros([1, 4])}

    def fail(_):
        raise UserCodeError("no_prediction", "")

    model = types.SimpleNamespace(inputs={}, select=lambda names: None, predict=fail, close=lambda: None)
    monkeypatch.setattr(on_checkpoint.examples, "dataset_batches", batches)
    monkeypatch.setattr(on_checkpoint.predictor, "of_saved_model", lambda *_: model)
    config = inference_flags.parse_predict(["--saved_model=x", "--train_dir=train", f"--output={tmp_path}/p.npz"])
    with raises("no_prediction") as caught:
        next(on_checkpoint.predicted_batches(config, (0, 1)))
    assert caught.value.__traceback__ is not None and closed == [True]  # the traceback still holds the generator


@pytest.mark.parametrize("name", ["predicted.csv", "predicted.npz"])
def test_a_prediction_whose_width_varies_is_refused(tmp_path, name):
    """A line of a CSV would have fewer cells than the header; TFRecord can have it."""
    batches = [{"p": np.zeros([2, 3])}, {"p": np.ones([2, 2])}]
    with raises("prediction_shape_varies") as caught, outputs.writing(str(tmp_path / name)) as write:
        for batch in batches:
            write(batch)
    assert "[n, 2] after [n, 3]" in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    with outputs.writing(str(tmp_path / "predicted.tfrecord")) as write:
        for batch in batches:
            write(batch)
    rows = [tf.train.Example.FromString(record).features.feature["p"].float_list.value[:]
            for record in tf.python_io.tf_record_iterator(str(tmp_path / "predicted.tfrecord"))]
    assert rows == [[0, 0, 0], [0, 0, 0], [1, 1], [1, 1]]


@pytest.mark.parametrize("name", ["predicted.csv", "predicted.npz", "predicted.tfrecord"])
def test_a_batch_without_examples_and_bfloat16_are_written(tmp_path, name):
    """As of a dataset that filters its batches; numpy does not know the type, and its files would have bare bytes."""
    path, kind = str(tmp_path / name), tf.bfloat16.as_numpy_dtype
    with outputs.writing(path) as write:
        for values in ([], [[1.5, -2.0]]):
            write({"p": np.array(values, kind).reshape(-1, 2)})
    if name.endswith("csv"):
        assert (tmp_path / name).read_text() == "p_0,p_1\n1.5,-2.0\n"
    elif name.endswith("npz"):
        assert np.load(path)["p"].tolist() == [[1.5, -2.0]]
    else:
        [record] = tf.python_io.tf_record_iterator(path)
        assert tf.train.Example.FromString(record).features.feature["p"].float_list.value[:] == [1.5, -2.0]


@pytest.mark.parametrize(("good", "bad"), [
    (np.uint64([0, 2**63 - 1]), np.uint64([1, 2**63 + 7])),
    (np.array([[1 / 3, -3e38], [np.inf, np.nan]]), np.array([[1.0, 2.0], [-1e300, 3.0]])),
])
def test_a_number_that_an_example_cannot_have_is_refused(tmp_path, good, bad):
    """Issue: uint64 from 2^63 on became negative, and float64 infinite. CSV and npz have them."""
    def write_file(name, values):
        with outputs.writing(str(tmp_path / name)) as write:
            write({"p": values})

    write_file("good.tfrecord", good)
    rows = [tf.train.Example.FromString(record).features.feature["p"] for record in tf.python_io.tf_record_iterator(
        str(tmp_path / "good.tfrecord"))]
    values = [[*row.int64_list.value, *row.float_list.value] for row in rows]
    np.testing.assert_array_equal(np.reshape(values, good.shape), good if good.ndim == 1 else good.astype(np.float32))
    with raises("prediction_too_large") as caught:
        write_file("bad.tfrecord", bad)
    assert str(bad.dtype) in str(caught.value) and not (tmp_path / "bad.tfrecord").exists()
    for name in ("bad.csv", "bad.npz"):
        write_file(name, bad)
    np.testing.assert_array_equal(np.load(tmp_path / "bad.npz")["p"], bad)


@pytest.mark.parametrize("make", [
    tf.sparse.from_dense, tf.RaggedTensor.from_tensor, lambda x: {"x": x}, lambda x: [x, x]],
    ids=["sparse", "ragged", "dict", "list"])
def test_a_prediction_that_is_no_dense_tensor_is_refused(make):
    """Unless --outputs leaves it out."""
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.int64, [None, 2], "x")
        model = predictor.Predictor(session, {"x": x}, {"s": make(x), "x": x}, "model")
        batch = {"x": np.array([[1, 0], [2, 3]])}
        with raises("prediction_not_dense") as caught:
            model.predict(batch)
        assert "'s'" in str(caught.value)
        model.select(["x"])
        assert model.predict(batch)["x"].tolist() == [[1, 0], [2, 3]]


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
        serving_input = serving._as_serving_input(make(tf.placeholder(tf.float32, [None])), "m.serving_input_fn")
    assert list(serving_input.receivers) == names


def test_another_serving_input_is_refused():
    """It must be one of these forms."""
    with raises("plugin_returned_wrong_type"):
        serving._as_serving_input(5, "m.serving_input_fn")


def test_export_outputs_are_signatures():
    """One alone is also the default; of several, one must be."""
    with tf.Graph().as_default():
        tensor = tf.placeholder(tf.float32, [None])
        inputs = serving.ServingInput(tensor, {"x": tensor}, {"other": {"y": tensor}})
        output = types.SimpleNamespace(as_signature_def=lambda receivers: sorted(receivers))
        signatures = serving._signatures(ModelSpec(export_outputs={"scores": output}), inputs)
        assert signatures == {"scores": ["x"], "serving_default": ["x"], "other:scores": ["y"],
                              "other:serving_default": ["y"]}
        with raises("no_default_signature"):
            serving._signatures(ModelSpec(export_outputs={"a": output, "b": tensor}), inputs)


class _Classification:
    """As Estimator's: it takes serialized examples."""

    def as_signature_def(self, receivers):
        if [tensor.dtype for tensor in receivers.values()] != [tf.string]:
            raise ValueError("only a single tensor of type tf.string\n Received: more")
        return "classified"


class _Prediction:
    def as_signature_def(self, receivers):
        return f"predicted from {', '.join(receivers)}"


@pytest.mark.parametrize("outputs, left_out, default", [
    ({"serving_default": _Classification(), "other": _Prediction(), "predict": _Prediction()},
     "serving_default", "predict"),
    ({"serving_default": _Classification(), "other": _Prediction()}, "serving_default", "other"),
    ({"serving_default": _Prediction(), "classes": _Classification()}, "classes", None),
])
def test_a_signature_that_cannot_be_made_is_left_out(caplog, outputs, left_out, default):
    """With its reason; the others are exported, one of them as the default."""
    serving._warn.cache_clear()
    with tf.Graph().as_default():
        tensor = tf.placeholder(tf.float32, [None])
        signatures = serving._signatures(ModelSpec(export_outputs=outputs), serving.ServingInput(
            tensor, {"x": tensor}, {}))
    assert set(signatures) == {name for name in outputs if name != left_out} | {"serving_default"}
    assert set(signatures.values()) == {"predicted from x"}
    assert caplog.messages == [
        f"the signature {left_out!r} is left out: only a single tensor of type tf.string",
        *([f"the signature 'serving_default' is that of {default!r}"] if default else [])]


def test_a_model_without_a_signature_is_refused():
    """With a serving input that it can take, there is one."""
    with tf.Graph().as_default():
        tensor, text = tf.placeholder(tf.float32, [None]), tf.placeholder(tf.string, [None])
        spec = ModelSpec(export_outputs={"classes": _Classification()})
        with raises("no_signature"):
            serving._signatures(spec, serving.ServingInput(tensor, {"x": tensor}, {}))
        served_text = serving.ServingInput(tensor, {"x": tensor}, {"text": {"examples": text}})
        signatures = serving._signatures(spec, served_text)
    assert signatures == dict.fromkeys(["text:classes", "text:serving_default", "serving_default"], "classified")


def test_the_modes_are_those_of_estimator():
    """So model_fn may compare with tf.estimator.ModeKeys."""
    assert (ps_train.TRAIN, ps_train.EVAL, ps_train.PREDICT) == ("train", "eval", "infer")
