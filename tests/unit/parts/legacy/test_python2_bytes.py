"""Functions of Python 2 code take and give what is text and bytes at once."""

import collections
import csv
import pickle
import socket
import struct
import sys
import types

import numpy as np
import pytest

from ps_train.parts.legacy import conversion
from ps_train.parts.legacy.python2_bytes import Received, given, method_of
from ps_train.runtime import tracebacks

_EXCHANGE = """
import cPickle as pickle

def receive(size, connection):
    data = ''
    while len(data) < size:
        temp = connection.recv(size - len(data))
        data += temp
    return data

def send(value, connection):
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    connection.sendall(pickle.dumps(len(data), pickle.HIGHEST_PROTOCOL))
    connection.sendall(data)

def exchange(value, here, there):
    send(value, here)
    return pickle.loads(receive(pickle.loads(receive(8, there)), there))

def talk(here, there):
    here.send('PUT ' + 'caf\\xc3\\xa9' + ' 1\\n')
    line = there.recv(100)
    return line.split(), line == '', line.startswith('PUT'), '<%s>' % line.strip()

import base64, os, struct, subprocess, zlib

def version():
    shown = subprocess.check_output(['echo', 'abc 1']).strip()
    piped = subprocess.Popen(['echo', 'x y'], stdout=subprocess.PIPE).communicate()[0]
    return '-' + shown, shown.split(' '), piped.split('\\n')

def packed():
    header = 'DATA' + struct.pack('<I', 255) + '\\xff'
    name, size = struct.unpack('<4sI', header[:8])
    return header, name == 'DATA', size, base64.b64decode(base64.b64encode('caf\\xe9')) , zlib.crc32('abc')

import io, json
from cPickle import dumps
from pickle import HIGHEST_PROTOCOL
PROTOCOL = pickle.HIGHEST_PROTOCOL

def pickled(own):
    import pickle as today
    messages = [today.dumps(5, -1), pickle.dumps(5, -1), dumps(5, HIGHEST_PROTOCOL), pickle.dumps(5, protocol=PROTOCOL),
                today.dumps(5, PROTOCOL), today.dumps(5, 2)]
    file = io.BytesIO()
    pickle.dump(5, file, pickle.HIGHEST_PROTOCOL)
    return messages, file.getvalue(), (lambda dumps: dumps(5, PROTOCOL))(own), json.dumps([5])

def joined(there, words):
    chunks, empty = [], ''
    for _ in range(2):
        chunks.append(there.recv(1))
    return ''.join(chunks), ', '.join(['x'] + chunks), empty.join(chunk for chunk in chunks), ' '.join(
        word.encode('utf-8') for word in words), ''.join('ab'), os.path.join('a', 'b'), b'-'.join([b'a', b'b'])

def of_own_names(kind):
    struct = {'name': 7}
    zlib = collections.namedtuple('Level', 'pack')(lambda text: text)
    base64, binascii = kind(), [3]
    binascii.append('x')
    return struct.get('name'), zlib.pack('a'), base64.encode('a'), binascii

import collections
parts = ['<3sI', 'abc', 5]
unpacked = struct.unpack(parts[0], struct.pack(*parts))

import gzip, re

def lines_of(path):
    zipped = gzip.open(path + '.gz', 'wb')
    zipped.write(b'1|caf\\xc3\\xa9\\n')
    zipped.close()
    first = [line.strip('\\n').split('|') for line in gzip.open(path + '.gz')]
    whole = open(path, 'rb').read()
    return (first, whole.split('\\n'), whole.find('|'), whole.endswith(('a\\n', 'b\\n')), whole.partition('|')[2],
            whole.replace('b', 'c', 1), whole.split())

def pieces_of(data):
    return data.split('|'), data.split(b'|'), data.startswith('a')

def functions_of_modules(path):
    return os.path.split(path), re.split('b', 'abc'), u'a b'.split(u' ')

def words_of(line):
    vocabulary = {'caf\\xe9': 1}
    shown = '%s' % line.lstrip().rstrip()
    return line.split()[0] in vocabulary, line.strip() == 'caf\\xe9 b', line.rsplit(None, 5), shown

def imported_line():
    from line_of_bytes import LINE
    return LINE.split('|')

def made():
    return bytes('a\\xff'), bytes(b'b'), bytes('abc') == 'abc'

def made_as_today(pair):
    return bytes('a\\xff', encoding='utf8'), bytes('a', 'utf8'), bytes(*pair), bytes([97]), bytes()

import numpy as np

def made_of_numbers():
    return bytes(5), bytes(-1.5), '%s' % bytes(True), bytes(np.int64(10L))

def made_by_its_own():
    def bytes(value, unit='B'):
        return value + unit
    return bytes('1')

def wrong(here, data):
    return [lambda: here.send('a', 'utf8'), lambda: data.split('|', 'x'), lambda: data.find(None, '|'),
            lambda: bytes(None), lambda: struct.pack('<B', 256), lambda: ''.join([1])]
"""


