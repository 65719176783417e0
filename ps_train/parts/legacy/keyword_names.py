"""`async` and `await` as names, which they were until Python 3.6: of an argument, a flag, a variable.

    text --> Python 3 cannot read it --> other words for the two --> a tree --> the two again

In a tree, any word can be a name.
"""

from __future__ import annotations

import ast
import contextlib
import re

# A comment or a string, which may have several lines.
COMMENT_OR_STRING = re.compile(
    r'#[^\n]*|"""(?:\\.|[^\\])*?"""|' r"'''(?:\\.|[^\\])*?'''|" r'"(?:\\.|[^"\\\n])*"|' r"'(?:\\.|[^'\\\n])*'",
    re.DOTALL)
_WORDS = ("async", "await")
_WORD = re.compile(rf"\b(?:{'|'.join(_WORDS)})\b")
_HIDDEN = "__ps_train_{}__"


def parse(text: str, path: str) -> tuple[ast.Module, bool]:
    """Returns the tree of a file, and whether the words are names in it.

    Raises:
      SyntaxError: the code is wrong with them as names, too.
    """
    try:
        return ast.parse(text, path), False
    except SyntaxError:
        hidden = _hide(text)
        if hidden != text:
            with contextlib.suppress(SyntaxError):
                return _shown(ast.parse(hidden, path)), True
        raise


def _hide(text: str) -> str:
    """Returns the text with other words for the two; comments and strings stay."""
    parts, end = [], 0
    for match in [*COMMENT_OR_STRING.finditer(text), None]:
        begin = match.start() if match else len(text)
        parts += [_WORD.sub(lambda word: _HIDDEN.format(word[0]), text[end:begin]), match[0] if match else ""]
        end = match.end() if match else begin
    return "".join(parts)


def _shown(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        for field, value in ast.iter_fields(node):
            if isinstance(value, str) and not isinstance(node, ast.Constant):
                setattr(node, field, _show(value))
            elif isinstance(node, (ast.Global, ast.Nonlocal)) and field == "names":
                node.names = [_show(name) for name in value]
    return tree


def _show(name: str) -> str:
    for word in _WORDS:
        name = name.replace(_HIDDEN.format(word), word)
    return name
