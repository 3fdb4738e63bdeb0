"""Raw samples in a record, compressed without loss.

So every statistic can be computed again.
"""

import base64
import binascii
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.record import Series

# A series of a full run is a few MB; a larger one was not written by us.
LIMIT_BYTES = 256 * 1024 * 1024


def pack(name: str, unit: str, values: NDArray[Any]) -> Series:
    """Return the series of `values` [n].

    Whole numbers are stored as uint32 or, if too large, int64; all others as float64.
    """
    if values.dtype.kind in "iu":
        fits = values.size == 0 or (int(values.min()) >= 0 and int(values.max()) < 2**32)
        dtype = "<u4" if fits else "<i8"
    else:
        dtype = "<f8"
    raw = np.ascontiguousarray(values, dtype=np.dtype(dtype)).tobytes()
    return Series(
        name=name,
        unit=unit,
        dtype=dtype,  # type: ignore[arg-type]
        count=int(values.size),
        data=base64.b64encode(zlib.compress(raw, 6)).decode(),
    )


def unpack(series: Series) -> NDArray[Any]:
    """Return the values of a series, int64 or float64 [count].

    Raises:
        ConfigError: it is damaged or has another length.
    """
    size = series.count * np.dtype(series.dtype).itemsize
    try:
        if size > LIMIT_BYTES:
            raise ValueError("longer than a run can be")  # noqa: TRY301 - mapped below
        raw = zlib.decompressobj().decompress(
            base64.b64decode(series.data, validate=True), size + 1
        )
    except (binascii.Error, zlib.error, ValueError) as error:
        raise ConfigError(f"raw samples {series.name!r} are damaged: {error}") from error
    if len(raw) != size:
        raise ConfigError(
            f"raw samples {series.name!r} are damaged: {series.count} values of {series.dtype} "
            f"were promised, {len(raw)} bytes came"
        )
    return np.frombuffer(raw, dtype=series.dtype).astype(
        np.float64 if series.dtype == "<f8" else np.int64
    )
