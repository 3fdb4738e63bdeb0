"""What `edgemeter agent up` costs a device while nothing is to be done: memory and processor time, the connection to a real broker up."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.comparison import Comparison, within
from tests.fixtures.servers import mosquitto

# The goals are for ten minutes: EDGEMETER_BENCH_IDLE_S=600. The keep-alive comes every 30 s, so that a minute has two.
IDLE_S = float(os.environ.get("EDGEMETER_BENCH_IDLE_S") or 60)
SETTLE_S = 15.0
MEMORY_MB = 30.0
LOAD_RATIO = 0.001


def comparisons() -> Iterator[Comparison]:
    """Yield memory and processor time of the idle agent."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = mosquitto(folder)
        server.start()
        agent = _start(folder, server.port)
        try:
            time.sleep(SETTLE_S)
            used_s, begin_s = _cpu_s(agent.pid), time.monotonic()
            time.sleep(IDLE_S)
            load_ratio = (_cpu_s(agent.pid) - used_s) / (time.monotonic() - begin_s)
            memory_mb = _memory_mb(agent.pid)
        finally:
            agent.send_signal(signal.SIGTERM)
            agent.communicate(timeout=30)
            server.kill()
    yield within(f"agent idle for {IDLE_S:g} s, connected: memory", "MB", memory_mb, MEMORY_MB)
    yield within(f"agent idle for {IDLE_S:g} s, connected: processor", "of a core", load_ratio, LOAD_RATIO)


def _start(folder: Path, port: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "edgemeter.agent.cli.main", "agent", "up", "--broker", f"127.0.0.1:{port}", "--device", "idle"]
    return subprocess.Popen(command, env={**os.environ, "EDGEMETER_HOME": str(folder)}, stderr=subprocess.DEVNULL)


def _cpu_s(pid: int) -> float:
    # Source: proc(5), /proc/pid/stat: the fields after the name in parentheses; 14 and 15 are user and system time in clock ticks.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mb(pid: int) -> float:
    """Return the resident memory, shared libraries included."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (resident,) = [line.split()[1] for line in lines if line.startswith("VmRSS:")]
    return int(resident) * 1024 / 1e6
