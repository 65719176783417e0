"""Text within protocol buffers, in code of Python 2."""

import types

import pytest

from ps_train.parts.legacy import leftovers, proto_strings, python2_bytes, python2_order
from ps_train.parts.legacy.conversion import Conversion
from tests.tensorflow_mode import tf

EXAMPLE = tf.train.Example(features=tf.train.Features(feature={
    "article": tf.train.Feature(bytes_list=tf.train.BytesList(value=["a caf\u00e9 .".encode(), b"b"])),
    "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"\x89PNG\x00\xff"]))}))


@pytest.fixture
def names(tmp_path):
    """Returns a function that runs a text of Python 2 and returns its names."""
    def run(text, **given):
        path = tmp_path / "script.py"
        path.write_text(text)
        leftovers.install_changes()
        proto_strings.install_texts()
        python2_order.install_order()
        python2_bytes.install_bytes()
        module = types.ModuleType("script")
        vars(module).update(given)
        exec(Conversion(is_python2=True, mapped=()).compile(str(path)), vars(module))
        return vars(module)
    return run


def test_an_item_a_part_and_a_loop_give_text(names):
    """It can be searched with a string of the script, decoded, and compared with the bytes that it was."""
    found = names(
        "values = e.features.feature['article'].bytes_list.value\n"
        "first = e.features.feature['article'].bytes_list.value[0]\n"
        "part = e.features.feature['article'].bytes_list.value[1:]\n"
        "every = [v.split('f')[0] for v in e.features.feature['article'].bytes_list.value]\n"
        "for last in e.features.feature['article'].bytes_list.value: pass\n"
        "place, words = first.index('caf'), first.decode('utf-8').split()\n", e=EXAMPLE)
    assert (found["place"], found["words"]) == (2, ["a", "caf\u00e9", "."])
    assert (found["part"], found["every"], found["last"]) == (["b"], ["a ca", "b"], "b")
    assert list(found["values"]) == [b"a caf\xc3\xa9 .", b"b"]


def test_what_is_no_text_stays_and_lists_are_filled(names):
    """An image, and the items of a list that is written."""
    found = names("image = e.features.feature['image'].bytes_list.value[0]\n"
                  "new.features.feature['x'].bytes_list.value.extend([b'1'])\n"
                  "new.features.feature['x'].bytes_list.value[0] = b'2'\n", e=EXAMPLE, new=tf.train.Example())
    assert found["image"] == b"\x89PNG\x00\xff"
    assert found["new"].features.feature["x"].bytes_list.value[:] == [b"2"]


def test_lists_take_text(names):
    """What was read from another one, and strings of the script, which were bytes in Python 2."""
    found = names("copy = BytesList(value=[e.features.feature['article'].bytes_list.value[0], 'b'])\n"
                  "new.features.feature['x'].bytes_list.value.append(e.features.feature['image'].bytes_list.value[0])\n"
                  "new.features.feature['x'].bytes_list.value.extend(['c', b'd'])\n",
                  e=EXAMPLE, new=tf.train.Example(), BytesList=tf.train.BytesList)
    assert list(found["copy"].value) == [b"a caf\xc3\xa9 .", b"b"]
    assert list(found["new"].features.feature["x"].bytes_list.value) == [b"\x89PNG\x00\xff", b"c", b"d"]
