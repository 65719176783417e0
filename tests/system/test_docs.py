"""The documents: what they show is real, and the commands in them work."""

from __future__ import annotations

import ast
import re
import shlex
from typing import Any

from ps_train.cluster.resolve import find_cluster
from ps_train.config import fields, flag_help, launch, task
from ps_train.parts.compare.flags import CompareConfig
from ps_train.parts.control.verb import StatusConfig
from ps_train.parts.doctor.verb import DoctorConfig
from ps_train.parts.inference.flags import EvaluateConfig, PredictConfig
from ps_train.parts.keras.flags import ConvertConfig, KerasConfig, parse_convert, parse_keras_launch
from ps_train.parts.legacy.flags import ScriptLaunchConfig
from ps_train.parts.live.flags import LiveExportConfig
from ps_train.parts.plan.verb import PlanFlags
from ps_train.parts.publish.flags import PublishConfig
from ps_train.parts.rows.flags import RowsConfig
from ps_train.parts.tune.flags import TuneFlags
from tests import processes
from tests.processes import REPO
from tests.unit.test_commands import COMMANDS

README = (REPO / "README.md").read_text(encoding="utf-8")
FAULTS = (REPO / "docs/faults.md").read_text(encoding="utf-8")
FLAGS = (REPO / "docs/flags.md").read_text(encoding="utf-8")
PLUGINS = (REPO / "docs/plugins.md").read_text(encoding="utf-8")
MIGRATE = (REPO / "docs/migrate.md").read_text(encoding="utf-8")


def known_flags() -> dict[str, tuple[fields.Rule, type, Any]]:
    """Returns the flags of all verbs: those of a task first, each as the first verb that has it declares it."""
    # `evaluate` to `export`, `keras`, `convert`, `plan` and `doctor` repeat some flags of `train` and `launch`.
    of_verbs = [(task.Config,), (task.Config, launch.LaunchConfig), (ScriptLaunchConfig,), (StatusConfig,),
                (EvaluateConfig, PredictConfig, LiveExportConfig), (RowsConfig,), (PublishConfig,),
                (KerasConfig, ConvertConfig), (PlanFlags, DoctorConfig), (TuneFlags,), (CompareConfig,)]
    known: dict[str, tuple[fields.Rule, type, Any]] = {}
    for classes in of_verbs:
        for name, rule in fields.rules(*classes).items():
            known.setdefault(name, rule)
    return known


def flag_sections() -> str:
    """Returns the flags as docs/flags.md has them: a section for each heading of the help, with a table."""
    headings: dict[str, list[str]] = {}
    for name, (rule, _, default) in known_flags().items():
        cells = [f"`--{name}`", rule.help, flag_help.describe_default(rule, default)]
        row = " | ".join(cell.replace("|", r"\|") for cell in cells)  # a bare one ends a cell
        headings.setdefault(rule.group, []).append(f"| {row} |")
    return "\n\n".join("\n".join([f"## {group}", "", "| flag | meaning | values and default |", "|---|---|---|", *rows])
                       for group, rows in headings.items())


def blocks(language: str) -> list[str]:
    """Returns the README's code blocks in a language."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def fault_rows() -> dict[int, str]:
    """Returns, for each row of the fault matrix, the last cell: the tests that show it."""
    lines = [re.split(r" *\| *", line.strip("| ")) for line in FAULTS.splitlines() if re.match(r"\| \d", line)]
    pairs = [(int(number), line[-1]) for line in lines if len(line) >= 4 for number in line[0].split(", ")]
    assert sorted(number for number, _ in pairs) == list(range(1, 58))
    return dict(pairs)


def test_the_fault_matrix_has_every_row_and_the_right_counts():
    """Each row is there once, with its tests, argued or open; the sentence above the table gives the counts."""
    proofs = list(fault_rows().values())
    argued, still_open = proofs.count("argued"), proofs.count("open")
    assert all("::test_" in proof for proof in proofs if proof not in ("argued", "open"))
    assert (f"Of the 57 rows {57 - argued - still_open} are shown by tests, {argued} argued, {still_open} "
            "open") in FAULTS


def test_no_placeholder_is_left():
    """A mark such as @TABLE@ would stand for a missing measurement."""
    assert re.findall(r"@[A-Z]+@", FAULTS) == []


def test_the_flags_are_those_of_the_program():
    """Each flag has its help, unit and default, in its section; on a difference the message has the expected text."""
    assert FLAGS.endswith(f"\n\n{flag_sections()}\n"), flag_sections()


def test_the_sections_of_the_flags_are_the_headings_of_the_help():
    """In the order and words of `ps_train train --help_all`, with the same flags in each; other verbs' come after."""
    of_help, of_page = (
        re.findall(pattern, text, re.MULTILINE) for pattern, text in (
            (r"^(?=\S)(.*):$|^  --(\w+)", flag_help.help_text(task.Config)), (r"^## (.*)|^\| `--(\w+)`", FLAGS)))
    assert of_page[:len(of_help)] == of_help
    assert len([heading for heading, _ in of_help if heading]) == 9
    assert of_page[len(of_help)][0]  # a heading follows


def test_the_keras_commands_parse():
    """Those of README and docs/migrate.md, with their flags."""
    found = 0
    for line in re.findall(r"^\./run_local.sh keras (.*)$", README + MIGRATE, re.MULTILINE):
        parse_keras_launch(shlex.split(line, comments=True))
        found += 1
    for line in re.findall(r"^python -m ps_train convert (.*)$", README + MIGRATE, re.MULTILINE):
        parse_convert(shlex.split(line, comments=True))
        found += 1
    assert found >= 6


def test_the_four_classic_commands_name_the_tasks_of_one_cluster():
    """They parse, and each is a different task of the same cluster."""
    block = next(block for block in blocks("bash") if "--job_name=ps --task_index=1" in block)
    found = []
    for line in block.splitlines():
        told = task.parse_task(shlex.split(line)[3:], {})
        cluster = find_cluster(ps_hosts=told.ps_hosts, worker_hosts=told.worker_hosts, job_name=told.job_name,
                               task_index=told.task_index)
        found.append((cluster.task.name, len(cluster.ps), len(cluster.workers)))
    assert found == [("ps:0", 2, 2), ("ps:1", 2, 2), ("worker:0", 2, 2), ("worker:1", 2, 2)]


def test_commands_that_need_nothing_before_them_run(start_process, tmp_path):
    """`plan`, `new` and the `doctor` of one machine, in an empty folder; see also test_how_to.py."""
    found = [words for _, words in COMMANDS
             if words and words[0] in ("plan", "new", "doctor") and not any("hosts=" in word for word in words)]
    assert {words[0] for words in found} == {"plan", "new", "doctor"}
    for number, words in enumerate(found):
        start_process.start(f"{words[0]}-{number}", [word.replace("=/shared/", f"={tmp_path}/") for word in words],
                            cwd=tmp_path)
    codes = start_process.wait(2 * processes.DEADLINE_SECS)
    assert set(codes.values()) == {0}, start_process.logs()


def test_python_on_every_page_parses():
    """Blocks of the pages that are not run from end to end."""
    found = [(path.name, block) for path in (REPO / "docs").rglob("*.md")
             for block in re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)]
    assert len(found) > 10
    for name, block in found:
        ast.parse(block, filename=name)
