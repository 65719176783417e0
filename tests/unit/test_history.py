"""The checker of histories finds what is planted in a good one, and nothing else."""

from __future__ import annotations

import pytest

from tests.history import (
    GENERATION,
    RESTORED,
    SAVED,
    Board,
    Event,
    History,
    Line,
    Promise,
    Saved,
    Taken,
    describe,
    find_violations,
)
from tests.history_files import Observer, parse_line, parse_worker

_TABLES = ("fixed", "dynamic")
_FIRST, _LAST = "model.ckpt-2", "model.ckpt-2.delta-4"
_BOUNDED = Promise(bound=3, num_workers=2)


def _board(step, generation="g1", counts=(0, 0), clock=0.0, heartbeats=(0.0, 0.0), claims=(7, 8)):
    return Board(step, generation, clock, claims, claims, (0, 0), heartbeats, counts)


def _update(numbers, board, times=1):
    """Returns the lines of ps 0 and of ps 1 of an update."""
    counts = dict.fromkeys(numbers, times)
    return [[Line(table, counts, of_ps) for table in _TABLES] for of_ps in (board, None)]


def _lines(updates):
    return [[line for update in updates for line in update[ps]] for ps in range(2)]


def _saved(numbers, share=1.0):
    rows = {table: {key: 1.0 for number in numbers for key in (2 * number, 2 * number + 1)} for table in _TABLES}
    return Saved(rows, [dict.fromkeys(numbers, share), dict.fromkeys(numbers, share)])


