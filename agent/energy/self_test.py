"""The self-test of a sensor: a known load on the processor, the readings meanwhile, and what both together show of the sensor.

All cores are kept busy and left alone in turns of irregular length, drawn anew for each test, so that no clock keeps step with them: from
some tenths of a second, which a fast sensor needs, to some seconds, which a slow one does.
"""

import datetime as dt
import math
import multiprocessing
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from edgemeter.agent.base.errors import MeasurementError, TransientError, UnavailableError
from edgemeter.agent.base.progress import Tell
from edgemeter.agent.energy.queries import Array
from edgemeter.agent.energy.refusals import power_refusal
from edgemeter.agent.energy.renewal import Renewal, renewal_of
from edgemeter.agent.energy.sensor_run import LARGEST_GAP_RATIO
from edgemeter.agent.energy.step_response import SHORT_S, Estimate, StepResponse, Switched, step_response
from edgemeter.agent.machine.power_range import ANY_MACHINE, PowerRange
from edgemeter.agent.power import Description, PowerSensor
from edgemeter.agent.power.stored import MeasuredProperty, SelfTest

if TYPE_CHECKING:
    from multiprocessing.synchronize import Event, Semaphore

TEST_S = 60.0
# Lengths of the turns, s, drawn so that each factor of length is as frequent as any other.
SHORTEST_TURN_S, LONGEST_TURN_S = 0.4, 6.0
IDLE_FIRST_S = 3.0
# Reading more often than this loads the processor itself, and more often than ten times in its period a plug that answers by radio.
READ_EVERY_S = 0.01
READS_PER_PERIOD = 10
# Of a slow sensor the test lasts for so many of its periods.
PERIODS = 90
FEWEST_READINGS = 60
# A value that stays over so many switches, and so much longer than values usually do, hangs.
HANGING_EDGES = 4
HANGING_RATIO = 8.0
HANGING_S = 5.0
# So many of the readings under load at the very highest value, and few at one value while idle: it goes no higher.
CLIPPED_RATIO = 0.5
UNCLIPPED_RATIO = 0.15
# A step of the readings shows in so many neighbouring values.
FEWEST_STEPS = 4
STEP_TOLERANCE = 0.02
# A counter is looked at over spans of so long at least.
SPAN_S = 0.05
LONG_GAP_RATIO = 5.0
COVERED_RATIO = 0.8
NO_LOAD = "no load was driven (--no-load)"
# How long a process of the load may take to start.
READY_S = 60.0


@dataclass(frozen=True, slots=True)
class LoadReadings:
    """The readings of a test: their times, s since its start, their values (W, of a counter mJ), and how many failed; the load."""

    at_s: Array
    values: Array
    failures: int
    load: Switched


def length_s(description: Description) -> float:
    """Return how long the test of a sensor lasts, unless something else is asked for."""
    return max(TEST_S, PERIODS * description.period_ms / 1000)


def turns(draw: random.Random, test_s: float = TEST_S) -> list[float]:
    """Return the lengths of a test's turns, s: off, on, off and so on."""
    lengths = [IDLE_FIRST_S]
    while sum(lengths) < test_s:
        lengths.append(SHORTEST_TURN_S * (LONGEST_TURN_S / SHORTEST_TURN_S) ** draw.random())
    return lengths


def read_under_load(
    sensor: PowerSensor,
    switch: Callable[[bool], None],
    lengths_s: Sequence[float],
    tell: Tell,
    clock: Callable[[], int] = time.monotonic_ns,
    sleep: Callable[[float], None] = time.sleep,
) -> LoadReadings:
    """Switch the load in turns of these lengths, and read the sensor as fast as it should be meanwhile.

    Raises:
        UnavailableError: the sensor is gone.
    """
    every_s = max(READ_EVERY_S, sensor.describe().period_ms / 1000 / READS_PER_PERIOD)
    start_ns = clock()
    at_s: list[float] = []
    values: list[float] = []
    edges_s: list[float] = []
    failures, end_s = 0, 0.0
    for number, length_s in enumerate(lengths_s):
        tell("load on" if number % 2 else "load off", number, len(lengths_s))
        if number:
            switch(bool(number % 2))
            edges_s.append((clock() - start_ns) / 1e9)
        end_s += length_s
        while (begun_s := (clock() - start_ns) / 1e9) < end_s:
            try:
                reading = sensor.read()
            except TransientError:
                failures += 1
            else:
                value = reading.power_w if reading.energy_mj is None else reading.energy_mj
                if value is not None and math.isfinite(value):
                    at_s.append((reading.taken_ns - start_ns) / 1e9)
                    values.append(value)
            sleep(max(0.0, min(every_s - ((clock() - start_ns) / 1e9 - begun_s), end_s - begun_s)))
    switch(False)
    at, first = np.unique(np.array(at_s), return_index=True)
    return LoadReadings(at, np.array(values)[first], failures, Switched(np.array(edges_s), (clock() - start_ns) / 1e9))


