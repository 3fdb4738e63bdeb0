"""The output of `edgemeter run`.

One case is a block of lines, several are a table. Verdicts and missing parts follow.
"""

import statistics
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from edgemeter.agent.base.console import Console
from edgemeter.agent.base.number_text import (
    ABSENT,
    plain_digits,
    short_id,
)
from edgemeter.agent.base.terminal import TableColumn, fitted_table, print_text, table_width
from edgemeter.agent.contract.case_settings import Settings
from edgemeter.agent.contract.figures import (
    ENERGY,
    LATENCY,
    MISSED,
    THROUGHPUT,
    TOKEN_ENERGY,
    TTFT,
    FigureView,
    figure,
    in_view,
)
from edgemeter.agent.contract.mode_answer import mode_answers, mode_text
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_figures import Sustained
from edgemeter.agent.contract.steady_facts import moment
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.measuring.case_text import block_lines, block_rows, heading, result_lines
from edgemeter.agent.measuring.measured_case import (
    DECODING,
    MeasuredCase,
    cases_of,
    model_text,
    setting_text,
)
from edgemeter.agent.measuring.suites import data_options

STYLE = {"ok": "green", "disturbed": "yellow", "invalid": "red"}
STRETCHES = 6  # Rows of the table of a long run over time.


def print_runs(
    runs: Sequence[RunRecord],
    console: Console | None = None,
    *,
    wide: bool = False,
    seconds: float | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Print the results of the runs, then the notes.

    With `wide` also every run is printed with all its figures. `seconds` is the duration of all.
    """
    if not runs:
        return
    console = console or Console()
    for device in dict.fromkeys(run.device for run in runs):
        cases = cases_of(run for run in runs if run.device == device)
        if len(cases) == 1:
            print_block(cases[0], console)
        else:
            columns = list(_columns(cases))
            shared = [
                column for column in columns if column.narrowed and len(set(column.cells)) == 1
            ]
            print_text(
                console,
                ", ".join(
                    [
                        f"{len(cases)} cases on {device}",
                        *(column.cells[0] for column in shared if column.cells[0]),
                    ]
                ),
            )
            columns = [column for column in columns if column not in shared]
            console.print(
                fitted_table(columns, table_width(console), STYLE, "--wide shows each run")
            )
            print_text(console, "")
        for answer in mode_answers(run for case in cases for run in case.runs):
            print_text(console, f"{answer.title}:")
            columns = [TableColumn(*cells, "left") for cells in answer.columns.items()]
            console.print(fitted_table(columns, console.width))
            print_text(console, "")
        if wide:
            console.print(fitted_table(list(_wide_columns(cases)), console.width, STYLE))
            print_text(console, "")
        for line in dict.fromkeys(result_lines(cases, seconds)):
            print_text(console, f"  {line}")
    for line in notes:
        print_text(console, f"  {line}")


def saved_line(runs: Sequence[RunRecord], of_suite: Sequence[Case], settings: Settings) -> str:
    """Return the ids of the first runs of the cases, and the next command.

    In that command another model gets the same data options.
    """
    cases = cases_of(runs)
    ids = [short_id(case.runs[0].id) for case in cases]
    if len(ids) > 1:
        return f"saved as {', '.join(ids)}: edgemeter runs"
    file = cases[0].typical.model.file
    own_case = min(of_suite, key=lambda case: Path(case.model).name != file, default=None)
    of_data = data_options(own_case or settings)
    return f"saved as {ids[0]}: edgemeter compare {ids[0]} OTHER{Path(file).suffix}{of_data}"


def print_block(case: MeasuredCase, console: Console) -> None:
    first, *figures = block_lines(heading(case.typical), list(block_rows(case)))
    for line in (first, "", *figures):
        print_text(console, line)
    if (curve := case.typical.sustained) and len(curve.points) >= STRETCHES:
        print_text(console, "")
        console.print(fitted_table(list(_over_time(curve)), console.width))
    print_text(console, "")


def _over_time(curve: Sustained) -> Iterator[TableColumn]:
    """Yield the columns of a long run in a few stretches.

    They have the median of the intervals in each, and all missed frames.
    """
    points, number = curve.points, len(curve.points)
    edges = [number * index // STRETCHES for index in range(STRETCHES + 1)]
    stretches = [points[begin:end] for begin, end in pairwise(edges)]
    yield TableColumn("from", [moment(begin * curve.interval_s) for begin in edges[:-1]])
    if any(point.missed is not None for point in points):
        yield TableColumn(
            "missed", [f"{sum(point.missed or 0 for point in stretch):,}" for stretch in stretches]
        )
    for title, name, per in (
        ("p50 ms", "p50_ms", 1.0),
        ("MHz", "clock_hz", 1e6),
        ("°C", "temperature_c", 1.0),
        ("W", "power_w", 1.0),
    ):
        by_stretch = [
            [value for point in stretch if (value := getattr(point, name)) is not None]
            for stretch in stretches
        ]
        yield TableColumn(
            title,
            [
                plain_digits(statistics.median(values) / per, 3) if values else ABSENT
                for values in by_stretch
            ],
        )


def _columns(cases: Sequence[MeasuredCase]) -> Iterator[TableColumn]:
    """Yield the columns of several cases: latency, accuracy and energy first."""
    runs = [case.typical for case in cases]
    yield TableColumn("model", [model_text(run) for run in runs], "left", narrowed="shortens")
    yield TableColumn("", _settings(runs), "left", narrowed="shortens")
    for entry in map(figure, (LATENCY, THROUGHPUT, MISSED)):
        # A rate needs no title.
        yield TableColumn(
            entry.unit if entry.name == THROUGHPUT else entry.heading,
            [
                case.text(entry.name, "") if case.first_figure == entry.name else ABSENT
                for case in cases
            ],
        )
    for name, rank in (("generation_prefill_tokens_per_s", 2), (DECODING, 0), (TTFT, 3)):
        yield TableColumn(figure(name).heading, [case.text(name, "") for case in cases], rank=rank)
    yield TableColumn("accuracy", [case.accuracy_text() for case in cases], rank=1)
    energies = [ABSENT if case.typical.generation else case.text(ENERGY, "") for case in cases]
    yield TableColumn(figure(ENERGY).unit, energies, rank=1)
    token_energies = [case.text(TOKEN_ENERGY, "", per=1000) for case in cases]
    yield TableColumn("J/token", token_energies, rank=1)
    yield TableColumn("runs", [str(len(case.counted)) for case in cases], rank=4)
    yield TableColumn("verdict", [case.state for case in cases], "left")


def _wide_columns(cases: Sequence[MeasuredCase]) -> Iterator[TableColumn]:
    runs = [MeasuredCase((run,)) for case in cases for run in case.runs]
    yield TableColumn("run", [short_id(case.runs[0].id) for case in runs], "left")
    if len(cases) > 1:
        yield TableColumn(
            "model", [model_text(case.runs[0]) for case in runs], "left", narrowed="shortens"
        )
        yield TableColumn(
            "", [setting_text(case.runs[0]) for case in runs], "left", narrowed="shortens"
        )
    for entry in in_view(FigureView.RUN):
        yield TableColumn(
            entry.heading, [case.text(entry.name, "") for case in runs], rank=entry.rank
        )
    yield TableColumn("verdict", [case.state for case in runs], "left")


def _settings(runs: Sequence[RunRecord]) -> list[str]:
    """Return the settings of cases, so that no two cases have the same row.

    Power mode and options are among them only if they are needed for that.
    """
    modes = [mode_text(run) for run in runs]
    cells = [
        " ".join(filter(None, (setting_text(run), mode * (len(set(modes)) > 1))))
        for run, mode in zip(runs, modes, strict=True)
    ]
    rows = [
        (model_text(run), cell, run.runtime.options) for run, cell in zip(runs, cells, strict=True)
    ]
    texts = []
    for model, cell, options in rows:
        alike = [compared for *names, compared in rows if names == [model, cell]]
        differing = [
            name
            for name in options
            if any(compared.get(name) != options[name] for compared in alike)
        ]
        texts.append(
            " ".join((cell, *(f"{name}={Path(options[name]).name}" for name in differing)))
        )
    return texts
