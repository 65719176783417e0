"""What a client and an evaluator are promised; docs/faults.md has a line for each.

    client        each request is answered or refused in time; else a save is a checkpoint of that moment
    evaluator     ends with the training, and in any run after it has evaluated the last checkpoint
"""

from __future__ import annotations

from ps_train.coordination.state import State
from tests.protocol.simulation import World
from tests.protocol.tasks import CLIENT_SECS, Answer, Training

_ASK_SECS = 10.0  # a client's first call, and the end of its wait
_SETTLED_SECS = 20.0  # after a fault
_SAVE_SECS = 6.0  # from the request to the answer, if nothing is wrong
_END_SECS = 15.0  # of an evaluator after the chief: an evaluation, and calls to a ps that has ended


def broken(world: World, training: Training) -> str:
    """Returns what was not kept in a run that has ended, or ""."""
    for answer in training.answers:
        if text := _broken_answer(world, training, answer):
            return f"{text}: {answer.verb} at {answer.begun_secs:.1f} s: {answer.value or answer.problem}"
    return _broken_evaluator(world, training) if training.setting.evaluations else ""


def _is_quiet(world: World, training: Training, before_secs: float, *names: str) -> bool:
    """Returns whether no fault concerned these tasks, the chief and the ps from a while before a time on."""
    tasks = [*names, "worker:0", *(f"ps:{index}" for index in range(training.setting.num_ps))]
    quiet_secs = max(world.quiet_since(*tasks), world.delayed_until_secs)
    has_slow = any(process.rate != 1.0 for process in world.processes.values())
    return not has_slow and (quiet_secs == 0.0 or quiet_secs + _SETTLED_SECS < before_secs)


def _broken_answer(world: World, training: Training, answer: Answer) -> str:
    secs = answer.ended_secs - answer.begun_secs
    if secs > CLIENT_SECS + _ASK_SECS and _is_quiet(world, training, answer.begun_secs, "client:0"):
        return f"a request is not answered within its time, but after {secs:.1f} s"
    is_running = answer.state == State.RUNNING and not training.has_two and not world.replaced
    if not (is_running and _is_quiet(world, training, answer.begun_secs, "client:0")):
        return ""
    if answer.problem:
        return "a request is refused although training runs"
    if answer.verb == "save" and answer.value.startswith("saved "):
        step = int(answer.value.rpartition("-")[2])
        if step < answer.step or step not in training.checkpoints:
            return f"a request for a checkpoint is answered with an older one, of step {step} at {answer.step}"
        if secs > _SAVE_SECS:
            return f"a checkpoint comes late, after {secs:.1f} s"
    return ""


def _broken_evaluator(world: World, training: Training) -> str:
    evaluator, chief = world.processes["evaluator:0"], world.processes["worker:0"]
    if chief.exit_code != 0 or training.has_two or world.replaced:
        return ""
    if evaluator.exit_code == 0 and training.evaluated[-1:] != [max(training.checkpoints)]:
        return f"the evaluator has not evaluated the last checkpoint: {training.evaluated}"
    late_secs = evaluator.ended_secs - chief.ended_secs
    if (evaluator.exit_code != 0 or late_secs > _END_SECS) and _is_quiet(
            world, training, evaluator.started_secs, "evaluator:0"):
        return (f"the evaluator does not end with the training: {evaluator.exit_code} {late_secs:.1f} s after the "
                f"chief: {evaluator.error}")
    return ""