def _good():
    """Two workers; a ps dies after the checkpoint at step 2, and the updates 2 and 3 with it; 4 was never applied."""
    steps = {0: 1, 1: 2, 2: 3, 3: 4, 4: None, 5: 3, 6: 4}
    taken = {number: Taken(number % 2, f"session {number % 2} {number > 4}", step) for number, step in steps.items()}
    updates = [_update([number], _board(number if number < 4 else number - 3, "g2" if number > 4 else "g1",
                                        (number // 2, number // 2)))
               for number in (0, 1, 2, 3, 5, 6)]
    return History(
        taken, _lines(updates),
        [Event(RESTORED, ""), Event(GENERATION, "g1"), Event(SAVED, _FIRST), Event(RESTORED, _FIRST),
         Event(GENERATION, "g2"), Event(SAVED, _LAST)],
        {_FIRST: _saved([0, 1]), _LAST: _saved([0, 1, 5, 6])})


def _with_lines(history, *updates):
    return history._replace(lines=[of_ps + more for of_ps, more in zip(history.lines, _lines(updates))])


def _with_saved(history, **contents):
    names = {"first": _FIRST, "last": _LAST}
    return history._replace(saved={**history.saved, **{names[name]: saved for name, saved in contents.items()}})


def test_a_history_with_a_loss_that_the_docs_allow_is_good():
    """What was applied after the restored checkpoint may be lost; what a dead worker had begun, too."""
    assert find_violations(_good(), Promise()) == []
    assert describe(_good(), Promise()) == (
        "7 mini-batches begun, 6 of runs that succeeded, 4 in the last checkpoint, 2 saves, 2 generations, 0 applied "
        "on some ps only")


def _without_row(saved, table, key):
    return saved._replace(rows={**saved.rows, table: {other: count for other, count in saved.rows[table].items()
                                                      if other != key}})


_PLANTED = {
    "applied twice, at two times": (
        lambda good: _with_lines(good, _update([6], _board(4, "g2"))), "has updated fixed 2 times by 6"),
    "applied twice, at once": (
        lambda good: _with_lines(good, _update([9], _board(4, "g2"), times=2))._replace(
            taken={**good.taken, 9: Taken(0, "session", None)}), "has 9 2 times in fixed"),
    "saved twice": (
        lambda good: _with_saved(good, last=good.saved[_LAST]._replace(
            rows={**good.saved[_LAST].rows, "dynamic": {**good.saved[_LAST].rows["dynamic"], 12: 2.0}})),
        "has row 12 of dynamic 2 times"),
    "never applied": (lambda good: _with_saved(good, last=_saved([0, 1, 4, 5, 6])), "which no ps has updated"),
    "half applied": (
        lambda good: good._replace(lines=[good.lines[0], good.lines[1][:-2]]), "and ps 1 has not applied it"),
    "lost before a save": (lambda good: _with_saved(good, last=_saved([0, 1, 6])), "has lost 5, whose run ended at"),
    "lost by one row": (
        lambda good: _with_saved(good, last=_without_row(good.saved[_LAST], "dynamic", 11)), "has lost 5, whose run"),
    "lost with a restore": (lambda good: _with_saved(good, last=_saved([0, 5, 6])), "has lost row 2 of fixed"),
    "rows behind": (
        lambda good: _with_saved(good, first=_without_row(good.saved[_FIRST], "fixed", 3)),
        "has 1 in a variable, and not in fixed"),
    "a share where it is whole": (
        lambda good: _with_saved(good, last=_saved([0, 1, 5, 6], 0.5)), "has 0 0.5 times in variable 0"),
    "an older checkpoint": (
        lambda good: good._replace(events=[*good.events, Event(RESTORED, _FIRST)]),
        f"{_FIRST} restored, and not {_LAST}"),
    "new parameters": (
        lambda good: good._replace(events=[*good.events, Event(RESTORED, "")]), "new parameters restored, and not"),
}


@pytest.mark.parametrize("name", _PLANTED)
def test_what_is_planted_is_found(name):
    """Each promise, broken once."""
    plant, text = _PLANTED[name]
    violations = find_violations(plant(_good()), Promise())
    assert any(text in violation for violation in violations), violations


def _bounded(counts, **board):
    """Returns a history of worker 0, whose count is followed by that of worker 1, as ps 0 knew them."""
    updates = [_update([number], _board(number, counts=pair, **board)) for number, pair in enumerate(counts)]
    taken = {number: Taken(0, "session", number + 1) for number in range(len(counts))}
    return History(taken, _lines(updates), [Event(RESTORED, ""), Event(GENERATION, "g1"), Event(SAVED, "c-9")],
                   {"c-9": _saved(range(len(counts)))})


def test_the_lead_over_a_worker_that_trains_is_bounded():
    """One step more than the bound is found; a silent worker and one that has come back behind do not count."""
    within = _bounded([(4, 4), (5, 4), (6, 4)])
    assert find_violations(within, _BOUNDED) == []
    assert describe(within, _BOUNDED).endswith("lead 3 of 3")
    beyond = [(4, 4), (5, 4), (6, 4), (7, 4)]
    assert find_violations(_bounded(beyond), _BOUNDED) == ["worker 0 is 4 steps ahead of worker 1; the bound is 3"]
    assert find_violations(_bounded(beyond, clock=5.0, heartbeats=(5.0, 0.0)), _BOUNDED) == []
    assert find_violations(_bounded([(4, 4), (5, 4), (6, 1)]), _BOUNDED) == []


def test_an_update_counts_once_for_the_bound():
    """A count that does not rise is found."""
    assert find_violations(_bounded([(4, 4), (4, 4)]), _BOUNDED) == ["worker 0 has a count of 4 at 1, after 4"]


def _synchronous(num_dropped, share=0.5):
    """Returns a history of two updates by two workers, of which the gradient 4 came too late."""
    taken = {number: Taken(number % 2, f"session {number % 2}", number // 2 + 1) for number in range(5)}
    updates = [_update([0, 1], _board(0)), _update([2, 3], _board(1))]
    return History(taken, _lines(updates), [Event(RESTORED, ""), Event(GENERATION, "g1"), Event(SAVED, "c-9")],
                   {"c-9": _saved(range(4), share)}, num_dropped)


def test_in_sync_a_dropped_gradient_is_counted_and_an_update_is_shared():
    """A gradient too late is in no update, and the chief says so; a share is 1 by the number of workers."""
    promise = Promise(num_workers=2, has_shares=True, may_drop=True)
    assert find_violations(_synchronous(1), promise) == []
    assert find_violations(_synchronous(0), promise) == ["1 gradients were dropped, and 0 are counted: [4]"]
    assert any("0.7 times" in line for line in find_violations(_synchronous(1, share=0.7), promise))
    undisturbed = promise._replace(is_undisturbed=True)
    assert find_violations(_synchronous(1), undisturbed) == ["4 is not in the last checkpoint"]
    assert any("1 times in variable" in line for line in find_violations(_synchronous(1, share=1.0), undisturbed))


def test_a_late_gradient_of_sync_may_be_in_time_for_the_variables_only():
    """Of one that each ps has applied to its rows, a checkpoint without a row is found."""
    promise = Promise(num_workers=2, has_shares=True, may_drop=True)
    late = _saved(range(4))._replace(dense=_saved(range(5), 0.5).dense)
    good = _synchronous(1)._replace(saved={"c-9": late})
    assert find_violations(good, promise) == []
    behind = find_violations(good._replace(saved={"c-9": _without_row(late, "fixed", 6)}), promise)
    assert "c-9 has 3 in a variable, and not in fixed" in behind


def test_async_rows_have_each_gradient_of_a_run_that_succeeded():
    """Also one that the variables have dropped; rows of what the variables have are in the same checkpoint."""
    promise = Promise(num_workers=2, has_shares=True, may_drop=True, has_async_rows=True)
    violations = find_violations(_synchronous(1), promise)
    assert {f"the run with 4 of worker 0 has succeeded, and ps {ps} has not applied it" for ps in range(2)} == {
        *violations}
    behind = _synchronous(1)._replace(saved={"c-9": _without_row(_saved(range(4), 0.5), "dynamic", 6)})
    assert "c-9 has 3 in a variable, and not in dynamic" in find_violations(behind, promise)


def test_async_rows_of_a_dropped_gradient_may_come_during_the_save_of_their_step():
    """A run that has ended at an earlier step is in it."""
    promise = Promise(num_workers=2, has_shares=True, may_drop=True, has_async_rows=True)
    history = _synchronous(1)._replace(saved={"c-9": _saved(range(3), 0.5)})
    lost = [history._replace(taken={**history.taken, 3: history.taken[3]._replace(step=step)}) for step in (9, 8)]
    texts = [[text for text in find_violations(each, promise) if "has lost" in text] for each in lost]
    assert texts == [[], ["c-9 has lost 3, whose run ended at step 8"]]


def test_without_a_fault_all_ps_apply_the_same_together():
    """Of an update that one ps applies in two parts, both parts are found."""
    apart = _synchronous(1)
    parts = [_update([number], None)[1] for number in (2, 3)]
    apart = apart._replace(lines=[apart.lines[0], [*apart.lines[1][:2], *parts[0], *parts[1]]])
    promise = Promise(num_workers=2, has_shares=True, may_drop=True, is_undisturbed=True)
    assert {"ps 0 and ps 1 differ in the update with 2", "ps 0 and ps 1 differ in the update with 3"} <= {
        *find_violations(apart, promise)}


def test_lines_of_a_ps_and_of_a_worker_are_read():
    """A number is what its row has in the mean; a run counts from its first number to its end."""
    line = parse_line("fixed|1 12 2 26|40|5 6 0 0|3.25|7 8|7 0|0 1|3.0 0.5|4 5")
    assert line == Line("fixed", {12: 1, 13: 2}, Board(
        40, "5 6 0 0", 3.25, [7, 8], [7, 0], [0, 1], [3.0, 0.5], [4, 5]))
    assert parse_line("dynamic|1 12") == Line("dynamic", {12: 1}, None)
    lines = ["session", "run", "begin 3", "begin 4", "done 9", "run", "begin 5", "session", "run", "begin 6", "run"]
    assert list(parse_worker("w", lines)) == [(3, "w 1", 9), (4, "w 1", 9), (5, "w 1", None), (6, "w 2", None)]


def test_the_chiefs_lines_and_new_parameters_are_events(tmp_path):
    """In the order in which they were seen; a checkpoint is kept when the chief removes it."""
    observer = Observer(tmp_path / "history", num_ps=1)
    checkpoint = tmp_path / "train" / "model.ckpt-20"
    checkpoint.parent.mkdir()
    checkpoint.with_name("model.ckpt-20.index").write_text("")
    observer.look(f"12:00 INFO starting from new parameters\n12:00 INFO saved {checkpoint}\n")
    checkpoint.with_name("model.ckpt-20.index").unlink()
    (tmp_path / "history" / "ps-0").write_text("fixed|1 12|40|5 6|3.25|7|7|0|3.0|4\nfixed|1 13|41|")
    observer.look(f"a ps has lost its parameters at about step 3: restoring all ps from {checkpoint}.delta-30\n")
    assert observer._events == [Event(RESTORED, ""), Event(SAVED, "model.ckpt-20"),
                                Event(RESTORED, "model.ckpt-20.delta-30"), Event(GENERATION, "5 6")]
    assert (tmp_path / "history" / "checkpoints" / "model.ckpt-20.index").exists()
