"""Operations on images whose channels come first, on a CPU: values and gradients are those with the channels last."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf2
from tensorflow.python.ops import gen_nn_ops

from ps_train.parts.legacy.names import channels_first
from tests.tensorflow_mode import tf

RANDOM = np.random.RandomState(3)
IMAGES, VOLUMES = RANDOM.rand(2, 4, 9, 8).astype(np.float32), RANDOM.rand(2, 4, 5, 6, 7).astype(np.float32)
KERNEL = RANDOM.rand(3, 3, 4, 5).astype(np.float32)


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    """The operations are replaced, until the end of the test."""
    for name in (*channels_first._OPERATIONS, *channels_first._TRANSPOSED):
        monkeypatch.setattr(gen_nn_ops, name, getattr(gen_nn_ops, name))
    for place in (tf.test, tf2.test):
        monkeypatch.setattr(place, "is_built_with_cuda", place.is_built_with_cuda)
    channels_first.take_channels_first()


def axes(last, *numbers):
    """Returns [1, numbers..., 1] or [1, 1, numbers...]."""
    return [1, *numbers, 1] if last else [1, 1, *numbers]


def name_of(last, rank=4):
    """Returns the name of the order of the axes."""
    return {4: ("NCHW", "NHWC"), 5: ("NCDHW", "NDHWC")}[rank][last]


def convolved(x, last):
    """Strides, dilations and explicit paddings."""
    kernel, data_format = tf.constant(KERNEL), name_of(last)
    paddings = [[0, 0], [1, 2], [0, 1], [0, 0]] if last else [[0, 0], [0, 0], [1, 2], [0, 1]]
    return [tf.nn.conv2d(x, kernel, strides=axes(last, 2, 1), padding="SAME", data_format=data_format),
            tf.nn.conv2d(tf.stop_gradient(x), kernel, strides=1, padding="VALID", dilations=axes(last, 2, 2),
                         data_format=data_format),  # CPUs have no gradient of it, in either order
            tf.nn.conv2d(x, kernel, strides=1, padding=paddings, data_format=data_format),
            tf.nn.depthwise_conv2d(x, kernel, axes(last, 1, 1), "SAME", data_format=data_format)]


def transposed(x, last):
    """The output's size is given, and known afterwards."""
    size = [2, 18, 16, 3] if last else [2, 3, 18, 16]
    found = tf.nn.conv2d_transpose(x, tf.constant(KERNEL[:, :, :3, :4]), size,
                                   axes(last, 2, 2), "SAME", data_format=name_of(last))
    assert found.shape.as_list() == size
    return [found]


def pooled(x, last):
    """Maxima and means."""
    return [pool(x, axes(last, 3, 2), axes(last, 2, 2), padding, data_format=name_of(last))
            for pool in (tf.nn.max_pool, tf.nn.avg_pool) for padding in ("SAME", "VALID")]


def normalized(x, last):
    """The images, their mean and their variance."""
    return list(tf.nn.fused_batch_norm(x, tf.constant([1.0, 2, 3, 4]), tf.zeros([4]), data_format=name_of(last)))


def layered(x, last):
    """As TF1 code calls them."""
    order = ("channels_first", "channels_last")[last]
    start = tf.constant_initializer(0.1)
    hidden = tf.layers.conv2d(x, 5, 3, padding="same", data_format=order, kernel_initializer=start)
    hidden = tf.layers.average_pooling2d(hidden, 2, 2, padding="same", data_format=order)
    return [tf.layers.batch_normalization(hidden, axis=3 if last else 1, training=True)]


def of_volumes(x, last):
    """With one axis more."""
    kernel, data_format = tf.constant(np.ones((2, 2, 2, 4, 3), np.float32)), name_of(last, 5)
    return [tf.nn.conv3d(x, kernel, axes(last, 2, 1, 2), "SAME", data_format=data_format),
            tf.nn.max_pool3d(x, axes(last, 2, 2, 2), axes(last, 2, 2, 2), "SAME", data_format=data_format),
            tf.nn.avg_pool3d(x, axes(last, 2, 2, 2), axes(last, 2, 2, 2), "SAME", data_format=data_format)]


@pytest.mark.parametrize(("build", "values"), [
    (convolved, IMAGES), (transposed, IMAGES), (pooled, IMAGES), (normalized, IMAGES), (layered, IMAGES),
    (of_volumes, VOLUMES)])
def test_values_and_gradients_are_those_with_the_channels_last(build, values):
    """Issue: code that was written for GPUs failed at its first step, in a pooling or a gradient."""
    if build is layered and not hasattr(tf.layers, "conv2d"):
        pytest.skip("tf.layers needs Keras 2")
    found = []
    for last in (False, True):
        with tf.Graph().as_default(), tf.Session() as session:
            x = tf.constant(np.moveaxis(values, 1, -1) if last else values)
            results = build(x, last)
            total = tf.add_n([tf.reduce_sum(tf.square(result)) for result in results])
            session.run(tf.global_variables_initializer())
            found.append(session.run([*results, tf.gradients(total, x)[0]]))
    for first, other in zip(*found):
        expected = np.moveaxis(other, -1, 1) if other.ndim == values.ndim else other
        np.testing.assert_allclose(first, expected, rtol=1e-4, atol=1e-4)


def test_code_that_asks_chooses_the_order_of_cpus():
    """`data_format = "channels_first" if tf.test.is_built_with_cuda() else "channels_last"`."""
    assert not tf.test.is_built_with_cuda() and not tf2.test.is_built_with_cuda()
