"""A call in a thread of its own, whose outcome is handed to whoever waits for it."""

from __future__ import annotations

import threading
from typing import Any, Callable


class Call(threading.Thread):
    """Runs a function without arguments; a daemon, so that one that never returns does not keep the process."""

    def __init__(self, function: Callable[[], Any], name: str) -> None:
        """Begins the call."""
        super().__init__(daemon=True, name=name)
        self._function = function
        self._value: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        """Makes the call."""
        try:
            self._value = self._function()
        except BaseException as error:  # noqa: BLE001 (raised again by `result`, whatever it is)
            self._error = error

    def result(self) -> Any:
        """Returns what the function returned, or raises what it raised; to be asked when the thread has ended."""
        if self._error is not None:
            raise self._error
        return self._value
