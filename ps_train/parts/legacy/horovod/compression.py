"""The names of `horovod.tensorflow.compression`: gradients travel here in the dtype that they have."""

from __future__ import annotations

from typing import Any


class NoneCompressor:
    """Where Horovod would compress; here it does nothing."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, None]:
        """Returns the tensor, and what `decompress` needs: nothing."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Returns the tensor."""
        return tensor


class FP16Compressor(NoneCompressor):
    """The same."""


Compressor = NoneCompressor


class Compression:
    """The two that scripts name."""

    none, fp16 = NoneCompressor, FP16Compressor
