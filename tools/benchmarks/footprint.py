"""The agent's cost on a small board: the memory of a run and at rest, and the disk.

The disk is that of a base install. A run of a replay model stands next to a bare loop with the same
runtime: a process that imports numpy and the replay runtime, loads the model, calls it with one
input and keeps the times, as a user would write it by hand. Of all processes of either, each page
in memory counts once, at the moment that most are in use.

At rest the agent is connected to a broker, as Telegraf is. Its figure has pages that it shares with
other programs divided among them (PSS). That of Telegraf, which shares nothing, is the same by both
measures.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import numpy as np
import psutil

from tests import requirements
from tests.fixtures.replay_case import write_replay
from tests.fixtures.servers import mosquitto
from tools.benchmarks.commands import COMMAND, RAPID, environment_of
from tools.benchmarks.harness import (
    ROOT,
    Comparison,
    LeftOutError,
    Line,
    at_most,
    compared,
    figure,
    in_turn,
)

SECONDS, PERIOD_S, SETTLE_S = 20.0, 0.03, 10.0
PAGE_BYTES, PRESENT, FRAME = (
    os.sysconf("SC_PAGE_SIZE"),
    np.uint64(1 << 63),
    np.uint64((1 << 55) - 1),
)
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
BARE_LOOP = """
import sys, time
from pathlib import Path
import numpy as np
from edgemeter.agent.runtimes import Options
from edgemeter.agent.runtimes.replay import ReplayRuntime
runtime, times_ns = ReplayRuntime(), []
runtime.load(Path(sys.argv[1]), Options())
call = runtime.bind([np.zeros((1, 4), np.float32)])
for _ in range(500):
    begin_ns = time.monotonic_ns()
    call()
    times_ns.append(time.monotonic_ns() - begin_ns)
print(np.median(times_ns))
"""


def comparisons() -> Iterator[Comparison]:
    """Yield the memory of a run next to a bare loop, of the agent at rest, and the disk.

    The disk is that of a base install.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment, model = environment_of(folder / "home"), str(write_replay(folder))
        if os.geteuid() == 0:
            run = [*COMMAND, "run", model, *RAPID, "--repeats", "1"]
            bare = [sys.executable, "-c", BARE_LOOP, model]
            pair = in_turn(lambda: _peak_mb(run, environment), lambda: _peak_mb(bare, environment))
            line = Line(
                "memory of all processes of a run of a replay model",
                "MB",
                "a bare loop with the same runtime",
                at_most(1.2),
            )
            # The load of a machine does not change it.
            yield compared(line, pair, SECONDS, watch=None)
        if requirements.find("mosquitto"):
            yield from _at_rest(folder, environment)
    yield figure(
        "base install on disk, without numpy and bytecode",
        "MB",
        _size_mb(_installed("numpy")),
        at_most(60),
    )
    if os.geteuid() != 0:
        raise LeftOutError("only root may read which pages processes share (/proc/PID/pagemap)")


def _peak_mb(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """Return the most memory that a command and what it starts have at once.

    Raises:
        CalledProcessError: it failed.
    """
    peak_pages = 0
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        while process.poll() is None:
            peak_pages = max(
                peak_pages,
                len(np.unique(np.concatenate([_frames(pid) for pid in _family(process.pid)]))),
            )
            time.sleep(PERIOD_S)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return peak_pages * PAGE_BYTES / 1e6


def _family(pid: int) -> list[int]:
    with suppress(psutil.NoSuchProcess):
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    return [pid]


def _frames(pid: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Return the page frames of a process that are in memory; none of one that has ended."""
    frames = [np.empty(0, np.uint64)]
    with (
        suppress(FileNotFoundError, ProcessLookupError),
        open(f"/proc/{pid}/pagemap", "rb", buffering=0) as file,  # noqa: PTH123 - Linux only
    ):
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            begin, end = (int(address, 16) for address in line.partition(" ")[0].split("-"))
            if "[vsyscall]" not in line:
                file.seek(begin // PAGE_BYTES * 8)
                entries = np.frombuffer(file.read((end - begin) // PAGE_BYTES * 8), np.uint64)
                frames.append(entries[entries & PRESENT != 0] & FRAME)
    return np.concatenate(frames)


def _at_rest(folder: Path, environment: Mapping[str, str]) -> Iterator[Comparison]:
    server = mosquitto(folder)
    server.start()
    (folder / "telegraf.conf").write_text(TELEGRAF_CONFIG.format(port=server.port))
    commands = {
        "agent": [
            *COMMAND,
            "agent",
            "up",
            "--broker",
            f"127.0.0.1:{server.port}",
            "--device",
            "idle",
        ]
    }
    if TELEGRAF.exists():
        commands["Telegraf"] = [str(TELEGRAF), "--config", str(folder / "telegraf.conf"), "--quiet"]
    quiet = {"env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    processes = {
        who: subprocess.Popen(command, **quiet)  # type: ignore[call-overload]
        for who, command in commands.items()
    }
    try:
        time.sleep(SETTLE_S)
        for who, process in processes.items():
            memory = [psutil.Process(pid).memory_full_info() for pid in _family(process.pid)]
            about = f"{who} at rest, connected: memory"
            yield figure(
                about,
                "MB",
                sum(part.pss for part in memory) / 1e6,
                at_most(20) if who == "agent" else None,
            )
            yield figure(
                f"{about}, shared pages whole", "MB", sum(part.rss for part in memory) / 1e6
            )
    finally:
        for process in processes.values():
            process.terminate()
            process.communicate(timeout=30)
        server.kill()


def _installed(*without: str) -> set[Path]:
    """Return the files of the distribution and of all that it needs.

    Extras and these packages are left out.
    """
    names, waiting = set(without), ["edgemeter"]
    while waiting:
        if (name := waiting.pop()) in names:
            continue
        names.add(name)
        for need in metadata.requires(name) or []:
            requirement, _, condition = need.partition(";")
            if "extra ==" not in condition and (match := re.match(r"[\w.-]+", requirement)):
                with suppress(metadata.PackageNotFoundError):
                    waiting.append(metadata.distribution(match[0]).metadata["Name"])
    packages = names - {"edgemeter", *without}
    sources = {
        file
        for folder in ("agent", "collector", "models", "provisioning")
        for file in (ROOT / folder).rglob("*")
    }
    return sources.union(
        Path(str(file.locate())) for name in packages for file in metadata.files(name) or []
    )


def _size_mb(files: Iterable[Path]) -> float:
    return (
        sum(file.stat().st_size for file in files if file.is_file() and file.suffix != ".pyc") / 1e6
    )
