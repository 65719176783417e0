"""Installs the package ps_train; the plug-ins in models/ and data/ are used from the working directory."""

import pathlib
import re

from setuptools import setup

_HERE = pathlib.Path(__file__).parent
_VERSION = re.search(r'^__version__ = "(.+)"', (_HERE / "ps_train/__init__.py").read_text(), re.MULTILINE)[1]

setup(
    name="ps_train",
    version=_VERSION,
    description="Parameter-server training for TensorFlow 1 graph code, on today's TensorFlow",
    license="Apache-2.0",
    packages=["ps_train", "ps_train.distribute"],
    python_requires=">=3.9",
    install_requires=["tensorflow>=2.15.1", "absl-py", "numpy"],
    # pip takes the tf_keras that belongs to the TensorFlow that is there: its versions go together.
    extras_require={
        "test": ["pytest", "hypothesis", "jsonschema", "mypy", "pyyaml", "ruff", "tf_keras>=2.15", "tensorboard"],
        "keras": ["tf_keras>=2.15", "tensorboard"],
        "tensorboard": ["tensorboard"],
        "bench": ["torch", "matplotlib"],
    },
    entry_points={"console_scripts": ["ps_train = ps_train.__main__:console"]},
)
