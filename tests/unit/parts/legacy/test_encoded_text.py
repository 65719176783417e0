"""What `encode` returns in code of Python 2."""

from __future__ import annotations

import ast
import base64
import hashlib
import pickle
import struct
import urllib.parse

import numpy as np
import pytest
import tensorflow as tf

from ps_train.parts.legacy import encoded_text


def value_of(expression):
    """Returns what an expression of Python 2 is when it is changed."""
    encoded_text.install_encoder()
    tree = encoded_text.change_encode(ast.parse(f"value = {expression}\n"))
    scope = {"word": "caf\u00e9", "base64": base64, "hashlib": hashlib, "struct": struct,
             "quote": urllib.parse.quote}
    exec(compile(tree, "script.py", "exec"), scope)
    return scope["value"]


@pytest.mark.parametrize(("expression", "expected"), [
    ("{word.encode('utf-8'): 1}[word]", 1), ("{word: 1}[word.encode('utf-8')]", 1), ("word in [word.encode()]", True),
    ("{'a'.encode(): 1}[b'a']", 1), ("'x' + word.encode('latin-1') + 'y'", "xcaf\u00e9y"),
    ("word.encode() != word", False),
    ("'%s|{}'.format(word.encode()) % word.encode()", "caf\u00e9|caf\u00e9"), ("'f' in word.encode()", True),
    ("word.encode('ascii', 'ignore').split('a')", ["c", "f"]), ("'A b'.encode().lower().split()", ["a", "b"]),
    ("'ab'.encode('hex')", "6162"), ("b'ab'.encode('utf-8')", b"ab")])
def test_it_is_the_text(expression, expected):
    """In dictionaries and in other text."""
    assert value_of(expression) == expected


@pytest.mark.parametrize(("expression", "expected"), [
    ("len(word.encode('utf-8'))", 5), ("hashlib.md5('a'.encode()).hexdigest()", hashlib.md5(b"a").hexdigest()),
    ("struct.pack('2s', 'ab'.encode())", b"ab"), ("word.encode().decode('utf-8')", "caf\u00e9"),
    ("base64.b64encode(u'A'.encode('utf-8').lower())", b"YQ=="), ("' '.encode().join([b'a', b'b'])", b"a b"),
    ("b'-'.join(' '.encode().join(['a'.encode(), 'b']).split())", b"a-b"),
    ("word.encode().partition('f')[2].decode('utf-8')", "\u00e9"),
    ("word.encode('utf-16').decode('utf-16')", "caf\u00e9"),
    ("'\\n'.encode('unicode_escape') + b'x'", b"\\nx"), ("word.encode('unicode_escape')", b"caf\\xe9"),
    ("'a'.encode('utf-8-sig')", b"\xef\xbb\xbfa"), ("'\\udc80'.encode('utf-8', 'surrogateescape')", b"\x80"),
    ("'ab'.encode().startswith(('b', 'a'.encode()))", True), ("'\\xff'.encode('latin-1').upper()", "\u0178"),
    ("b'x' + 'y'.encode()", b"xy"), ("'y'.encode() + b'x'", b"yx"), ("'a,b'.encode().split(b',')", [b"a", b"b"])])
def test_it_is_bytes(expression, expected):
    """For what takes bytes only."""
    assert value_of(expression) == expected


@pytest.mark.parametrize(("expression", "expected"), [
    ("'ab/'.encode()[0] == 'a' and 'ab/'.encode()[-1] == '/'", True), ("'abc'.encode()[:2] + 'x'", "abx"),
    ("[ord(letter) for letter in 'ab'.encode()]", [97, 98]), ("list('ab'.encode())", ["a", "b"]),
    ("[place for place, letter in enumerate(word.encode()) if letter == 'f']", [2]),
    ("word.encode()[3] + word.encode()[4:]", b"\xc3\xa9"), ("word.encode('latin-1')[3]", "\u00e9"),
    ("sorted(['c', word.encode(), 'b'.encode()])", ["b", "c", "caf\u00e9"]), ("word.encode() >= word", True),
    ("'b'.encode() < b'c'", True), ("max('a', 'b'.encode())", "b"), ("'12'.encode().zfill(4) + ''", "0012"),
    ("'a'.encode().ljust(3, '.') == 'a..'", True), ("'a'.encode().ljust(3, b'.')", b"a.."),
    ("quote(word.encode())", "caf%C3%A9"), ("'abc'.encode()[::-1] == 'cba'", True)])
def test_its_parts_and_its_order_are_those_of_text(expression, expected):
    """Issue: an element was a number, which equals no letter, and sorting it among other text failed.

    For Python's own modules an element is a number.
    """
    assert value_of(expression) == expected


@pytest.mark.parametrize("word", ["12", "\u00e9"])
def test_arrays_and_tensors_have_the_bytes(word):
    """Digits stay text, and no text is refused for what ASCII does not have."""
    encoded_text.install_encoder()
    encoded = encoded_text.encoder_of(word)("utf-8")
    array = np.array([encoded, encoded])
    assert array.dtype == "S2" and array.tolist() == [word.encode()] * 2
    assert np.array(encoded).item() == word.encode()
    with tf.Graph().as_default():  # other tests leave eager execution on or off
        tensors = [tf.constant(encoded), tf.constant([encoded, b"a"])]
    assert [tensor.dtype for tensor in tensors] == [tf.string] * 2
    values = [tf.get_static_value(tensor) for tensor in tensors]
    assert values[0] == word.encode() and values[1].tolist() == [word.encode(), b"a"]


def test_other_objects_encode_in_their_own_way():
    """A tokenizer, which is the owner of the method; and a pickle has the text."""
    encoded_text.install_encoder()

    class Tokenizer:
        def encode(self, text):
            return [len(text)]

    assert encoded_text.encoder_of(Tokenizer())("abc") == [3]
    copy = pickle.loads(pickle.dumps(encoded_text.encoder_of("a")("utf-8"), 2))
    assert type(copy) is str and copy == "a"
