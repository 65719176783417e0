"""The layer between dataclass fields and absl flags."""

from __future__ import annotations

import dataclasses
from typing import Optional

import pytest
from absl import flags
from hypothesis import given
from hypothesis import strategies as st

from ps_train.config import fields, task
from ps_train.errors import ConfigError


def _no_blank(what, text):
    if " " in text:
        raise ConfigError(f"{what}: has a blank")


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


def _refusal(*argv, classes=(Options,)):
    with pytest.raises(ConfigError) as caught:
        fields.parse_flags(argv, *classes)
    return str(caught.value)


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
        (["--title="], "title", ""),
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


def test_reads_several_classes():
    """One command line may fill several dataclasses."""
    values, given = fields.parse_flags(["--extra=4", "--count=2"], More, Options)
    assert (values["extra"], values["count"]) == (4, 2)
    assert given == {"extra", "count"}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--count=0"], "--count: got 0; allowed: a 64-bit integer of at least 1"),
        (["--count=x"], "--count: got 'x'; allowed: a 64-bit integer of at least 1"),
        (["--count="], "--count: got ''; allowed: a 64-bit integer of at least 1"),
        (["--count=1.5"], "--count: got '1.5'; allowed: a 64-bit integer of at least 1"),
        (["--count=9223372036854775808"],
         "--count: got 9223372036854775808; allowed: a 64-bit integer of at least 1"),
        (["--limit=-1"], "--limit: got -1; allowed: a 64-bit integer of at least 0"),
        (["--rate=0"], "--rate: got 0.0; allowed: a number above 0 up to 100"),
        (["--rate=100.5"], "--rate: got 100.5; allowed: a number above 0 up to 100"),
        (["--rate=nan"], "--rate: got nan; allowed: a number above 0 up to 100"),
        (["--rate=inf"], "--rate: got inf; allowed: a number above 0 up to 100"),
        (["--rate=0,5"], "--rate: got '0,5'; allowed: a number above 0 up to 100"),
        (["--colour=green"], "--colour: got 'green'; allowed: one of red, blue"),
        (["--colour="], "--colour: got ''; allowed: one of red, blue"),
        (["--loud=maybe"], "--loud: got 'maybe'; allowed: true or false"),
        (["--title=a b"], "--title: has a blank"),
        (["--count=1", "--count=1"], "--count: given twice, the second time as '1'; give it once"),
        (["--loud", "--noloud"], "--loud: given twice, the second time as 'false'; give it once"),
        (["--count=x", "--count=y"], "--count: given twice, the second time as 'y'; give it once"),
        (["--cuont=1"], "unknown flag --cuont; did you mean --count? `ps_train --help_all` lists the flags"),
        (["--zzz=1"], "unknown flag --zzz; `ps_train --help_all` lists the flags"),
        (["--nocount"], "unknown flag --nocount; did you mean --count? `ps_train --help_all` lists the flags"),
        (["--internal=x"], "unknown flag --internal; `ps_train --help_all` lists the flags"),
        (["--count"], "Missing value for flag --count; see `ps_train --help_all`"),
        (["--noloud=true"], "--noloud=true does not take an argument; see `ps_train --help_all`"),
        (["count=1"], "'count=1' is not a flag; flags are written --name=value, see `ps_train --help_all`"),
        (["--loud", "False"], "'False' is not a flag; flags are written --name=value, see `ps_train --help_all`"),
        (["--", "more"], "'more' is not a flag; flags are written --name=value, see `ps_train --help_all`"),
        (["-"], "'-' is not a flag; flags are written --name=value, see `ps_train --help_all`"),
    ],
)
def test_refuses_what_it_does_not_understand(argv, message):
    """Each mistake has one line that says what, what was given, and what is allowed or to be done."""
    assert _refusal(*argv) == message


def test_tells_all_wrong_values_together():
    """Values of a wrong type, out of bounds and of a wrong form are told in one go, in the order of the help."""
    text = _refusal("--title=a b", "--rate=-1", "--count=x", "--extra=-2", classes=(Options, More))
    assert [line.split(":")[0] for line in text.splitlines()] == ["--count", "--rate", "--title", "--extra"]


