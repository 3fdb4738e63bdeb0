"""What the engine itself costs: its bookkeeping after the last query, and its sampling beside a run."""

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from edgemeter.agent.contract import suite
from edgemeter.agent.energy.sampler import Sampler
from edgemeter.agent.engine import isolation, job
from edgemeter.agent.machine import conditions
from edgemeter.agent.machine.machine import recorded
from edgemeter.agent.power import replay
from edgemeter.agent.session import session
from tests.benchmarks.comparison import Comparison, within
from tests.benchmarks.engine import QUICK
from tests.fixtures import machine_trees

QUERIES = 10_000
BOOKKEEPING_MS = 50.0
ROUNDS = 5
IDLE_S = 20.0
IDLE_RATIO = 0.005
RECORDING = Path(__file__).resolve().parents[1] / "fixtures" / "power" / "replay" / "trace.json"


def comparisons(models: Path) -> Iterator[Comparison]:
    """Yield the bookkeeping of a run of 10,000 queries, and the idle cost of watching a recorded board and its power."""
    name = f"from the last of {QUERIES:,} queries to the run's report"
    yield within(name, "ms", statistics.median(_bookkeeping_ms(models / QUICK[0]) for _ in range(ROUNDS)), BOOKKEEPING_MS)
    yield within("idle sampling, conditions and power of a recorded board", "of a core", _sampling_ratio(), IDLE_RATIO)


def _bookkeeping_ms(model: Path) -> float:
    """Return the time from the end of the last query, in the measuring process, to its whole report being read in ours.

    Both clocks are the machine's monotonic one. The passes over the kept outputs lie in between and count.
    """
    settings = suite.Settings(model=str(model), queries=QUERIES, seconds=0.0, mode="rapid", accuracy="never", agreement="never")
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
        sampler = Sampler({"replay": replay.Replay(str(RECORDING))})
        begin, used = time.monotonic(), time.process_time()
        watcher.start()
        sampler.start()
        time.sleep(IDLE_S)
        sampler.stop()
        watcher.stop()
        return (time.process_time() - used) / (time.monotonic() - begin)