def judged(
    readings: LoadReadings, description: Description, board: str, draws: PowerRange = ANY_MACHINE, *, is_loaded: bool = True
) -> SelfTest:
    """Return what the readings show of the sensor, on a machine that `draws` so much; without a load only gaps, steps, units and hangs.

    Raises:
        MeasurementError: there are too few of them.
    """
    at_s, values = readings.at_s, readings.values
    if at_s.size < FEWEST_READINGS:
        raise MeasurementError(
            f"{description.id} gave {at_s.size} readings in {readings.load.end_s:.0f} s ({readings.failures} failed): test it for longer "
            "(--seconds), or find what keeps readings from coming"
        )
    answer, why, findings = _followed(readings, description.kind) if is_loaded else (None, NO_LOAD, [])
    interval_s, resolution = float(np.median(np.diff(at_s))), _resolution(values)
    return SelfTest(
        board=board,
        sensor=description.id,
        made_at=dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
        test_s=readings.load.end_s,
        readings=at_s.size,
        failures=readings.failures,
        sees_load=answer is not None and answer.is_seen,
        step=MeasuredProperty(reason=why) if why or answer is None else _measured(answer.step),
        resolution=resolution,
        reading_interval_s=interval_s,
        longest_gap_s=float(np.diff(at_s).max()),
        findings=(*findings, *_wrong_unit(readings, description, draws), *_gaps(readings)),
        **_parts(answer, _renewal(readings, description.kind, resolution), interval_s, why, description.kind),
    )


def _wrong_unit(readings: LoadReadings, description: Description, draws: PowerRange) -> list[str]:
    """Return that no such machine draws the mean power, as a run would refuse it."""
    at_s, values = readings.at_s, readings.values
    power_w = float(values.mean()) if description.kind == "power" else float(values[-1] - values[0]) / float(at_s[-1] - at_s[0]) / 1000
    refusal = power_refusal(description, power_w, "during the test", draws) if power_w > 0 else None
    return [] if refusal is None else [refusal]


def _followed(readings: LoadReadings, kind: str) -> tuple[StepResponse | None, str | None, list[str]]:
    """Return how the sensor follows the load, why that is not known, and what makes the sensor unfit, in a sentence."""
    if kind == "power" and np.all(readings.values == readings.values[0]):
        one_value = "it showed one value only: it hangs (restart it), or its step exceeds what the load draws"
        return None, "it showed one value only", [one_value]
    hangs_from_s = _hangs_from_s(readings.at_s, readings.values, readings.load) if kind == "power" else None
    if hangs_from_s is not None:
        repeated = f"from {hangs_from_s:.0f} s on it repeated one value while the load went on and off: it hangs, restart it"
        return None, "it hangs", [repeated]
    answer = _answer(readings, kind)
    if answer is not None:
        # Where a coarse value turns to the next is not where the power did.
        answer = answer.blurred((_resolution(readings.values).value or 0.0) / abs(answer.step.value or 1.0) if kind == "power" else 0.0)
    if answer is None or not answer.is_seen:
        unseen = "it does not show the load of this board's processor: it measures another board, or much else beside it"
        return answer, "it does not follow the load", [unseen]
    if kind == "power" and _is_clipped(readings, answer):
        clipped = f"it shows no more than {readings.values.max():.4g} W: it is clipped, use one of a wider range"
        return answer, "its readings are clipped", [clipped]
    return answer, None, []


