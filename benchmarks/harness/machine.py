"""What the figures were measured on."""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import platform
import re


def describe() -> dict[str, str]:
    """Returns processor, cores, system and versions, in words."""
    return {"CPU": f"{_processor()}, {_cores()} cores", "system": f"{platform.system()} {platform.release()}",
            "Python": platform.python_version(),
            **({"TF_NUM_INTRAOP_THREADS": threads} if (threads := os.environ.get("TF_NUM_INTRAOP_THREADS")) else {}),
            **{name: version for name in ("tensorflow", "torch", "numpy") if (version := _version(name))}}


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*: (.+)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.machine()


def _cores() -> int:
    """Returns those that this process may use, which is what taskset and containers limit."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
