"""Examines this machine: Python, TensorFlow, numpy, processor, memory, ports, disk and GPU; defines a `Finding`."""

from __future__ import annotations

import contextlib
import glob
import importlib.metadata
import os
import platform
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import NamedTuple

from ps_train import __version__
from ps_train.cluster import ports
from ps_train.errors import ConfigError
from ps_train.runtime.installed import tensorflow_problem, tensorflow_version

OK, WARN, FAIL = "ok", "warn", "fail"
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
    problem = tensorflow_problem(version)
    packages = sorted({str(package.metadata["Name"]) for package in importlib.metadata.distributions()
                       if "tensorflow" in (package.read_text("top_level.txt") or "").split()})
    if problem:
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
    """Yields whether processor and memory suffice for this number of tasks."""
    flags = _cpu_flags()
    if flags is None:
        yield Finding(OK, "processor", f"{platform.machine()}, its features are not known here")
    elif "avx" not in flags and platform.machine() in ("x86_64", "AMD64"):
        yield Finding(FAIL, "processor", "no AVX, which the packages of TensorFlow need: use another machine or build "
                                         "TensorFlow there")
    else:
        vector_units = [name for name in ("avx", "avx2", "fma", "avx512f", "asimd") if name in flags]
        yield Finding(OK, "processor", f"{platform.machine()} with {' '.join(vector_units) or 'no vector units'}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    amount = f"{cores} for {num_tasks} task{'s' * (num_tasks > 1)}"
    yield Finding(OK, "cores", amount) if cores >= num_tasks else Finding(
        WARN, "cores", f"{amount}, which share them: start fewer, or use more machines with --hosts")
    free = _free_memory()
    if free is not None:
        amount = f"{free / 1e9:.1f} GB free for {num_tasks} task{'s' * (num_tasks > 1)}"
        yield Finding(OK, "memory", amount) if free >= num_tasks * _TASK_BYTES else Finding(
            WARN, "memory", f"{amount}, which take {_TASK_BYTES / 1e9:.1f} GB each, and the model: start fewer, or use "
                            "more machines with --hosts")


def _cpu_flags() -> set[str] | None:
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name.strip() in ("flags", "Features"):
                return set(value.split())
    return None


def _free_memory() -> float | None:
    with contextlib.suppress(OSError, ValueError), open("/proc/meminfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return float(line.split()[1]) * 1024
    return None


def free_ports(count: int, first: int) -> Iterator[Finding]:
    """Yields whether so many ports are free from the first one on."""
    try:
        held = ports.hold_ports(count, first)
    except ConfigError as error:
        yield Finding(FAIL, "ports", str(error))
        return
    numbers = [holder.getsockname()[1] for holder in held]
    for holder in held:
        holder.close()
    yield Finding(OK, "ports", f"{', '.join(map(str, numbers))} are free")


def gpus() -> Iterator[Finding]:
    """Yields the GPUs of the system; TensorFlow's list would take seconds."""
    gpus = sorted(glob.glob("/dev/nvidia[0-9]*"))
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if gpus and hidden in ("", "-1"):
        yield Finding(WARN, "GPU", f"{len(gpus)} there, but CUDA_VISIBLE_DEVICES={hidden} hides them: unset it")
    else:
        yield Finding(OK, "GPU", f"{len(gpus)} of NVIDIA's" if gpus else "none; workers compute on the CPU")


def folder(path: str) -> Iterator[Finding]:
    """Yields whether a train_dir can be written, its space and its speed; makes no folder."""
    existing = os.path.abspath(path)
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    if not os.path.isdir(existing):
        yield Finding(FAIL, "train_dir", f"{existing} is not a directory, so {path} cannot be made; give another "
                                         "--train_dir")
        return
    free = shutil.disk_usage(existing).free
    if free < _FREE_BYTES:
        yield Finding(WARN, "disk", f"{free / 1e9:.2f} GB free in {existing}: checkpoints may not fit; make room, or "
                                    "give another --train_dir")
    else:
        yield Finding(OK, "disk", f"{free / 1e9:.1f} GB free in {existing}")
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
    speed_text = f"{existing} takes {speed / 1e6:.0f} MB/s, on a file system of type {_file_system(existing)}"
    yield Finding(OK, "train_dir", speed_text) if speed >= _SLOW_BYTES_PER_SEC else Finding(
        WARN, "train_dir", f"{speed_text}: saving will be slow; use a faster disk, or a larger --save_model_secs")


def _file_system(path: str) -> str:
    """Returns the type of the mount that has a path, such as nfs4."""
    path = os.path.realpath(path)
    best, file_system = "", "unknown"
    with contextlib.suppress(OSError), open("/proc/mounts", encoding="utf-8", errors="replace") as file:
        for line in file:
            _, mount, kind, *_ = line.split()
            if len(mount) >= len(best) and (path == mount or path.startswith(mount.rstrip("/") + "/")):
                best, file_system = mount, kind
    return file_system


def own_name() -> Iterator[Finding]:
    """Yields whether the name of this machine resolves."""
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
        yield Finding(OK, "host name", name)
    except OSError as error:
        yield Finding(WARN, "host name", f"{name} does not resolve here ({error.strerror}): use addresses in the host "
                                         "lists, or add it to /etc/hosts")
