"""Images and labels in memory, returned as numpy mini-batches, epoch after epoch.

An epoch is a permutation of row numbers, and a batch copies only its own rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

NUM_CLASSES = 10
IMAGE_PIXELS = 784
# The number of examples that a fake DataSet reports, as in the old tutorial.
_NUM_FAKE_EXAMPLES = 10000


class DataSet:
    """Images and labels, returned in mini-batches, epoch after epoch.

    Args:
        images: uint8 [n, rows, columns] or [n, rows, columns, 1]; not used for fake data.
        labels: [n], or [n, classes] if they are one-hot; not used for fake data.
        fake_data: every image is 784 ones and every label 0.
        one_hot: whether the labels of fake data are one-hot.
        dtype: np.float32 rescales the pixels from [0, 255] to [0, 1], np.uint8 leaves them.
        reshape: whether images become rows [n, rows * columns].
        seed: the shuffling seed; None shuffles in a different order each time.

    Raises:
        TypeError: the dtype is neither of these.
        ValueError: images and labels do not match, or have another shape.
    """

    def __init__(
        self,
        images: Any,
        labels: Any,
        fake_data: bool = False,
        one_hot: bool = False,
        dtype: Any = np.float32,
        reshape: bool = True,
        seed: int | None = None,
    ) -> None:
        """See the class."""
        self._dtype = pixel_dtype(dtype)
        self._fake_data = fake_data
        self._one_hot = one_hot
        self._images, self._labels = np.asarray(images), np.asarray(labels)
        if not fake_data:
            _check_same_length(self._images, self._labels)
            rows = _as_rows(self._images) if reshape else self._images
            self._images = _rescale(rows, self._dtype)
        self._num_examples = _NUM_FAKE_EXAMPLES if fake_data else len(self._images)
        self._rng = np.random.default_rng(seed)
        self._order = np.arange(len(self._images))
        self._index_in_epoch = 0
        self._epochs_completed = 0

    @property
    def images(self) -> np.ndarray:
        """All images, [n, rows * columns] or as they were given, in the order of the file."""
        return self._images

    @property
    def labels(self) -> np.ndarray:
        """All labels, [n] or [n, classes], in the order of the file."""
        return self._labels

    @property
    def num_examples(self) -> int:
        """The number of examples in an epoch."""
        return self._num_examples

    @property
    def epochs_completed(self) -> int:
        """The number of completed epochs: an epoch is complete when a batch has an example of the next one."""
        return self._epochs_completed

    def next_batch(
        self, batch_size: int, fake_data: bool = False, shuffle: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the next mini-batch: each example once per epoch; a batch may continue into the next epoch.

        Args:
            batch_size: number of examples.
            fake_data: returns 784 ones and label 0 for each example, regardless of the DataSet.
            shuffle: whether an epoch that begins in this batch gets a new order; otherwise it keeps
                the order of the previous one, initially that of the file.

        Returns:
            Images [batch_size, ...] and labels [batch_size, ...].

        Raises:
            ValueError: batch_size is below 1, or there are no examples.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}; give 1 or more")
        if fake_data or self._fake_data:
            return self._fake_batch(batch_size)
        rows = self._next_rows(batch_size, shuffle)
        return self._images[rows], self._labels[rows]

    def _next_rows(self, batch_size: int, shuffle: bool) -> np.ndarray:
        """Returns the row numbers of the batch's examples, without copying any image."""
        if not self._num_examples:
            raise ValueError("this DataSet has no examples; take fewer of them for validation")
        if shuffle and self._index_in_epoch == 0:  # the first epoch begins
            self._shuffle()
        pieces = []
        while batch_size:
            if self._index_in_epoch == self._num_examples:
                self._begin_next_epoch(shuffle)
            piece = self._order[self._index_in_epoch :][:batch_size]
            self._index_in_epoch += len(piece)
            batch_size -= len(piece)
            pieces.append(piece)
        return np.concatenate(pieces)

    def _begin_next_epoch(self, shuffle: bool) -> None:
        self._epochs_completed += 1
        self._index_in_epoch = 0
        if shuffle:
            self._shuffle()

    def _shuffle(self) -> None:
        # not in place: a batch may still be using part of the previous order
        self._order = self._rng.permutation(self._order)

    def _fake_batch(self, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.zeros(batch_size, np.uint8)
        images = np.ones((batch_size, IMAGE_PIXELS), self._dtype)
        return images, dense_to_one_hot(labels) if self._one_hot else labels


def dense_to_one_hot(labels: np.ndarray, num_classes: int = NUM_CLASSES) -> np.ndarray:
    """Class numbers [n] as float64 [n, num_classes], with a 1 in the column of the class."""
    return np.eye(num_classes)[labels]


def pixel_dtype(dtype: Any) -> np.dtype:
    """Returns the numpy dtype for a numpy or TensorFlow dtype.

    Raises:
        TypeError: it is not a dtype of images, uint8 or float32.
    """
    pixel_type = np.dtype(getattr(dtype, "as_numpy_dtype", dtype))
    if pixel_type not in (np.uint8, np.float32):
        raise TypeError(f"image dtype is {pixel_type}; allowed are uint8 and float32")
    return pixel_type


def _check_same_length(images: np.ndarray, labels: np.ndarray) -> None:
    if len(images) != len(labels):
        raise ValueError(f"{len(images)} images but {len(labels)} labels; give as many of each")


def _as_rows(images: np.ndarray) -> np.ndarray:
    if images.ndim not in (3, 4) or images.shape[3:] not in ((), (1,)):
        raise ValueError(
            f"images have shape {list(images.shape)}; to be reshaped they must be "
            "[n, rows, columns] or [n, rows, columns, 1]: give reshape=False to keep them so"
        )
    return images.reshape(len(images), images.shape[1] * images.shape[2])


def _rescale(images: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Pixels as dtype: float32 in [0, 1], or as they are."""
    return np.divide(images, 255, dtype=np.float32) if dtype == np.float32 else images
