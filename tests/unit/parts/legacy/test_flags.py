"""Where the flags of `ps_train run` end and the script begins."""

from __future__ import annotations

import pytest

from ps_train.parts.legacy.flags import Script, ScriptConfig, ScriptLaunchConfig, before_script, split_script
from tests.errors import raises


@pytest.mark.parametrize(("line", "own", "script"), [
    ("x.py", [], Script("x.py", False, ())),
    ("x.py --help --version", [], Script("x.py", False, ("--help", "--version"))),
    ("--tf_log x.py y", ["--tf_log"], Script("x.py", False, ("y",))),
    ("--num_ps=2 x.py --num_ps 3", ["--num_ps=2"], Script("x.py", False, ("--num_ps", "3"))),
    ("--num_ps 2 --evaluator x.py", ["--num_ps", "2", "--evaluator"], Script("x.py", False, ())),
    ("-num_ps 2 x.py", ["-num_ps", "2"], Script("x.py", False, ())),
    ("--unknown x.py", ["--unknown"], Script("x.py", False, ())),
    ("--tf_log -m pack.age -m", ["--tf_log"], Script("pack.age", True, ("-m",))),
])
def test_what_stands_behind_the_script_is_its_own(line, own, script):
    """A flag takes the next word as its value, unless it is a boolean or has a value."""
    assert split_script(line.split(), "launch run", ScriptLaunchConfig) == (own, script)
    assert [*own, *script.words] == line.split()


@pytest.mark.parametrize("line", ["", "--tf_log", "-m", "--start_timeout_secs", "--start_timeout_secs 3"])
def test_without_a_script_all_words_are_flags(line):
    """The command line is refused."""
    assert before_script(line.split(), ScriptConfig) == [word for word in line.split() if word != "-m"]
    with raises("script_missing"):
        split_script(line.split(), "run", ScriptConfig)
