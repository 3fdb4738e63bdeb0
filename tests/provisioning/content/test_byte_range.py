"""The part of a file that a request asks for."""

import pytest

from edgemeter.provisioning.content import content_server
from tests.fixtures.rows import table_row


def test_a_part_is_read_as_the_standard_requires():
    """What is not understood gets the whole."""
    for header, size_bytes, expected in (
        (None, 10, None),
        ("bytes=0-", 10, (0, 10)),
        ("bytes=3-5", 10, (3, 6)),
        ("bytes=9-9", 10, (9, 10)),
        ("bytes=3-99", 10, (3, 10)),
        ("bytes=-4", 10, (6, 10)),
        ("bytes=-99", 10, (0, 10)),
        ("bytes=5-3", 10, None),
        ("bytes=-", 10, None),
        ("bytes=0-1,3-4", 10, None),
        ("lines=0-1", 10, None),
        ("bytes=a-b", 10, None),
        ("bytes=" + "9" * 30 + "-", 10, None),
    ):
        assert content_server.parse_range(header, size_bytes) == expected, f"{header!r}, {size_bytes!r}"


def test_what_lies_beyond_the_end_is_reported():
    """A range of which no byte exists is unsatisfiable, not empty."""
    for header, size_bytes in (("bytes=10-", 10), ("bytes=0-", 0), ("bytes=-0", 10), ("bytes=-5", 0)):
        with table_row(header, size_bytes), pytest.raises(content_server.UnsatisfiableRangeError):
            content_server.parse_range(header, size_bytes)
