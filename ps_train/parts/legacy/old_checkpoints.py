"""Finds in a script's text the names of checkpoints that the `ModelCheckpoint` of Keras 3 refuses.

    ModelCheckpoint(folder + "/best.h5")                                     in the call
    name = "best.h5" ... path = join(folder, name) ... ModelCheckpoint(path)    by variables
    parser.add_argument("--best", default="best.h5") ... ModelCheckpoint(args.best)    by a flag or a key

Other files in .h5, such as the data, say nothing about Keras.
"""

from __future__ import annotations

import re

_CALL = re.compile(r"\bModelCheckpoint\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)")
_REFUSED = re.compile(r"\.hdf5['\"]|(?<!\.weights)\.h5['\"]")
_STRING = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")
_FUNCTION = re.compile(r"\bos\.path\b|[\w.]+(?=\()|\w+[ \t]*=(?!=)")  # no variables: functions, names of arguments
_MOST_VARIABLES = 16  # each takes a look through the whole text: 0.2 s in one of a megabyte
_REST_OF_STATEMENT = r"((?:[^\n]|(?<=[(,\\])\n)*)"


def has_some(text: str) -> bool:
    """Returns whether a `ModelCheckpoint` gets such a name; the text has no comments."""
    pending = _CALL.findall(text) if _REFUSED.search(text) else []
    followed: set[str] = set()
    while pending:
        value = pending.pop(0)
        if _REFUSED.search(value):
            return True
        words = set(re.findall(r"[A-Za-z_]\w*", _FUNCTION.sub("", _STRING.sub("", value)))) - followed
        for word in sorted(words)[:_MOST_VARIABLES - len(followed)]:
            followed.add(word)
            pending += _values(word, text)
    return False


def _values(word: str, text: str) -> list[str]:
    """Returns what a text gives a variable, an argument, a flag or a key of this name."""
    flag = word.replace("_", "[_-]")
    patterns = (rf"^[ \t]*(?:[\w.]+\.)?{word}[ \t]*=(?!=){_REST_OF_STATEMENT}",
                rf"['\"](?:--?)?{flag}['\"]\]?[ \t]*[:=,](?!=){_REST_OF_STATEMENT}",
                rf"\b{word}[ \t]*=[ \t]*({_STRING.pattern})")
    return [value for pattern in patterns for value in re.findall(pattern, text, re.MULTILINE)]
