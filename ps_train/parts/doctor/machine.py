"""Examines this machine: Python, TensorFlow, numpy, processor, memory, ports, disk and GPU; defines a `Finding`."""

from __future__ import annotations

import contextlib
import glob
import importlib.metadata
import os
import pathlib
import platform
import re
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import NamedTuple

from ps_train import __version__
from ps_train.errors import ConfigError
from ps_train.launch.machines import hold_ports
from ps_train.runtime import threads
from ps_train.runtime.installed import tensorflow_problem, tensorflow_version

OK, WARN, FAIL = "ok", "warn", "fail"
_CGROUPS, _MOUNTS = "/sys/fs/cgroup", "/proc/mounts"
_TASK_BYTES = 700e6  # of a task's memory: TensorFlow 2.21 and a small model, measured with `ps_train plan`
_FREE_BYTES = 1e9
_PROBE_BYTES = 16 << 20
_SLOW_BYTES_PER_SEC = 20e6


class Finding(NamedTuple):
    """The result of a check.

    Attributes:
      verdict: OK, WARN, or FAIL, with which no training can begin.
      subject: the thing examined, such as "TensorFlow".
      text: its state and, unless it is ok, what to do.
    """

    verdict: str
    subject: str
    text: str

    def line(self) -> str:
        """Returns the line of the report."""
        return f"{self.verdict:4} {self.subject}: {self.text}"


def software() -> Iterator[Finding]:
    """Yields the packages installed in this Python."""
    yield Finding(OK, "Python", f"{platform.python_version()} at {sys.executable}, ps_train {__version__}")
    version = tensorflow_version()
    packages = sorted({str(package.metadata["Name"]) for package in importlib.metadata.distributions()
                       if "tensorflow" in (package.read_text("top_level.txt") or "").split()})
    if problem := tensorflow_problem(version):
        yield Finding(FAIL, "TensorFlow", problem)
    elif len(packages) > 1:
        yield Finding(WARN, "TensorFlow", f"several packages contain it: {', '.join(packages)}; they overwrite each "
                                          "other's files: uninstall all, and install one")
    else:
        yield Finding(OK, "TensorFlow", version or "a build without a package")
    try:
        yield Finding(OK, "numpy", importlib.metadata.version("numpy"))
    except importlib.metadata.PackageNotFoundError:
        yield Finding(FAIL, "numpy", "not installed: `pip install numpy`")


def processor(num_tasks: int) -> Iterator[Finding]:
    """Yields whether processor, cores and memory suffice for this number of tasks."""
    is_intel = platform.machine() in ("x86_64", "AMD64")
    flags = (_first_value("/proc/cpuinfo", "flags", "Features") or "").split()
    if not flags:
        yield Finding(OK, "processor", f"{platform.machine()}, its features are not known here")
    elif "avx" not in flags and is_intel:
        yield Finding(FAIL, "processor", "no AVX, which the packages of TensorFlow need: use another machine or build "
                                         "TensorFlow there")
    else:
        vector_units = [name for name in ("avx", "avx2", "fma", "avx512f", "asimd") if name in flags]
        yield Finding(OK, "processor", f"{platform.machine()} with {' '.join(vector_units) or 'no vector units'}")
    cores = threads.num_cores()
    tasks = f"for {num_tasks} task{'s' * (num_tasks > 1)}"
    yield _ok_or_warning(cores >= num_tasks, "cores", f"{cores} {tasks}",
                         ", which share them: start fewer, or use more machines with --hosts")
    if (free_bytes := free_memory()) is not None:
        yield _ok_or_warning(free_bytes >= num_tasks * _TASK_BYTES, "memory", f"{free_bytes / 1e9:.1f} GB free {tasks}",
                             f", which take {_TASK_BYTES / 1e9:.1f} GB each, and the model: start fewer, or use more "
                             "machines with --hosts")


def _ok_or_warning(is_ok: bool, subject: str, state: str, advice: str) -> Finding:
    return Finding(OK, subject, state) if is_ok else Finding(WARN, subject, state + advice)


