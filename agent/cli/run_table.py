"""The table that `edgemeter run` prints: one row a run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from edgemeter.agent.base.figures import ABSENT, plain_digits
from edgemeter.agent.base.metrics import metric_name
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.figures import Figure, in_view
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.contract.record_figures import Energy, Load, Sustained

BETWEEN_COLUMNS = 2
# Less of the time than this between requests is not worth a word.
BETWEEN_RATIO = 0.001
STYLE = {"valid": "green", "suspect": "yellow", "invalid": "red"}


def print_runs(runs: Sequence[RunRecord], console: Console | None = None) -> None:
    """Print the runs as a table, and below it why any of them should not be believed, and why energy or accuracy is missing."""
    console = console or Console()
    columns = _fitting(
        [column for column in COLUMNS if column.always or any(column.text(run) != ABSENT for run in runs)], runs, console.width
    )
    title = f"{runs[0].device}: {len(runs)} run{'s' * (len(runs) > 1)}" if runs else None
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        fixed = column.heading != "model"
        table.add_column(column.heading, justify=column.justify, min_width=_width(column, runs), no_wrap=fixed, overflow="fold")
    for run in runs:
        cells = [Text(column.text(run), style=STYLE[run.verdict.state] if column.heading == "verdict" else "") for column in columns]
        table.add_row(*cells, style="dim" if run.verdict.state == "invalid" else None)
    console.print(table)
    for note in dict.fromkeys(_notes(runs)):
        console.print(note, markup=False, highlight=False, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class _Column:
    heading: str
    justify: Literal["left", "right"]
    always: bool
    text: Callable[[RunRecord], str]
    rank: int = 0


def _width(column: _Column, runs: Sequence[RunRecord]) -> int:
    """Return how narrow a column may become: only the model's name gives way on a narrow terminal."""
    return 8 if column.heading == "model" else max([len(column.heading), *(len(column.text(run)) for run in runs)])


def _fitting(columns: list[_Column], runs: Sequence[RunRecord], width: int) -> list[_Column]:
    """Return the columns that fit; what can best be done without goes first, a verdict or an energy never."""
    fitting = list(columns)
    while sum(_width(column, runs) + BETWEEN_COLUMNS for column in fitting) > width and any(column.rank for column in fitting):
        fitting.remove(max(fitting, key=lambda column: column.rank))
    return fitting


def _name(run: RunRecord) -> str:
    """Return the model's name, of a language model with the lengths of prompt and output."""
    return f"{run.model.name} {run.generation.prompt_tokens or '?'}+{run.generation.output_tokens}" if run.generation else run.model.name


def _gross(run: RunRecord) -> str:
    if run.energy is None:
        return ABSENT
    provenance = energy_provenance(run)
    if provenance in ("estimated", "modelled"):
        return f"{plain_digits(run.energy.gross_mj)} ({provenance})"
    sure = _sure(run.energy.gross_mj, run.energy.gross_u_mj)
    return sure if provenance == "measured" else f"{sure} ({provenance})"


def _sure(energy_mj: float, u_mj: float | None) -> str:
    """Return an energy with its expanded uncertainty, `?` where that is not known."""
    return f"{plain_digits(energy_mj)} ±{'?' if u_mj is None else plain_digits(u_mj, 2)}"


# Figures of which the table says more than the number.
_TEXTS: Mapping[str, Callable[[RunRecord], str]] = {
    "accuracy_value": lambda run: f"{run.accuracy.value:.4f} {metric_name(run.accuracy.metric)}" if run.accuracy else ABSENT,
    "energy_gross_mj": _gross,
    "energy_net_mj": lambda run: _net(run.energy),
}


def _of_figure(entry: Figure) -> _Column:
    """Return the column of a figure; an energy is never dropped."""
    text = _TEXTS.get(entry.name) or (lambda run: plain_digits(entry.value(run)))
    return _Column(entry.heading, "right", always=entry.always, text=text, rank=0 if entry.group == "energy" else entry.rank)


