"""The flags of the rule of an optimizer, and the settings that follow from them."""

from __future__ import annotations

import types

import pytest

from ps_train.cluster.spec import Cluster
from ps_train.config import task as config
from ps_train.parts import table
from ps_train.parts.optimizer_rule.part import ChosenRule, OptimizerRulePart, Schedule, rule_of
from ps_train.plugins import contracts, loader
from ps_train.tasks import setup
from tests.errors import codes_of, error_of, raises

CLUSTER = Cluster("worker", 0, {"ps": {0: "localhost:1"}, "worker": {0: "localhost:2"}})
PIECEWISE = ["--learning_rate_schedule=piecewise", "--learning_rate_boundaries=5,9",
             "--learning_rate_values=0.3,0.2,0.1"]


@pytest.mark.parametrize(("name", "flag", "options"), [
    ("momentum", "--momentum=0", {"momentum": 0.0}), ("adam", "--adam_beta1=0", {"beta1": 0.0}),
    ("momentum", "--nonesterov", {})])
def test_a_zero_is_a_choice(name, flag, options):
    """It replaces the optimizer's default, and another optimizer does not have it."""
    assert config.parse_task([f"--optimizer={name}", flag], {}).optimizer_options == options
    if options:
        error = error_of(config.parse_task, ["--optimizer=sgd", flag], {})
        assert codes_of(error) == ["flag_without_effect"] and "--optimizer=" in str(error)


def test_piecewise_begins_with_its_first_value():
    """It is the learning rate of whatever follows no schedule, too."""
    assert config.parse_task(PIECEWISE, {}).learning_rate == 0.3
    assert codes_of(error_of(config.parse_task, [*PIECEWISE, "--learning_rate=0.2"], {})) == ["flags_conflict"]


@pytest.mark.parametrize(("flags", "rule"), [
    (["--warmup_steps=4", "--decay_power=1"], None),
    (["--learning_rate_schedule=cosine", "--train_steps=70"], ChosenRule(
        schedule=Schedule("cosine", decay_steps=70), flags=("learning_rate_schedule",))),
    (PIECEWISE, ChosenRule(
        schedule=Schedule("piecewise", decay_steps=20000, boundaries=(5, 9), values=(0.3, 0.2, 0.1)),
        flags=("learning_rate_boundaries", "learning_rate_schedule", "learning_rate_values"))),
    (["--clip_norm=2", "--weight_decay=0.1", "--adam_beta1=0.8"], ChosenRule(
        options={"beta1": 0.8}, clip_norm=2.0, weight_decay=0.1, flags=("adam_beta1", "clip_norm", "weight_decay"))),
])
def test_the_flags_become_the_rule_of_the_settings(flags, rule):
    """Or they are refused, where one has no effect."""
    if rule is None:
        assert codes_of(error_of(config.parse_task, flags, {})) == ["flag_without_effect"]
        return
    parsed = config.parse_task([*flags, "--num_gpus=0"], {})
    settings = table.make_parts(parsed, CLUSTER).adjust(setup.worker_settings(parsed, CLUSTER))
    assert settings.graph.updates.plan.rule == rule == rule_of(parsed)


@pytest.mark.parametrize(("kind", "flags", "expected"), [
    ("cosine", [], "70 (--train_steps)"), ("polynomial", [], "70 (--train_steps)"),
    ("cosine", ["--decay_steps=50"], 50), ("constant", ["--warmup_steps=3"], None)])
def test_workers_share_the_end_of_the_schedule(kind, flags, expected):
    """Issue: a worker with another --train_steps was admitted, and trained at other rates."""
    parsed = config.parse_task([f"--learning_rate_schedule={kind}", "--train_steps=70", "--num_gpus=0", *flags], {})
    settings = table.make_parts(parsed, CLUSTER).adjust(setup.worker_settings(parsed, CLUSTER))
    assert settings.identity.shared_flags["decay_steps"] == expected


def test_without_its_flags_the_part_is_off():
    """Then the rule is that of the spine."""
    assert not OptimizerRulePart.is_on(config.parse_task([], {}), CLUSTER)
    assert OptimizerRulePart.is_on(config.parse_task(["--weight_decay=0"], {}), CLUSTER)


def test_make_optimizer_refuses_the_flags_of_what_it_chooses(monkeypatch):
    """All but that of clipping, which works with it, and --learning_rate, which it may read."""
    model = contracts.Model("own", None, {}, make_optimizer=lambda params, global_step: None)
    monkeypatch.setattr(loader, "load_model", lambda name: model)
    monkeypatch.setattr(loader, "load_dataset", lambda name: types.SimpleNamespace(name="data", default_params={}))
    setup.load_plugins(config.parse_task(["--clip_norm=1", "--learning_rate=0.1"], {}))
    with raises("flags_conflict", "flags_conflict"):
        setup.load_plugins(config.parse_task(["--optimizer=momentum", "--momentum=0.5", "--clip_norm=1"], {}))
