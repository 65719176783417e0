"""Checks the house: how much a task imports without parts, and that ps_train trains without each of its parts.

    python scripts/check_layout.py                        what `ps_train.tasks.run` imports, parts left out
    python scripts/check_layout.py --without_parts        leaves each part out of a copy in turn, and trains there
    python scripts/check_layout.py --without_parts NAME   leaves one out

A part that is left out takes those with it that import it. In the copy, the spine's unit tests, its quick cluster tests
and a training of 2 ps and 2 workers must pass.
"""

from __future__ import annotations

import argparse
import ast
import collections
import concurrent.futures
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

REPO = pathlib.Path(__file__).resolve().parents[1]
# Of the spine that one task imports: as measured, so that it does not grow again. 95 and 13,000 are the aim.
MOST_MODULES, MOST_LINES = 91, 13_900
_TESTS = (
    *(f"tests/unit/{folder}" for folder in (
        "runtime", "cluster", "coordination", "storage", "plugins", "training", "updates")),
    # Of the cluster tests one or two quick files of each folder.
    *(f"tests/cluster/{file}.py" for file in (
        "coordination/test_agreement", "coordination/test_sessions", "storage/test_checkpoints", "training/test_loop",
        "training/test_replica_graph", "updates/test_build", "updates/sync/test_aggregation")))
_DEADLINE_SECS = 300.0
_FIRST_PORT = 24222


def modules_of(package: pathlib.Path) -> dict[str, str]:
    """Returns dotted name -> source of each module of a package."""
    sources = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        sources[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text(encoding="utf-8")
    return sources


def imports_of(modules: dict[str, str]) -> dict[str, set[str]]:
    """Returns module -> the modules of the same package that it imports, for types and in functions, too."""
    return {name: {target for target in _imported(source, modules) if target in modules}
            for name, source in modules.items()}


def _imported(source: str, modules: dict[str, str]) -> set[str]:
    imported = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            imported.update(name if name in modules else node.module for name in names)
        elif isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
    return imported


def closure(start: str, imports: dict[str, set[str]]) -> set[str]:
    """Returns what importing a module of the spine brings, the `__init__` of folders included; parts are left out."""
    seen, waiting = set(), [start]
    while waiting:
        name = waiting.pop()
        if name in seen or name.startswith("ps_train.parts") and name != "ps_train.parts.table":
            continue
        seen.add(name)
        waiting += [*imports[name], name.rpartition(".")[0]] if "." in name else imports[name]
    return seen


def parts_imported_by(name: str, imports: dict[str, set[str]]) -> set[str]:
    """Returns the parts that a part imports, directly or through one of them, and itself."""
    seen, waiting = set(), [name]
    while waiting:
        part = waiting.pop()
        if part not in seen:
            seen.add(part)
            waiting += {target.split(".")[2] for module, targets in imports.items() for target in targets
                        if f"{module}.".startswith(f"ps_train.parts.{part}.")
                        and target.startswith("ps_train.parts.") and target != "ps_train.parts.table"}
    return seen


def parts_with(name: str, imports: dict[str, set[str]]) -> set[str]:
    """Returns a part and those that need it, because they import it or one that does."""
    needed_by = collections.defaultdict(set)
    for module, targets in imports.items():
        for target in targets:
            if module.startswith("ps_train.parts.") and target.startswith("ps_train.parts."):
                needed_by[target.split(".")[2]].add(module.split(".")[2])
    seen, waiting = set(), [name]
    while waiting:
        part = waiting.pop()
        if part not in seen and part != "table":
            seen.add(part)
            waiting += needed_by[part]
    return seen


def report_closure() -> bool:
    """Prints what the task runner imports without parts; returns whether that is within the limits."""
    modules = modules_of(REPO / "ps_train")
    brought = closure("ps_train.tasks.run", imports_of(modules))
    lines = sum(modules[name].count("\n") for name in brought)
    print(f"ps_train.tasks.run imports {len(brought)} modules, {lines:,} lines, of {len(modules)} modules, "
          f"{sum(source.count(chr(10)) for source in modules.values()):,} lines (at most {MOST_MODULES} and "
          f"{MOST_LINES:,})")
    return len(brought) <= MOST_MODULES and lines <= MOST_LINES


def leave_out(repo: pathlib.Path, parts: set[str]) -> None:
    """Removes the folders of parts, and their rows of the table."""
    table = repo / "ps_train/parts/table.py"
    text = table.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    rows = {node.args[0].value: node for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "PartRow"}
    for part in parts:
        shutil.rmtree(repo / "ps_train/parts" / part)
        if part in rows:
            lines[rows[part].lineno - 1:rows[part].end_lineno] = [""] * (
                rows[part].end_lineno - rows[part].lineno + 1)
    table.write_text("".join(lines), encoding="utf-8")


def trains_without(name: str) -> bool:
    """Returns whether a copy without a part passes the spine's tests and trains; prints the output if not."""
    parts = parts_with(name, imports_of(modules_of(REPO / "ps_train")))
    start_secs = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ps_train-layout-") as folder:
        copy = pathlib.Path(folder, "repo")
        listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=REPO,
                                capture_output=True, text=True, check=True)
        for path in listed.stdout.splitlines():
            if (REPO / path).is_file():
                (copy / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(REPO / path, copy / path)
        leave_out(copy, parts)
        commands = [
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *_TESTS],
            [sys.executable, "-m", "ps_train", "launch", "--num_ps=2", "--num_workers=2", "--train_steps=200",
             "--model=tests.plugins.tiny", "--dataset=tests.plugins.tiny", f"--train_dir={folder}/train",
             f"--base_port={_FIRST_PORT}"]]
        ended = [subprocess.run(command, cwd=copy, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                timeout=_DEADLINE_SECS, check=False) for command in commands]
    has_passed = not any(process.returncode for process in ended)
    print(f"without {', '.join([name, *sorted(parts - {name})])}: {'passed' if has_passed else 'FAILED'} in "
          f"{time.monotonic() - start_secs:.0f} s", flush=True)
    for process in ended if not has_passed else ():
        print(process.stdout[-8000:])
    return has_passed


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--without_parts", nargs="*", metavar="NAME", help="leave out these parts in turn, or each")
    names = parser.parse_args().without_parts
    if names is None:
        return 0 if report_closure() else 1
    folders = sorted(path.parent.name for path in (REPO / "ps_train/parts").glob("*/__init__.py"))
    # Two at a time: half of it is waiting, for the start of processes and for ports.
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        results = list(pool.map(trains_without, names or folders))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
