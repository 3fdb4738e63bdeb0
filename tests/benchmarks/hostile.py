"""Hostile messages: the collector's memory at its highest, for every shape that the tests know, each alone and all without a pause.

A good record of another device follows each and gets its receipt; a size, which the load of the machine does not change.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from tests import requirements
from tests.benchmarks.comparison import Comparison, LeftOutError, size_within
from tests.benchmarks.delivery import BIN, collecting, folder_on_disk
from tests.fixtures.bombs import BOMBS
from tests.fixtures.hostile import HOSTILE, numbered
from tests.fixtures.mqtt_peer import Peer, wait_until
from tests.fixtures.servers import Influx, address_of, running

PEAK_MB = 125.0
# A device that sends more useless bytes than this is muted for a while (`collector/receive/inbox.py`).
USELESS_BYTES_PER_S = 200 * (16 << 10)
# The writer validates what it deferred when no message comes, and then returns its buffers.
SETTLE_S = 1.5


def comparisons() -> Iterator[Comparison]:
    """Yield the highest of the peaks of single shapes, and the peak of all in turn, without InfluxDB and with it."""
    if requirements.find("mosquitto") is None:
        raise LeftOutError("mosquitto is not installed")
    for has_influx in (False, True):
        if has_influx and not (BIN / "influxd").exists():
            raise LeftOutError("no InfluxDB 2")
        sink = ", with InfluxDB" if has_influx else ""
        peaks_mb = _peaks_mb(HOSTILE | BOMBS, has_influx=has_influx, pauses=True)
        worst = max(peaks_mb, key=peaks_mb.__getitem__)
        yield size_within(f"hostile messages: collector's memory, the worst of {len(peaks_mb)} ({worst}){sink}", peaks_mb[worst], PEAK_MB)
        peaks_mb = _peaks_mb(HOSTILE, has_influx=has_influx, pauses=False)
        yield size_within(f"hostile messages: collector's memory, {len(peaks_mb)} in turn{sink}", max(peaks_mb.values()), PEAK_MB)


def _peaks_mb(shapes: Mapping[str, Callable[[], bytes]], *, has_influx: bool, pauses: bool) -> dict[str, float]:
    """Return the peak under each shape; of a collector that is given time after each, or of one that is not, since its start."""
    peaks_mb = {}
    with ExitStack() as stack:
        influx = stack.enter_context(running(Influx(BIN / "influxd", stack.enter_context(folder_on_disk())))) if has_influx else None
        broker, collector, _ = stack.enter_context(collecting(influx))
        sender = Peer(address_of(broker), "edgemeter/v1/lab/pi-2/receipt")
        stack.callback(sender.close)
        process = Path(f"/proc/{collector.pid}")
        for seq, (name, make) in enumerate(shapes.items(), 1):
            payload = make()
            if pauses:
                # Source: proc(5): 5 resets the peak to what is resident now.
                (process / "clear_refs").write_text("5")
            sender.session.publish("edgemeter/v1/lab/pi-1/result", payload)
            sender.session.publish("edgemeter/v1/lab/pi-2/result", numbered(seq, device="pi-2"))
            assert wait_until(lambda count=seq: len(sender.messages) >= count, 60), name  # type: ignore[misc]
            time.sleep(max(SETTLE_S, len(payload) / USELESS_BYTES_PER_S) if pauses else 0)
            peaks_mb[name] = int(re.findall(r"VmHWM:\s+(\d+) kB", (process / "status").read_text())[0]) * 1024 / 1e6
    return peaks_mb
