"""A simulated fleet of 40 boards over 90 days, made from one real run.

It shows a fleet, its trend and a degraded board. None of its numbers was measured. Its fleet is
called `simulated`, every device and board is named so, and the provenance of every group of figures
is `replayed`: it is never compared with a measurement. Its true changes are below, for tests to
find again.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import numpy as np

from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_conditions import Condition, Model, Verdict, Violation
from edgemeter.agent.contract.record_figures import Energy, Latency
from edgemeter.agent.contract.samples import pack

FLEET = "simulated"
DAYS = 90
# The spread of equal parts, of days, and of runs of one day (ratios, one standard deviation).
UNIT_SPREAD, DAY_SPREAD, METER_U = 0.02, 0.008, 0.01
# The degraded board draws more power, the update slows its type down, the lost board is silent from
# its day on.
DEGRADED, SICK_RATIO = "simulated-pi5-07", 1.10
UPDATE_DAY, UPDATE_RATIO, FIRMWARES = 60, 1.06, ("2026-05-11", "2026-08-20")
LOST, LOST_DAY = "simulated-orin-05", 75
HOT = "simulated-pi5-19"
# Raw samples of the newest days only.
DAYS_WITH_SAMPLES, QUERIES = 1, 256


@dataclass(frozen=True, slots=True)
class SimulatedBoardType:
    """One type of board of the fleet, with its power and temperature.

    It has its latency relative to the server's, its idle and running power, and its temperature.
    """

    name: str
    prefix: str
    units: int
    latency_ratio: float
    power_w: float
    idle_w: float
    temperature_c: float


TYPES = (
    SimulatedBoardType("simulated Raspberry Pi 5", "simulated-pi5", 24, 9.0, 7.4, 3.1, 61.0),
    SimulatedBoardType("simulated Jetson Orin Nano", "simulated-orin", 15, 2.2, 11.5, 5.0, 54.0),
)
SERVER = SimulatedBoardType("simulated server", "simulated-server", 1, 1.0, 182.0, 95.0, 44.0)
INT8 = ("int8", 0.62, 0.985)


@dataclass(frozen=True, slots=True)
class _Drawn:
    """The random values of one run.

    `level` is its latency relative to the template's, before updates.
    """

    kind: SimulatedBoardType
    device: str
    precision: str
    accuracy_ratio: float
    level: float
    day: int
    days: int
    end_ns: int
    seq: int


def records_of(template: RunRecord, *, end_ns: int, days: int = DAYS) -> Iterator[RunRecord]:
    """Yield the runs of the fleet up to `end_ns`, day by day, two cases a device and day.

    Model, data and inputs are the template's.
    """
    draw = random.Random(1)  # noqa: S311 - a simulation
    units = [
        (kind, f"{kind.prefix}-{index + 1:02d}", draw.gauss(1, UNIT_SPREAD))
        for kind in (SERVER, *TYPES)
        for index in range(kind.units)
    ]
    # Apart from its power, the degraded board is an ordinary one.
    units = [(kind, device, 1.0 if device == DEGRADED else unit) for kind, device, unit in units]
    sequence: dict[str, int] = {}
    for day in range(days):
        for kind, device, unit in units:
            if device == LOST and day >= LOST_DAY * days // DAYS:
                continue
            for precision, latency_ratio, accuracy_ratio in (("fp32", 1.0, 1.0), INT8):
                sequence[device] = sequence.get(device, 0) + 1
                level = kind.latency_ratio * latency_ratio * unit * draw.gauss(1, DAY_SPREAD)
                yield _run(
                    template,
                    _Drawn(
                        kind,
                        device,
                        precision,
                        accuracy_ratio,
                        level,
                        day,
                        days,
                        end_ns,
                        sequence[device],
                    ),
                    draw,
                )


def _run(template: RunRecord, plan: _Drawn, draw: random.Random) -> RunRecord:
    kind, device, day, days = plan.kind, plan.device, plan.day, plan.days
    is_updated = kind is TYPES[0] and day >= UPDATE_DAY * days // DAYS
    room_c = 4.0 * math.sin(2 * math.pi * day / 365)
    hot = 22.0 if device == HOT else 0.0
    p50_ms = (
        (template.latency.p50_ms or template.latency.mean_ms)
        * plan.level
        * (UPDATE_RATIO if is_updated else 1.0)
    )
    power_w = kind.power_w * (SICK_RATIO if device == DEGRADED else 1.0) * draw.gauss(1, DAY_SPREAD)
    latencies_ms = p50_ms * (
        0.985 + np.random.default_rng(draw.getrandbits(32)).gamma(2.0, 0.009, QUERIES)
    )
    latency = _latency(latencies_ms)
    p50_ms = latency.p50_ms or latency.mean_ms
    has_samples = day >= days - DAYS_WITH_SAMPLES
    started_at_ns = (
        plan.end_ns - (days - day) * NS_PER_DAY + int((draw.random() * 0.6 + 0.2) * NS_PER_DAY)
    )
    is_throttled = device == HOT and draw.random() < 0.4
    return msgspec.structs.replace(
        template,
        id=f"simulated-{device.removeprefix('simulated-')}-{plan.seq:04d}",
        device=device,
        fleet=FLEET,
        role="reference" if kind is SERVER else "device",
        session=1,
        session_started_at_ns=0,
        repeat=0,
        seq=plan.seq,
        started_at_ns=started_at_ns,
        suite="simulated fleet",
        case=f"{template.model.name} {plan.precision}",
        precision=plan.precision,
        model=_model(template, plan.precision),
        latency=latency,
        throughput_per_s=1000 / p50_ms,
        energy=_energy(p50_ms, power_w, kind),
        other_energies=(),
        accuracy=msgspec.structs.replace(
            template.accuracy, value=round(template.accuracy.value * plan.accuracy_ratio, 4)
        )
        if template.accuracy
        else None,
        environment=msgspec.structs.replace(
            template.environment,
            board=kind.name,
            cpu="simulated",
            firmware=FIRMWARES[is_updated] if kind is TYPES[0] else FIRMWARES[0],
            attached=(),
            boot_id=None,
            virtualisation=None,
        ),
        conditions=(
            Condition(
                when="during",
                temperatures_c={
                    "soc": round(kind.temperature_c + room_c + hot + draw.gauss(0, 0.8), 1)
                },
                throttled_now=is_throttled,
            ),
        ),
        verdict=Verdict(state="disturbed", violations=(Violation(rule="throttled"),))
        if is_throttled
        else Verdict(state="ok"),
        provenance=dict.fromkeys(
            ("latency", "throughput", "cold_start", "memory", "energy", "accuracy"), "replayed"
        ),
        windows=None,
        power_traces=(),
        sustained=None,
        samples=(pack("latency", "ns", (latencies_ms * 1e6).astype(np.int64)),)
        if has_samples
        else (),
    )


def _model(template: RunRecord, precision: str) -> Model:
    if precision == template.precision:
        return template.model
    return msgspec.structs.replace(
        template.model, sha256=template.model.sha256[::-1], file=f"simulated_{precision}.onnx"
    )


def _latency(latencies_ms: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> Latency:
    ordered = np.sort(latencies_ms)
    # By hand, for thousands of runs: of 256 values p50 is halfway between ranks 128 and 129, p90
    # between 230 and 231.
    p50_ms, p90_ms = float(ordered[127:129].mean()), float(ordered[229:231].mean())
    return Latency(
        count=QUERIES,
        mean_ms=float(ordered.mean()),
        max_ms=float(ordered[-1]),
        p50_ms=p50_ms,
        p90_ms=p90_ms,
    )


def _energy(p50_ms: float, power_w: float, kind: SimulatedBoardType) -> Energy:
    gross_mj, net_mj = p50_ms * power_w, p50_ms * (power_w - kind.idle_w)
    scatter_mj, gain_mj = gross_mj * 0.002, gross_mj * METER_U / 2
    u_mj = 2 * math.hypot(scatter_mj, gain_mj)
    return Energy(
        sensor="replay",
        scope="board-input",
        excludes=(),
        gross_mj=gross_mj,
        gross_u_mj=u_mj,
        net_mj=net_mj,
        net_u_mj=u_mj * 1.3,
        mean_power_w=power_w,
        idle_before_w=kind.idle_w,
        idle_after_w=kind.idle_w,
        window_ms=p50_ms * QUERIES,
    )