COLUMNS = (
    _Column("model", "left", always=True, text=_name),
    _Column("", "left", always=True, text=lambda run: f"{run.precision} {run.runtime.name} {run.runtime.threads}T"),
    *map(_of_figure, in_view("run")),
    _Column("verdict", "left", always=True, text=lambda run: run.verdict.state),
)


def _bounded_accuracy(accuracy: Accuracy | None) -> str:
    """Return an accuracy with its bounds and what they take as independent, e.g. `AP 0.3720 (0.3410 to 0.4000; 25 videos)`."""
    if accuracy is None or (accuracy.low is None and accuracy.clusters is None):
        return ""
    value = f"{metric_name(accuracy.metric)} {accuracy.value:.4f}"
    if accuracy.low is None or accuracy.high is None:
        return f"{value}, no bounds: {accuracy.interval_reason}"
    return f"{value} ({accuracy.low:.4f} to {accuracy.high:.4f}{f'; {accuracy.over}' if accuracy.over else ''})"


def _net(energy: Energy | None) -> str:
    if energy is None:
        return ABSENT
    if energy.net_state == "no_idle":
        return "no idle power"
    if energy.net_mj is None or energy.net_state != "resolved":
        return energy.net_state.replace("_", " ")
    return _sure(energy.net_mj, energy.net_u_mj)


def _reasons(runs: Sequence[RunRecord]) -> list[str]:
    """Return a line for each rule that repeats of a case violated, with the evidence of the first."""
    by_rule: dict[tuple[str, str, str], list[str]] = {}
    for run in runs:
        for reason in run.verdict.reasons:
            by_rule.setdefault((run.verdict.state, f"{run.model.name} on {run.runtime.name}", reason.partition(":")[0]), []).append(reason)
    repeats = {key: f" (and in {len(reasons) - 1} more of its runs)" for key, reasons in by_rule.items() if len(reasons) > 1}
    return [f"{state}: {case}: {reasons[0]}{repeats.get((state, case, rule), '')}" for (state, case, rule), reasons in by_rule.items()]


def _notes(runs: Sequence[RunRecord]) -> list[str]:
    needs = [(run, [f"{name.replace('_', '.')} (needs {count:,} queries)" for name, count in run.latency.refused.items()]) for run in runs]
    refused = dict.fromkeys(f"not stated: {', '.join(percentiles)} of {run.model.name}" for run, percentiles in needs if percentiles)
    depend = {_name(run): _dependence_note(run) for run in reversed(runs) if run.latency.early_stopping_reason}
    load = [_load_note(run, run.load) for run in runs if run.load and run.load.is_sustained is not None]
    sustained = [_sustained_note(run, run.sustained) for run in runs if run.sustained]
    energy = [note for run in runs for note in (*_energy_notes(run), *_token_energy_notes(run))]
    accuracy = [f"no accuracy: {run.accuracy_reason}" for run in runs if run.accuracy is None]
    accuracy += [f"accuracy of {run.model.name}: {bounds}" for run in runs if (bounds := _bounded_accuracy(run.accuracy))]
    accuracy += [f"note: {run.model.name}: {note}" for run in runs for note in run.verdict.notes if note.startswith("unsure-model")]
    return [*_reasons(runs), *refused, *depend.values(), *load, *sustained, *energy, *accuracy]


def _dependence_note(run: RunRecord) -> str:
    """Return how many independent queries those of the run are worth, and which percentiles that leaves without bounds."""
    latency = run.latency
    worth = [f"{count:,} for {name.replace('_', '.')}" for name, count in latency.effective.items()]
    needs = [f"{name.replace('_', '.')} (time about {count:,} queries)" for name, count in latency.unbounded.items()]
    text = f"note: {latency.count:,} queries of {_name(run)} depend on each other and are worth fewer independent ones: {', '.join(worth)}"
    return text + (f"; no bounds of {', '.join(needs)}" if needs else "")