class _Coder:
    def encode(self, text):
        return [text]


@pytest.fixture
def script(tmp_path, monkeypatch):
    pytest.importorskip("fissix")
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for owner, names in ((pickle, ("load", "loads", "dump")), (csv, ("reader", "writer"))):
        for name in names:
            monkeypatch.setattr(owner, name, getattr(owner, name))
    path = tmp_path / "server.py"
    path.write_text(_EXCHANGE)
    changes = conversion.Conversion(is_python2=True, mapped=())
    changes.install()
    names = {}
    exec(changes.compile(str(path)), names)
    return names


def test_a_pickle_arrives_whole_with_its_length_ahead(script):
    """The length is a pickle of 8 bytes, and what is received is added to an empty text."""
    gradients = [np.arange(70000.0, dtype=np.float32), {"step": 3}]
    here, there = socket.socketpair()
    here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    with here, there:
        array, step = script["exchange"](gradients, here, there)
    np.testing.assert_array_equal(array, gradients[0])
    assert step == {"step": 3}


def test_only_a_message_has_the_highest_protocol_of_python_2(script):
    """By its name or as a negative number, also of a variable; a file, such as a cache of a data set, has today's."""
    messages, file, own, text = script["pickled"](lambda value, protocol: protocol)
    assert {message[1] for message in messages} == {2}
    assert file[1] == own == pickle.HIGHEST_PROTOCOL and text == "[5]"


def test_text_is_sent_and_what_arrives_is_compared_with_text(script):
    here, there = socket.socketpair()
    with here, there:
        words, is_end, is_put, shown = script["talk"](here, there)
    assert words[0] == "PUT" and words[2] == "1" and not is_end and is_put
    assert shown.startswith("<PUT ") and shown.endswith(" 1>")


def test_what_is_received_stays_bytes_beside_text():
    value = pickle.dumps({"a": 1}, 2)
    assert bytes("" + Received(value[:4]) + Received(value[4:])) == value == bytes(Received(value[:5]) + value[5:])
    assert pickle.loads("" + Received(value)) == {"a": 1}
    assert Received(b"") == "" and not Received(b"")


def test_what_is_added_up_is_not_decoded():
    """Neither before nor by a slice of it: a message of some MB, in pieces, would be decoded for each of them."""
    data = "" + Received(b"\xc3\xa9") + Received(b"ab")
    rest = data[2:]
    assert not vars(data) and not vars(rest) and type(rest) is Received
    assert data == "\xe9ab" and rest + "\xff" == "ab\xff" and data[:1] == "\xc3" and data[3] == "b"
    numbers = (1, 2.5)
    assert given(numbers) is numbers and bytes(Received(b"a\0") + b"\0") == b"a\0\0"


def test_pieces_are_joined(script):
    """With text they are bytes; what `encode` returned becomes text, as by `+`; other values are refused as ever."""
    here, there = socket.socketpair()
    with here, there:
        here.sendall(b"\x80a")
        whole, listed, by_name, words, *others = script["joined"](there, ["caf\xe9", "b"])
    assert (bytes(whole), bytes(listed), bytes(by_name)) == (b"\x80a", b"x, \x80, a", b"\x80a")
    assert words == "caf\xe9 b" and others == ["ab", "a/b", b"a-b"]
    with pytest.raises(TypeError, match="expected str instance, int found"):
        method_of("", "join")([1])


def test_what_is_received_is_not_added_to_other_values():
    for add in (lambda: Received(b"a") + 1, lambda: None + Received(b"a")):
        with pytest.raises(TypeError):
            add()


def test_what_a_command_prints_goes_with_text(script):
    shown, words, lines = script["version"]()
    assert (shown, words, lines) == ("-abc 1", ["abc", "1"], ["x y", ""])


