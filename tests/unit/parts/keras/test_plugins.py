"""What a plug-in of `ps_train keras` must have."""

from __future__ import annotations

import pytest

import ps_train
from ps_train.errors import ConfigError
from ps_train.parts.keras import flags, plugins
from tests.errors import raises


@pytest.mark.parametrize("code", [
    "def train(strategy, model, run): pass\ndef train_step(model, features, labels): pass\n",
    "def train_step(model, features, labels): pass\ndef make_callbacks(params): pass\n",
])
def test_functions_that_do_not_go_together_are_refused(monkeypatch, tmp_path, code):
    """Before anything is trained."""
    monkeypatch.syspath_prepend(tmp_path)
    name = f"own_loop_{abs(hash(code))}"
    (tmp_path / f"{name}.py").write_text(f"def build_model(params): pass\n{code}")
    with raises("model_functions_conflict"):
        plugins.load_keras_model(name)


def test_a_function_with_other_arguments_is_refused(monkeypatch, tmp_path):
    """The message has the arguments that it must take."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "other_step.py").write_text("def build_model(params): pass\ndef train_step(batch): pass\n")
    with pytest.raises(ConfigError, match=r"train_step\(model, features, labels\)"):
        plugins.load_keras_model("other_step")


def test_a_graph_model_names_its_twin(monkeypatch, tmp_path):
    """By the public ps_train.KerasTwin; anything else is refused."""
    monkeypatch.syspath_prepend(tmp_path)
    model = "import ps_train\ndef model_fn(features, labels, mode, params): pass\n"
    (tmp_path / "twinned.py").write_text(f"{model}KERAS_TWIN = ps_train.KerasTwin('mine', {{}}, {{'w': 'a/kernel'}})\n")
    (tmp_path / "twinless.py").write_text(f"{model}KERAS_TWIN = 'mine'\n")
    assert plugins.load_twin("twinned") == ps_train.KerasTwin("mine", {}, {"w": "a/kernel"})
    with raises("no_keras_twin"):
        plugins.load_twin("twinless")


def test_a_model_gets_the_flags_and_its_own_parameters(monkeypatch, tmp_path):
    """With the classes and functions of its module, so that its checkpoints can be read."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "parametrized.py").write_text("DEFAULT_PARAMS = {'depth': 1}\ndef build_model(params): pass\n")
    argv = ["--model=parametrized", "--dataset=data.digits", "--params=depth=3", "--batch_size=7"]
    loaded = plugins.load_keras_plugins(flags.parse_keras_task(argv, {}))
    assert (loaded.model_params["depth"], loaded.model_params["batch_size"]) == (3, 7)
    assert loaded.model.objects.keys() == {"build_model"}
    assert not loaded.model.has_own_loop
