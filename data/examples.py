"""Images with their labels, split into training and test set, and the share of one worker."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ps_train.errors import DataError


class Examples(NamedTuple):
    """Images and their labels."""

    images: np.ndarray  # uint8 [n, 28, 28], or as rows [n, 784]
    labels: np.ndarray  # int32 [n], 0..9

    def as_rows(self) -> Examples:
        """Returns the same examples with the pixels of an image in one row: [n, 784]."""
        return Examples(self.images.reshape(len(self.images), -1), self.labels)

    def part(self, start: int, stop: int) -> Examples:
        """Returns the examples `start` to `stop` - 1, without a copy."""
        return Examples(self.images[start:stop], self.labels[start:stop])

    def shard(self, index: int, count: int) -> Examples:
        """Returns the examples whose number modulo `count` is `index`, without a copy.

        Raises:
            DataError: there are too few examples.
        """
        if index >= len(self.labels):
            raise DataError(
                "too_few_examples", f"shard {index} of {count} has none of the {len(self.labels)} examples; every "
                "worker needs one: use fewer workers or more examples"
            )
        return Examples(self.images[index::count], self.labels[index::count])


class Splits(NamedTuple):
    """The training examples and the test examples."""

    train: Examples
    test: Examples
