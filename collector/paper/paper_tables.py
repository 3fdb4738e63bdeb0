"""The tables of a paper: LaTeX with booktabs, every figure with its interval or uncertainty and its unit."""

from collections.abc import Callable, Mapping, Sequence

from edgemeter.agent.base import figures
from edgemeter.agent.base.metrics import metric_name
from edgemeter.agent.contract.case_relation import are_alike, likeness
from edgemeter.agent.contract.figures import Figure, Group, in_view
from edgemeter.agent.contract.record_conditions import rule_of
from edgemeter.collector.compare.judgement import ratios
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.paper.paper_cases import PaperCases
from edgemeter.collector.paper.typesetting import ABSENT, PaperCell, PaperColumn, PaperNotes, typeset
from edgemeter.collector.show.wording import telling_parts

HEAD = """\
% Needs \\usepackage{booktabs}. A figure is the median over the runs of a case; [a, b] is a 95% interval, and what follows the
% plus-minus sign an expanded uncertainty (95%). Letters are notes. A table that is wider than a narrow column is a table*, which
% reaches over both columns of a page of two; none is wider than the text of a page of one.
"""
_NO_NET = {"no_idle": "idle power was not measured", "not_resolvable": "net energy does not stand out from the uncertainty of idle power"}


def tables(paper: PaperCases) -> str:
    """Return all tables as LaTeX: speed, generated text, accuracy and energy where any case has them, and the machines."""
    generated = [case for case in paper.cases if case.newest.generation]
    parts = [_table(paper.cases, _with_ratio(paper.cases), "Latency, throughput and memory", "speed")]
    if generated:
        parts.append(_table(generated, GENERATION, "Generated text", "generation"))
    if any(case.accuracy or case.energy for case in paper.cases):
        each = "request" if len(generated) == len(paper.cases) else "inference, of generated text per request" if generated else "inference"
        parts.append(_table(paper.cases, QUALITY, f"Accuracy and energy per {each}", "quality"))
    machines = [
        case for number, case in enumerate(paper.cases) if case.key.device not in {earlier.key.device for earlier in paper.cases[:number]}
    ]
    device, *described = _filled(machines, MACHINES)
    parts.append(typeset(machines, [device], described, "Machines", "tab:edgemeter-machines"))
    return HEAD + "\n".join(parts)


def _table(cases: Sequence[CaseSummary], columns: Sequence[PaperColumn], caption: str, name: str) -> str:
    """Return one table; a column that no case has is left out, and what all have in common stands in the caption."""
    names = _names(cases)
    common = {name.heading: texts.pop() for name in names if len(texts := {name.text(case, PaperNotes()).text for case in cases}) == 1}
    common.pop("Case", None)
    if common:
        caption += f": {' on '.join(common[heading] for heading in ('Model', 'Device') if heading in common)}"
    names = [name for name in names if name.heading not in common]
    return typeset(cases, names, _filled(cases, columns), caption, f"tab:edgemeter-{name}")


def _filled(cases: Sequence[CaseSummary], columns: Sequence[PaperColumn]) -> list[PaperColumn]:
    return [column for column in columns if any(column.text(case, PaperNotes()).text != ABSENT for case in cases)]


def _names(cases: Sequence[CaseSummary]) -> list[PaperColumn]:
    parts = [[case.key.precision for case in cases], [case.key.runtime for case in cases]]
    several = telling_parts(cases, [[case.key.model for case in cases], *parts])
    names = dict(zip(map(id, cases), map(", ".join, zip(*parts, *several, strict=True)), strict=True))
    return [
        PaperColumn("Device", lambda case, _: PaperCell(case.key.device), "l"),
        PaperColumn("Model", lambda case, _: PaperCell(case.key.model), "l"),
        PaperColumn("Case", lambda case, _: PaperCell(names[id(case)]), "l"),
    ]


