"""Tracebacks: of a fault in the user's code the user's own frames are shown, and one sentence; of another one, all."""

from __future__ import annotations

import importlib
import itertools
import re
import sys
import textwrap

import pytest

from ps_train.runtime import tracebacks
from ps_train.runtime.reports import Failure
from ps_train.runtime.threads import Call
from tests.tensorflow_mode import tf

_numbers = itertools.count()


@pytest.fixture
def report(tmp_path, monkeypatch):
    """A function that writes a module, calls its `model_fn` as ps_train would, and returns the report and its path."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def run(source):
        name = f"users_{next(_numbers)}"
        path = tmp_path / f"{name}.py"
        path.write_text(textwrap.dedent(source))
        importlib.invalidate_caches()

        def call():
            with tf.Graph().as_default():
                importlib.import_module(name).model_fn()

        thread = Call(call, "task")
        thread.join(60)
        # The frame of `call` stands for those of ps_train, which a plug-in is called from.
        monkeypatch.setattr(tracebacks, "_PACKAGES", (*tracebacks._PACKAGES, __file__))
        trace, fault = tracebacks.report(thread._error)
        lines = [*trace, *Failure(fault.lines()).lines()]
        return [line.replace(str(path), "FILE").replace(name, "users") for line in lines]

    return run


def test_a_traceback_begins_and_ends_in_the_users_code(report):
    """Neither the frames before it, nor TensorFlow's behind it, and a sentence that names function, line and file."""
    assert report("""\
        import tensorflow.compat.v1 as tf
        def hidden():
            return tf.nn.rellu(3.0)
        def model_fn():
            return hidden()
        """) == [
        tracebacks.HEADING,
        '  File "FILE", line 5, in model_fn',
        "    return hidden()",
        '  File "FILE", line 3, in hidden',
        "    return tf.nn.rellu(3.0)",
        "AttributeError: module 'tensorflow._api.v2.compat.v1.nn' has no attribute 'rellu'",
        "ps_train: users.model_fn failed: correct line 3 of FILE, then run the same command again [user_code_failed]"]


def test_a_fault_while_the_module_is_imported(report):
    """No function has been called: the error names the module."""
    lines = report("units = no_such_name\n")
    assert lines[1:4] == ['  File "FILE", line 1, in <module>', "    units = no_such_name",
                          "NameError: name 'no_such_name' is not defined"]
    assert lines[4].startswith("ps_train: module users failed: correct line 1 of FILE")


def test_a_syntax_error_is_shown_where_it_is(report):
    """Its line was never executed, so no frame has it."""
    lines = report("x = 1\ndef model_fn(:\n")
    assert lines[1:3] == ['  File "FILE", line 2, in <module>', "    def model_fn(:"]
    assert lines[3].startswith("SyntaxError: ")
    assert lines[4].startswith("ps_train: module users failed: correct line 2 of FILE")


def test_an_error_that_led_to_it_is_a_line(report):
    """The first one is often what helps."""
    lines = report("""\
        def model_fn():
            try:
                int("x")
            except ValueError:
                raise RuntimeError("bad file")
        """)
    assert lines[3:5] == ["After ValueError: invalid literal for int() with base 10: 'x' (line 3 of FILE)",
                          "RuntimeError: bad file"]


def test_a_step_that_fails_is_shown_where_the_operation_was_made(report):
    """A label out of range: the first telling line of TensorFlow's long message, the operation, and the user's line."""
    lines = report("""\
        import tensorflow.compat.v1 as tf
        def model_fn():
            labels = tf.constant([3])
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=tf.zeros([1, 3]))
            with tf.Session(config=tf.ConfigProto(graph_options=tf.GraphOptions(
                    optimizer_options=tf.OptimizerOptions(opt_level=-1)))) as session:
                session.run(loss)
        """)
    assert lines[1] == '  File "FILE", line 4, in model_fn'
    assert lines[3].startswith("InvalidArgumentError: Received a label value of 3 which is outside the valid range")
    assert re.fullmatch(r"ps_train: users.model_fn: operation '\S+' .* line 4 of FILE .* \[operation_failed\]",
                        lines[4])
    assert len(lines) == 5


