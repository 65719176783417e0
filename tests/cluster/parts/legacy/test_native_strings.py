"""What a script of Python 2 gets from TensorFlow: strings that are bytes and take text."""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.parts.legacy import native_strings
from ps_train.parts.legacy.classic import sessions
from ps_train.parts.legacy.native_strings import NativeString
from tests.tensorflow_mode import tf


@pytest.fixture
def session(monkeypatch):
    """A session of a script of Python 2, whose graph is the default one."""
    for owner in (sessions.Session, sessions.InteractiveSession):
        monkeypatch.setattr(owner, "run", owner.run)
    monkeypatch.setattr(tf, "py_func", tf.py_func)
    native_strings.install()
    with tf.Graph().as_default(), sessions.Session() as session:
        yield session


def test_a_string_takes_text_where_bytes_take_bytes():
    """Its parts are such strings, too, so a line can be taken apart, and its parts compared and looked up."""
    line = NativeString(b"1\tage:7")
    label, feature = line.split("\t")
    name, number = feature.split(":")
    assert (int(label), name, float(number), {"age": 2}[name]) == (1, "age", 7.0, 2)
    assert line.startswith(("2", "1")) and "age" in line and line.replace("\t", b" ") == "1 age:7"
    assert line[0] == "1" and line[2:5] == "age" and list(NativeString(b"ab")) == ["a", "b"]
    assert NativeString(b",").join(["a", b"b"]) == "a,b" and sorted([NativeString(b"b"), "a"]) == ["a", "b"]


def test_a_string_becomes_text_beside_text():
    """As bytes do in Python 2."""
    name, template = NativeString("ü".encode()), "%s!"
    assert (f"{name}!", template % name, str(name), repr(NativeString(b"a"))) == ("ü!", "ü!", "ü", "'a'")
    assert "x" + name + "y" == "xüy".encode() and name % () == name and NativeString(b"%d,{}").format(1) == "%d,1"
    assert NativeString(b"%d,%s") % (1, "a") == "1,a" and NativeString(b"a") * 2 == "aa"
    assert NativeString(b"a").encode("utf-8").decode("utf-8") == "a"


def test_a_string_is_bytes():
    """So protobuf, files and numpy take it, and code that knows of bytes goes on."""
    text = NativeString(b"a b")
    assert isinstance(text, bytes) and text == b"a b" and text.split(b" ") == [b"a", b"b"] and hash(text) == hash("a b")
    assert np.array([text, text]).tolist() == [b"a b", b"a b"] and np.array(text, object).shape == ()
    summary = tf.Summary(value=[tf.Summary.Value(tag="loss", simple_value=1.0)]).SerializeToString()
    assert tf.Summary.FromString(NativeString(summary)).value[0].tag == "loss"


def test_sessions_return_such_strings(session):
    """In whatever was asked for; numbers stay as they are."""
    words, number = tf.constant(["a,b", "c,d"]), tf.constant(3)
    got = session.run({"words": words, "others": [number, words[0]]})
    assert [word.split(",") for word in got["words"]] == [["a", "b"], ["c", "d"]]
    assert got["others"][0] == 3 and got["others"][1].split(",")[1] == "b"
    fed = tf.placeholder(tf.string, [None])
    assert session.run(fed, {fed: got["words"]}).tolist() == [b"a,b", b"c,d"]


def test_functions_of_a_graph_get_such_strings(session):
    """And what they return is a string of the graph."""
    second = tf.py_func(lambda line: line.split(",")[1], [tf.constant("a,b")], tf.string)
    lengths = tf.py_func(lambda lines: np.array([len(line.split(",")) for line in lines], np.int32),
                         [tf.constant(["a", "b,c"])], tf.int32)
    assert session.run(second) == "b" and session.run(lengths).tolist() == [1, 2]
