"""How the chief follows a callback that ends the training, with a ps 0 that answers as a test says."""

from __future__ import annotations

from unittest import mock

from ps_train.config.task import Config
from ps_train.errors import BlackboardError
from ps_train.parts.callbacks.part import CallbacksPart
from ps_train.runtime import clock
from ps_train.runtime.reports import NO_STEP_LIMIT


def part_of(log_steps=0, stop_reason="", error=None):
    """Returns a part with callbacks that have asked for the end, or failed; what it announces is in `_announce`."""
    part = CallbacksPart(Config(log_steps=log_steps), None)
    part._announce, part._is_running = mock.Mock(), lambda: True
    part._thread, part._training = mock.Mock(error=error), mock.Mock(stop_reason=stop_reason)
    return part


def one_step(step, *others):
    """Takes a step."""
    return [[step + 1, 1, 1, 0, 0, 0]], 0.5


def test_the_end_is_announced_again_in_a_new_session():
    """If the chief has restored all, it is forgotten. Issue: training went on to --train_steps."""
    part = part_of(stop_reason="enough")
    for _ in range(2):
        step = part.around_step(None, None, one_step)
        step(0, 0.0, None, None), step(1, 0.0, None, None)
    assert part._announce.mock_calls == [mock.call("enough")] * 2


def test_while_no_step_is_taken_the_end_is_announced():
    """The chief may wait for new data. Issue: it was announced only when the chief's loop had ended."""
    for part, expected in ((part_of(stop_reason="enough"), "enough"),
                           (part_of(error=ValueError("wrong")), "a callback failed: ValueError")):
        part._step_secs = clock.now() + 1000  # a step is being taken: the next one will announce it
        part._announce_in_quiet()
        part._step_secs, part._is_running = clock.now() - 1000, lambda: False  # the parameters are being prepared
        part._announce_in_quiet()
        assert not part._announce.called
        part._is_running = lambda: True
        part._announce_in_quiet()
        part._announce.assert_called_once_with(expected)


def test_the_speed_is_that_of_the_steps_of_this_session(monkeypatch):
    """Issue: the first progress of a training that went on at step 2000 counted all 2000 steps, too."""
    part, now_secs = part_of(log_steps=5), 50.0
    monkeypatch.setattr(clock, "now", lambda: now_secs)
    for begin, num_steps in ((2000, 5), (1000, 10)):  # in the second session from an earlier checkpoint
        step = part.around_step(None, None, one_step)
        for number in range(begin, begin + num_steps):
            values = step(number, 0.0, None, None)
            assert values[1] == 0.5
            now_secs += 0.5
    events = [call.args[0] for call in part._thread.put.mock_calls]
    assert [event.step for event in events] == [2005, 1005, 1010]
    assert [event.values["steps_per_sec"] for event in events] == [2.5, 2.5, 2.0]


def test_a_training_that_only_the_data_ends_has_no_last_step():
    """In the progress as at the start, not a number of 16 digits."""
    for train_steps, expected in ((40, 40), (NO_STEP_LIMIT, None)):
        part = CallbacksPart(Config(log_steps=1, train_steps=train_steps), None)
        part._thread, part._training = mock.Mock(error=None), mock.Mock(stop_reason="")
        part.around_step(None, None, one_step)(1, 0.0, None, None)
        [call] = part._thread.put.mock_calls
        assert call.args[0].values["train_steps"] == expected


def test_an_end_that_ps_0_did_not_hear_of_is_announced_again():
    """Before the next step, and once. Issue: the chief ended with 138, or trained on for good in a new session."""
    part, announce, steps = CallbacksPart(Config(), None), mock.Mock(), []
    announce.side_effect = [BlackboardError("ps_unreachable", "no answer"), None]
    part._announce = announce
    part._thread, part._training, part._logs = mock.Mock(), mock.Mock(stop_reason=""), mock.Mock(is_due=lambda _: False)
    step = part.around_step(None, None, lambda *args: steps.append(args) or ([], 0.0))
    step(1, 0.0, None, None)
    assert not announce.called
    part._training.stop_reason = "enough"
    for number in (2, 3, 4):
        step(number, 0.0, None, None)
    assert announce.mock_calls == [mock.call("enough")] * 2
    assert [number for number, *_ in steps] == [1, 2, 3, 4]
