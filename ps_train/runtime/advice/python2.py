"""Recognises code of Python 2 by the error that it ends with in Python 3."""

from __future__ import annotations

import linecache
import re

_STATEMENTS = re.compile(
    r"""^\s*print\s+[^\s(=.\[]|^\s*print\s*>>|\bprint\s+["'(]|^\s*exec\s+["'\w]|\bexcept\s+[\w.()\s,]+,\s*\w+\s*:|"""
    r"""^\s*raise\s+[\w.]+\s*,|<>|`|\b0[0-7]+\b|\b(0x[0-9a-fA-F]+|[0-9]+)[lL]\b|\b[uU][rR]["']|"""
    r"""^\s*def\s+\w+\(.*\([\w\s,]+\).*\)\s*:|\blambda\s*\(""")
# Modules of Python 2 that have another name in 3.
MODULES = frozenset((
    "BaseHTTPServer", "ConfigParser", "Cookie", "HTMLParser", "Queue", "SimpleHTTPServer", "SocketServer", "StringIO",
    "Tkinter", "UserDict", "__builtin__", "anydbm", "cPickle", "cStringIO", "commands", "cookielib", "copy_reg",
    "dummy_thread", "htmlentitydefs", "httplib", "md5", "robotparser", "sets", "sha", "thread", "urllib2", "urlparse",
    "xmlrpclib"))
_NAMES = ("xrange", "unicode", "raw_input", "basestring", "long", "unichr", "reduce", "cmp", "file", "execfile",
          "reload", "buffer", "apply", "intern", "coerce")
_RUNTIME = re.compile(
    rf"name '({'|'.join(_NAMES)})' is not defined|has no attribute '(iteritems|itervalues|iterkeys|has_key|viewitems|"
    r"viewkeys|viewvalues|next|func_name|im_func|im_self)'|module 'string' has no attribute|"
    r"'(map|filter|zip|dict_keys|dict_values|dict_items)' object (is not subscriptable|has no attribute)|"
    r"object of type '(map|filter|zip)' has no len|'(range|dict_keys|dict_values|dict_items)' object .*assignment|"
    r"(for \+: '(range|dict_keys|dict_values|dict_items)')|for >>: 'builtin_function_or_method'|"
    r"module 'itertools' has no attribute 'i|module 'urllib' has no attribute|cannot import name '(izip|imap|ifilter)'")


def is_python2(error: BaseException) -> bool:
    """Returns whether an error comes from code of Python 2."""
    if isinstance(error, TabError):
        return True
    if isinstance(error, SyntaxError):
        line = error.text or linecache.getline(error.filename or "", error.lineno or 0)
        return bool(re.search(r"Missing parentheses|multiple exception types|leading zeros in decimal", error.msg or "")
                    or _STATEMENTS.search(line) or _has_tabs(error))
    if isinstance(error, ModuleNotFoundError):
        return error.name in MODULES
    return isinstance(error, (NameError, AttributeError, TypeError, ImportError)) and bool(_RUNTIME.search(str(error)))


def _has_tabs(error: SyntaxError) -> bool:
    """Returns whether an indentation does not fit, in a file that mixes tabs and blanks."""
    if not isinstance(error, IndentationError):
        return False
    lines = linecache.getlines(error.filename or "")
    return any(line.startswith("\t") for line in lines) and any(line.startswith("  ") for line in lines)