def test_a_header_is_packed_with_text_and_unpacked_of_it(script):
    """A character of a text is a byte."""
    header, is_data, size, text, checksum = script["packed"]()
    assert bytes(header) == b"DATA\xff\x00\x00\x00\xff" and is_data and size == 255
    assert bytes(text) == b"caf\xe9" and checksum == 891568578


def test_a_variable_may_have_the_name_of_such_a_module(script):
    assert script["of_own_names"](_Coder) == (7, "a", ["a"], [3, "x"])


def test_arguments_in_a_list_may_be_text(script):
    assert script["unpacked"] == ("abc", 5)


def test_a_value_that_cannot_be_packed_is_refused():
    """Once: the error has no other one before it."""
    with pytest.raises(struct.error, match="format requires") as error:
        method_of(struct, "pack")("<B", 256)
    assert error.value.__context__ is None


def test_a_line_of_a_file_of_bytes_is_split_by_text(script, tmp_path):
    """Of `gzip.open(path)` and `open(path, "rb")`; its words are text."""
    path = tmp_path / "data.txt"
    path.write_bytes(b"a|b\n")
    first, *others = script["lines_of"](str(path))
    assert first == [["1", "caf\xe9"]]
    assert others == [["a|b", ""], 1, True, "b\n", "a|c\n", [b"a|b"]]


def test_bytes_that_are_no_text_stay_bytes_in_pieces(script):
    """Which equal their text; what bytes split stays as in Python 3."""
    by_text, by_bytes, is_first = script["pieces_of"](b"a\xff|b")
    assert [type(piece) for piece in by_text] == [Received] * 2 and list(map(bytes, by_text)) == [b"a\xff", b"b"]
    assert [type(piece) for piece in by_bytes] == [bytes] * 2 and is_first


def test_words_of_a_line_that_is_split_without_an_argument_equal_text(script):
    """Issue: none of them was in a vocabulary. What is no text stays the same bytes."""
    is_known, is_same, words, shown = script["words_of"](b"caf\xc3\xa9 b\n")
    assert is_known and is_same and words == ["caf\xe9", "b"] and shown == "caf\xe9 b"
    assert [*map(bytes, script["words_of"](b"\xff \x00")[2])] == [b"\xff", b"\x00"]


def test_an_imported_line_is_split(script, monkeypatch):
    """Its name looked like that of a module."""
    monkeypatch.setitem(sys.modules, "line_of_bytes", types.SimpleNamespace(LINE=b"a|b"))
    assert script["imported_line"]() == ["a", "b"]


def test_functions_of_modules_with_such_names_stay(script):
    assert script["functions_of_modules"]("x/y") == (("x", "y"), ["a", "c"], ["a", "b"])


def test_bytes_are_made_of_text(script):
    of_text, of_bytes, is_same = script["made"]()
    assert isinstance(of_text, bytes) and of_text == "a\xff" and type(of_bytes) is bytes and is_same
    assert bytes(of_text) == b"a\xc3\xbf"


def test_bytes_are_made_as_today_with_an_encoding(script):
    """Issue: `bytes(text, encoding="utf8")`, the branch for Python 3 of code for both, was a TypeError."""
    made = script["made_as_today"](("b", "utf8"))
    assert made == (b"a\xc3\xbf", b"a", b"b", b"a", b"") and {*map(type, made)} == {bytes}


def test_bytes_of_a_number_are_its_digits(script):
    """In Python 3 they are that many zeros."""
    assert script["made_of_numbers"]() == (b"5", b"-1.5", "True", b"10")


def test_a_script_may_have_a_function_called_bytes(script):
    assert script["made_by_its_own"]() == "1B"


@pytest.mark.parametrize("index", range(6))
def test_a_wrong_call_is_that_of_the_script(script, index):
    """Issue: "line 150 of python2_bytes.py, which is ps_train's, failed"."""
    here, there = socket.socketpair()
    with here, there, pytest.raises((TypeError, struct.error)) as error:
        script["wrong"](here, b"a|b")[index]()
    _, fault = tracebacks.report(error.value)
    assert fault.code == "user_code_failed"


def test_other_results_stay_as_they_are():
    """Such as what `tf.pack` gives, and named tuples."""
    pair = collections.namedtuple("Pair", "a b")(b"x", 1)
    array = np.ones(2)
    assert given(pair) is pair and given(array) is array and given("x") == "x"
    assert given((b"x", 1)) == ("x", 1)
