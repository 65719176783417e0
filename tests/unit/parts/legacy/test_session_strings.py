"""Text that sessions return to code of Python 2."""

from __future__ import annotations

import functools
import hashlib
import pickle

import numpy as np
import pytest

from ps_train.parts.legacy import session_strings
from ps_train.parts.legacy.session_strings import Text, text_of_bytes
from tests.tensorflow_mode import tf


@pytest.mark.parametrize("text", ["1\t3:0.5\t7:1", "", "grün", "a\r\nb\f", "日本"])
def test_text_is_text(text):
    """It splits, compares with what it was, and can be decoded and stored as before."""
    found = text_of_bytes(text.encode())
    assert type(found) is Text and found == text and found == text.encode()
    assert found.split("\t") == text.split("\t") and found.decode("utf-8") == text
    assert found in {text: 1} and found != text + "x" and found != (text + "x").encode() and found != 5
    assert pickle.loads(pickle.dumps(found)) == text


def test_text_is_decoded_anew_in_the_encoding_that_it_was_in():
    """A script that knows its file is Latin-1 whose bytes happen to be UTF-8."""
    assert text_of_bytes("ü".encode()).decode("latin-1") == "Ã¼"


@pytest.mark.parametrize("value", [b"\xff\xd8\xff", b"a\0b", b"\n\x05count", "\x85".encode(), 3, None, np.float32(1)])
def test_anything_else_stays(value):
    """Images, serialized messages and numbers."""
    assert text_of_bytes(value) is value


@pytest.mark.parametrize("separator", ["\x01", "\x02", "\x03", "\x1c", "\x1d", "\x1e", "\x1f"])
def test_fields_that_control_characters_separate_can_be_split(separator):
    """As in tables of Hive. It may be a message that looks so by chance, so it stays bytes as well."""
    found = text_of_bytes(f"grün{separator}1.5".encode())
    assert isinstance(found, bytes) and found == f"grün{separator}1.5" and found == f"grün{separator}1.5".encode()
    word, number = found.split(separator)
    assert word == "grün" and float(number) == 1.5 and [*map(str, found.split(separator))] == ["grün", "1.5"]
    assert found.decode("utf-8").split(separator)[0] == "grün"


def test_arrays_of_strings_become_arrays_of_text():
    """Of any shape, with the elements that are no text as they were; other arrays stay."""
    found = text_of_bytes(np.array([[b"1:2", b"\xff"], [b"", b"x"]], object))
    assert found.dtype == object and found.tolist() == [["1:2", b"\xff"], ["", "x"]]
    assert [type(item) for item in found.flat] == [Text, bytes, Text, Text]
    scalar = text_of_bytes(np.array(b"a", object))
    assert scalar.shape == () and scalar.item() == "a"
    numbers = np.ones(3)
    assert text_of_bytes(numbers) is numbers


@pytest.fixture
def session(monkeypatch):
    """A session whose class returns text, in a graph of its own."""
    monkeypatch.setattr(session_strings.BaseSession, "_do_run", session_strings.BaseSession._do_run)
    monkeypatch.setattr(session_strings.script_ops, "_internal_py_func", session_strings.script_ops._internal_py_func)
    for name in ("md5", "sha1", "sha224", "sha256", "sha384", "sha512"):
        monkeypatch.setattr(hashlib, name, getattr(hashlib, name))
    session_strings.let_sessions_return_text()
    with tf.Graph().as_default(), tf.Session() as opened:
        yield opened


def test_sessions_return_text_in_all_structures_and_take_it_back(session):
    """Lines and their keys in a dict, a sparse tensor's values, and a feed of both kinds."""
    line = tf.placeholder(tf.string, [])
    words = tf.string_split([line], "\t")
    fetches = {"line": tf.identity(line), "words": words, "size": tf.size(words.values)}
    found = session.run(fetches, {line: Text("1\t2:x")})
    assert found["line"].split("\t") == ["1", "2:x"] == list(found["words"].values) and found["size"] == 2
    assert session.run(tf.strings.length(tf.convert_to_tensor(np.array([found["line"]])))) == [5]


def test_what_other_programs_read_stays_bytes(session, tmp_path):
    """Summaries and images, even if they look like text; base64 is text."""
    tag = "a" * 40  # a length below 32 is a control character, which no text has
    summary, other = session.run([tf.summary.scalar(tag, 0.5), tf.summary.text("t", tf.constant(["x"]))])
    assert type(summary) is type(other) is bytes
    with tf.summary.FileWriter(str(tmp_path)) as writer:
        writer.add_summary(summary, 1)
    assert type(session.run(tf.io.encode_base64("abc"))) is Text
    assert type(session.run(tf.io.serialize_tensor(tf.constant(1)))) is bytes


def test_functions_of_python_get_text_and_may_return_it(session):
    """The name of a method, a list of words, and an image, which stays bytes; a partial has no name."""
    def call(name, words, image, numbers):
        return getattr(words[0], name)() + "é", len(image) if isinstance(image, bytes) else -1, numbers.sum()
    results = tf.py_func(call, ["upper", tf.constant(["ab", "c"]), tf.constant(b"\x89PNG\0"), tf.ones([2])],
                         [tf.string, tf.int64, tf.float32])
    text, size, total = session.run(results)
    assert (text, size, total) == ("ABé", 5, 2.0)
    words = tf.py_func(lambda line: [line.split("\x1d") + [""]], [tf.constant("ab\x1dc")], tf.string)
    assert session.run(tf.strings.join([words, "!"])).tolist() == ["ab!", "c!", "!"]
    hashed = tf.py_func(lambda name: hashlib.md5(name).hexdigest(), [tf.constant("ab")], tf.string)
    assert session.run(hashed) == hashlib.md5(b"ab").hexdigest()
    assert session.run(tf.py_func(functools.partial(lambda n, x: x * n, 2), [tf.constant("ab")], tf.string)) == "abab"
