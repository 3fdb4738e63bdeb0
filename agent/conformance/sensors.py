"""Conformance checks for power sensors (the contract: `edgemeter.agent.power.PowerSensor`)."""

import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from edgemeter.agent import power
from edgemeter.agent.base.errors import ConfigError, EdgemeterError, TransientError, UnavailableError
from edgemeter.agent.conformance.promise import ContractViolationError, is_one_line, public_imports, refused, require
from edgemeter.agent.contract.record_figures import Scope
from edgemeter.agent.power import AbsentError, PowerSensor, Reading
from edgemeter.agent.power.recording import PowerRecording

# From one unit to the next, as from mW to W; and where a recording that states no `reads_w` has to lie by its scope, W. These are no
# bounds of what machines draw (`machine/power_range.py` has those): each is less than such a step wide, so that a wrong unit is outside.
UNIT_STEP = 1000
USUAL_W: Mapping[Scope, tuple[float, float]] = {
    "wall-ac": (1.0, 999.0), "board-input": (0.25, 249.0), "module": (0.25, 249.0), "soc-rails": (0.1, 99.0),
    "cpu-package": (0.5, 499.0), "gpu-board": (1.5, 1499.0),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SensorCase:
    """A sensor, and a recording of what it reads: a folder with a tree (`sys/...`), or with the one file that its source printed.

    `settings` are those of its table in the configuration. `opens`, for a sensor that is read by a library, makes the sensor on a
    recording by itself (an empty folder: nothing is there); its recording is not spoilt then. `absent_error` is what it raises if there
    is nothing to read: a ConfigError if it cannot be without a setting. `reads_w` is between which powers the recording lies, as another
    instrument or the meter's own display showed; without it, between those of the sensor's scope. `later`, which a counter needs, makes
    of a copy of the recording what the source held later, and returns how many seconds later.
    """

    name: str
    recording: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    opens: Callable[[Path], PowerSensor] | None = None
    absent_error: type[EdgemeterError] = AbsentError
    reads_w: tuple[float, float] | None = None
    later: Callable[[Path], float] | None = None


Check = Callable[[SensorCase, Path], None]


@contextmanager
def _opened(case: SensorCase, folder: Path) -> Iterator[PowerSensor]:
    with ExitStack() as stack:
        if case.opens is not None:
            sensor = case.opens(folder)
        else:
            files = _files(folder)
            path = folder if (folder / "sys").exists() or not files else files[0]
            sensor = power.create(case.name, world=stack.enter_context(PowerRecording(path)).world, **case.settings)
        try:
            yield sensor
        finally:
            sensor.close()


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _copy(case: SensorCase, folder: Path, name: str = "recording") -> Path:
    return Path(shutil.copytree(case.recording, folder / name))


def says_what_it_is_and_reads(case: SensorCase, _folder: Path) -> None:
    """Scope, kind, period; readings of that kind, finite, stamped by the monotonic clock in order."""
    with _opened(case, case.recording) as sensor:
        description = sensor.describe()
        require(description.id, "a sensor has an id")
        require(description.scope in get_args(Scope), f"the scope {description.scope!r} is one of {', '.join(get_args(Scope))}")
        require(description.period_ms > 0, "the period is positive")
        first, second = sensor.read(), sensor.read()
        for reading in (first, second):
            value = reading.power_w if description.kind == "power" else reading.energy_mj
            require(value is not None and math.isfinite(value), f"a sensor of kind {description.kind!r} gives it, finite: {reading}")
        require(description.kind == "energy" or first.energy_mj is None, "a sensor of kind 'power' gives no energy")
        require(second.taken_ns >= first.taken_ns > 0, "readings are stamped by the monotonic clock, in order")


def figures_are_in_watts_and_millijoules(case: SensorCase, folder: Path) -> None:
    """Powers, and what a counter moves, lie where `reads_w` or the scope has them: 1,000 times too much or too little does not.

    A smaller factor is not seen, nor a wrong unit that `reads_w` repeats: take it from another instrument.
    """
    copy = _copy(case, folder)
    with _opened(case, copy) as sensor:
        description, first = sensor.describe(), sensor.read()
        powers = [] if first.power_w is None else [(first.power_w, f"reads {first.power_w:g} W")]
        step, smallest = description.resolution_w, abs(first.power_w or 0.0)
        if description.kind == "energy":
            step, (smallest, seconds) = description.resolution_mj, _moved_mj(case, sensor, first, copy)
            powers.append((smallest / 1000 / seconds, f"counts {smallest:g} mJ in {seconds:g} s, {smallest / 1000 / seconds:g} W"))
    low_w, high_w = case.reads_w or USUAL_W[description.scope]
    require(0 < low_w < high_w < UNIT_STEP * low_w, f"reads_w = {case.reads_w}: above 0, and less than {UNIT_STEP} times apart")
    for power_w, reads in powers:
        expected = f"where {low_w:g} to {high_w:g} W are expected: correct its unit (W, mJ), or state `reads_w`"
        require(low_w <= abs(power_w) <= high_w, f"the sensor {reads}, {expected}")
    require((step or 0.0) <= smallest, f"the resolution, {step}, is more than the reading, {smallest:g}: state it in W or mJ")


def _moved_mj(case: SensorCase, sensor: PowerSensor, first: Reading, copy: Path) -> tuple[float, float]:
    """Return what the counter moves from the recording to what follows it, and the seconds between."""
    if case.later is None:
        raise ContractViolationError(
            "a counter's unit shows in what it moves: give the case `later`, else 1,000 times too much is not seen"
        )
    seconds = case.later(copy)
    # A tree is read anew each time, and so is what a library plays; one file is read when it is opened.
    is_tree = (copy / "sys").exists() or case.opens is not None
    with nullcontext(sensor) if is_tree else _opened(case, copy) as following:
        return (following.read().energy_mj or 0.0) - (first.energy_mj or 0.0), seconds


def constructing_touches_nothing(case: SensorCase, folder: Path) -> None:
    """An absent sensor can be constructed and closed."""
    with _opened(case, folder):
        pass


def an_absent_sensor_says_so(case: SensorCase, folder: Path) -> None:
    """By describe and by read."""
    for method in ("describe", "read"):
        with _opened(case, folder) as sensor, refused(f"{method} of an absent sensor", case.absent_error):
            getattr(sensor, method)()


def a_spoilt_source_ends_in_an_error(case: SensorCase, folder: Path) -> None:
    """Every file empty, garbage or a folder: an error of ours. Cut in half: that, or a number that is finite."""
    for spoil in ("empty", "garbled", "folder", "cut") if case.opens is None else ():
        copy = _copy(case, folder, spoil)
        for path in _files(copy):
            content = path.read_bytes()
            path.unlink()
            if spoil == "folder":
                path.mkdir()
            else:
                path.write_bytes({"empty": b"", "garbled": b"\xff\xfe\x00garbage\n", "cut": content[: len(content) // 2]}[spoil])
        try:
            with _opened(case, copy) as sensor:
                sensor.describe()
                reading = sensor.read()
        except (UnavailableError, ConfigError) as error:
            require(is_one_line(error), f"a source spoilt ({spoil}): the error has several lines: {error}")
            continue
        require(spoil == "cut", f"a source spoilt ({spoil}) gives a number: {reading}")
        require(math.isfinite(reading.power_w if reading.power_w is not None else reading.energy_mj or 0.0), "a number is finite")


def a_source_that_goes_while_reading_is_an_error(case: SensorCase, folder: Path) -> None:
    """The files go between two reads: transient, unavailable, or the sensor had all it needs; never a foreign exception."""
    if case.opens is not None:
        return
    copy = _copy(case, folder)
    with _opened(case, copy) as sensor:
        sensor.describe()
        before = sensor.read()
        shutil.rmtree(copy)
        try:
            after = sensor.read()
        except (TransientError, UnavailableError):
            return
        require(after.taken_ns >= before.taken_ns, "readings are stamped in order")


def closing_twice_does_no_harm(case: SensorCase, _folder: Path) -> None:
    """After use, and without any."""
    with _opened(case, case.recording) as unused:
        unused.close()
    with _opened(case, case.recording) as used:
        used.describe()
        used.read()
        used.close()


def an_unknown_setting_is_refused(case: SensorCase, _folder: Path) -> None:
    """A typing error in the configuration must not be ignored."""
    with refused("a setting 'nobody_knows'", ConfigError, mentions="nobody_knows"):
        power.create(case.name, **case.settings, nobody_knows="9")


def foreign_recordings_are_not_recognised(case: SensorCase, _folder: Path) -> None:
    """Nothing and garbage have the form of no sensor's output."""
    for content in (b"", b"\xff\xfe\x00garbage\n"):
        require(power.sensor_class(case.name).recognises(content) is False, f"recognises({content!r}) is False")


CHECKS: tuple[Check, ...] = (
    public_imports("power sensor", power.SENSORS, power.ENTRY_POINTS, lambda case: case.name),
    says_what_it_is_and_reads,
    figures_are_in_watts_and_millijoules,
    constructing_touches_nothing,
    an_absent_sensor_says_so,
    a_spoilt_source_ends_in_an_error,
    a_source_that_goes_while_reading_is_an_error,
    closing_twice_does_no_harm,
    an_unknown_setting_is_refused,
    foreign_recordings_are_not_recognised,
)
