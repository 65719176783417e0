"""What the explorer has found, each with its schedule: it breaks an invariant without the mend, and none with it."""

from __future__ import annotations

import pytest

from ps_train.coordination import heartbeat
from ps_train.coordination.blackboard import Blackboard
from ps_train.storage import journal
from ps_train.tasks import evaluator, ps, worker
from ps_train.training import opening, recovery
from tests.protocol import explorer, planted, waiting
from tests.protocol.explorer import Fault, Schedule, Setting
from tests.protocol.planted import Planted

_RETRY = Planted("the end is announced once", Blackboard, "announce_done", "failed.append((ps, error))", "raise")
_CLAIM_ONCE = Planted("a claim without an answer ends the worker", heartbeat.Heartbeat, "_has_claimed",
                      "return False\n    return True", "raise\n    return True")
[_NO_TERM] = [fault for fault in planted.PLANTED if fault.name == "what a replaced chief prepares is not checked"]
# What was found: which code without its mend, and the schedule.
_FOUND = [
    ("the answer to the announcement of the end is lost", _RETRY, Schedule(
        Setting(), faults=(Fault(371, "lose", 0, 0),))),
    ("a ps is frozen when the end is announced", _RETRY, Schedule(
        Setting(num_ps=2), seed=245, faults=(Fault(483, "freeze", 1, 25),))),
    ("ps 0 is lost when a worker claims its number", _CLAIM_ONCE, Schedule(
        Setting(num_ps=2), seed=179, faults=(Fault(61, "move", 0, 15),))),
    ("the answer to a claim is lost", _CLAIM_ONCE, Schedule(
        Setting(num_ps=2), seed=344, faults=(Fault(63, "lose", 0, 0),))),
    ("a ps freezes while it creates its blackboard", Planted(
        "a ps creates it once", ps.PsTask, "run", "self._answer(lambda: [self._board.create()])",
        "[self._board.create()]"), Schedule(Setting(num_ps=2), seed=209, is_fine=True, faults=(
            Fault(80, "freeze", 5, 6), Fault(174, "kill", 4, 0.2), Fault(430, "cut", 5, 6)))),
    ("a chief is frozen while it restores, and replaced", _NO_TERM, Schedule(
        Setting(num_workers=1), faults=(Fault(49, "replace", 0, 12),))),
    ("the chief is killed when it has announced the end to one ps of two", Planted(
        "a chief does not look whether training is done", opening.Admission, "_ask_as_chief",
        "if view.state == State.DONE:", "if False:"), Schedule(
            Setting(num_ps=2), faults=(Fault(536, "move", 2, 0.2),))),
    ("a worker is stopped before it takes a step, and is awaited as all are at the start", Planted(
        "the explorer expects that it is not", waiting.WaitingWatcher, "_check_stopped",
        'if int(process.name.removeprefix("worker:")) not in seen_before:', "if False:"), Schedule(
            Setting(num_workers=3, train_steps=8, is_sync=True), faults=(Fault(1, "stop", 3, 6),))),
    ("a ps is stopped in the second in which the training ends", Planted(
        "it ends as stopped", ps.PsTask, "run", "if self._answer(self._board.state) != State.DONE:", "if True:"),
     Schedule(explorer.PART_SETTINGS["ranges_sync"], seed=158717, faults=(Fault(1192, "stop", 4, 6),))),
    ("a ps is killed before it has ended, and comes back when all others have", Planted(
        "it reads no journal", journal, "noted_end", "return events[-1]", "return None"), Schedule(
            Setting(num_ps=2), faults=(Fault(552, "kill", 1, 3),))),
    ("a worker that has reported its end is lost before it exits, and comes back on another machine", Planted(
        "it waits for the ps, and asks to be started again", worker.WorkerTask, "_result_after_end",
        'if error.code != "timed_out":', "if True:"), Schedule(
            planted.DATA_OF_CHIEF, faults=(Fault(646, "move", 2, 0.5),))),
    ("the evaluator loses ps 0 after the last step, while the chief is frozen and has not saved", Planted(
        "the first call without an answer ends it", evaluator, "_next_state", "last < State.DONE",
        "last < State.STOPPING"), Schedule(
            explorer.PART_SETTINGS["evaluator"], faults=(Fault(488, "freeze", 2, 12.0), Fault(588, "cut", 4, 25.0)))),
]


@pytest.mark.parametrize(("undone", "schedule"), [pytest.param(*row, id=what) for what, *row in _FOUND])
def test_what_the_explorer_has_found_is_mended(undone, schedule):
    """Each schedule breaks an invariant without the mend. If it no longer does, `planted.find` finds another one."""
    assert explorer.run(schedule).failure == ""
    with planted.planted(undone):
        assert explorer.run(schedule).failure


_ENDS_ALONE = Planted("a chief that gets no answer at once ends alone", recovery.SupervisedTraining, "_end",
                      "if outcome.end is End.SIGNAL or not", "if True or not")
_BUSY_CHIEF = Schedule(planted.DATA_OF_CHIEF, faults=(Fault(277, "block", 0, 6),))


def test_a_chief_whose_server_is_busy_when_its_data_ends_waits_for_the_others():
    """Their steps are in the last checkpoint; without the mend it ends at the step at which its own data ended."""
    assert max(explorer.run(_BUSY_CHIEF).training.checkpoints) == planted.DATA_OF_CHIEF.train_steps
    with planted.planted(_ENDS_ALONE):
        assert max(explorer.run(_BUSY_CHIEF).training.checkpoints) < planted.DATA_OF_CHIEF.train_steps


@pytest.mark.parametrize(("undone", "schedule"), [
    pytest.param(_ENDS_ALONE, _BUSY_CHIEF, id="the chief ends alone"),
    pytest.param(Planted("others may join", recovery.SupervisedTraining, "_close_to_others",
                         'self._board.announce_stopping("the training data has ended" if outcome.end is End.DATA else '
                         "outcome.why)", "pass"),
                 Schedule(planted.DATA_OF_CHIEF, faults=(Fault(399, "move", 2, 3),)), id="it comes late"),
])
def test_a_worker_whose_step_waits_when_training_ends_learns_of_it(undone, schedule):
    """By its heartbeat, when the ps have ended; without that it waits for them, and exits with 138."""
    with planted.planted(undone):
        assert explorer.run(schedule).failure == ""
        with planted.planted(Planted(
                "its heartbeat says nothing", recovery.SupervisedTraining, "run",
                "if self._heartbeat.last.state == State.DONE and not self._cluster.is_chief:", "if False:")):
            assert explorer.run(schedule).failure
