"""Which training a session is for: a script may train several times, folds or one model after another.

    the parameters on the ps are in use     by this process     --> `continues`: is it the same training?
                                            by the one before   --> `is_another`: what did its chief write there?

Only the same training goes on with them. Another one restores its own checkpoint or begins with new parameters, as
with TensorFlow's classes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from typing import Any

import tensorflow.compat.v1 as tf

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class ScriptTraining:
    """What a session trains.

    Attributes:
      owner: what makes the sessions of this training, also after the loss of one: a `SessionManager`, or a graph.
      checkpoint_dir: from where its parameters are restored; None or "" for nowhere.
      variables: the names and shapes of its variables, as text.
    """

    owner: Any
    checkpoint_dir: str | None
    variables: frozenset[str]

    def continues(self, other: ScriptTraining) -> bool:
        """Returns whether this is the same training: of the same owner, or of the same checkpoints.

        Each `Estimator.train` has an owner of its own. A folder without a checkpoint is none to go on from: a script
        may have removed them before its next fold.
        """
        return self.owner is other.owner or (self.resembles(other) and self._has_checkpoint())

    def resembles(self, other: ScriptTraining) -> bool:
        """Returns whether owner, or variables and folder, are the same, as when a script tries again after a loss."""
        return self.owner is other.owner or (
            self.checkpoint_dir == other.checkpoint_dir and self.variables == other.variables)

    def fingerprint(self, number: int) -> str:
        """Returns what the chief writes on the blackboard, for the process after it.

        Args:
          number: how many trainings of the process came before.
        """
        names = hashlib.sha256("\n".join(sorted(self.variables)).encode()).hexdigest()
        return json.dumps({"variables": names, "--train_dir": str(self.checkpoint_dir or ""), "number": number})

    def is_another(self, fingerprint: str) -> bool:
        """Returns whether the first training of a process is not the one that a process before has announced.

        The folder tells, if this training has saved there. Else it may have a new name at each start, so the number
        tells: a script that is started again begins with its first training.
        """
        if not fingerprint:  # of another worker, whose folder and variables may differ from the chief's
            return False
        theirs, own = json.loads(fingerprint), json.loads(self.fingerprint(number=0))
        decides = "--train_dir" if self._has_checkpoint() else "number"
        return any(theirs.get(name) != own[name] for name in ("variables", decides))

    def warn_of_loss(self) -> None:
        """Says from where this training goes on after a ps has lost its parameters."""
        path = tf.train.latest_checkpoint(self.checkpoint_dir) if self.checkpoint_dir else None
        if path:
            _log.warning("a ps has lost its parameters: restoring all ps from %s", path)
        else:
            _log.warning("a ps has lost its parameters, and NO CHECKPOINT was saved before: STARTING AGAIN from new "
                         "parameters; save more often to lose less")

    def _has_checkpoint(self) -> bool:
        return bool(self.checkpoint_dir) and tf.train.latest_checkpoint(self.checkpoint_dir) is not None


def variables_of(graph: tf.Graph) -> frozenset[str]:
    """Returns the names and shapes of a graph's global variables, each as one text."""
    return frozenset(f"{variable.name} {variable.shape}" for variable in graph.get_collection(
        tf.GraphKeys.GLOBAL_VARIABLES))
