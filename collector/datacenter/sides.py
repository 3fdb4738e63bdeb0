"""The two sides are the edge device and the servers, measured or stated.

Among the measured cases like is compared with like. Each figure is a band.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.base.statistics import FEWEST
from edgemeter.agent.contract.energy_provenance import MEASURED, energy_provenance
from edgemeter.agent.contract.figures import ENERGY, THROUGHPUT
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_figures import Energy, Scope
from edgemeter.agent.contract.run_figures import RunFigures
from edgemeter.collector.compare.accuracy_and_energy import EnergySummary
from edgemeter.collector.compare.accuracy_gate import not_ranked
from edgemeter.collector.compare.case_figure import CaseFigure, figure_of_values, run_value
from edgemeter.collector.compare.pairing import is_one_class
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.datacenter.constants import StatedServer
from edgemeter.collector.runs.cases import EnergyClass, named, names_of
from edgemeter.collector.runs.relation import relation

# A server saturated by batches is compared with a device with one query at a time, so these need
# not be equal.
FREE = ("scenario", "target_per_s", "deadline", "concurrency")
# A server without a meter at its plug is measured at its processor and its GPU: the two do not
# overlap, so they are added.
OTHER_HALF: Mapping[str, Scope] = {"cpu-package": "gpu-board", "gpu-board": "cpu-package"}


@dataclass(frozen=True, slots=True)
class Band:
    """A value from `low` to `high`.

    `value` is the best estimate, or the geometric mean of the ends without one.
    """

    low: float
    value: float
    high: float

    def plus(self, other: "Band") -> "Band":
        return Band(self.low + other.low, self.value + other.value, self.high + other.high)

    def scaled(self, factor: float) -> "Band":
        return Band(self.low * factor, self.value * factor, self.high * factor)


def exactly(value: float) -> Band:
    return Band(value, value, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSide:
    """A side, with energies and the rate per inference.

    For a language model they are per request. `full_mj` is gross, at full speed.

    `idle_w` and `net_mj` are None where idle power was not measured. `load` and `max_w`, the power
    at full load, are a server's.
    """

    name: str
    provenance: str
    scope: str
    rate_per_s: Band
    full_mj: Band
    idle_w: Band | None
    net_mj: Band | None
    max_w: Band
    load: str = "as stated"
    excludes: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()

    def gross_mj(self, rate_per_s: float | None) -> Band:
        """Return the gross energy of an inference, at a rate, of a board that is always on.

        The rate None means as fast as it can.
        """
        if rate_per_s is None or self.idle_w is None or self.net_mj is None:
            return self.full_mj
        return self.net_mj.plus(self.idle_w.scaled(1000 / rate_per_s))


class SideRequest(NamedTuple):
    """The requested device, model and precision, and the reference by device or role.

    The precision None means the only one.
    """

    edge: str | None
    model: str | None
    precision: str | None
    server: str

    def is_server(self, case: CaseSummary) -> bool:
        return self.server in (case.key.role, case.key.device)


class ChosenSides(NamedTuple):
    """The edge, the servers, and notes on their choice."""

    edge: ComparedSide
    servers: tuple[ComparedSide, ...]
    notes: list[str]


def choose_sides(
    summaries: Sequence[CaseSummary],
    request: SideRequest,
    stated_server: StatedServer | None = None,
) -> ChosenSides:
    """Return the sides: a stated server has precedence over measured ones.

    Raises ConfigError if no case matches, or several do; UnavailableError, which names what to
    measure, if a side lacks an energy.
    """
    notes: list[str] = []
    case = _edge_case(summaries, request, notes)
    edge = _measured(case)
    if isinstance(edge, str):
        raise UnavailableError(
            f"{named(case.key)} has no energy figure ({edge}): measure it with a power sensor "
            "(`edgemeter energy sensors`)"
        )
    if stated_server is None:
        return ChosenSides(edge, _servers(summaries, case, request, notes), notes)
    server = ComparedSide(
        name=f"stated: {stated_server.source}", provenance="stated", scope=stated_server.scope,
        rate_per_s=exactly(stated_server.rate_per_s),
        full_mj=exactly(stated_server.max_w / stated_server.rate_per_s * 1000), net_mj=None,
        idle_w=exactly(stated_server.idle_w), max_w=exactly(stated_server.max_w),
        cautions=("stated, not measured",),
    )  # fmt: skip
    return ChosenSides(edge, (server,), notes)


def _edge_case(
    summaries: Sequence[CaseSummary], request: SideRequest, notes: list[str]
) -> CaseSummary:
    requested = {"model": request.model, "precision": request.precision, "device": request.edge}
    devices = [
        case for case in summaries if not request.is_server(case) and case.key.role != "reference"
    ]
    matching = [
        case
        for case in devices
        if all(value in (None, getattr(case.key, name)) for name, value in requested.items())
    ]
    if not matching:
        available = (
            ", ".join(sorted({f"{case.key.model} on {case.key.device}" for case in devices}))
            or "none"
        )
        raise ConfigError(
            f"no device case matches --device, --model and --precision; available: {available}"
        )
    why_not = [case.energy_reason or not_ranked(case, summaries) for case in matching]
    sound = [
        case
        for case, why in zip(matching, why_not, strict=True)
        if why is None and case.energy is not None
    ]
    if not sound:
        raise UnavailableError(
            "no edge case has a usable energy figure: "
            f"{'; '.join(dict.fromkeys(filter(None, why_not)))}"
        )
    # Neither another model nor a shorter request is a saving.
    generating = [case for case in sound if case.key.generates]
    for option, values in (
        ("--model", {case.key.model for case in sound}),
        ("--device", {case.key.device for case in sound}),
        ("--precision", {case.key.precision for case in generating}),
        (
            "a document of its runs as --ledger",
            {f"{case.key.prompt_tokens}+{case.key.output_tokens} tokens" for case in generating},
        ),
    ):
        if len(values) > 1:
            raise ConfigError(
                f"there are several, choose one with {option}: {', '.join(sorted(values))}"
            )
    # Energies of two classes have no minimum: measured ones come first, then the widest scope.
    first = min(
        (case.energy.ranks_as for case in sound if case.energy),
        key=lambda energy_class: energy_class.preference,
    )
    ranked = [case for case in sound if case.energy and case.energy.ranks_as == first]
    best = min(
        ranked,
        key=lambda case: (
            case.disturbed > 0,
            case.figures[ENERGY].value if ENERGY in case.figures else float("inf"),
        ),
    )
    if len(sound) > 1:
        among = f"of {len(ranked)} edge cases with an energy at {first}, the one with the lowest"
        notes.append(f"{among}: {names_of(case.key for case in sound)[best.key]}")
    return best


def _servers(
    summaries: Sequence[CaseSummary], case: CaseSummary, request: SideRequest, notes: list[str]
) -> tuple[ComparedSide, ...]:
    """Return the server with the least energy for each load.

    It is of the edge's class of precision if there is one.
    """
    candidates = [
        server
        for server in summaries
        if request.is_server(server) and request.model in (None, server.key.model)
    ]
    best: dict[str, tuple[tuple[bool, float], ComparedSide]] = {}
    for candidate in candidates:
        server = (
            _why_left_out(case, candidate)
            or not_ranked(candidate, summaries)
            or _measured(candidate, is_server=True)
        )
        if isinstance(server, str):
            notes.append(f"left out: {named(candidate.key)}, {candidate.key.scenario}: {server}")
            continue
        is_other_class = not is_one_class(case, candidate)
        marked = [difference.words for difference in relation(case.key, candidate.key).marked]
        unlike = (
            ["not like with like, because the server was not measured in that precision class"]
            if is_other_class
            else []
        )
        rank = is_other_class, server.max_w.value / server.rate_per_s.value
        if server.load not in best or rank < best[server.load][0]:
            best[server.load] = rank, replace(server, cautions=(*server.cautions, *marked, *unlike))
    if not best:
        raise UnavailableError(
            f"no server {request.server!r} has an energy figure ({'; '.join(notes)}): run the "
            "same agent there, also with "
            "--scenario offline, and name it with --reference; or state one in --constants as "
            "[stated_server]: "
            "published figures do not count"
        )
    return tuple(best[load][1] for load in sorted(best))


def _why_left_out(case: CaseSummary, server: CaseSummary) -> str | None:
    """Return why a server is not comparable with the edge; None if it is.

    It is not if it did other work, or was measured in another way.
    """
    if titles := [
        field.title for field in relation(case.key, server.key).unlike if field.name not in FREE
    ]:
        return f"differs in {', '.join(titles)}"
    source, server_source = (
        side.energy.provenance if side.energy else None for side in (case, server)
    )
    return (
        f"its energy is {server_source}, not {source}"
        if server_source not in (None, source)
        else None
    )


def _measured(case: CaseSummary, *, is_server: bool = False) -> ComparedSide | str:
    """Return a measured case as a side, or why it cannot be one.

    For a server both halves count, if every run has them.
    """
    energy, gross, power = (
        case.energy,
        case.figures.get(ENERGY),
        case.figures.get("energy_mean_power_w"),
    )
    if energy is None or gross is None or power is None:
        return f"no energy: {case.energy_reason}"
    records = {record.id: record for record in case.records()}
    runs = [
        (run, records[run.id])
        for run in case.counted.each()
        if run.id in records and run.subject.energy_kind
    ]
    relative_u = gross.u / gross.value if gross.u is not None and gross.value > 0 else 0.0
    readings = _of_class(runs, energy.ranks_as, energy.sensor)
    idle_w = _idle(readings, relative_u)
    if idle_w is None and is_server:
        return "idle power was not measured: its runs have no idle period before or after"
    max_w, scope, excludes = (
        _band(power, relative_u * power.value),
        str(energy.scope),
        energy.excludes,
    )
    other_half = OTHER_HALF.get(scope) if is_server else None
    other_readings = (
        _of_class(runs, EnergyClass(other_half, energy.provenance)) if other_half else []
    )
    has_idle = [
        (other.idle_before_w, other.idle_after_w) != (None, None) for _, other in other_readings
    ]
    if idle_w and other_readings and len(other_readings) == len(readings) == sum(has_idle):
        last = other_readings[-1][1]
        other_u = (
            last.gross_u_mj / last.gross_mj
            if last.gross_u_mj is not None and last.gross_mj > 0
            else 0.0
        )
        other_max_w = figure_of_values(
            [run_value(run, other.mean_power_w) for run, other in other_readings]
        )
        scope, excludes = (
            f"{scope} + {other_half}",
            tuple(
                part
                for part in dict.fromkeys((*excludes, *last.excludes))
                if "processor" not in part and "accelerator" not in part
            ),
        )
        idle_w = idle_w.plus(_idle(other_readings, other_u) or exactly(0.0))
        max_w = max_w.plus(_band(other_max_w, other_u * other_max_w.value))
    return ComparedSide(
        name=named(case.key), provenance=energy.provenance, scope=scope, excludes=excludes,
        max_w=max_w,
        rate_per_s=_band(case.figures[THROUGHPUT], None), full_mj=_band(gross, gross.u),
        idle_w=idle_w, net_mj=_net(case, gross, idle_w),
        load="batch-saturated" if case.key.scenario == "offline" else "single stream",
        cautions=_cautions(case, energy, gross, scope, excludes),
    )  # fmt: skip


def _net(case: CaseSummary, gross: CaseFigure, idle_w: Band | None) -> Band | None:
    resolved = case.figures.get("energy_net_mj")
    if idle_w is None or resolved:
        return _band(resolved, resolved.u) if resolved and idle_w else None
    # Net energy disappears in the noise of idle power: it is the rest of the gross energy, and may
    # be nothing.
    remainder_mj = max(0.0, gross.value - idle_w.value / case.figures[THROUGHPUT].value * 1000)
    return Band(0.0, remainder_mj, remainder_mj + (gross.u or gross.value))


def _cautions(
    case: CaseSummary,
    energy: EnergySummary,
    gross: CaseFigure,
    scope: str,
    excludes: tuple[str, ...],
) -> tuple[str, ...]:
    texts = (
        (energy.provenance != MEASURED, f"{energy.provenance}, not measured"),
        (case.disturbed > 0, "disturbed: a counted run violates a measurement rule"),
        (
            gross.runs < FEWEST,
            "fewer than three runs: its bands do not include run-to-run variation",
        ),
        (
            case.segment is not None,
            f"its level changed: only the runs {case.segment.words if case.segment else ''}, count",
        ),
        (gross.u is None, "the uncertainty of its meter is unknown: its bands are too narrow"),
        (bool(excludes), f"its energy is of {scope} and excludes {', '.join(excludes)}"),
    )
    return tuple(text for is_so, text in texts if is_so)


def _of_class(
    runs: Sequence[tuple[RunFigures, RunRecord]],
    energy_class: EnergyClass,
    sensor: str | None = None,
) -> list[tuple[RunFigures, Energy]]:
    """Return the energy of each run of a scope and provenance.

    It is from that sensor's main reading, else from the others.
    """
    of_runs = [
        (*run, energy)
        for run in runs
        for energy in ([run[1].energy] if sensor else run[1].other_energies)
        if energy
    ]
    of_sensor = [
        (run, record, energy) for run, record, energy in of_runs if sensor in (None, energy.sensor)
    ]
    return [
        (run, energy)
        for run, record, energy in of_sensor
        if EnergyClass(energy.scope, energy_provenance(record, energy) or "") == energy_class
    ]


def _idle(readings: Sequence[tuple[RunFigures, Energy]], relative_u: float) -> Band | None:
    """Return the idle power over the runs, None without an idle period.

    The meter has the same `relative_u` as for gross energy.
    """
    watts = [
        (run, [idle for idle in (energy.idle_before_w, energy.idle_after_w) if idle is not None])
        for run, energy in readings
    ]
    idle = [run_value(run, median(of_run)) for run, of_run in watts if of_run]
    if not idle:
        return None
    figure = figure_of_values(idle)
    return _band(figure, relative_u * figure.value)


def _band(figure: CaseFigure, u: float | None) -> Band:
    """Return the band of a figure: its interval, if it has one, and the error of the meter."""
    low, high = (
        (figure.value, figure.value)
        if figure.low is None or figure.high is None
        else (figure.low, figure.high)
    )
    return Band(max(0.0, low - (u or 0.0)), figure.value, high + (u or 0.0))
