"""What Linux says in /proc of processes: their memory, their CPU time, and that of everybody else; else nothing."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable


def peak_memory_mb(pid: int) -> float:
    """Returns the most that a process had in memory so far, in MB; 0 where that is not known."""
    lines = [line for line in _read(f"/proc/{pid}/status").splitlines() if line.startswith("VmHWM:")]
    return int(lines[0].split()[1]) / 1024 if lines else 0.0


def memory_mb(pid: int) -> float:
    """Returns what a process has in memory now, in MB; 0 where that is not known."""
    lines = [line for line in _read(f"/proc/{pid}/status").splitlines() if line.startswith("VmRSS:")]
    return int(lines[0].split()[1]) / 1024 if lines else 0.0


def free_memory_mb() -> float:
    """Returns what new processes could have without swapping, in MB; 0 where that is not known."""
    lines = [line for line in _read("/proc/meminfo").splitlines() if line.startswith("MemAvailable:")]
    return int(lines[0].split()[1]) / 1024 if lines else 0.0


def cpu_secs(pid: int) -> float:
    """Returns the CPU time of a process so far, user and system; 0 when it has ended."""
    return _cpu_ticks(pid) / os.sysconf("SC_CLK_TCK")


def others_cpu_secs(pids: Iterable[int]) -> float | None:
    """Returns the CPU time that everybody but these processes, and this one, has taken since the machine started.

    What a virtual machine was not given by its host counts as taken ("steal", proc(5)). None where it is not known.
    """
    fields = _read("/proc/stat").partition("\n")[0].split()[1:9]
    if len(fields) < 8:
        return None
    user, nice, system, _, _, irq, soft_irq, steal = map(int, fields)
    own = sum(map(_cpu_ticks, [os.getpid(), *pids]))
    return (user + nice + system + irq + soft_irq + steal - own) / os.sysconf("SC_CLK_TCK")


def _cpu_ticks(pid: int) -> int:
    """Returns the CPU time of a process; 0 when it has ended."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()  # its name, in parentheses, may have spaces
    return int(fields[11]) + int(fields[12]) if fields else 0


def _read(path: str) -> str:
    try:
        return pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
