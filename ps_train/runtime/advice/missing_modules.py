"""An import that fails: says which package to install, or where a module of the user's own is."""

from __future__ import annotations

import itertools
import os
import pathlib
import sys
from collections.abc import Iterator

# Name in an import statement -> name of the package, where they differ.
PACKAGES = {
    "attr": "attrs", "apiclient": "google-api-python-client", "Bio": "biopython", "bs4": "beautifulsoup4", "caffe2":
    "torch", "Crypto": "pycryptodome", "cv2": "opencv-python-headless", "dateutil": "python-dateutil", "docx":
    "python-docx", "dotenv": "python-dotenv", "fitz": "PyMuPDF", "git": "GitPython", "github": "PyGithub",
    "google.protobuf": "protobuf", "googleapiclient": "google-api-python-client", "grpc": "grpcio", "jwt": "PyJWT",
    "Levenshtein": "python-Levenshtein", "magic": "python-magic", "MySQLdb": "mysqlclient", "OpenGL": "PyOpenGL",
    "OpenSSL": "pyOpenSSL", "past": "future", "PIL": "Pillow", "Image": "Pillow", "psycopg2": "psycopg2-binary",
    "pkg_resources": "setuptools", "pywt": "PyWavelets", "rest_framework": "djangorestframework", "scikits":
    "scikit-learn", "serial": "pyserial", "skimage": "scikit-image", "sklearn": "scikit-learn", "snappy":
    "python-snappy", "socks": "PySocks", "tensorflow_addons": "tensorflow-addons", "tensorflow_datasets":
    "tensorflow-datasets", "tensorflow_hub": "tensorflow-hub", "tensorflow_io": "tensorflow-io",
    "tensorflow_probability": "tensorflow-probability", "usb": "pyusb", "wx": "wxPython", "xdg": "pyxdg", "yaml":
    "PyYAML", "zmq": "pyzmq",
}
_MOST_LOOKED_AT = 2000  # entries of folders, to find a module of the user's own
_SKIPPED = {"node_modules", "__pycache__", "site-packages", "dist-packages", "build", "dist"}


def advise(error: BaseException, path: str) -> str:
    """Returns what to do about a module that is missing, "" for any other error.

    Args:
      path: the user's file that imports it.
    """
    name = getattr(error, "name", None)
    if not isinstance(error, ModuleNotFoundError) or not name or f"{name!r}" not in str(error):
        return ""
    parent, _, leaf = name.rpartition(".")
    if parent in sys.modules and name not in PACKAGES:
        return _of_package(parent, leaf)
    top = name.partition(".")[0]
    folder = next(_places(top, pathlib.Path(path).resolve().parent), None)
    if folder is not None:
        return f"{top} is in {folder}, where Python does not look: add that folder to PYTHONPATH"
    package = PACKAGES.get(name, PACKAGES.get(top))
    if package is not None:
        return f"install it: pip install {package}"
    return f"install it: pip install {top}; or, if it is a module of your own, add its folder to PYTHONPATH"


def _of_package(parent: str, leaf: str) -> str:
    """Returns the advice for a module that a package, which is there, does not have."""
    if parent.partition(".")[0] in getattr(sys, "stdlib_module_names", ()):
        return f"Python's own {parent} has no {leaf}: correct the name"
    package = sys.modules[parent]
    places = [str(place) for place in getattr(package, "__path__", [])]
    if not places:
        return f"{parent} is the file {package.__file__}, which hides a package of that name: rename it"
    if any({"site-packages", "dist-packages"} & {*pathlib.Path(place).parts} for place in places):
        top = parent.partition(".")[0]
        return f"the installed {parent} has no {leaf}: install the version of {PACKAGES.get(top, top)} that has it"
    return f"{parent}, in {places[0]}, has no {leaf}: add that file, or correct the name"


def _places(name: str, folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields the folders with a module of that name: around the file that imports it, and around the working one."""
    for start in dict.fromkeys((folder, *itertools.islice(folder.parents, 3), pathlib.Path.cwd())):
        if len(start.parts) < 3:  # / or /home: not a project
            continue
        looked_at = 0
        for place, folders, files in os.walk(start):
            folders[:] = sorted(entry for entry in folders if not entry.startswith(".") and entry not in _SKIPPED
                                and len(pathlib.Path(place).parts) - len(start.parts) < 2)
            looked_at += len(folders) + len(files)
            if looked_at > _MOST_LOOKED_AT:
                break
            if f"{name}.py" in files or os.path.isfile(os.path.join(place, name, "__init__.py")):
                yield pathlib.Path(place)
