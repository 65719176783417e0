"""The layer between dataclass fields and absl flags."""

from __future__ import annotations

import dataclasses
from typing import Optional

import pytest
from absl import flags
from hypothesis import given
from hypothesis import strategies as st

from ps_train.config import fields, flag_help, task
from ps_train.errors import ConfigError
from tests.errors import codes_of, error_of, raises


def _no_blank(name, text):
    if " " in text:
        raise ConfigError("has_blank", f"{name}: has a blank")


@dataclasses.dataclass
class Options:
    """Fields of every kind."""

    count: int = fields.field(3, "Numbers", "How many.", unit="pieces", minimum=1)
    rate: float = fields.field(0.5, "Numbers", "How fast.", above=0, maximum=100)
    limit: Optional[int] = fields.field(None, "Numbers", "At most.", minimum=0, unset="no limit")
    colour: str = fields.field("red", "Looks", "Which colour.", choices=("red", "blue"))
    title: str = fields.field("", "Looks", "Which title.", unit="text", form=_no_blank, unset="none")
    loud: bool = fields.field(False, "Looks", "Whether to shout.")
    internal: str = "no flag"


@dataclasses.dataclass
class More:
    """Fields of a second class."""

    extra: int = fields.field(0, "More", "One more.", minimum=0)


def test_an_empty_command_line_gives_the_defaults():
    """Every flag field has its default, and none counts as given."""
    values, given = fields.parse_flags([], Options)
    assert values == {"count": 3, "rate": 0.5, "limit": None, "colour": "red", "title": "", "loud": False}
    assert given == frozenset()


@pytest.mark.parametrize(
    ("argv", "name", "value"),
    [
        (["--count=7"], "count", 7),
        (["--count", "7"], "count", 7),
        (["-count=7"], "count", 7),
        (["--count= 7"], "count", 7),
        (["--count=0x10"], "count", 16),
        (["--rate=2"], "rate", 2.0),
        (["--rate=1e-3"], "rate", 0.001),
        (["--limit=0"], "limit", 0),
        (["--colour=blue"], "colour", "blue"),
        (["--title=a=b"], "title", "a=b"),
        (["--title=日本"], "title", "日本"),
        (["--loud"], "loud", True),
        (["--loud=true"], "loud", True),
        (["--loud=False"], "loud", False),
        (["--noloud"], "loud", False),
    ],
)
def test_reads_every_way_to_write_a_flag(argv, name, value):
    """absl's ways to write a flag give a value of the field's type, and the flag counts as given."""
    values, given = fields.parse_flags(argv, Options)
    assert values[name] == value
    assert type(values[name]) is type(value)
    assert given == {name}


def test_a_default_that_is_given_counts_as_given():
    """A value that equals the default is still the user's choice."""
    assert fields.parse_flags(["--count=3"], Options)[1] == {"count"}


@pytest.mark.parametrize("argv", [["--title="], ["--title", ""], [fields.FileFlag("title", "", "run.yaml", 1, False)]])
def test_an_empty_text_that_is_the_default_does_not_count_as_given(argv):
    """As that of `--train_dir=$RUN` where RUN is not set: it names no folder to continue from."""
    values, given = fields.parse_flags(argv, Options)
    assert (values["title"], given) == ("", frozenset())


def test_reads_several_classes():
    """One command line may fill several dataclasses."""
    values, given = fields.parse_flags(["--extra=4", "--count=2"], More, Options)
    assert (values["extra"], values["count"]) == (4, 2)
    assert given == {"extra", "count"}


