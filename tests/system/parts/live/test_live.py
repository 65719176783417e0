"""A training, a publisher and live models that follow it, with real tasks."""

from __future__ import annotations

import glob

import numpy as np

from ps_train.parts.inference import predictor
from ps_train.parts.live.model import LiveModel
from ps_train.parts.live.predict_calls import serving_calls
from tests.push_reader import PushReader

_FLAGS = ["launch", "--num_ps=2", "--num_workers=1", "--model=tests.plugins.row_values",
          "--dataset=tests.plugins.row_values", "--log_steps=0", "--params=batch_secs=0.0"]


def _run(start_process, name, *arguments):
    start_process.start(name, list(arguments))
    assert start_process.exit_code(name) == 0


def _assert_predicts(models, exported):
    """Each live model predicts what a plain export does, for ids with a row and without."""
    ids = {"id": np.arange(-3, 320)}
    plain = predictor.of_saved_model(exported, 0)
    expected = plain.predict(ids)
    plain.close()
    for model in models:
        found = model.predict(ids)
        assert {*found} == {"rows", "offset"}
        for name, values in found.items():
            np.testing.assert_allclose(values, expected[name], rtol=1e-6, atol=1e-9)


def test_live_models_predict_as_the_newest_checkpoint(tmp_path, start_process):
    """One follows the folder of a publisher, one is its target; neither is loaded a second time."""
    train_dir, served = f"--train_dir={tmp_path / 'train'}", tmp_path / "served"
    _run(start_process, "first", *_FLAGS, train_dir, "--train_steps=30")
    publish = ["publish", str(tmp_path / "train"), f"--publish_dir={served}", "--once"]
    _run(start_process, "publish-first", *publish)
    [model_dir] = glob.glob(f"{served}/model-*")
    with LiveModel(str(served)) as following, LiveModel(model_dir) as target, serving_calls(target.call) as port:
        _run(start_process, "second", *_FLAGS, train_dir, "--train_steps=90")
        _run(start_process, "publish-second", *publish, f"--targets=localhost:{port}/m")
        assert following.update() == target.status()["number"] == 2
        assert (following.num_loads, following.status()["step"], target.status()["step"]) == (1, 90, 90)
        _run(start_process, "export", "export", str(tmp_path / "train"), f"--export_dir={tmp_path / 'plain'}")
        _assert_predicts([following, target], str(tmp_path / "plain"))
        assert following.status()["used"] == [len(PushReader(served).follow().tables["rows"])]
    _run(start_process, "export-live", "export", str(tmp_path / "train"), f"--export_dir={tmp_path / 'live'}", "--live")
    with LiveModel(str(tmp_path / "live/90")) as exported:
        _assert_predicts([exported], str(tmp_path / "plain"))
    start_process.start("wrong", ["export", str(tmp_path / "train"), f"--export_dir={tmp_path}", "--live_head_room=2"])
    assert start_process.exit_code("wrong") == 2
    assert "[flag_without_effect]" in start_process.log("wrong")
