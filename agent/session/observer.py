"""The observer effect: how much sampling adds to a case's latency, with and without it in pairs, each run in a fresh process."""

import math
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from edgemeter.agent.base import run_statistics
from edgemeter.agent.base.errors import EdgemeterError, MeasurementError
from edgemeter.agent.contract.record_conditions import ObserverEffect
from edgemeter.agent.contract.suite import Case, Suite
from edgemeter.agent.power import PowerSensor
from edgemeter.agent.session import session
from edgemeter.agent.session.observation import Observing

FEWEST_PAIRS = 5
WHY_NO_POWER = "the observer effect concerns latency: power was not read"


@dataclass(frozen=True, slots=True)
class CalibratedObserver:
    """The effect, p50 of each pair of runs in ms (with sampling, without it), and how many runs violated which rule."""

    effect: ObserverEffect
    pairs_ms: tuple[tuple[float, float], ...]
    doubts: tuple[str, ...]


def calibrate(
    case: Case, identity: session.DeviceIdentity, sensors: Mapping[str, PowerSensor], pairs: int, on_event: session.OnEvent
) -> CalibratedObserver:
    """Measure `pairs` pairs in the order AB BA BA AB ..., so that a drift favours neither, and return what sampling adds to p50.

    Raises:
        EdgemeterError: a run failed, or was invalid.
    """
    # Idle stretches and accuracy would only lengthen the time between the two runs of a pair.
    bare = msgspec.structs.replace(case, repeats=1, idle_seconds=0.0, accuracy="never", agreement="never")
    suite = Suite("observer", (bare,))
    pairs_ms: list[tuple[float, float]] = []
    doubts: list[str] = []

    def run(observing: Observing) -> float:
        (outcome,) = session.measure(suite, identity, sensors, WHY_NO_POWER, on_event, observing=observing)
        if isinstance(outcome, EdgemeterError):
            raise outcome
        verdict = outcome.verdict
        if verdict.state == "invalid" or outcome.latency.p50_ms is None:
            raise MeasurementError(f"a run of {case.label} cannot be used: {'; '.join(verdict.reasons)}")
        # An effect that was calibrated earlier does not concern this one.
        doubts.extend(rule for rule in verdict.rules if rule != "observer-effect")
        return outcome.latency.p50_ms

    for pair in range(pairs):
        order: tuple[Observing, Observing] = ("nothing", "all") if pair.bit_count() % 2 else ("all", "nothing")
        p50_ms = {observing: run(observing) for observing in order}
        pairs_ms.append((p50_ms["all"], p50_ms["nothing"]))
    counted = tuple(f"{rule}: {count} of {2 * pairs} runs" for rule, count in Counter(doubts).items())
    return CalibratedObserver(effect_of(pairs_ms, case.label, tuple(sorted(sensors))), tuple(pairs_ms), counted)


def effect_of(pairs_ms: list[tuple[float, float]], case: str, sensors: tuple[str, ...]) -> ObserverEffect:
    """Return the effect on p50 that pairs (with sampling, without it) show, with its 95% interval over pairs.

    Raises:
        MeasurementError: there are too few pairs for an interval.
    """
    logs = [math.log(with_it / without) for with_it, without in pairs_ms]
    interval = run_statistics.pair_interval(logs)
    if interval is None or not math.isfinite(interval.low):
        raise MeasurementError(f"{len(pairs_ms)} pairs of runs do not give an interval: measure at least {FEWEST_PAIRS}")
    return ObserverEffect(
        effect_ratio=math.expm1(run_statistics.centre(logs)),
        low_ratio=math.expm1(interval.low),
        high_ratio=math.expm1(interval.high),
        pairs=len(pairs_ms),
        measured_at_ns=time.time_ns(),
        case=case,
        p50_ms=sorted(without for _, without in pairs_ms)[len(pairs_ms) // 2],
        sensors=sensors,
    )