def test_a_function_of_the_dataset_that_raises_is_shown_itself(report):
    """TensorFlow has its traceback as text, in its own message: the user's frames of that, once."""
    lines = report("""\
        import tensorflow.compat.v1 as tf
        def read(row):
            raise ValueError("row %d is damaged" % row)
        def model_fn():
            data = tf.data.Dataset.range(3).map(lambda row: tf.numpy_function(read, [row], tf.float32))
            iterator = tf.data.make_initializable_iterator(data)
            row = iterator.get_next()
            with tf.Session() as session:
                session.run(iterator.initializer)
                session.run(row)
        """)
    assert lines[:-1] == [
        tracebacks.HEADING, '  File "FILE", line 3, in read', '    raise ValueError("row %d is damaged" % row)',
        "ValueError: row 0 is damaged"]
    assert lines[-1].startswith("ps_train: users.read failed in a step: correct line 3 of FILE")


def test_a_function_that_tensorflow_rewrites_keeps_its_lines(report):
    """The report shows the user's code, not what AutoGraph generates."""
    lines = report("""\
        import tensorflow.compat.v1 as tf
        def read(row):
            return tf.nn.rellu(row)
        def model_fn():
            return tf.data.Dataset.range(3).map(read)
        """)
    assert [line for line in lines if "File" in line] == [
        '  File "FILE", line 5, in model_fn', '  File "FILE", line 3, in read']
    assert lines[-2].startswith("AttributeError: module ") and "rellu" in lines[-2]
    assert lines[-1].startswith("ps_train: users.model_fn failed: correct line 3 of FILE")


def test_a_fault_without_a_frame_of_the_user_keeps_its_traceback(monkeypatch):
    """It is one of ps_train or of TensorFlow, and everything may help."""
    monkeypatch.setattr(tracebacks, "_PACKAGES", (*tracebacks._PACKAGES, __file__))
    thread = Call(lambda: [][0], "task")
    thread.join(60)
    lines, fault = tracebacks.report(thread._error)
    assert fault is None
    assert lines[0] == "Traceback (most recent call last):" and lines[-1] == "IndexError: list index out of range"
    assert any("clock.py" in line for line in lines)


def test_an_installed_plugin_is_the_users(tmp_path, monkeypatch):
    """Where no frame is outside of site-packages, those of a package that is no framework are shown."""
    path = tmp_path / "site-packages" / "their_models" / "net.py"
    path.parent.mkdir(parents=True)
    path.write_text("def model_fn():\n    return [][0]\n")
    names = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    monkeypatch.setattr(tracebacks, "_PACKAGES", (*tracebacks._PACKAGES, __file__))
    thread = Call(names["model_fn"], "task")
    thread.join(60)
    lines, _ = tracebacks.report(thread._error)
    assert f'  File "{path}", line 2, in model_fn\n    return [][0]\n' in "\n".join(lines)


def test_the_standard_library_is_not_the_users():
    """Nor is what is run from no file."""
    assert not tracebacks._may_be_own(sys.modules["threading"].__file__)
    assert not tracebacks._may_be_own("<frozen importlib._bootstrap>")


def test_an_imported_operation_that_fails_is_reported_by_the_line_that_ran_it(report):
    """The operation has no traceback."""
    assert report("""\
        import tensorflow.compat.v1 as tf
        def exported():
            with tf.Graph().as_default() as graph:
                tf.check_numerics(tf.placeholder(tf.float32, [], name="x"), "bad", name="y")
            return graph.as_graph_def()
        def model_fn():
            tf.import_graph_def(exported(), name="m")
            with tf.Session() as session:
                session.run("m/y:0", {"m/x:0": float("nan")})
        """)[:3] == [
        tracebacks.HEADING,
        '  File "FILE", line 9, in model_fn',
        '    session.run("m/y:0", {"m/x:0": float("nan")})',
    ]


@pytest.mark.parametrize(("call", "code"), [
    ("errors.refuse(5)", "ps_train_failed"),  # a line of ps_train asks a number for its items
    ("errors.refuse([errors.Problem('x', 'y')])", "user_code_failed"),  # it refuses on purpose
    ("errors.refuse()", "user_code_failed"),
])
def test_a_line_of_ps_train_that_fails_is_not_the_users_to_correct(tmp_path, call, code):
    """Its traceback is whole. What ps_train raises on purpose is about the call."""
    path = tmp_path / "users_call.py"
    path.write_text(textwrap.dedent(f"""\
        from ps_train import errors
        def model_fn():
            {call}
        """))
    scope = {}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    with pytest.raises(Exception) as caught:
        scope["model_fn"]()
    trace, fault = tracebacks.report(caught.value)
    assert fault.code == code
    assert (trace[0] == tracebacks.HEADING) == (code == "user_code_failed")
    if code == "ps_train_failed":
        assert f"called from line 3 of {path}" in str(fault) and "errors.py" in str(fault)
