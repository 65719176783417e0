"""The seam between `ps_train launch` and its parts: what a part may do in place of the launcher."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ps_train.parts import table


class LaunchPart:
    """One feature of `ps_train launch`. Every method leaves the work to the launcher by default."""

    def display(self, launch_config: Any, stream: Any) -> Any:
        """Returns what shows the tasks in place of a `launch.display.Display`, with the same methods, or None.

        Args:
          launch_config: the LaunchConfig, with the part's own flags in it.
          stream: the output of the launcher.

        Raises:
          ConfigError: it cannot be shown in this way.
        """
        return None

    def machines(
        self, launch_config: Any, tasks: Any, signals: Sequence[int], grace_secs: float, *, working_dir: str = ""
    ) -> Any:
        """Returns a context that gives where the tasks run in place of a `launch.machines.ThisMachine`, or None.

        Args:
          launch_config: as for `display`.
          tasks: the `launch.command_lines.TaskList`.
          signals: the signals that the launcher has received; it grows.
          grace_secs: how long a task may take to end.
          working_dir: that of the launch; "" for that of this process.
        """
        return None


def make_launch_parts() -> list[LaunchPart]:
    """Returns the parts of a launcher."""
    return [table.attribute_of(row, "part", row.launch_part)() for row in table.TABLE if row.launch_part]