def _answer(readings: LoadReadings, kind: str) -> StepResponse | None:
    at_s, values, load = readings.at_s, readings.values, readings.load
    if kind == "power":
        # A value that repeats was there before: of a sensor with a clock, only what is new tells when it was made.
        renewal = _renewal(readings, kind, MeasuredProperty())
        if renewal is None:
            return step_response(at_s, values, load)
        new = np.flatnonzero(np.diff(values)) + 1
        return step_response((at_s[new - 1] + at_s[new]) / 2, values[new], load)
    moved = np.flatnonzero(np.diff(values)) + 1
    if moved.size < FEWEST_READINGS // 2:
        return None
    moments = (at_s[moved - 1] + at_s[moved]) / 2
    picked = [0]
    for index in range(1, moved.size):
        if moments[index] - moments[picked[-1]] >= SPAN_S:
            picked.append(index)
    ends_s, spans_s = moments[picked][1:], np.diff(moments[picked])
    return step_response(ends_s, np.diff(values[moved[picked]]) / spans_s / 1000, load, spans_s)


def _renewal(readings: LoadReadings, kind: str, resolution: MeasuredProperty) -> Renewal | None:
    """Return the sensor's own clock; a counter that moves by one of its steps at a time does so by the load, and shows none."""
    moves = np.diff(readings.values)
    if kind == "energy" and resolution.value is not None and np.median(moves[moves > 0]) < 2 * resolution.value:
        return None
    return renewal_of((readings.at_s * 1e9).astype(np.int64), readings.values, float(np.median(np.diff(readings.at_s))) * 1e9, None)


def _parts(
    answer: StepResponse | None, renewal: Renewal | None, interval_s: float, why: str | None, kind: str
) -> dict[str, MeasuredProperty]:
    """Return delay, window, lag, clock and share seen, each measured or with the reason why it is not."""
    clock = _clock(renewal, interval_s)
    if answer is None or why is not None:
        return dict.fromkeys(("delay_s", "window_s", "lag_s", "seen_ratio"), MeasuredProperty(reason=why or "it does not move")) | {
            "update_interval_s": MeasuredProperty(reason=why) if why != NO_LOAD and answer is None else clock
        }
    untold = MeasuredProperty(reason="the readings do not tell a mean over a window from a lag")
    # A longer interval is met by more reads: the mean age of what they show is more than half of the mean interval.
    held_s = 0.0 if renewal is None or kind == "energy" else renewal.interval_ns / 2e9 * (1 + renewal.scatter_ratio**2)
    lag, window, share = untold, untold, MeasuredProperty(reason="only a window that is shorter than its own clock shows it")
    if answer.is_short:
        # Of a window as short as the edges of the load, half of which may be all of the delay.
        total = answer.delay_s
        lag = MeasuredProperty(value=max(0.0, total.value), low=max(0.0, total.low - SHORT_S / 2), high=total.high)
        window = MeasuredProperty(value=0.0, low=0.0, high=SHORT_S)
    elif answer.shape is not None and answer.pure_delay_s is not None and answer.length_s is not None:
        lag = _measured(answer.pure_delay_s if answer.shape == "mean" else answer.delay_s)
        window = (
            _measured(answer.length_s) if answer.shape == "mean" else MeasuredProperty(value=0.0, low=0.0, high=max(SHORT_S, interval_s))
        )
    # A lag follows all of the power, whatever its clock.
    if answer.shape != "lag" and clock.value and window.high is not None and window.high < COVERED_RATIO * clock.value:
        low, high = (window.low or 0.0) / clock.value, window.high / clock.value
        share = MeasuredProperty(value=(window.value or 0.0) / clock.value, low=low, high=high)
    delay = _measured(
        answer.delay_s, held_s, 0.0 if renewal is None else math.hypot(interval_s / 2, renewal.u_ratio * renewal.interval_ns / 1e9)
    )
    return {"delay_s": delay, "window_s": window, "lag_s": lag, "update_interval_s": clock, "seen_ratio": share}


def _clock(renewal: Renewal | None, interval_s: float) -> MeasuredProperty:
    if renewal is None:
        return MeasuredProperty(high=None, reason=f"no value repeats, or values repeat by chance: it is read every {interval_s:.3g} s")
    mean_s, u_s = renewal.interval_ns / 1e9, renewal.u_ratio * renewal.interval_ns / 1e9
    return MeasuredProperty(value=mean_s, low=mean_s - 2 * u_s, high=mean_s + 2 * u_s)


def _measured(estimate: Estimate, held_s: float = 0.0, held_u_s: float = 0.0) -> MeasuredProperty:
    """Return an estimate as it is kept; the mean age of a value that the sensor holds is added to it."""
    value, half = estimate.value + held_s, math.hypot(estimate.high - estimate.value, held_u_s)
    return MeasuredProperty(value=value, low=max(0.0, value - half), high=value + half)


