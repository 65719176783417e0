"""The documents: what they show is what is there, and what they tell to type works."""

from __future__ import annotations

import ast
import re
import shlex

from ps_train.cluster.spec import resolve
from ps_train.config import fields, task
from ps_train.keras.flags import ConvertConfig, KerasConfig, parse_convert, parse_keras_launch
from tests import processes
from tests.processes import REPO

README = (REPO / "README.md").read_text(encoding="utf-8")
FAULTS = (REPO / "docs/faults.md").read_text(encoding="utf-8")
FLAGS = (REPO / "docs/flags.md").read_text(encoding="utf-8")
PLUGINS = (REPO / "docs/plugins.md").read_text(encoding="utf-8")
MIGRATE = (REPO / "docs/migrate.md").read_text(encoding="utf-8")


def flag_table() -> str:
    """Returns the flags as the table of docs/flags.md."""
    rows = ["| flag | what it is | |", "|---|---|---|"]
    known = fields.rules(task.Config, task.LaunchConfig)
    of_keras = fields.rules(KerasConfig, ConvertConfig)  # it has some of `train` again, with defaults of its own
    known.update({name: rule for name, rule in of_keras.items() if name not in known})
    for name, (rule, _, default) in known.items():
        rows.append(f"| `--{name}` | {rule.help} | {fields.describe_default(rule, default)} |")
    return "\n".join(rows)


def blocks(language: str) -> list[str]:
    """Returns the README's code blocks in a language."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def fault_rows() -> dict[int, str]:
    """Returns, by the row of the fault matrix, what docs/faults.md says of its proof."""
    lines = [re.split(r" *\| *", line.strip("| ")) for line in FAULTS.splitlines() if re.match(r"\| \d", line)]
    pairs = [(int(number), line[-1]) for line in lines if len(line) >= 4 for number in line[0].split(", ")]
    assert sorted(number for number, _ in pairs) == list(range(1, 57))
    return dict(pairs)


def test_every_row_of_the_fault_matrix_is_there_and_counted():
    """Each once: with its tests, argued, or open; and the sentence above the table counts them."""
    proofs = list(fault_rows().values())
    argued, still_open = proofs.count("argued"), proofs.count("open")
    assert all("::test_" in proof for proof in proofs if proof not in ("argued", "open"))
    assert (f"Of the 56 rows {56 - argued - still_open} are shown by tests, {argued} argued, {still_open} "
            "open") in FAULTS


def test_no_place_was_left_to_be_filled_in():
    """A mark such as @TABLE@ stands for what was to be measured."""
    assert re.findall(r"@[A-Z]+@", FAULTS) == []


def test_every_test_that_the_fault_matrix_names_is_there():
    """By file and function."""
    named = set(re.findall(r"(test_\w+)\.py::(test_\w+)", FAULTS))
    found = {(path.stem, node.name) for path in (REPO / "tests").rglob("test_*.py")
             for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.FunctionDef)}
    assert named - found == set()


def test_the_flags_are_those_of_the_program():
    """Each flag with its help, unit and default; on a difference the expected table is in the message."""
    assert flag_table() in FLAGS, flag_table()


def test_the_commands_of_the_keras_road_parse():
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
    """They parse, and each is another task of the same cluster."""
    block = next(block for block in blocks("bash") if "--job_name=ps --task_index=1" in block)
    found = []
    for line in block.splitlines():
        told = task.parse_task(shlex.split(line)[3:], {})
        cluster = resolve(told.ps_hosts, told.worker_hosts, told.job_name, told.task_index)
        found.append((cluster.task.name, len(cluster.ps), len(cluster.workers)))
    assert found == [("ps:0", 2, 2), ("ps:1", 2, 2), ("worker:0", 2, 2), ("worker:1", 2, 2)]


def test_the_model_and_the_dataset_of_the_readme_train(tmp_path, start_process):
    """Written as they stand there, outside the repository, in one cluster."""
    for block in blocks("python"):
        (tmp_path / re.match(r"# (\w+\.py)", block)[1]).write_text(block)
    cluster = processes.TaskCluster(1, 1)
    cluster.start(start_process, ["--model=mymodel", "--dataset=mydata", "--train_steps=60",
                                  f"--train_dir={tmp_path}/train"], cwd=tmp_path)
    assert set(start_process.wait().values()) == {0}
    assert re.search(r"accuracy = 0\.[5-9]|accuracy = 1", start_process.log("worker-0"))
