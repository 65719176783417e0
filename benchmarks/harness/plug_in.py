"""The model plug-ins of ps_train, for those who run the same model without it: the classic loop and the evaluation."""

from __future__ import annotations

from typing import Any, NamedTuple

from ps_train.plugins import contracts, loader
from ps_train.plugins.params import resolve_params


class PlugIn(NamedTuple):
    """A model with its parameters."""

    model: contracts.Model
    params: dict[str, Any]

    def build(self, features: Any, labels: Any, mode: str) -> contracts.ModelSpec:
        """Adds the model to the current graph."""
        return self.model.model_fn(features=features, labels=labels, mode=mode, params=self.params)


def load(name: str, params: str, seed: int | None = None) -> PlugIn:
    """Returns the model of a dotted name, with what `--params` says.

    Raises:
      ConfigError: there is no such model, or it knows no such parameter.
    """
    model = loader.load_model(name)
    (resolved,) = resolve_params(params, [model], {"hidden_units": 100, "seed": seed})
    return PlugIn(model, resolved)
