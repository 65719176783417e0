"""Plans `./run_tests.sh`: prints test files in groups, a group on a line, each of which a process runs.

    python -m scripts.plan_tests [--all] FOLDER...   the groups of these folders
    python -m scripts.plan_tests --is_spine_recorded exit code 0 if the spine is what the last whole run passed with
    python -m scripts.plan_tests --changed_parts     the names of the parts that are not
    python -m scripts.plan_tests --record FILE       takes over what a whole run measured, and what it passed with

tests/record.json has both: the seconds, the memory and the CPU time of each test file, and a digest of the spine and of
each unit. A unit is a part, the documents, the benchmarks or what else _OTHER_UNITS has. The tests of a unit that is
still what the last whole run passed with are left out, but for --all; and so are those of the spine, but for _ALWAYS.
The digest of the spine has the versions of Python, TensorFlow and NumPy in it: with others, it has not passed yet.

A process costs a second, so short files share one. It keeps the servers that its tests have started and their memory,
so a group has an end, too; and so has the time for which the last one runs alone.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import importlib.metadata
import json
import pathlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ps_train.runtime.installed import tensorflow_version
from scripts.check_layout import imports_of, modules_of, parts_imported_by

REPO = pathlib.Path(__file__).resolve().parents[1]
RECORD = REPO / "tests/record.json"
SPINE = "spine"
_GROUP_SECS, _GROUP_MBYTES = 60.0, 1700.0
_UNKNOWN = (10.0, 200.0)  # seconds and 10^6 bytes of a file that the record does not have
# The tests of the spine that run whatever has changed: those without clusters, and with real processes one training by
# run_local.sh, the ways in which a training can be started, a killed worker and the command line; and what only some
# machines can run.
_ALWAYS = ("tests/unit", "tests/protocol", "tests/system/test_run_local.py", "tests/system/tasks/test_run.py",
           "tests/system/recovery/test_worker.py", "tests/system/test_main.py", "tests/system/test_gpu.py")
# Those that also check files of units: the documents, the flags, names and models of parts.
_OF_UNITS = ("tests/system/test_docs.py", "tests/system/test_installed.py", "tests/cluster/test_tensorflow_names.py",
             "tests/cluster/parts/optimizer_rule/test_part.py")
# Folders and files of the units that are no parts: what they are made of, and their tests.
_OTHER_UNITS = {
    "docs": (("docs", "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "mkdocs.yml"), (
        "tests/cluster/test_pages.py", "tests/cluster/test_recipes.py", "tests/system/test_sweep.py")),
    "docs/how_to": ([f"docs/{page}.md" for page in (
        "clusters", "config_files", "data", "embeddings", "inference", "kubernetes", "migrate", "operate", "profile",
        "python", "report")], ("tests/system/test_how_to.py",)),
    "docs/tutorial": (("docs/tutorial", "docs/index.md"), ("tests/system/test_tutorial.py",)),
    "examples": (("examples",), ("tests/system/test_examples.py",)),
    "deploy": (("deploy", "docs/kubernetes.md", "docs/jobset.md", "docs/tutorial/kubernetes.md",
                "ps_train/parts/schedulers"), ("tests/system/deploy",)),
    "benchmarks": (("benchmarks",), ("tests/unit/benchmarks", "tests/system/benchmarks")),
    "models": (("models", "data", "ps_train/parts/readers", "ps_train/parts/tables"),
               ("tests/cluster/models", "tests/cluster/data")),
    "soak": ([f"tests/{name}.py" for name in (
        "soak", "soak_machines", "soak_publish", "soak_ranges", "history", "history_files", "plugins/recorded")],
        ("tests/system/test_soak.py", "tests/cluster/test_history.py")),
}


class Unit(NamedTuple):
    """What is tested together.

    Attributes:
      sources: its folders and files, and those of the parts that it imports.
      tests: the folders and files of its tests.
    """

    sources: Sequence[str]
    tests: Sequence[str]


@functools.cache  # it reads each module
def units() -> dict[str, Unit]:
    """Returns name -> unit, the spine not among them."""
    imports = imports_of(modules_of(REPO / "ps_train"))
    found = {name: Unit(*own) for name, own in _OTHER_UNITS.items()}
    for path in sorted((REPO / "ps_train/parts").glob("*/__init__.py")):
        name = path.parent.name
        needed = sorted({name, *parts_imported_by(name, imports)})
        found[f"parts/{name}"] = Unit([f"ps_train/parts/{part}" for part in needed],
                                      [f"tests/{kind}/parts/{name}" for kind in ("unit", "cluster", "system")])
    return found


def digests() -> dict[str, str]:
    """Returns the digest of the spine and of each unit, over the paths and contents of its files; none without git."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=REPO,
                            capture_output=True, text=True, check=False).stdout.split("\0")
    if listed == [""]:
        return {}
    paths = {path for path in listed if path and path != "tests/record.json" and (REPO / path).is_file()}
    files = {name: {path for path in paths if _is_below(path, [*unit.sources, *unit.tests])}
             for name, unit in units().items()}
    files[SPINE] = paths.difference(*files.values())
    return {name: _digest(files[name], versions() if name == SPINE else "") for name in sorted(files)}


