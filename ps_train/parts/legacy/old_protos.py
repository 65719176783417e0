"""Modules that an older `protoc` has generated: today's protobuf takes the bytes in them, and refuses the rest.

    DESCRIPTOR = _descriptor.FileDescriptor(..., serialized_pb=...)    the bytes, to the pool of descriptors
    _EXAMPLE = _descriptor.Descriptor(...), and classes                made by protobuf of what the bytes say

That is what modules of `protoc` 3.20 and later do. Services that an older one has written there are left out.
"""

from __future__ import annotations

import ast

_CODE = """
from google.protobuf import descriptor_pool as _ps_train_pool
from google.protobuf.internal import builder as _ps_train_builder
DESCRIPTOR = _ps_train_pool.Default().AddSerializedFile(serialized)
_ps_train_builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, globals())
_ps_train_builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, __name__, globals())
"""


def may_be_generated(text: str) -> bool:
    """Returns whether a text can be such a module."""
    return "serialized_pb=" in text and "_descriptor.FileDescriptor(" in text


def change_generated(tree: ast.Module) -> bool:
    """Changes such a module in place; returns whether it was one."""
    file = next((line for line in tree.body if isinstance(line, ast.Assign) and isinstance(line.value, ast.Call)
                 and ast.unparse(line.targets[0]) == "DESCRIPTOR"), None)
    serialized = next((one.value for one in file.value.keywords if one.arg == "serialized_pb"), None) if file else None
    if serialized is None:
        return False
    if isinstance(serialized, ast.Constant) and isinstance(serialized.value, str):  # before 3.0, for Python 2
        serialized = ast.Constant(serialized.value.encode("latin-1"))
    code = ast.parse(_CODE).body
    code[2].value.args = [serialized]
    place = tree.body.index(file)
    # Behind the file stand imports of names that are public in it, too.
    imports = [line for line in tree.body[place:] if isinstance(line, (ast.Import, ast.ImportFrom))]
    for line in code:
        for part in ast.walk(line):
            ast.copy_location(part, file)
    tree.body[place:] = [*code, *imports]
    return True
