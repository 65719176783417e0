"""Strings of 8 hexadecimal digits, as in Criteo's files, and FarmHash's Fingerprint64 of them, many at once in numpy.

The hash is that of tf.strings.to_hash_bucket_fast, so ids drawn in memory equal those read from a file. It follows
farmhashna::HashLen0to16 (https://github.com/google/farmhash/blob/master/src/farmhash.cc) for strings of 0 and 8 bytes.
"""

from __future__ import annotations

import numpy as np

_U = np.uint64
_K2 = _U(0x9AE16A3B2F90404F)
_MUL = _U((0x9AE16A3B2F90404F + 2 * 8) % 2**64)
FINGERPRINT_OF_EMPTY = 0x9AE16A3B2F90404F


def scramble(numbers: np.ndarray) -> np.ndarray:
    """Returns other numbers below 2^32, one-to-one, for uint64 numbers below 2^32."""
    low = _U(0xFFFFFFFF)
    mixed = (numbers * _U(0x9E3779B1)) & low
    mixed ^= mixed >> _U(15)
    return (mixed * _U(0x85EBCA77)) & low


def hex_digits(numbers: np.ndarray) -> np.ndarray:
    """Returns the 8 hexadecimal digits of numbers below 2^32, as uint64 whose bytes in memory are the characters."""
    # The 4-bit digits are spread over the bytes: first halves of 16 bits, then of 8, then of 4. The first digit is the
    # highest, and lies in the lowest byte of a little-endian number.
    spread = ((numbers & _U(0xFFFF)) << _U(32)) | (numbers >> _U(16))
    spread = ((spread & _U(0x000000FF000000FF)) << _U(16)) | ((spread >> _U(8)) & _U(0x000000FF000000FF))
    spread = ((spread & _U(0x000F000F000F000F)) << _U(8)) | ((spread >> _U(4)) & _U(0x000F000F000F000F))
    is_letter = ((spread + _U(0x0606060606060606)) >> _U(4)) & _U(0x0101010101010101)
    return spread + _U(0x3030303030303030) + is_letter * _U(ord("a") - ord("0") - 10)


def fingerprints(digits: np.ndarray) -> np.ndarray:
    """Returns Fingerprint64 of strings of 8 bytes, given as uint64."""
    first = digits + _K2
    mixed = _rotated(digits, 37)
    mixed *= _MUL
    mixed += first
    other = _rotated(first, 25)
    other += digits
    other *= _MUL
    mixed ^= other
    mixed *= _MUL
    mixed ^= mixed >> _U(47)
    other ^= mixed
    other *= _MUL
    other ^= other >> _U(47)
    other *= _MUL
    return other


def _rotated(numbers: np.ndarray, bits: int) -> np.ndarray:
    return (numbers >> _U(bits)) | (numbers << _U(64 - bits))


def mixed_bits(numbers: np.ndarray) -> np.ndarray:
    """Returns 64 random bits for each number, always the same: the finaliser of SplitMix64."""
    mixed = numbers + _U(0x9E3779B97F4A7C15)
    for bits, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed ^= mixed >> _U(bits)
        mixed *= _U(factor)
    mixed ^= mixed >> _U(31)
    return mixed
