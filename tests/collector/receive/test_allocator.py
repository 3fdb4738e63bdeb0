"""What the collector's process holds when nothing comes, by the kernel's count, each in a process of its own."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.collecting import CollectorProcess

# Buffers of messages, of which one in twenty stays; prints the MB held when the others are freed, and when they are given back.
BURST = """
import re
from pathlib import Path
from edgemeter.collector.receive.allocator import give_back_freed_buffers, keep_freed_buffers

def held_mb():
    return int(re.search(r"VmRSS:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024

keep_freed_buffers()
before_mb = held_mb()
burst = [b"x" * size for size in range(4000, 12000)]
stays = burst[::20]
del burst
after_mb = held_mb()
give_back_freed_buffers()
print(after_mb - before_mb, held_mb() - before_mb)
"""


@pytest.mark.nightly
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps no freed buffers")
def test_what_a_burst_leaves_behind_is_given_back():
    """Kept while messages come, because fetching it anew costs time; of 64 MB a tenth stays."""
    printed = subprocess.run([sys.executable, "-c", BURST], capture_output=True, text=True, check=True, timeout=120).stdout
    kept_mb, left_mb = map(float, printed.split())
    assert kept_mb > 50
    assert left_mb < 10


@pytest.mark.services
def test_a_collector_that_drains_nothing_loads_nothing_for_it(tmp_path):
    """Neither numpy nor the client of InfluxDB, which are a third of its memory, by the files that it maps."""
    with CollectorProcess(tmp_path / "ledger", "--port", "0") as collector:
        assert "/numpy/" not in Path(f"/proc/{collector.process.pid}/maps").read_text()
