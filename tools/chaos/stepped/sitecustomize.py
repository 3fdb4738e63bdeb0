"""A wall clock that can be stepped from outside.

It is that of any Python process that has this folder in PYTHONPATH. EDGEMETER_TEST_CLOCK names a
file of eight bytes: the nanoseconds that are added to the wall clock. The monotonic clock stays.
"""

import mmap
import os
import struct
import time
from pathlib import Path

if "EDGEMETER_TEST_CLOCK" in os.environ:
    with Path(os.environ["EDGEMETER_TEST_CLOCK"]).open("rb") as _file:
        _step = mmap.mmap(_file.fileno(), 8, access=mmap.ACCESS_READ)
    _true_ns = time.time_ns

    def _time_ns() -> int:
        return max(1, _true_ns() + struct.unpack("<q", _step[:8])[0])

    time.time_ns = _time_ns
    time.time = lambda: _time_ns() / 1e9
