"""What the journal says of a training that does not answer."""

from __future__ import annotations

import json

import pytest

from ps_train.errors import TrainingEndedError
from ps_train.parts.control import ended

_START = {"event": "start", "run": {"train_steps": 100}}
_SAMPLE = {"event": "sample", "step": 70}


def _write(folder, *events):
    (folder / "journal.jsonl").write_text("".join(f"{json.dumps({'time': 1.0, **event})}\n" for event in events))


@pytest.mark.parametrize(("end", "state", "step", "exit_code"), [
    ({"why": "the global step reached train_steps", "step": 101}, "finished", 101, 0),
    ({"why": "the data ran out", "step": 60, "is_data_end": True}, "finished", 60, 0),
    ({"why": "the end of training was announced", "step": 60}, "stopped early", 60, 0),
    ({"why": "StoppedError: told to stop at step 70"}, "stopped", 70, 143),
    ({"why": "StopRequestedError: told to stop (`ps_train stop`)"}, "stopped", 70, 143),
    ({"why": "ClusterLostError: waited 300 s for ps:1"}, "lost", 70, 138),
    ({"why": "ZeroDivisionError: division by zero"}, "failed", 70, 1),
    ({"why": "StopIteration: of the user's own code"}, "failed", 70, 1),
    (None, "lost", 70, 138),
])
def test_each_end_has_a_state_and_an_exit_code(tmp_path, end, state, step, exit_code):
    """The end of an earlier training in the folder does not count."""
    ends = [{"event": "end", **end}] if end else []
    _write(tmp_path, _START, {"event": "end", "why": "the data ran out", "step": 5}, _START, _SAMPLE, *ends)
    found = ended.read_ended(str(tmp_path))
    assert (found.state, found.step, found.exit_code) == (state, step, exit_code)
    if exit_code:
        with pytest.raises(TrainingEndedError, match=f"does not run: {state} at step {step}: ") as caught:
            ended.raise_if_failed(found, "run")
        assert caught.value.exit_code == exit_code
    else:
        ended.raise_if_failed(found, "run")


def test_a_training_without_a_step_limit_is_not_stopped_early(tmp_path):
    """With --num_epochs only; the line has the metrics, too."""
    _write(tmp_path, {"event": "start", "run": {"train_steps": None}},
           {"event": "end", "why": "the end of training was announced", "step": 9, "metrics": {"accuracy": 0.95791}})
    assert str(ended.read_ended(str(tmp_path))) == (
        "finished at step 9: the end of training was announced; accuracy 0.9579")


@pytest.mark.parametrize("events", [None, [], [{"event": "end", "why": "x", "step": 1}]])
def test_a_folder_without_a_training_has_no_end(tmp_path, events):
    """Nor has one that is not known."""
    if events is not None:
        _write(tmp_path, *events)
    assert ended.read_ended(str(tmp_path)) is None
    assert ended.read_ended("") is None