def versions() -> str:
    """Returns the versions of what the spine runs on, as text."""
    python = ".".join(map(str, sys.version_info[:2]))
    return f"python {python}, tensorflow {tensorflow_version()}, numpy {importlib.metadata.version('numpy')}"


def _is_below(path: str, places: Sequence[str]) -> bool:
    return any(path == place or path.startswith(f"{place}/") for place in places)


def _digest(paths: set[str], versions_of_packages: str) -> str:
    digest = hashlib.sha256(versions_of_packages.encode())
    for path in sorted(paths):
        digest.update(f"{path}\0{hashlib.sha256((REPO / path).read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]


def read_record() -> dict[str, dict]:
    """Returns tests/record.json, empty if it is missing."""
    return json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {"passed": {}, "files": {}}


def write_record(measured: Mapping[str, Sequence[float]]) -> None:
    """Writes what a whole run measured, file -> (seconds, 10^6 bytes, CPU seconds), and what it passed with."""
    lines = [f'  "{name}": {json.dumps([round(value) for value in taken])}' for name, taken in sorted(measured.items())]
    passed = [f'  "{name}": "{digest}"' for name, digest in digests().items()]
    RECORD.write_text('{"passed": {\n' + ",\n".join(passed) + '\n},\n"files": {\n' + ",\n".join(lines) + "\n}}\n",
                      encoding="utf-8")


def changed_units() -> set[str]:
    """Returns the names of the units, the spine among them, that are not what the last whole run passed with."""
    passed, now = read_record()["passed"], digests()
    return {name for name in (SPINE, *units()) if name not in now or now[name] != passed.get(name)}


def groups(names: Sequence[str], files: Mapping[str, Sequence[float]]) -> list[list[str]]:
    """Returns test files in groups within both limits, a file beyond one of them alone, with the longest group first.

    Args:
      files: test file -> (seconds, 10^6 bytes), and what else the record has.
    """
    found: list[list[str]] = []
    totals: list[list[float]] = []
    for name in sorted(names, key=lambda name: (-files.get(name, _UNKNOWN)[0], name)):
        secs, mbytes = files.get(name, _UNKNOWN)[:2]
        for group, total in zip(found, totals):
            if total[0] + secs <= _GROUP_SECS and total[1] + mbytes <= _GROUP_MBYTES:
                group.append(name)
                total[:] = total[0] + secs, total[1] + mbytes
                break
        else:
            found.append([name])
            totals.append([secs, mbytes])
    return [group for _, group in sorted(zip(totals, found), reverse=True)]


def plan(folders: Sequence[str], *, is_whole: bool) -> list[list[str]]:
    """Returns the groups of the test files in some folders, in the order in which they are to be started."""
    files, changed = read_record()["files"], changed_units()
    left_out = [] if is_whole else [place for name, unit in units().items() if name not in changed
                                    for place in unit.tests]
    is_spine_left_out = not is_whole and SPINE not in changed
    kept = [*_ALWAYS, *(_OF_UNITS if changed else ()), *(place for unit in units().values() for place in unit.tests)]
    planned = []
    for folder in folders:
        names = [path.relative_to(REPO).as_posix() for path in sorted((REPO / folder).rglob("test_*.py"))]
        names = [name for name in names if not _is_below(name, left_out)
                 and not (is_spine_left_out and not _is_below(name, kept))]
        for is_keras in (False, True):  # Keras runs in TensorFlow's other mode, which is that of a whole process
            planned.append(groups([name for name in names if _is_keras(name) == is_keras], files))
    longest = max(map(len, planned), default=0)
    # Folder by folder in turn: one computes while the other waits.
    return [groups_of[number] for number in range(longest) for groups_of in planned if number < len(groups_of)]


def _is_keras(name: str) -> bool:
    folders = name.split("/")
    return "keras" in folders and folders[1] != "unit"  # pure tests have no mode


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="*", metavar="FOLDER")
    parser.add_argument("--all", action="store_true", help="leave out nothing")
    parser.add_argument("--is_spine_recorded", action="store_true")
    parser.add_argument("--changed_parts", action="store_true")
    parser.add_argument("--record", type=pathlib.Path, help="a JSON object: file -> [seconds, 10^6 bytes, CPU seconds]")
    options = parser.parse_args()
    if options.is_spine_recorded:
        return 1 if SPINE in changed_units() else 0
    if options.changed_parts:
        print(*sorted(name.partition("/")[2] for name in changed_units() if name.startswith("parts/")))
    if options.record:
        write_record(json.loads(options.record.read_text(encoding="utf-8")))
    for group in plan(options.folders, is_whole=options.all):
        print(*group)
    return 0


if __name__ == "__main__":
    sys.exit(main())
