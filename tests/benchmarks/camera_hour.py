"""A camera's hour on this machine: frames at a fixed rate, and a planted throttling that the record has to find.

    python -m tests.benchmarks.camera_hour --minutes 60 --output hour.json

The run's process gets a share of a core (a quota of its control group) from the middle to three quarters of the time, so that a query takes
`slowed` times as long, as at a lower clock. A made-up tree of the machine shows that clock and a temperature, a made-up sensor the power.
Beside what the record says stands what was planted, and the frames counted again from the raw series, one after the other, by code that
shares nothing with the engine. Exit status 1 where the two differ.
"""

import argparse
import contextlib
import functools
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.contract import samples, suite
from edgemeter.agent.contract.case_settings import Settings
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.engine import job
from edgemeter.agent.machine.machine import Machine
from edgemeter.agent.power import Description, Reading
from edgemeter.agent.session import observation, session
from tests.benchmarks.comparison import Comparison, LeftOutError, against, real_models
from tests.fixtures.machine_trees import write

MODEL = "coco_ssd_mobilenet_v1_1.0_quant_2018_06_29.tflite"
MINUTES = float(os.environ.get("EDGEMETER_BENCH_CAMERA_MINUTES") or 60)
RATE_PER_S, DEADLINE_MS = 15.0, 60.0
# When the throttling begins and ends, as a share of the run.
BEGIN, END = 0.5, 0.75
# A throttled query takes so much longer than its deadline.
BEYOND = 1.4
FASTEST, SLOWEST = 1.3, 20.0
CLOCK_HZ, POWER_W, THROTTLED_W, SCATTER_W = 2.4e9, 4.0, 3.0, 0.02
COOL_C, HOT_C = 52.0, 84.0
QUOTA_PERIOD_US = 10_000
CPUFREQ = "sys/devices/system/cpu/cpufreq/policy0"


