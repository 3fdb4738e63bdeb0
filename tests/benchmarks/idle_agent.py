"""What the agent costs a small board: memory and processor time at rest and of a run, imports, and disk with what of it a run opens.

Telegraf and, where Debian's package is installed, node_exporter stand beside it in the same run. Memory and disk do not depend on what else
a machine does, so they are judged; everything else is printed.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from shutil import which

import psutil

from tests.benchmarks import opened_files, run_memory
from tests.benchmarks.comparison import ROOT, Comparison, LeftOutError, figure, real_models, size_within
from tests.benchmarks.engine import SLOW
from tests.benchmarks.first_look import COMMAND, replay_run
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
RAPID = ["--mode", "rapid", "--power", "none"]
BARE_LOOP = """
import sys
import numpy as np
from ai_edge_litert.interpreter import Interpreter
interpreter = Interpreter(sys.argv[1], num_threads=1)
interpreter.allocate_tensors()
(info,) = interpreter.get_input_details()
interpreter.set_tensor(info["index"], np.zeros(info["shape"], info["dtype"]))
for _ in range(20):
    interpreter.invoke()
"""


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
        yield from _of_runs(folder)
    yield figure("`import edgemeter.agent.cli.main`", "ms", min(_taken_ms([sys.executable, "-c", IMPORT]) for _ in range(RUNS)))
    yield size_within("base install on disk, without numpy", _size_mb(_installed("numpy"), bytecode=False), DISK_MB)
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
    """Return the memory of a process and its children, pages that several share divided among them (PSS).

    The limit at rest is by this measure: the agent starts no process then.
    """
    root = psutil.Process(pid)
    total = 0
    for process in (root, *root.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            total += process.memory_full_info().pss
    return total / 1e6


def _of_runs(folder: Path) -> Iterator[Comparison]:
    """Yield what a run of a replay model costs, neither runtime nor model, then one of a real model beside a bare loop around it."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["EDGEMETER_HOME"] = str(folder / "home")
    # The first may have to compile modules.
    costs = [run_memory.cost_of(replay_run(folder), environment) for _ in range(2)]
    yield from run_memory.lines("a run of a replay model", min(costs, key=lambda cost: cost.memory_mb))
    opened, used = opened_files.of_a_run(replay_run(folder), environment), _installed()
    yield figure("base install on disk, with the bytecode that is there", "MB", _size_mb(used))
    yield figure("base install on disk: numpy", "MB", _size_mb(_files("numpy")))
    yield figure("base install on disk: what a run of a replay model opens", "MB", _size_mb(used & opened))
    yield figure("base install on disk: what of numpy a run of a replay model opens", "MB", _size_mb(_files("numpy") & opened))
    with suppress(LeftOutError):
        model = real_models() / SLOW[0]
        about = f"a run of a model of {model.stat().st_size / 1e6:.1f} MB"
        cost = run_memory.cost_of([*COMMAND, "run", str(model), *RAPID], environment)
        yield from run_memory.lines(about, cost)
        yield from run_memory.profile(about, cost)
        yield from run_memory.lines("a bare loop around it", run_memory.cost_of([sys.executable, "-c", BARE_LOOP, str(model)], environment))


def _taken_ms(command: list[str]) -> float:
    begin = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return 1e3 * (time.monotonic() - begin)


def _installed(*without: str) -> set[Path]:
    """Return the files of the distribution and of all that it needs, without extras and these packages."""
    names, waiting = set(without), ["edgemeter"]
    while waiting:
        name = waiting.pop()
        if name in names:
            continue
        names.add(name)
        for need in metadata.requires(name) or []:
            requirement, _, condition = need.partition(";")
            if "extra ==" not in condition and (match := re.match(r"[\w.-]+", requirement)):
                with suppress(metadata.PackageNotFoundError):
                    waiting.append(metadata.distribution(match[0]).metadata["Name"])
    sources = {file for folder in ("agent", "collector", "models", "provisioning") for file in (ROOT / folder).rglob("*")}
    return sources.union(*(_files(name) for name in names - {"edgemeter", *without}))


def _files(package: str) -> set[Path]:
    return {Path(os.path.abspath(file.locate())) for file in metadata.files(package) or []}  # noqa: PTH100 - the links on the way stay


def _size_mb(files: Iterable[Path], *, bytecode: bool = True) -> float:
    return sum(file.stat().st_size for file in files if file.is_file() and (bytecode or file.suffix != ".pyc")) / 1e6
