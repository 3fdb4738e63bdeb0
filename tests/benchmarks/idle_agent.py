"""What the agent costs a small board: memory at rest and while it measures, processor time at rest, imports, and disk.

Telegraf and, where Debian's package is installed, node_exporter stand beside it in the same run. Memory and disk do not depend on what else
a machine does, so they are judged; everything else is printed.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from shutil import which

import psutil

from tests.benchmarks.comparison import ROOT, Comparison, figure, size_within
from tests.benchmarks.first_look import replay_run
from tests.fixtures.servers import free_port, mosquitto

# The keep-alive comes every 30 s.
IDLE_S = float(os.environ.get("EDGEMETER_BENCH_IDLE_S") or 31)
SETTLE_S = 10.0
MEMORY_MB = DISK_MB = 25.0
TELEGRAF = ROOT.parent / "shared" / "bin" / "telegraf"
TELEGRAF_CONFIG = """
[agent]
  interval = "10s"
[[inputs.internal]]
[[inputs.mqtt_consumer]]
  servers = ["tcp://127.0.0.1:{port}"]
  topics = ["rest"]
  data_format = "influx"
[[outputs.file]]
  files = ["/dev/null"]
"""
RUNS = 3
IMPORT = "import edgemeter.agent.cli.main"


def comparisons() -> Iterator[Comparison]:
    """Yield the agent at rest beside its peers, then while it measures, its imports, and what it takes on disk."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = mosquitto(folder)
        server.start()
        peers = {who: _start(command, folder) for who, command in _commands(folder, server.port).items()}
        try:
            time.sleep(SETTLE_S)
            used_s = {who: _cpu_s(process) for who, process in peers.items()}
            time.sleep(IDLE_S)
            for who, process in peers.items():
                assert process.poll() is None, f"{who} has ended with {process.returncode}"
                memory_mb = _tree_mb(process.pid)
                about = f"{who} at rest, connected: memory"
                yield size_within(about, memory_mb, MEMORY_MB) if who == "agent" else figure(about, "MB", memory_mb)
                yield figure(f"{who} at rest, connected: processor", "of a core", (_cpu_s(process) - used_s[who]) / IDLE_S)
        finally:
            for process in peers.values():
                process.send_signal(signal.SIGTERM)
                process.communicate(timeout=30)
            server.kill()
        yield figure("a run of a replay model: memory of all its processes", "MB", max(_measuring_mb(folder) for _ in range(RUNS)))
    yield figure("`import edgemeter.agent.cli.main`", "ms", min(_taken_ms([sys.executable, "-c", IMPORT]) for _ in range(RUNS)))
    yield size_within("base install on disk, without numpy", _installed_mb(), DISK_MB)
    for who, program in _programs().items():
        yield figure(f"`{who} --version`", "ms", min(_taken_ms([program, "--version"]) for _ in range(RUNS)))
        yield figure(f"{who} on disk", "MB", Path(program).stat().st_size / 1e6)


def _commands(folder: Path, port: int) -> dict[str, list[str]]:
    agent = [sys.executable, "-m", "edgemeter.agent.cli.main", "agent", "up", "--broker", f"127.0.0.1:{port}", "--device", "idle"]
    (folder / "telegraf.conf").write_text(TELEGRAF_CONFIG.format(port=port))
    options = {
        "Telegraf": ["--config", str(folder / "telegraf.conf"), "--quiet"],
        "node_exporter": [f"--web.listen-address=127.0.0.1:{free_port()}"],
    }
    return {"agent": agent} | {who: [program, *options[who]] for who, program in _programs().items()}


def _programs() -> dict[str, str]:
    """Return the peers that are here; each is one file."""
    programs = {"Telegraf": str(TELEGRAF) if TELEGRAF.exists() else None, "node_exporter": which("prometheus-node-exporter")}
    return {who: program for who, program in programs.items() if program}


def _start(command: list[str], folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command, env={**os.environ, "EDGEMETER_HOME": str(folder)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def _cpu_s(process: subprocess.Popen[bytes]) -> float:
    times = psutil.Process(process.pid).cpu_times()
    return times.user + times.system


def _tree_mb(pid: int) -> float:
    """Return the memory of a process and its children, pages that several share divided among them (PSS)."""
    root = psutil.Process(pid)
    total = 0
    for process in (root, *root.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            total += process.memory_full_info().pss
    return total / 1e6


def _measuring_mb(folder: Path) -> float:
    """Return the most memory that a run of a replay model takes, sampled every 20 ms: harness alone, neither runtime nor model."""
    peak_mb, has_ended = [0.0], threading.Event()
    process = subprocess.Popen(
        replay_run(folder), env={**os.environ, "EDGEMETER_HOME": str(folder / "home")}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def watch() -> None:
        while not has_ended.wait(0.02):
            with suppress(psutil.NoSuchProcess):
                peak_mb[0] = max(peak_mb[0], _tree_mb(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    process.wait()
    has_ended.set()
    watcher.join()
    return peak_mb[0]


def _taken_ms(command: list[str]) -> float:
    begin = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return 1e3 * (time.monotonic() - begin)


def _installed_mb() -> float:
    """Return what the distribution and all that it needs take, without bytecode, numpy and extras."""
    names, waiting = set(), ["edgemeter"]
    while waiting:
        name = waiting.pop()
        if name in names or name == "numpy":
            continue
        names.add(name)
        for need in metadata.requires(name) or []:
            requirement, _, condition = need.partition(";")
            if "extra ==" not in condition and (match := re.match(r"[\w.-]+", requirement)):
                with suppress(metadata.PackageNotFoundError):
                    waiting.append(metadata.distribution(match[0]).metadata["Name"])
    files = {Path(str(file.locate())) for name in names - {"edgemeter"} for file in metadata.files(name) or [] if file.suffix != ".pyc"}
    sources = {file for folder in ("agent", "collector", "models", "provisioning") for file in (ROOT / folder).rglob("*")}
    return sum(file.stat().st_size for file in files | sources if file.is_file() and "__pycache__" not in file.parts) / 1e6
