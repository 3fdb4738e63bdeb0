"""The tables of a paper: LaTeX with booktabs, every figure with its interval or uncertainty and its unit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from edgemeter.agent.base import figures
from edgemeter.agent.base.metrics import metric_name
from edgemeter.agent.base.tables import latex, latex_text
from edgemeter.agent.contract.figures import Figure, Group, in_view
from edgemeter.agent.contract.record_conditions import rule_of
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.paper.paper_cases import PaperCases
from edgemeter.collector.show.wording import Notes, telling_parts

HEAD = """\
% Needs \\usepackage{booktabs}. A figure is the median over the runs of a case; [a, b] is a 95% interval, and what follows the
% plus-minus sign an expanded uncertainty (95%).
"""
ABSENT = "--"
_NO_NET = {"no_idle": "idle power was not measured", "not_resolvable": "net energy does not stand out from the uncertainty of idle power"}


@dataclass(frozen=True, slots=True)
class PaperColumn:
    """One column: its heading, its text for a case, and its side; `notes` numbers what is explained below the table."""

    heading: str
    text: Callable[[CaseSummary, Notes], str]
    align: Literal["l", "r"] = "r"


def tables(paper: PaperCases) -> str:
    """Return all tables as LaTeX: speed, generated text, accuracy and energy where any case has them, and the machines."""
    generated = [case for case in paper.cases if case.newest.generation]
    parts = [_table(paper.cases, SPEED, "Latency, throughput and memory", "speed")]
    if generated:
        parts.append(_table(generated, GENERATION, "Generated text", "generation"))
    if any(case.accuracy or case.energy for case in paper.cases):
        each = "request" if len(generated) == len(paper.cases) else "inference, of generated text per request" if generated else "inference"
        parts.append(_table(paper.cases, QUALITY, f"Accuracy and energy per {each}", "quality"))
    machines = [
        case for number, case in enumerate(paper.cases) if case.key.device not in {earlier.key.device for earlier in paper.cases[:number]}
    ]
    parts.append(_table(machines, MACHINES, "Machines", "machines"))
    return HEAD + "\n".join(parts)


def _table(cases: Sequence[CaseSummary], columns: Sequence[PaperColumn], caption: str, name: str) -> str:
    """Return one table; a column that no case has is left out, and what all have in common stands in the caption."""
    notes = Notes()
    shown_columns = columns if columns is MACHINES else [*_names(cases), *columns]
    texts = [(column, [column.text(case, notes) for case in cases]) for column in shown_columns]
    common = {column.heading: cells[0] for column, cells in texts if column.heading in ("Device", "Model") and len({*cells}) == 1}
    filled_columns = [
        (column, cells)
        for column, cells in texts
        if (column.heading not in common or columns is MACHINES) and any(cell != ABSENT for cell in cells)
    ]
    rows = [list(row) for row in zip(*(cells for _, cells in filled_columns), strict=True)]
    if columns is not MACHINES and common:
        caption += f": {' on '.join(common[heading] for heading in ('Model', 'Device') if heading in common)}"
    tabular = latex(None, [column.heading for column, _ in filled_columns], [column.align == "r" for column, _ in filled_columns], rows)
    below = "".join(f"\\par\\smallskip [{number}] {latex_text(text)}.\n" for number, text in enumerate(notes.texts, 1))
    opening = f"\\begin{{table}}\n\\centering\\footnotesize\\setlength{{\\tabcolsep}}{{3pt}}\n\\caption{{{latex_text(caption)}}}\n"
    return f"{opening}\\label{{tab:edgemeter-{name}}}\n{tabular}\n{below}\\end{{table}}\n"


def _names(cases: Sequence[CaseSummary]) -> list[PaperColumn]:
    parts = [[case.key.precision for case in cases], [case.key.runtime for case in cases]]
    several = telling_parts(cases, [[case.key.model for case in cases], *parts])
    names = dict(zip(map(id, cases), map(", ".join, zip(*parts, *several, strict=True)), strict=True))
    return [
        PaperColumn("Device", lambda case, _: case.key.device, "l"),
        PaperColumn("Model", lambda case, _: case.key.model, "l"),
        PaperColumn("Case", lambda case, _: names[id(case)], "l"),
    ]


def _latency(case: CaseSummary, notes: Notes) -> str:
    """Return the median with its interval over runs; of a single run that over its queries, with a note."""
    p50_ms = case.p50_ms
    if p50_ms is None:
        return ABSENT
    low, high, latency = p50_ms.low, p50_ms.high, case.newest.latency
    source = f"{p50_ms.n} runs are too few for an interval: range of the runs"
    if p50_ms.interval is not None:
        within = "".join(f", {text}" for text in (p50_ms.interval.within, p50_ms.interval.suspicion) if text)
        low, high, source = p50_ms.interval.low, p50_ms.interval.high, f"95% interval over {p50_ms.interval.over}{within}"
    elif p50_ms.n == 1 and latency.p50_low_ms is not None and latency.p50_high_ms is not None:
        low, high = latency.p50_low_ms, latency.p50_high_ms
        source = "95% interval over the queries of one run: the spread between runs is not known"
    return f"{figures.significant(p50_ms.median)} {_ends(low, high)} ({notes.cite(source)})"


def _ends(low: float, high: float) -> str:
    texts = [(figures.significant(low, digits), figures.significant(high, digits)) for digits in range(3, figures.MOST_DIGITS + 1)]
    first, last = next(((first, last) for first, last in texts if first != last), texts[0])
    return f"[{first}, {last}]"


def _accuracy(case: CaseSummary, notes: Notes) -> str:
    accuracy = case.accuracy
    if accuracy is None:
        return ABSENT
    text = f"{metric_name(accuracy.metric)} {figures.accuracy(accuracy.value.median)}"
    if accuracy.low is None or accuracy.high is None:
        return text
    over = f"; {accuracy.over}" if accuracy.over else ""
    number = notes.cite(f"95% interval over {figures.count(accuracy.images, 'image')}{over}")
    return f"{text} [{figures.accuracy(accuracy.low)}, {figures.accuracy(accuracy.high)}] ({number})"


def _gross(case: CaseSummary, notes: Notes) -> str:
    if case.energy is None or case.gross_mj is None:
        return ABSENT
    energy = case.energy
    excludes = f", without {', '.join(energy.excludes)}" if energy.excludes else ""
    number = notes.cite(f"energy at the scope {energy.ranks_as} by {energy.sensor}{excludes}")
    return f"{figures.with_uncertainty(case.gross_mj.median, case.gross_u_mj)} ({number})"


def _net(case: CaseSummary, notes: Notes) -> str:
    if case.energy is None:
        return ABSENT
    if (net := case.spreads.get("energy_net_mj")) is not None:
        return figures.with_uncertainty(net.median, case.uncertainties.get("energy_net_mj"))
    reason = _NO_NET.get(case.energy.net_state, "net energy is not resolved")
    return f"{ABSENT} ({notes.cite(reason)})"


def _tokens(case: CaseSummary, notes: Notes) -> str:
    generation = case.newest.generation
    if generation is None:
        return ABSENT
    lengths = f"{generation.prompt_tokens or '?'} + {generation.output_tokens}"
    if generation.counts != "estimated":
        return lengths
    return f"{lengths} ({notes.cite('tokens are estimated from chunks of text, and so is what is by the token')})"


# What an energy by the token is of.
_BY_TOKEN = {
    "energy_output_token_gross_mj": "gross energy of the whole request, prefill included, by its output tokens",
    "energy_prefill_token_gross_mj": "gross energy from the start of a request to its first token, by its prompt tokens",
    "energy_decode_token_gross_mj": "gross energy from the first to the last token of a request, by the tokens after the first",
}
# Figures that a paper says more of than the median.
_TEXTS: Mapping[str, Callable[[CaseSummary, Notes], str]] = {
    "latency_p50_ms": _latency,
    "accuracy_value": _accuracy,
    "energy_gross_mj": _gross,
    "energy_net_mj": _net,
}


def _figure_columns(*groups: Group, by_token: bool = False) -> list[PaperColumn]:
    """Return the columns of the figures of these groups; of energies those by the token, or the others."""
    entries = [entry for entry in in_view("paper") if entry.group in groups and (entry.column in _BY_TOKEN) == by_token]
    return [PaperColumn(entry.heading, _TEXTS.get(entry.name) or _text_of(entry)) for entry in entries]


def _text_of(entry: Figure) -> Callable[[CaseSummary, Notes], str]:
    def text(case: CaseSummary, notes: Notes) -> str:
        spread = case.spreads.get(entry.name)
        if spread is None or not entry.u:
            return entry.shown(spread.median) if spread else ABSENT
        figure = figures.with_uncertainty(spread.median, case.uncertainties.get(entry.name))
        return f"{figure} ({notes.cite(_BY_TOKEN[entry.column])})" if entry.column in _BY_TOKEN else figure

    return text


def _verdict(case: CaseSummary, notes: Notes) -> str:
    if not case.suspect:
        return "valid"
    rules = ", ".join(dict.fromkeys(rule_of(reason) for reason in case.verdict_reasons))
    number = notes.cite(f"in {case.suspect} of {figures.count(len(case.runs), 'run')}: {rules}")
    return f"suspect ({number})"


def _of_machine(field: str) -> Callable[[CaseSummary, Notes], str]:
    return lambda case, _: case.around.environment.get(field) or ABSENT


SPEED = (
    PaperColumn("Runs", lambda case, _: str(len(case.runs))),
    *_figure_columns("latency", "throughput", "preprocess", "postprocess", "cold_start", "memory", "conditions"),
    PaperColumn("Verdict", _verdict, "l"),
)
GENERATION = (PaperColumn("Prompt + output tokens", _tokens), *_figure_columns("generation"), *_figure_columns("energy", by_token=True))
QUALITY = _figure_columns("accuracy", "energy")
MACHINES = (
    PaperColumn("Device", lambda case, _: case.key.device, "l"),
    PaperColumn("Board", _of_machine("board"), "l"),
    PaperColumn("Processor", lambda case, _: case.around.environment.get("soc") or case.around.environment.get("cpu") or ABSENT, "l"),
    PaperColumn("Cores", _of_machine("cores")),
    PaperColumn("System", _of_machine("os"), "l"),
    PaperColumn("Power mode", _of_machine("power_mode"), "l"),
)
