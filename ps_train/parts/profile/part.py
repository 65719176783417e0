"""The part of a profile in a worker: traces some of its steps."""

from __future__ import annotations

from typing import Any

from ps_train.part import Part
from ps_train.parts.profile.flags import parse_steps
from ps_train.parts.profile.recorder import Profile
from ps_train.training.loop import RunStep


class ProfilePart(Part):
    """The profile of one worker, over all its sessions."""

    def __init__(self, config: Any, cluster: Any) -> None:
        """Takes the steps from --profile_steps."""
        steps = parse_steps("--profile_steps", config.profile_steps)
        self._profile = Profile(steps, cluster.task.name, config.train_dir)

    def around_step(self, session: Any, graph: Any, run_step: RunStep) -> RunStep:
        """Returns a function that traces the steps of the flag, or `run_step` if none is left."""
        return self._profile.run_step(session, graph) or run_step

    def ended_loop(self) -> None:
        """Prints the table and writes the timeline."""
        self._profile.finish()
