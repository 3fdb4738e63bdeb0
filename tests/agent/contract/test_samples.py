import base64
import zlib

import msgspec
import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import samples
from tests.fixtures.rows import table_row


def test_samples_come_back_exactly():
    """Packing chooses the smallest type that holds all values, and loses nothing."""
    for values, dtype in [
        (np.array([1, 2**32 - 1], np.int64), "<u4"),
        (np.array([1, 2**32], np.int64), "<i8"),
        (np.array([-1, 5], np.int64), "<i8"),
        (np.array([0.5, -1e300]), "<f8"),
        (np.array([], np.int64), "<u4"),
    ]:
        series = samples.pack("latency", "ns", values)
        assert series.dtype == dtype, f"{values!r}"
        np.testing.assert_array_equal(samples.unpack(series), values)


def test_damaged_samples_are_refused():
    """Data that is not ours, or not as long as promised, is an error and not an array.

    The expansion of a zip bomb stops after the promised bytes.
    """
    for change in [
        {"data": "!"},
        {"data": base64.b64encode(b"x").decode()},
        {"count": 5},
        {"count": 2**40},
    ]:
        series = samples.pack("latency", "ns", np.arange(3))
        with table_row(change), pytest.raises(ConfigError, match="damaged"):
            samples.unpack(msgspec.structs.replace(series, **change))
    bomb = base64.b64encode(zlib.compress(bytes(10_000_000))).decode()
    with pytest.raises(ConfigError, match="13 bytes came"):
        samples.unpack(
            msgspec.structs.replace(samples.pack("latency", "ns", np.arange(3)), data=bomb)
        )
