"""Advice on an error in a user's code, where the line of the error alone does not explain it.

    an import that fails    a package to install, or a module of the user's that is elsewhere
    code of Python 2        recognised by the error with which it ends in Python 3
"""

from __future__ import annotations

import itertools
import linecache
import os
import pathlib
import re
import sys
from collections.abc import Iterator

# Name in an import statement -> name of the package, where they differ.
PACKAGES = {
    "apiclient": "google-api-python-client", "attr": "attrs", "audioop": "audioop-lts", "Bio": "biopython", "bs4":
    "beautifulsoup4", "caffe2": "torch", "Crypto": "pycryptodome", "cv2": "opencv-python-headless", "dateutil":
    "python-dateutil", "distutils": "setuptools", "docx": "python-docx", "dotenv": "python-dotenv", "fitz":
    "PyMuPDF", "git": "GitPython", "github": "PyGithub", "google.protobuf": "protobuf", "googleapiclient":
    "google-api-python-client", "grpc": "grpcio", "Image": "Pillow", "imp": "zombie-imp", "jwt": "PyJWT",
    "Levenshtein": "python-Levenshtein", "magic": "python-magic", "MySQLdb": "mysqlclient", "OpenGL": "PyOpenGL",
    "OpenSSL": "pyOpenSSL", "past": "future", "PIL": "Pillow", "pkg_resources": "setuptools", "psycopg2":
    "psycopg2-binary", "pywt": "PyWavelets", "rest_framework": "djangorestframework", "scikits": "scikit-learn",
    "serial": "pyserial", "skimage": "scikit-image", "sklearn": "scikit-learn", "snappy": "python-snappy", "socks":
    "PySocks", "tensorflow_addons": "tensorflow-addons", "tensorflow_datasets": "tensorflow-datasets",
    "tensorflow_hub": "tensorflow-hub", "tensorflow_io": "tensorflow-io", "tensorflow_probability":
    "tensorflow-probability", "usb": "pyusb", "wx": "wxPython", "xdg": "pyxdg", "yaml": "PyYAML", "zmq": "pyzmq",
}
# Modules that Python's library had until 3.11 or 3.12. Packages have them, such as standard-cgi.
REMOVED = frozenset((
    "aifc", "asynchat", "asyncore", "cgi", "cgitb", "chunk", "crypt", "imghdr", "mailcap", "nntplib", "pipes", "smtpd",
    "sndhdr", "sunau", "telnetlib", "uu", "xdrlib"))
_MOST_LOOKED_AT = 2000  # entries of folders, to find one of the user's modules
_SKIPPED = {"node_modules", "__pycache__", "site-packages", "dist-packages", "build", "dist"}
_STATEMENTS = re.compile(
    r"""^\s*print\s+[^\s(=.\[]|^\s*print\s*>>|\bprint\s+["'(]|^\s*exec\s+["'\w]|\bexcept\s+[\w.()\s,]+,\s*\w+\s*:|"""
    r"""^\s*raise\s+[\w.]+\s*,|<>|`|\b0[0-7]+\b|\b(0x[0-9a-fA-F]+|[0-9]+)[lL]\b|\b[uU][rR]["']|"""
    r"""^\s*def\s+\w+\(.*\([\w\s,]+\).*\)\s*:|\blambda\s*\(""")
# Modules of Python 2 that have another name in 3.
PYTHON2_MODULES = frozenset((
    "BaseHTTPServer", "ConfigParser", "Cookie", "HTMLParser", "Queue", "SimpleHTTPServer", "SocketServer", "StringIO",
    "Tkinter", "UserDict", "__builtin__", "anydbm", "cPickle", "cStringIO", "commands", "cookielib", "copy_reg",
    "dummy_thread", "htmlentitydefs", "httplib", "md5", "robotparser", "sets", "sha", "thread", "urllib2", "urlparse",
    "xmlrpclib"))
_NAMES = ("xrange", "unicode", "raw_input", "basestring", "long", "unichr", "reduce", "cmp", "file", "execfile",
                  "reload", "buffer", "apply", "intern", "coerce")
_ERRORS = re.compile(
    rf"name '({'|'.join(_NAMES)})' is not defined|has no attribute '(iteritems|itervalues|iterkeys|has_key|viewitems|"
    r"viewkeys|viewvalues|next|func_name|im_func|im_self)'|module 'string' has no attribute|"
    r"'(map|filter|zip|dict_keys|dict_values|dict_items)' object (is not subscriptable|has no attribute)|"
    r"object of type '(map|filter|zip)' has no len|'(range|dict_keys|dict_values|dict_items)' object .*assignment|"
    r"(for \+: '(range|dict_keys|dict_values|dict_items)')|for >>: 'builtin_function_or_method'|"
    r"module 'itertools' has no attribute 'i|module 'urllib' has no attribute|cannot import name '(izip|imap|ifilter)'")


def advise(error: BaseException, path: str) -> str:
    """Returns the advice for a missing module, "" for any other error.

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
    folder = next(_folders_with(top, pathlib.Path(path).resolve().parent), None)
    if folder is not None:
        return f"{top} is in {folder}, where Python does not look: add that folder to PYTHONPATH"
    package = PACKAGES.get(name, PACKAGES.get(top, f"standard-{top}" if top in REMOVED else None))
    if package is not None:
        return f"install it: pip install {package}"
    return f"install it: pip install {top}; or, if it is a module of your own, add its folder to PYTHONPATH"


def _of_package(parent: str, leaf: str) -> str:
    """Returns the advice for a module that an installed package does not have."""
    package = sys.modules[parent]
    folders = [str(place) for place in getattr(package, "__path__", [])]
    place = pathlib.Path(folders[0] if folders else getattr(package, "__file__", os.__file__))  # a built-in has no file
    is_installed = not {"site-packages", "dist-packages"}.isdisjoint(place.parts)
    if pathlib.Path(os.__file__).parent in place.parents and not is_installed:
        return f"Python's own {parent} has no {leaf}: correct the name"
    if not folders:
        return f"{parent} is the file {place}, which hides a package of that name: rename it"
    if is_installed:
        top = parent.partition(".")[0]
        return f"the installed {parent} has no {leaf}: install the version of {PACKAGES.get(top, top)} that has it"
    return f"{parent}, in {folders[0]}, has no {leaf}: add that file, or correct the name"


def _folders_with(name: str, folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields the folders with a module of that name, near the file that imports it and near the working directory."""
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


def is_python2(error: BaseException) -> bool:
    """Returns whether an error comes from code of Python 2."""
    if isinstance(error, SyntaxError):
        line = error.text or linecache.getline(error.filename or "", error.lineno or 0)
        return bool(re.search(r"Missing parentheses|multiple exception types|leading zeros in decimal", error.msg or "")
                    or _STATEMENTS.search(line) or isinstance(error, TabError) or _has_tabs(error))
    if isinstance(error, ModuleNotFoundError):
        return error.name in PYTHON2_MODULES
    return isinstance(error, (NameError, AttributeError, TypeError, ImportError)) and bool(_ERRORS.search(str(error)))


def _has_tabs(error: SyntaxError) -> bool:
    """Returns whether an indentation does not fit, in a file that mixes tabs and blanks."""
    if not isinstance(error, IndentationError):
        return False
    lines = linecache.getlines(error.filename or "")
    return any(line.startswith("\t") for line in lines) and any(line.startswith("  ") for line in lines)
