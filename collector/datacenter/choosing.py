"""Which cases stand for the two sides: an edge case, and the reference's of the same model, data and input size, whatever the scenario."""

from collections.abc import Sequence
from dataclasses import dataclass

from edgemeter.agent.errors import ConfigError, UnavailableError
from edgemeter.collector.compare.accuracy_gate import not_ranked
from edgemeter.collector.compare.naming import named
from edgemeter.collector.compare.pairing import LIKENESSES, is_one_class
from edgemeter.collector.compare.summary import Summary
from edgemeter.collector.datacenter.constants import Stated
from edgemeter.collector.datacenter.sides import Edge, Server, edge_of, server_of, stated_edge, stated_server

# A server saturated by batches and a device with one query at a time are what is compared here, so these need not be alike.
FREE = ("scenario", "samples a query", "rate")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for: the device and the model (both None where there is one), the reference by device or role."""

    edge: str | None
    model: str | None
    precision: str | None
    server: str


@dataclass(frozen=True, slots=True)
class Sides:
    """The edge, the servers, and what was noted while they were chosen."""

    edge: Edge
    servers: tuple[Server, ...]
    notes: tuple[str, ...]


def choose(summaries: Sequence[Summary], wanted: Wanted, stated: Stated) -> Sides:
    """Return the sides: what is stated goes before what was measured.

    Raises:
        ConfigError: several models are there and none is asked for, or what is asked for is not there.
        UnavailableError: no case of a side has what is needed; the message says what to measure.
    """
    notes: list[str] = []
    case = None if stated.edge else _edge_case(summaries, wanted, notes)
    edge = stated_edge(stated.edge) if stated.edge else edge_of(case) if case else None
    if edge is None:
        message = "no edge device with an energy is here: measure one with a power sensor (`edgemeter sensors`)"
        raise UnavailableError(message)
    if stated.datacenter:
        return Sides(edge, (stated_server(stated.datacenter),), tuple(notes))
    servers = _servers(summaries, case, wanted, notes)
    return Sides(edge, servers, tuple(notes))


def _edge_case(summaries: Sequence[Summary], wanted: Wanted, notes: list[str]) -> Summary:
    devices = [case for case in summaries if not _is_server(case, wanted) and case.key.role != "reference"]
    asked = [case for case in devices if _is_asked(case, wanted) and (wanted.edge is None or case.key.device == wanted.edge)]
    if not asked:
        there = ", ".join(sorted({f"{case.key.model} on {case.key.device}" for case in devices})) or "none"
        message = f"no case of a device is what was asked for (--edge, --model, --precision); there are: {there}"
        raise ConfigError(message)
    sound = [case for case in asked if not_ranked(case, summaries) is None and case.energy is not None]
    if not sound:
        why = "; ".join(dict.fromkeys(case.energy_reason or not_ranked(case, summaries) or "" for case in asked))
        message = f"no case of the edge has an energy that counts: {why}"
        raise UnavailableError(message)
    several = {name: sorted({getattr(case.key, name) for case in sound}) for name in ("model", "device")}
    for name, option in (("model", "--model"), ("device", "--edge")):
        if len(several[name]) > 1:
            message = f"several are here, say which with {option}: {', '.join(several[name])}"
            raise ConfigError(message)
    best = min(sound, key=lambda case: (case.suspect > 0, case.gross_mj.median if case.gross_mj else float("inf")))
    if len(sound) > 1:
        notes.append(f"of {len(sound)} cases of the edge the one of the lowest energy: {named(best.key)}")
    return best


def _servers(summaries: Sequence[Summary], case: Summary | None, wanted: Wanted, notes: list[str]) -> tuple[Server, ...]:
    servers = [one for one in summaries if _is_server(one, wanted) and _is_asked(one, wanted, with_precision=False)]
    alike = [one for one in servers if case is None or _is_alike(case, one)]
    notes += [f"left out: {named(one.key)} is of other data or input size" for one in servers if one not in alike]
    like = [one for one in alike if case is None or is_one_class(case, one)]
    best = _best(like, summaries, notes)
    other = _best([one for one in alike if one not in like], summaries, notes)
    for load in sorted(set(other) - set(best)):
        best[load] = other[load]
        told = f"{named(case.key)} against {other[load].name}" if case else other[load].name
        notes.append(f"{told}, {load}: not like with like, the server was not measured in that class of precision")
    if not best:
        left_out = f" ({'; '.join(notes)})" if notes else ""
        message = (
            f"no server {wanted.server!r} with an energy is here{left_out}: run the same agent there with --role reference, also with "
            "--scenario offline, or state one in --constants as [stated.datacenter]; imported and published figures do not count"
        )
        raise UnavailableError(message)
    return tuple(best[load] for load in sorted(best))


def _best(cases: Sequence[Summary], summaries: Sequence[Summary], notes: list[str]) -> dict[str, Server]:
    """Return for each load the server that takes the least; what is none is noted."""
    best: dict[str, Server] = {}
    for one in cases:
        why = not_ranked(one, summaries)
        found = why or server_of(one)
        if isinstance(found, str):
            notes.append(f"left out: {named(one.key)}, {one.key.scenario}: {found}")
        elif found.load not in best or found.max_w.value / found.rate_per_s.value < _each(best[found.load]):
            best[found.load] = found
    return best


def _each(server: Server) -> float:
    return server.max_w.value / server.rate_per_s.value


def _is_server(case: Summary, wanted: Wanted) -> bool:
    return wanted.server in (case.key.role, case.key.device)


def _is_asked(case: Summary, wanted: Wanted, *, with_precision: bool = True) -> bool:
    is_precision = not with_precision or wanted.precision in (None, case.key.precision)
    return wanted.model in (None, case.key.model) and is_precision


def _is_alike(case: Summary, server: Summary) -> bool:
    return all(one.holds(case, server) for one in LIKENESSES if one.name not in FREE)
