"""How the chief follows a callback that ends the training, with a ps 0 that answers as a test says."""

from __future__ import annotations

from unittest import mock

from ps_train.config.task import Config
from ps_train.errors import BlackboardError
from ps_train.parts.callbacks.part import CallbacksPart


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