def _with_ratio(cases: Sequence[CaseSummary]) -> list[PaperColumn]:
    """Return the columns of speed, after p50 its ratio to the first case that is alike, if any two are."""
    likenesses = [likeness(case.key) for case in cases]
    alike = [
        [other for other, marks in zip(cases, likenesses, strict=True) if are_alike(likeness_of_case, marks)]
        for likeness_of_case in likenesses
    ]
    references = dict(zip(map(id, cases), alike, strict=True))

    def ratio(case: CaseSummary, notes: PaperNotes) -> PaperCell:
        reference, *compared_cases = references[id(case)]
        compared = ratios(case, reference)
        if not compared_cases or compared.p50 is None:
            return PaperCell(ABSENT)
        if case is reference:
            return PaperCell("1", notes.cite("ratios of p50 are to this case, of the rows of its model and scenario; with 95% interval"))
        interval = compared.intervals.get("latency")
        return PaperCell(f"{figures.significant(compared.p50)}{f' {_ends(*interval)}' if interval else ''}")

    after_p50 = next(number for number, column in enumerate(SPEED, start=1) if column.heading.startswith("p50"))
    return [*SPEED[:after_p50], PaperColumn("Ratio", ratio), *SPEED[after_p50:]]


def _latency(case: CaseSummary, notes: PaperNotes) -> PaperCell:
    """Return the median with its interval over runs; of a single run that over its queries, with a note."""
    p50_ms = case.p50_ms
    if p50_ms is None:
        return PaperCell(ABSENT)
    low, high, latency = p50_ms.low, p50_ms.high, case.newest.latency
    source = f"{p50_ms.n} runs are too few for an interval: range of the runs"
    if p50_ms.interval is not None:
        within = "".join(f", {text}" for text in (p50_ms.interval.within, p50_ms.interval.suspicion) if text)
        low, high, source = p50_ms.interval.low, p50_ms.interval.high, f"95% interval over {p50_ms.interval.over}{within}"
    elif p50_ms.n == 1 and latency.p50_low_ms is not None and latency.p50_high_ms is not None:
        low, high = latency.p50_low_ms, latency.p50_high_ms
        source = "95% interval over the queries of one run: the spread between runs is not known"
    return PaperCell(f"{figures.significant(p50_ms.median)} {_ends(low, high)}", notes.cite(source))


def _ends(low: float, high: float) -> str:
    texts = [(figures.significant(low, digits), figures.significant(high, digits)) for digits in range(3, figures.MOST_DIGITS + 1)]
    first, last = next(((first, last) for first, last in texts if first != last), texts[0])
    return f"[{first}, {last}]"


def _accuracy(case: CaseSummary, notes: PaperNotes) -> PaperCell:
    accuracy = case.accuracy
    if accuracy is None:
        return PaperCell(ABSENT)
    text = f"{metric_name(accuracy.metric)} {figures.accuracy(accuracy.value.median)}"
    if accuracy.low is None or accuracy.high is None:
        return PaperCell(text)
    over = f"; {accuracy.over}" if accuracy.over else ""
    mark = notes.cite(f"95% interval over {figures.count(accuracy.images, 'image')}{over}")
    return PaperCell(f"{text} [{figures.accuracy(accuracy.low)}, {figures.accuracy(accuracy.high)}]", mark)


def _gross(case: CaseSummary, notes: PaperNotes) -> PaperCell:
    if case.energy is None or case.gross_mj is None:
        return PaperCell(ABSENT)
    energy = case.energy
    excludes = f", without {', '.join(energy.excludes)}" if energy.excludes else ""
    mark = notes.cite(f"energy at the scope {energy.ranks_as} by {energy.sensor}{excludes}")
    return PaperCell(figures.with_uncertainty(case.gross_mj.median, case.gross_u_mj), mark)


def _net(case: CaseSummary, notes: PaperNotes) -> PaperCell:
    if case.energy is None:
        return PaperCell(ABSENT)
    if (net := case.spreads.get("energy_net_mj")) is not None:
        return PaperCell(figures.with_uncertainty(net.median, case.uncertainties.get("energy_net_mj")))
    return PaperCell(ABSENT, notes.cite(_NO_NET.get(case.energy.net_state, "net energy is not resolved")))


