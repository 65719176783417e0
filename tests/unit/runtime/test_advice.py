"""The advice on imports that fail and on code of Python 2."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ps_train.runtime import advice, tracebacks
from tests.errors import codes_of


@pytest.fixture
def report_of(tmp_path, monkeypatch):
    """Returns a function that runs a text as a file of the user, and returns the traceback and the error about it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def run(text, *advice):
        path = tmp_path / "script.py"
        path.write_text(text)
        try:
            exec(compile(text, str(path), "exec"), {"__name__": "script"})
        except Exception as error:  # noqa: BLE001 (any that the text raises)
            trace, fault = tracebacks.report(error, *advice)
            return trace, fault
        raise AssertionError("it raised nothing")

    run.folder = tmp_path
    return run


@pytest.mark.parametrize(("module", "advice"), [
    ("twisted_nowhere", "pip install twisted_nowhere"),
    pytest.param("telnetlib", "pip install standard-telnetlib", marks=pytest.mark.skipif(
        sys.version_info < (3, 13), reason="this Python has it")),
    ("pytest.nothing", "installed pytest has no nothing"),
    *((f"{name}.nothing", f"Python's own {name} has no nothing") for name in ("json", "math", "os", "sys")),
])
def test_a_missing_module_is_one_line_with_what_to_do(report_of, module, advice):
    """It names the line; a traceback would not help."""
    trace, fault = report_of(f"import sys\nimport {module}\n")
    assert trace == [] and codes_of(fault) == ["module_missing"]
    assert str(fault).startswith(f"{report_of.folder}/script.py, line 2: No module named {module!r}")
    assert advice in str(fault) and "\n" not in str(fault)


def test_the_package_has_another_name_than_the_module():
    """As the table has it, also for what the package contains."""
    for module, package in (("cv2", "opencv-python-headless"), ("Crypto.Cipher", "pycryptodome"),
                            ("yaml", "PyYAML"), ("google.protobuf", "protobuf")):
        error = ModuleNotFoundError(f"No module named {module!r}", name=module)
        assert advice.advise(error, "/nowhere/script.py") == f"install it: pip install {package}"


def test_a_module_of_the_user_is_found_where_it_is(report_of):
    """Its folder is not on the path, or a folder does not contain the module; no package is to be installed."""
    (report_of.folder / "src/own_part").mkdir(parents=True)
    (report_of.folder / "src/own_part/__init__.py").write_text("")
    _, fault = report_of("import own_part.network")
    assert f"own_part is in {report_of.folder}/src," in str(fault) and "PYTHONPATH" in str(fault)
    (report_of.folder / "own_layers").mkdir()
    (report_of.folder / "own_layers/__init__.py").write_text("")
    _, fault = report_of("import own_layers.network")
    assert f"own_layers, in {report_of.folder}/own_layers, has no network" in str(fault)


@pytest.mark.parametrize("text", [
    'print "step"', "print x, y", "if True:\n\tx = 1\n        y = 2\n",
    "if True:\n  try:\n    pass\n  except ValueError, error:\n    pass\n", 'raise ValueError, "x"', "x = 0777",
    "x = 10L", "x = `1`", "if 1 <> 2: pass", 'exec "x = 1"', "def f(a, (b, c)): pass", "import urllib2",
    'if True:\n        x = 1\n\telse_ = 2\n',
])
def test_a_statement_of_python_2_is_one_line(report_of, text):
    """It names the file and the line, and how to go on."""
    trace, fault = report_of(text, "convert it")
    assert trace == [] and codes_of(fault) == ["python2_code"] and str(fault).endswith("convert it")
    assert str(fault).startswith(f"{report_of.folder}/script.py, line ") and "\n" not in str(fault)


@pytest.mark.parametrize("text", [
    "xrange(3)", "{}.iteritems()", "{}.has_key(1)", "unicode('x')", "len(map(str, []))", "range(3) + [1]",
    "import sys\nprint >>sys.stderr, 'x'", "'a'.__class__.nothing if 0 else reduce(max, [1])",
])
def test_python_2_that_fails_while_it_runs_keeps_its_traceback(report_of, text):
    """The line may be elsewhere; the advice is the same."""
    trace, fault = report_of(text, "convert it")
    assert trace[0] == tracebacks.HEADING
    assert codes_of(fault) == ["python2_code"] and "script.py" in str(fault) and str(fault).endswith("convert it")


@pytest.mark.parametrize("text", ["x = 5 5", "f(", "undefined", "''.nothing", "if True:\nx = 1", "1 + 'a'", "[].next"])
def test_other_errors_are_not_python_2(text, report_of):
    """No error is, once the code is converted."""
    if text != "[].next":
        assert report_of(text, "convert it")[1].code == "user_code_failed"
    assert report_of(text, "")[1].code == "user_code_failed"


def test_the_modules_of_python_2_are_not_in_python_3():
    """Otherwise a missing package of that name would be taken for one of them."""
    known = subprocess.run([sys.executable, "-c", "import sys; print(*getattr(sys, 'stdlib_module_names', ()))"],
                           capture_output=True, text=True, check=True).stdout.split()
    assert advice.PYTHON2_MODULES.isdisjoint(known)