def free_memory() -> float | None:
    """Returns the bytes that are free for processes, at most what the limits of a container or a Slurm job leave.

    The limits are those of cgroup version 2. None if the memory is unknown.
    """
    kilobytes = _first_value("/proc/meminfo", "MemAvailable")
    free = [float(kilobytes.split()[0]) * 1024] if kilobytes else []
    own = pathlib.Path(_CGROUPS, (_first_value("/proc/self/cgroup", "0") or "").strip(":/"))
    for group in (own, *own.parents):
        with contextlib.suppress(OSError, ValueError):  # none, no limit ("max"), or cgroups of version 1
            limit, used = (int((group / f"memory.{name}").read_text(encoding="ascii")) for name in ("max", "current"))
            counts = (group / "memory.stat").read_text(encoding="ascii").split()
            # Of the files in memory the kernel drops these first; the kubelet counts so, too.
            dropped = int(counts[counts.index("inactive_file") + 1])
            free.append(float(max(0, limit - used + dropped)))
    return min(free, default=None)


def _first_value(path: str, *names: str) -> str | None:
    """Returns the value of the first line `name: value` with one of the names; None without such a line or file."""
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name.strip() in names:
                return value.strip()
    return None


def free_ports(count: int, first: int) -> Finding:
    """Returns whether this number of ports is free, from the first one."""
    try:
        held = hold_ports(count, first)
    except ConfigError as error:
        return Finding(FAIL, "ports", str(error))
    numbers = [holder.getsockname()[1] for holder in held]
    for holder in held:
        holder.close()
    return Finding(OK, "ports", f"{', '.join(map(str, numbers))} are free")


def gpus() -> Finding:
    """Returns the GPUs of the system; TensorFlow's list would take seconds."""
    num_gpus = len(glob.glob("/dev/nvidia[0-9]*"))
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if num_gpus and hidden in ("", "-1"):
        return Finding(WARN, "GPU", f"{num_gpus} there, but CUDA_VISIBLE_DEVICES={hidden} hides them: unset it")
    return Finding(OK, "GPU", f"{num_gpus} of NVIDIA's" if num_gpus else "none; workers compute on the CPU")


def folder(path: str) -> Iterator[Finding]:
    """Yields whether a train_dir can be written, its space and its speed; makes no folder."""
    existing = os.path.abspath(path)
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    if not os.path.isdir(existing):
        yield Finding(FAIL, "train_dir", f"{existing} is not a directory, so {path} cannot be made; give another "
                                         "--train_dir")
        return
    yield disk(existing, "give another --train_dir")
    try:
        with tempfile.NamedTemporaryFile(dir=existing, prefix=".ps_train-doctor-") as file:
            start_secs = time.monotonic()
            file.write(os.urandom(1 << 20) * (_PROBE_BYTES >> 20))
            file.flush()
            os.fsync(file.fileno())
            speed = _PROBE_BYTES / max(time.monotonic() - start_secs, 1e-6)
    except OSError as error:
        yield Finding(FAIL, "train_dir", f"{existing} cannot be written: {error.strerror}; give another --train_dir")
        return
    yield speed_of(speed, f"{existing} takes {speed / 1e6:.0f} MB/s, on a file system of type "
                          f"{_file_system(existing)}", "use a faster disk")


def disk(existing: str, advice: str) -> Finding:
    """Returns whether there is room for checkpoints in a folder."""
    free_bytes = shutil.disk_usage(existing).free
    return _ok_or_warning(free_bytes >= _FREE_BYTES, "disk", f"{free_bytes / 1e9:.2f} GB free in {existing}",
                          f": checkpoints may not fit; make room, or {advice}")


def speed_of(bytes_per_sec: float, text: str, advice: str) -> Finding:
    """Returns whether a train_dir is written fast enough."""
    return _ok_or_warning(bytes_per_sec >= _SLOW_BYTES_PER_SEC, "train_dir", text,
                          f": saving will be slow; {advice}, or a larger --save_model_secs")


def _file_system(path: str) -> str:
    """Returns the type of the mount that has a path, such as nfs4."""
    path = os.path.realpath(path)
    longest_mount, file_system = "", "unknown"
    with contextlib.suppress(OSError), open(_MOUNTS, encoding="utf-8", errors="replace") as file:
        for line in file:
            _, mount, kind, *_ = line.split()
            mount = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), mount)  # a blank is \040 there
            if len(mount) >= len(longest_mount) and (path == mount or path.startswith(mount.rstrip("/") + "/")):
                longest_mount, file_system = mount, kind
    return file_system


def host_name() -> Finding:
    """Returns whether the name of this machine resolves."""
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError as error:
        return Finding(WARN, "host name", f"{name} does not resolve here ({error.strerror}): use addresses in the host "
                                          "lists, or add it to /etc/hosts")
    return Finding(OK, "host name", name)