def _energy_notes(run: RunRecord) -> list[str]:
    """Return why there is no energy or none of what was asked for, and what stands beside the energy of the widest scope."""
    energy = run.energy
    if energy is None:
        return [f"no energy: {run.energy_reason}"]
    provenance = energy_provenance(run)
    if provenance == "modelled":
        return [f"energy of {run.model.name} at {energy.scope} is modelled by {energy.sensor}, not measured: it ranks nowhere"]
    if provenance == "estimated":
        return [f"energy of {run.model.name} is estimated from a stated {energy.mean_power_w:g} W, not measured: it ranks nowhere"]
    left_out = f"leaves out {', '.join(energy.excludes)}" if energy.excludes else "leaves out nothing"
    unknown = (
        "" if energy.gross_u_mj is not None else f"; no interval (±?): {energy.interval_reason or 'an older record, which says no more'}"
    )
    notes = [f"energy by {energy.sensor}, {energy.scope}: {left_out}{unknown}"]
    if run.load and run.load.pauses:
        notes.append(f"{run.load.pauses} random pauses between queries, {run.load.paused_ms:,.0f} ms in all, are in no figure")
    notes += [f"no energy from {reason}" for reason in run.other_energy_reasons]
    notes += [
        f"also {_sure(other.gross_mj, other.gross_u_mj)} mJ gross by {other.sensor} ({other.scope}), "
        f"{other.mean_power_w / energy.mean_power_w:.2f} of what {energy.sensor} ({energy.scope}) sees"
        for other in run.other_energies
        if energy.mean_power_w
    ]
    if energy.net_state == "no_idle" and run.windows is not None and (run.windows.idle_before or run.windows.idle_after):
        notes.append(f"no net energy of {run.model.name}: its idle stretches do not give {energy.sensor} an idle power: use a longer mode")
    if energy.net_state == "not_resolvable":
        window_s = energy.resolving_window_s
        do = f"idle and load of {window_s:.0f} s each would resolve it" if window_s is not None else "a longer run would not resolve it"
        notes.append(f"net energy of {run.model.name} is lost in the uncertainty of idle power: {do}")
    return notes


def _token_energy_notes(run: RunRecord) -> list[str]:
    """Return the energies per token of a language model, or why a part has none; none without an energy."""
    energy = run.generation.energy if run.generation else None
    if energy is None or run.energy is None:
        return []
    parts = [("prompt token", energy.prefill_token, energy.prefill_reason), ("token decoded", energy.decode_token, energy.decode_reason)]
    between_ms = run.energy.between_ms or 0.0
    length_ms = run.energy.window_ms + between_ms
    between = f" without the {between_ms / length_ms:.1%} of the time between requests" if between_ms > BETWEEN_RATIO * length_ms else ""
    texts = [
        f"{_sure(per_token.gross_mj, per_token.gross_u_mj)} mJ gross a {token}" if per_token else f"none a {token} ({reason})"
        for token, per_token, reason in parts
    ]
    return [f"energy of {run.model.name} by the token: {', '.join(texts)}; mJ above are of a whole request{between}"]


def _load_note(run: RunRecord, load: Load) -> str:
    rate = f"{plain_digits(load.target_per_s)} queries a second of {run.model.name}"
    busy = f"busy {load.utilisation_ratio:.0%} of the time" if load.utilisation_ratio is not None else "busy an unknown share of the time"
    if load.in_flight_max is not None:
        busy = f"up to {load.in_flight_max} at once"
    if load.is_sustained:
        # What waits inside a server is not seen.
        waited = f", they waited {plain_digits(load.queueing.p50_ms)} ms (p50)" if load.queueing and load.in_flight_max is None else ""
        return f"sustained: {rate}: {busy}{waited}"
    unserved = f", {load.unserved} never served" if load.unserved else ""
    return f"not sustained: {rate}: {busy}{unserved}; the latencies only say how long it was tried: offer a lower rate"


def _sustained_note(run: RunRecord, sustained: Sustained) -> str:
    minutes = plain_digits(len(sustained.points) * sustained.interval_s / 60, 3)
    if sustained.level_p50_ms is None:
        return f"over time: {run.model.name}: {minutes} min are too short for a level of the first minute"
    if sustained.throttled_after_s is None:
        return f"over time: {run.model.name} held its first minute's {plain_digits(sustained.level_p50_ms)} ms for {minutes} min"
    return f"over time: {run.model.name} throttled after {sustained.throttled_after_s:.0f} s: {sustained.evidence}"