def _hangs_from_s(at_s: Array, values: Array, load: Switched) -> float | None:
    """Return from when on the sensor repeated one value over several switches of the load, s; None where it did not."""
    bounds = np.concatenate(([0], np.flatnonzero(np.diff(values)) + 1, [values.size]))
    begins, ends = at_s[bounds[:-1]], at_s[bounds[1:] - 1]
    lengths = ends - begins
    longest = int(np.argmax(lengths))
    crossed = int(np.sum((load.edges_s > begins[longest]) & (load.edges_s < ends[longest])))
    usual_s = float(np.average(lengths, weights=lengths)) if begins.size < HANGING_EDGES else float(np.median(lengths))
    is_long = lengths[longest] > max(HANGING_S, HANGING_RATIO * usual_s)
    return float(begins[longest]) if crossed >= HANGING_EDGES and is_long else None


def _is_clipped(readings: LoadReadings, answer: StepResponse) -> bool:
    """Return whether the sensor shows its highest value, and nothing else, where the load goes on."""
    settled_s = 3 * max(0.0, answer.delay_s.high) + 0.05
    share_on = readings.load.mean(readings.at_s, settled_s)
    loaded, idle = readings.values[share_on > 1 - 1e-9], readings.values[share_on < 1e-9]
    if min(loaded.size, idle.size) < FEWEST_READINGS // 6:
        return False
    _, counts = np.unique(idle, return_counts=True)
    at_most = float(np.mean(loaded == readings.values.max()))
    return at_most > CLIPPED_RATIO and float(counts.max()) / idle.size < UNCLIPPED_RATIO


def _resolution(values: Array) -> MeasuredProperty:
    """Return the step of the readings: the smallest difference of two values, where the others are multiples of it."""
    values = np.unique(values)
    apart = np.diff(values)
    apart = apart[apart > 1e-9 * max(1e-12, float(np.abs(values).max(initial=0.0)))]
    if not apart.size:
        return MeasuredProperty(reason="it showed one value only")
    step = float(np.median(apart[apart < 1.5 * apart.min()]))
    multiples = apart / step
    is_step = np.sum(np.abs(multiples - 1) < STEP_TOLERANCE) >= FEWEST_STEPS
    if is_step and float(np.mean(np.abs(multiples - np.round(multiples)) < STEP_TOLERANCE * multiples)) > 1 - STEP_TOLERANCE:
        return MeasuredProperty(value=step, low=step * (1 - STEP_TOLERANCE), high=step * (1 + STEP_TOLERANCE))
    return MeasuredProperty(reason=f"too few values are neighbours, or its steps are finer than {float(np.median(apart)):.2g}")


def _gaps(readings: LoadReadings) -> list[str]:
    """Return that too many readings are missing, in a sentence, if they are."""
    gaps_s = np.diff(readings.at_s)
    missing_s = float(gaps_s[gaps_s > max(0.1, LONG_GAP_RATIO * float(np.median(gaps_s)))].sum())
    if missing_s <= LARGEST_GAP_RATIO * readings.load.end_s:
        return []
    return [f"readings are missing in {missing_s:.3g} s of {readings.load.end_s:.0f} s (the longest gap is {gaps_s.max():.3g} s)"]


@contextmanager
def switched_load(cores: int | None = None) -> Iterator[Callable[[bool], None]]:
    """Yield a switch of a load on all cores, whose processes wait ready for it; raises UnavailableError if they do not start."""
    # Ready, they begin and end within a millisecond or two.
    context = multiprocessing.get_context("spawn")
    is_on = context.Event()
    ready = context.Semaphore(0)
    count = cores or len(os.sched_getaffinity(0))
    processes = [context.Process(target=_compute_while, args=(is_on, ready), daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        if not all(ready.acquire(timeout=READY_S) for _ in range(count)):
            raise UnavailableError(f"the processes of the load did not start within {READY_S:g} s: end other work, and try again")
        yield lambda on: is_on.set() if on else is_on.clear()
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()


def _compute_while(is_on: "Event", ready: "Semaphore") -> None:
    value = 1.0
    ready.release()
    while is_on.wait():
        for _ in range(1000):
            value = value * 1.000001 % 7.0
