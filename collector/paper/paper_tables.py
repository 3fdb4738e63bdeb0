"""The tables of a paper: LaTeX with booktabs, every figure with its interval or uncertainty and its unit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from edgemeter.agent.base import figures, latex
from edgemeter.collector.compare.spread import Spread
from edgemeter.collector.compare.summary import CaseSummary, rule_of
from edgemeter.collector.paper.paper_cases import PaperCases
from edgemeter.collector.show.wording import Notes, case_names, metric_name

HEAD = """\
% Needs \\usepackage{booktabs}. A figure is the median over the runs of a case; [a, b] is a 95 % interval, and what follows the
% plus-minus sign an expanded uncertainty (95 %).
"""
ABSENT = "--"


@dataclass(frozen=True, slots=True)
class PaperColumn:
    """One column: its heading, its text for a case, and its side; `notes` numbers what is explained below the table."""

    heading: str
    text: Callable[[CaseSummary, Notes], str]
    align: Literal["l", "r"] = "r"


def tables(found: PaperCases) -> str:
    """Return all tables as LaTeX: speed, accuracy and energy where any case has them, and the machines."""
    parts = [_table(found.cases, SPEED, "Latency, throughput and memory", "speed")]
    if any(case.accuracy or case.energy for case in found.cases):
        parts.append(_table(found.cases, QUALITY, "Accuracy and energy per inference", "quality"))
    machines = [case for number, case in enumerate(found.cases) if case.key.device not in {one.key.device for one in found.cases[:number]}]
    parts.append(_table(machines, MACHINES, "Machines", "machines"))
    return HEAD + "\n".join(parts)


def _table(cases: Sequence[CaseSummary], columns: Sequence[PaperColumn], caption: str, name: str) -> str:
    notes = Notes()
    rows = [[column.text(case, notes) for column in columns] for case in cases]
    head = [column.heading for column in columns]
    align: list[Literal["l", "r", "c"]] = [column.align for column in columns]
    if columns is not MACHINES:
        rows = [[*names, *row] for names, row in zip(_names(cases), rows, strict=True)]
        head, align = ["Device", "Model", "Case", *head], ["l", "l", "l", *align]
    kept = [place for place in range(len(head)) if place < 1 or any(row[place] != ABSENT for row in rows)]
    tabular = latex.booktabs([head[one] for one in kept], [[row[one] for one in kept] for row in rows], [align[one] for one in kept])
    below = "".join(f"\\par\\smallskip\\footnotesize [{number}] {latex.escape(text)}.\n" for number, text in enumerate(notes.texts, 1))
    opening = f"\\begin{{table}}\n\\centering\n\\caption{{{latex.escape(caption)}}}\n\\label{{tab:edgemeter-{name}}}\n"
    return f"{opening}{tabular}\n{below}\\end{{table}}\n"


def _names(cases: Sequence[CaseSummary]) -> list[list[str]]:
    """Return device, model and the rest of the name of each case."""
    has_models = len({case.key.model for case in cases}) > 1
    rests = [name.split(" \N{MIDDLE DOT} ", 1)[1] if has_models else name for name in case_names(cases)]
    return [[case.key.device, case.key.model, rest] for case, rest in zip(cases, rests, strict=True)]


def _spread(found: Spread | None) -> str:
    return figures.significant(found.median) if found else ABSENT


def _latency(case: CaseSummary, notes: Notes) -> str:
    """Return the median with its interval over runs; of a single run that over its queries, with a note."""
    found = case.p50_ms
    if found is None:
        return ABSENT
    if found.interval is not None:
        within = f", {found.interval.within}" if found.interval.within else ""
        number = notes.cite(f"95 % interval over {found.interval.over}{within}")
        return f"{figures.significant(found.median)} {_ends(found.interval.low, found.interval.high)} ({number})"
    latency = case.newest.latency
    if found.n == 1 and latency.p50_low_ms is not None and latency.p50_high_ms is not None:
        number = notes.cite("95 % interval over the queries of one run: the spread between runs is not known")
        return f"{figures.significant(found.median)} {_ends(latency.p50_low_ms, latency.p50_high_ms)} ({number})"
    number = notes.cite(f"{found.n} runs are too few for an interval: range of the runs")
    return f"{figures.significant(found.median)} {_ends(found.low, found.high)} ({number})"


def _ends(low: float, high: float) -> str:
    for digits in range(3, figures.MOST_DIGITS + 1):
        first, last = figures.significant(low, digits), figures.significant(high, digits)
        if first != last:
            return f"[{first}, {last}]"
    return f"[{figures.significant(low)}, {figures.significant(high)}]"


def _accuracy(case: CaseSummary, notes: Notes) -> str:
    found = case.accuracy
    if found is None:
        return ABSENT
    text = f"{metric_name(found.metric)} {figures.accuracy(found.value.median)}"
    if found.low is None or found.high is None:
        return text
    number = notes.cite(f"95 % interval over {figures.count(found.images, 'image')}")
    return f"{text} [{figures.accuracy(found.low)}, {figures.accuracy(found.high)}] ({number})"


def _gross(case: CaseSummary, notes: Notes) -> str:
    if case.energy is None:
        return ABSENT
    one = case.energy
    excludes = f", without {', '.join(one.excludes)}" if one.excludes else ""
    number = notes.cite(f"energy at the scope {one.ranks_as} by {one.sensor}{excludes}")
    return f"{figures.with_uncertainty(one.gross_mj.median, one.gross_u_mj)} ({number})"


def _net(case: CaseSummary, notes: Notes) -> str:
    if case.energy is None:
        return ABSENT
    if case.energy.net_mj is None:
        why = {
            "no_idle": "idle power was not measured",
            "not_resolvable": "net energy does not stand out from the uncertainty of idle power",
        }
        return f"{ABSENT} ({notes.cite(why.get(case.energy.net_state, 'net energy is not resolved'))})"
    return figures.with_uncertainty(case.energy.net_mj.median, case.energy.net_u_mj)


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
    PaperColumn("p50, ms", _latency),
    PaperColumn("p90, ms", lambda case, _: _spread(case.p90_ms)),
    PaperColumn("p99, ms", lambda case, _: _spread(case.p99_ms)),
    PaperColumn("Per s", lambda case, _: _spread(case.throughput_per_s)),
    PaperColumn("Peak, MB", lambda case, _: _spread(case.peak_mb)),
    PaperColumn("Verdict", _verdict, "l"),
)
QUALITY = (
    PaperColumn("Accuracy", _accuracy),
    PaperColumn("Gross, mJ", _gross),
    PaperColumn("Net, mJ", _net),
    PaperColumn("Power, W", lambda case, _: _spread(case.energy.mean_power_w) if case.energy else ABSENT),
)
MACHINES = (
    PaperColumn("Device", lambda case, _: case.key.device, "l"),
    PaperColumn("Board", _of_machine("board"), "l"),
    PaperColumn("Processor", lambda case, _: case.around.environment.get("soc") or case.around.environment.get("cpu") or ABSENT, "l"),
    PaperColumn("Cores", _of_machine("cores")),
    PaperColumn("System", _of_machine("os"), "l"),
    PaperColumn("Kernel", _of_machine("kernel"), "l"),
    PaperColumn("Governor", _of_machine("governor"), "l"),
    PaperColumn("Power mode", _of_machine("power_mode"), "l"),
)
