"""What is trained, as a value that fits into --params."""

from __future__ import annotations

import dataclasses

from ps_train.plugins.params import split_params


@dataclasses.dataclass(frozen=True)
class Work:
    """A model and its ids.

    Attributes:
      num_ids: of all fields together; the rows of a table.
      dim: floats of an id's vector.
      layers: units of the ReLU layers, as in 256x128; "" for the sum of all elements of the rows, and nothing else.
      is_dynamic: whether ps_train makes rows as ids come; else it is told `num_ids`.
      fill: "" for examples of a folder. Else ids are uniform in [0, num_ids); and before, each id whose number divides
        by this is looked up once, so that the memory of the table is there when time is measured.
    """

    num_ids: int = 10_000_000
    dim: int = 16
    layers: str = "256x128"
    is_dynamic: bool = False
    fill: int = 0

    @property
    def params(self) -> str:
        """The text of --params."""
        return ",".join(f"{name}={value}" for name, value in dataclasses.asdict(self).items())

    @property
    def width(self) -> int:
        """Floats in a row: DeepFM's have the weight of the id, too."""
        return self.dim + 1 if self.layers else self.dim

    @classmethod
    def parse(cls, params: str) -> Work:
        """Returns the value of a text of `params`."""
        given = split_params("--params", params)
        kinds = {"bool": lambda text: text == "True", "int": int, "str": str}
        return cls(**{field.name: kinds[str(field.type)](given[field.name]) for field in dataclasses.fields(cls)
                      if field.name in given})
