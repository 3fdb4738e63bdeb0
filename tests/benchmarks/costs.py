"""What watches a run costs: reading the rails of a board, sampling beside the queries, the bookkeeping after the last of them."""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from edgemeter.agent.contract import case_settings, suite
from edgemeter.agent.energy.sampler import Sampler
from edgemeter.agent.engine import isolation, job
from edgemeter.agent.machine import conditions
from edgemeter.agent.machine.machine import recorded
from edgemeter.agent.power import replay
from edgemeter.agent.power.jetson import Ina3221
from edgemeter.agent.session import session
from tests.benchmarks.comparison import Comparison, Line, at_most, compared, figure, real_models
from tests.benchmarks.engine import QUICK
from tests.benchmarks.interleaving import in_turn
from tests.fixtures import machine_trees
from tests.fixtures.jetson_trees import AGX_ORIN, ina3221

QUERIES = 10_000
ROUNDS = 5
IDLE_S = 10.0
READINGS, SECONDS = 10, 8.0
RAILS_RATIO = 1.3
KERNEL_FILES = Path("/sys/class/net/lo")
RECORDING = Path(__file__).resolve().parents[1] / "fixtures" / "power" / "replay" / "trace.json"


def comparisons() -> Iterator[Comparison]:
    """Yield a reading of all rails beside bare reads, the idle cost of watching a board, and the bookkeeping of a run of 10,000 queries."""
    yield _rails()
    yield figure("idle sampling, conditions and power of a recorded board", "of a core", _sampling_ratio())
    model = real_models() / QUICK[0]
    name = f"from the last of {QUERIES:,} queries to the run's report"
    yield figure(name, "ms", statistics.median(_bookkeeping_ms(model) for _ in range(ROUNDS)))


def _rails() -> Comparison:
    """Return the processor time of a reading of an AGX Orin's two monitors beside that of nothing but reading the same files.

    Their numbers are links to numbers that every kernel has: files of its own, which are dearer to open than those on a disk.
    """
    with tempfile.TemporaryDirectory() as folder:
        for number, channels in enumerate(AGX_ORIN):
            tree = machine_trees.write(Path(folder), ina3221(f"sys/class/hwmon/hwmon{number}", channels))
        sensor = Ina3221(root=tree)
        files = [file.path for channel in sensor._parts().channels for file in channel.factors]
        for file in files:
            file.unlink()
            file.symlink_to(KERNEL_FILES / ("mtu" if file.name.startswith("in") else "tx_queue_len"))

        def bare() -> None:
            for file in files:
                descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
                os.read(descriptor, 4096)
                os.close(descriptor)

        peer = f"open, read, close of the same {len(files)} files"
        line = Line("a reading of all rails of an AGX Orin", "us", peer, at_most(RAILS_RATIO))
        return compared(line, in_turn(lambda: _cpu_us(sensor.read), lambda: _cpu_us(bare)), SECONDS)


def _cpu_us(work: Callable[[], object]) -> float:
    begin = time.thread_time_ns()
    for _ in range(READINGS):
        work()
    return (time.thread_time_ns() - begin) / 1e3 / READINGS


def _bookkeeping_ms(model: Path) -> float:
    """Return the time from the end of the last query, in the measuring process, to its whole report being read in ours.

    Both clocks are the machine's monotonic one. The passes over the kept outputs lie in between and count.
    """
    settings = case_settings.Settings(model=str(model), queries=QUERIES, seconds=0.0, mode="rapid", accuracy="never", agreement="never")
    case = suite.expand(suite.SuiteFile(name="bench", case=[settings]), model.parent).cases[0]
    work = job.RunJob(
        case=case, sha256=session.sha256(str(model)), size_bytes=model.stat().st_size, seed=0, accuracy=False, idle=False, spawned_ns=0
    )
    reported: list[int] = []

    def follow(event: job.Event, _pid: int) -> None:
        if isinstance(event, job.MeasuredRun):
            reported.append(time.monotonic_ns())

    measured = isolation.run_isolated(work, follow)
    return (reported[0] - measured.timed.end_ns) / 1e6


def _sampling_ratio() -> float:
    """Return the processor time of watcher and sampler over the time that passes, while nothing else runs here."""
    with tempfile.TemporaryDirectory() as folder:
        machine = recorded(machine_trees.raspberry_pi_5(Path(folder)), "aarch64")
        watcher = conditions.ConditionWatcher(None, machine)
        sampler = Sampler({"replay": replay.ReplaySensor(str(RECORDING))})
        begin, used = time.monotonic(), time.process_time()
        watcher.start()
        sampler.start()
        time.sleep(IDLE_S)
        sampler.stop()
        watcher.stop()
        return (time.process_time() - used) / (time.monotonic() - begin)