@pytest.mark.parametrize(("argv", "code", "values"), [
    (["--count=0"], "flag_out_of_range", ["--count", "0", "at least 1"]),
    (["--count=x"], "flag_out_of_range", ["--count", "'x'", "at least 1"]),
    (["--count="], "flag_out_of_range", ["--count", "''"]),
    (["--count=1.5"], "flag_out_of_range", ["--count", "'1.5'"]),
    (["--count=9223372036854775808"], "flag_out_of_range", ["--count", "9223372036854775808"]),
    (["--limit=-1"], "flag_out_of_range", ["--limit", "-1", "at least 0"]),
    (["--rate=0"], "flag_out_of_range", ["--rate", "0.0", "above 0 up to 100"]),
    (["--rate=100.5"], "flag_out_of_range", ["--rate", "100.5", "above 0 up to 100"]),
    (["--rate=nan"], "flag_out_of_range", ["--rate", "nan"]),
    (["--rate=inf"], "flag_out_of_range", ["--rate", "inf"]),
    (["--rate=0,5"], "flag_out_of_range", ["--rate", "'0,5'"]),
    (["--colour=green"], "flag_out_of_range", ["--colour", "'green'", "red, blue"]),
    (["--colour="], "flag_out_of_range", ["--colour", "''", "red, blue"]),
    (["--loud=maybe"], "flag_out_of_range", ["--loud", "'maybe'", "true or false"]),
    (["--title=a b"], "has_blank", ["--title"]),
    (["--count=1", "--count=1"], "flag_given_twice", ["--count", "'1'"]),
    (["--loud", "--noloud"], "flag_given_twice", ["--loud", "'false'"]),
    (["--count=x", "--count=y"], "flag_given_twice", ["--count", "'y'"]),
    (["--cuont=1"], "flag_unknown", ["--cuont", "did you mean --count?", "`ps_train --help_all`"]),
    (["--zzz=1"], "flag_unknown", ["--zzz"]),
    (["--nocount"], "flag_unknown", ["--nocount", "did you mean --count?"]),
    (["--internal=x"], "flag_unknown", ["--internal"]),
    (["--count"], "command_line_unreadable", ["--count", "`ps_train --help_all`"]),
    (["--noloud=true"], "command_line_unreadable", ["--noloud=true"]),
    (["count=1"], "not_a_flag", ["'count=1'", "`ps_train --help_all`"]),
    (["--loud", "False"], "not_a_flag", ["'False'"]),
    (["--", "more"], "not_a_flag", ["'more'"]),
    (["-"], "not_a_flag", ["'-'"]),
])
def test_refuses_what_it_does_not_understand(argv, code, values):
    """Each mistake is one line with the flag, its value, and the allowed ones or the next step."""
    error = error_of(fields.parse_flags, argv, Options)
    assert codes_of(error) == [code] and "\n" not in str(error)
    assert all(value in str(error) for value in values)


def test_reports_all_wrong_values_together():
    """Values of a wrong type, out of bounds and of a wrong form, in the order of the help."""
    error = error_of(fields.parse_flags, ["--title=a b", "--rate=-1", "--count=x", "--extra=-2"], Options, More)
    assert codes_of(error) == ["flag_out_of_range", "flag_out_of_range", "has_blank", "flag_out_of_range"]
    assert [line.split(":")[0] for line in error.problems] == ["--count", "--rate", "--title", "--extra"]


def test_reads_a_flagfile(tmp_path):
    """--flagfile adds the flags of a file, with comments, and they obey the same rules."""
    path = tmp_path / "flags"
    path.write_text("# a comment\n--count=9\n\n--noloud\n")
    values, given = fields.parse_flags([f"--flagfile={path}", "--rate=2"], Options)
    assert (values["count"], values["rate"]) == (9, 2.0)
    assert given == {"count", "rate", "loud"}
    assert error_of(fields.parse_flags, [f"--flagfile={path}", "--count=1"], Options).code == "flag_given_twice"


@pytest.mark.parametrize("content", [None, b"\xff\xfe"], ids=["absent", "not text"])
def test_refuses_a_flagfile_that_cannot_be_read(tmp_path, content):
    """A flagfile that is absent or no text is a ConfigError of one line."""
    path = tmp_path / "flags"
    if content:
        path.write_bytes(content)
    error = error_of(fields.parse_flags, [f"--flagfile={path}"], Options)
    assert error.code == "command_line_unreadable"
    assert "\n" not in str(error) and not str(error).startswith("ERROR")


_TEXTS = st.text(max_size=20)
_NAMES = st.sampled_from(["count", "rate", "limit", "colour", "title", "loud", "noloud", "undefok", "zzz"])
_FLAGS = st.builds("--{}={}".format, _NAMES, st.one_of(_TEXTS, st.integers().map(str), st.floats().map(str)))


@given(st.lists(st.one_of(_FLAGS, _TEXTS.filter(lambda word: "flagfile" not in word)), max_size=5))
def test_any_words_are_flags_or_a_config_error(argv):
    """No command line raises anything but ConfigError."""
    try:
        values, _ = fields.parse_flags(argv, Options)
    except ConfigError:
        return
    assert fields.problems(values, Options) == []


@pytest.mark.parametrize(
    ("name", "value", "is_allowed"),
    [
        ("count", 1, True),
        ("count", 0, False),
        ("count", 2.0, False),
        ("count", True, False),
        ("count", None, False),
        ("count", "3", False),
        ("rate", 1, True),
        ("rate", 100, True),
        ("rate", True, False),
        ("rate", float("-inf"), False),
        ("limit", None, True),
        ("loud", 1, False),
        ("title", None, False),
        ("title", 3, False),
    ],
)
def test_checks_values_that_no_command_line_gave(name, value, is_allowed):
    """Values from a program are held to the same types and bounds."""
    values = {**fields.parse_flags([], Options)[0], name: value}
    assert (fields.problems(values, Options) == []) is is_allowed


