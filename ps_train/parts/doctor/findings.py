"""What a check found, and the line that says it."""

from __future__ import annotations

from typing import NamedTuple

OK, WARN, FAIL = "ok", "warn", "fail"


class Finding(NamedTuple):
    """What a check found.

    Attributes:
      verdict: OK, WARN, or FAIL, with which no training can begin.
      subject: what was examined, such as "TensorFlow".
      text: what is there, and, unless it is ok, what to do.
    """

    verdict: str
    subject: str
    text: str

    def line(self) -> str:
        """Returns the line of the report."""
        return f"{self.verdict:4} {self.subject}: {self.text}"
