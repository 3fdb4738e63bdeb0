"""Compression in zlib's format: every size around the portions, and what is damaged."""

import os
import zlib

import pytest

from edgemeter.agent.base import deflate
from edgemeter.agent.base.errors import ConfigError
from tests.fixtures.rows import table_row

BEGINNING = deflate.BEGINNING_BYTES
SIZES = (0, 1, 65_535, 65_536, BEGINNING, BEGINNING + 1)


def texts(size):
    """Return a text that packs to nothing, one that does not pack, and one between."""
    return b"a" * size, os.urandom(size), (b"abc%d," * (size // 6 + 1))[:size]


def test_what_was_compressed_is_expanded():
    """Data packed in several pieces, or by zlib at another level, is expanded exactly.

    Bytes that follow the end are ignored.
    """
    for size in SIZES:
        for text in texts(size):
            for packed in (
                deflate.compress(text[: size // 2], text[size // 2 :]),
                zlib.compress(text, 9),
                zlib.compress(text, 1) + b"more",
            ):
                with table_row(size, text[:3]):
                    assert deflate.expand(packed, lambda _: 4 * BEGINNING) == text
                    assert zlib.decompressobj().decompress(packed) == text


def test_what_is_damaged_or_too_long_is_refused():
    """Data that is cut, has a wrong checksum, is no zlib, or is one byte too long is refused.

    The limit is asked for with the beginning of the data.
    """
    for size in (1, 65_536, BEGINNING + 1):
        for text in texts(size):
            packed = zlib.compress(text)
            for damaged, reason in (
                (packed[:-1], "end is missing"),
                (packed[: len(packed) // 2], "missing|broken"),
                (b"x" + text, "broken|missing"),
            ):
                with table_row(size, text[:3], reason), pytest.raises(ConfigError, match=reason):
                    deflate.expand(damaged, lambda _: 4 * BEGINNING)
            with table_row(size, text[:3]), pytest.raises(ConfigError, match="broken"):
                deflate.expand(packed[:-1] + bytes([packed[-1] ^ 1]), lambda _: 4 * BEGINNING)
    beginnings = []
    for text in texts(3 * BEGINNING):
        with pytest.raises(ConfigError, match="more than 2 MiB when decompressed"):
            deflate.expand(
                zlib.compress(text), lambda beginning: beginnings.append(beginning) or 2 * BEGINNING
            )
        assert beginnings.pop() == text[:BEGINNING]
        assert not beginnings
