"""Installs the package ps_train, with models/ and data/ as ps_train.models and ps_train.datasets."""

import pathlib
import re

from setuptools import find_packages, setup

_HERE = pathlib.Path(__file__).parent
# The image of deploy/Dockerfile is built without the README.
_README = _HERE / "README.md"
_VERSION = re.search(r'^__version__ = "(.+)"', (_HERE / "ps_train/__init__.py").read_text(), re.MULTILINE)[1]

# What TF1 code needs: tf.contrib.layers and slim; Keras 2; the last Estimator that there is.
_LEGACY = ["tf_slim", "tf_keras>=2.15"]
_ESTIMATOR = ["tensorflow-estimator==2.15.0", "tf_keras>=2.15"]
_PYTHON2 = ["fissix"]  # lib2to3, which Python 3.13 no longer has
_HEALTH = ["prometheus_client"]
_STORES = ["fsspec>=2024.12"]  # exclusive creation; the package of each store comes with it: s3fs, gcsfs
_ZSTD = ["backports.zstd; python_version < '3.14'"]
_PARQUET = ["pyarrow"]
_REPORT = ["matplotlib>=3.5"]  # layout="constrained"

# Package -> its folder: the plug-ins stay at the top level of a checkout.
_FOLDERS = {"ps_train.models": "models", "ps_train.datasets": "data"}
_PLUGINS = {package + name[len(folder):]: name.replace(".", "/") for package, folder in _FOLDERS.items()
            for name in find_packages(include=[folder, f"{folder}.*"])}

setup(
    name="ps_train",
    version=_VERSION,
    description="Parameter-server training for TensorFlow 1 graph code, on today's TensorFlow",
    long_description=_README.read_text(encoding="utf-8") if _README.is_file() else "",
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    keywords=["tensorflow", "tensorflow 1", "parameter server", "distributed training", "estimator", "embeddings",
              "recommender systems", "machine learning"],
    classifiers=[
        "Environment :: Console",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        *(f"Programming Language :: Python :: {version}" for version in ("3", "3.9", "3.10", "3.11", "3.12", "3.13")),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: System :: Distributed Computing",
        "Typing :: Typed",
    ],
    packages=[*find_packages(include=["ps_train", "ps_train.*"]), *_PLUGINS],
    package_dir=_PLUGINS,
    package_data={"ps_train": ["py.typed", "*.pyi", "verbs/new_files/*"]},
    python_requires=">=3.9",
    # Not TensorFlow, which several packages contain: beside tensorflow-cpu, pip would install tensorflow too, which
    # takes 2 GB with its GPU libraries. ps_train/runtime/installed.py checks for it. absl-py and numpy come with it.
    install_requires=["absl-py", "numpy"],
    # pip chooses the tf_keras that matches the installed TensorFlow, whose version it requires.
    extras_require={
        "tensorflow": ["tensorflow>=2.14"],
        "tensorflow-cpu": ["tensorflow-cpu>=2.14"],
        "test": ["pytest", "hypothesis", "jsonschema", "mypy", "pyyaml", "ruff", "tensorboard", *_LEGACY,
                 *_ESTIMATOR, *_PYTHON2, "pandas", *_REPORT, *_HEALTH, *_STORES, *_ZSTD, *_PARQUET, "ipykernel",
                 "nbclient", "optuna", "s3fs", "moto[server]"],
        "keras": ["tf_keras>=2.15", "tensorboard"],
        "legacy": _LEGACY,
        "estimator": _ESTIMATOR,
        "python2": _PYTHON2,
        "tensorboard": ["tensorboard"],
        "report": _REPORT,
        "yaml": ["pyyaml"],
        "health": _HEALTH,
        "stores": _STORES,
        "zstd": _ZSTD,
        "parquet": _PARQUET,
        "bench": ["torch", *_REPORT],
        "docs": ["mkdocs-material", "mkdocstrings[python]", "ruff"],  # ruff breaks the lines of signatures
    },
    entry_points={"console_scripts": ["ps_train = ps_train.__main__:console"]},
)