class ControlGroup:
    """A control group of this harness, of version 1 or 2, that gives processes a share of one core."""

    def __init__(self, root: Path = Path("/sys/fs/cgroup")) -> None:
        self._is_first = (root / "cpu").is_dir()
        self._parent = root / "cpu" if self._is_first else root
        self._folder = self._parent / f"edgemeter-camera-{os.getpid()}"
        try:
            self._folder.mkdir()
            self._limit(None)
        except OSError as error:
            message = f"no control group with a quota can be made in {self._parent} ({error}): run as root"
            raise LeftOutError(message) from error

    def slow_down(self, pids: list[int], slowed: float) -> None:
        """Give the processes one `slowed`-th of a core from now on."""
        for pid in pids:
            (self._folder / "cgroup.procs").write_text(str(pid))
        self._limit(round(QUOTA_PERIOD_US / slowed))

    def release(self) -> None:
        """Let them run as before."""
        self._limit(None)

    def remove(self) -> None:
        """Remove the group; processes that are left go to its parent."""
        for pid in (self._folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (self._parent / "cgroup.procs").write_text(pid)
        self._folder.rmdir()

    def _limit(self, quota_us: int | None) -> None:
        if self._is_first:
            (self._folder / "cpu.cfs_period_us").write_text(str(QUOTA_PERIOD_US))
            (self._folder / "cpu.cfs_quota_us").write_text(str(quota_us or -1))
        else:
            (self._folder / "cpu.max").write_text(f"{quota_us or 'max'} {QUOTA_PERIOD_US}")


@dataclass
class Throttling:
    """What is planted: moments of the monotonic clock in ns, as they came to be."""

    slowed: float
    after_s: tuple[float, float]
    group: ControlGroup
    tree: Path
    begun_ns: int = 0
    ended_ns: int = 0
    timers: list[threading.Timer] = field(default_factory=list)

    def follow(self, event: object) -> None:
        """Set the timers when the timed part begins."""
        if isinstance(event, job.Phase) and event.name == "timed" and not self.timers:
            self.timers = [threading.Timer(s, act) for s, act in zip(self.after_s, (self._begin, self._end), strict=True)]
            for timer in self.timers:
                timer.start()

    def show(self, *, is_throttled: bool) -> None:
        """Write what the made-up machine shows of itself."""
        clock_khz = CLOCK_HZ / 1000 / (self.slowed if is_throttled else 1.0)
        files = {
            f"{CPUFREQ}/scaling_cur_freq": f"{clock_khz:.0f}\n",
            "sys/class/thermal/thermal_zone0/temp": f"{1000 * (HOT_C if is_throttled else COOL_C):.0f}\n",
        }
        write(self.tree, files)

    def _begin(self) -> None:
        self.group.slow_down(descendants(os.getpid()), self.slowed)
        self.begun_ns = time.monotonic_ns()
        self.show(is_throttled=True)

    def _end(self) -> None:
        self.group.release()
        self.ended_ns = time.monotonic_ns()
        self.show(is_throttled=False)


class PlantedPower:
    """A sensor whose mean power is known: less while the machine is throttled. Its readings scatter, as a frozen one's do not."""

    def __init__(self, throttling: Throttling) -> None:
        self._throttling = throttling
        self._draw = random.Random(1)  # noqa: S311

    def describe(self) -> Description:
        """Return a sensor at the board's input that is right to 1%."""
        return Description("planted", "board-input", (), "power", period_ms=100.0, resolution_w=0.001, gain_u_ratio=0.01)

    def read(self) -> Reading:
        """Return the power now."""
        is_throttled = self._throttling.begun_ns and not self._throttling.ended_ns
        power_w = THROTTLED_W if is_throttled else POWER_W
        return Reading(time.monotonic_ns(), power_w=power_w + self._draw.gauss(0, SCATTER_W))

    def close(self) -> None:
        """Do nothing."""


def descendants(pid: int) -> list[int]:
    """Return the processes that a process started, and those that these started."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    children = parents.get(pid, [])
    return [*children, *(further for child in children for further in descendants(child))]


def machine_tree(folder: Path) -> Path:
    """Return the root of a machine that is this one but for its clock and its temperature."""
    root = write(
        folder / "root",
        {
            f"{CPUFREQ}/scaling_governor": "schedutil\n",
            f"{CPUFREQ}/scaling_max_freq": f"{CLOCK_HZ / 1000:.0f}\n",
            f"{CPUFREQ}/cpuinfo_max_freq": f"{CLOCK_HZ / 1000:.0f}\n",
            "sys/class/thermal/thermal_zone0/type": "cpu-thermal\n",
        },
    )
    for name in ("proc", "etc", "dev", "run"):
        (root / name).symlink_to(f"/{name}")
    return root


def measured(settings: dict[str, Any], throttling: Throttling | None = None) -> RunRecord:
    """Return the record of one run of these settings; raises LeftOutError with the reason where it failed."""
    case = Settings(repeats=1, accuracy="never", agreement="never", cpus=[0], **settings)
    cases = suite.expand(suite.SuiteFile(name="camera-hour", case=[case]), Path.cwd())
    sensors = {} if throttling is None else {"planted": PlantedPower(throttling)}
    identity = session.DeviceIdentity("camera", "bench")
    (outcome,) = session.measure(cases, identity, sensors, "none is planted", throttling.follow if throttling else lambda _: None)
    if isinstance(outcome, EdgemeterError):
        raise LeftOutError(str(outcome)) from outcome
    return outcome


@contextlib.contextmanager
def planted(minutes: float, slowed: float) -> Iterator[Throttling]:
    """Give the throttling of a run that lasts so long; while it is open, sessions see the made-up machine."""
    with tempfile.TemporaryDirectory() as folder:
        group = ControlGroup()
        observing = session.Observation
        throttling = Throttling(slowed, (BEGIN * minutes * 60, END * minutes * 60), group, machine_tree(Path(folder)))
        throttling.show(is_throttled=False)
        # A session reads this machine alone: there is no other way in.
        session.Observation = functools.partial(observation.Observation, machine=Machine(throttling.tree))  # type: ignore[assignment,misc]
        try:
            yield throttling
        finally:
            session.Observation = observing  # type: ignore[misc]
            for timer in throttling.timers:
                timer.cancel()
            group.remove()


@dataclass(frozen=True)
class Count:
    """Frames counted one after the other."""

    frames: int
    dropped: int
    late: int
    longest_row: int
    first_missed_s: float | None
    first_missed_after_throttling_s: float | None
    while_throttled: int
    at_other_times: int


def recount(record: RunRecord, throttled_s: tuple[float, float]) -> Count:
    """Count the frames of a record again, from the moments and latencies of its raw series alone."""
    steady = record.steady
    if steady is None:
        raise LeftOutError("the run has no frames")
    raw = {
        series.name: [int(value) for value in samples.unpack(series)] for series in record.samples if series.name in ("arrival", "latency")
    }
    deadline_ns, curve = steady.deadline_ms * 1e6, record.sustained
    found_s, interval_s = (curve.throttled_after_s, curve.interval_s) if curve else (None, 0.0)
    answered = {round(at_ns / 1e9 * steady.rate_per_s): took_ns for at_ns, took_ns in zip(raw["arrival"], raw["latency"], strict=True)}
    dropped = late = row = longest_row = while_throttled = 0
    first_s = first_after_s = None
    for frame in range(steady.frames):
        took_ns, at_s = answered.get(frame), frame / steady.rate_per_s
        if took_ns is not None and took_ns <= deadline_ns:
            row = 0
            continue
        dropped, late, row = dropped + (took_ns is None), late + (took_ns is not None), row + 1
        longest_row = max(longest_row, row)
        # A frame that arrived a moment before is begun after.
        while_throttled += throttled_s[0] - 0.1 <= at_s <= throttled_s[1] + 0.1
        first_s = at_s if first_s is None else first_s
        if first_after_s is None and found_s is not None and at_s >= found_s - interval_s:
            first_after_s = at_s - found_s
    # Nearer than an interval of the curve it is not dated.
    first_after_s = None if first_after_s is None or first_after_s < interval_s else first_after_s
    return Count(steady.frames, dropped, late, longest_row, first_s, first_after_s, while_throttled, dropped + late - while_throttled)


def hour(minutes: float, model: str, slowed: float | None = None) -> dict[str, Any]:
    """Return what was planted, what the record says of it, and the frames counted again."""
    of_model = {"model": model, "threads": 1}
    p50_ms = measured({**of_model, "mode": "rapid"}).latency.p50_ms or 0.0
    slowed = slowed or max(BEYOND * DEADLINE_MS / max(p50_ms, 1e-3), FASTEST)
    if slowed > SLOWEST:
        message = f"{model} takes {p50_ms:.2f} ms: a deadline of {DEADLINE_MS:g} ms is missed at no clock that a board has"
        raise LeftOutError(message)
    settings = {**of_model, "scenario": "steady", "rate_per_s": RATE_PER_S, "deadline": f"{DEADLINE_MS:g}ms", "minutes": minutes}
    with planted(minutes, slowed) as throttling:
        record = measured(settings, throttling)
    if record.windows is None or record.steady is None:
        raise LeftOutError("the record has neither windows nor frames")
    begin_s, end_s = ((at_ns - record.windows.timed_start_ns) / 1e9 for at_ns in (throttling.begun_ns, throttling.ended_ns))
    counted, steady, curve = recount(record, (begin_s, end_s)), record.steady, record.sustained
    length_s = record.windows.timed_end_ns / 1e9
    planted_w = POWER_W - (POWER_W - THROTTLED_W) * (end_s - begin_s) / length_s
    of_record = {name: getattr(steady, name) for name in ("frames", "dropped", "late", "longest_row")}
    return {
        "minutes": minutes, "model": model, "p50_alone_ms": p50_ms, "rate_per_s": RATE_PER_S, "deadline_ms": DEADLINE_MS,
        "planted": {"begin_s": begin_s, "end_s": end_s, "slowed": slowed, "clock_hz": CLOCK_HZ / slowed, "mean_power_w": planted_w},
        "found": {
            "throttled_after_s": curve and curve.throttled_after_s, "evidence": curve and curve.evidence,
            "interval_s": curve and curve.interval_s, "mean_power_w": record.energy and record.energy.mean_power_w,
            "gross_mj": record.energy and record.energy.gross_mj,
            "energy_reason": record.energy_reason, "verdict": record.verdict.state, "rules": record.verdict.rules,
        },
        "record": {
            **of_record, "missed_ratio": steady.missed_ratio, "missed_low_ratio": steady.missed_low_ratio,
            "missed_high_ratio": steady.missed_high_ratio, "effective": steady.effective, "first_missed_s": steady.first_missed_s,
            "first_missed_after_throttling_s": steady.first_missed_after_throttling_s, "queue_max": steady.queue_max,
            "jitter_p90_ms": steady.jitter and steady.jitter.p90_ms, "longest_gap_ms": steady.longest_gap_ms,
            "in_curve": sum(point.missed or 0 for point in curve.points) if curve else None,
        },
        "recounted": asdict(counted),
        "agrees": all(value == getattr(counted, name) for name, value in of_record.items()) and is_near(steady, counted),
    }  # fmt: skip


def is_near(steady: Any, counted: Count) -> bool:
    """Return whether the moments of both are the same, to a microsecond."""
    for name in ("first_missed_s", "first_missed_after_throttling_s"):
        recorded_s, counted_s = getattr(steady, name), getattr(counted, name)
        if (recorded_s is None) != (counted_s is None) or (recorded_s is not None and abs(recorded_s - counted_s) > 1e-6):
            return False
    return True


def comparisons() -> Iterator[Comparison]:
    """Yield the missed frames beside those counted again, and the beginning of throttling beside that planted."""
    result = hour(MINUTES, str(real_models() / MODEL))
    record, counted, begin_s = result["record"], result["recounted"], result["planted"]["begin_s"]
    missed, recounted = (counts["dropped"] + counts["late"] for counts in (record, counted))
    name = f"camera: {MINUTES:g} min at {RATE_PER_S:g} frames/s"
    yield against(f"{name}, missed frames", "frames", missed, ("counted again", recounted), "equal", met=result["agrees"])
    found_s, interval_s = result["found"]["throttled_after_s"] or 0.0, result["found"]["interval_s"] or 0.0
    met = abs(found_s - begin_s) <= interval_s
    yield against(f"{name}, throttled from", "s", found_s, ("planted", begin_s), "within an interval", met=met)


def main(arguments: list[str]) -> int:
    """Measure, and write the JSON; 1 where record and count differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.camera_hour", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=MINUTES, help="length of the run. Default: %(default)g.")
    parser.add_argument("--model", help=f"model file. Default: {MODEL}.")
    parser.add_argument("--slowed", type=float, help="times as long while throttled. Default: until the deadline is missed.")
    parser.add_argument("--output", type=Path, help="file for the JSON. Default: standard output.")
    options = parser.parse_args(arguments)
    try:
        result = hour(options.minutes, options.model or str(real_models() / MODEL), options.slowed)
    except LeftOutError as error:
        print(f"left out: {error}", file=sys.stderr)
        return 2
    text = json.dumps(result, indent=2) + "\n"
    if options.output:
        options.output.write_text(text)
    print(text, end="")
    return 0 if result["agrees"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
