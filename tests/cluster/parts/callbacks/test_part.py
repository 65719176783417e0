"""Callbacks in a whole training: what they are told, how they end it, and what becomes of their errors."""

from __future__ import annotations

import json

import pytest

from ps_train import testing
from ps_train.storage.journal import read_journal
from ps_train.training.reporting import End
from tests.errors import raises

NOTING = "tests.plugins.noting"


def train(tmp_path, model=NOTING, params="", **flags):
    return testing.run_in_threads(model, NOTING, train_dir=tmp_path / "train", params=params, **{
        "num_workers": 1, "batch_size": 16, "train_steps": 40, "log_steps": 10, **flags})


def events_of(tmp_path):
    return [json.loads(line) for line in (tmp_path / "train/events.jsonl").read_text().splitlines()]


def test_a_callback_is_told_what_happens(tmp_path):
    """The start first, then progress, checkpoints, evaluations and workers, and the end last."""
    result = train(tmp_path, callbacks=f"{NOTING}:make", eval_steps=20)
    events = events_of(tmp_path)
    kinds = [kind for kind, _, _ in events]
    assert (kinds[0], kinds[-1]) == ("start", "end")
    assert {*kinds} == {"start", "progress", "workers", "evaluation", "checkpoint", "task", "end"}
    assert events[0][2] == {"num_ps": 1, "num_workers": 1, "train_steps": 40}
    progress = [(step, values) for kind, step, values in events if kind == "progress"]
    assert [step for step, _ in progress] == [10, 20, 30, 40]
    for _, values in progress:
        assert values["loss"] > 0 and values["steps_per_sec"] > 0 and values["staleness"] == 0
    step, values = next((step, values) for kind, step, values in reversed(events) if kind == "evaluation")
    assert step == 40 and values["metrics"]["error"] == pytest.approx(result.evaluation.metrics["error"])
    assert {"name": "worker:0", "what": "finished"} in [values for kind, _, values in events if kind == "task"]
    assert events[-1][1] == 40 and not events[-1][2]["is_error"]
    assert events[-1][2]["why"] == "the global step reached train_steps"


def test_the_callbacks_of_a_model_need_no_flag(tmp_path):
    """Its module has a function `callbacks`."""
    train(tmp_path)
    assert events_of(tmp_path)[-1][0] == "end"


def test_a_callback_may_end_the_training(tmp_path):
    """After the next step, with its reason."""
    result = train(tmp_path, params="callback=stop", train_steps=100000)
    [outcome] = result.outcomes
    assert outcome.why == "enough at 10" and 10 <= outcome.global_step < 100000
    assert result.evaluation.global_step == outcome.global_step


@pytest.mark.parametrize("action", ["stop", "raise"])
def test_a_callback_is_heard_while_the_chief_waits_for_the_others(tmp_path, action):
    """The chief's data may end long before theirs. Issue: `stop`, or an error, did nothing then."""
    def train_with_uneven_data():
        return train(tmp_path, num_workers=2, train_steps=10**9, batch_size=8, timeout_secs=60,
                     params=f"callback={action},at=finished,chief_batches=3,batch_secs=0.01")

    if action == "raise":
        with pytest.raises(ValueError, match="a fault in the callback at finished"):
            train_with_uneven_data()
        assert read_journal(str(tmp_path / "train"))[-1]["why"] == "ValueError: a fault in the callback at finished"
    else:
        assert [outcome.end for outcome in train_with_uneven_data().outcomes] == [End.DATA, End.ANNOUNCED]


@pytest.mark.parametrize("at", ["start", "progress", "checkpoint", "end"])
def test_the_error_of_a_callback_ends_the_training(tmp_path, at):
    """It is the user's own, with its traceback; the callback is called no more."""
    with pytest.raises(ValueError, match=f"a fault in the callback at {at}") as caught:
        train(tmp_path, params=f"callback=raise,at={at}", train_steps=40 if at == "end" else 1000000)
    assert "noting.py" in str(caught.traceback[-1].path)
    assert events_of(tmp_path)[-1][0] == at
    if at != "end":
        assert read_journal(str(tmp_path / "train"))[-1]["why"] == f"ValueError: a fault in the callback at {at}"


@pytest.mark.parametrize(("flags", "code"), [
    ({"callbacks": "no_such_module:make"}, "plugin_not_found"),
    ({"callbacks": "tests.no_such_module:make"}, "plugin_not_found"),
    ({"callbacks": f"{NOTING}:no_such_function"}, "plugin_function_missing"),
    ({"callbacks": f"{NOTING}:takes_nothing"}, "plugin_signature"),
    ({"params": "callback=make_nothing"}, "plugin_returned_wrong_type"),
])
def test_callbacks_that_cannot_be_made_are_refused(tmp_path, flags, code):
    """Before the chief opens a socket."""
    with raises(code):
        train(tmp_path, **flags)


def test_the_error_of_make_is_the_users_own(tmp_path):
    """As that of a model_fn."""
    with pytest.raises(ValueError, match="a fault in make"):
        train(tmp_path, params="callback=raise_at_once")
