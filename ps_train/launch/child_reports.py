"""The reports that a child process sends to the launcher, and the lines in its log that say the same.

    child --JSON, see runtime/reports.py--> a file without a name --> read --> of_line(line of the log) -> report
"""

from __future__ import annotations

import collections
import os
import tempfile

from ps_train.runtime import reports
from ps_train.runtime.reports import Joined, Report

_READ_BYTES = 1 << 20


class ChildReports:
    """A file that takes the reports of a child, also after its restarts.

    The file has no name, so nothing is left of it when the launcher ends, however it ends. A file, unlike a pipe, never
    blocks a child while the launcher is stopped.
    """

    def __init__(self, folder: str) -> None:
        """Creates the file in the file system of a folder."""
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (open as long as the child may be restarted)
        self._read_bytes = 0
        self._has_joined = False
        self._unfinished_line = b""
        # Lines that are, or will be, in the log.
        self._expected: collections.deque[tuple[str, Report]] = collections.deque()

    @property
    def descriptor(self) -> int:
        """The open file, for the child."""
        return self._file.fileno()

    def of_line(self, line: str) -> Report | None:
        """Returns the report of which a line of the log is part, or None. Call it with the lines in their order."""
        self._read()
        for index, (expected, report) in enumerate(self._expected):
            if line == expected or line.endswith(f" {expected}"):  # after the time of day
                for _ in range(index + 1):  # what was skipped is not in the log: the disk was full
                    self._expected.popleft()
                return report
        return None

    def has_joined(self) -> bool:
        """Returns whether the child has reported that it has joined, whatever became of the line in its log."""
        self._read()
        return self._has_joined

    def _read(self) -> None:
        # The child has the same open file: pread does not move the position at which it writes.
        while chunk := os.pread(self.descriptor, _READ_BYTES, self._read_bytes):
            self._read_bytes += len(chunk)
            *lines, self._unfinished_line = (self._unfinished_line + chunk).split(b"\n")
            for report, log_lines in filter(None, (reports.decode(line.decode("utf-8", "replace")) for line in lines)):
                self._has_joined = self._has_joined or isinstance(report, Joined)
                self._expected += ((line, report) for line in log_lines if line)
