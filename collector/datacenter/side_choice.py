"""Which cases represent the edge device and the servers: like with like, and of what is alike the lowest energy."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.contract.case_relation import relation
from edgemeter.agent.contract.energy_provenance import MEASURED
from edgemeter.collector.compare.comparison import not_ranked
from edgemeter.collector.compare.pairing import is_one_class
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.datacenter.constants import Stated
from edgemeter.collector.datacenter.sides import EdgeSide, ServerSide, edge_of, server_of, stated_edge, stated_server
from edgemeter.collector.datacenter.workload import TokenWorkload, differences, why_no_tokens, workload_of
from edgemeter.collector.runs.cases import named, names_of

# A server saturated by batches and a device with one query at a time are what is compared here, so these need not be alike.
FREE = ("scenario", "samples_per_query", "target_per_s", "deadline", "concurrency")

# Of a language model its workload says the same, whether it ran in the process or behind a server.
IN_WORKLOAD = ("dataset_sha256", "input_values", "precision", "prompt_tokens", "output_tokens")


@dataclass(frozen=True, slots=True)
class SideRequest:
    """The request: the device and the model (None: the only one), the reference by device or role; of a language model its tokens too."""

    edge: str | None
    model: str | None
    precision: str | None
    server: str
    prompt_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ChosenSides:
    """The edge, the servers, and what was noted while they were chosen."""

    edge: EdgeSide
    servers: tuple[ServerSide, ...]
    notes: tuple[str, ...]


def choose_sides(summaries: Sequence[CaseSummary], request: SideRequest, stated_sides: Stated) -> ChosenSides:
    """Return the sides: what is stated goes before what was measured.

    Raises:
        ConfigError: there are several models and none is requested, no case matches, or what is stated is of other work.
        UnavailableError: no case of a side has what is needed; the message names what to measure.
    """
    notes: list[str] = []
    case = None if stated_sides.edge else _edge_case(summaries, request, notes)
    edge = stated_edge(stated_sides.edge) if stated_sides.edge else edge_of(case) if case else None
    if edge is None:
        raise UnavailableError("no edge device has an energy figure: measure one with a power sensor (`edgemeter sensors`)")
    if stated_sides.datacenter:
        servers: tuple[ServerSide, ...] = (stated_server(stated_sides.datacenter),)
    else:
        servers = _servers(summaries, case, edge.tokens, request, notes)
    for server in servers:
        _check_work(edge, server, notes)
    return ChosenSides(edge, servers, tuple(notes))


def _check_work(edge: EdgeSide, server: ServerSide, notes: list[str]) -> None:
    """Note how each side generated its text; raises ConfigError if only one is a language model, or their requests are of another kind."""
    mine, server_tokens = edge.tokens, server.tokens
    if mine is None and server_tokens is None:
        return
    if mine is None or server_tokens is None:
        lacking = edge.name if mine is None else server.name
        raise ConfigError(
            f"{lacking} has no tokens, and the other side is a language model: state its requests in --constants with "
            "tokens = { prompt_tokens = 512, output_tokens = 128, precision = 'q4_0', concurrency = 1 }"
        )
    if unlike := differences(mine, server_tokens):
        raise ConfigError(f"{edge.name} and {server.name} do not do the same work: {'; '.join(unlike)}: compare equal requests")
    if mine.is_in_process is not None and server_tokens.is_in_process is not None and mine.is_in_process != server_tokens.is_in_process:
        served, in_process = (server.name, edge.name) if mine.is_in_process else (edge.name, server.name)
        notes.append(f"{served} answered over HTTP, which its energy contains; {in_process} generated in the run's process")


def _edge_case(summaries: Sequence[CaseSummary], request: SideRequest, notes: list[str]) -> CaseSummary:
    devices = [case for case in summaries if not _is_server(case, request) and case.key.role != "reference"]
    candidates = [
        case
        for case in devices
        if request.model in (None, case.key.model)
        and request.precision in (None, case.key.precision)
        and request.edge in (None, case.key.device)
    ]
    matching = [case for case in candidates if _has_lengths(case, request)]
    if not matching:
        available = ", ".join(sorted({f"{case.key.model} on {case.key.device}" for case in devices})) or "none"
        lengths = f"; lengths: {', '.join(_lengths(candidates))}" if _lengths(candidates) else ""
        raise ConfigError(
            f"no device case matches --device, --model, --precision and the numbers of tokens; available: {available}{lengths}"
        )
    why_not = {id(case): case.energy_reason or not_ranked(case, summaries) or why_no_tokens(case) for case in matching}
    sound = [case for case in matching if why_not[id(case)] is None and case.energy is not None]
    if not sound:
        why = "; ".join(dict.fromkeys(why or "" for why in why_not.values()))
        raise UnavailableError(f"no edge case has a usable energy figure: {why}")
    several = {name: sorted({getattr(case.key, name) for case in sound}) for name in ("model", "device")}
    for name, option in (("model", "--model"), ("device", "--device")):
        if len(several[name]) > 1:
            raise ConfigError(f"there are several, choose one with {option}: {', '.join(several[name])}")
    _check_one_workload(sound)
    # Energies of two classes have no lowest: what was not measured stands in only where nothing was, then the widest scope goes first.
    classes = [case.energy.ranks_as for case in sound if case.energy]
    first = min(classes, key=lambda energy_class: energy_class.preference)
    ranked = [case for case in sound if case.energy and case.energy.ranks_as == first]
    best = min(ranked, key=lambda case: (case.suspect > 0, case.gross_mj.median if case.gross_mj else float("inf")))
    if len(sound) > 1:
        among = f"of {len(sound)} edge cases" if len(ranked) == len(sound) else f"of {len(ranked)} edge cases with an energy at {first}"
        notes.append(f"{among}, the one with the lowest energy: {names_of(case.key for case in sound)[best.key]}")
    return best


def _has_lengths(case: CaseSummary, request: SideRequest) -> bool:
    generation = case.newest.generation
    lengths = (generation.prompt_tokens, generation.output_tokens) if generation else (None, None)
    return all(wished in (None, length) for wished, length in zip((request.prompt_tokens, request.output_tokens), lengths, strict=True))


def _lengths(cases: Sequence[CaseSummary]) -> list[str]:
    lengths = sorted({(generation.prompt_tokens, generation.output_tokens) for case in cases if (generation := case.newest.generation)})
    return [f"{prompt}+{output}" for prompt, output in lengths]


def _check_one_workload(cases: Sequence[CaseSummary]) -> None:
    """Refuse (ConfigError) to choose by energy among unequal work: neither a shorter request nor a smaller file is a saving."""
    if len(lengths := _lengths(cases)) > 1:
        raise ConfigError(f"there are several lengths, choose one with --prompt-tokens and --output-tokens: {', '.join(lengths)}")
    precisions = sorted({case.key.precision for case in cases if case.newest.generation})
    if len(precisions) > 1:
        raise ConfigError(f"there are several quantisations, choose one with --precision: {', '.join(precisions)}")
    datasets = sorted({case.newest.dataset.name for case in cases if case.newest.generation})
    if len(datasets) > 1:
        raise ConfigError(
            f"there are several ways to generate ({'; '.join(datasets)}): give --ledger a document of `edgemeter run --json` with one"
        )


def _servers(
    summaries: Sequence[CaseSummary], case: CaseSummary | None, tokens: TokenWorkload | None, request: SideRequest, notes: list[str]
) -> tuple[ServerSide, ...]:
    alike = []
    for server in summaries:
        if _is_server(server, request) and request.model in (None, server.key.model):
            if why := _why_unlike(case, tokens, server):
                notes.append(f"left out: {named(server.key)} {why}")
            else:
                alike.append(server)
    source = _source(case, alike)
    unlike = [server for server in alike if server.energy and server.energy.provenance != source]
    notes += [
        f"left out: {named(server.key)}: its energy is {server.energy.provenance}, not {source}" for server in unlike if server.energy
    ]
    alike = [server for server in alike if server.energy is None or server.energy.provenance == source]
    like = [server for server in alike if case is None or is_one_class(case, server)]
    best = _best(like, case, summaries, notes)
    other = _best([server for server in alike if case and not is_one_class(case, server)], case, summaries, notes)
    for load in sorted(set(other) - set(best)):
        best[load] = other[load]
        pair = f"{named(case.key)} against {other[load].name}" if case else other[load].name
        notes.append(f"{pair}, {load}: not like with like, because the server was not measured in that precision class")
    if not best:
        left_out = f" ({'; '.join(notes)})" if notes else ""
        offline = "" if tokens else ", also with --scenario offline"
        raise UnavailableError(
            f"no server {request.server!r} has an energy figure{left_out}: run the same agent there with --role reference{offline}, or "
            "state one in --constants as [stated.datacenter]; imported and published figures do not count"
        )
    return tuple(best[load] for load in sorted(best))


def _source(case: CaseSummary | None, servers: Sequence[CaseSummary]) -> str:
    """Return the provenance that the servers' energies must have: the edge's; beside a stated edge measured, if there is one."""
    if case is not None and case.energy is not None:
        return case.energy.provenance
    provenances = [server.energy.provenance for server in servers if server.energy]
    return MEASURED if MEASURED in provenances or not provenances else provenances[0]


def _best(
    cases: Sequence[CaseSummary], edge: CaseSummary | None, summaries: Sequence[CaseSummary], notes: list[str]
) -> dict[str, ServerSide]:
    """Return for each load the server that takes the least, cautioned where it differs from the edge; what is none is noted."""
    best: dict[str, ServerSide] = {}
    for case in cases:
        server = not_ranked(case, summaries) or why_no_tokens(case) or server_of(case)
        if isinstance(server, str):
            notes.append(f"left out: {named(case.key)}, {case.key.scenario}: {server}")
        elif server.load not in best or server.full_load_j < best[server.load].full_load_j:
            marked = relation(edge.key, case.key).marked if edge else ()
            best[server.load] = replace(server, cautions=(*server.cautions, *(difference.words for difference in marked)))
    return best


def _is_server(case: CaseSummary, request: SideRequest) -> bool:
    return request.server in (case.key.role, case.key.device)


def _why_unlike(case: CaseSummary | None, tokens: TokenWorkload | None, server: CaseSummary) -> str | None:
    """Return why a server did not do the work of the edge (a case, or stated: then only its `tokens` are known), None if it did."""
    server_tokens = workload_of(server)
    if tokens and server_tokens and (work := differences(tokens, server_tokens)):
        return f"does other work: {'; '.join(work)}"
    free = FREE if server.newest.generation is None else (*FREE, *IN_WORKLOAD)
    unlike = relation(case.key, server.key).unlike if case else ()
    titles = [field.likeness.title for field in unlike if field.likeness and field.name not in free]
    return f"differs in {', '.join(titles)}" if titles else None
