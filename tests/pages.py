"""Carries out pages of the documents as a reader would: saves their files, and runs their commands in their order."""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence

from tests import fork_server, processes
from tests.processes import DEADLINE_SECS, REPO, ProcessGroup

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# The test has its environment; a reader ends a server by hand; there is no Kubernetes (tests/system/deploy/).
_NOT_RUN = ("pip install ", "tensorboard ", "docker ", "kubectl ")
_EXIT_CODE = re.compile(r"  # exit code (\d+)$")
_COMMENT = re.compile(r"  +#.*$")


def block(page: str, language: str, beginning: str) -> str:
    """Returns the block in a language on a page of the repository that has a line with this beginning."""
    found = [text for name, text in _BLOCK.findall((REPO / page).read_text(encoding="utf-8"))
             if name == language and re.search(rf"^{re.escape(beginning)}", text, re.MULTILINE)]
    assert len(found) == 1, f"{page} has {len(found)} blocks of {language} with a line {beginning}..."
    return found[0]


def run_script(
    script: str, folder: pathlib.Path, arguments: Sequence[str] = (), env: Mapping[str, str] | None = None, *,
    timeout_secs: float = 2 * DEADLINE_SECS,
) -> str:
    """Runs a script of Python in a folder, which must end with 0; returns its output."""
    with tempfile.TemporaryFile() as output:
        code = fork_server.of_this_process().start(
            [*arguments], folder, {**os.environ, **(env or {}), "PYTHONPATH": str(REPO)}, output.fileno(),
            script=script).wait(timeout_secs)
        output.seek(0)
        text = output.read().decode(errors="replace")
    assert code == 0, text
    return text


class Reader:
    """Somebody who follows one page in an empty folder, which stands for /tmp, too.

    Attributes:
      flags: of the commands that train, in place of the page's: less work, or what `...` stands for.
      num_run: commands so far.
      ps_train_commands: the numbers of those that ran ps_train; the process of number N is "command-N".
    """

    def __init__(self, folder: pathlib.Path, group: ProcessGroup, **flags: str) -> None:
        self._folder = folder
        self._group = group
        self.flags = flags
        self._ports: dict[str, str] = {}
        self.num_run = 0
        self.ps_train_commands: list[int] = []

    def follow(self, page: str) -> None:
        """Carries out the blocks of a page; each command must end with 0, or as its comment says."""
        for language, text in _BLOCK.findall(page):
            if language == "python":
                (self._folder / re.match(r"# (\w+\.py)\n", text)[1]).write_text(text)
            elif language == "bash":
                self.run(text)
            else:
                assert language in ("text", "json", "yaml", "dockerfile"), f"no test carries out a block of {language}"

    def run(self, text: str) -> None:
        """Runs the lines of a block; those with & at the end run beside the others, and end with them."""
        started: dict[str, int] = {}
        for line in text.replace("\\\n", " ").splitlines():
            if not line.startswith(_NOT_RUN):
                started.update(self._run_line(line))
        for name, code in started.items():
            assert self._group.exit_code(name) == code, self._group.log(name)

    def _run_line(self, line: str) -> dict[str, int]:
        """Runs a command; returns the name and the expected exit code of a process of ps_train."""
        code = int(match[1]) if (match := _EXIT_CODE.search(line)) else 0
        env, words = self._split(line)
        if words[0] == "python":
            self.num_run += 1
            self._run_python(words[1:], env)
            return {}
        name = self.start(line)
        if not line.endswith("&"):
            assert self._group.exit_code(name) == code, self._group.log(name)
        return {name: code}

    def start(self, line: str) -> str:
        """Starts a command of ps_train, and returns the name of its process."""
        env, words = self._split(line)
        assert words[0] == "ps_train", line
        self.num_run += 1
        self.ps_train_commands.append(self.num_run)
        name = f"command-{self.num_run}"
        self._group.start(name, self._with_own_flags(words[1:]), cwd=self._folder, env=env)
        return name

    def _split(self, line: str) -> tuple[dict[str, str], list[str]]:
        """Returns the variables of the environment that a line sets, and the words of its command."""
        line = re.sub(r"localhost:(\d+)", self._own_port, line.replace("/tmp/", f"{self._folder}/"))
        words = shlex.split(_COMMENT.sub("", line).removesuffix("&"))
        env = {"TMPDIR": str(self._folder)}  # of a --train_dir that is not given
        while re.match(r"[A-Z_]+=", words[0]):
            name, _, env[name] = words.pop(0).partition("=")
        return env, words[2:] if words[:3] == ["python", "-m", "ps_train"] else words

    def _with_own_flags(self, words: list[str]) -> list[str]:
        if words and words[0] != "launch" and not words[0].startswith("--"):  # a verb that does not train
            return words
        kept = [word for word in words if word.partition("=")[0].removeprefix("--") not in self.flags]
        return [*kept, *(f"--{name}={value}" for name, value in self.flags.items())]

    def _run_python(self, words: list[str], env: dict[str, str]) -> None:
        if words[0] == "-m":
            subprocess.run([sys.executable, *words], cwd=self._folder, check=True, timeout=2 * DEADLINE_SECS,
                           env={**os.environ, **env, "PYTHONPATH": str(REPO)})
            return
        run_script(words[0], self._folder, words[1:], env)

    def _own_port(self, match: re.Match[str]) -> str:
        """Returns the address with a free port in place of the page's, the same one each time."""
        if match[1] not in self._ports:
            self._ports[match[1]] = str(processes.free_ports(1)[0])
        return f"localhost:{self._ports[match[1]]}"
