"""Installs the package ps_train; the plug-ins in models/ and data/ are used from the working directory."""

import pathlib
import re

from setuptools import find_packages, setup

_HERE = pathlib.Path(__file__).parent
_VERSION = re.search(r'^__version__ = "(.+)"', (_HERE / "ps_train/__init__.py").read_text(), re.MULTILINE)[1]

setup(
    name="ps_train",
    version=_VERSION,
    description="Parameter-server training for TensorFlow 1 graph code, on today's TensorFlow",
    license="Apache-2.0",
    packages=find_packages(include=["ps_train", "ps_train.*"]),
    python_requires=">=3.9",
    # Not TensorFlow, which has several names: with tensorflow-cpu there, pip would bring tensorflow too, 2 GB with what
    # belongs to a GPU. ps_train/runtime/installed.py looks for it; absl-py and numpy come with it.
    install_requires=["absl-py", "numpy"],
    # pip takes the tf_keras that belongs to the TensorFlow that is there: its versions go together.
    extras_require={
        "tensorflow": ["tensorflow>=2.14"],
        "tensorflow-cpu": ["tensorflow-cpu>=2.14"],
        "test": ["pytest", "hypothesis", "jsonschema", "mypy", "pyyaml", "ruff", "tf_keras>=2.15", "tensorboard"],
        "keras": ["tf_keras>=2.15", "tensorboard"],
        "tensorboard": ["tensorboard"],
        "bench": ["torch", "matplotlib"],
    },
    entry_points={"console_scripts": ["ps_train = ps_train.__main__:console"]},
)
