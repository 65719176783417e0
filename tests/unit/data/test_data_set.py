"""The numpy mini-batches of the old tutorial's DataSet."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.data_set import DataSet, dense_to_one_hot


def _numbered(num, **options):
    """A DataSet whose image and label both say which example they are."""
    images = np.arange(num, dtype=np.uint8)[:, None, None] * np.ones((1, 2, 3), np.uint8)
    return DataSet(images, np.arange(num), dtype=np.uint8, **options)


def _labels(data, batch_sizes, **options):
    return [data.next_batch(size, **options)[1].tolist() for size in batch_sizes]


@given(
    num=st.integers(1, 30),
    batch_sizes=st.lists(st.integers(1, 70), min_size=1, max_size=20),
    shuffle=st.booleans(),
)
def test_epochs_hold_each_example_once(num, batch_sizes, shuffle):
    """With any batch sizes, an epoch has every example once, and labels fit their images."""
    data = _numbered(num, seed=1)
    seen = []
    for size in batch_sizes:
        images, labels = data.next_batch(size, shuffle=shuffle)
        assert images.shape == (size, 6) and (images == labels[:, None]).all()
        seen.extend(labels.tolist())
        assert data.epochs_completed == (len(seen) - 1) // num
    for start in range(0, len(seen) - num + 1, num):
        assert sorted(seen[start : start + num]) == list(range(num))


def test_without_shuffle_in_the_order_of_the_file():
    """Unshuffled epochs repeat the order, and a batch goes on from one into the next."""
    assert _labels(_numbered(5), [3, 3, 4], shuffle=False) == [[0, 1, 2], [3, 4, 0], [1, 2, 3, 4]]


def test_epoch_counts_when_the_next_one_begins():
    """A batch that ends with an epoch does not count it; the next batch does."""
    data = _numbered(4)
    data.next_batch(4)
    assert data.epochs_completed == 0
    data.next_batch(1)
    assert data.epochs_completed == 1


def test_batch_across_the_end_takes_the_rest_first():
    """The rest of an epoch comes before the start of the next, newly shuffled one."""
    data = _numbered(50, seed=3)
    first, second = _labels(data, [40, 20])
    assert sorted(first + second[:10]) == list(range(50))
    rest = _labels(data, [40])[0]
    assert sorted(second[10:] + rest) == list(range(50))
    assert first + second[:10] != second[10:] + rest


def test_first_epoch_is_shuffled():
    """The first batch is not the start of the file, unless asked for."""
    assert _labels(_numbered(100, seed=0), [100])[0] != list(range(100))


def test_later_unshuffled_epoch_keeps_the_last_order():
    """shuffle=False keeps the order that there is, as the old one did."""
    data = _numbered(20, seed=0)
    first = _labels(data, [20])
    assert _labels(data, [20], shuffle=False) == first


def test_seed_decides_the_order():
    """The same seed gives the same batches, another one others."""
    orders = [_labels(_numbered(30, seed=seed), [7, 30, 30]) for seed in (5, 5, 6)]
    assert orders[0] == orders[1] != orders[2]


def test_seed_none_is_another_order_each_time():
    """Without a seed two DataSets differ: 60 examples have 60! orders."""
    assert _labels(_numbered(60), [60]) != _labels(_numbered(60), [60])


def test_images_and_labels_keep_the_order_of_the_file():
    """Batches do not move the examples: images and labels stay paired and in place."""
    data = _numbered(9)
    data.next_batch(20)
    assert data.num_examples == 9
    assert data.labels.tolist() == list(range(9)) == data.images[:, 0].tolist()


def test_float32_is_rescaled_to_one():
    """0, 51 and 255 become 0, 0.2 and 1."""
    data = DataSet(np.array([[[0, 51, 255]]], np.uint8), [3])
    assert data.images.dtype == np.float32
    np.testing.assert_array_equal(data.images, np.array([[0, 0.2, 1]], np.float32))


def test_uint8_is_left():
    """uint8 images are the given ones."""
    data = DataSet(np.array([[[0, 51, 255]]], np.uint8), [3], dtype=np.uint8)
    assert data.images.dtype == np.uint8 and data.images.tolist() == [[0, 51, 255]]


@pytest.mark.parametrize("dtype", [np.float64, np.int32, "float16", None])
def test_other_dtype_is_a_type_error(dtype):
    """Only uint8 and float32 are image types."""
    with pytest.raises(TypeError, match="allowed are uint8 and float32"):
        DataSet(np.zeros((1, 2, 2)), [0], dtype=dtype)


def test_tensorflow_dtype_is_understood():
    """Old code gives dtypes.float32; anything with as_numpy_dtype will do."""
    class TensorFlowType:
        as_numpy_dtype = np.uint8

    assert DataSet(np.zeros((1, 2, 2), np.uint8), [0], dtype=TensorFlowType()).images.dtype == "u1"


@pytest.mark.parametrize("shape, reshape, expected", [
    ((4, 2, 3), True, (4, 6)), ((4, 2, 3, 1), True, (4, 6)),
    ((4, 2, 3, 1), False, (4, 2, 3, 1)), ((4, 2, 3, 3), False, (4, 2, 3, 3)),
])
def test_reshape(shape, reshape, expected):
    """Images become rows, or stay as they are."""
    assert DataSet(np.zeros(shape, np.uint8), np.zeros(4), reshape=reshape).images.shape == expected


@pytest.mark.parametrize("shape", [(4, 2, 3, 3), (4, 6)])
def test_shape_that_cannot_become_rows(shape):
    """Images in colour are refused, with their shape."""
    with pytest.raises(ValueError, match=r"shape \[4, "):
        DataSet(np.zeros(shape, np.uint8), np.zeros(4))


def test_as_many_labels_as_images():
    """A label too few is an error with both numbers."""
    with pytest.raises(ValueError, match="4 images but 3 labels"):
        DataSet(np.zeros((4, 2, 2), np.uint8), np.zeros(3))


@pytest.mark.parametrize("one_hot, label", [(False, 0), (True, [1] + [0] * 9)])
def test_fake_data(one_hot, label):
    """Fake data is ones with label 0 (one-hot if asked for), and never ends an epoch."""
    data = DataSet([], [], fake_data=True, one_hot=one_hot)
    for _ in range(2):
        images, labels = data.next_batch(7000)
    assert images.shape == (7000, 784) and (images == 1).all()
    assert labels.tolist() == [label] * 7000
    assert data.num_examples == 10000 and data.epochs_completed == 0


def test_fake_batch_of_real_data():
    """fake_data may be asked for in a single batch, and takes no example away."""
    data = _numbered(5)
    images, labels = data.next_batch(2, fake_data=True)
    assert images.tolist() == [[1] * 784] * 2 and labels.tolist() == [0, 0]
    assert sorted(_labels(data, [5])[0]) == list(range(5))


@pytest.mark.parametrize("batch_size", [0, -1])
def test_batch_size_out_of_range(batch_size):
    """A batch has at least one example."""
    with pytest.raises(ValueError, match=f"batch_size is {batch_size}"):
        _numbered(5).next_batch(batch_size)


def test_no_examples():
    """A DataSet without examples has no batch; it says so and does not loop."""
    with pytest.raises(ValueError, match="no examples"):
        DataSet(np.zeros((0, 2, 2), np.uint8), []).next_batch(1)


def test_one_hot():
    """The 1 is in the column of the class."""
    assert dense_to_one_hot(np.array([2, 0], np.uint8), 3).tolist() == [[0, 0, 1], [1, 0, 0]]
