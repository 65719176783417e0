"""StopIteration that leaves a generator."""

from __future__ import annotations

import ast
import contextlib

import pytest

from ps_train.parts.legacy import ended_generators

TEXT = """\
import contextlib

def pairs(lines):
    '''Two at a time.'''
    while True:
        yield next(lines), next(lines)

class Reader:
    def __init__(self, files):
        self.files = files

    def load(self):
        if not self.files:
            raise StopIteration
        return self.files.pop()

    def __iter__(self):
        def inner():
            return 5
        while True:
            yield self.load() + inner()

def upper(source):
    yield from (line.upper() for line in source)
    raise StopIteration()

@contextlib.contextmanager
def block():
    yield

def ended(source):
    yield next(source)
    raise StopIteration

def plain():
    raise StopIteration

def fails():
    yield 1
    for number in (2, 3):
        yield number
    raise KeyError("x")

from contextlib import contextmanager as cm

@cm
def retried():
    for _ in range(1):
        yield

def called():
    while True:
        yield
        return

called = contextlib.contextmanager(called)

def unknown(is_first=True):
    if is_first:
        yield 1
    else:
        yield 2
"""


@pytest.fixture
def changed():
    tree = ast.parse(TEXT)
    assert ended_generators.change_generators(tree)
    scope = {}
    exec(compile(tree, "script.py", "exec"), scope)
    return scope


def test_a_generator_ends_where_nothing_is_left(changed):
    """By `next`, by a method that it calls, or by its own statement."""
    assert list(changed["pairs"](iter("abcde"))) == [("a", "b"), ("c", "d")]
    assert changed["pairs"].__doc__ == "Two at a time."
    assert list(changed["Reader"]([1, 2])) == [7, 6] and list(changed["upper"](["a"])) == ["A"]
    assert list(changed["ended"](iter("ab"))) == ["a"]


def test_everything_else_is_raised(changed):
    """Other errors of a generator, at their line, what a function raises, and what leaves the block of a `with`."""
    with pytest.raises(KeyError) as error:
        list(changed["fails"]())
    assert error.traceback[-1].lineno == 41
    with pytest.raises(StopIteration):
        changed["plain"]()
    managers = [changed[name] for name in ("block", "retried", "called")]
    for manager in (*managers, contextlib.contextmanager(changed["unknown"])):
        with pytest.raises(StopIteration), manager():
            next(iter(()))


def test_code_without_generators_stays():
    """A lambda or an asynchronous function is none."""
    text = "def f(): return lambda: (yield)\nasync def g(): yield 1\nx = (y for y in ())\n"
    assert not ended_generators.change_generators(ast.parse(text))
