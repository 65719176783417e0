"""Which ranges a worker has trained on, from the notes of its steps."""

from __future__ import annotations

from ps_train.parts.sharding.feeder import Accounts
from ps_train.parts.sharding.local_ranges import VERDICT
from ps_train.parts.sharding.range_queue import Assignment

FIRST, SECOND, THIRD = (Assignment(number, 0) for number in (7, 3, 9))


def holding(*assignments, has_verdicts=False):
    """Returns accounts with these ranges in hand."""
    accounts = Accounts(has_verdicts=has_verdicts)
    for one in assignments:
        accounts.assign(one)
    return accounts


def test_a_range_is_done_when_a_step_has_succeeded_since_its_last_batch_was_taken():
    """The note comes before the end of its session run, which may still fail."""
    accounts = holding(FIRST, SECOND)
    accounts.note([(7, False), (7, True)], num_steps=4)
    assert accounts.done(4) == []
    assert accounts.done(5) == [FIRST]
    accounts.confirm([FIRST])
    assert accounts.held == [SECOND] and accounts.done(99) == []


def test_a_range_without_its_last_batch_is_not_done():
    """Some of its batches are still in the pipeline."""
    accounts = holding(FIRST)
    accounts.note([(7, False)] * 3, num_steps=4)
    assert accounts.done(99) == [] == accounts.done(None)


def test_a_batch_of_a_later_range_shows_that_those_before_it_were_read():
    """One of malformed lines only has no batch that says so."""
    accounts = holding(FIRST, SECOND, THIRD)
    accounts.note([(7, True), (9, False)], num_steps=4)
    assert accounts.done(5) == [FIRST, SECOND]


def test_when_no_run_is_under_way_all_that_was_noted_is_done():
    """At the end of the loop."""
    accounts = holding(FIRST, SECOND)
    accounts.note([(7, True)], num_steps=4)
    assert accounts.done(None) == [FIRST]
    accounts.end()
    assert accounts.done(None) == [FIRST, SECOND]


def test_a_later_note_does_not_put_a_range_off():
    """It was done with the first one."""
    accounts = holding(FIRST, SECOND)
    accounts.note([(7, True)], num_steps=4)
    accounts.note([(3, False)], num_steps=6)
    assert accounts.done(5) == [FIRST]


def test_notes_on_a_range_that_is_not_in_hand_are_ignored():
    """The queue has started again since."""
    accounts = holding(FIRST)
    accounts.note([(4, True)], num_steps=4)
    assert accounts.done(99) == [] and accounts.held == [FIRST]


def test_the_same_range_counts_for_its_epoch():
    """It may be assigned for the next one at once."""
    accounts = holding(FIRST)
    accounts.note([(7, True)], num_steps=4)
    accounts.confirm(accounts.done(5))
    again = FIRST._replace(epoch=1)
    accounts.assign(again)
    assert accounts.held == [again] and accounts.done(99) == []


def test_with_verdicts_a_range_is_done_after_that_on_its_last_batch():
    """However many steps were counted."""
    accounts = holding(FIRST, SECOND, has_verdicts=True)
    accounts.note([(7, False), (VERDICT, False), (7, True)], num_steps=4)
    assert accounts.done(99) == [] == accounts.done(None)
    accounts.note([(VERDICT, False), (3, False)], num_steps=5)
    assert accounts.done(99) == [FIRST] and accounts.take_lost() == []


def test_a_range_is_lost_when_it_was_read_to_its_end():
    """One batch of it is enough; the ranges before and after it count."""
    accounts = holding(FIRST, SECOND, THIRD, has_verdicts=True)
    accounts.note([(7, True), (VERDICT, False), (3, False), (VERDICT, True)], num_steps=4)
    assert accounts.take_lost() == []
    accounts.note([(3, True), (VERDICT, False), (9, True), (VERDICT, False)], num_steps=6)
    assert accounts.done(99) == [FIRST, THIRD]
    assert accounts.take_lost() == [SECOND] and accounts.held == [FIRST, THIRD]


def test_a_verdict_on_several_batches_is_on_all_their_ranges():
    """Those of a round of local steps."""
    accounts = holding(FIRST, SECOND, has_verdicts=True)
    accounts.note([(7, True), (3, True), (VERDICT, True)], num_steps=4)
    assert accounts.done(99) == [] and accounts.take_lost() == [FIRST, SECOND]


def test_at_the_end_of_the_data_what_is_lost_stays_lost():
    """A batch without a verdict is of a round that the end has cut short."""
    accounts = holding(FIRST, SECOND, THIRD, has_verdicts=True)
    accounts.note([(7, True), (VERDICT, True), (3, True)], num_steps=4)
    accounts.end()
    assert accounts.done(None) == [SECOND, THIRD] and accounts.take_lost() == [FIRST]
