"""The names of tensorflow.examples and of Keras' MNIST -> what they are today."""

from __future__ import annotations

_HERE = "ps_train.parts.legacy.names.examples."
_MNIST = "tf.examples.tutorials.mnist"

NAMES = {
    f"{_MNIST}.input_data.read_data_sets": _HERE + "input_data:read_data_sets",
    f"{_MNIST}.input_data.DataSet": _HERE + "input_data:DataSet",
    f"{_MNIST}.input_data.dense_to_one_hot": _HERE + "input_data:dense_to_one_hot",
    f"{_MNIST}.mnist.inference": _HERE + "mnist:mnist_inference",
    f"{_MNIST}.mnist.loss": _HERE + "mnist:mnist_loss",
    f"{_MNIST}.mnist.training": _HERE + "mnist:mnist_training",
    f"{_MNIST}.mnist.evaluation": _HERE + "mnist:mnist_evaluation",
    f"{_MNIST}.mnist.NUM_CLASSES": _HERE + "mnist:NUM_CLASSES",
    f"{_MNIST}.mnist.IMAGE_SIZE": _HERE + "mnist:IMAGE_SIZE",
    f"{_MNIST}.mnist.IMAGE_PIXELS": _HERE + "mnist:IMAGE_PIXELS",
    "tf.keras.datasets.mnist.load_data": _HERE + "keras_data:load_mnist",
}

MODULES: dict[str, tuple[str, ...]] = {}

ADVICE = {
    "tf.examples": "use tensorflow_datasets, or a reader of your own; the tutorials' MNIST is there",
}
