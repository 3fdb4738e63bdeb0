"""The output of `edgemeter run`: the answer of one case in a sentence, and a table with a row a case, or with `why` a row a run.

Below it stands which rules the runs violated and what is missing; with `why` the evidence too.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console

from edgemeter.agent.base.figures import ABSENT, count, plain_digits, with_uncertainty
from edgemeter.agent.base.metrics import metric_name
from edgemeter.agent.base.terminal import TableColumn, fitted_table, print_text
from edgemeter.agent.cli.further_tables import print_answers, print_sweeps, print_together
from edgemeter.agent.cli.measured_case import (
    MeasuredCase,
    accuracy_text,
    cases_of,
    energy_text,
    gross_text,
    model_text,
    setting_text,
)
from edgemeter.agent.cli.steady_block import print_steady
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.figures import Figure, figure, in_view
from edgemeter.agent.contract.load_sweep import sweeps
from edgemeter.agent.contract.mode_answer import mode_text
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_conditions import rule_of
from edgemeter.agent.contract.record_figures import Load
from edgemeter.agent.contract.steady_facts import held_out
from edgemeter.agent.contract.together_matrix import rows_of
from edgemeter.agent.ledger.run_history import short_id

STYLE = {"valid": "green", "suspect": "yellow", "invalid": "red"}
LATENCY = "latency_p50_ms"
SETTING = ""  # The heading of how a model ran.
NAMES = 2  # Columns that say which case it is.
# Less of the time than this between requests is not worth a word.
BETWEEN_RATIO = 0.001
_REMEDIES = "`edgemeter config rules` says what to do"


def print_runs(runs: Sequence[RunRecord], console: Console | None = None, *, why: bool = False) -> None:
    """Print what the runs come to, and below it why it should not be believed, and why energy or accuracy is missing.

    With `why` every run has its row, and every violated rule its evidence.
    """
    if not runs:
        return
    console = console or Console()
    if len(devices := dict.fromkeys(run.device for run in runs)) > 1:
        for device in devices:
            print_runs([run for run in runs if run.device == device], console, why=why)
        return
    cases = cases_of(runs)
    if len(cases) == 1:
        print_text(console, cases[0].sentence())
    else:
        print_text(console, f"{runs[0].device}: {len(cases)} cases, {count(len(runs), 'run')}")
    rows = [MeasuredCase((run,)) for run in runs] if why else cases
    # The sentence names the one case.
    columns = COLUMNS if len(cases) > 1 else COLUMNS[NAMES:]
    ids = [TableColumn("id", [short_id(run.id) for run in runs], "left")] if why and len(runs) > 1 else []
    console.print(fitted_table([*ids, *(column.of(rows) for column in columns)], console.width, STYLE))
    of_loads = sweeps(runs)
    print_sweeps(of_loads, console)
    print_answers(runs, console)
    print_together(rows_of(runs), console)
    # A sweep says which of its rates were sustained.
    described = runs if why else [] if of_loads else [case.typical for case in cases]
    for case in rows:
        if (run := case.typical).steady:
            print_steady(run, run.steady, console, is_whole=why or len(cases) == 1, runs=case.counted)
    for line in dict.fromkeys([*_load_notes(described), *notes(cases, why=why)]):
        print_text(console, line)


@dataclass(frozen=True, slots=True)
class _Column:
    heading: str
    justify: Literal["left", "right"]
    always: bool
    text: Callable[[MeasuredCase], str]
    rank: int = 0

    def of(self, cases: Sequence[MeasuredCase]) -> TableColumn:
        """Return the column of these cases."""
        cells = [self.text(case) for case in cases]
        if self.heading == SETTING:
            cells = _with_options(cells, cases)
        return TableColumn(self.heading, cells, self.justify, self.rank, self.always, folds=self.heading == "model")


def _with_options(cells: Sequence[str], cases: Sequence[MeasuredCase]) -> list[str]:
    """Return the settings of cases, with the power mode and the options in which a case differs from those that would have the same row."""
    runs = [case.runs[0] for case in cases]
    modes = [mode_text(run) for run in runs]
    cells = [" ".join(filter(None, (cell, mode))) if len(set(modes)) > 1 else cell for cell, mode in zip(cells, modes, strict=True)]
    rows = [(model_text(run), cell, run.runtime.options) for run, cell in zip(runs, cells, strict=True)]
    texts = []
    for model, cell, options in rows:
        alike = [compared for *names, compared in rows if names == [model, cell]]
        differing = [name for name in options if any(compared.get(name) != options[name] for compared in alike)]
        texts.append(" ".join((cell, *(f"{name}={Path(options[name]).name}" for name in differing))))
    return texts


def _of_run(text: Callable[[RunRecord], str], value: Callable[[RunRecord], float | None]) -> Callable[[MeasuredCase], str]:
    """Return what shows of a case the run whose value is the median."""

    def text_of(case: MeasuredCase) -> str:
        run = case.middle(value)
        return text(run) if run else ABSENT

    return text_of


def _accuracy(run: RunRecord) -> str:
    return f"{run.accuracy.value:.4f} {metric_name(run.accuracy.metric)}" if run.accuracy else ABSENT


def _net(run: RunRecord) -> str:
    if (energy := run.energy) is None or energy_provenance(run) == "shared":
        return ABSENT
    if energy.net_state == "no_idle":
        return "no idle power"
    if energy.net_mj is None or energy.net_state != "resolved":
        return energy.net_state.replace("_", " ")
    return energy_text(energy.net_mj, energy.net_u_mj)


def _power(run: RunRecord) -> str:
    return with_uncertainty(run.energy.mean_power_w, run.energy.mean_power_u_w).replace("± ", "±") if run.energy else ABSENT


# Figures of which the table says more than the number.
_TEXTS: Mapping[str, Callable[[MeasuredCase], str]] = {
    "accuracy_value": _of_run(_accuracy, figure("accuracy_value").value),
    "energy_gross_mj": _of_run(gross_text, figure("energy_gross_mj").value),
    "steady_power_w": _of_run(_power, figure("steady_power_w").value),
    "energy_net_mj": _of_run(_net, figure("energy_gross_mj").value),
}


def _of_figure(entry: Figure) -> list[_Column]:
    """Return the column of a figure, of the latency with its interval; an energy is never dropped."""
    rank = 0 if entry.group == "energy" else entry.rank
    column = _Column(
        entry.heading, "right", always=entry.always, text=_TEXTS.get(entry.name) or (lambda case: case.median_text(entry)), rank=rank
    )
    interval = _Column("95%", "left", always=False, text=lambda case: case.interval_text(entry), rank=1)
    return [column, interval] if entry.name == LATENCY else [column]


COLUMNS = (
    _Column("model", "left", always=True, text=lambda case: model_text(case.runs[0])),
    _Column(SETTING, "left", always=True, text=lambda case: setting_text(case.runs[0])),
    _Column("runs", "right", always=False, text=lambda case: str(len(case.counted)) if len(case.runs) > 1 else "", rank=4),
    *(column for entry in in_view("run") for column in _of_figure(entry)),
    _Column("verdict", "left", always=True, text=lambda case: case.state),
)


def notes(cases: Sequence[MeasuredCase], *, why: bool) -> Iterator[str]:
    """Yield the lines; with `why` every violated rule with its evidence, what queries do not support, and the energies of every run."""
    runs = [run for case in cases for run in case.runs]
    yield from _evidence(runs) if why else _violations(runs)
    if why:
        yield from _unsupported(runs)
        yield from (f"together: {run.model.name} {run.together.words}" for run in runs if run.together)
    described = runs if why else [case.typical for case in cases]
    # The block of a steady run has it.
    yield from (f"over time: {run.model.name} {held_out(run.sustained)}" for run in described if run.sustained and not run.steady)
    yield from (note for run in described for note in (*_energy_notes(run), *_token_energy_notes(run)))
    yield from (f"no energy: {run.energy_reason}" for run in runs if run.energy is None)
    for case in cases:
        if not any(run.accuracy for run in case.runs):
            yield f"no accuracy: {case.runs[0].accuracy_reason}"
    # The sentence on a single case has it.
    yield from _accuracies(cases) if len(cases) > 1 else ()
    yield from (f"note: {run.model.name}: {note}" for run in runs for note in run.verdict.notes if note.startswith("unsure-model"))


def _accuracies(cases: Sequence[MeasuredCase]) -> Iterator[str]:
    """Yield one line with the bounds of each score, and the models that have it."""
    models: dict[str, list[str]] = {}
    for run in (run for case in cases for run in case.runs):
        if run.accuracy and run.accuracy.low is not None:
            models.setdefault(accuracy_text(run.accuracy), []).append(f"{model_text(run)} {run.precision}")
    if models:
        texts = [f"{score} of {', '.join(dict.fromkeys(names))}" for score, names in models.items()]
        yield f"accuracy: {'; '.join(texts)}"


def _violations(runs: Sequence[RunRecord]) -> Iterator[str]:
    """Yield a line for each state that is not valid: how many of the runs are in it, by which rules."""
    for state in ("invalid", "suspect"):
        verdicts = [run.verdict for run in runs if run.verdict.state == state]
        if verdicts:
            violated = Counter(rule for verdict in verdicts for rule in dict.fromkeys(verdict.rules))
            rules = ", ".join(rule + (f" in {number}" if number < len(verdicts) else "") for rule, number in violated.items())
            of = f"{len(verdicts)} of {count(len(runs), 'run')}: " if len(runs) > 1 else ""
            yield f"{state}: {of}{rules}; --why shows the evidence, later `edgemeter runs show ID`; {_REMEDIES}"


def _evidence(runs: Sequence[RunRecord]) -> list[str]:
    """Return a line for each rule that repeats of a case violated, with the evidence of the first."""
    by_rule: dict[tuple[str, str, str], list[str]] = {}
    for run in runs:
        for reason in run.verdict.reasons:
            by_rule.setdefault((run.verdict.state, f"{run.model.name} on {run.runtime.name}", rule_of(reason)), []).append(reason)
    repeats = {key: f" (and in {len(reasons) - 1} more of its runs)" for key, reasons in by_rule.items() if len(reasons) > 1}
    lines = [f"{state}: {case}: {reasons[0]}{repeats.get((state, case, rule), '')}" for (state, case, rule), reasons in by_rule.items()]
    return [*lines, _REMEDIES] if lines else []


def _unsupported(runs: Sequence[RunRecord]) -> Iterator[str]:
    """Yield what the queries of the runs are too few, or too dependent, to state."""
    for run in runs:
        percentiles = ", ".join(f"{name.replace('_', '.')} (needs {count:,} queries)" for name, count in run.latency.refused.items())
        if percentiles:
            yield f"not stated: {percentiles} of {run.model.name}"
    yield from {model_text(run): _dependence_note(run) for run in reversed(runs) if run.latency.early_stopping_reason}.values()


def _dependence_note(run: RunRecord) -> str:
    """Return how many independent queries those of the run are worth, and which percentiles that leaves without bounds."""
    latency = run.latency
    worth = [f"{count:,} for {name.replace('_', '.')}" for name, count in latency.effective.items()]
    needs = [f"{name.replace('_', '.')} (time about {count:,} queries)" for name, count in latency.unbounded.items()]
    text = f"note: {latency.count:,} queries of {model_text(run)} depend on each other, worth fewer independent ones: {', '.join(worth)}"
    return text + (f"; no bounds of {', '.join(needs)}" if needs else "")


def _energy_notes(run: RunRecord) -> list[str]:
    """Return why there is no energy or none of what was asked for, and what stands beside the energy of the widest scope."""
    if (energy := run.energy) is None:
        return [f"no energy: {run.energy_reason}"]
    provenance = energy_provenance(run)
    if provenance == "estimated":
        return [f"energy of {run.model.name} is estimated from a stated {energy.mean_power_w:g} W, not measured: it ranks nowhere"]
    if provenance == "shared" and run.together:
        shared = f"{run.model.name} and {run.together.names} at the same time: {plain_digits(energy.mean_power_w)} W, {energy.scope}"
        return [f"energy of {shared}; by the inferences of one of them it is no cost of that model, and ranks nowhere"]
    left_out = f"leaves out {', '.join(energy.excludes)}" if energy.excludes else "leaves out nothing"
    unknown = "" if energy.gross_u_mj is not None else f"; no interval (±?): {energy.interval_reason}"
    notes = [f"energy by {energy.sensor}, {energy.scope}: {left_out}{unknown}"]
    if run.load and run.load.pauses and run.load.concurrency is None:
        notes.append(f"{run.load.pauses} random pauses between queries, {run.load.paused_ms:,.0f} ms in all, are in no figure")
    notes += [f"no energy from {reason}" for reason in run.other_energy_reasons]
    notes += [
        f"also {energy_text(other.gross_mj, other.gross_u_mj)} mJ gross by {other.sensor} ({other.scope}), "
        f"{other.mean_power_w / energy.mean_power_w:.2f} of what {energy.sensor} ({energy.scope}) sees"
        for other in run.other_energies
        if energy.mean_power_w
    ]
    if energy.net_state == "no_idle" and run.windows is not None and (run.windows.idle_before or run.windows.idle_after):
        notes.append(f"no net energy of {run.model.name}: its idle stretches do not give {energy.sensor} an idle power: use a longer mode")
    if energy.net_state == "not_resolvable":
        window_s = energy.resolving_window_s
        do = (
            f"idle and load of {window_s:.0f} s each would resolve it"
            if window_s is not None
            else f"{energy.sensor} does not resolve it within a day"
        )
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
        f"{energy_text(per_token.gross_mj, per_token.gross_u_mj)} mJ gross a {token}" if per_token else f"none a {token} ({reason})"
        for token, per_token, reason in parts
    ]
    return [f"energy of {run.model.name} by the token: {', '.join(texts)}; mJ above are of a whole request{between}"]


def _load_notes(runs: Sequence[RunRecord]) -> list[str]:
    loads = [(run, run.load) for run in runs if run.load and not run.steady]
    return [_load_note(run, load) for run, load in loads if load.is_sustained is not None or load.target_per_s]


def _load_note(run: RunRecord, load: Load) -> str:
    rate = (
        f"{plain_digits(load.target_per_s)} queries a second of {run.model.name}" if load.target_per_s else f"a trace on {run.model.name}"
    )
    busy = f"busy {load.utilisation_ratio:.0%} of the time" if load.utilisation_ratio is not None else "busy an unknown share of the time"
    if load.in_flight_max is not None:
        busy = f"up to {load.in_flight_max} at once"
    if load.is_sustained is None:
        return f"not known whether sustained: {rate}: {busy}: the schedule is too short for such answers: `--mode normal`"
    if load.is_sustained:
        # What waits inside a server is not seen.
        waited = f", they waited {plain_digits(load.queueing.p50_ms)} ms (p50)" if load.queueing and load.in_flight_max is None else ""
        drain = f"; rates include {load.tail_ms / 1e3:.3g} s after the last arrival" if load.tail_ms and load.in_flight_max else ""
        return f"sustained: {rate}: {busy}{waited}{drain}"
    unserved = f", {load.unserved} never served" if load.unserved else ""
    return f"not sustained: {rate}: {busy}{unserved}; the latencies only say how long it was tried: offer a lower rate"
