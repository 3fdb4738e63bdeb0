"""The output of `edgemeter run`: the answer of one case in a sentence, and a table with a row a case, or with `why` a row a run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Console

from edgemeter.agent.base.figures import ABSENT, count
from edgemeter.agent.base.metrics import metric_name
from edgemeter.agent.base.terminal import TableColumn, fitted_table, print_text
from edgemeter.agent.cli.measured_case import MeasuredCase, cases_of, energy_text, gross_text, model_text, setting_text
from edgemeter.agent.cli.run_notes import notes
from edgemeter.agent.contract.figures import Figure, figure, in_view
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.ledger.run_history import short_id

STYLE = {"valid": "green", "suspect": "yellow", "invalid": "red"}
LATENCY = "latency_p50_ms"
# Columns that say which case it is.
NAMES = 2


def print_runs(runs: Sequence[RunRecord], console: Console | None = None, *, why: bool = False) -> None:
    """Print what the runs come to, and below it why it should not be believed, and why energy or accuracy is missing.

    With `why` every run has its row, and every violated rule its evidence.
    """
    if not runs:
        return
    console = console or Console()
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
    for line in dict.fromkeys(notes(cases, why=why)):
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
        return TableColumn(self.heading, cells, self.justify, self.rank, self.always, folds=self.heading == "model")


def _of_run(text: Callable[[RunRecord], str], value: Callable[[RunRecord], float | None]) -> Callable[[MeasuredCase], str]:
    """Return what shows of a case the run whose value is the median."""

    def text_of(case: MeasuredCase) -> str:
        run = case.middle(value)
        return text(run) if run else ABSENT

    return text_of


def _accuracy(run: RunRecord) -> str:
    return f"{run.accuracy.value:.4f} {metric_name(run.accuracy.metric)}" if run.accuracy else ABSENT


def _net(run: RunRecord) -> str:
    energy = run.energy
    if energy is None:
        return ABSENT
    if energy.net_state == "no_idle":
        return "no idle power"
    if energy.net_mj is None or energy.net_state != "resolved":
        return energy.net_state.replace("_", " ")
    return energy_text(energy.net_mj, energy.net_u_mj)


# Figures of which the table says more than the number.
_TEXTS: Mapping[str, Callable[[MeasuredCase], str]] = {
    "accuracy_value": _of_run(_accuracy, figure("accuracy_value").value),
    "energy_gross_mj": _of_run(gross_text, figure("energy_gross_mj").value),
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
    _Column("", "left", always=True, text=lambda case: setting_text(case.runs[0])),
    _Column("runs", "right", always=False, text=lambda case: str(len(case.counted)) if len(case.runs) > 1 else "", rank=4),
    *(column for entry in in_view("run") for column in _of_figure(entry)),
    _Column("verdict", "left", always=True, text=lambda case: case.state),
)
