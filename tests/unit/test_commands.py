"""Every command of ps_train in the documents: the verb and each flag exist, and the values are allowed."""

from __future__ import annotations

import importlib
import re
import shlex

import pytest

from ps_train import __main__ as command_line
from ps_train.config import fields, flag_help, launch, task
from ps_train.parts.compare import verb as compare_verb
from ps_train.parts.compare.flags import parse_compare
from ps_train.parts.config_file.verb import effective_lines
from ps_train.parts.control import verb as control_flags
from ps_train.parts.doctor import verb as doctor_flags
from ps_train.parts.inference import flags as inference_flags
from ps_train.parts.keras import flags as keras_flags
from ps_train.parts.legacy.flags import ScriptConfig, ScriptLaunchConfig, before_script
from ps_train.parts.live import flags as live_flags
from ps_train.parts.plan import verb as plan_flags
from ps_train.parts.publish import flags as publish_flags
from ps_train.parts.report import verb as report_flags
from ps_train.parts.rows import verb as rows_flags
from ps_train.parts.tune import flags as tune_flags
from ps_train.verbs.table import split_argv
from ps_train.verbs.train import parse_serve
from ps_train.verbs.verb import name_train_dir
from tests.pages import block
from tests.processes import REPO

PAGES = sorted([REPO / "README.md", *(REPO / "docs").rglob("*.md"), *(REPO / "examples").rglob("*.md")])
_BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_BEFORE = r"""(?:[A-Z_]+=(?:'[^']*'|"[^"]*"|\S+)\s+|kubectl exec \S+ -- |\.venv/bin/|nohup )*"""
_COMMAND = re.compile(rf"^{_BEFORE}(?:python -m )?ps_train(?=\s|$)")


def _commands():
    """Yields (page, words behind `ps_train`) of each command in a block of bash that is to succeed."""
    for path in PAGES:
        for text_of_block in _BLOCK.findall(path.read_text(encoding="utf-8")):
            for line in text_of_block.replace("\\\n", " ").splitlines():
                text, _, comment = line.partition("  #")
                if (command := _COMMAND.search(text)) and not comment.startswith(" exit code 2"):
                    words = shlex.split(text[command.end():])
                    stop = next((index for index, word in enumerate(words) if word in ("&", "|", ">", "&&", ";")), None)
                    yield path.relative_to(REPO), words[:stop]


COMMANDS = list(dict.fromkeys((str(page), tuple(words)) for page, words in _commands()))


def _script(argv, cls):
    words = before_script(argv, cls)
    assert len(words) < len(argv), "no script is named"
    fields.parse_flags(words, cls)


def _launch(argv):
    if argv[:1] == ["run"]:
        return _script(argv[1:], ScriptLaunchConfig)
    return keras_flags.parse_keras_launch(argv[1:]) if argv[:1] == ["keras"] else launch.parse_launch(argv)


PARSERS = {
    "train": lambda argv: task.parse_task(argv, {"TF_CONFIG": "{}"}), "serve": parse_serve, "launch": _launch,
    "keras": lambda argv: keras_flags.parse_keras_task(argv, {}), "convert": keras_flags.parse_convert,
    "run": lambda argv: _script(argv, ScriptConfig),
    **{verb: lambda argv, parse=parse, cls=cls: parse(name_train_dir(argv, cls)) for verb, parse, cls in (
        ("evaluate", inference_flags.parse_evaluate, inference_flags.EvaluateConfig),
        ("predict", inference_flags.parse_predict, inference_flags.PredictConfig),
        ("export", live_flags.parse_live_export, live_flags.LiveExportConfig),
        ("report", report_flags.parse_report, report_flags.ReportConfig))},
    "status": lambda argv: control_flags.parse_control(
        name_train_dir(argv, control_flags.StatusConfig), "status", control_flags.StatusConfig),
    **{verb: lambda argv, verb=verb: control_flags.parse_control(name_train_dir(argv, control_flags.ControlConfig),
                                                                 verb)
       for verb in ("save", "stop", "resume")},
    "compare": lambda argv: parse_compare(compare_verb.split_places(argv)[2]),
    "rows": lambda argv: rows_flags.parse_rows(rows_flags.split_words(argv).flags),
    "publish": lambda argv: publish_flags.parse_publish(name_train_dir(argv, publish_flags.PublishConfig)),
    "plan": plan_flags.parse_plan, "doctor": doctor_flags.parse_doctor, "tune": tune_flags.parse_tune,
    "new": lambda argv: argv, "config": lambda argv: effective_lines(argv, {}),
}


@pytest.mark.parametrize(("page", "words"), COMMANDS, ids=str)
def test_a_command_of_the_documents_is_accepted(page, words, tmp_path, monkeypatch):
    """As its verb checks it, before anything starts."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text(block("docs/config_files.md", "yaml", "# run.yaml"))
    verb, argv = split_argv(words)
    with flag_help.completed_words(argv, argv) as completed:
        PARSERS[verb](completed)


def test_there_are_commands_of_every_verb():
    """So no verb is without an example."""
    assert len(COMMANDS) > 60
    assert {split_argv(words)[0] for _, words in COMMANDS} == set(PARSERS)


@pytest.mark.parametrize("argv", [*([verb] for verb in PARSERS), ["launch", "run"], ["launch", "keras"]], ids=str)
def test_the_help_of_every_verb_has_its_flags(capsys, argv):
    """`ps_train VERB --help`, to which pages and messages send the reader."""
    assert command_line.main([*argv, "--help"]) == 0
    out, err = capsys.readouterr()
    assert f"ps_train {' '.join(argv)} " in out and err == ""
    assert max(map(len, out.splitlines())) <= 80
    assert argv == ["new"] or re.search(r"^  --\w+  ", out, re.MULTILINE)


def test_names_that_pages_import_exist():
    """In blocks of Python: `from ps_train import X`, `import ps_train.y`, `ps_train.X`."""
    text = "\n".join(block for path in PAGES for block in re.findall(
        r"^```python\n(.*?)^```$", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE))
    imported = {(module, name.strip()) for module, names in re.findall(
        r"^\s*from (ps_train[\w.]*) import ([\w, ]+)$", text, re.MULTILINE) for name in names.split(",")}
    imported |= {("ps_train", name) for name in re.findall(r"\bps_train\.(\w+)", text)}
    assert len(imported) > 10
    for module, name in sorted(imported):
        if name in ("models", "datasets"):  # those of a wheel; in a checkout, the folders next to the package
            continue
        imported = importlib.import_module(module)
        assert hasattr(imported, name) or importlib.util.find_spec(f"{module}.{name}"), f"{module} has no {name}"