def test_rules_keep_the_order_and_the_types_of_the_fields():
    """`rules` lists the flag fields in order, with the Python type behind Optional, and the default."""
    rules = fields.rules(Options, More)
    assert list(rules) == ["count", "rate", "limit", "colour", "title", "loud", "extra"]
    assert [kind for _, kind, _ in rules.values()] == [int, float, int, str, str, bool, int]
    assert [default for _, _, default in rules.values()] == [3, 0.5, None, "red", "", False, 0]


def test_help_shows_groups_units_and_defaults():
    """The help of a class, whole."""
    assert flag_help.help_text(Options) == """
Numbers:
  --count                  How many. (pieces; default 3)
  --rate                   How fast. (default 0.5)
  --limit                  At most. (default no limit)

Looks:
  --colour                 Which colour. (red, blue; default red)
  --title                  Which title. (text; default none)
  --loud                   Whether to shout. (default false)"""


def test_help_leaves_out_the_flags_in_omit():
    """A group without any other flag has no heading."""
    text = flag_help.help_text(Options, More, omit={"extra", "rate"})
    assert "--rate" not in text and "More:" not in text and "--count" in text


@dataclasses.dataclass
class Composed(Options, More):
    """Two groups, and a field of one of them with another default and another help."""

    own: int = fields.field(1, "Own", "Its own.")
    extra: int = fields.redeclare(More, "extra", default=5, help="Five more.")


def test_a_class_has_the_flags_of_its_groups_in_their_order():
    """Heading by heading; a field that is redeclared keeps its limits and its heading."""
    assert list(fields.rules(Composed)) == [*fields.rules(Options), "extra", "own"]
    assert "--extra                  Five more. (default 5)" in flag_help.help_text(Composed)
    assert error_of(fields.parse_flags, ["--extra=-1"], Composed).code == "flag_out_of_range"


def test_a_flag_of_another_verb_is_reported_as_such():
    """Its value is not checked; a flag that no verb has stays unknown."""
    values, names = fields.parse_flags(["--extra=many", "--count=2"], Options, others=[More])
    assert values.keys() == fields.rules(Options).keys()
    [problem] = flag_help.foreign(names, "cook", Options)
    assert problem.code == "flag_of_another_verb" and "--extra" in problem and "`ps_train cook`" in problem
    with raises("flag_unknown"):
        fields.parse_flags(["--more"], Options, others=[More])


def test_absl_flags_of_the_process_are_left_alone():
    """The flags of ps_train do not meet the absl flags of another program."""
    fields.parse_flags(["--count=7"], Options)
    assert "count" not in flags.FLAGS


def test_the_flags_that_all_workers_share_are_declared_as_such():
    """Parts declare some, too; each task decides how often it saves and reports."""
    shared = fields.shared(task.parse_task(["--learning_rate=0.5"], {}))
    assert shared["learning_rate"] == 0.5
    assert {"model", "params", "sync_replicas", "partition_bytes", "clip_norm"} <= shared.keys()
    assert not {"train_dir", "job_name", "log_steps", "save_model_secs", "seed"} & shared.keys()


@dataclasses.dataclass
class Paths:
    """Fields with a path."""

    folder: str = fields.field("", "Paths", "Where.", unit="path")
    place: str = fields.field("", "Paths", "Where, or a URL.", unit="path or URL", is_path=False)
    title: str = fields.field("", "Paths", "Which title.", unit="text")


def test_a_tilde_is_the_home_folder(monkeypatch):
    """Shells leave it in --folder=~/run, and a folder of that name was made; also for a value of a file."""
    monkeypatch.setenv("HOME", "/home/me")
    file_flag = fields.FileFlag("folder", "~/run", "run.yaml", 3, is_of_training=True)
    values, _ = fields.parse_flags([file_flag, "--place=~/data", "--title=~/x"], Paths)
    assert values == {"folder": "/home/me/run", "place": "/home/me/data", "title": "~/x"}
    assert task.parse_task(["--train_dir=~/run", "--job_name=ps"]).train_dir == "/home/me/run"
    assert fields.parse_flags(["--place=s3://b/~", "--folder=a/~"], Paths)[0] == {
        "folder": "a/~", "place": "s3://b/~", "title": ""}