def test_reads_a_flagfile(tmp_path):
    """--flagfile adds the flags of a file, with comments, and they obey the same rules."""
    path = tmp_path / "flags"
    path.write_text("# a comment\n--count=9\n\n--noloud\n")
    values, given = fields.parse_flags([f"--flagfile={path}", "--rate=2"], Options)
    assert (values["count"], values["rate"]) == (9, 2.0)
    assert given == {"count", "rate", "loud"}
    assert "--count: given twice" in _refusal(f"--flagfile={path}", "--count=1")


@pytest.mark.parametrize("content", [None, b"\xff\xfe"], ids=["absent", "not text"])
def test_refuses_a_flagfile_that_cannot_be_read(tmp_path, content):
    """A flagfile that is absent or no text is a ConfigError of one line."""
    path = tmp_path / "flags"
    if content:
        path.write_bytes(content)
    message = _refusal(f"--flagfile={path}")
    assert "\n" not in message and not message.startswith("ERROR")


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
    found = fields.rules(Options, More)
    assert list(found) == ["count", "rate", "limit", "colour", "title", "loud", "extra"]
    assert [kind for _, kind, _ in found.values()] == [int, float, int, str, str, bool, int]
    assert [default for _, _, default in found.values()] == [3, 0.5, None, "red", "", False, 0]


def test_help_shows_groups_units_and_defaults():
    """The help of a class, whole."""
    assert fields.help_text(Options) == """
Numbers:
  --count                  How many. (pieces; default 3)
  --rate                   How fast. (default 0.5)
  --limit                  At most. (default no limit)

Looks:
  --colour                 Which colour. (red, blue; default red)
  --title                  Which title. (text; default none)
  --loud                   Whether to shout. (default false)"""


def test_help_leaves_out_what_it_is_told_to():
    """Flags in `omit` are not listed, and a group that has no other has no heading."""
    text = fields.help_text(Options, More, omit={"extra", "rate"})
    assert "--rate" not in text and "More:" not in text and "--count" in text


@dataclasses.dataclass
class Composed(Options, More):
    """Two groups, and a field of one of them with another default and another help."""

    own: int = fields.field(1, "Own", "Its own.")
    extra: int = fields.redeclare(More, "extra", default=5, help="Five more.")


def test_a_class_has_the_flags_of_its_groups_in_their_order():
    """Heading by heading; a field that is redeclared keeps its limits and its heading."""
    assert list(fields.rules(Composed)) == [*fields.rules(Options), "extra", "own"]
    assert "--extra                  Five more. (default 5)" in fields.help_text(Composed)
    assert _refusal("--extra=-1", classes=(Composed,)) == "--extra: got -1; allowed: a 64-bit integer of at least 0"


def test_a_flag_of_another_verb_is_reported_as_such():
    """It has no value, whatever stands behind it; a flag that no verb has stays unknown."""
    values, told = fields.parse_flags(["--extra=many", "--count=2"], Options, others=[More])
    assert values.keys() == fields.rules(Options).keys()
    assert fields.foreign(told, "cook", Options) == ["--extra: has no effect in `ps_train cook`; leave it out"]
    with pytest.raises(ConfigError, match="unknown flag --more"):
        fields.parse_flags(["--more"], Options, others=[More])


def test_absl_flags_of_the_process_are_left_alone():
    """The flags live in a set of their own: another program's absl flags do not meet them."""
    fields.parse_flags(["--count=7"], Options)
    assert "count" not in flags.FLAGS


def test_the_flags_that_all_workers_share_are_declared_as_such():
    """A part declares its own; how often a task saves and reports is its own affair."""
    shared = fields.shared(task.parse_task(["--learning_rate=0.5"], {}))
    assert shared["learning_rate"] == 0.5
    assert {"model", "params", "sync_replicas", "partition_bytes", "clip_norm"} <= shared.keys()
    assert not {"train_dir", "job_name", "log_steps", "save_model_secs", "seed"} & shared.keys()
