"""The table that `edgemeter run` prints: one row a run."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from edgemeter.agent.records import Energy, RunRecord

STYLE = {"valid": "green", "suspect": "yellow", "invalid": "red"}


def print_runs(runs: Sequence[RunRecord], console: Console | None = None) -> None:
    """Print the runs as a table, and below it why any of them should not be believed, and why energy is missing."""
    console = console or Console()
    table = Table(title=f"{runs[0].device}: {len(runs)} runs" if runs else None, title_justify="left", header_style="bold")
    for heading in ("model", "runtime", "precision"):
        table.add_column(heading, overflow="fold")
    for heading in ("p50 ms", "p90 ms", "per s", "accuracy", "mJ gross", "mJ net", "peak MB"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for run in runs:
        table.add_row(*_row(run), style="dim" if run.verdict.state == "invalid" else None)
    console.print(table)
    for note in dict.fromkeys(_notes(runs)):
        console.print(note, markup=False, highlight=False, soft_wrap=True)


def _row(run: RunRecord) -> list[str]:
    accuracy = f"{run.accuracy.value:.4f} {run.accuracy.metric}" if run.accuracy else "-"
    return [
        run.model.name,
        f"{run.runtime.name} {run.runtime.version}, {run.runtime.threads}T",
        run.precision,
        significant(run.latency.p50_ms),
        significant(run.latency.p90_ms),
        significant(run.throughput_per_s),
        accuracy,
        significant(run.energy.gross_mj) if run.energy else "-",
        _net(run.energy),
        significant(run.memory.peak_mb, 3),
        f"[{STYLE[run.verdict.state]}]{run.verdict.state}[/]",
    ]


def _net(energy: Energy | None) -> str:
    if energy is None:
        return "-"
    return (
        significant(energy.net_mj) if energy.net_mj is not None and energy.net_state == "resolved" else energy.net_state.replace("_", " ")
    )


def _notes(runs: Sequence[RunRecord]) -> list[str]:
    reasons = [f"{run.verdict.state}: {run.model.name} on {run.runtime.name}: {reason}" for run in runs for reason in run.verdict.reasons]
    refused = [
        f"not stated: {', '.join(run.latency.refused)} of {run.model.name}: {run.latency.count} queries are too few"
        f" ({', '.join(f'{name} needs {count}' for name, count in run.latency.refused.items())})"
        for run in runs
        if run.latency.refused
    ]
    energy = [f"no energy: {run.energy_reason}" for run in runs if run.energy is None]
    accuracy = [f"no accuracy: {run.accuracy_reason}" for run in runs if run.accuracy is None]
    return [*reasons, *refused, *energy, *accuracy]


def significant(value: float | None, digits: int = 4) -> str:
    """Return `value` with so many significant digits, never in exponent form; "-" where there is none."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    text = f"{value:.{digits}g}"
    return f"{float(text):.0f}" if "e" in text else text
