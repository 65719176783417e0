"""Recognises compressed files by their first bytes."""

from __future__ import annotations

# No text begins like that.
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ\x00": "xz", b"PK\x03\x04": "zip"}


def compression_of(start: bytes) -> str | None:
    """Returns how a file is compressed that begins with these bytes, 10 or more; None if it is not, as far as known."""
    if start.startswith(b"BZh") and start[4:10] == b"1AY&SY":  # text may begin with BZh
        return "bzip2"
    return next((kind for mark, kind in _COMPRESSED.items() if start.startswith(mark)), None)