def _tokens(case: CaseSummary, notes: PaperNotes) -> PaperCell:
    generation = case.newest.generation
    if generation is None:
        return PaperCell(ABSENT)
    if generation.counts != "estimated":
        return PaperCell(generation.lengths)
    return PaperCell(generation.lengths, notes.cite("tokens are estimated from chunks of text, and so is what is by the token"))


# What an energy by the token is of.
_BY_TOKEN = {
    "energy_output_token_gross_mj": "gross energy of the whole request, prefill included, by its output tokens",
    "energy_prefill_token_gross_mj": "gross energy from the start of a request to its first token, by its prompt tokens",
    "energy_decode_token_gross_mj": "gross energy from the first to the last token of a request, by the tokens after the first",
}
# Figures that a paper says more of than the median.
_TEXTS: Mapping[str, Callable[[CaseSummary, PaperNotes], PaperCell]] = {
    "latency_p50_ms": _latency,
    "accuracy_value": _accuracy,
    "energy_gross_mj": _gross,
    "energy_net_mj": _net,
}


def _figure_columns(*groups: Group, by_token: bool = False) -> list[PaperColumn]:
    """Return the columns of the figures of these groups; of energies those by the token, or the others."""
    entries = [entry for entry in in_view("paper") if entry.group in groups and (entry.column in _BY_TOKEN) == by_token]
    return [PaperColumn(entry.heading, _TEXTS.get(entry.name) or _text_of(entry)) for entry in entries]


def _text_of(entry: Figure) -> Callable[[CaseSummary, PaperNotes], PaperCell]:
    def text(case: CaseSummary, notes: PaperNotes) -> PaperCell:
        spread = case.spreads.get(entry.name)
        if spread is None or not entry.u:
            return PaperCell(entry.shown(spread.median) if spread else ABSENT)
        figure = figures.with_uncertainty(spread.median, case.uncertainties.get(entry.name))
        return PaperCell(figure, notes.cite(_BY_TOKEN[entry.column]) if entry.column in _BY_TOKEN else "")

    return text


def _verdict(case: CaseSummary, notes: PaperNotes) -> PaperCell:
    if not case.suspect:
        return PaperCell("valid")
    rules = ", ".join(dict.fromkeys(rule_of(reason) for reason in case.verdict_reasons))
    return PaperCell("suspect", notes.cite(f"in {case.suspect} of {figures.count(len(case.runs), 'run')}: {rules}"))


def _of_machine(field: str) -> Callable[[CaseSummary, PaperNotes], PaperCell]:
    return lambda case, _: PaperCell(case.around.environment.get(field) or ABSENT)


def _processor(case: CaseSummary, _notes: PaperNotes) -> PaperCell:
    environment = case.around.environment
    return PaperCell(environment.get("soc") or environment.get("cpu") or ABSENT)


SPEED = (
    PaperColumn("Runs", lambda case, _: PaperCell(str(len(case.runs)))),
    *_figure_columns("latency", "throughput", "preprocess", "postprocess", "cold_start", "memory", "conditions"),
    PaperColumn("Verdict", _verdict, "l"),
)
GENERATION = (PaperColumn("Prompt + output tokens", _tokens), *_figure_columns("generation"), *_figure_columns("energy", by_token=True))
QUALITY = _figure_columns("accuracy", "energy")
MACHINES = (
    PaperColumn("Device", lambda case, _: PaperCell(case.key.device), "l"),
    PaperColumn("Board", _of_machine("board"), "l"),
    PaperColumn("Processor", _processor, "l"),
    PaperColumn("Cores", _of_machine("cores")),
    PaperColumn("System", _of_machine("os"), "l"),
    PaperColumn("Power mode", _of_machine("power_mode"), "l"),
)
